"""Reusable batch buffers, given back by the last array that lies over them."""

from __future__ import annotations

import mmap
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Lease", "SlotPool", "anonymous_memory"]

_ALIGNMENT = 64  # one cache line; also what device_put needs to take memory as it is
_PAGE = 4096
_HUGE_PAGE = 2 << 20
_KEEP = 2


def anonymous_memory(num_bytes: int) -> Any:
    """Return `num_bytes` of private memory from the kernel, in huge pages where that is allowed, every page touched.

    A fresh page costs a fault at its first write: 0.25 us each, and two threads that fault do not scale.
    """
    private = getattr(mmap, "MAP_PRIVATE", 0) | getattr(mmap, "MAP_ANONYMOUS", 0)
    memory = mmap.mmap(-1, num_bytes, flags=private) if private else mmap.mmap(-1, num_bytes)
    if num_bytes >= _HUGE_PAGE and hasattr(mmap, "MADV_HUGEPAGE"):
        memory.madvise(mmap.MADV_HUGEPAGE)
    np.frombuffer(memory, np.uint8)[::_PAGE] = 0
    return memory


class Lease:
    """The right to one buffer. Arrays made over it hold it through their base; when the last one is gone the buffer goes back."""

    __slots__ = ("_buffer", "_give_back", "_view")

    def __init__(self, buffer: Any, give_back: Callable[[Any], None]) -> None:
        self._buffer = buffer
        self._give_back = give_back
        self._view = np.frombuffer(buffer, np.uint8)

    @property
    def __array_interface__(self) -> dict[str, Any]:
        return {"shape": self._view.shape, "typestr": "|u1", "data": (self._view.ctypes.data, False), "version": 3}

    def arrays(self, leaves: Sequence[tuple[tuple[int, ...], np.dtype[Any]]]) -> list[NDArray[Any]]:
        """Return arrays of the given shapes and dtypes, one behind the other, aligned."""
        whole = np.asarray(self)
        out, start = [], 0
        for (shape, dtype), size in zip(leaves, _sizes(leaves), strict=True):
            out.append(whole[start : start + size].view(dtype).reshape(shape))
            start += _aligned(size)
        return out

    def __del__(self) -> None:
        give_back = getattr(self, "_give_back", None)
        if give_back is not None:  # Ctrl-C may come before __init__ has done anything
            give_back(self._buffer)


class SlotPool:
    """Buffers to be leased again. `lease` may be called from any thread; buffers come back from any thread, in finalisers.

    The pool keeps at most two free buffers, and none that is too small for what is asked.
    """

    __slots__ = ("_allocate", "_closed", "_free", "_returned", "_ring")

    def __init__(self, allocate: Callable[[int], Any], ring: Callable[[], object]) -> None:
        """Make an empty pool.

        Args:
            allocate: returns a writable buffer of so many bytes; who owns the memory is its business.
            ring: called after a buffer came back; must be safe inside a finaliser.
        """
        self._allocate = allocate
        self._ring = ring
        self._free: deque[Any] = deque()
        self._closed = False
        self._returned: deque[None] = deque()

    def lease(self, leaves: Sequence[tuple[tuple[int, ...], np.dtype[Any]]]) -> Lease:
        """Lease a buffer for arrays of the given shapes, the one that was given back last if it is large enough."""
        num_bytes = max(1, sum(_aligned(size) for size in _sizes(leaves)))
        while True:
            try:
                buffer = self._free.pop()
            except IndexError:
                return Lease(self._allocate(num_bytes), self._give_back)
            if len(buffer) >= num_bytes and len(buffer) <= 4 * max(num_bytes, _HUGE_PAGE):
                return Lease(buffer, self._give_back)

    def close(self) -> None:
        """Drop the free buffers; those still leased are dropped when they come back."""
        self._closed = True
        self._ring = _nobody  # a batch that outlives its feed must not keep the engine alive
        self._free.clear()

    @property
    def num_returned(self) -> int:
        """How many buffers came back since `take_returned`."""
        return len(self._returned)

    def take_returned(self) -> int:
        """Return how many buffers came back since the last call. One caller at a time."""
        count = 0
        while self._returned:
            self._returned.popleft()
            count += 1
        return count

    def _give_back(self, buffer: Any) -> None:
        if not self._closed and len(self._free) < _KEEP:
            self._free.append(buffer)
        self._returned.append(None)
        self._ring()


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


def _nobody() -> None:
    """Ring nobody."""
