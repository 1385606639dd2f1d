"""How long a thread was ready to run and got no CPU, and whether others hold the GIL: what tells a worker that sleeps from others."""

from __future__ import annotations

import os
import threading
import time

__all__ = ["QueueClock", "gil_wait_ns"]

_PATH = "/proc/thread-self/schedstat"

_EVERY_NS = 20_000_000
"""A look costs 10 us: at most one in 20 ms and thread."""


_AWAY_S = 100e-6
"""A thread that is away so long finds the GIL taken if another one runs Python code; after 10 us it has it back before the other wakes."""

_TAKEN_NS = 1_000_000
"""A waiting thread asks for the GIL after 5 ms; Python code between two calls into C, as that of a feed, has it for far less than 1 ms."""


class QueueClock(threading.local):
    """The clock of each thread that asks it; `due_ns` says when it is worth another look."""

    def __init__(self) -> None:
        self.due_ns = 0
        self._seen: tuple[int, int] | None = None

    def look(self, now_ns: int) -> tuple[int, int]:
        """Return the time since the thread's last look, and how long of it it was queued; zeros at the first, and where nothing tells."""
        self.due_ns = now_ns + _EVERY_NS
        times = _thread_times()
        queued_ns = None if times is None else times[1]
        before, self._seen = self._seen, None if queued_ns is None else (now_ns, queued_ns)
        if before is None or queued_ns is None:
            return 0, 0
        return now_ns - before[0], queued_ns - before[1]

    def finds_gil_taken(self) -> bool | None:
        """Let go of the GIL for a moment, and tell whether it had to be waited for, beside any wait for a CPU; None where nothing tells.

        Costs 0.2 ms, or as long as another thread holds the GIL.
        """
        waited_ns = gil_wait_ns(_AWAY_S)
        return None if waited_ns is None else waited_ns >= _TAKEN_NS


def gil_wait_ns(away_s: float) -> int | None:
    """Let go of the GIL for `away_s`, and return how long it had to be waited for after that, without any wait for a CPU.

    Up to 0.1 ms of it is the timer of the system. None where the system does not tell how long a thread waits for a CPU.
    """
    before, begin_ns = _thread_times(), time.perf_counter_ns()
    time.sleep(away_s)
    end_ns, after = time.perf_counter_ns(), _thread_times()
    if before is None or after is None:
        return None
    awake_ns = sum(after) - sum(before)
    return max(0, end_ns - begin_ns - awake_ns - int(away_s * 1e9))


def _thread_times() -> tuple[int, int] | None:
    """Return how long this thread ran, and was queued, since it began; None where the system does not tell."""
    try:
        descriptor = os.open(_PATH, os.O_RDONLY | os.O_CLOEXEC)
        try:
            ran_ns, queued_ns, _ = map(int, os.read(descriptor, 256).split())
        finally:
            os.close(descriptor)
    except (OSError, ValueError):
        return None
    return (ran_ns, queued_ns) if ran_ns else None
