"""The four queues: each gives the store, the rule and the form of its batches."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from penstock._contracts.event import Listener
from penstock.errors import PlanError, SpecError
from penstock.queues.base import Queue
from penstock.queues.components import Priority, declare
from penstock.queues.exchange import WAITING, FifoStore, PriorityStore, RandomStore, Reading, Writing
from penstock.queues.limits import limit_of, positive
from penstock.queues.standing import shorten
from penstock.queues.trees import batch_of, pad

__all__ = ["FIFOQueue", "PaddingFIFOQueue", "PriorityQueue", "RandomShuffleQueue"]

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

    _store: FifoStore

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

    # `enqueue` and `dequeue` again, because nearly every call is one that need not wait: without an attempt, in one hold of the mutex. The
    # thread is noted only where the queue was empty or somebody waits: to ask for its number each time would cost a tenth of the pace.

    def enqueue(self, element: Any, timeout_s: float | None = None) -> None:
        """Add one element; block while the queue is full. See `Queue.enqueue`."""
        if timeout_s is not None:
            timeout_s = limit_of(timeout_s)
        if self._check is not None:
            element = self._entry(element)
        store, exchange, attempt = self._store, self._exchange, None
        try:
            with self._mutex:
                if len(store) < exchange.room:  # so nobody waits to write
                    if store and not exchange.readers:
                        store.append(element)
                    else:
                        self._writing.note()
                        exchange.hand(element)
                else:
                    self._writing.note()
                    attempt = Writing([element])
                    exchange.write(attempt)
                    if attempt.state == WAITING:
                        self._stay(attempt, timeout_s)
            begin_ns = 0 if attempt is None else self._complete(attempt, timeout_s)
            if self._listeners:
                self._announce_enqueued(begin_ns, 1)
        except BaseException as error:
            self._settle(attempt)
            shorten(error, error.__traceback__)
            raise

    def dequeue(self, timeout_s: float | None = None) -> Any:
        """Take one element; block while there is none. See `Queue.dequeue`."""
        if timeout_s is not None:
            timeout_s = limit_of(timeout_s)
        store, exchange, attempt, element = self._store, self._exchange, None, _NOTHING
        try:
            with self._mutex:
                if store and not exchange.readers:
                    element = store[0]
                    del store[0]
                    if exchange.writers:
                        self._reading.note()
                        exchange.refill()
                else:
                    self._reading.note()
                    attempt = Reading(1, True)
                    exchange.read(attempt)
                    if attempt.state == WAITING:
                        self._stay(attempt, timeout_s)
            begin_ns = 0 if attempt is None else self._complete(attempt, timeout_s)
            if self._listeners:
                self._announce_delivered(begin_ns, 1)
            return element if attempt is None else attempt.entries[0]
        except BaseException as error:
            if element is not _NOTHING:
                store.appendleft(element)
            self._settle(attempt)
            shorten(error, error.__traceback__)
            raise


class PaddingFIFOQueue(FIFOQueue):
    """A FIFOQueue whose batches are padded at the end of each dimension, to the longest of the batch, with zeros (texts: empty ones).

    Dimensions that are None in `shapes` may vary; without `shapes` all may. The number of dimensions of a component may not.
    """

    def _batch(self, entries: list[Any]) -> Any:
        return batch_of(entries, pad, self._label)


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

    def _single(self, entries: list[Any]) -> Any:
        return entries[0][2]

    def _batch(self, entries: list[Any]) -> Any:
        return super()._batch([entry[2] for entry in entries])
