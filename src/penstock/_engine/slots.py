"""Reusable batch buffers, given back by the last array that lies over them; and which delivered batches are still referred to."""

from __future__ import annotations

import contextlib
import errno
import mmap
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from sys import getrefcount
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

_ALIGNMENT = 64  # one cache line; also what device_put needs to take memory as it is
_PAGE = 4096
_SMALL = 1 << 16  # bytes that are allocated in 4 us
_HUGE_PAGE = 2 << 20
_KEEP = 2
_KEEP_SMALL, KEEP_BYTES = 16, 64 << 20
"""So many free buffers are kept where they are so many bytes at most: they come back several at once, and to fault fresh pages in costs as
much as filling them."""

_FEW = 16
"""So many hand-overs are followed before dead ones are dropped; and so many batches of one, each: 0.3 us."""


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

    Attributes:
        first: (epoch, index) of the first element that is written into it; None where that was not said.
    """

    __slots__ = ("__weakref__", "_base", "_num_arrays", "_view", "first")

    def __init__(self, buffer: Any) -> None:
        self._view = np.frombuffer(buffer, np.uint8)
        self._base: weakref.ref[NDArray[Any]] | None = None
        self._num_arrays = 1
        self.first: tuple[int, int] | None = None

    @property
    def __array_interface__(self) -> dict[str, Any]:
        return {"shape": self._view.shape, "typestr": "|u1", "data": (self._view.ctypes.data, False), "version": 3}

    def __len__(self) -> int:
        """Return the size of the buffer, or of what `arrays` took of it."""
        return len(self._view)

    def arrays(self, leaves: Sequence[tuple[tuple[int, ...], np.dtype[Any]]]) -> list[NDArray[Any]]:
        """Return arrays of the given shapes and dtypes, one behind the other, aligned. Their base ends behind the last."""
        sizes = _sizes(leaves)
        self._view = self._view[: sum(map(aligned, sizes))]
        whole = np.asarray(self)
        self._base, self._num_arrays = weakref.ref(whole), len(leaves)
        out, start = [], 0
        for (shape, dtype), size in zip(leaves, sizes, strict=True):
            out.append(whole[start : start + size].view(dtype).reshape(shape))
            start += aligned(size)
        return out

    def has_array_of(self, tree: Any) -> bool:
        """Tell whether an array of a tree lies in it."""
        if isinstance(tree, (dict, list, tuple)):
            return any(map(self.has_array_of, tree.values() if isinstance(tree, dict) else tree))
        return self._base is not None and isinstance(tree, np.ndarray) and tree.base is self._base()

    def num_in_use(self, num_batches: int) -> int:
        """Return how many of its batches are referred to. Each has as many arrays as the buffer, and all of them have one base."""
        whole = None if self._base is None else self._base()
        probe = object()  # as often referred to as `whole` by this function alone
        count = 0 if whole is None else getrefcount(whole) - getrefcount(probe)
        return min(num_batches, -(-count // self._num_arrays))


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

    def __init__(self, allocate: Callable[[int], Any], wake: Callable[[Any], object] | None = None) -> None:
        """Make an empty pool.

        Args:
            allocate: returns a writable buffer of so many bytes; who owns the memory is its business.
            wake: a C function of one argument, called when a buffer comes back (`ParkingLot.bell`); none by default.
        """
        self._allocate = allocate
        self._wake = wake
        self._free: deque[Any] = deque()
        self._out: dict[int, _Watch] = {}
        self._returned: deque[_Watch] = deque()

    def lease(self, leaves: Sequence[tuple[tuple[int, ...], np.dtype[Any]]]) -> Lease:
        """Lease a buffer for arrays of the given shapes, the one that was given back last if it is large enough."""
        num_bytes = max(1, sum(aligned(size) for size in _sizes(leaves)))
        buffer = self._fitting(num_bytes)
        if buffer is None:
            buffer = self._allocate(num_bytes)
        lease = Lease(buffer)
        # The last reference made is called first: the buffer is back before a thread is woken for it.
        wake = None if self._wake is None else weakref.ref(lease, self._wake)
        watch = _Watch(lease, self._returned.append)
        watch.buffer, watch.wake = buffer, wake
        self._out[id(watch)] = watch
        return lease

    def adopt(self, buffers: Iterable[Any]) -> None:
        """Take buffers of another pool, which has no lease on them."""
        self._free.extend(buffers)

    def close(self) -> list[Any]:
        """Return the free buffers and forget them; those still leased are dropped when they are no longer used."""
        self.take_returned()
        self._out.clear()
        free = [self._free.pop() for _ in range(len(self._free))]
        self._returned.clear()
        return free

    @property
    def num_returned(self) -> int:
        """How many buffers came back since `take_returned`."""
        return len(self._returned)

    @property
    def num_bytes(self) -> int:
        """The bytes of all its buffers, free and leased. Without the lock of those who lease."""
        return sum(map(len, list(self._free))) + sum(len(watch.buffer) for watch in list(self._out.values()))

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


def bytes_beside(lease: weakref.ref[Lease] | None, num_bytes: int) -> int:
    """Return how much of `num_bytes` lies outside of the buffer that a part was written into."""
    held = None if lease is None else lease()
    return num_bytes if held is None else max(0, num_bytes - len(held))


class Kept(NamedTuple):
    """Batches that the consumer refers to.

    Attributes:
        num: how many, beside the last one.
        num_bytes: what they keep in memory: a buffer of several small batches whole, unless more of it is to be delivered.
        oldest: its step and its first element, in words.
        beside_bytes: of batches outside of buffers, the last one included.
    """

    num: int = 0
    num_bytes: int = 0
    oldest: str = ""
    beside_bytes: int = 0


class _Batches(NamedTuple):
    """Delivered batches.

    Attributes:
        step: of the first.
        num_batches: how many.
        ref: to their buffer; or to an array of the only one, which lies elsewhere.
        beside_bytes: of all of them, outside of the buffer.
        arrays: an array of each, of a few in one buffer.
    """

    step: int
    num_batches: int
    ref: weakref.ref[Any]
    beside_bytes: int
    arrays: tuple[weakref.ref[Any], ...] = ()


class HandedOver:
    """Delivered batches that the consumer may still refer to. Weak references only, at most twice as many as there are such batches.

    Attributes:
        step: how many items were handed over; who resumes begins further on.
    """

    def __init__(self) -> None:
        self.step = 0
        self._alive: list[_Batches] = []
        self._num_alive = 0
        self._most = _FEW
        self._single_elements = 1, 0  # single elements: how many of them the last hand-over had, and their bytes

    def add(self, items: Sequence[Any], num_bytes: int, lease: weakref.ref[Lease] | None, *, batches: bool) -> bool:
        """Note what is handed over next, in 1 us; return whether it is time to look whether many are kept.

        Args:
            items: what is delivered, the last one first.
            num_bytes: of all of them.
            lease: of the buffer that their rows were written into, perhaps.
            batches: whether they are batches; single elements outside of buffers are not followed.
        """
        first, self.step, held = self.step + 1, self.step + len(items), None if lease is None else lease()
        self._single_elements = 1, 0
        if lease is not None and held is not None and items and held.has_array_of(items[-1]):
            arrays = map(_array_in, reversed(items)) if 1 < len(items) <= _FEW else ()
            some = tuple(weakref.ref(array) for array in arrays if array is not None)
            self._alive.append(_Batches(first, len(items), lease, max(0, num_bytes - len(held)), some))
        elif batches:
            for number, item in enumerate(reversed(items)):
                array = _array_in(item)
                if array is not None:
                    self._alive.append(_Batches(first + number, 1, weakref.ref(array), num_bytes // len(items)))
        else:
            self._single_elements = max(1, len(items)), num_bytes
            return False
        self._num_alive += len(items)
        if self._num_alive < self._most:
            return False
        self._alive = [one for one in self._alive if one.ref() is not None]
        self._num_alive = sum(one.num_batches for one in self._alive)
        self._most = max(_FEW, 2 * self._num_alive)
        return True

    def kept(self, step: int) -> Kept:
        """Return what the consumer refers to that has taken `step` items. From any thread."""
        (count, loose_bytes), num, num_bytes, oldest = self._single_elements, 0, 0, ""
        beside_bytes = loose_bytes * min(count, self.step - step + 1) // count  # what is to be delivered, and the last one
        for one in list(self._alive):
            held = one.ref()
            if held is None:
                continue
            size = one.beside_bytes + (len(held) if isinstance(held, Lease) else 0)
            beside_bytes += one.beside_bytes
            last = one.step + one.num_batches - 1
            count = held.num_in_use(one.num_batches) if isinstance(held, Lease) else 1
            count -= max(0, min(one.num_batches, last - step)) + (one.step <= step <= last)  # to be delivered, and the last one
            if count > 0:
                num += count
                num_bytes += size if last < step else size * count // one.num_batches
                oldest = oldest or _words(one, held)
        return Kept(num, num_bytes, oldest, beside_bytes)


def _words(one: _Batches, held: Any) -> str:
    number = next((number for number, array in enumerate(one.arrays) if array() is not None), 0 if one.num_batches == 1 else None)
    steps = f"of steps {one.step} to {one.step + one.num_batches - 1}" if number is None else f"of step {one.step + number}"
    first = held.first if isinstance(held, Lease) and not number else None
    return steps if first is None else f"{steps} (first element {first[1]} of epoch {first[0]})"


def _array_in(item: Any) -> Any:
    """Return the first array or tensor in a batch that can be referred to weakly; None where there is none."""
    if isinstance(item, (dict, list, tuple)):
        found = map(_array_in, item.values() if isinstance(item, dict) else item)
        return next((array for array in found if array is not None), None)
    return item if hasattr(item, "nbytes") and type(item).__weakrefoffset__ else None


def _sizes(leaves: Sequence[tuple[tuple[int, ...], np.dtype[Any]]]) -> list[int]:
    out = []
    for shape, dtype in leaves:
        size = dtype.itemsize
        for length in shape:
            size *= length
        out.append(size)
    return out


def aligned(size: int) -> int:
    """Return the next multiple of a cache line."""
    return -(-size // _ALIGNMENT) * _ALIGNMENT
