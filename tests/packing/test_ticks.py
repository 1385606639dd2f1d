"""Progress through a named pipe."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from penstock.packing.ticks import Ticker, Ticks


def test_what_workers_tell_is_handed_on(tmp_path: Path) -> None:
    told: list[int] = []
    with Ticker(str(tmp_path / "pipe"), told.append) as ticker:
        for _ in range(3):
            worker = Ticks(ticker.path)
            for _ in range(1000):
                worker.add()
            worker.close()
            worker.close()
    assert sum(told) == 3000
    assert os.listdir(tmp_path) == []


def test_nothing_that_is_added_and_nothing_that_is_told_is_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.packing.ticks._EVERY_S", -1.0)  # each is told at once
    told: list[int] = []
    seen = threading.Event()

    def advance(count: int) -> None:
        told.append(count)
        if sum(told) == 7:
            seen.set()

    with Ticker(str(tmp_path / "pipe"), advance) as ticker:
        worker = Ticks(ticker.path)
        for count in (0, 3, 0, 4, 0):
            worker.add(count)
        assert seen.wait(60)
        worker.add(5)
        worker.close()
    assert told[:2] == [3, 4]
    assert sum(told) == 12
    assert 0 not in told


def test_without_a_pipe_nothing_is_told(tmp_path: Path) -> None:
    with Ticker(str(tmp_path / "missing" / "pipe"), lambda count: None) as ticker:
        assert ticker.path is None
    worker = Ticks(None)
    worker.add(5)
    worker.close()


def test_a_worker_whose_packer_is_gone_goes_on(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    worker = Ticks(str(tmp_path / "pipe"))
    worker.add(5)
    worker.close()
    gone = Ticks(str(tmp_path / "gone"))
    gone.add(5)
    gone.close()
