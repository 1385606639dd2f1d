"""The store of a queue, the lines of calls that wait for it, and the rule of which is served next.

Pure: no thread, no clock, no lock; the queue's mutex guards it. An attempt at the head of its line cannot be served, or it would have been;
the call that makes its wish possible serves it, and those behind it, in order. No later call can take what the first in line waits for.

An asynchronous exception (Ctrl-C) may arrive when a C function returns, when a Python function begins and when a loop goes round, and
nowhere else. So each step here that changes something ends with the call that does it: an entry is in the store or with the caller, never
in neither. An exception between two steps leaves everything whole: the thread that it hit calls `serve` again.
"""

from __future__ import annotations

import heapq
import random
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

WAITING, SERVED, ENDED, LEFT = range(4)
"""States of an attempt; ENDED means that the queue was closed before it could be served."""


class Store(Protocol):
    """A bag of entries with a rule for what comes next. Not thread-safe: the queue's mutex guards it."""

    @property
    def add(self) -> Callable[[Any], None]:
        """Take an entry in. A C function, so that nothing can come between the call and the deed."""

    @property
    def put_back(self) -> Callable[[Any], None]:
        """Take an entry in that was given out; of several the last one given out comes back first. A C function too."""

    def take(self) -> Any:
        """Give the next entry out; the store is not empty."""

    def __len__(self) -> int: ...

    def __getitem__(self, number: Any, /) -> Any:
        """Look at an entry; nothing is said of their order."""


class FifoStore(deque[Any]):
    """First in, first out."""

    __slots__ = ()

    add = deque.append
    put_back = deque.appendleft

    def take(self) -> Any:
        """Give the oldest entry out."""
        entry = self[0]
        del self[0]
        return entry


class RandomStore(list[Any]):
    """Each entry is as likely to come next as any other.

    Args:
        seed: the same seed and the same calls give the same order; None takes one from the system.
    """

    __slots__ = ("_random",)

    add = list.append
    put_back = list.append

    def __init__(self, seed: int | None) -> None:
        super().__init__()
        self._random = random.Random(seed).random

    def take(self) -> Any:
        """Give any entry out."""
        index = int(self._random() * len(self))
        entry = self[index]
        self[index] = self[-1]
        del self[-1]
        return entry


class PriorityStore:
    """The smallest entry comes first. Entries are (priority, serial number, element), so that equal ones keep their order."""

    __slots__ = ("_heap", "add", "put_back")

    def __init__(self) -> None:
        self._heap: list[Any] = []
        self.add: Callable[[Any], None] = partial(heapq.heappush, self._heap)
        self.put_back = self.add

    def take(self) -> Any:
        """Give the smallest entry out."""
        heap = self._heap
        entry = heap[0]
        try:
            heapq.heappop(heap)
        except BaseException:  # it comes after the deed, and the entry would be lost
            self.add(entry)
            raise
        return entry

    def __len__(self) -> int:
        return len(self._heap)

    def __getitem__(self, number: int) -> Any:
        return self._heap[number]


class Attempt:
    """One call that may have to wait.

    Attributes:
        state: WAITING until it is decided.
        bell: a C function of one argument that wakes who waits for it; None while nobody does.
        seat: where it waits; the business of who waits.
    """

    __slots__ = ("bell", "seat", "state")

    state: int
    bell: Callable[[Any], None] | None
    seat: Any


class Reading(Attempt):
    """Wants `want` entries.

    Attributes:
        whole: whether fewer will not do when the queue is closed.
        entries: what it has got; all of it once it is SERVED.
        num_left: how many there were when it ENDED.
    """

    __slots__ = ("entries", "num_left", "want", "whole")

    def __init__(self, want: int, whole: bool) -> None:
        self.state, self.bell = WAITING, None
        self.want, self.whole = want, whole
        self.entries: list[Any] = []
        self.num_left = 0


