"""The parent's side of shared memory: objects whose arrays are views of what a child wrote."""

from __future__ import annotations

import mmap
import os
import pickle
import weakref
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from penstock._engine.slots import Lease
from penstock._workers.outbox import Parcelled


class _Watch(weakref.ref[Lease]):
    """A weak reference that knows the number of its slot."""

    __slots__ = ("number",)

    number: int


class Leases:
    """Arrays over memory of another process. Each has a number, which `take_returned` gives when no view of it is left. From any thread."""

    def __init__(self) -> None:
        self._out: dict[int, _Watch] = {}
        self._returned: deque[_Watch] = deque()

    def __len__(self) -> int:
        """Return how many are out."""
        return len(self._out)

    def lease(self, memory: mmap.mmap, number: int) -> NDArray[Any]:
        """Return all bytes of a memory."""
        lease = Lease(memory)
        watch = _Watch(lease, self._returned.append)
        watch.number = number
        self._out[id(watch)] = watch
        return np.asarray(lease)

    def take_returned(self) -> list[int]:
        """Return the numbers of those without a view, once each."""
        numbers = []
        with suppress(IndexError):  # another thread takes them, too
            while True:
                watch = self._returned.popleft()
                self._out.pop(id(watch), None)
                numbers.append(watch.number)
        return numbers


class Inbox:
    """Opens what one child's `Outbox` sent. One thread at a time; arrays may die in any thread.

    Args:
        max_leased: how many slots the views of the parent may hold. Beyond it an object is copied out and its slot given back at once, so
            a consumer that keeps everything costs its own bytes, and no descriptor and no mapping.
    """

    def __init__(self, max_leased: int) -> None:
        self._max_leased = max_leased
        self._memories: dict[int, mmap.mmap] = {}
        self._leases = Leases()

    def open(self, parcelled: Parcelled, take_fd: Callable[[], int]) -> Any:
        """Return the object. Its arrays are writable views of the slot, 64-byte aligned, which goes back when the last one is gone.

        Args:
            parcelled: the message.
            take_fd: gives the descriptor that came with it.

        Raises:
            Exception: what the unpickling of a user's class raises.
        """
        for number in parcelled.dropped:
            self._memories.pop(number)
        if parcelled.slot is None:
            assert isinstance(parcelled.stream, bytes)
            return pickle.loads(parcelled.stream, buffers=parcelled.buffers)
        if parcelled.new_bytes:
            self._memories[parcelled.slot] = mapped(take_fd(), parcelled.new_bytes)
        assert isinstance(parcelled.stream, int)
        whole = self._leases.lease(self._memories[parcelled.slot], parcelled.slot)
        buffers = [whole[start : start + size] for start, size in parcelled.buffers]
        if len(self._leases) > self._max_leased:
            buffers = [_copied(buffer) for buffer in buffers]
        return pickle.loads(whole[: parcelled.stream].data, buffers=buffers)

    def take_returned(self) -> list[int]:
        """Return the numbers of the slots that nobody has views of since the last call: for `Outbox.given_back`."""
        return self._leases.take_returned()


def mapped(descriptor: int, size: int) -> mmap.mmap:
    """Map a memory file, and close its descriptor."""
    try:
        return mmap.mmap(descriptor, size)
    finally:
        os.close(descriptor)


def _copied(buffer: NDArray[Any]) -> NDArray[Any]:
    """Return a copy, aligned as the slot is."""
    room = np.empty(buffer.size + 64, np.uint8)
    start = -room.ctypes.data % 64
    copy = room[start : start + buffer.size]
    copy[:] = buffer
    return copy
