"""The child's side of shared memory: arrays are written into slots that the parent maps, the pipe says where they lie."""

from __future__ import annotations

import mmap
import os
import pickle
import tempfile
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from penstock._engine.slots import aligned
from penstock._workers.pipe import Pipe, not_sendable
from penstock._workers.sending import Keep, dumps_to_program

_INLINE_BYTES = 2048  # a message with its header stays below 4096 bytes, what a pipe takes in one piece
_PAGE = 4096


class Parcelled(NamedTuple):
    """Where an object lies: its pickle, and the buffers that the pickle leaves out (protocol 5).

    Attributes:
        stream: the pickle, or its length when it lies at the start of the slot.
        buffers: the buffers themselves, or their (start, length) in the slot.
        slot: the number of the slot; None when everything is in this record.
        new_bytes: the size of a slot whose descriptor comes with this message, else 0.
        dropped: numbers of slots that will not be used again.
        about: what was said about the object.
    """

    stream: bytes | int
    buffers: list[Any]
    slot: int | None = None
    new_bytes: int = 0
    dropped: tuple[int, ...] = ()
    about: Any = None


class _Slot(NamedTuple):
    number: int
    memory: mmap.mmap


class Outbox:
    """Sends objects to the parent; one thread at a time.

    Arrays are copied once, into an anonymous memory file that both map. It has no name, so nothing is left of it whoever is killed.

    Args:
        pipe: the child's end.
        shared: False sends everything through the pipe, as where there are no memory files (macOS).
        where: words for errors.
        dumps: pickles a value, and gives away its buffers; by default for the program.
    """

    def __init__(
        self,
        pipe: Pipe,
        *,
        shared: bool | None = None,
        where: str = "a result of a child process",
        dumps: Callable[[object, Keep], bytes] | None = None,
    ) -> None:
        self._pipe = pipe
        self._dumps = dumps or dumps_to_program
        self._shared = has_shared_memory() if shared is None else shared
        self._where = where
        self._slots: dict[int, _Slot] = {}
        self._free: list[int] = []
        self._num_made = 0

    def send(self, value: object, about: Any = None) -> None:
        """Send an object; `Inbox.open` of the parent makes it again. It may be changed as soon as this returns. `about` goes along.

        Raises:
            SpecError: it cannot be pickled; named with the place of the part and its type.
            OSError: the system has no memory left for a slot.
            PipeEnded: the parent asks for the end, or is gone.
        """
        stream, buffers = self._pickled(value)
        ends = _ends(len(stream), buffers)
        if ends[-1] <= _INLINE_BYTES or not self._shared:
            self._pipe.send(Parcelled(stream, [bytearray(buffer) for buffer in buffers], about=about), where=self._where)
            return
        slot, new_bytes, descriptor, dropped = self._fitting(ends[-1])
        whole = np.frombuffer(slot.memory, np.uint8)
        places = []
        _write(whole, 0, stream)
        for end, buffer in zip(ends[1:], buffers, strict=True):
            start = end - buffer.nbytes
            _write(whole, start, buffer)
            places.append((start, buffer.nbytes))
        del whole
        try:
            parcelled = Parcelled(len(stream), places, slot.number, new_bytes, dropped, about)
            self._pipe.send(parcelled, fds=[descriptor] if new_bytes else [])
        finally:
            if new_bytes:
                os.close(descriptor)

    def given_back(self, numbers: list[int]) -> None:
        """Take slots back that the parent has no views of any more."""
        self._free += [number for number in numbers if number in self._slots]

    def _pickled(self, value: object) -> tuple[bytes, list[memoryview]]:
        buffers: list[pickle.PickleBuffer] = []
        try:
            stream = self._dumps(value, buffers.append)
            return stream, [buffer.raw() for buffer in buffers]
        except Exception as error:
            raise not_sendable(value, error, self._where, dumps_to_program) from error

    def _fitting(self, num_bytes: int) -> tuple[_Slot, int, int, tuple[int, ...]]:
        """Return a free slot, a new one when none is large enough: then with its size, its descriptor, and the free slot it replaces."""
        for index in range(len(self._free) - 1, -1, -1):  # the last one given back is warmest
            if len(self._slots[self._free[index]].memory) >= num_bytes:
                return self._slots[self._free.pop(index)], 0, -1, ()
        dropped = (self._free.pop(),) if self._free else ()
        for number in dropped:
            self._slots.pop(number).memory.close()
        size = rounded_up(num_bytes)
        descriptor = memory_file(size)
        try:
            slot = _Slot(self._num_made, mmap.mmap(descriptor, size))
        except BaseException:
            os.close(descriptor)
            raise
        self._num_made += 1
        self._slots[slot.number] = slot
        return slot, size, descriptor, dropped


def has_shared_memory() -> bool:
    """Tell whether there are anonymous memory files here."""
    return hasattr(os, "memfd_create")


def _ends(first: int, buffers: list[memoryview]) -> list[int]:
    ends = [first]
    for buffer in buffers:
        ends.append(aligned(ends[-1]) + buffer.nbytes)
    return ends


def _write(whole: NDArray[Any], start: int, data: bytes | memoryview) -> None:
    if len(data):
        whole[start : start + len(data)] = np.frombuffer(data, np.uint8)


def rounded_up(num_bytes: int) -> int:
    """Round up to eighths of a power of two, so that sizes that vary a little find slots that fit."""
    step = max(_PAGE, 1 << max(0, num_bytes.bit_length() - 4))
    return -(-num_bytes // step) * step


def anonymous_file() -> int:
    """Return the descriptor of an empty file without a name: in memory, or on macOS on disk."""
    if has_shared_memory():
        return os.memfd_create("penstock", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    descriptor, path = tempfile.mkstemp(prefix="penstock-")
    os.unlink(path)
    return descriptor


def memory_file(size: int) -> int:
    """Return the descriptor of `size` bytes of anonymous memory that are there: writing to it cannot be a SIGBUS.

    Raises:
        OSError: there is not so much memory, with a note that says how much was asked for.
    """
    descriptor = anonymous_file()
    try:
        if has_shared_memory():
            import fcntl

            os.posix_fallocate(descriptor, 0, size)
            fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
        else:
            os.ftruncate(descriptor, size)
    except OSError as error:
        os.close(descriptor)
        error.add_note(f"making {size} bytes of shared memory for a batch: smaller batches, or a smaller max_queue_size, need less")
        raise
    return descriptor
