"""All operators and a policy in one feed, in completion order, killed at 100 random points, resumed: nothing lost, nothing twice.

The law that the second milestone ends with, and FAULTS E9 and E13: the same with an order, where the sequence must be that of a run which
was never killed. See `lives.py` for how 100 lives fit into some seconds.
"""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest
from faults.lives import PLANS, delivered, killed, quarantined

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not hasattr(os, "fork"), reason="a life is a forked process")]

UNORDERED = [name for name, plan in PLANS.items() if plan.unordered]
ORDERED = [name for name, plan in PLANS.items() if not plan.unordered]


def reference(name: str, folder: Path) -> tuple[list[list[int]], set[str]]:
    """Return what a run delivers that nobody kills, and what it skips."""
    plan = PLANS[name]
    with plan.dataset(folder / "bad.jsonl").feed(executor="inline") as feed:
        return [plan.parts(item) for item in feed], quarantined(folder)


def check_nothing_lost_nothing_twice(name: str, folder: Path, num_kills: int, seed: int = 0) -> None:
    items, bad = reference(name, folder)
    whole = Counter(part for item in items for part in item)
    assert bad or name == "batches in any order"
    for run in killed(name, folder / "runs", num_kills, seed):
        assert quarantined(run) == bad
        assert Counter(part for item in delivered(run) for part in item) == whole


def check_sequence(name: str, folder: Path, num_kills: int, seed: int = 0) -> None:
    whole, bad = reference(name, folder)
    for run in killed(name, folder / "runs", num_kills, seed):
        assert quarantined(run) == bad
        assert delivered(run) == whole


@pytest.mark.parametrize("name", [name for name in UNORDERED if not name.startswith("everything")])  # those are killed 100 times below
def test_a_feed_with_everything_killed_at_20_random_points_loses_nothing_and_gives_nothing_twice(name: str, tmp_path: Path) -> None:
    check_nothing_lost_nothing_twice(name, tmp_path, 20)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in UNORDERED if name.startswith("everything")])
def test_a_feed_with_everything_killed_at_100_random_points_loses_nothing_and_gives_nothing_twice(name: str, tmp_path: Path) -> None:
    check_nothing_lost_nothing_twice(name, tmp_path, 100, seed=1)


@pytest.mark.parametrize("name", ORDERED)
def test_a_feed_in_order_killed_at_20_random_points_gives_the_sequence_of_one_that_was_never_killed(name: str, tmp_path: Path) -> None:
    check_sequence(name, tmp_path, 20)


@pytest.mark.slow
@pytest.mark.parametrize("name", ORDERED)
@pytest.mark.parametrize("seed", range(1, 4))
def test_a_feed_in_order_killed_at_many_random_points_gives_the_sequence_of_one_that_was_never_killed(
    name: str, seed: int, tmp_path: Path
) -> None:
    check_sequence(name, tmp_path, int(os.environ.get("SOAK_KILLS", "40")), seed)  # 3 pipelines, 3 seeds: 360 kills
