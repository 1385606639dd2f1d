"""Real processes: what comes from them, how they end, and that nothing of them is left. FAULTS A20, B25, B28."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from _workers import acting

from penstock._workers.child import Child
from penstock.errors import SpecError, WorkerDied

pytestmark = [
    pytest.mark.usefixtures("fork_server"),
    pytest.mark.skipif(sys.platform == "win32", reason="processes and signals of POSIX"),
]

METHODS = ["forkserver", "spawn", "fork", "exec"]


@contextmanager
def running(target: Any, *args: Any, method: str = "forkserver", name: str = "worker 0") -> Iterator[Child]:
    child = Child.start(target, args, name=name, method=method)
    try:
        yield child
    finally:
        child.stop(10.0)


@pytest.mark.parametrize("method", METHODS)
def test_messages_go_both_ways_and_the_child_ends_by_itself_when_it_is_stopped(method: str) -> None:
    with running(acting.echo, method=method) as child:
        for message in (0, {"a": [1, "two"]}, bytes(300_000)):
            child.send(message)
            assert child.receive() == message
    assert child.exit_code == 0


@pytest.mark.parametrize(
    ("method", "number", "hint"),
    [("forkserver", signal.SIGKILL, "out-of-memory"), ("exec", signal.SIGKILL, "out-of-memory"), ("exec", signal.SIGBUS, "memory-mapped")],
)
def test_a_killed_child_is_named_with_its_signal_behind_what_it_sent(method: str, number: signal.Signals, hint: str) -> None:
    with running(acting.kill_itself, number, method=method, name="worker 7") as child:
        assert child.receive() == "before"
        for _ in range(2):
            with pytest.raises(WorkerDied) as caught:
                child.receive()
            assert caught.value.what == f"worker 7 (process {child.pid}) was killed by {number.name}"
            assert hint in caught.value.fix
        with pytest.raises(WorkerDied):
            child.send("anything")


def test_a_crash_and_an_exit_are_told_apart() -> None:
    with running(acting.kill_itself, signal.SIGSEGV) as child:
        child.receive()
        with pytest.raises(WorkerDied) as caught:
            child.receive()
        assert "was killed by SIGSEGV" in caught.value.what
        assert "PYTHONFAULTHANDLER" in caught.value.fix
    with running(acting.leave, 3) as child:
        with pytest.raises(WorkerDied) as caught:
            child.receive()
        assert "ended with exit code 3 before its work was done" in caught.value.what
        assert "stderr" in caught.value.fix


def test_an_error_of_the_child_is_raised_as_itself_with_the_traceback_of_the_child_as_its_note() -> None:
    with running(acting.fail, KeyError("lost")) as child, pytest.raises(KeyError) as caught:
        child.receive()
    assert caught.value.args == ("lost",)
    [note] = caught.value.__notes__
    assert note.startswith(f"penstock: worker 0, process {child.pid}; there it was\nTraceback")
    assert "in fail" in note


def test_a_message_that_cannot_be_pickled_is_an_error_with_its_place_and_type() -> None:
    with (
        running(acting.send_lambda) as child,
        pytest.raises(SpecError, match=r"^a value of type function cannot be sent to another process \(at \['a'\]\[1\]\): "),
    ):
        child.receive()


@pytest.mark.parametrize(
    ("target", "code"),
    [
        (acting.compute, -signal.SIGTERM),
        (acting.sit_in_c, -signal.SIGTERM),
        (acting.sit_idle, -signal.SIGTERM),
        (acting.stay, -signal.SIGKILL),
    ],
)
def test_a_child_that_does_not_stop_in_its_grace_is_terminated_and_then_killed(target: Any, code: int) -> None:
    child = Child.start(target, name="worker 0")
    child.receive()
    child.stop(0.05)
    assert child.exit_code == code
    child.stop(0.05)  # the second does nothing


def test_a_child_that_waits_to_send_stops_by_itself() -> None:
    child = Child.start(acting.talk_without_end, name="worker 0")
    child.receive()
    child.stop(10.0)
    assert child.exit_code == 0


def test_the_death_of_a_child_is_seen_although_a_process_that_it_forked_holds_its_pipe() -> None:
    child = Child.start(acting.leave_a_grandchild, name="worker 0")
    grandchild = child.receive()
    with pytest.raises(WorkerDied) as caught:
        child.receive()
    os.kill(grandchild, signal.SIGKILL)
    assert "was killed by SIGKILL" in caught.value.what
    child.stop(10.0)


def test_signals_are_the_parents_business() -> None:
    before = signal.signal(signal.SIGTERM, lambda *_: None)
    try:
        for method in ("forkserver", "fork"):
            with running(acting.tell_handlers, method=method) as child:
                assert child.receive() == (int(signal.SIG_IGN), int(signal.SIG_DFL))
    finally:
        signal.signal(signal.SIGTERM, before)


@pytest.mark.slow
def test_two_hundred_children_that_are_killed_leave_no_zombie() -> None:
    # The audit around every test looks for zombies. Forked: 3 ms each.
    for _ in range(50):
        children = [Child.start(acting.wait, name=f"worker {index}", method="fork") for index in range(4)]
        for child in children:
            os.kill(child.pid, signal.SIGKILL)
        for child in children:
            with pytest.raises(WorkerDied):
                child.receive()
            child.stop(0.0)
