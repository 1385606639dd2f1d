"""The referee of the benchmarks: ratios are formed within a round, and targets are judged as they are written."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from programs import python

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the benchmarks measure with /proc")


@pytest.fixture
def rounds(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    yield importlib.import_module("rounds")
    for name in ("rounds", "data", "machine"):
        sys.modules.pop(name, None)


def claim_of(rounds: ModuleType, **more: object) -> object:
    return rounds.Claim(name="x", title="x", unit="x/s", prepare=lambda size, root: None, **more)


def test_a_ratio_is_formed_within_each_round_so_that_a_slow_minute_does_not_count(rounds: ModuleType) -> None:
    runs = [
        {"contestant": name, "round": turn, "memory": False, "rate": rate}
        for turn, pair in enumerate([(100.0, 90.0), (50.0, 45.0), (10.0, 9.0)])
        for name, rate in zip(("limit", "penstock"), pair, strict=True)
    ]
    row = rounds.summarise(runs, claim_of(rounds))["penstock"]
    assert (row["rate"], row["lowest"], row["highest"]) == (45.0, 9.0, 90.0)
    assert row["ratio"] == pytest.approx(0.9)
    assert row["reference"] == "limit"


def test_a_contestant_may_be_measured_against_another_one_than_the_rest(rounds: ModuleType) -> None:
    runs = [{"contestant": name, "round": 0, "rate": rate} for name, rate in (("limit", 8.0), ("loop", 2.0), ("penstock", 3.0))]
    summary = rounds.summarise(runs, claim_of(rounds, references={"penstock": "loop"}))
    assert summary["penstock"]["ratio"] == 1.5
    assert summary["loop"]["ratio"] == 0.25
    assert "ratio" not in summary["limit"]


def test_a_target_is_met_missed_or_not_measured(rounds: ModuleType) -> None:
    targets = [
        rounds.Target(contestant=name, metric="ratio", sense=sense, bound=0.95)
        for name, sense in (("fast", ">="), ("slow", ">="), ("slow", "<="), ("absent", ">="))
    ]
    records = rounds.judge(targets, {"fast": {"ratio": 0.95}, "slow": {"ratio": 0.5}})
    assert [record["met"] for record in records] == [True, False, True, None]


def test_contestants_with_other_batches_than_their_reference_are_named(rounds: ModuleType) -> None:
    summary = {"limit": {}, "inline": {"batch": "float32[8]"}, "penstock": {"batch": "float64[8]"}, "same": {"batch": "float32[8]"}}
    odd = rounds.odd_batches(summary, claim_of(rounds, reference="inline"))
    assert odd == ["penstock delivers float64[8], inline float32[8]"]


def test_a_limit_whose_worker_fails_is_an_error_and_does_not_wait_at_the_barrier() -> None:
    # In an interpreter of its own: the limit forks, and this one may have threads.
    program = (
        "import pairs\n"
        "def make(worker, num_workers):\n"
        "    if worker == num_workers - 1:\n"
        "        raise LookupError('no such data')\n"
        "    return lambda: 1\n"
        "pairs.limit(make, (), 1, 0.0)\n"
    )
    ran = python("-c", program, cwd=BENCHMARKS)
    assert ran.returncode == 1
    assert "LookupError: no such data" in ran.stderr
    assert "RuntimeError: a worker of the limit ended with exit status 1" in ran.stderr


def test_the_best_of_several_ways_is_a_reference_of_its_own(rounds: ModuleType) -> None:
    runs = [
        {"contestant": name, "round": turn, "rate": rate}
        for turn, rates in enumerate([(2.0, 4.0, 8.0), (20.0, 5.0, 10.0), (3.0, 6.0, 12.0)])
        for name, rate in zip(("one_process", "two_processes", "penstock"), rates, strict=True)
    ]
    ways = ("one_process", "two_processes", "absent")
    target = rounds.Target(contestant="penstock", metric="times_peer", sense=">=", bound=2.0)
    claim = claim_of(rounds, references={"penstock": "peer"}, best={"peer": ways, "nobody": ("absent",)}, targets=(target,))
    summary = rounds.summarise(runs, claim)
    assert (summary["peer"]["is"], summary["peer"]["rate"]) == ("two_processes", 5.0)
    assert summary["penstock"]["ratio"] == 2.0
    assert "nobody" not in summary


def test_a_contestant_may_have_a_target_beside_another_than_its_reference(rounds: ModuleType) -> None:
    runs = [{"contestant": name, "round": 0, "rate": rate} for name, rate in (("limit", 8.0), ("one", 2.0), ("two", 3.0))]
    targets = tuple(rounds.Target(contestant="two", metric=f"times_{name}", sense=">=", bound=1.7) for name in ("one", "absent"))
    claim = claim_of(rounds, targets=targets)
    summary = rounds.summarise(runs, claim)
    assert (summary["two"]["ratio"], summary["two"]["times_one"]) == (0.375, 1.5)
    assert [record["met"] for record in rounds.judge(claim.targets, summary)] == [False, None]
