"""The queues: the mutex, the calls, their waits and their end; four kinds, each with its store, its rule and the form of its batches."""

from __future__ import annotations

import functools
import itertools
import math
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn, Self

from penstock._contracts.element import bytes_of
from penstock._contracts.event import BatchDelivered, BatchEnqueued, Fill, Listener
from penstock._system.failing import add_note, attempt
from penstock._system.frames import call_and_place, warn
from penstock._system.memory import free_memory
from penstock._system.parking import SIGNALS_S, WaitBell
from penstock.errors import PlanError, QueueError, SpecError
from penstock.queues.diagnosis import PATIENCE_S, SOON_S, End, QueueWait, WaitWatch, explain, refusal
from penstock.queues.exchange import (
    ENDED,
    SERVED,
    WAITING,
    Attempt,
    Exchange,
    FifoStore,
    PriorityStore,
    RandomStore,
    Reading,
    Store,
    Writing,
)
from penstock.queues.stopping import Unraised, tell_when_dropped
from penstock.queues.trees import Components, Priority, batch_of, declare, limit_of, positive, slices_of, stack

if TYPE_CHECKING:
    from penstock.queues.runner import QueueRunner

_WEIGHED = 32
"""So many elements at each end are measured to say what all of them take: 20 us."""


class Queue:
    """A bounded queue between threads.

    An element is an array-like, a tuple of them or a dict of them; a list is one array-like. Arrays are kept as they are, not copied: do
    not write to one after it was enqueued. All calls are thread-safe, and those that cannot be served wait in two lines, first come, first
    served. `size`, `is_closed` and `close` never block, and may be called in signal handlers and finalisers.

    Each blocking call takes `timeout_s`: None waits without limit, 0 never blocks. When all threads of the process wait without limit, that
    is a QueueStarved in the main thread. A wait that looks like a slip gives a RuntimeWarning after 5 s, any other after `patience_s`; it
    says where all threads are.

    As a context manager it closes, and cancels pending enqueues, at the end of the block.

    Attributes:
        patience_s: seconds of waiting after which a call without a limit says so, and again after twice as long; infinity for never.
        runners: the runners that fill it, started or not.
    """

    patience_s: float = PATIENCE_S

    def __init__(
        self,
        store: Store,
        capacity: int,
        components: Components | None,
        *,
        margin: int = 0,
        name: str | None = None,
        listeners: Sequence[Listener] = (),
    ) -> None:
        """Make a queue; a kind of queue gives the store and the rule.

        Args:
            store: where the elements stand.
            capacity: how many at most.
            components: what they look like; None takes any.
            margin: how many reads leave in until it is closed.
            name: what errors and warnings call it; the class by default.
            listeners: called with a BatchEnqueued or BatchDelivered for each call that moved elements, in the thread that called.
        """
        if name is not None and not isinstance(name, str):
            raise PlanError(f"name is {name!r}", where="name", fix="give a str")
        self._store = store
        self._exchange = Exchange(store, positive(capacity, "capacity"), margin)
        self._margin = margin
        self._components = components
        self._checked = components is not None
        # Not a plain lock: a signal handler or a finaliser that closes or fills the queue may run while its own thread is in here.
        self._mutex = threading.RLock()
        self._name = type(self).__name__ if name is None else name
        self._label = f"{type(self).__name__} {self._name!r}"
        self._weighed = False
        self._listeners = list(listeners)
        self._writing, self._reading = End(), End()
        self.runners: list[QueueRunner] = []
        self._made = call_and_place()[1]
        self._failures: list[BaseException] = []
        self._unraised: Unraised | None = None
        _living()[id(self)] = self

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
        """Return how many elements stand in it now."""
        return len(self._store)

    def fill(self) -> Fill:
        """Return how full it is, and what its curve is called. Takes no lock."""
        return Fill(self._name, len(self._store), self._exchange.capacity, self._margin)

    def num_bytes(self) -> int:
        """Return about how much memory its elements take, going by those at both ends. Takes no lock."""
        num = len(self._store)
        places = range(num) if num <= 2 * _WEIGHED else (*range(_WEIGHED), *range(-_WEIGHED, 0))
        found = [attempt(lambda place: bytes_of(self._store[place]), place) for place in places]  # another thread may take one meanwhile
        sizes = [size for size in found if size is not None]
        return num * sum(sizes) // len(sizes) if sizes else 0

    def report(self) -> str:
        """Say what the bottleneck at this queue is, why, with the numbers that show it, and what to change. From any thread.

        The first line is one sentence, about the time since it was both filled and read: what fills it (CPU-bound, GIL-bound or waiting),
        what reads it, a capacity too small for bursts, or a `min_after_dequeue` that is too large.
        """
        return explain(self, self._reading, self._writing)

    def is_closed(self) -> bool:
        """Return whether `close` was called; there may be elements left."""
        return self._exchange.closed

    def add_listener(self, listener: Listener) -> None:
        """Announce every call that moves elements to one more listener, in the thread that calls; nothing is made while there is none."""
        self._listeners.append(listener)

    def __repr__(self) -> str:
        return f"<{self._label}: {self.size()} of {self.capacity}{', closed' if self.is_closed() else ''}>"

    def __reduce__(self) -> NoReturn:
        raise PlanError(
            "a queue cannot be copied or sent to another process",
            where=self._label,
            fix="share it between threads; between processes use GeneratorEnqueuer or a Dataset",
        )

    # -- in -----------------------------------------------------------------------------------------------------------------------

    def enqueue(self, element: Any, timeout_s: float | None = None) -> None:
        """Add one element; block while the queue is full.

        Raises:
            SpecError: the element does not fit the declared components.
            EnqueueCancelled: the queue is closed, or was closed with `cancel_pending_enqueues` meanwhile.
            QueueTimeout: there was no room in time.
            QueueStarved: it would wait without limit, and no thread can end the wait.
        """
        if timeout_s is not None:
            timeout_s = limit_of(timeout_s)
        if self._checked or not self._weighed:
            element = self._entry(element)
        # Nearly every call need not wait: it goes without an attempt, and notes its thread only at an empty queue or where others wait.
        store, exchange = self._store, self._exchange
        try:
            with self._mutex:
                has_room = len(store) < exchange.room  # so nobody waits to write
                if has_room:
                    if exchange.readers or not store:
                        self._writing.note()
                    store.add(element)
                    if exchange.readers:
                        exchange.serve()
            if not has_room:
                self._write([element], timeout_s)
            elif self._listeners:
                self._announce(BatchEnqueued, 0, 1)
        except BaseException:
            self._settle(None)
            raise

    def enqueue_many(self, elements: Any, timeout_s: float | None = None) -> None:
        """Add the slices of `elements` along dimension 0, in order, no others between; block, part way too, while the queue is full.

        When it is cut short, by the errors below or Ctrl-C, `error.num_done` or the note of the exception says how many are in, and stay:
        go on with the rest.

        Args:
            elements: an array of shape (n, ...), or a list of n elements' values, or a tuple or dict of them.
            timeout_s: for all of them together.

        Raises:
            SpecError: a slice does not fit the declared components, or first dimensions are not equal; nothing was added.
            EnqueueCancelled: the queue is closed, or was closed with `cancel_pending_enqueues` meanwhile.
            QueueTimeout: there was no room for all in time.
            QueueStarved: it would wait without limit, and no thread can end the wait.
        """
        limit_s = limit_of(timeout_s)
        self._write(self._entries(elements), limit_s)

    # -- out ----------------------------------------------------------------------------------------------------------------------

    def dequeue(self, timeout_s: float | None = None) -> Any:
        """Take one element; block while there is none.

        Raises:
            QueueClosed: the queue is closed and empty.
            QueueTimeout: there was none in time.
            QueueStarved: it would wait without limit, and no thread can end the wait.
        """
        if timeout_s is not None:
            timeout_s = limit_of(timeout_s)
        store, exchange, attempt, element = self._store, self._exchange, None, _NOTHING
        try:
            with self._mutex:
                if len(store) > exchange.margin and not exchange.readers:
                    element = store.take()
                    if exchange.writers:
                        self._reading.note()
                        exchange.serve()
            if element is _NOTHING:
                attempt = Reading(1, True)
                return self._read(attempt, timeout_s, lambda entries: self._single(entries[0]))
            if self._listeners:
                self._announce(BatchDelivered, 0, 1)
            return self._single(element)
        except BaseException:
            if element is not _NOTHING:
                store.put_back(element)
            self._settle(attempt)
            raise

    def dequeue_many(self, n: int, timeout_s: float | None = None) -> Any:
        """Take `n` elements as one batch, each component an array of shape (n, ...); block until there are so many.

        `n` may be more than the capacity: what stands in a full queue then waits with this call. A call that fails leaves all elements in.

        Raises:
            QueueClosed: the queue is closed and has fewer left; the error says how many.
            QueueTimeout: there were not so many in time.
            QueueStarved: it would wait without limit, and no thread can end the wait.
            SpecError: the elements do not stack.
        """
        return self._read(Reading(positive(n, "n"), True), limit_of(timeout_s), self._batch)

    def dequeue_up_to(self, n: int, timeout_s: float | None = None) -> Any:
        """Do as `dequeue_many` does, but take what is left, at least one, when the queue is closed and has fewer.

        Raises:
            QueueClosed: the queue is closed and empty.
            QueueTimeout: there were not so many in time.
            QueueStarved: it would wait without limit, and no thread can end the wait.
            SpecError: the elements do not stack.
        """
        return self._read(Reading(positive(n, "n"), False), limit_of(timeout_s), self._batch)

    # -- the end ------------------------------------------------------------------------------------------------------------------

    def close(self, cancel_pending_enqueues: bool = False) -> None:
        """Take no further elements; what is in, and what waits to get in, can still be taken.

        Everybody who waits for what will not come is told so. Never blocks; closing twice does no harm.

        Args:
            cancel_pending_enqueues: end the calls that wait to add elements with EnqueueCancelled; may follow an earlier `close()`.
        """
        try:
            with self._mutex:
                self._exchange.close(cancel_pending_enqueues)
        except BaseException:  # it may not have come to the end
            with self._mutex:
                self._exchange.close(cancel_pending_enqueues)
            raise

    def fail(self, error: BaseException) -> None:
        """Close because a producer failed: one reader, behind what is left, gets `error` in place of the end of the data."""
        with self._mutex:
            self._failures.append(error)
            self._unraised = tell_when_dropped(self, self._label, error, "read it to its end, or give its runner a coordinator")
        self.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close(cancel_pending_enqueues=True)

    # -- inside -------------------------------------------------------------------------------------------------------------------

    def _weigh(self, element: Any) -> None:
        """Warn, at the first element, if a full queue of such ones takes more than half of the memory that is free."""
        self._weighed = True
        size, free = attempt(bytes_of, element), attempt(free_memory)
        if size is not None and free is not None and self.capacity * size > free / 2:
            less = f", and with it min_after_dequeue={self._margin:,}" if self._margin else ""
            text = (
                f"{self._made_label()} has room for {self.capacity:,} elements, and the first has {size:,} bytes: full, it takes "
                f"{self.capacity * size / 1e9:,.1f} GB of the {free / 1e9:,.1f} GB of memory that are free; lower its capacity{less}"
            )
            warn(text)

    def _entry(self, element: Any) -> Any:
        if self._components is not None:
            element = self._components.entry(element, self._label)
        if not self._weighed:
            self._weigh(element)
        return element

    def _entries(self, elements: Any) -> list[Any]:
        components, entries = self._components, slices_of(elements, self._label)
        if components is not None:
            entries = [components.entry(entry, self._label) for entry in entries]
        if entries and not self._weighed:
            self._weigh(entries[0])
        return entries

    def _single(self, entry: Any) -> Any:
        return entry

    def _batch(self, entries: list[Any]) -> Any:
        return batch_of(entries, stack, self._label)

    def _write(self, entries: list[Any], limit_s: float | None) -> None:
        attempt = Writing(entries)
        self._writing.note()
        try:
            with self._mutex:
                self._exchange.write(attempt)
                if attempt.state == WAITING:
                    self._stay(attempt, limit_s)
            begin_ns = self._complete(attempt, limit_s)
            if self._listeners and entries:
                self._announce(BatchEnqueued, begin_ns, len(entries))
        except BaseException as error:
            self._settle(attempt)
            if len(entries) > 1 and not isinstance(error, QueueError):
                add_note(error, f"{attempt.num_done} of {len(entries)} elements are in {self._label}")
            raise

    def _read(self, attempt: Reading, limit_s: float | None, form: Callable[[list[Any]], Any]) -> Any:
        self._reading.note()
        try:
            with self._mutex:
                self._exchange.read(attempt)
                if attempt.state == WAITING:
                    self._stay(attempt, limit_s)
            begin_ns = self._complete(attempt, limit_s)
            out = form(attempt.entries)
            if self._listeners:
                self._announce(BatchDelivered, begin_ns, len(attempt.entries))
            return out
        except BaseException:
            self._settle(attempt)
            raise

    def _stay(self, attempt: Attempt, limit_s: float | None) -> None:
        """Make ready for the wait of an attempt that was not served at once, or give it up when it must not wait. Under the mutex."""
        if limit_s == 0:
            self._exchange.withdraw(attempt)
        else:
            attempt.seat = bell = WaitBell()
            attempt.bell = bell.put

    def _complete(self, attempt: Attempt, limit_s: float | None) -> int:
        """Wait until the attempt is served, or raise the error of one that cannot be; return when the wait began, 0 when there was none."""
        begin_ns = 0
        if attempt.state == WAITING:
            begin_ns, size = time.perf_counter_ns(), len(self._store)
            if limit_s is None or limit_s > SOON_S:
                attempt.seat.sit(SOON_S)
            if attempt.state == WAITING:
                self._wait_on(attempt, begin_ns, limit_s)
            end = self._reading if isinstance(attempt, Reading) else self._writing
            end.add(attempt, begin_ns, size, self._margin)
        if attempt.state != SERVED:
            at_end = attempt.state == ENDED and isinstance(attempt, Reading)
            if at_end:
                self._reading.ended_ns = self._reading.ended_ns or time.perf_counter_ns()
                self._raise_failure()
            error = refusal(attempt, limit_s, self._label, self._state())
            for slip in filter(None, [runner.unstarted() for runner in self.runners if at_end]):
                error.add_note(f"penstock: {slip[0]}: what it would have added is missing")
            raise error
        return begin_ns

    def _raise_failure(self) -> None:
        """Raise the error that a producer left, once."""
        with self._mutex:
            failures, self._failures = self._failures, []
            if self._unraised is not None:
                self._unraised.detach()
        if failures:
            raise failures.pop(0)  # this frame may not hold it: error, traceback and frame would be a cycle

    def _wait_on(self, attempt: Attempt, begin_ns: int, limit_s: float | None) -> None:
        # A signal that comes right before the main thread sleeps does not wake it (see `ParkingLot`).
        longest_s = SIGNALS_S if threading.current_thread() is threading.main_thread() else math.inf
        with nullcontext() if limit_s is not None else WaitWatch(QueueWait(self, attempt), self.patience_s) as watch:
            while attempt.state == WAITING:
                waited_s = (time.perf_counter_ns() - begin_ns) / 1e9
                left_s = watch.look(waited_s) if watch is not None else (limit_s or 0.0) - waited_s
                if left_s <= 0:
                    with self._mutex:
                        self._exchange.withdraw(attempt)
                    return
                attempt.seat.sit(min(left_s, longest_s))

    def _settle(self, attempt: Attempt | None) -> None:
        """Make everything whole after an exception: the attempt leaves, what it had is put back, and the others are served."""
        with self._mutex:
            if attempt is not None:
                self._exchange.withdraw(attempt)
                if isinstance(attempt, Reading):
                    self._exchange.give_back(attempt)
            self._exchange.serve()

    def _made_label(self) -> str:
        return f"{self._label} (made at {self._made})" if self._made else self._label

    def _state(self) -> str:
        return f"{len(self._store)} of {self._exchange.capacity} elements in it"

    # -- events -------------------------------------------------------------------------------------------------------------------

    def _announce(self, kind: type[BatchEnqueued | BatchDelivered], begin_ns: int, num: int) -> None:
        now_ns = time.perf_counter_ns()
        for listener in self._listeners:
            listener(kind(now_ns, now_ns - begin_ns if begin_ns else 0, len(self._store), num))


