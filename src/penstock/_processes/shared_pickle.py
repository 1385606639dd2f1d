"""An object that several children read, pickled once: its arrays lie in a memory file that each child maps copy-on-write."""

from __future__ import annotations

import mmap
import os
import pickle
from collections.abc import Callable
from typing import Any, NamedTuple

from penstock._processes.outbox import aligned, memory_file

__all__ = ["PickledOnce", "pickle_once"]


class PickledOnce(NamedTuple):
    """Where the object lies in its memory file.

    Attributes:
        num_bytes: of the file.
        length: of the pickle, at the start of the file.
        buffers: (start, length) of the buffers that the pickle leaves out (protocol 5).
        mentions_program: whether something is looked up by its name in the file that is run.
    """

    num_bytes: int
    length: int
    buffers: tuple[tuple[int, int], ...]
    mentions_program: bool

    def load(self, descriptor: int) -> Any:
        """Return the object, and close the descriptor. Its arrays are writable; what is written stays in this process."""
        try:
            memory = mmap.mmap(descriptor, self.num_bytes, access=mmap.ACCESS_COPY)
        finally:
            os.close(descriptor)
        whole = memoryview(memory)
        return pickle.loads(whole[: self.length], buffers=[whole[start : start + length] for start, length in self.buffers])


def pickle_once(value: object, dumps: Callable[..., bytes] = pickle.dumps) -> tuple[PickledOnce, int]:
    """Pickle an object into a memory file; return where it lies and the descriptor, which the caller closes.

    Raises:
        Exception: what the pickling of a user's class raises.
        OSError: the system has no memory, or no descriptor, left.
    """
    found: list[pickle.PickleBuffer] = []
    stream = dumps(value, protocol=5, buffer_callback=found.append)
    buffers, places, end = [buffer.raw() for buffer in found], [], len(stream)
    for buffer in buffers:
        places.append((aligned(end), buffer.nbytes))
        end = aligned(end) + buffer.nbytes
    descriptor = memory_file(end)
    with mmap.mmap(descriptor, end) as memory:
        memory[: len(stream)] = stream
        for (start, length), buffer in zip(places, buffers, strict=True):
            memory[start : start + length] = buffer
    return PickledOnce(end, len(stream), tuple(places), b"__main__" in stream), descriptor
