"""Workers that start before it is known what they are to do."""

from __future__ import annotations

import os
import pickle
import signal
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from jobs import acting

from penstock.errors import StopRaised, WorkerDied
from penstock.jobs import starting as module
from penstock.jobs.starting import Early

pytestmark = [
    pytest.mark.usefixtures("fork_server"),
    pytest.mark.skipif(sys.platform == "win32", reason="processes of POSIX"),
]


def _wait_for(*paths: Path) -> None:
    deadline = time.monotonic() + 30
    while not all(path.exists() for path in paths):
        assert time.monotonic() < deadline, f"{paths} not made"
        time.sleep(0.01)


def test_they_do_what_can_be_done_before_and_then_the_jobs(tmp_path: Path) -> None:
    with Early(2, pickle.dumps(partial(acting.leave, str(tmp_path)))) as early:
        _wait_for(tmp_path / "0", tmp_path / "1")
        pids = {child.pid for child in early._waiting}
        results = early.jobs(acting.pair, range(40))
    assert [job for _, job in results] == list(range(40))
    assert {pid for pid, _ in results} <= pids


def test_what_they_have_made_before_comes_in_their_order() -> None:
    with Early(3, pickle.dumps(acting.slow_first)) as early:
        pids = [child.pid for child in early._waiting]
        assert early.ahead() == list(zip(range(3), pids, strict=True))
        assert early.jobs(acting.square, range(9)) == [number * number for number in range(9)]


@pytest.mark.parametrize("asked", [True, False])
@pytest.mark.parametrize("ahead", [acting.fail, acting.lock, acting.heavy, acting.unreadable])
def test_what_fails_before_or_cannot_be_sent_is_none(ahead: Any, asked: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    with Early(1, pickle.dumps(ahead)) as early:
        if asked:
            assert early.ahead() == [None]
        assert early.jobs(acting.square, [3]) == [9]


def test_what_ends_a_worker_before_is_raised() -> None:
    with Early(2, pickle.dumps(acting.leave_by_exit)) as early, pytest.raises(StopRaised, match="SystemExit"):
        early.ahead()
    with Early(2, pickle.dumps(acting.killed)) as early, pytest.raises(WorkerDied, match=r"worker 0 .* was killed by SIGKILL"):
        early.ahead()


def test_an_error_of_a_job_is_raised_with_its_note() -> None:
    with Early(1, pickle.dumps(acting.square)) as early, pytest.raises(ValueError, match="bad 7") as caught:
        early.jobs(acting.turn, [("fail", 7)])
    assert any("worker 0" in note for note in caught.value.__notes__)


@pytest.mark.parametrize("count", [0, 1])
def test_those_that_get_nothing_to_do_are_ended(count: int) -> None:
    with Early(3, pickle.dumps(acting.square)) as early:
        waiting = list(early._waiting)
        assert early.jobs(acting.square, range(count)) == list(range(count))
    assert all(child.exit_code is not None for child in waiting)


def test_those_that_are_too_many_end_before_the_jobs_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    alive: list[int] = []
    run = module.run_in_processes

    def looking(*arguments: Any) -> None:
        alive.append(sum(child.exit_code is None for child in waiting))
        run(*arguments)

    monkeypatch.setattr(module, "run_in_processes", looking)
    with Early(4, pickle.dumps(acting.square)) as early:
        waiting = list(early._waiting)
        assert early.jobs(acting.square, [2, 3]) == [4, 9]
    assert alive == [2]


def test_an_error_meanwhile_leaves_no_process() -> None:
    early = Early(2, pickle.dumps(acting.square))
    waiting = list(early._waiting)
    with pytest.raises(ZeroDivisionError), early:
        _ = 1 / 0
    assert all(child.exit_code is not None for child in waiting)


def test_one_that_is_killed_while_it_waits_is_named() -> None:
    with Early(1, pickle.dumps(acting.square)) as early:
        os.kill(early._waiting[0].pid, signal.SIGKILL)
        with pytest.raises(WorkerDied, match="SIGKILL"):
            early.jobs(acting.square, [1])
