"""An object that several children read, pickled once: its arrays lie in a memory file that each child maps copy-on-write."""

from __future__ import annotations

import mmap
import os
import pickle
from io import BytesIO
from typing import Any, NamedTuple

from penstock._processes.failure import with_reducers
from penstock._processes.outbox import aligned, memory_file
from penstock.errors import PlanError

__all__ = ["PickledOnce", "Unsent", "pickle_apart"]


class PickledOnce(NamedTuple):
    """Where the object lies in its memory file.

    Attributes:
        num_bytes: of the file.
        length: of the pickle, at the start of the file.
        buffers: (start, length) of the buffers that the pickle leaves out (protocol 5).
    """

    num_bytes: int
    length: int
    buffers: tuple[tuple[int, int], ...]

    def load(self, descriptor: int) -> Any:
        """Return the object, and close the descriptor. Its arrays are writable; what is written stays in this process."""
        try:
            memory = mmap.mmap(descriptor, self.num_bytes, access=mmap.ACCESS_COPY)
        finally:
            os.close(descriptor)
        whole = memoryview(memory)
        return pickle.loads(whole[: self.length], buffers=[whole[start : start + length] for start, length in self.buffers])


class Unsent(NamedTuple):
    """An object that is pickled, and lies in this process still: its arrays are where they were.

    Attributes:
        stream: the pickle.
        buffers: what it leaves out.
    """

    stream: bytes
    buffers: list[memoryview]

    @property
    def mentions_program(self) -> bool:
        """Whether something is looked up by its name in the file that is run."""
        return b"__main__" in self.stream

    def write(self) -> tuple[PickledOnce, int]:
        """Copy it into a memory file; return where it lies and the descriptor, which the caller closes.

        Raises:
            OSError: the system has no memory, or no descriptor, left.
        """
        places, end = [], len(self.stream)
        for buffer in self.buffers:
            places.append((aligned(end), buffer.nbytes))
            end = aligned(end) + buffer.nbytes
        descriptor = memory_file(end)
        try:
            for start, data in zip((0, *(start for start, _ in places)), (memoryview(self.stream), *self.buffers), strict=True):
                done = 0
                while done < data.nbytes:  # a call writes 2 GB at most
                    done += os.pwrite(descriptor, data[done:], start + done)
        except BaseException:
            os.close(descriptor)
            raise
        return PickledOnce(end, len(self.stream), tuple(places)), descriptor


def pickle_apart(value: object, pickler: type[pickle.Pickler] = pickle.Pickler, most_bytes: int | None = None) -> Unsent:
    """Pickle an object without its arrays.

    Raises:
        PlanError: it takes more than `most_bytes`, its arrays included; found out before there are as many.
        Exception: what the pickling of a user's class raises.
    """
    file = _Bounded(most_bytes)
    with_reducers(pickler)(file, protocol=5, buffer_callback=file.add).dump(value)
    return Unsent(file.getvalue(), file.buffers)


class _Bounded(BytesIO):
    """Takes a pickle and its buffers up to so many bytes."""

    def __init__(self, most_bytes: int | None) -> None:
        super().__init__()
        self.buffers: list[memoryview] = []
        self._left = most_bytes

    def add(self, buffer: pickle.PickleBuffer) -> None:
        self.buffers.append(buffer.raw())
        self._count(self.buffers[-1].nbytes)

    def write(self, data: Any) -> int:
        self._count(len(data))
        return super().write(data)

    def _count(self, num_bytes: int) -> None:
        if self._left is None:
            return
        self._left -= num_bytes
        if self._left < 0:
            raise PlanError(
                "the dataset holds too much memory to be copied for a trial",
                where='executor="auto"',
                fix='give executor="processes" or "threads"',
            )
