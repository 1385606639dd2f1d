"""Between the workers and `get()`: a queue, the error that ended the workers, and the stop."""

from __future__ import annotations

import math
import time
import warnings
from collections import deque
from collections.abc import Callable
from itertools import count
from typing import Any, Protocol

from penstock._contracts.element import bytes_of
from penstock._contracts.event import BatchDelivered, BlockDone, ElementLost, Event, Fill, Listener, Times, clocks, times_since
from penstock._contracts.failing import attempt
from penstock.errors import FeedClosed, QueueClosed, QueueTimeout
from penstock.queues import FIFOQueue
from penstock.queues.standing import call_and_place, level_of_caller

__all__ = ["END", "EnqueuerRun", "Events", "Handing", "HandingRun", "ItemQueue", "failed_before"]

_LONG_S = 3600.0

END = object()
"""What `take` returns behind the last item."""


class EnqueuerRun(Protocol):
    """What `start()` makes: workers of one kind."""

    @property
    def over(self) -> bool:
        """Whether nothing more can be taken: stopped, at its end, or its error was raised."""

    def take(self) -> Any:
        """Return the next item, or END; block until there is one. Raise the error that ended the workers, once."""

    def size(self) -> int:
        """Return how many items `take` returns without a wait; an error that it would raise is one."""

    def fills(self) -> list[Fill]:
        """Return how full the queue is, if there is one."""

    def stop(self, timeout_s: float | None) -> None:
        """End the workers and drop what waits."""

    def abandon(self) -> None:
        """Tell the workers to end, without waiting for them: what a finaliser may do."""


class HandingRun:
    """The consumer's side of a run whose workers hand their items over in a queue; see `EnqueuerRun`."""

    _handing: Handing

    @property
    def over(self) -> bool:
        """Whether nothing more can be taken."""
        return self._handing.over

    def take(self) -> Any:
        """Return the next item, or END."""
        return self._handing.take()

    def size(self) -> int:
        """Return how many items wait."""
        return self._handing.size()

    def fills(self) -> list[Fill]:
        """Return how full the queue is."""
        return self._handing.fills()


class Events:
    """Announces each item, when a worker made it and when it was taken, and the error of a worker. One for all runs of an enqueuer."""

    def __init__(self, name: str) -> None:
        self.listeners: list[Listener] = []
        self._name = name
        self._numbers = count()

    def begin(self) -> tuple[int, int] | None:
        """Return what `times` is to be given behind the next item; None, which costs 2 us less, while there is no listener."""
        return clocks() if self.listeners else None

    def times(self, begin: tuple[int, int] | None) -> Times | None:
        """Return when an item was made in this thread, if it is to be announced."""
        return None if begin is None else times_since(begin)

    def made(self, worker: int, times: Times | None, item: Any) -> tuple[int, int]:
        """Announce an item, in the order in which they are handed on; return its key for `taken`."""
        key = 0, next(self._numbers)
        if self.listeners and times is not None:
            self._announce(BlockDone(self._name, worker, *times, 1, key, num_bytes=attempt(bytes_of, item) or 0))
        return key

    def taken(self, begin_ns: int, num_left: int, key: tuple[int, int] | None) -> None:
        """Announce what the loop got after a wait since `begin_ns`: an item, or with None the end."""
        if self.listeners:
            now_ns = time.perf_counter_ns()
            self._announce(BatchDelivered(now_ns, now_ns - begin_ns, num_left, int(key is not None), key))

    def failed(self, worker: int, error: BaseException) -> None:
        """Announce the error that ends the workers."""
        if self.listeners:
            self._announce(ElementLost(time.perf_counter_ns(), "raised", self._name, worker, "", (), None, error, 0))

    def _announce(self, event: Event) -> None:
        for listener in self.listeners:
            listener(event)


class Handing:
    """A `FIFOQueue` with an end that may be an error. Any thread may call anything.

    Args:
        capacity: items that may wait.
        where: for errors.
        patience_s: when a warning says that nothing comes.
        say: says what the workers are at, and what to do about it.
        events: announces what is handed on.
    """

    def __init__(
        self,
        capacity: int,
        where: str,
        patience_s: float = math.inf,
        say: Callable[[], tuple[str, str]] | None = None,
        events: Events | None = None,
    ) -> None:
        self.events = Events(where) if events is None else events
        self.queue = FIFOQueue(capacity, name=where)
        self.queue.patience_s = math.inf  # its words would advise calls of a queue that the user has not got
        self.stopped = False
        self._at_end = False
        self._where = where
        self._patience_s = patience_s
        self._say = say
        self._errors: deque[BaseException] = deque(maxlen=1)
        self._failed = False

    def put(self, worker: int, times: Times | None, item: Any) -> None:
        """Hand an item over, and say who made it and when; block while the queue is full.

        Raises:
            EnqueueCancelled: it is stopped.
        """
        entry = self.events.made(worker, times, item), item
        del item
        while True:
            try:
                return self.queue.enqueue(entry, timeout_s=_LONG_S)  # with a limit: a loop that comes back after hours is no fault
            except QueueTimeout:
                continue

    def end(self, error: BaseException | None = None, worker: int = 0) -> None:
        """Say that nothing more comes, and why; the first error counts."""
        if error is not None and not self._failed:
            self._failed = True
            self.events.failed(worker, error)
            self._errors.append(error)
        self.queue.close()

    def stop(self) -> None:
        """Wake everybody: who wants to put is cancelled, who wants to take is at the end, and what waits is dropped."""
        self.stopped = True
        self.queue.close(cancel_pending_enqueues=True)
        self._errors.clear()
        try:
            while True:
                self.queue.dequeue(timeout_s=0)
        except QueueClosed:
            pass

    def take(self) -> Any:
        """Return the next item, or END."""
        if self.stopped:
            return END
        begin_ns = time.perf_counter_ns()
        try:
            key, item = self._next()
        except QueueClosed:
            self._at_end = True
            self.events.taken(begin_ns, 0, None)
        else:
            self.events.taken(begin_ns, self.queue.size(), key)
            return item
        try:
            error = self._errors.popleft()
        except IndexError:
            if self._failed and not self.stopped:
                raise failed_before("its workers have failed", self._where) from None
            return END
        raise error

    @property
    def over(self) -> bool:
        """Whether nothing more can be taken: stopped, at its end, or its error was raised."""
        return self.stopped or self._at_end or (self.queue.is_closed() and not self.size())

    def size(self) -> int:
        """Return how many items can be taken without a wait; an error that is to be raised is one."""
        return self.queue.size() + len(self._errors)

    def fills(self) -> list[Fill]:
        """Return how full the queue is."""
        return [self.queue.fill()._replace(name="items")]

    def _next(self) -> Any:
        """Take the next entry; warn when none comes for long, and again after twice as long."""
        waited_s, limit_s = 0.0, self._patience_s
        while True:
            try:
                return self.queue.dequeue(timeout_s=limit_s)
            except QueueTimeout:
                waited_s += limit_s
                limit_s = waited_s
            _, place = call_and_place()
            doing, remedy = self._say() if self._say is not None else ("its workers are at work", "look at what they do")
            warnings.warn(
                f"{self._where} has given nothing for {waited_s:.0f} s to get() at {place}, and {doing}: {remedy}",
                RuntimeWarning,
                stacklevel=level_of_caller(),
            )


class ItemQueue:
    """The items that wait, as code written for Keras asks for them.

    while enqueuer.is_running():
        if not enqueuer.queue.empty():
            batch = enqueuer.queue.get()
    """

    def __init__(self, run: EnqueuerRun, where: str) -> None:
        self._run, self._where = run, where

    def empty(self) -> bool:
        """Return whether `get` would have to wait; False also where it would raise the error of the generator."""
        return self.qsize() == 0

    def qsize(self) -> int:
        """Return how many items wait."""
        return self._run.size()

    def get(self) -> Any:
        """Return the next item; block while none is ready.

        Raises:
            FeedClosed: all generators are at their ends, or it was stopped, or it has failed before.
            BaseException: as `GeneratorEnqueuer.get`.
        """
        item = self._run.take()
        if item is END:
            raise FeedClosed(
                "there is no further item", where=f"{self._where}.queue.get()", fix="ask is_running() and queue.empty() before"
            )
        return item


def failed_before(what: str, where: str) -> FeedClosed:
    """Return the error of who asks for more behind the error that ended a run."""
    return FeedClosed(f"{what}; the error was raised before", where=where, fix="stop() it and start() again")
