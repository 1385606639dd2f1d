"""The words of a queue: waits that do not end, the call that it could not serve, and its bottleneck.

The thread that waits looks itself.

**The error** is Go's: when all threads of the process wait without limit, at queues or in joins, none is left that could end a wait. It
comes at once, in the main thread; in another one only when the main thread has ended. A thread that does anything else, one of a notebook
or of a test runner too, may be the one that ends the wait, so there is no error then.

**The warning** comes after `LIKELY_S` when what the queue has noted looks like a slip: its runner was never started, or all threads that
served it have ended. Otherwise it comes after the patience of the queue. It has the slip, the user's line,
a remedy, and where all threads are.

**The bottleneck** is what fills the queue, what reads it, its capacity, or the elements that min_after_dequeue holds back. Only calls that
wait are counted; the others cost nothing. A thread that comes to an empty or a full queue leaves its CPU time there.
"""

from __future__ import annotations

import math
import os
import threading
import time
import weakref
from typing import TYPE_CHECKING, Protocol, Self

from penstock._system.frames import call_and_place, warn, where_stand
from penstock._system.parking import thread_times
from penstock._system.process import current_frames
from penstock.errors import EnqueueCancelled, QueueClosed, QueueError, QueueStarved, QueueTimeout
from penstock.queues.exchange import ENDED, WAITING, Attempt, Reading, Writing

if TYPE_CHECKING:
    from penstock.queues.base import Queue

PATIENCE_S = 60.0
"""How long a call waits before it says so."""

LIKELY_S = 5.0
"""The same where a slip is likely."""

SOON_S = 0.02
"""Most waits are over by then; only one that is not is looked into."""

_MOST_NAMED = 8


class Seen:
    """A thread that was seen at one end of a queue.

    Attributes:
        name: its name.
        native_id: what the system calls it.
        first, last: (time, CPU time) when it was seen first and last, in ns.
    """

    __slots__ = ("_thread", "first", "last", "name", "native_id")

    def __init__(self, thread: threading.Thread, now: tuple[int, int]) -> None:
        self._thread = weakref.ref(thread)
        self.name, self.native_id = thread.name, threading.get_native_id()
        self.first = self.last = now

    def is_of(self, thread: threading.Thread) -> bool:
        """Return whether it is this thread: the system gives the number of one that has ended to the next one."""
        return self._thread() is thread

    def is_alive(self) -> bool:
        """Return whether the thread has not ended."""
        thread = self._thread()
        return thread is not None and thread.is_alive()


class End:
    """One end of a queue.

    Attributes:
        seen: the threads that came here, by their numbers.
        since_ns: when the first of them came.
        waited_ns: how long calls have waited here, all threads together. A race loses one addition at most.
        held_ns: of that, the time in which enough elements for a read were in, and min_after_dequeue held them back.
        ended_ns: when a read found the end of the data; 0 before.
        told_s: when a warning has told of a wait at this end.
    """

    __slots__ = ("ended_ns", "held_ns", "seen", "since_ns", "told_s", "waited_ns")

    def __init__(self) -> None:
        self.seen: dict[int, Seen] = {}
        self.since_ns = self.waited_ns = self.held_ns = self.ended_ns = 0
        self.told_s = -math.inf

    def note(self) -> None:
        """Note the calling thread."""
        thread, now = threading.current_thread(), (time.perf_counter_ns(), time.thread_time_ns())
        seen = self.seen.get(threading.get_ident())
        if seen is not None and seen.is_of(thread):
            seen.last = now
        else:
            self.since_ns = self.since_ns or now[0]
            self.seen[threading.get_ident()] = Seen(thread, now)

    def add(self, attempt: Attempt, begin_ns: int, size: int, margin: int) -> None:
        """Add the wait of an attempt, which began when so many elements were in; reads leave `margin` in."""
        waited_ns = time.perf_counter_ns() - begin_ns
        self.waited_ns += waited_ns
        if isinstance(attempt, Reading) and margin > size:  # else it waits for no more than it takes
            self.held_ns += waited_ns * (margin - size) // (margin + attempt.want - size)

    def others(self, thread: threading.Thread) -> list[Seen]:
        """Return the threads that came here but one."""
        return [seen for seen in list(self.seen.values()) if not seen.is_of(thread)]


