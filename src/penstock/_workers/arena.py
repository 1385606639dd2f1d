"""Memory that a parent and its children map: one sparse memory file without a name, out of which buffers are allocated."""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import pickle
import threading
import weakref
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from io import BytesIO
from typing import Any

import numpy as np
from numpy.typing import NDArray

from penstock._contracts.frameworks import Pin
from penstock._workers.inbox import mapped
from penstock._workers.outbox import anonymous_file, rounded_up
from penstock._workers.sending import SendingPickler
from penstock.errors import PlanError

_MOST_BYTES, _LEAST_BYTES = 1 << 45, 1 << 32
_SHARE = 32
"""The file has so many times the bytes of the machine's memory: addresses only. Free ones are used again for buffers of about the same size
alone, and each size needs as many as there ever were at a time."""
_KEEP_BYTES = 256 << 20
"""So many free bytes keep their pages, as many as a feed may hold: to have them from the kernel again costs as much as filling them."""
_HUGE_PAGE = 2 << 20


class Arena:
    """The parent's side: allocates buffers, from any thread. A buffer is free again when nothing refers to it. It begins at address `base`.

    Nothing is left of it when all processes are killed, for the file has no name. It does not lie in /dev/shm.
    """

    def __init__(self, pin: Pin | None = None) -> None:
        """Make an empty one; it takes a descriptor and addresses, and no memory. Buffers are pinned with `pin` while they have their pages.

        Raises:
            OSError: the system has no descriptor, or no addresses, left.
        """
        self.fd = anonymous_file()
        try:
            self._memory, self.num_bytes = _mapped(self.fd)
        except BaseException:
            os.close(self.fd)
            raise
        self.base = _address_of(np.frombuffer(self._memory, np.uint8, 1))
        self._lock = threading.Lock()
        self._end = 0
        self._free: defaultdict[int, list[tuple[int, bool]]] = defaultdict(list)  # by size: offsets, and whether they have their pages
        self._warm_bytes = 0
        self._buffers: dict[int, tuple[weakref.ref[Any], int]] = {}
        self._returned: deque[int] = deque()
        self._pin, self._unpin = pin, dict[int, Callable[[], object]]()  # by offset

    def allocate(self, num_bytes: int) -> Any:
        """Return a writable buffer of at least `num_bytes`, which are there: a write cannot fail.

        Raises:
            OSError: the system has not so much memory.
            PlanError: there are not so many addresses.
        """
        size = rounded_up(num_bytes)
        with self._lock:
            self._take_returned()
            offset, warm = self._free[size].pop() if self._free[size] else (self._end, False)
            if offset + size > self.num_bytes:
                raise PlanError(
                    f"{self.num_bytes} bytes of shared memory are in use, or were once, and {size} more are needed",
                    where='executor="processes"',
                    fix="make batches of fewer different sizes, or raise the limit of addresses (`ulimit -v`)",
                )
            self._end = max(self._end, offset + size)
            self._warm_bytes -= size * warm
        if not warm:
            self._reserve(offset, size)
        buffer = (ctypes.c_char * size).from_buffer(self._memory, offset)  # an array of NumPy would not be the base of views of it
        self._buffers[offset] = weakref.ref(buffer, lambda _: self._returned.append(offset)), size
        return buffer

    def _reserve(self, offset: int, size: int) -> None:
        if size >= _HUGE_PAGE and hasattr(mmap, "MADV_HUGEPAGE"):
            with contextlib.suppress(OSError):  # of a kernel that has none for shared memory
                self._memory.madvise(mmap.MADV_HUGEPAGE, offset, size)
        try:
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(self.fd, offset, size)
        except OSError as error:
            with self._lock:
                self._free[size].append((offset, False))
            error.add_note(
                f"penstock: making {size} bytes of shared memory for a batch: smaller batches, or a smaller memory_bytes, need less"
            )
            raise
        if self._pin:
            self._unpin[offset] = self._pin(self.base + offset, size)

    def _take_returned(self) -> None:
        while self._returned:
            offset = self._returned.popleft()
            _, size = self._buffers.pop(offset)
            warm = self._warm_bytes + size <= _KEEP_BYTES
            if warm:
                self._warm_bytes += size
            elif hasattr(mmap, "MADV_REMOVE"):
                self._unpin.pop(offset, int)()
                self._memory.madvise(mmap.MADV_REMOVE, offset, size)
            self._free[size].append((offset, warm))

    def offset_of(self, array: NDArray[Any]) -> int | None:
        """Return where an array begins in the file, or None for one that lies elsewhere."""
        offset = _address_of(array) - self.base
        return offset if 0 <= offset < self.num_bytes else None

    def dumps(self, value: object) -> bytes:
        """Pickle an object; of its arrays that lie in the file, only where."""

        class ArenaPickler(SendingPickler):
            def persistent_id(_, value: Any) -> Any:  # noqa: N805
                if type(value) is not np.ndarray or value.dtype.hasobject:
                    return None
                offset = self.offset_of(value)
                return None if offset is None else (offset, value.shape, value.strides, value.dtype)

        file = BytesIO()
        ArenaPickler(file).dump(value)
        return file.getvalue()

    def close(self) -> None:
        """Close the descriptor, and end the pinning. Arrays that are still referred to keep their memory."""
        while self._unpin:
            self._unpin.popitem()[1]()
        os.close(self.fd)


class ArenaView:
    """A child's side of an arena."""

    def __init__(self, fd: int, num_bytes: int) -> None:
        """Map the file and close its descriptor."""
        self._memory = mapped(fd, num_bytes)

    def array(self, offset: int, shape: Sequence[int], dtype: np.dtype[Any]) -> NDArray[Any]:
        """Return the array that the parent has at `offset`."""
        return np.ndarray(shape, dtype, self._memory, offset)

    def loads(self, data: bytes) -> Any:
        """Read what `Arena.dumps` of the parent has pickled; its arrays are copies."""
        return _Unpickler(BytesIO(data), self._memory).load()


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: BytesIO, memory: mmap.mmap) -> None:
        super().__init__(file)
        self._memory = memory

    def persistent_load(self, where: Any) -> NDArray[Any]:
        offset, shape, strides, dtype = where
        return np.ndarray(shape, dtype, self._memory, offset, strides).copy()


def _address_of(array: NDArray[Any]) -> int:
    return int(array.__array_interface__["data"][0])


def _mapped(fd: int) -> tuple[mmap.mmap, int]:
    """Give the file its length and map it: less of it where a limit of addresses (`ulimit -v`) does not allow as much."""
    size = min(_MOST_BYTES, _SHARE * os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    while True:
        try:
            os.ftruncate(fd, size)
            memory = mmap.mmap(fd, size)
        except (OSError, ValueError):
            if size <= _LEAST_BYTES:
                raise
            size //= 4
            continue
        if hasattr(mmap, "MADV_DONTDUMP"):
            memory.madvise(mmap.MADV_DONTDUMP)
        return memory, size
