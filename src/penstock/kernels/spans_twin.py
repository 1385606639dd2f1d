"""Reading spans with the same calls of the system, in Python: what runs where the C library is missing, and what it is tested against."""

from __future__ import annotations

import os
import stat
import struct
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["FLAGS", "NUM_FACTS", "Files", "Spans", "as_int64", "known_of", "read_spans_twin"]

FLAGS = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOCTTY", 0) | getattr(os, "O_BINARY", 0)
"""O_NONBLOCK: opening a FIFO without a writer must not block; it means nothing for regular files."""

_DONE, _NOT_OPENED, _NOT_KNOWN, _NOT_READ, _NOT_REGULAR, _CHANGED, _CUT, _BAD_ROW, _NO_ROOM = range(9)
NUM_FACTS = 9
_MOST_BYTES = 1 << 30


class Files(NamedTuple):
    """The files that spans lie in.

    Attributes:
        paths: NUL-terminated, one behind the other.
        path_starts: int64 [f], where each begins.
        known: int64 [f, 3], size, modification time in ns and inode that each file must still have.
    """

    paths: bytes
    path_starts: NDArray[np.int64]
    known: NDArray[np.int64]

    def path(self, file: int) -> bytes:
        """Return the path of a file."""
        start = int(self.path_starts[file])
        return self.paths[start : self.paths.index(b"\0", start)]


class Spans(NamedTuple):
    """Spans of files: int64 [n] each.

    Attributes:
        files: number of the file.
        offsets: in bytes.
        lengths: in bytes.
        descriptors: an open one of the file, or -1: then it is opened for the read.
        maps: address of a map of the file (`spans.map_file`) or 0; None for no maps. Only the kernel looks into it.
        sink: a memfd whose beginning the output is a map of; -1 for none. Used in C alone.
        every: of so many spans one is looked at: where it is not in memory, the system is asked for all before they are read. In C alone.
    """

    files: NDArray[np.int64]
    offsets: NDArray[np.int64]
    lengths: NDArray[np.int64]
    descriptors: NDArray[np.int64]
    maps: NDArray[np.int64] | None = None
    sink: int = -1
    every: int = 32


def as_int64(number: int) -> int:
    """Keep the low 64 bits, as C does: times after the year 2262 and inode numbers need more than an int64 has."""
    if -(2**63) <= number < 2**63:
        return number
    return int(struct.unpack("<q", struct.pack("<Q", number & (2**64 - 1)))[0])


def known_of(status: os.stat_result) -> tuple[int, int, int]:
    """Return what tells one version of a file from another: size, modification time and inode."""
    return status.st_size, as_int64(status.st_mtime_ns), as_int64(status.st_ino)


def read_spans_twin(
    tables: Files,
    spans: Spans,
    gap: int,
    out: NDArray[np.uint8],
    begins: NDArray[np.int64],
    kept: NDArray[np.int64],
    facts: NDArray[np.int64],
) -> int:
    """Do what the C function does: see spans.c."""
    facts[:] = 0
    files, offsets, lengths = spans.files, spans.offsets, spans.lengths
    inside = (files >= 0) & (files < len(tables.known)) & (offsets >= 0) & (lengths >= 0)
    inside[inside] = offsets[inside] <= tables.known[files[inside], 0] - lengths[inside]
    if not inside.all():
        facts[1] = inside.argmin()
        return _BAD_ROW
    order = np.lexsort((offsets, files)).tolist()
    block = _Block(spans, gap, out, begins, facts)
    place, problem = 0, _DONE
    while place < len(order) and problem == _DONE:
        file, end = int(files[order[place]]), place
        while end < len(order) and files[order[end]] == file:
            end += 1
        facts[1] = file
        descriptor, own = int(spans.descriptors[order[place]]), False
        if descriptor < 0:
            try:
                descriptor, own = os.open(tables.path(file), FLAGS), True
            except OSError as error:
                facts[2] = error.errno or 0
                return _NOT_OPENED
        problem = block.read_file(descriptor, tables.known[file], order[place:end])
        place = end
        if own and problem == _DONE and facts[6] < len(kept):
            kept[facts[6]] = file, descriptor
            facts[6] += 1
        elif own:
            os.close(descriptor)
    facts[7] = block.used
    return problem


class _Block:
    """A block in work: what was read so far, and what was found out."""

    def __init__(self, spans: Spans, gap: int, out: NDArray[np.uint8], begins: NDArray[np.int64], facts: NDArray[np.int64]) -> None:
        self._spans, self._gap, self._out, self._begins, self._facts = spans, gap, out, begins, facts
        self.used = 0

    def read_file(self, descriptor: int, known: NDArray[np.int64], rows: list[int]) -> int:
        """Read the rows of one file, which are in order; return the problem."""
        facts = self._facts
        try:
            status = os.fstat(descriptor)
        except OSError as error:
            facts[2] = error.errno or 0
            return _NOT_KNOWN
        facts[3:6] = known_of(status)
        if not stat.S_ISREG(status.st_mode):
            return _NOT_REGULAR
        if (facts[3:6] != known).any():
            return _CHANGED
        place, problem = 0, _DONE
        while place < len(rows) and problem == _DONE:
            low = high = int(self._spans.offsets[rows[place]])
            while place < len(rows) and int(self._spans.offsets[rows[place]]) - high <= self._gap:
                row = rows[place]
                high = max(high, int(self._spans.offsets[row] + self._spans.lengths[row]))
                self._begins[row] = self.used + int(self._spans.offsets[row]) - low
                place += 1
            if high - low > self._out.size - self.used:
                return _NO_ROOM
            problem = _read_range(descriptor, self._out[self.used : self.used + high - low], low, facts)
            self.used += high - low
        return problem


def _read_range(descriptor: int, out: NDArray[np.uint8], offset: int, facts: NDArray[Any]) -> int:
    done = 0
    while done < out.size:
        try:
            data = os.pread(descriptor, min(out.size - done, _MOST_BYTES), offset + done)
        except OSError as error:
            facts[2] = error.errno or 0
            return _NOT_READ
        if not data:
            facts[3] = offset + done
            return _CUT
        out[done : done + len(data)] = np.frombuffer(data, np.uint8)
        done += len(data)
    return _DONE
