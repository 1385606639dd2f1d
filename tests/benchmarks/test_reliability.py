"""Cells of benchmarks/reliability.py that need nothing but Penstock, and the tables of its page."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
BATCHES = [list(range(start, start + 4)) for start in range(0, 240, 4)]

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are found in /proc")


@pytest.fixture
def reliability(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module("reliability")


def test_a_worker_that_is_killed_changes_nothing_and_leaves_nothing(reliability: ModuleType) -> None:
    row, items = reliability.run("SIGKILL", "penstock", expected=BATCHES)
    assert items == BATCHES, row
    assert (row.seen, row.error, row.processes) == ("goes on", "", [])
    assert row.seconds is not None


@pytest.mark.slow
def test_an_element_that_kills_each_time_is_named(reliability: ModuleType) -> None:
    row, items = reliability.run("kills always", "penstock", expected=BATCHES)
    assert items == BATCHES[: 101 // 4], row
    assert row.seen == "error, names the element"
    assert row.error.startswith("WorkerDied: worker process"), row.error


@pytest.mark.slow
def test_a_program_that_is_killed_leaves_no_process(reliability: ModuleType) -> None:
    row, _ = reliability.run("SIGKILL, busy", "penstock")
    assert (row.seen, row.processes, row.was_killed) == ("ends", [], False), row


@pytest.mark.slow
def test_a_program_that_goes_wrong_is_seen(reliability: ModuleType) -> None:
    lost, _ = reliability.run("SIGKILL", "penstock", expected=[*BATCHES, [240]])
    assert lost.seen.startswith("**"), lost
    hung, _ = reliability.run("sleep", "penstock", deadline_s=0.2)
    assert (hung.was_killed, hung.seen, hung.seconds) == (True, "**hangs**", None)
    assert reliability.time_class(hung) == "none in 75 s"


def test_the_page_has_the_tables_of_the_result_file(reliability: ModuleType) -> None:
    result = json.loads((ROOT / "benchmarks" / "results" / "reliability.json").read_text())
    assert reliability.tables(result) in (ROOT / "docs" / "reliability.md").read_text()
