"""Read a block of spans of local files with one call that holds no GIL."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from penstock.kernels import spans_twin
from penstock.kernels.library import chosen_library
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
    "native",
    "read_spans",
    "stream_spans",
    "streamer",
    "unmap_file",
]

DONE, NOT_OPENED, NOT_KNOWN, NOT_READ, NOT_REGULAR, CHANGED, CUT, BAD_ROW, NO_ROOM = range(9)

_POINTER, _INT64 = ctypes.c_void_p, ctypes.c_int64
_READ_ARGUMENTS: Final[list[Any]] = [
    ctypes.c_char_p,
    *[_POINTER] * 2,
    _INT64,
    *[_POINTER] * 4,
    _INT64,
    _INT64,
    *[_POINTER] * 2,
    _INT64,
    _POINTER,
    _INT64,
    *[_POINTER] * 3,
    ctypes.c_int,
    _INT64,
]
_shared: Callable[[Any], Any] = (ctypes.c_char * 0).from_buffer
Reader = Callable[..., int]


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
    problem = _chosen()(files, block, gap, out, begins, kept, facts)
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
    stream = _chosen_streamer()
    return (0, [], False) if stream is None else stream(files, block, gap, out, pieces, most_kept, taker)


def streamer(library: ctypes.CDLL) -> Callable[..., tuple[int, list[list[int]], bool]]:
    """Return `stream_spans` of an open library."""
    function = _prepared(library.penstock_stream_spans, [*_READ_ARGUMENTS, _INT64, _INT64, _INT64, _POINTER])

    def stream(
        files: Files, block: Spans, gap: int, out: NDArray[np.uint8], pieces: tuple[int, int], most_kept: int, taker: Taker
    ) -> tuple[int, list[list[int]], bool]:
        most_rows, most_bytes = pieces
        order, begins = np.empty(2 * most_rows, np.int64), np.empty(most_rows, np.int64)
        kept, facts = np.empty((most_kept, 2), np.int64), np.zeros(NUM_FACTS, np.int64)
        arguments = _arguments(files, block, gap, out, begins, kept, facts, order)
        done: int = function(*arguments, most_rows, most_bytes, taker.address, _address(taker.context))
        return done, kept[: facts[6]].tolist(), bool(facts[8])

    return stream


@cache
def _chosen_streamer() -> Callable[..., tuple[int, list[list[int]], bool]] | None:
    library = chosen_library()
    return None if library is None else streamer(library)


@cache
def _chosen() -> Reader:
    library = chosen_library()
    return spans_twin.read_spans if library is None else native(library)


def native(library: ctypes.CDLL) -> Reader:
    """Return the C function of an open library, with the arguments of its twin."""
    function = _prepared(library.penstock_read_spans, _READ_ARGUMENTS)

    def read(
        files: Files,
        block: Spans,
        gap: int,
        out: NDArray[np.uint8],
        begins: NDArray[np.int64],
        kept: NDArray[np.int64],
        facts: NDArray[np.int64],
    ) -> int:
        problem: int = function(*_arguments(files, block, gap, out, begins, kept, facts, np.empty(2 * block.files.size, np.int64)))
        return problem

    return read


def _prepared(function: Any, arguments: list[Any]) -> Any:
    function.restype, function.argtypes = _INT64, arguments
    return function


def _arguments(
    files: Files,
    block: Spans,
    gap: int,
    out: NDArray[np.uint8],
    begins: NDArray[np.int64],
    kept: NDArray[np.int64],
    facts: NDArray[np.int64],
    order: NDArray[np.int64],
) -> tuple[Any, ...]:
    """Return the arguments that both C functions begin with."""
    tables = (files.paths, _shared(files.path_starts), _shared(files.known), len(files.known))
    rows = (_address(block.files), _address(block.offsets), _address(block.lengths), _address(block.descriptors), block.files.size)
    results = (_shared(out), out.size, _shared(begins), len(kept), _shared(kept), _shared(facts))
    maps = None if block.maps is None else _address(block.maps)
    return (*tables, *rows, gap, _shared(order), *results, maps, block.sink, block.every)


def map_file(descriptor: int, size: int) -> int:
    """Map all of an open file; return the address for `Spans.maps`, 0 where that cannot be done. To be given to `unmap_file`, once."""
    library = chosen_library()
    if library is None:
        return 0
    function = library.penstock_map_file
    function.restype, function.argtypes = _INT64, [ctypes.c_int, _INT64]
    address: int = function(descriptor, size)
    return address


def unmap_file(address: int, size: int) -> None:
    """Undo `map_file`; nobody may be reading through it."""
    library = chosen_library()
    assert library is not None
    function = library.penstock_unmap_file
    function.restype, function.argtypes = None, [_INT64, _INT64]
    function(address, size)


def _address(array: NDArray[Any]) -> Any:
    try:
        return _shared(array)
    except TypeError:
        return array.ctypes.data  # read-only: its buffer may not be shared