class Wait(Protocol):
    """A call that waits without limit."""

    def pending(self) -> bool:
        """Return whether it still waits; once it does not, it never does again."""

    def error(self) -> Exception:
        """Return the error of a wait that no thread can end."""

    def warning(self, waited_s: float, is_long: bool) -> str | None:
        """Return what to say after so many seconds, None for nothing; `is_long` tells whether the patience is over."""


_waits: dict[int, Wait] = {}
"""The waits without limit, by the number of their thread."""


def waits() -> list[Wait]:
    """Return the waits without limit of all threads."""
    return list(_waits.values())


class WaitWatch:
    """Looks into one wait now and then, in the thread that waits. A `with` block of it lets the other threads know of the wait.

    Args:
        wait: the wait.
        patience_s: when a warning comes, if no slip is known; infinity for no warnings.
    """

    def __init__(self, wait: Wait, patience_s: float) -> None:
        self._wait, self._patience_s = wait, patience_s
        self._warn_s: float = min(LIKELY_S, patience_s) if patience_s < math.inf else patience_s
        self._outer: Wait | None = None

    def __enter__(self) -> Self:
        own = threading.get_ident()
        self._outer = _waits.get(own)  # a signal handler may wait inside a wait
        _waits[own] = self._wait
        return self

    def __exit__(self, *_: object) -> None:
        if self._outer is None:
            _waits.pop(threading.get_ident(), None)
        else:
            _waits[threading.get_ident()] = self._outer

    def look(self, waited_s: float) -> float:
        """Raise or warn if it is time to; return how many seconds to wait until the next look.

        Raises:
            Exception: that of `Wait.error`.
        """
        main = threading.main_thread()
        if (main is threading.current_thread() or not main.is_alive()) and _all_wait(main):
            raise self._wait.error()
        if waited_s >= self._warn_s:
            is_long = waited_s >= self._patience_s
            self._warn_s = 2 * waited_s if is_long else self._patience_s
            words = self._wait.warning(waited_s, is_long)
            if words is not None:
                warn(words)
        return min(self._warn_s - waited_s, LIKELY_S)


def _all_wait(main: threading.Thread) -> bool:
    """Return whether each living thread waits without limit; the main one may have ended.

    A wait that was there before the threads are listed, and is pending after that, was pending in that moment. So all waited at once:
    no thread can have ended a wait of another one and begun its own in between.
    """
    found = dict(_waits)
    if threading.active_count() > len(found) + 1:  # so each of a thousand threads that wait looks at one number
        return False
    frames = current_frames()
    living = set(frames)
    frames.clear()  # this function's own frame is among them: a cycle that would keep the elements alive
    if not main.is_alive():
        living.discard(main.ident or 0)
    return living <= found.keys() and all(found[ident].pending() for ident in living)


def other_threads() -> str:
    """Say where the other threads of this process are, in a line each."""
    own = threading.current_thread()
    threads = [thread for thread in threading.enumerate() if thread is not own]
    words = [f"\n  thread {thread.name!r}: {where}" for thread, where in where_stand(threads[:_MOST_NAMED]).items()]
    return "".join(words) + (f"\n  and {len(threads) - _MOST_NAMED} threads more" if len(threads) > _MOST_NAMED else "")


