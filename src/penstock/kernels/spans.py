"""Read a block of spans of local files with one call that holds no GIL."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from penstock.kernels import spans_twin
from penstock.kernels.library import chosen, chosen_library
from penstock.kernels.spans_twin import NUM_FACTS, Files, Spans

__all__ = [
    "BAD_ROW",
    "CHANGED",
    "CUT",
    "DONE",
    "NOT_OPENED",
    "NOT_REGULAR",
    "Files",
    "Outcome",
    "Spans",
    "Taker",
    "map_file",
    "read_spans",
    "stream_spans",
    "unmap_file",
]

DONE, NOT_OPENED, NOT_KNOWN, NOT_READ, NOT_REGULAR, CHANGED, CUT, BAD_ROW, NO_ROOM = range(9)


class Outcome(NamedTuple):
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
    context: NDArray[np.int64]
    held: tuple[Any, ...]


def read_spans(files: Files, block: Spans, gap: int, out: NDArray[np.uint8], begins: NDArray[np.int64], most_kept: int) -> Outcome:
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
    problem = chosen("read_spans", spans_twin.read_spans_twin)(files, block, gap, out, begins, kept, facts)
    _, file, error, size, time, inode, num_kept, num_bytes, missing = facts.tolist()
    return Outcome(problem, file, error, (size, time, inode), kept[:num_kept].tolist(), num_bytes, bool(missing))


def stream_spans(
    files: Files, block: Spans, gap: int, out: NDArray[np.uint8], pieces: tuple[int, int], most_kept: int, taker: Taker
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
    """Undo `map_file`; nobody may be reading through it."""
    library = chosen_library()
    assert library is not None
    library.unmap_file(address, size)
