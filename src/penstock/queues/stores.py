"""What a queue keeps its entries in, and which one comes next. Pure: no thread, no clock.

An asynchronous exception (Ctrl-C) may arrive when a C function returns, when a Python function begins and when a loop goes round, and
nowhere else. So each step here that changes something ends with the call that does it: an entry is in the store or with the caller, never
in neither.
"""

from __future__ import annotations

import heapq
import random
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

__all__ = ["FifoStore", "PriorityStore", "RandomStore", "Store"]


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
