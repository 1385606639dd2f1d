"""Processes that do something before it is known what their jobs are."""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

import pytest
from jobs import acting

from penstock.errors import PlanError, WorkerDied
from penstock.jobs.processes import packed_function
from penstock.jobs.starting import Early

pytestmark = [
    pytest.mark.usefixtures("fork_server"),
    pytest.mark.skipif(sys.platform == "win32", reason="processes of POSIX"),
]


def test_they_do_what_can_be_done_before_and_then_the_jobs_and_those_that_are_too_many_end() -> None:
    with Early(3) as early:
        pids = {child.pid for child in early.children}
        before = early.ahead(packed_function(acting.pair))
        assert [number for _, number in before] == [0, 1, 2]
        results = early.jobs(acting.pair, range(2))
        assert [job for _, job in results] == [0, 1]
        assert {pid for pid, _ in [*before, *results]} <= pids
        children = list(early.children)
        assert len(children) == 2
    assert all(child.exit_code is not None for child in children)


@pytest.mark.parametrize("function", [acting.fail, acting.lock, acting.unreadable])
def test_what_fails_before_or_cannot_be_sent_is_none(function: Any) -> None:
    with Early(1) as early:
        assert early.ahead(packed_function(function)) == [None]
        assert early.jobs(acting.square, [3]) == [9]


def test_a_worker_that_dies_before_is_an_error() -> None:
    with Early(1) as early, pytest.raises(WorkerDied, match=r"worker 0 .* was killed by SIGKILL"):
        early.ahead(packed_function(acting.killed))
    with Early(1) as early:
        os.kill(early.children[0].pid, signal.SIGKILL)
        with pytest.raises(WorkerDied, match="SIGKILL"):
            early.jobs(acting.square, [1])


def test_a_function_that_a_worker_cannot_read_is_told_as_such() -> None:
    with Early(1) as early:
        assert early.ahead(packed_function(acting.square)) == [0]
        with pytest.raises(PlanError, match="the function cannot be found in a worker process: this cannot be read"):
            early.jobs(acting.Unreadable(), [1])


def test_an_error_meanwhile_leaves_no_process() -> None:
    early = Early(2)
    children = list(early.children)
    with pytest.raises(ZeroDivisionError), early:
        _ = 1 / 0
    assert all(child.exit_code is not None for child in children)
