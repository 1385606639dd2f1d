"""A worker thread as the watch sees it: what it runs since when, and its CPU time. It costs the worker some attributes per block."""

from __future__ import annotations

import threading
import time
from typing import Any

from penstock._engine.stall import counted_ns
from penstock._engine.unit import Task
from penstock._ops.worker import WorkerContext

__all__ = ["Post"]


class Post:
    """One worker thread, as the watch sees it. `begin` and `end` are the worker's own; everything else is the watching consumer's.

    Attributes:
        task: what it runs, or None.
        serial: how many tasks it has begun.
        age_ns: the counted time of the element that it runs.
        due_ns: the age at which that is reported next.
    """

    __slots__ = (
        "_clock_id", "_cpu_ns", "_cpu_used_ns", "_first_cpu_ns", "_first_queued_ns", "_marker", "_native_id", "_queued_for_ns",
        "_queued_ns", "age_ns", "due_ns", "ident", "pool", "serial", "task", "thread", "watched_ns", "worker",
    )  # fmt: skip

    def __init__(self, pool: str, worker: WorkerContext) -> None:
        """Enlist the calling thread."""
        thread = threading.current_thread()
        self.pool, self.worker = pool, worker
        self.thread, self.ident, self._native_id = thread.name, threading.get_ident(), threading.get_native_id()
        # Asked for by the thread itself: for one that has ended the call may crash, while reading the clock of one gives an OSError.
        clock_of = getattr(time, "pthread_getcpuclockid", None)
        self._clock_id = None if clock_of is None else clock_of(self.ident)
        self.task: Task | None = None
        self.serial = self.age_ns = self.due_ns = self.watched_ns = 0
        self._cpu_ns: int | None = None
        self._first_cpu_ns: int | None = None
        self._cpu_used_ns: int | None = None
        self._queued_ns = self._queued_for_ns = self._first_queued_ns = 0
        self._marker: Any = None

    def begin(self, task: Task) -> None:
        """Note the task that the worker begins."""
        self.worker.began = None  # first: the begin of the task before must not be taken for that of this one
        self.serial += 1
        self.task = task

    def end(self) -> None:
        """Note that it has nothing to do, and let go of its elements."""
        self.task = None
        self.worker.rest()

    def sample(self) -> int:
        """Read the clocks of a busy worker's thread; return how long it has waited for a CPU since the last look."""
        if self.task is None:
            return 0
        return self.read_clocks()

    def read_clocks(self) -> int:
        """Read the clocks of the thread; return how long it has waited for a CPU since the last time."""
        before, self._cpu_ns = self._cpu_ns, self._cpu_now()
        self._cpu_used_ns = None if before is None or self._cpu_ns is None else self._cpu_ns - before
        queued_ns = self._queued_now()
        self._queued_for_ns, self._queued_ns = queued_ns - self._queued_ns, queued_ns
        return self._queued_for_ns

    def observe(self, ran_ns: int, elapsed_ns: int, wanted_ns: int, num_read: int) -> bool:
        """Look at the worker, after `sample`; return whether it has moved on since the last look."""
        task = self.task
        if task is None:
            self._marker = None
            return False
        marker = (self.serial, num_read if task.read else self.worker.place())
        before, self._marker = self._marker, marker
        if marker == before:
            self.grow(elapsed_ns, wanted_ns)
        else:
            self.restart()
            if (before is None or before[0] != self.serial) and (task.read or task.end - task.begin == 1):
                self._look_back(ran_ns)
        return bool(marker != before)

    def grow(self, elapsed_ns: int, wanted_ns: int) -> None:
        """Count the time since the last look against what the thread does."""
        self.age_ns += self.counted_ns(elapsed_ns, wanted_ns)
        self.watched_ns += elapsed_ns

    def restart(self) -> None:
        """Begin with what the thread does now: it has moved on."""
        self.age_ns = self.watched_ns = self.due_ns = 0
        self._first_cpu_ns, self._first_queued_ns = self._cpu_ns, self._queued_ns

    def counted_ns(self, elapsed_ns: int, wanted_ns: int) -> int:
        """Return how much of the time since the last look counts, by the clocks of the thread."""
        return counted_ns(elapsed_ns, self._cpu_used_ns, self._queued_for_ns, wanted_ns)

    def _look_back(self, ran_ns: int) -> None:
        """Begin with the age of the task: it is one element. How busy the machine was meanwhile is not known; the worst is assumed."""
        began = self.worker.began
        if began is None:
            return
        began_ran_ns, began_cpu_ns = began
        self.watched_ns = max(0, ran_ns - began_ran_ns)
        self._first_cpu_ns = began_cpu_ns
        cpu = None if self._cpu_ns is None else max(0, self._cpu_ns - began_cpu_ns)
        self.age_ns = counted_ns(self.watched_ns, cpu, 0, self.watched_ns)

    @property
    def cpu_share(self) -> float | None:
        """CPU time over elapsed time since the element was first seen, without the time in which the thread was queued for a CPU."""
        if self._cpu_ns is None or self._first_cpu_ns is None or self.watched_ns == 0:
            return None
        used_ns = self._cpu_ns - self._first_cpu_ns
        return used_ns / max(1, used_ns, self.watched_ns - (self._queued_ns - self._first_queued_ns))

    def _cpu_now(self) -> int | None:
        try:
            return None if self._clock_id is None else time.clock_gettime_ns(self._clock_id)
        except OSError:  # the thread has ended
            return None

    def _queued_now(self) -> int:
        """Return how long the thread was ready to run and got no CPU; 0 where the system does not tell."""
        try:
            with open(f"/proc/self/task/{self._native_id}/schedstat", "rb") as figures:
                return int(figures.read().split()[1])
        except (OSError, IndexError, ValueError):
            return 0
