"""Between the workers and `get()`: a queue, the error that ended the workers, and the stop."""

from __future__ import annotations

from collections import deque
from typing import Any, Protocol

from penstock.errors import FeedClosed, QueueClosed
from penstock.queues import FIFOQueue

__all__ = ["END", "Handing", "Run", "failed_before"]

END = object()
"""What `take` returns behind the last item."""


class Run(Protocol):
    """What `start()` makes: workers of one kind."""

    @property
    def over(self) -> bool:
        """Whether nothing more can be taken: stopped, at its end, or its error was raised."""

    def take(self) -> Any:
        """Return the next item, or END; block until there is one. Raise the error that ended the workers, once."""

    def stop(self, timeout_s: float | None) -> None:
        """End the workers and drop what waits."""

    def abandon(self) -> None:
        """Tell the workers to end, without waiting for them: what a finaliser may do."""


class Handing:
    """A `FIFOQueue` with an end that may be an error. Any thread may call anything."""

    def __init__(self, capacity: int, where: str) -> None:
        self.queue = FIFOQueue(capacity, name=where)
        self.stopped = False
        self.over = False
        self._where = where
        self._errors: deque[BaseException] = deque(maxlen=1)
        self._failed = False

    def put(self, item: Any) -> None:
        """Hand an item over; block while the queue is full.

        Raises:
            EnqueueCancelled: it is stopped.
        """
        self.queue.enqueue(item)

    def end(self, error: BaseException | None = None) -> None:
        """Say that nothing more comes, and why; the first error counts."""
        if error is not None and not self._failed:
            self._failed = True
            self._errors.append(error)
        self.queue.close()

    def stop(self) -> None:
        """Wake everybody: who wants to put is cancelled, who wants to take is at the end, and what waits is dropped."""
        self.stopped = self.over = True
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
        try:
            return self.queue.dequeue()
        except QueueClosed:
            self.over = True
        try:
            error = self._errors.popleft()
        except IndexError:
            if self._failed and not self.stopped:
                raise failed_before("its workers have failed", self._where) from None
            return END
        raise error


def failed_before(what: str, where: str) -> FeedClosed:
    """Return the error of who asks for more behind the error that ended a run."""
    return FeedClosed(f"{what}; the error was raised before", where=where, fix="stop() it and start() again")
