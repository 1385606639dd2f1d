"""The words of a queue: the call that it could not serve, and its bottleneck.

The bottleneck is what fills the queue, what reads it, its capacity, or the elements that min_after_dequeue holds back. Only calls
that wait are counted; the others cost nothing. A thread that comes to an empty or a full queue leaves its CPU time there.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Iterable
from typing import TYPE_CHECKING

from penstock.errors import EnqueueCancelled, QueueClosed, QueueError, QueueStarved, QueueTimeout
from penstock.queues.diagnosis import RUNNERS, living, main_is_free, members, threads_at, unstarted_threads, waits
from penstock.queues.exchange import ENDED, WAITING, Attempt, Reading, Writing
from penstock.queues.standing import USERS, call_and_place, kind_of, place_of

if TYPE_CHECKING:
    from penstock.queues.base import Queue
    from penstock.queues.diagnosis import Users


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
        left = (
            "no element is" if attempt.num_left == 0 else f"only {_elements(attempt.num_left)} {'is' if attempt.num_left == 1 else 'are'}"
        )
        end = QueueClosed(
            f"the queue is closed, and {left} left of the {attempt.want} asked for",
            where=where,
            fix="this is the end of its data" + ("" if attempt.num_left == 0 else "; dequeue_up_to(n) takes what is left"),
        )
        end.num_left = attempt.num_left
        return end
    return QueueTimeout(
        f"{_elements(attempt.want)} did not come within {limit_s} s; nothing was taken",
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


class QueueWait:
    """A call that waits for elements or for room, without limit; its words name the user's line."""

    def __init__(self, queue: Queue, attempt: Attempt) -> None:
        self._queue, self._attempt = queue, attempt
        self._thread = threading.current_thread()
        call, place = call_and_place()
        self._call = call
        self._here = f"{call}() at {place}" if place else f"{call}() in thread {self._thread.name!r}"
        self._reads = isinstance(attempt, Reading)
        self._users = queue._writing if self._reads else queue._reading

    def pending(self) -> bool:
        """Return whether it still waits."""
        return self._attempt.state == WAITING

    def known(self, threads: dict[int, threading.Thread]) -> set[int]:
        """Return the living threads at the other end of the queue; those of its runners fill it."""
        known = self._users.alive(threads)
        if self._reads:
            made = [thread for producer in self._queue.producers() for thread in producer.threads()]
            known |= {thread.ident for thread in made if thread.ident is not None and thread.is_alive()}
        return known - {self._thread.ident}

    def targets(self) -> Iterable[object]:
        """Return the queue: a runner of it that could still be started leads to it as well."""
        return [self._queue]

    def remember(self, ident: int, thread: threading.Thread) -> None:
        """Note that a thread leads to the queue."""
        self._users.could[ident] = weakref.ref(thread)

    def joins(self, thread: threading.Thread) -> bool:
        """Return False: it waits for the end of no thread."""
        return False

    def blames(self, joiner: int) -> bool:
        """Return whether a thread that joins the one which waits here has served this queue until then: the slip is its join."""
        return not self._reads or joiner in self._users.seen

    def certain(self) -> Exception:
        """Return the error of a wait that no thread can end."""
        for ident, wait in waits().items():
            if wait.joins(self._thread) and self.blames(ident):
                return wait.certain()
        cause, remedy = self._unstarted() or (self._unfilled() if self._reads else self._unread())
        later = "; as an operation for a runner give [lambda: queue.enqueue_many(...)]" if self._call == "enqueue_many" else ""
        error = QueueStarved(
            f"{cause}, so {self._here} would wait for ever: {remedy}",
            where=self._where(),
            fix=f"with {self._call}(timeout_s=...) it waits all the same, and raises QueueTimeout{later}",
        )
        error.num_done = self._attempt.num_done if isinstance(self._attempt, Writing) else 0
        return error

    def likely(self) -> str | None:
        """Return the warning where something was never started, or all that served have ended."""
        threads = living()
        if self._users.alive(threads) - {self._thread.ident} - self._users.could.keys() or (
            self._reads and self.known(threads) - self._users.could.keys()
        ):
            return None
        slip = self._unstarted() if self._reads or not self._users.seen else None
        if slip is None and self._users.others() and main_is_free():
            slip = self._unfilled() if self._reads else self._unread()
        if slip is None:
            return None
        return f"{slip[0]}, and {self._here} waits for {_wish(self._attempt)}: {slip[1]}\n  where: {self._where()}"

    def long(self, waited_s: float) -> str:
        """Return the warning of a wait that lasts long for no reason that is known."""
        served = self.known(living())
        who = threads_at(served) or f"no thread is known to {'fill' if self._reads else 'read'} it"
        return (
            f"{self._here} has waited {waited_s:.0f} s for {_wish(self._attempt)} in {self._queue._made_label()}, and {who}: "
            f"look at what it does, or call {self._call}(timeout_s=...), which makes an error of the wait\n"
            f"  where: {self._where()}"
        )

    def _where(self) -> str:
        return f"{self._queue._label}, {self._queue._state()}"

    def _unstarted(self) -> tuple[str, str] | None:
        """Return what was made and never started, and what starts it."""
        for producer in self._queue.producers() if self._reads else ():
            slip = producer.unstarted()
            if slip is not None:
                return slip
        for thread in unstarted_threads([self._queue]):
            if not any(thread in producer.threads() for producer in self._queue.producers()):
                return f"thread {thread.name!r}{_target_of(thread)} was created and never started", "call its start() before"
        return None

    def _unfilled(self) -> tuple[str, str]:
        queue, size, margin = self._queue._made_label(), self._queue.size(), self._queue._exchange.margin
        seen = self._users.seen
        if margin and size > 0:
            return (
                f"{queue} keeps min_after_dequeue={margin} elements in and has only {size}, and no thread adds more",
                "close() it when everything is in, which lets all of them out, or lower min_after_dequeue",
            )
        left = f", with {_elements(size)} left in it" if size else ""
        if self._users.others():
            alive = self._users.alive(living()) - {self._thread.ident}
            ended = "wait themselves" if alive else "have ended without close()"
            names = ", ".join(repr(name) for name in self._users.others()[:3])
            return f"the threads that filled {queue}, such as {names}, {ended}{left}", (
                "let one of them go on without this one" if alive else "call close() when the last of them has added everything"
            )
        if seen:
            return (
                f"only the thread that reads {queue} has ever added to it, and nothing more can come{left}",
                "add from another thread, or close() it before the last read",
            )
        others = [one for one in members(RUNNERS) if one.queue is not self._queue and any(thread.is_alive() for thread in one.threads())]
        if others:
            return (
                f"nothing was ever added to {queue}; the runner that was started, {others[0].words}, fills {others[0].queue._label}",
                f"make a QueueRunner for {self._queue._label} too, or read {others[0].queue._label}",
            )
        return (
            f"nothing was ever added to {queue}, and no thread that could do it was started",
            "enqueue() before, or in a thread of its own",
        )

    def _unread(self) -> tuple[str, str]:
        queue = f"{self._queue._made_label()} is full (capacity {self._queue.capacity})"
        if not self._users.others():
            alone = "only the thread that fills it reads it" if self._users.seen else "no thread reads it"
            return f"{queue} and {alone}", "start a thread that calls dequeue() before, or make it with a larger capacity"
        if self._users.alive(living()) - {self._thread.ident}:
            return f"{queue} and the threads that read it wait themselves", "let one of them go on without this one"
        names = ", ".join(repr(name) for name in self._users.others()[:3])
        return (
            f"{queue} and the threads that read it, such as {names}, have ended",
            "call close(cancel_pending_enqueues=True) when the last of them ends",
        )


def _target_of(thread: threading.Thread) -> str:
    """Say which function a thread that was not started would run, and where it stands."""
    target = getattr(thread, "_target", None) or type(thread).run
    target = getattr(target, "func", target)
    code = getattr(getattr(target, "__func__", target), "__code__", None)
    if code is None or kind_of(code.co_filename) != USERS:
        return ""
    return f", which would run {code.co_name} ({place_of(code.co_filename, code.co_firstlineno)}),"


def _wish(attempt: Attempt) -> str:
    if isinstance(attempt, Reading):
        return _elements(attempt.want)
    assert isinstance(attempt, Writing)
    return f"room for {_elements(len(attempt.entries) - attempt.num_done)}"


def _elements(number: int) -> str:
    return "1 element" if number == 1 else f"{number} elements"


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
