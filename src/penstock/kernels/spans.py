"""Where records lie, and blocks of spans of local files read with one call that holds no GIL; the twin makes the same system calls."""

from __future__ import annotations

import os
import stat
import struct
from collections import deque
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np

from penstock._contracts.storage import RAW, read_at
from penstock.kernels.library import INT64_DTYPE, Array, Ints, Uint8s, block, chosen, chosen_library, require, require_shape

_UINT32 = np.dtype(np.uint32)


class Places:
    """A table of where records lie, whose addresses are known. Any thread; nothing writes to the arrays.

    Args:
        starts: int64 [files + 1], in order, the first 0: the number of the first record of each file, and the number of all.
        offsets: int64 or uint32 [n], in bytes.
        lengths: int64 or uint32 [n], in bytes.

    Raises:
        SpecError: an array of another dtype or length.
    """

    __slots__ = ("arguments", "lengths", "offsets", "starts")

    def __init__(self, starts: Ints, offsets: Array, lengths: Array) -> None:
        self.starts = block("Places", "starts", starts, INT64_DTYPE)
        count = int(self.starts[-1])
        self.offsets, self.lengths = _column("offsets", offsets, count), _column("lengths", lengths, count)
        columns = (part for column in (self.offsets, self.lengths) for part in (column.ctypes.data, column.itemsize))
        self.arguments = (self.starts.ctypes.data, len(self.starts), *columns)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.starts, self.offsets, self.lengths)

    def find(self, rows: Ints) -> Ints | None:
        """Return the number of the file, offset and length of each record, int64 [3, n]; None where one of them is not there.

        Args:
            rows: int64 [n], numbers of records.

        Raises:
            SpecError: another dtype or number of dimensions.
        """
        rows = block("find", "rows", rows, INT64_DTYPE)
        out = np.empty((3, rows.size), np.int64)
        return out if chosen("look_up", by_twin)(self, rows, out) < 0 else None


def _column(argument: str, column: Array, count: int) -> Array:
    if column.dtype != _UINT32:
        require("Places", argument, column, INT64_DTYPE, 1)
    require_shape("Places", argument, column, (count,))
    return np.ascontiguousarray(column)


def by_twin(places: Places, rows: Ints, out: Ints) -> int:
    """Do what the C function does, with NumPy; return what it returns."""
    good = (rows >= 0) & (rows < places.starts[-1])
    if not good.all():
        return int(np.argmin(good))
    out[0] = np.searchsorted(places.starts, rows, "right") - 1
    out[1], out[2] = places.offsets.take(rows), places.lengths.take(rows)
    return -1


FLAGS = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0) | RAW
"""O_NONBLOCK: opening a FIFO without a writer must not block; it means nothing for regular files."""

NUM_FACTS = 9
DONE, NOT_OPENED, NOT_KNOWN, NOT_READ, NOT_REGULAR, CHANGED, CUT, BAD_ROW, NO_ROOM = range(9)
_MOST_BYTES = 1 << 30


class Files(NamedTuple):
    """The files that spans lie in.

    Attributes:
        paths: NUL-terminated, one behind the other.
        path_starts: int64 [f], where each begins.
        known: int64 [f, 3], size, modification time in ns and inode that each file must still have.
    """

    paths: bytes
    path_starts: Ints
    known: Ints

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

    files: Ints
    offsets: Ints
    lengths: Ints
    descriptors: Ints
    maps: Ints | None = None
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


def read_spans_twin(tables: Files, spans: Spans, gap: int, out: Uint8s, begins: Ints, kept: Ints, facts: Ints) -> int:
    """Do what the C function does: see spans.c."""
    facts[:] = 0
    files, offsets, lengths = spans.files, spans.offsets, spans.lengths
    inside = (files >= 0) & (files < len(tables.known)) & (offsets >= 0) & (lengths >= 0)
    inside[inside] = offsets[inside] <= tables.known[files[inside], 0] - lengths[inside]
    if not inside.all():
        facts[1] = inside.argmin()
        return BAD_ROW
    for file, group in groupby(np.lexsort((offsets, files)).tolist(), key=files.tolist().__getitem__):
        rows, facts[1] = list(group), file
        descriptor = int(spans.descriptors[rows[0]])
        own = descriptor < 0
        if own:
            try:
                descriptor = os.open(tables.path(file), FLAGS)
            except OSError as error:
                facts[2] = error.errno or 0
                return NOT_OPENED
        problem = _read_file(descriptor, tables.known[file], spans, rows, gap, out, begins, facts)
        if own and problem == DONE and facts[6] < len(kept):
            kept[facts[6]] = file, descriptor
            facts[6] += 1
        elif own:
            os.close(descriptor)
        if problem:
            return problem
    return DONE


