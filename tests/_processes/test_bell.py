"""A bell wakes a wait for children; B22."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from _processes import acting

from penstock._processes.bell import Bell
from penstock._processes.child import Child, wait_any


@contextmanager
def child_of(target: Any, *args: Any) -> Iterator[Child]:
    child = Child.start(target, args, name="worker 0", method="fork")
    try:
        yield child
    finally:
        child.stop(10.0)


def test_a_bell_ends_a_wait_and_a_ring_before_it_counts() -> None:
    bell = Bell()
    with child_of(acting.sit_idle) as child:
        child.receive()
        for _ in range(100_000):  # more than a pipe holds
            bell.ring()
        assert wait_any([child], bell) == []
        bell.silence()
        assert wait_any([child], bell, timeout_s=0.0) == []
        ringer = threading.Thread(target=bell.ring)
        ringer.start()
        assert wait_any([child], bell) == []
        ringer.join()
        os.kill(child.pid, signal.SIGKILL)
    bell.close()


def test_a_bell_is_not_rung_by_a_forked_copy_of_its_process() -> None:
    bell = Bell()
    with child_of(acting.call, bell.ring) as child:
        assert child.receive() is None
        assert wait_any([child], bell) == [child]  # its end: the bell is silent
    bell.close()
