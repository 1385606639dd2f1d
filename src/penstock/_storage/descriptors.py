"""A bounded number of open files, shared by threads that read."""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from penstock._contracts.forking import OwnLocks
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
    what is taken out is closed when no ticket from before is left. At most as many wait for that as are kept: a slow read lets no more pile
    up. From any thread; a forked process has the files that were open, and none of the reads.

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
        self._locks = OwnLocks()
        # No `__del__`: at the exit of the interpreter it may run behind the end of its module, whose names are all None by then.
        weakref.finalize(self, _close_all, self._open, self._retired, self._map_of_file, self._sizes).atexit = False

    def enter(self, files: NDArray[np.int64]) -> tuple[int, NDArray[np.int64], NDArray[np.int64] | None]:
        """Begin to read files; return a ticket, the descriptor of each, -1 where it is not open, and the address of its map or 0."""
        with self._locks.own():
            self._settle()
            ticket = self._next
            self._next += 1
            self._tickets.add(ticket)
            maps = None if self._sizes is None else self._map_of_file.take(files, mode="clip")
            return ticket, self._of_file.take(files, mode="clip"), maps

    def leave(self, ticket: int, opened: Iterable[list[int]] = ()) -> None:
        """End a read; keep what it opened, (file, descriptor) each, where there is room. The longest open ones make room."""
        with self._locks.own():
            self._settle()
            self._tickets.discard(ticket)
            self._close_retired()
            for file, descriptor in opened:
                is_full = len(self._open) >= self.capacity
                if file in self._open or (is_full and len(self._retired) >= self.capacity):
                    os.close(descriptor)  # another thread was faster, or nothing can make room; nobody else knows this one
                    continue
                if is_full:
                    self._retire(next(iter(self._open)))
                self._open[file] = descriptor
                self._of_file[file] = descriptor
                if self._sizes is not None:
                    self._map_of_file[file] = map_file(descriptor, int(self._sizes[file]))
            self._close_retired()

    def forget(self, file: int | None = None) -> None:
        """Close a file, or all, as soon as nobody reads it."""
        with self._locks.own():
            self._settle()
            for one in list(self._open) if file is None else [file] if file in self._open else []:
                self._retire(one)
            self._close_retired()

    def _settle(self) -> None:
        """In a forked process, forget the reads of the threads that are not there; what another thread was changing is made up again."""
        if not self._locks.is_new():
            return
        self._tickets.clear()
        kept = np.fromiter(self._open, np.int64, len(self._open))
        maps = self._map_of_file.take(kept) if self._sizes is not None else None
        self._of_file.fill(-1)
        self._map_of_file.fill(0)
        self._of_file[kept] = np.fromiter(self._open.values(), np.int64, len(kept))
        if maps is not None:
            self._map_of_file[kept] = maps
        self._close_retired()

    def _retire(self, file: int) -> None:
        self._retired.append(_Retired(self._next, self._open.pop(file), *_map_of(file, self._map_of_file, self._sizes)))
        self._of_file[file] = -1
        if self._sizes is not None:
            self._map_of_file[file] = 0

    def _close_retired(self) -> None:
        if not self._retired:
            return
        oldest = min(self._tickets, default=self._next)
        gone = [one for one in self._retired if one.since <= oldest]
        # Taken out first: a process that is forked in between must not close a number that may be another file's by then.
        self._retired[:] = [one for one in self._retired if one.since > oldest]
        for one in gone:
            one.close()

    def __len__(self) -> int:
        return len(self._open) + len(self._retired)


def _map_of(file: int, maps: NDArray[np.int64], sizes: NDArray[np.int64] | None) -> tuple[int, int]:
    return (0, 0) if sizes is None else (int(maps[file]), int(sizes[file]))


def _close_all(opened: dict[int, int], retired: list[_Retired], maps: NDArray[np.int64], sizes: NDArray[np.int64] | None) -> None:
    for file, descriptor in opened.items():
        _Retired(0, descriptor, *_map_of(file, maps, sizes)).close()
    for one in retired:
        one.close()