def living_queues() -> list[Queue]:
    """Return the queues of this process that are referred to."""
    return [queue for queue in (ref() for ref in _living().valuerefs()) if queue is not None]


@functools.cache
def _living() -> weakref.WeakValueDictionary[int, Queue]:
    return weakref.WeakValueDictionary()


_NOTHING = object()


class FIFOQueue(Queue):
    """A queue whose elements leave in the order in which they came. The calls are those of `Queue`.

    Args:
        capacity: how many elements it holds at most.
        dtypes: of one component, or a list with one for each; None takes any. Arrays must have it, numbers and lists become it.
        shapes: of one component, or a list with one for each; None takes any, a dimension that is None may vary.
        names: when given, elements are dicts with these keys.
        name: what errors and warnings call it.
        listeners: called with a BatchEnqueued or BatchDelivered for each call that moved elements, such as `observe.Stats`.

    Raises:
        PlanError: an argument is out of range, or they do not fit each other.
    """

    def __init__(
        self,
        capacity: int,
        dtypes: Any = None,
        shapes: Any = None,
        names: Sequence[str] | None = None,
        *,
        name: str | None = None,
        listeners: Sequence[Listener] = (),
    ) -> None:
        super().__init__(FifoStore(), capacity, declare(dtypes, shapes, names), name=name, listeners=listeners)


