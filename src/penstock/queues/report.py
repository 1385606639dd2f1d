"""Names the bottleneck at a queue: what fills it, what reads it, its capacity, or the elements that min_after_dequeue holds back.

Only calls that wait are counted; the others cost nothing. A thread that comes to an empty or a full queue leaves its CPU time there.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from penstock.queues.exchange import Attempt, Reading, Writing

if TYPE_CHECKING:
    from penstock.queues.base import Queue
    from penstock.queues.diagnosis import Users

__all__ = ["Waits", "explain"]

_NO_WAIT = 0.05
"""Below this share of waiting there is little to gain."""

_ON_CPU = 0.75
_GIL_CPUS = 0.7
"""Threads that take turns at the GIL add up to about one CPU, threads that wait for storage to less."""

_SHORTEST_NS = 10_000_000
"""Of the time that a thread was watched, for its share on a CPU to say something."""


class Waits:
    """The time that calls of one queue waited. Any thread that has waited adds its time; a race loses one addition at most.

    Attributes:
        read_ns, write_ns: of reads and of writes, all threads together.
        held_ns: of `read_ns`, the time in which enough elements for the read were in, and min_after_dequeue held them back.
        most_held: the largest number of elements that were in while a read waited for more.
    """

    __slots__ = ("ended_ns", "held_ns", "most_held", "read_ns", "write_ns")

    def __init__(self) -> None:
        self.read_ns = self.write_ns = self.held_ns = self.most_held = self.ended_ns = 0

    def add(self, attempt: Attempt, begin_ns: int, size: int, margin: int) -> None:
        """Add a wait that ends now.

        Args:
            attempt: what waited.
            begin_ns: since when.
            size: how many elements were in at the beginning.
            margin: how many reads leave in.
        """
        waited_ns = time.perf_counter_ns() - begin_ns
        if isinstance(attempt, Writing):
            self.write_ns += waited_ns
            return
        assert isinstance(attempt, Reading)
        self.read_ns += waited_ns
        missing = margin + attempt.want - size
        if missing > attempt.want:  # else it waits for no more than it takes, as at any queue that is read faster than it is filled
            self.held_ns += waited_ns * (missing - attempt.want) // missing
            self.most_held = max(self.most_held, margin)


def _cpus(writers: Users) -> tuple[float, float, int] | None:
    """Return the CPUs that the threads which fill a queue used together, those that they waited for, and how many threads were watched.

    None where they did not come to the queue for long enough. What ended threads waited for is not known, nor outside of Linux.
    """
    used = queued = 0.0
    watched = 0
    for ident, (first, last) in list(writers.clocks.items()):
        lasted_ns = last[0] - first[0]
        if lasted_ns >= _SHORTEST_NS:
            watched += 1
            used += max(0, last[1] - first[1]) / lasted_ns  # the system gives the number of one that has ended to the next one
            queued += min(1.0, _queued_ns(writers.native_ids[ident]) / (time.perf_counter_ns() - first[0]))
    return (used, queued, watched) if watched else None


def _queued_ns(native_id: int) -> int:
    """Return how long a thread has been ready to run without a CPU; 0 where that is not known."""
    try:
        with open(f"/proc/self/task/{native_id}/schedstat", "rb") as figures:
            return int(figures.read().split()[1])
    except (OSError, ValueError, IndexError):  # the thread has ended, or this is no Linux
        return 0


def explain(queue: Queue, waits: Waits, readers: Users, writers: Users) -> str:
    """Return one sentence: the bottleneck at a queue, its cause with the numbers that show it, and one change; and a line of figures."""
    now_ns = time.perf_counter_ns()
    label, exchange, size = queue._label, queue._exchange, queue.size()
    margin, waiting = exchange.margin, list(exchange.readers)
    span_ns = (waits.ended_ns or now_ns) - max(readers.since_ns, writers.since_ns)
    if waiting and margin and waiting[0].want <= size < margin + waiting[0].want and not exchange.closed:
        return (
            f"min_after_dequeue={margin:,} is too large for {label}: {size:,} elements are in, and the read waits for "
            f"{margin + waiting[0].want:,}; lower min_after_dequeue, or add threads that fill the queue"
        )
    if not (readers.seen and writers.seen) or span_ns < _SHORTEST_NS:
        return f"too little to judge {label}: it was not both filled and read for long; use it longer before asking for a report"
    read, write, held = (time_ns / span_ns for time_ns in (waits.read_ns, waits.write_ns, waits.held_ns))
    read, write = read / len(readers.seen), write / len(writers.seen)
    figures = f"\n  waits: reads {_percent(read)} and enqueues {_percent(write)} of {span_ns / 1e9:.2f} s, {queue._state()}"
    return _sentence(queue, waits, writers, (read, write, held / len(readers.seen))) + figures


def _sentence(queue: Queue, waits: Waits, writers: Users, shares: tuple[float, float, float]) -> str:
    label, margin, (read, write, held) = queue._label, queue._exchange.margin, shares
    if read < _NO_WAIT:
        return (
            f"what reads {label} is the bottleneck: reads waited {_percent(read)} of the time, and enqueues {_percent(write)} for room;"
            " only what reads it can make this run faster"
        )
    if held >= 0.5 * read:
        return (
            f"min_after_dequeue={margin:,} is too large for {label}: reads waited {waits.held_ns / 1e9:.2f} s, {_percent(held)} of the"
            f" time, while up to {waits.most_held:,} elements were in that it held back; lower min_after_dequeue, or add threads that fill"
            " the queue"
        )
    if write >= _NO_WAIT:
        room = queue.capacity - margin
        return (
            f"{label} has too little room for bursts: of the time, reads waited {_percent(read)} for elements and enqueues"
            f" {_percent(write)} for room; raise capacity={queue.capacity:,} to {margin + 4 * room:,}"
        )
    names = ", ".join(sorted(name for name, _ in list(writers.seen.values()))[:3])
    return f"what fills {label} is the bottleneck, {_cause(writers, names, read)}"


def _cause(writers: Users, names: str, read: float) -> str:
    num_threads, waited = len(writers.seen), f"reads waited {_percent(read)} of the time"
    found = _cpus(writers)
    if found is None:
        return f"{num_threads} threads ({names}): {waited}; add threads that fill it, or do less for each element"
    cpus, queued, watched = found
    more_wanted = f" and waited for {queued:.1f} more" if queued >= 0.05 else ""
    used = f"{waited}, and its {num_threads} threads ({names}) used {cpus:.1f} CPUs{more_wanted}"
    if queued >= cpus and queued >= 0.25 * watched:
        return f"short of CPUs: {used}; stop other programs on this machine or give the process more CPUs"
    if cpus + queued >= _ON_CPU * watched:
        more = (os.cpu_count() or 1) > num_threads
        change = f"add threads that fill it, up to {os.cpu_count()}, or do less for each element" if more else "do less for each element"
        return f"CPU-bound: {used}; {change}"
    if watched > 1 and cpus + queued >= _GIL_CPUS:
        return f"most likely GIL-bound: {used}; do more in each call that releases the GIL, or use processes: more threads cannot help"
    return f"waiting for I/O: {used}; add threads that fill it, for example {4 * num_threads}"


def _percent(share: float) -> str:
    return f"{100 * min(1.0, share):.1f} %" if share < 0.0995 else f"{100 * min(1.0, share):.0f} %"