class QueueWait:
    """A call that waits for elements or for room, without limit; its words name the user's line."""

    def __init__(self, queue: Queue, attempt: Attempt) -> None:
        self._queue, self._attempt, self._thread = queue, attempt, threading.current_thread()
        self.reads = isinstance(attempt, Reading)
        self._end = queue._writing if self.reads else queue._reading
        self._call, place = call_and_place()
        self._here = f"{self._call}() at {place}" if place else f"{self._call}() in thread {self._thread.name!r}"

    def pending(self) -> bool:
        """Return whether it still waits."""
        return self._attempt.state == WAITING

    def error(self) -> QueueStarved:
        """Return the error of a wait that no thread can end."""
        cause, remedy = self._slip()
        later = "; as an operation for a runner give [lambda: queue.enqueue_many(...)]" if self._call == "enqueue_many" else ""
        error = QueueStarved(
            f"{cause}, so {self._here} would wait for ever: {remedy}",
            where=self._where() + other_threads(),
            fix=f"with {self._call}(timeout_s=...) it waits all the same, and raises QueueTimeout{later}",
        )
        error.num_done = self._attempt.num_done if isinstance(self._attempt, Writing) else 0
        return error

    def warning(self, waited_s: float, is_long: bool) -> str | None:
        """Return the warning; None where nothing looks wrong yet, or another thread has just told of a wait at this end of the queue."""
        others, now_s = self._end.others(self._thread), time.monotonic()
        served = any(seen.is_alive() for seen in others)
        likely = not served and (self._end.seen or self._unstarted() is not None)
        if not (likely or is_long) or now_s < self._end.told_s + self._queue.patience_s / 2:
            return None
        self._end.told_s = now_s
        waits = f"{self._here} has waited {waited_s:.0f} s for {self._wish()}"
        if served:
            whom = "fills" if self.reads else "reads"
            words = f"{waits} in {self._queue._made_label()}: look at what {whom} it, or call {self._call}(timeout_s=...)"
        else:
            cause, remedy = self._slip()
            words = f"{cause}, and {waits}: {remedy}"
        return f"{words}\n  where: {self._where()}{other_threads()}"

    def _where(self) -> str:
        return f"{self._queue._label}, {self._queue._state()}"

    def _wish(self) -> str:
        if isinstance(self._attempt, Writing):
            return f"room for {elements(len(self._attempt.entries) - self._attempt.num_done)}"
        assert isinstance(self._attempt, Reading)
        return elements(self._attempt.want)

    def _unstarted(self) -> tuple[str, str] | None:
        """Return which runner of the queue was never started, and what starts it."""
        slips = (runner.unstarted() for runner in self._queue.runners) if self.reads else ()
        return next(filter(None, slips), None)

    def _slip(self) -> tuple[str, str]:
        """Return what is wrong with the other end, and a remedy."""
        unstarted = self._unstarted()
        if unstarted is not None:
            return unstarted
        queue, size, margin, others = (
            self._queue._made_label(),
            self._queue.size(),
            self._queue._exchange.margin,
            self._end.others(self._thread),
        )
        full = f"{queue} is full (capacity {self._queue.capacity})"
        left = f", with {elements(size)} left in it" if self.reads and size else ""
        if self.reads and margin and size:
            return (
                f"{queue} keeps min_after_dequeue={margin} elements in and has only {size}, and no thread adds more",
                "close() it when everything is in, which lets all of them out, or lower min_after_dequeue",
            )
        if others:
            names = ", ".join(repr(seen.name) for seen in others[:3])
            whom = f"the threads that filled {queue}" if self.reads else f"{full} and the threads that read it"
            whom += f", such as {names},"
            if any(seen.is_alive() for seen in others):
                return f"{whom} wait themselves{left}", "let one of them go on without this one"
            if self.reads:
                return f"{whom} have ended without close(){left}", "call close() when the last of them has added everything"
            return f"{whom} have ended", "call close(cancel_pending_enqueues=True) when the last of them ends"
        if not self.reads:
            alone = "only the thread that fills it reads it" if self._end.seen else "no thread reads it"
            return f"{full} and {alone}", "start a thread that calls dequeue() before, or make it with a larger capacity"
        if self._end.seen:
            alone = f"only the thread that reads {queue} has ever added to it{left}"
            return alone, "add from another thread, or close() it before the last read"
        return f"nothing was ever added to {queue}", "enqueue() before, or in a thread of its own"


def elements(number: int) -> str:
    """Return so many elements in words."""
    return "1 element" if number == 1 else f"{number} elements"


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
