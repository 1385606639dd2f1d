"""A place where threads wait, and that can be rung from anywhere, even from a finaliser."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

__all__ = ["ParkingLot"]

_SIGNALS_S = 0.5


class ParkingLot:
    """Threads park on private locks; `ring` wakes one of them.

    Ringing takes no lock and allocates nothing that can call back, so it may run in `__del__` while the same thread is inside any other
    method. No ring is lost: who parks looks again after it has enrolled, who rings changes the world before it rings.
    """

    __slots__ = ("_parked",)

    def __init__(self) -> None:
        self._parked: deque[threading.Lock] = deque()

    def park(self, idle: Callable[[], bool], timeout_s: float | None = None) -> bool:
        """Wait until rung; return at once when `idle()` is no longer true.

        Args:
            idle: asked once, after enrolling; must not block.
            timeout_s: None waits without limit.

        Returns:
            False when the time ran out. Interruptible by signals in the main thread.
        """
        bell = threading.Lock()
        bell.acquire()
        self._parked.append(bell)
        try:
            if not idle():
                self._leave(bell)
                return True
            if _wait(bell, timeout_s):
                return True
        except BaseException:
            self._leave(bell)
            raise
        self._leave(bell)
        return False

    def ring(self) -> bool:
        """Wake the thread that parked last, if any; return whether there was one."""
        try:
            self._parked.pop().release()
        except IndexError:
            return False
        return True

    def ring_all(self) -> None:
        """Wake all."""
        while self.ring():
            pass

    def __len__(self) -> int:
        return len(self._parked)

    def _leave(self, bell: threading.Lock) -> None:
        """Strike the bell off; when it was rung meanwhile, pass the ring on."""
        try:
            self._parked.remove(bell)
        except ValueError:
            self.ring()


def _wait(bell: threading.Lock, timeout_s: float | None) -> bool:
    """Wait for a bell; the main thread looks for signals twice a second.

    A signal that arrives just before the thread goes to sleep does not wake it: CPython sets a flag that is only read after
    the sleep. Without this, Ctrl-C was once seen to be served 8 s late.
    """
    if timeout_s is not None:
        return bell.acquire(timeout=max(0.0, timeout_s))
    if threading.current_thread() is not threading.main_thread():
        return bell.acquire()
    while not bell.acquire(timeout=_SIGNALS_S):
        pass
    return True
