"""Workers that die at random times, in random ways: the batches are byte for byte those of the undisturbed run. FAULTS A6 to A8, R1, R3."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from core import core
from faults.cells import check_same, reference, taken
from faults.deaths import PLANS, DiesSometimes, killer, unhurt
from faults.jobs_in_workers import Dies, number_of
from faults.kill_resume import broken_off_and_resumed

import penstock as ps

pytestmark = [pytest.mark.usefixtures("fork_server"), pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="worker processes")]


def check_undisturbed(name: str, seed: int, folder: Path, num_workers: int, ordered: bool) -> None:
    """Run a plan whose workers die, and compare."""
    way = {"executor": "processes", "num_workers": num_workers, "ordered": ordered}
    with PLANS[name](DiesSometimes(folder, seed, 5)).feed(**way) as feed, killer(feed, seed, 3):
        items, error = taken(feed)
    assert error is None, error
    check_same(items, reference(PLANS[name](unhurt)), way)


@pytest.mark.parametrize("name", core(PLANS))
def test_workers_that_die_at_random_change_no_byte(name: str, tmp_path: Path) -> None:
    check_undisturbed(name, 1, tmp_path, 2, ordered=True)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 12))
@pytest.mark.parametrize("name", PLANS)
def test_workers_that_die_at_many_random_times_change_no_byte(name: str, seed: int, tmp_path: Path) -> None:
    check_undisturbed(name, seed, tmp_path, 1 + seed % 3, ordered=name not in ("ragged", "texts") or seed % 2 == 0)


@pytest.mark.parametrize("kind", core(["rows", "batches"]))
def test_what_kills_twice_is_named_and_left_out_where_the_policy_says_so(kind: str, tmp_path: Path) -> None:
    bad = {8: 99, 40: 99, 41: 1}
    source = ps.from_source(range(80))
    ds = (source if kind == "rows" else source.batch(4)).map(Dies(tmp_path, "SIGSEGV", bad))
    way: dict[str, Any] = {"executor": "processes", "num_workers": 2}
    quarantine = tmp_path / "bad.jsonl"
    with ds.feed(**way, on_error=ps.Skip(quarantine=quarantine)) as feed:
        items, error = taken(feed)
    assert error is None, error
    left = [number_of(item) for item in items]
    assert left == [number for number in range(0, 80, 1 if kind == "rows" else 4) if number not in (8, 40)]
    assert [line.count("was killed by SIGSEGV") > 0 for line in quarantine.read_text().splitlines()] == [True, True]
    with pytest.raises(ps.errors.WorkerDied, match="was killed by SIGSEGV") as died, ds.feed(**way) as feed:
        list(feed)
    assert "epoch 0 index 8" in "".join(died.value.__notes__)


@pytest.mark.filterwarnings("ignore:nothing has arrived:RuntimeWarning")
def test_a_process_that_imports_for_longer_than_a_stall_is_no_stall(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = ["import multiprocessing, time", "time.sleep(1.5 * (multiprocessing.parent_process() is not None))", "def same(x): return x"]
    (tmp_path / "slow_to_import.py").write_text("\n".join(lines))
    monkeypatch.syspath_prepend(str(tmp_path))
    import slow_to_import

    ds = ps.from_source(range(8)).map(slow_to_import.same, on_error=ps.Skip())
    with ds.feed(executor="processes", num_workers=2, stall_timeout_s=0.4, on_stall="skip") as feed:
        assert list(feed) == list(range(8))
        assert not any("computes its elements again" in notice for notice in feed.stats().notices)


@pytest.mark.parametrize("seed", core(range(2)))
def test_a_run_broken_off_and_resumed_with_other_workers_while_some_die_is_the_undisturbed_one(seed: int, tmp_path: Path) -> None:
    assert broken_off_and_resumed(seed, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(2))
def test_40_runs_broken_off_and_resumed_while_workers_die_are_the_undisturbed_ones(part: int, tmp_path: Path) -> None:
    for seed in range(1000 + 20 * part, 1000 + 20 * (part + 1)):
        (tmp_path / str(seed)).mkdir()
        assert broken_off_and_resumed(seed, tmp_path / str(seed))
