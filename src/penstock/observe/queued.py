"""How long a thread was ready to run and got no CPU: what tells a worker that sleeps from one that waits for its turn."""

from __future__ import annotations

import os
import threading

__all__ = ["QueueClock"]

_PATH = "/proc/thread-self/schedstat"

_EVERY_NS = 20_000_000
"""A look costs 10 us: at most one in 20 ms and thread."""


class QueueClock(threading.local):
    """The clock of each thread that asks it; `due_ns` says when it is worth another look."""

    def __init__(self) -> None:
        self.due_ns = 0
        self._seen: tuple[int, int] | None = None

    def look(self, now_ns: int) -> tuple[int, int]:
        """Return the time since the thread's last look, and how long of it it was queued; zeros at the first, and where nothing tells."""
        self.due_ns = now_ns + _EVERY_NS
        queued_ns = _queued_ns()
        before, self._seen = self._seen, None if queued_ns is None else (now_ns, queued_ns)
        if before is None or queued_ns is None:
            return 0, 0
        return now_ns - before[0], queued_ns - before[1]


def _queued_ns() -> int | None:
    """Return how long this thread has been queued since it began; None where the system does not tell."""
    try:
        descriptor = os.open(_PATH, os.O_RDONLY | os.O_CLOEXEC)
        try:
            ran_ns, queued_ns, _ = map(int, os.read(descriptor, 256).split())
        finally:
            os.close(descriptor)
    except (OSError, ValueError):
        return None
    return queued_ns if ran_ns else None
