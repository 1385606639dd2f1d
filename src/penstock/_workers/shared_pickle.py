"""An object that several children read, pickled once: its arrays lie in a memory file that each child maps copy-on-write.

Arrays that are parts of a file which this process has mapped, such as `numpy.memmap` and a memory-mapped Arrow table, are not copied: each
child maps that file.
"""

from __future__ import annotations

import mmap
import os
import pickle
from bisect import bisect_right
from contextlib import suppress
from io import BytesIO
from typing import Any, NamedTuple

import numpy as np

from penstock._engine.slots import aligned
from penstock._workers.outbox import memory_file
from penstock._workers.sending import SendingPickler

_LEAST_BYTES, _LEAST_TOTAL = 4096, 1 << 20
"""Smaller buffers, and the first of many, are copied wherever they lie: to find out costs 1 ms."""


class FilePart(NamedTuple):
    """A buffer that lies in a file.

    Attributes:
        path: of the file.
        start: where it begins there.
        num_bytes: its length.
        writable: whether what is written goes into the file.
    """

    path: str
    start: int
    num_bytes: int
    writable: bool


class PickledOnce(NamedTuple):
    """Where the object lies in its memory file.

    Attributes:
        num_bytes: of the file.
        length: of the pickle, at the start of the file.
        buffers: (start, length) of the buffers that the pickle leaves out (protocol 5), or where else they lie.
    """

    num_bytes: int
    length: int
    buffers: tuple[tuple[int, int] | FilePart, ...]

    def load(self, descriptor: int) -> Any:
        """Return the object, and close the descriptor. Its arrays are writable; what is written stays in this process.

        Those that lie in other files are what they are in the process that has pickled them.
        """
        try:
            memory = mmap.mmap(descriptor, self.num_bytes, access=mmap.ACCESS_COPY)
        finally:
            os.close(descriptor)
        whole = memoryview(memory)
        files = _mapped([place for place in self.buffers if isinstance(place, FilePart)])
        buffers = [
            files[place.path, place.writable][place.start :][: place.num_bytes]
            if isinstance(place, FilePart)
            else whole[place[0] : sum(place)]
            for place in self.buffers
        ]
        return pickle.loads(whole[: self.length], buffers=buffers)


def _mapped(parts: list[FilePart]) -> dict[tuple[str, bool], memoryview]:
    """Map the files that buffers lie in, each once, however many they are."""
    files = {}
    for path, writable in {(part.path, part.writable) for part in parts}:
        with open(path, "r+b" if writable else "rb") as file:
            files[path, writable] = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_WRITE if writable else mmap.ACCESS_READ))
    return files


class Unsent(NamedTuple):
    """An object that is pickled, and lies in this process still: its arrays are where they were.

    Attributes:
        stream: the pickle.
        buffers: what it leaves out.
    """

    stream: bytes
    buffers: list[memoryview | FilePart]

    def write(self) -> tuple[PickledOnce, int]:
        """Copy it into a memory file; return where it lies and the descriptor, which the caller closes.

        Raises:
            OSError: the system has no memory, or no descriptor, left.
        """
        places: list[tuple[int, int] | FilePart] = []
        copied, end = [(0, memoryview(self.stream))], len(self.stream)
        for buffer in self.buffers:
            if isinstance(buffer, FilePart):
                places.append(buffer)
                continue
            places.append((aligned(end), buffer.nbytes))
            copied.append((aligned(end), buffer))
            end = aligned(end) + buffer.nbytes
        descriptor = memory_file(end)
        try:
            for start, data in copied:
                done = 0
                while done < data.nbytes:  # a call writes 2 GB at most
                    done += os.pwrite(descriptor, data[done:], start + done)
        except BaseException:
            os.close(descriptor)
            raise
        return PickledOnce(end, len(self.stream), tuple(places)), descriptor


class TooLarge(Exception):
    """An object takes more memory than there may be. `num_bytes` is how much was counted until then."""

    def __init__(self, num_bytes: int) -> None:
        super().__init__(num_bytes)
        self.num_bytes = num_bytes


def pickle_apart(value: object, *, num_readers: int = 1, most_bytes: int | None = None) -> Unsent:
    """Pickle an object without its arrays.

    Args:
        value: the object.
        num_readers: how many processes will read it: each holds what is in the pickle, and all together the arrays.
        most_bytes: so much may that take.

    Raises:
        TooLarge: it takes more; found out before there are as many bytes.
        Exception: what the pickling of a user's class raises.
    """
    file = _Bounded(num_readers, most_bytes)
    SendingPickler(file, buffer_callback=file.add).dump(value)
    return Unsent(file.getvalue(), file.buffers)


class _Bounded(BytesIO):
    """Takes a pickle and its buffers up to so many bytes."""

    def __init__(self, num_readers: int, most_bytes: int | None) -> None:
        super().__init__()
        self.buffers: list[memoryview | FilePart] = []
        self._num_readers, self._most_bytes, self._counted = num_readers, most_bytes, 0
        self._apart = 0
        self._mapped: _MappedFiles | None = None

    def add(self, buffer: pickle.PickleBuffer) -> None:
        data = buffer.raw()
        part = None
        self._apart += data.nbytes
        if data.nbytes >= _LEAST_BYTES and self._apart >= _LEAST_TOTAL:
            self._mapped = self._mapped or _MappedFiles()
            part = self._mapped.part(data)
        self.buffers.append(part or data)
        self._count(0 if part else data.nbytes)

    def write(self, data: Any) -> int:
        self._count(len(data) * self._num_readers)
        return super().write(data)

    def _count(self, num_bytes: int) -> None:
        self._counted += num_bytes
        if self._most_bytes is not None and self._counted > self._most_bytes:
            raise TooLarge(self._counted)


class _MappedFiles:
    """The files that this process has mapped, as Linux tells; elsewhere none. Not those whose pages may be other ones than the file's."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._found: list[tuple[int, int, str, bool]] = []  # end, offset in the file, path, writable
        with suppress(OSError), open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as lines:
            for line in lines:
                place, flags, offset, _, inode, *path = line.rstrip("\n").split(maxsplit=5)
                if not path or inode == "0" or flags not in ("r--s", "rw-s", "r--p"):
                    continue
                start, end = (int(number, 16) for number in place.split("-"))
                if _is_file(path[0], int(inode), flags):
                    self._starts.append(start)
                    self._found.append((end, int(offset, 16), path[0], flags == "rw-s"))

    def part(self, data: memoryview) -> FilePart | None:
        """Return where in a file a buffer lies."""
        address = int(np.frombuffer(data, np.uint8).__array_interface__["data"][0])
        number = bisect_right(self._starts, address) - 1
        if number < 0 or address + data.nbytes > self._found[number][0]:
            return None
        _, offset, path, writable = self._found[number]
        return FilePart(path, offset + address - self._starts[number], data.nbytes, writable)


def _is_file(path: str, inode: int, flags: str) -> bool:
    """Tell whether a file that is mapped is found by its path. The numbers of devices differ where file systems lie over others."""
    try:
        found = os.stat(path)
    except OSError:
        return False
    return found.st_ino == inode and os.access(path, os.R_OK | (os.W_OK if flags == "rw-s" else 0))
