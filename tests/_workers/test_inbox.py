"""Arrays of a real child: they outlive it, and an unpickling that fails is an error of that object alone."""

from __future__ import annotations

import os
import signal
from typing import Any

import numpy as np
import pytest
from _workers import acting

from penstock._workers.child import Child
from penstock._workers.inbox import Inbox

pytestmark = pytest.mark.usefixtures("fork_server")


@pytest.mark.parametrize("method", ["forkserver", "spawn", "fork"])
def test_arrays_of_a_child_outlive_it_and_are_its_last_words(method: str) -> None:
    child = Child.start(acting.post_arrays, (5, 100_000), name="worker 0", method=method)
    inbox = Inbox(10)
    arrays = [inbox.open(child.receive(), child.take_fd) for _ in range(3)]
    os.kill(child.pid, signal.SIGKILL)
    child.stop(0.0)
    for number, array in enumerate(arrays):
        assert array.shape == (100_000,)
        assert set(np.unique(array)) == {number}
        array += 1


def test_slots_go_round_between_two_processes() -> None:
    child = Child.start(acting.post_arrays_on_credit, (200, 50_000), name="worker 0")
    inbox = Inbox(10)
    slots = set()
    kept: Any = None
    for number in range(200):
        message = child.receive()
        slots.add(message.slot)
        array = inbox.open(message, child.take_fd)
        assert array[0] == array[-1] == number
        if kept is not None:
            assert kept[0] == kept[-1] == number - 1
        kept = array
        del array
        child.offer((1, inbox.take_returned()))
    child.stop(10.0)
    assert len(slots) <= 4


def test_a_class_that_cannot_be_read_here_is_an_error_and_its_slot_comes_back() -> None:
    child = Child.start(acting.post_unreadable, name="worker 0")
    inbox = Inbox(10)
    with pytest.raises(ValueError, match="not to be read") as caught:
        inbox.open(child.receive(), child.take_fd)
    assert inbox.open(child.receive(), child.take_fd).sum() == 10_000
    child.stop(10.0)
    del caught
    assert sorted(inbox.take_returned()) == [0, 1]