class PaddingFIFOQueue(FIFOQueue):
    """A FIFOQueue whose batches are padded at the end of each dimension, to the longest of the batch, with zeros (texts: empty ones).

    Dimensions that are None in `shapes` may vary; without `shapes` all may. The number of dimensions of a component may not.
    """

    def _batch(self, entries: list[Any]) -> Any:
        return batch_of(entries, partial(stack, padded=True), self._label)


class RandomShuffleQueue(Queue):
    """A queue whose elements leave in random order, each as likely as any other that is in.

    Args:
        capacity: how many elements it holds at most.
        min_after_dequeue: how many reads leave in, so that there is something to choose from, until the queue is closed.
        dtypes: as for `FIFOQueue`.
        shapes: as for `FIFOQueue`.
        names: as for `FIFOQueue`.
        seed: the same seed and the same calls in the same order give the same elements; None takes one from the system.
        name: as for `FIFOQueue`.
        listeners: as for `FIFOQueue`.

    Raises:
        PlanError: an argument is out of range, or they do not fit each other.
    """

    def __init__(
        self,
        capacity: int,
        min_after_dequeue: int,
        dtypes: Any = None,
        shapes: Any = None,
        names: Sequence[str] | None = None,
        seed: int | None = None,
        *,
        name: str | None = None,
        listeners: Sequence[Listener] = (),
    ) -> None:
        margin = positive(min_after_dequeue, "min_after_dequeue", 0)
        if margin >= positive(capacity, "capacity"):
            raise PlanError(
                f"min_after_dequeue is {margin} and capacity {capacity}: nothing could ever be taken",
                where="min_after_dequeue",
                fix="make the capacity larger; it bounds how many may be taken at once without waiting",
            )
        store = RandomStore(None if seed is None else positive(seed, "seed", 0))
        super().__init__(store, capacity, declare(dtypes, shapes, names), margin=margin, name=name, listeners=listeners)


