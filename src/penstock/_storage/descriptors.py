"""A bounded number of open files, shared by threads that read."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

__all__ = ["Descriptors", "most_open"]

_MOST, _LEAST, _SHARE = 128, 4, 8


def most_open() -> int:
    """Return how many files one storage may keep open: an eighth of what the process may, 128 at most."""
    try:
        import resource
    except ImportError:
        return _MOST
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _MOST if soft == resource.RLIM_INFINITY else max(_LEAST, min(_MOST, soft // _SHARE))


class Descriptors:
    """Keeps files open between reads, at most so many, and closes none that a read may be using.

    A descriptor that is closed under a reader may be another file's a moment later. So a read holds a ticket while it uses descriptors;
    what is taken out is closed when no ticket from before is left. From any thread.

    Args:
        num_files: they are numbered from 0.
        capacity: how many are kept.
    """

    def __init__(self, num_files: int, capacity: int) -> None:
        self.capacity = capacity
        self._of_file = np.full(num_files, -1, np.int64)
        self._open: dict[int, int] = {}  # the longest open first
        self._retired: list[tuple[int, int]] = []
        self._tickets: set[int] = set()
        self._next = 0
        self._lock = threading.Lock()

    def enter(self, files: NDArray[np.int64]) -> tuple[int, NDArray[np.int64]]:
        """Begin to read files; return a ticket, and the descriptor of each, -1 where it is not open."""
        with self._lock:
            ticket = self._next
            self._next += 1
            self._tickets.add(ticket)
            return ticket, self._of_file.take(files, mode="clip")

    def leave(self, ticket: int, opened: Iterable[list[int]] = ()) -> None:
        """End a read; keep what it opened, (file, descriptor) each, where there is room. The longest open ones make room."""
        with self._lock:
            self._tickets.discard(ticket)
            for file, descriptor in opened:
                if file in self._open:
                    os.close(descriptor)  # another thread was faster; nobody else knows this one
                    continue
                if len(self._open) >= self.capacity:
                    self._retire(next(iter(self._open)))
                self._open[file] = descriptor
                self._of_file[file] = descriptor
            if self._retired:
                self._close_retired()

    def forget(self, file: int | None = None) -> None:
        """Close a file, or all, as soon as nobody reads it."""
        with self._lock:
            for one in list(self._open) if file is None else [file] if file in self._open else []:
                self._retire(one)
            self._close_retired()

    def _retire(self, file: int) -> None:
        self._retired.append((self._next, self._open.pop(file)))
        self._of_file[file] = -1

    def _close_retired(self) -> None:
        oldest = min(self._tickets, default=self._next)
        left: list[tuple[int, int]] = []
        for since, descriptor in self._retired:
            if since <= oldest:
                os.close(descriptor)
            else:
                left.append((since, descriptor))
        self._retired = left

    def __len__(self) -> int:
        return len(self._open) + len(self._retired)

    def __del__(self) -> None:
        for descriptor in (*self._open.values(), *(descriptor for _, descriptor in self._retired)):
            os.close(descriptor)
