"""Workers as threads that share one iterator; and no worker at all."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from penstock._contracts.event import Fill
from penstock._engine.error_policy import is_interrupt
from penstock._processes.failure import fit_to_raise
from penstock.enqueuer.given import Given
from penstock.enqueuer.handing import END, Events, Handing, HandingRun, failed_before
from penstock.errors import EnqueueCancelled, StillRunning
from penstock.queues.standing import where_stand

__all__ = ["InThreads", "Inline"]

_GRACE_S = 30.0


class InThreads(HandingRun):
    """Threads that take turns at one iterator: a generator runs in one thread at a time, so the items come in its order.

    Args:
        given: what to feed from.
        workers: how many threads.
        max_queue_size: items that may wait.
        name: for threads and errors.
        thread_safe: whether `next()` may be called by several threads at once; then there is no guard, and no order.
        patience_s: when a warning says that no item comes.
        events: announces the items.
    """

    def __init__(
        self,
        given: Given,
        workers: int,
        max_queue_size: int,
        name: str,
        thread_safe: bool,
        patience_s: float = math.inf,
        events: Events | None = None,
    ) -> None:
        self.name = name
        self._ended = False
        self._num_none = 0
        self._given = given
        self._handing = Handing(max_queue_size, name, patience_s, self._say, events)
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
            self._feed(index)
        except EnqueueCancelled:  # stopped
            pass
        except BaseException as error:
            self._handing.end(fit_to_raise(error, f"{self.name}, thread {index}"), index)
        finally:
            self._leave()

    def _feed(self, index: int) -> None:
        handing, iterator = self._handing, self._iterator
        while True:
            with self._guard:
                if handing.queue.is_closed() or self._ended:
                    return
                begin = handing.events.begin()
                item = next(iterator, END)
                if item is END:
                    self._ended = True
                    self._given.note_end(iterator)
                    return
                if item is None:
                    self._num_none += 1
                else:
                    handing.put(index, handing.events.times(begin), item)
                del item

    def _say(self) -> tuple[str, str]:
        if self._num_none:
            return (
                f"its generator{self._given.words_of_place()} has yielded None {self._num_none} times, which is left out",
                "yield items that are not None",
            )
        places = [words for words in where_stand(self._threads).values() if ".py:" in words or "<" in words]
        at = f"is at {places[0]}" if places else f"{self._given.words_of_place()} is in native code"
        return f"its generator {at}", "look at that line; stop() from another thread ends the wait"

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
        events: announces the items.
    """

    def __init__(self, given: Given, name: str, events: Events | None = None) -> None:
        self.name = name
        self._events = Events(name) if events is None else events
        self._stopped = self._at_end = self._failed = False
        self._held: list[Any] = []  # the item that `size` has made to find out whether there is one
        self._given = given
        self._iterator: Iterator[Any] = given.open()
        self._guard = threading.Lock()

    @property
    def over(self) -> bool:
        """Whether nothing more can be taken."""
        return self._stopped or (self._at_end and not self._held)

    def take(self) -> Any:
        """Return the next item, or END."""
        begin_ns = time.perf_counter_ns()
        with self._guard:
            self._make()
            if self._stopped:
                return END
            found = error = key = None
            if self._held:
                found, error, key = self._held.pop()
            self._events.taken(begin_ns, 0, key)
            if key is not None or error is not None:
                try:
                    if error is not None:
                        raise error
                    return found
                finally:
                    del error, found  # or the error, its traceback and this frame would be a cycle
            if self._failed:
                raise failed_before("its generator has failed", self.name)
        return END

    def size(self) -> int:
        """Return 1 while there is an item, or an error to raise; it is made now."""
        with self._guard:
            self._make()
            return len(self._held)

    def fills(self) -> list[Fill]:
        """Return nothing: there is no queue."""
        return []

    def _make(self) -> None:
        """Make an item, if none is held and more may come."""
        while not (self._held or self._at_end or self._stopped):
            begin = self._events.begin()
            try:
                item = next(self._iterator, END)
            except BaseException as error:
                self._at_end = self._failed = True
                if is_interrupt(error):
                    raise
                self._held.append((None, fit_to_raise(error, f"{self.name}, in the caller's thread"), None))
                self._events.failed(0, error)
                return
            if item is END:
                self._at_end = True
                self._given.note_end(self._iterator)
            elif item is not None:
                self._held.append((item, None, self._events.made(0, self._events.times(begin), item)))

    def abandon(self) -> None:
        """Take no more."""
        self._stopped = True
        self._held.clear()

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
