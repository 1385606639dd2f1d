"""Reusable batch buffers, given back by the last array that lies over them."""

from __future__ import annotations

import contextlib
import errno
import mmap
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["KEEP_BYTES", "Lease", "SlotPool", "anonymous_memory"]

_ALIGNMENT = 64  # one cache line; also what device_put needs to take memory as it is
_PAGE = 4096
_SMALL = 1 << 16  # bytes that are allocated in 4 us
_HUGE_PAGE = 2 << 20
_KEEP = 2
_KEEP_SMALL, KEEP_BYTES = 16, 64 << 20
"""So many free buffers are kept where they are so many bytes at most: they come back several at once, and to fault fresh pages in costs as
much as filling them."""


def anonymous_memory(num_bytes: int) -> Any:
    """Return `num_bytes` of private memory from the kernel, in huge pages where that is allowed, every page touched.

    A fresh page costs a fault at its first write: 0.25 us each, and two threads that fault do not scale.
    """
    private = getattr(mmap, "MAP_PRIVATE", 0) | getattr(mmap, "MAP_ANONYMOUS", 0)
    try:
        memory = mmap.mmap(-1, num_bytes, flags=private) if private else mmap.mmap(-1, num_bytes)
    except OSError as error:
        if error.errno != errno.ENOMEM:
            raise
        return np.empty(num_bytes, np.uint8)  # finds no room either, and says so as it should be said: MemoryError, with the size
    if num_bytes >= _HUGE_PAGE and hasattr(mmap, "MADV_HUGEPAGE"):
        with contextlib.suppress(OSError):  # of a kernel that has none
            memory.madvise(mmap.MADV_HUGEPAGE)
    np.frombuffer(memory, np.uint8)[::_PAGE] = 0
    return memory


class Lease:
    """The right to one buffer. Arrays made over it hold it through their base; when the last one is gone, the pool's weak reference tells.

    There is no `__del__`: an exception in one is lost, and Ctrl-C is an exception.
    """

    __slots__ = ("__weakref__", "_view")

    def __init__(self, buffer: Any) -> None:
        self._view = np.frombuffer(buffer, np.uint8)

    @property
    def __array_interface__(self) -> dict[str, Any]:
        return {"shape": self._view.shape, "typestr": "|u1", "data": (self._view.ctypes.data, False), "version": 3}

    def __len__(self) -> int:
        """Return the size of the buffer."""
        return len(self._view)

    def arrays(self, leaves: Sequence[tuple[tuple[int, ...], np.dtype[Any]]]) -> list[NDArray[Any]]:
        """Return arrays of the given shapes and dtypes, one behind the other, aligned."""
        whole = np.asarray(self)
        out, start = [], 0
        for (shape, dtype), size in zip(leaves, _sizes(leaves), strict=True):
            out.append(whole[start : start + size].view(dtype).reshape(shape))
            start += _aligned(size)
        return out


class _Watch(weakref.ref[Lease]):
    """A weak reference that knows the buffer of its lease."""

    __slots__ = ("buffer", "wake")

    buffer: Any
    wake: Any


class SlotPool:
    """Buffers to be leased again. `lease` may be called from any thread; buffers come back from any thread, in finalisers.

    The pool keeps a few free buffers, and none that is too small for what is asked. Free ones were leased at some time: it never has more
    memory than was once leased at the same time.
    """

    __slots__ = ("_allocate", "_free", "_out", "_returned", "_wake")

    def __init__(self, allocate: Callable[[int], Any], wake: Callable[[Any], object] | None = None) -> None:
        """Make an empty pool.

        Args:
            allocate: returns a writable buffer of so many bytes; who owns the memory is its business.
            wake: a C function of one argument, called when a buffer comes back (`ParkingLot.bell`); nobody by default.
        """
        self._allocate = allocate
        self._wake = wake
        self._free: deque[Any] = deque()
        self._out: dict[int, _Watch] = {}
        self._returned: deque[_Watch] = deque()

    def lease(self, leaves: Sequence[tuple[tuple[int, ...], np.dtype[Any]]]) -> Lease:
        """Lease a buffer for arrays of the given shapes, the one that was given back last if it is large enough."""
        num_bytes = max(1, sum(_aligned(size) for size in _sizes(leaves)))
        buffer = self._fitting(num_bytes)
        if buffer is None:
            buffer = self._allocate(num_bytes)
        lease = Lease(buffer)
        # The last reference made is called first: the buffer is back before somebody is woken for it.
        wake = None if self._wake is None else weakref.ref(lease, self._wake)
        watch = _Watch(lease, self._returned.append)
        watch.buffer, watch.wake = buffer, wake
        self._out[id(watch)] = watch
        return lease

    def adopt(self, buffers: Iterable[Any]) -> None:
        """Take buffers of another pool, which has no lease on them."""
        self._free.extend(buffers)

    def close(self) -> list[Any]:
        """Return the free buffers and forget them; those still leased are dropped when nobody uses them any more."""
        self.take_returned()
        self._out.clear()
        free = [self._free.pop() for _ in range(len(self._free))]
        self._returned.clear()
        return free

    @property
    def num_returned(self) -> int:
        """How many buffers came back since `take_returned`."""
        return len(self._returned)

    def take_returned(self) -> int:
        """Book the buffers that came back since the last call and return how many there are. One caller at a time."""
        count = 0
        while self._returned:
            watch = self._returned.popleft()
            self._out.pop(id(watch), None)
            num_free = len(self._free)
            if num_free < _KEEP or (num_free < _KEEP_SMALL and sum(map(len, self._free)) + len(watch.buffer) <= KEEP_BYTES):
                self._free.append(watch.buffer)
            count += 1
        return count

    def _fitting(self, num_bytes: int) -> Any:
        while True:
            try:
                buffer = self._free.pop()
            except IndexError:
                return None
            if num_bytes <= len(buffer) <= 4 * max(num_bytes, _SMALL):
                return buffer


def _sizes(leaves: Sequence[tuple[tuple[int, ...], np.dtype[Any]]]) -> list[int]:
    out = []
    for shape, dtype in leaves:
        size = dtype.itemsize
        for length in shape:
            size *= length
        out.append(size)
    return out


def _aligned(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT
