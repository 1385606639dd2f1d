"""Workers that start before it is known what they are to do."""

from __future__ import annotations

import os
import pickle
import signal
import sys
import threading
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from jobs import acting

from penstock.errors import PlanError, StopRaised, WorkerDied
from penstock.jobs import starting as module
from penstock.jobs.starting import Early

pytestmark = [
    pytest.mark.usefixtures("fork_server"),
    pytest.mark.skipif(sys.platform == "win32", reason="processes of POSIX"),
]


def test_they_do_what_can_be_done_before_and_then_the_jobs(tmp_path: Path) -> None:
    with Early(2) as early:
        assert early.ahead(pickle.dumps(partial(acting.slow_first, folder=str(tmp_path)))) == [
            (n, c.pid) for n, c in enumerate(early._waiting)
        ]
        assert sorted(os.listdir(tmp_path)) == ["0", "1"]
        pids = {child.pid for child in early._waiting}
        results = early.jobs(acting.pair, range(40))
    assert [job for _, job in results] == list(range(40))
    assert {pid for pid, _ in results} <= pids


@pytest.mark.parametrize("function", [acting.fail, acting.lock, acting.heavy, acting.unreadable])
def test_what_fails_before_or_cannot_be_sent_is_none(function: Any) -> None:
    with Early(1) as early:
        assert early.ahead(pickle.dumps(function)) == [None]
        assert early.jobs(acting.square, [3]) == [9]


def test_behind_the_first_that_fails_nobody_is_waited_for_until_there_are_jobs(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    with Early(2) as early:
        assert early.ahead(pickle.dumps(partial(acting.fail_or_wait, gate=str(gate)))) == [None, None]
        threading.Timer(0.1, gate.write_bytes, [b"x"]).start()
        assert early.jobs(acting.square, range(9)) == [number * number for number in range(9)]


def test_those_who_are_not_asked_do_jobs_all_the_same() -> None:
    with Early(2) as early:
        assert early.jobs(acting.square, range(9)) == [number * number for number in range(9)]


def test_what_ends_a_worker_before_is_raised() -> None:
    with Early(2) as early, pytest.raises(StopRaised, match="SystemExit"):
        early.ahead(pickle.dumps(acting.leave_by_exit))
    with Early(1) as early, pytest.raises(WorkerDied, match=r"worker 0 .* was killed by SIGKILL"):
        early.ahead(pickle.dumps(acting.killed))


def test_a_function_that_a_worker_cannot_read_is_told_as_such_also_by_one_that_waits_for_it() -> None:
    for _ in range(10):  # it answers and ends before the parent has turned round
        with Early(1) as early:
            assert early.ahead(pickle.dumps(acting.square)) == [0]
            with pytest.raises(PlanError, match="the function cannot be found in a worker process: this cannot be read"):
                early.jobs(acting.Unreadable(), [1])


def test_an_error_of_a_job_is_raised_with_its_note() -> None:
    with Early(1) as early, pytest.raises(ValueError, match="bad 7") as caught:
        early.jobs(acting.turn, [("fail", 7)])
    assert any("worker 0" in note for note in caught.value.__notes__)


@pytest.mark.parametrize("count", [0, 1])
def test_those_that_get_nothing_to_do_are_ended(count: int) -> None:
    with Early(3) as early:
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
    with Early(4) as early:
        waiting = list(early._waiting)
        assert early.jobs(acting.square, [2, 3]) == [4, 9]
    assert alive == [2]


def test_an_error_meanwhile_leaves_no_process() -> None:
    early = Early(2)
    waiting = list(early._waiting)
    with pytest.raises(ZeroDivisionError), early:
        _ = 1 / 0
    assert all(child.exit_code is not None for child in waiting)


def test_one_that_is_killed_while_it_waits_is_named() -> None:
    with Early(1) as early:
        os.kill(early._waiting[0].pid, signal.SIGKILL)
        with pytest.raises(WorkerDied, match="SIGKILL"):
            early.jobs(acting.square, [1])
