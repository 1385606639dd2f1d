"""What all queues share: the mutex, the calls, their waits and their end."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

from penstock._contracts.event import BatchDelivered, BatchEnqueued, Event, Listener
from penstock.errors import EnqueueCancelled, PlanError, QueueClosed, QueueError, QueueStarved, QueueTimeout
from penstock.queues.components import Components
from penstock.queues.exchange import ENDED, LEFT, SERVED, WAITING, Attempt, Exchange, Reading, Writing
from penstock.queues.parking import ParkingLot
from penstock.queues.starving import PATIENCE_S, Producer, Users, alone
from penstock.queues.stores import Store

__all__ = ["Queue"]

_LOOK_S = 0.5
"""How often the main thread looks up from a wait: a signal that comes right before it sleeps does not wake it (see `parking`)."""


class Queue:
    """A bounded queue between threads; see `FIFOQueue` for the calls."""

    patience_s: float = PATIENCE_S

    def __init__(
        self, store: Store, capacity: int, components: Components, *, margin: int = 0, name: str, listeners: Sequence[Listener] = ()
    ) -> None:
        self._store = store
        self._exchange = Exchange(store, capacity, margin)
        self._components = components
        # Not a plain lock: a signal handler or a finaliser that closes or fills the queue may run while its own thread is in here.
        self._mutex = threading.RLock()
        self._name = name
        self._listeners = list(listeners)
        self._writing, self._reading = Users(), Users()

    # -- what it is ---------------------------------------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """The name that errors and warnings call it by."""
        return self._name

    @property
    def capacity(self) -> int:
        """How many elements it holds at most."""
        return self._exchange.capacity

    def size(self) -> int:
        """Return how many elements stand in it now; never blocks."""
        return len(self._store)

    def is_closed(self) -> bool:
        """Return whether `close` was called; there may be elements left."""
        return self._exchange.closed

    def add_listener(self, listener: Listener) -> None:
        """Announce every call that moves elements to a listener, in the thread that called."""
        self._listeners.append(listener)

    def add_producer(self, producer: Producer) -> None:
        """Name somebody who fills this queue, for the words of a wait that lasts too long."""
        self._writing.registered.append(producer)

    # -- in -----------------------------------------------------------------------------------------------------------------------

    def enqueue(self, element: Any, timeout_s: float | None = None) -> None:
        """Add one element; block while the queue is full."""
        self._write([self._components.entry(element)], limit_of(timeout_s))

    def enqueue_many(self, elements: Any, timeout_s: float | None = None) -> None:
        """Add the slices of `elements` along dimension 0, in order; block while the queue is full, part way too."""
        limit_s = limit_of(timeout_s)
        self._write(self._components.entries(elements), limit_s)

    # -- out ----------------------------------------------------------------------------------------------------------------------

    def dequeue(self, timeout_s: float | None = None) -> Any:
        """Take one element; block while there is none."""
        return self._read(1, True, limit_of(timeout_s), self._components.element)

    def dequeue_many(self, n: int, timeout_s: float | None = None) -> Any:
        """Take `n` elements as one batch; block until there are so many."""
        return self._read(positive(n, "n"), True, limit_of(timeout_s), self._components.batch)

    def dequeue_up_to(self, n: int, timeout_s: float | None = None) -> Any:
        """Take `n` elements as one batch, or what is left when the queue is closed; block until there are so many."""
        return self._read(positive(n, "n"), False, limit_of(timeout_s), self._components.batch)

    # -- the end ------------------------------------------------------------------------------------------------------------------

    def close(self, cancel_pending_enqueues: bool = False) -> None:
        """Take no further elements; what is in can be taken. Everybody who waits for what will not come is told so; never blocks."""
        try:
            with self._mutex:
                self._exchange.close(cancel_pending_enqueues)
        except BaseException:
            self._settle()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self.close(cancel_pending_enqueues=True)

    # -- inside -------------------------------------------------------------------------------------------------------------------

    def _write(self, entries: list[Any], limit_s: float | None) -> None:
        attempt = Writing(entries)
        begin_ns = time.perf_counter_ns()
        self._writing.note()
        try:
            with self._mutex:
                self._exchange.write(attempt)
                self._prepare(attempt, limit_s)
            if attempt.state == WAITING:
                self._wait(attempt, begin_ns, limit_s)
        except BaseException as error:
            self._settle(attempt)
            if attempt.num_done and len(entries) > 1:
                error.add_note(f"{attempt.num_done} of {len(entries)} elements went into {self._name!r} before")
            raise
        if attempt.state != SERVED:
            raise self._refusal(attempt, limit_s)
        self._announce_write(begin_ns, len(entries))

    def _read(self, want: int, whole: bool, limit_s: float | None, finish: Any) -> Any:
        attempt = Reading(want, whole)
        begin_ns = time.perf_counter_ns()
        self._reading.note()
        try:
            with self._mutex:
                self._exchange.read(attempt)
                self._prepare(attempt, limit_s)
            if attempt.state == WAITING:
                self._wait(attempt, begin_ns, limit_s)
            if attempt.state != SERVED:
                raise self._refusal(attempt, limit_s)
            self._announce_read(begin_ns, len(attempt.entries))
            return finish(attempt.entries)
        except BaseException:
            self._settle(attempt)
            raise

    def _prepare(self, attempt: Attempt, limit_s: float | None) -> None:
        """Make ready for the wait of an attempt that was not served at once, or give it up when it must not wait. Under the mutex."""
        if attempt.state != WAITING:
            return
        if limit_s == 0:
            self._exchange.withdraw(attempt)
        else:
            attempt.lot = ParkingLot()
            attempt.bell = attempt.lot.bell

    def _wait(self, attempt: Attempt, begin_ns: int, limit_s: float | None) -> None:
        """Wait until the attempt is decided, or give it up when the time is over."""
        if limit_s is None and alone():
            raise self._starved(attempt)
        in_main = threading.current_thread() is threading.main_thread()
        warn_s = self.patience_s
        while attempt.state == WAITING:
            waited_s = (time.perf_counter_ns() - begin_ns) / 1e9
            if limit_s is not None and waited_s >= limit_s:
                with self._mutex:
                    self._exchange.withdraw(attempt)
                return
            if waited_s >= warn_s:
                warn_s *= 2
            slice_s = warn_s - waited_s if limit_s is None else min(limit_s, warn_s) - waited_s
            attempt.lot.park(lambda: attempt.state == WAITING, min(slice_s, _LOOK_S) if in_main else slice_s)
            if limit_s is None and in_main and attempt.state == WAITING and alone():
                raise self._starved(attempt)

    def _settle(self, attempt: Attempt | None = None) -> None:
        """Make everything whole after an exception: the attempt leaves, what it had is put back, and the others are served."""
        with self._mutex:
            if attempt is not None:
                self._exchange.withdraw(attempt)
                if isinstance(attempt, Reading):
                    self._exchange.give_back(attempt)
            self._exchange.serve()

    def _refusal(self, attempt: Attempt, limit_s: float | None) -> QueueError:
        """Return the error of an attempt that was not served."""
        closed = attempt.state == ENDED
        if isinstance(attempt, Writing):
            error = self._write_refusal(attempt, closed, limit_s)
            error.num_done = attempt.num_done
            return error
        assert isinstance(attempt, Reading)
        what = "1 element" if attempt.want == 1 else f"{attempt.want} elements"
        if closed:
            return QueueClosed(
                f"{self._name!r} is closed and has {attempt.num_left} left: {what} cannot come",
                where=self._where(),
                fix="this is the end of the data: leave the loop; dequeue_up_to(n) takes what is left",
            )
        return QueueTimeout(
            f"{what} did not come within {limit_s:g} s",
            where=self._where(),
            fix="look at what fills the queue, or wait longer; nothing was taken",
        )

    def _write_refusal(self, attempt: Writing, closed: bool, limit_s: float | None) -> QueueError:
        num = len(attempt.entries)
        went = "" if num == 1 else f"; {attempt.num_done} of {num} elements went in, go on with the rest"
        if closed:
            return EnqueueCancelled(
                f"{self._name!r} is closed and takes nothing more{went}",
                where=self._where(),
                fix="stop producing; close the queue only when everything is in, or without cancel_pending_enqueues",
            )
        return QueueTimeout(
            f"there was no room within {limit_s:g} s{went}",
            where=self._where(),
            fix="look at what reads the queue, or wait longer",
        )

    def _starved(self, attempt: Attempt) -> QueueStarved:
        reads = isinstance(attempt, Reading)
        doing = "fill" if reads else "read"
        return QueueStarved(
            f"this wait would never end: no other thread is alive that could {doing} {self._name!r}",
            where=f"{self._where()}; {self._writing.words() if reads else self._reading.words()}",
            fix=f"start the threads that {doing} it first, or close it when everything is in; timeout_s waits all the same",
        )

    def _where(self) -> str:
        return f"{type(self).__name__} {self._name!r}, {len(self._store)} of {self._exchange.capacity} elements in it"

    # -- events -------------------------------------------------------------------------------------------------------------------

    def _announce_write(self, begin_ns: int, num: int) -> None:
        if self._listeners and num:
            now_ns = time.perf_counter_ns()
            self._announce(BatchEnqueued(now_ns, now_ns - begin_ns, len(self._store), num))

    def _announce_read(self, begin_ns: int, num: int) -> None:
        if self._listeners:
            now_ns = time.perf_counter_ns()
            self._announce(BatchDelivered(now_ns, now_ns - begin_ns, len(self._store), num))

    def _announce(self, event: Event) -> None:
        for listener in self._listeners:
            listener(event)


def limit_of(timeout_s: float | None) -> float | None:
    """Check a time limit; None and infinity are no limit, 0 does not block."""
    if timeout_s is None:
        return None
    if isinstance(timeout_s, bool) or not isinstance(timeout_s, (int, float)) or not timeout_s >= 0:
        raise PlanError(
            f"timeout_s is {timeout_s!r}", where="timeout_s", fix="give seconds, 0 or more; 0 does not block, None waits without limit"
        )
    return None if timeout_s == math.inf else timeout_s


def positive(number: int, name: str) -> int:
    """Check a count."""
    if isinstance(number, bool) or not isinstance(number, int) or number < 1:
        raise PlanError(f"{name} is {number!r}", where=name, fix="give a whole number, 1 or more")
    return number