class Writing(Attempt):
    """Has entries to add, of which `num_done` are in."""

    __slots__ = ("entries", "num_done")

    def __init__(self, entries: list[Any]) -> None:
        self.state, self.bell = WAITING, None
        self.entries = entries
        self.num_done = 0


class Exchange:
    """The lines of those who read and of those who write.

    Attributes:
        room: entries that may stand in the store for one to be added; 0 once closed.
        margin: entries that a read must leave in.
    """

    def __init__(self, store: Store, capacity: int, margin: int = 0) -> None:
        self.store, self.capacity, self.room, self.margin = store, capacity, capacity, margin
        self.closed = False
        self.readers: deque[Reading] = deque()
        self.writers: deque[Writing] = deque()

    def read(self, attempt: Reading) -> None:
        """Line an attempt up, and serve whom it can be served."""
        self.readers.append(attempt)
        if self.closed or len(self.store) > self.margin:
            self.serve()

    def write(self, attempt: Writing) -> None:
        """Line an attempt up, and serve whom it can be served; a closed queue takes nothing more."""
        if self.closed:
            attempt.state = ENDED
            return
        if not attempt.entries:
            attempt.state = SERVED
            return
        self.writers.append(attempt)
        if len(self.store) < self.capacity:
            self.serve()

    def withdraw(self, attempt: Attempt) -> None:
        """Take an attempt out of its line, and give what it had gathered back. Nothing happens to one that is decided."""
        self.serve()  # what an interrupted thread left half done
        if attempt.state != WAITING:
            return
        line: deque[Any] = self.readers if isinstance(attempt, Reading) else self.writers
        if attempt in line:  # else it was interrupted before it stood there
            attempt.state = LEFT
            line.remove(attempt)
        if isinstance(attempt, Reading):
            self.give_back(attempt)
        self.serve()

    def give_back(self, attempt: Reading) -> None:
        """Put what a reader has back to where it was, the last one first."""
        entries, store = attempt.entries, self.store
        while entries:
            entry = entries[-1]
            del entries[-1]
            store.put_back(entry)

    def close(self, cancel: bool) -> None:
        """Take no new writers; with `cancel` end those in line too."""
        self.closed = True
        self.room = self.margin = 0
        while cancel and self.writers:
            self._decide(self.writers, ENDED)
        self.serve()

    def serve(self) -> None:
        """Serve everybody who can be served."""
        while self._serve_writers() or self._serve_readers():
            pass

    def _serve_writers(self) -> bool:
        """Fill the store from the line; return whether anything went in."""
        store, writers, moved = self.store, self.writers, False
        while writers:
            attempt = writers[0]
            entries = attempt.entries
            while attempt.num_done < len(entries):
                if len(store) >= self.capacity:
                    return moved
                entry = entries[attempt.num_done]
                attempt.num_done += 1
                store.add(entry)
                moved = True
            self._decide(writers, SERVED)
        return moved

    def _serve_readers(self) -> bool:
        """Give to the line; return whether anything was taken, so that there may be room."""
        store, readers, moved = self.store, self.readers, False
        while readers:
            attempt = readers[0]
            entries = attempt.entries
            available = max(0, len(store) - self.margin)
            missing = attempt.want - len(entries)
            if available < missing:
                if self.closed and not self.writers:
                    if attempt.whole or len(entries) + available == 0:
                        attempt.num_left = len(entries) + available
                        self.give_back(attempt)
                        self._decide(readers, ENDED)
                        continue
                    attempt.want = len(entries) + available
                elif len(store) < self.capacity or available == 0:
                    return moved
                missing = available  # of a full queue: nobody could add what is missing, so it takes what there is
            for _ in range(missing):
                entries.append(store.take())
                moved = True
            if len(entries) == attempt.want:
                self._decide(readers, SERVED)
        return moved

    def _decide(self, line: deque[Any], state: int) -> None:
        attempt = line[0]
        del line[0]
        attempt.state = state
        if attempt.bell is not None:
            attempt.bell(None)
