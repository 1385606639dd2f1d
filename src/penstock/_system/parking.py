"""A place where threads wait, which can be rung from anywhere, even from a finaliser; and how long a thread has waited for a CPU."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any

SIGNALS_S = 0.5


class ParkingLot:
    """Threads park until a ring; it wakes one of them.

    Rings are tokens in a SimpleQueue, whose `put` is C and may run in a finaliser while the same thread is inside any other method. No ring
    is lost: who parks looks again after it has enrolled, who rings changes the world before it rings, and a ring that a leaving thread did
    not take stays for the next one. So a thread may wake for nothing, and must look again.
    """

    __slots__ = ("_bells", "_parked")

    def __init__(self) -> None:
        self._bells: SimpleQueue[Any] = SimpleQueue()
        self._parked: deque[None] = deque()

    def park(self, idle: Callable[[], bool], timeout_s: float | None = None) -> bool:
        """Wait until rung; return at once when `idle()` is no longer true.

        Args:
            idle: asked once, after enrolling; must not block.
            timeout_s: None waits without limit.

        Returns:
            False when the time ran out. Interruptible by signals in the main thread.
        """
        self._parked.append(None)
        try:
            return not idle() or self._wait(timeout_s)
        finally:
            self._parked.pop()

    def ring(self) -> bool:
        """Wake one of the threads that are parked and not yet rung; return whether there was one."""
        if not self._parked or len(self._parked) <= self._bells.qsize():
            return False
        self._bells.put(None)
        return True

    def ring_all(self) -> None:
        """Wake all."""
        while self.ring():
            pass

    @property
    def bell(self) -> Callable[[Any], None]:
        """A C function of one argument that rings, also when no thread is parked: for finalisers, where Python code must not run.

        An exception there, and Ctrl-C is one, would be lost. Its users call `silence` for the rings that no thread needed.
        """
        return self._bells.put

    def silence(self, count: int) -> None:
        """Take back up to `count` rings. The caller looks at the world itself, and rings for others if there is something to do."""
        try:
            for _ in range(count):
                self._bells.get_nowait()
        except Empty:
            return

    def __len__(self) -> int:
        return len(self._parked)

    def _wait(self, timeout_s: float | None) -> bool:
        """Wait for a ring; the main thread looks for signals twice a second.

        A signal that arrives just before the thread goes to sleep does not wake it: CPython sets a flag that is only read after
        the sleep. Without this, Ctrl-C was once seen to be served 8 s late.
        """
        in_main = timeout_s is None and threading.current_thread() is threading.main_thread()
        while True:
            try:
                self._bells.get(timeout=SIGNALS_S if in_main else None if timeout_s is None else max(0.0, timeout_s))
            except Empty:
                if not in_main:
                    return False
            else:
                return True


class WaitBell(SimpleQueue[None]):
    """A parking lot for one thread and one wait, which another thread ends with `put(None)`, before or while the thread sits there.

    It costs a third of a lot with its line: a queue makes one for each wait.
    """

    __slots__ = ()

    def sit(self, timeout_s: float) -> bool:
        """Wait until it is rung.

        Returns:
            False when the time ran out; a signal that came right before is served only then.
        """
        try:
            self.get(True, timeout_s)
        except Empty:
            return False
        return True


THIS_THREAD = "/proc/thread-self/schedstat"


def thread_times(path: str | None = None) -> tuple[int, int] | None:
    """Return how long a thread ran, and was ready to run and got no CPU, since it began, in ns; None where the system does not tell.

    Args:
        path: its schedstat file, that of the calling thread when left out; that of a process tells of its main thread. Costs 10 us.
    """
    try:
        descriptor = os.open(path or THIS_THREAD, os.O_RDONLY)
        try:
            ran_ns, queued_ns, _ = map(int, os.read(descriptor, 256).split())
        finally:
            os.close(descriptor)
    except (OSError, ValueError):
        return None
    return (ran_ns, queued_ns) if ran_ns else None
