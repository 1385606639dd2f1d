"""Workers as threads that share one iterator; and no worker at all."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from penstock._engine.failing import is_interrupt
from penstock._processes.failure import fit_to_raise
from penstock.enqueuer.given import Given
from penstock.enqueuer.handing import END, Handing, failed_before
from penstock.errors import EnqueueCancelled, StillRunning

__all__ = ["Inline", "Threads"]

_GRACE_S = 30.0


class Threads:
    """Threads that take turns at one iterator: a generator runs in one thread at a time, so the items come in its order.

    Args:
        given: what to feed from.
        workers: how many threads.
        max_queue_size: items that may wait.
        name: for threads and errors.
        thread_safe: whether `next()` may be called by several threads at once; then there is no guard, and no order.
    """

    def __init__(self, given: Given, workers: int, max_queue_size: int, name: str, thread_safe: bool) -> None:
        self.name = name
        self._ended = False
        self._given = given
        self._handing = Handing(max_queue_size, name)
        self._handing.queue.add_producer(self)
        self._iterator = given.open()
        # Held from `next` until the item is in the queue, so that no thread overtakes another in between.
        self._guard: AbstractContextManager[Any] = nullcontext() if thread_safe else threading.Lock()
        self._leaving = threading.Lock()
        self._num_working = workers
        self._threads = [
            threading.Thread(target=self._work, args=(index,), name=f"penstock-enqueuer-{index}", daemon=True) for index in range(workers)
        ]
        try:
            for thread in self._threads:
                thread.start()
        except BaseException:  # the system has no threads left
            self._handing.stop()
            raise

    @property
    def over(self) -> bool:
        """Whether nothing more can be taken."""
        return self._handing.over

    def threads(self) -> Sequence[threading.Thread]:
        """Return the threads, for the words of a wait that lasts too long."""
        return self._threads

    def take(self) -> Any:
        """Return the next item, or END."""
        return self._handing.take()

    def abandon(self) -> None:
        """Tell the threads to end."""
        self._handing.stop()

    def stop(self, timeout_s: float | None) -> None:
        """End the threads; each finishes the item that it is at.

        Raises:
            StillRunning: some did not within `timeout_s` (None: 30 s).
        """
        self._handing.stop()
        grace_s = _GRACE_S if timeout_s is None else timeout_s
        deadline = time.monotonic() + grace_s
        current = threading.current_thread()
        for thread in self._threads:
            if thread is not current:
                thread.join(max(0.0, deadline - time.monotonic()))
        names = [thread.name for thread in self._threads if thread.is_alive() and thread is not current]
        if names:
            raise StillRunning(
                f"{len(names)} thread(s) did not stop inside {grace_s:g} s: {', '.join(names)}",
                where=f"{self.name}.stop()",
                fix="the generator is still at an item; give it timeouts, or a longer timeout= to stop()",
            )

    def _work(self, index: int) -> None:
        try:
            self._feed()
        except EnqueueCancelled:  # stopped
            pass
        except BaseException as error:
            self._handing.end(fit_to_raise(error, f"{self.name}, thread {index}"))
        finally:
            self._leave()

    def _feed(self) -> None:
        handing, iterator = self._handing, self._iterator
        while True:
            with self._guard:
                if handing.queue.is_closed() or self._ended:
                    return
                item = next(iterator, END)
                if item is END:
                    self._ended = True
                    self._given.note_end(iterator)
                    return
                if item is not None:
                    handing.put(item)
                del item

    def _leave(self) -> None:
        """Count this thread out; the last one closes."""
        with self._leaving:
            self._num_working -= 1
            if self._num_working:
                return
        try:
            self._given.close(self._iterator)
        finally:
            self._handing.end()


class Inline:
    """No worker: the items are made in the thread that takes them, by one caller at a time.

    Args:
        given: what to feed from.
        name: for errors.
    """

    def __init__(self, given: Given, name: str) -> None:
        self.name = name
        self.over = False
        self._stopped = False
        self._failed = False
        self._given = given
        self._iterator: Iterator[Any] = given.open()
        self._guard = threading.Lock()

    def take(self) -> Any:
        """Return the next item, or END."""
        with self._guard:
            while not self.over:
                try:
                    item = next(self._iterator, END)
                except BaseException as error:
                    self.over = self._failed = True
                    if is_interrupt(error):
                        raise
                    raise fit_to_raise(error, f"{self.name}, in the caller's thread")  # noqa: B904
                if item is END:
                    self.over = True
                    self._given.note_end(self._iterator)
                elif item is not None:
                    return item
            if self._failed and not self._stopped:
                raise failed_before("its generator has failed", self.name)
        return END

    def abandon(self) -> None:
        """Take no more."""
        self.over = self._stopped = True

    def stop(self, timeout_s: float | None) -> None:
        """Take no more; close an iterator that was made here.

        Raises:
            StillRunning: another thread was still at an item after `timeout_s` (None: 30 s).
        """
        self.abandon()
        grace_s = _GRACE_S if timeout_s is None else timeout_s
        if not self._guard.acquire(timeout=grace_s):
            raise StillRunning(
                f"another thread did not end its item inside {grace_s:g} s",
                where=f"{self.name}.stop()",
                fix="the generator is still at an item; give it timeouts, or a longer timeout= to stop()",
            )
        try:
            self._given.close(self._iterator)
        finally:
            self._guard.release()
