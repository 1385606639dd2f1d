"""The words of a queue: the call that it could not serve, and its bottleneck.

The bottleneck is what fills the queue, what reads it, its capacity, or the elements that min_after_dequeue holds back. Only calls
that wait are counted; the others cost nothing. A thread that comes to an empty or a full queue leaves its CPU time there.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from penstock._system.parking import thread_times
from penstock.errors import EnqueueCancelled, QueueClosed, QueueError, QueueTimeout
from penstock.queues.diagnosis import End, elements
from penstock.queues.exchange import ENDED, Attempt, Reading, Writing

if TYPE_CHECKING:
    from penstock.queues.base import Queue


def refusal(attempt: Attempt, limit_s: float | None, label: str, state: str) -> QueueError:
    """Return the error of an attempt that was not served: it ended with the queue, or its time was over."""
    where = f"{label}, {state}"
    error: QueueError
    if isinstance(attempt, Writing):
        error = _of_write(attempt, limit_s, label, where)
        error.num_done = attempt.num_done
        return error
    assert isinstance(attempt, Reading)
    if attempt.state == ENDED:
        left = "no element is" if attempt.num_left == 0 else f"only {elements(attempt.num_left)} {'is' if attempt.num_left == 1 else 'are'}"
        end = QueueClosed(
            f"the queue is closed, and {left} left of the {attempt.want} asked for",
            where=where,
            fix="this is the end of its data" + ("" if attempt.num_left == 0 else "; dequeue_up_to(n) takes what is left"),
        )
        end.num_left = attempt.num_left
        return end
    return QueueTimeout(
        f"{elements(attempt.want)} did not come within {limit_s} s; nothing was taken",
        where=where,
        fix="look at what fills the queue, or wait longer",
    )


def _of_write(attempt: Writing, limit_s: float | None, label: str, where: str) -> QueueError:
    num = len(attempt.entries)
    went = "" if num == 1 else f"; {attempt.num_done} of {num} elements are in"
    rest = "" if num == 1 else "; go on with the rest, from error.num_done on"
    if attempt.state == ENDED:
        return EnqueueCancelled(
            f"the queue is closed and takes nothing more{went}",
            where=where,
            fix="stop producing, or close the queue only when everything is in",
        )
    return QueueTimeout(
        f"there was no room within {limit_s} s{went}", where=where, fix=f"look at what reads the queue, or wait longer{rest}"
    )


_NO_WAIT = 0.05
"""Below this share of waiting there is little to gain."""

_ON_CPU = 0.75
_GIL_CPUS = 0.7
"""Threads that take turns at the GIL add up to about one CPU, threads that wait for storage to less."""

_SHORTEST_NS = 10_000_000
"""Of the time that a thread was watched, for its share on a CPU to say something."""


def _cpus(writers: End) -> tuple[float, float, int] | None:
    """Return the CPUs that the threads which fill a queue used together, those that they waited for, and how many threads were watched.

    None where they did not come to the queue for long enough. What ended threads waited for is not known, nor outside of Linux.
    """
    used = queued = 0.0
    watched = 0
    for one in list(writers.seen.values()):
        lasted_ns = one.last[0] - one.first[0]
        if lasted_ns >= _SHORTEST_NS:
            watched += 1
            used += (one.last[1] - one.first[1]) / lasted_ns
            _, queued_ns = thread_times(f"/proc/self/task/{one.native_id}/schedstat") or (0, 0)
            queued += min(1.0, queued_ns / (time.perf_counter_ns() - one.first[0]))
    return (used, queued, watched) if watched else None


def explain(queue: Queue, readers: End, writers: End) -> str:
    """Return one sentence: the bottleneck at a queue, its cause with the numbers that show it, and one change; and a line of figures."""
    span_ns = (readers.ended_ns or time.perf_counter_ns()) - max(readers.since_ns, writers.since_ns)
    if not (readers.seen and writers.seen) or span_ns < _SHORTEST_NS:
        return f"too little to judge {queue._label}: it was not both filled and read for long; use it longer before asking for a report"
    read, held = (time_ns / span_ns / len(readers.seen) for time_ns in (readers.waited_ns, readers.held_ns))
    write = writers.waited_ns / span_ns / len(writers.seen)
    figures = f"\n  waits: reads {_percent(read)} and enqueues {_percent(write)} of {span_ns / 1e9:.2f} s, {queue._state()}"
    return _sentence(queue, writers, read, write, held) + figures


def _sentence(queue: Queue, writers: End, read: float, write: float, held: float) -> str:
    label, margin = queue._label, queue._margin
    if read < _NO_WAIT:
        return (
            f"what reads {label} is the bottleneck: reads waited {_percent(read)} of the time, and enqueues {_percent(write)} for room;"
            " only what reads it can make this run faster"
        )
    if held >= 0.5 * read:
        return (
            f"min_after_dequeue={margin:,} is too large for {label}: reads waited {queue._reading.held_ns / 1e9:.2f} s, {_percent(held)} of"
            f" the time, while up to {margin:,} elements were in that it held back; lower min_after_dequeue, or add threads that fill"
            " the queue"
        )
    if write >= _NO_WAIT:
        room = queue.capacity - margin
        return (
            f"{label} has too little room for bursts: of the time, reads waited {_percent(read)} for elements and enqueues"
            f" {_percent(write)} for room; raise capacity={queue.capacity:,} to {margin + 4 * room:,}"
        )
    names = ", ".join(sorted(one.name for one in list(writers.seen.values()))[:3])
    return f"what fills {label} is the bottleneck, {_cause(writers, names, read)}"


def _cause(writers: End, names: str, read: float) -> str:
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
