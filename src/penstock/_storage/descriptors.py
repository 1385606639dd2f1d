"""A bounded number of open files, shared by threads that read."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from penstock.kernels.spans import map_file, unmap_file

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


class _Retired(NamedTuple):
    """An open file that no new read gets."""

    since: int
    descriptor: int
    address: int
    size: int

    def close(self) -> None:
        os.close(self.descriptor)
        if self.address:
            unmap_file(self.address, self.size)


class Descriptors:
    """Keeps files open between reads, at most so many, and closes none that a read may be using.

    A descriptor that is closed under a reader may be another file's a moment later. So a read holds a ticket while it uses descriptors;
    what is taken out is closed when no ticket from before is left. From any thread.

    Args:
        num_files: they are numbered from 0.
        capacity: how many are kept.
        sizes: int64 [num_files], for maps of the files that are kept; None for no maps.
    """

    def __init__(self, num_files: int, capacity: int, sizes: NDArray[np.int64] | None = None) -> None:
        self.capacity = capacity
        self._of_file = np.full(num_files, -1, np.int64)
        self._map_of_file = np.zeros(0 if sizes is None else num_files, np.int64)
        self._sizes = sizes
        self._open: dict[int, int] = {}  # the longest open first
        self._retired: list[_Retired] = []
        self._tickets: set[int] = set()
        self._next = 0
        self._lock = threading.Lock()

    def enter(self, files: NDArray[np.int64]) -> tuple[int, NDArray[np.int64], NDArray[np.int64] | None]:
        """Begin to read files; return a ticket, the descriptor of each, -1 where it is not open, and the address of its map or 0."""
        with self._lock:
            ticket = self._next
            self._next += 1
            self._tickets.add(ticket)
            maps = None if self._sizes is None else self._map_of_file.take(files, mode="clip")
            return ticket, self._of_file.take(files, mode="clip"), maps

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
                if self._sizes is not None:
                    self._map_of_file[file] = map_file(descriptor, int(self._sizes[file]))
            if self._retired:
                self._close_retired()

    def forget(self, file: int | None = None) -> None:
        """Close a file, or all, as soon as nobody reads it."""
        with self._lock:
            for one in list(self._open) if file is None else [file] if file in self._open else []:
                self._retire(one)
            self._close_retired()

    def _retire(self, file: int) -> None:
        self._retired.append(_Retired(self._next, self._open.pop(file), *self._map(file)))
        self._of_file[file] = -1
        if self._sizes is not None:
            self._map_of_file[file] = 0

    def _map(self, file: int) -> tuple[int, int]:
        return (0, 0) if self._sizes is None else (int(self._map_of_file[file]), int(self._sizes[file]))

    def _close_retired(self) -> None:
        oldest = min(self._tickets, default=self._next)
        left: list[_Retired] = []
        for one in self._retired:
            if one.since <= oldest:
                one.close()
            else:
                left.append(one)
        self._retired = left

    def __len__(self) -> int:
        return len(self._open) + len(self._retired)

    def __del__(self) -> None:
        for file, descriptor in self._open.items():
            _Retired(0, descriptor, *self._map(file)).close()
        for one in self._retired:
            one.close()
