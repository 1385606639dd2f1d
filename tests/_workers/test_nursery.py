"""Processes that are forked from one that has loaded what they need: what they get, how they end, and what is left when that one dies."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from _workers import acting
from core import core

from penstock._system.process import why_no_processes
from penstock._workers.child import Child
from penstock._workers.executed import POOLS
from penstock._workers.nursery import Nursery
from penstock.errors import WorkerDied

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="workers are forked on Linux")


@contextmanager
def nursery() -> Iterator[Nursery]:
    """Start a nursery that has loaded something."""
    made = Nursery()
    try:
        load_there(made, acting.loaded_here, "first")
        yield made
    finally:
        made.stop()


def load_there(made: Nursery, load: Any, *args: Any) -> Any:
    """Load, with a descriptor of a file that holds "abc"."""
    descriptor = os.memfd_create("penstock-test")
    os.write(descriptor, b"abc")
    try:
        return made.load(load, args, descriptor)
    finally:
        os.close(descriptor)


def told(made: Nursery, target: Any, *args: Any) -> Any:
    """Return the first message of a fork."""
    child = made.fork(target, args, "worker 0")
    try:
        return child.receive()
    finally:
        child.stop(10.0)
        assert child.exit_code == 0


def test_forks_get_what_was_loaded_once_and_newer_ones_what_was_loaded_last() -> None:
    with nursery() as made:
        answers = [told(made, acting.give_loaded, number) for number in range(3)]
        assert [number for number, _ in answers] == [0, 1, 2]
        (first,) = {loaded for _, loaded in answers}
        assert (first[0], first[2]) == ("first", "abc")
        assert first[1] != os.getpid()
        load_there(made, acting.loaded_here, "second")
        assert told(made, acting.give_loaded, 3) == (3, ("second", first[1], "abc"))


def test_native_pools_have_one_thread_where_functions_are_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    with nursery() as made:
        assert told(made, acting.tell_environment, POOLS) == ["1"] * len(POOLS)


def test_forks_outlive_what_they_were_forked_from_and_then_nobody_knows_how_they_end() -> None:
    with nursery() as made:
        child = made.fork(acting.without_loaded, (acting.echo,), "worker 0")
        child.send("begun?")  # until it has left the group of the process that it was forked from
        assert child.receive() == "begun?"
        made.kill()
        with pytest.raises(WorkerDied, match=r"the process that worker processes are forked from \(process \d+\) was killed by SIGKILL"):
            made.fork(acting.tell_pid, (), "worker 1")
        child.send("still there?")
        assert child.receive() == "still there?"
        child.kill()
        with pytest.raises(WorkerDied) as died:
            child.receive()
        assert died.value.what == f"worker 0 (process {child.pid}) ended, nobody knows how"
        child.stop(0.0)


def test_an_error_of_loading_is_raised_as_itself() -> None:
    made = Nursery()
    with pytest.raises(LookupError, match="nothing here") as caught:
        load_there(made, acting.take_in, acting.Vanishing())
    made.stop()
    assert "penstock: the process that worker processes are forked from, process" in caught.value.__notes__[0]


def test_threads_that_loading_started_are_named_and_those_that_have_ended_are_not() -> None:
    made = Nursery()
    assert load_there(made, acting.start_and_join_thread).threads == []
    loaded = load_there(made, acting.start_thread)
    made.stop()
    assert loaded.threads == ["a lasting thread"]
    assert loaded.private_bytes > 1 << 20


@pytest.mark.parametrize("module", core(["numpy", "cv2", "pyarrow.dataset"]))
def test_threads_of_libraries_that_a_fork_may_lack_do_not_count(module: str) -> None:
    pytest.importorskip(module.partition(".")[0])
    with nursery() as made:
        assert load_there(made, acting.import_and_compute, module).threads == []
        assert told(made, acting.without_loaded, acting.compute_with, module) == "computed"


def test_a_process_that_can_have_no_workers_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    assert why_no_processes() == ""
    child = Child.start(acting.tell_why_no_processes, name="worker 0", method="exec")
    assert child.receive().startswith("this is a daemonic process, such as a worker of multiprocessing.Pool or of a feed")
    child.stop(10.0)
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    assert why_no_processes() == "this program is frozen into one file: no Python interpreter is there that could be started"