def _read_file(descriptor: int, known: Ints, spans: Spans, rows: list[int], gap: int, out: Uint8s, begins: Ints, facts: Ints) -> int:
    """Read the rows of one file, which are in order, behind the bytes that are used; return the problem."""
    try:
        status = os.fstat(descriptor)
    except OSError as error:
        facts[2] = error.errno or 0
        return NOT_KNOWN
    facts[3:6] = known_of(status)
    if not stat.S_ISREG(status.st_mode):
        return NOT_REGULAR
    if (facts[3:6] != known).any():
        return CHANGED
    places = deque((row, int(spans.offsets[row]), int(spans.offsets[row] + spans.lengths[row])) for row in rows)
    while places:
        (_, low, high), used = places[0], int(facts[7])
        while places and places[0][1] - high <= gap:
            row, begin, end = places.popleft()
            high = max(high, end)
            begins[row] = used + begin - low
        if high - low > out.size - used:
            return NO_ROOM
        try:
            data = read_fully(descriptor, high - low, low)
        except OSError as error:
            facts[2] = error.errno or 0
            return NOT_READ
        if len(data) < high - low:
            facts[3] = low + len(data)
            return CUT
        out[used : used + high - low] = np.frombuffer(data, np.uint8)
        facts[7] += high - low
    return DONE


def read_fully(descriptor: int, size: int, offset: int) -> bytes:
    """Read `size` bytes of an open file, fewer only at its end."""
    data = b""
    while len(data) < size and (more := read_at(descriptor, min(size - len(data), _MOST_BYTES), offset + len(data))):
        data += more
    return data


class BlockOutcome(NamedTuple):
    """What became of a block.

    Attributes:
        problem: DONE, or what stopped it. Then nothing of the bytes can be relied on.
        file: the file concerned; for BAD_ROW, the row.
        error: the system's errno, 0 when there is none.
        found: size, time and inode that the file has (CHANGED); for CUT the first is a place that has no bytes any more.
        num_bytes: used of the output.
        missing: whether one that was looked at was not in memory.
        kept: (file, descriptor) of each file that was opened and stays open: the caller's to close, also after a problem.
    """

    problem: int
    file: int
    error: int
    found: tuple[int, int, int]
    kept: list[list[int]]
    num_bytes: int
    missing: bool


class Taker(NamedTuple):
    """A C function that takes spans right after they were read, piece by piece, and its context; for one call of `stream_spans`.

    Attributes:
        address: of the function; see `taker` in spans.c.
        context: int64, what it reads and writes.
        held: the arrays whose addresses are in the context.
    """

    address: int
    context: Ints
    held: tuple[Any, ...]


def read_spans(files: Files, block: Spans, gap: int, out: Uint8s, begins: Ints, most_kept: int) -> BlockOutcome:
    """Read spans of regular files into `out`, those of one file in the order of their offsets, near ones together.

    Blocks for the disk, without the GIL. From any thread. All arrays are C-contiguous.

    Args:
        files: that the spans lie in.
        block: the spans; one that lies outside its file is BAD_ROW.
        gap: spans with at most so many bytes between them are read together.
        out: uint8 [m], m at least the sum of the lengths and n * gap.
        begins: int64 [n], is filled with the place of each span in `out`.
        most_kept: how many of the files that are opened here stay open.
    """
    kept = np.empty((most_kept, 2), np.int64)
    facts = np.empty(NUM_FACTS, np.int64)
    problem = chosen("read_spans", read_spans_twin)(files, block, gap, out, begins, kept, facts)
    _, file, error, size, time, inode, num_kept, num_bytes, missing = facts.tolist()
    return BlockOutcome(problem, file, error, (size, time, inode), kept[:num_kept].tolist(), num_bytes, bool(missing))


def stream_spans(
    files: Files, block: Spans, gap: int, out: Uint8s, pieces: tuple[int, int], most_kept: int, taker: Taker
) -> tuple[int, list[list[int]], bool]:
    """Read spans as `read_spans` does, in the order of the block, and give them to a C function piece by piece; one call without the GIL.

    There is no twin: where the library is missing, and where less was taken than there is, `read_spans` does the same and says why.

    Args:
        files: that the spans lie in.
        block: the spans.
        gap: as for `read_spans`.
        out: uint8 [m], for one piece.
        pieces: the most rows of a piece, and the most bytes unless it has one row only.
        most_kept: how many of the files that are opened here stay open.
        taker: takes them.

    Returns:
        How many spans were taken, from the first on; (file, descriptor) of each file that stays open, the caller's to close;
        and whether a span that was looked at was not in memory.
    """
    library, (most_rows, most_bytes) = chosen_library(), pieces
    if library is None:
        return 0, [], False
    begins, kept = np.empty(most_rows, np.int64), np.empty((most_kept, 2), np.int64)
    facts = np.zeros(NUM_FACTS, np.int64)
    done: int = library.stream_spans(files, block, gap, out, begins, kept, facts, most_rows, most_bytes, taker.address, taker.context)
    return done, kept[: facts[6]].tolist(), bool(facts[8])


def map_file(descriptor: int, size: int) -> int:
    """Map all of an open file; return the address for `Spans.maps`, 0 where that cannot be done. To be given to `unmap_file`, once."""
    library = chosen_library()
    if library is None:
        return 0
    address: int = library.map_file(descriptor, size)
    return address


def unmap_file(address: int, size: int) -> None:
    """Undo `map_file`; nothing may be reading through it."""
    library = chosen_library()
    assert library is not None
    library.unmap_file(address, size)
