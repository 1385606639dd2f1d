"""Progress through a named pipe."""

from __future__ import annotations

import os
from pathlib import Path

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