class PriorityQueue(Queue):
    """A queue whose elements leave in the order of their first component, a whole number: lowest first, equal ones as they came.

    Elements are tuples (priority, ...), or dicts whose first name is that of the priority.

    Args:
        capacity: how many elements it holds at most.
        dtypes: of the components behind the priority, as for `FIFOQueue`.
        shapes: of the components behind the priority, as for `FIFOQueue`.
        names: of all components, that of the priority first.
        name: as for `FIFOQueue`.
        listeners: as for `FIFOQueue`.

    Raises:
        PlanError: an argument is out of range, or they do not fit each other.
    """

    def __init__(
        self,
        capacity: int,
        dtypes: Any = None,
        shapes: Any = None,
        names: Sequence[str] | None = None,
        *,
        name: str | None = None,
        listeners: Sequence[Listener] = (),
    ) -> None:
        self._priority = Priority()
        super().__init__(PriorityStore(), capacity, declare(dtypes, shapes, names, (self._priority,)), name=name, listeners=listeners)
        self._checked = True
        self._serial = itertools.count().__next__
        self._first: Any = 0 if names is None else names[0]

    def _entry(self, element: Any) -> Any:
        return self._ranked(super()._entry(element))

    def _entries(self, elements: Any) -> list[Any]:
        return [self._ranked(element) for element in super()._entries(elements)]

    def _ranked(self, element: Any) -> tuple[int, int, Any]:
        if self._components is not None:
            return int(element[self._first]), self._serial(), element
        if not isinstance(element, tuple) or not element:
            got = "an empty tuple" if isinstance(element, tuple) else f"a {type(element).__name__}"
            raise SpecError(
                f"the element is {got}, the queue takes tuples (priority, ...)",
                where=self._label,
                fix="put a whole number first; elements that are dicts need names=",
            )
        return int(self._priority.fit(element[0], self._label)), self._serial(), element

    def _single(self, entry: Any) -> Any:
        return entry[2]

    def _batch(self, entries: list[Any]) -> Any:
        return super()._batch([entry[2] for entry in entries])
