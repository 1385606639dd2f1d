"""Ends of lines, and of CSV records, in a piece of a file: one call for a piece, without the GIL."""

from __future__ import annotations

from typing import Final

import numpy as np

from penstock.kernels.library import INT64_DTYPE, UINT8_DTYPE, Ints, Uint8s, block, chosen, integer, require, require_out

_MAX_BASE = 1 << 62
_NEWLINE: Final = 10

BEFORE: Final = 0
PLAIN: Final = 1
QUOTED: Final = 2
BEHIND: Final = 3


def find_lines(data: Uint8s, base: int, ends: Ints) -> tuple[int, int]:
    """Write base + the place behind each newline of `data` to `ends`, as many as fit. From any thread.

    Args:
        data: uint8 [n], a piece of a file.
        base: where the piece stands in its file, 0..2**62.
        ends: int64 [m], C-contiguous, gets the places in order.

    Returns:
        (how many were found, how many bytes of `data` are done: all, or up to the last place that found room).

    Raises:
        SpecError: an array of another dtype, shape or layout, or `base` out of range.
    """
    data = block("find_lines", "data", data, UINT8_DTYPE)
    _require_ends("find_lines", data, ends)
    done = np.empty(1, np.int64)
    found = chosen("find_lines", find_lines_twin)(data, integer("find_lines", "base", base, 0, _MAX_BASE), ends, done)
    return found, int(done[0])


def find_records(data: Uint8s, base: int, delimiter: int, quote: int, state: int, ends: Ints) -> tuple[int, int, int]:
    """Find where CSV records end: at newlines outside quotes. From any thread.

    A quote opens a quoted field only where a field begins; inside one, a doubled quote stands for itself.

    Args:
        data: uint8 [n], a piece of a file.
        base: where the piece stands in its file, 0..2**62.
        delimiter: the byte between fields, not 0, and another than quote and newline.
        quote: the byte around fields, not 0, and another than newline.
        state: BEFORE for the beginning of a file, then what the call before returned.
        ends: int64 [m], C-contiguous, gets base + the place behind each such newline, in order.

    Returns:
        (how many were found, how many bytes of `data` are done, state behind them).

    Raises:
        SpecError: an array of another dtype, shape or layout, or a number out of range.
    """
    data = block("find_records", "data", data, UINT8_DTYPE)
    _require_ends("find_records", data, ends)
    base = integer("find_records", "base", base, 0, _MAX_BASE)
    where = np.array([integer("find_records", "state", state, BEFORE, BEHIND), 0], np.int64)
    found = chosen("find_records", find_records_twin)(data, base, (delimiter, quote), ends, where[:1], where[1:])
    after, done = where.tolist()
    return found, done, after


def _require_ends(function: str, data: Uint8s, ends: Ints) -> None:
    require(function, "ends", ends, INT64_DTYPE, 1)
    require_out(function, ends, INT64_DTYPE, ends.shape, data)


def find_lines_twin(data: Uint8s, base: int, ends: Ints, done: Ints) -> int:
    """Write base + the place behind each newline to `ends`; return how many. `done` gets how many bytes are done."""
    found, done[0] = _keep(np.flatnonzero(data == _NEWLINE) + 1, data.size, base, ends)
    return found


def find_records_twin(data: Uint8s, base: int, marks: tuple[int, int], ends: Ints, state: Ints, done: Ints) -> int:
    """Do as `find_lines_twin`, but newlines inside quotes end nothing; `state` also gets where the bytes that are done leave off."""
    delimiter, quote = marks
    places: list[int] = []
    here = int(state[0])
    for at, byte in enumerate(data.tobytes()):
        if byte == quote and here in (BEFORE, BEHIND):
            here = QUOTED
        elif byte == quote and here == QUOTED:
            here = BEHIND
        elif here != QUOTED:
            if byte == _NEWLINE:
                places.append(at + 1)
            here = BEFORE if byte in (delimiter, _NEWLINE) else PLAIN
    found, done[0] = _keep(np.array(places, np.int64), data.size, base, ends)
    if done[0]:
        state[0] = here if done[0] == data.size else BEFORE
    return found


def _keep(places: Ints, size: int, base: int, ends: Ints) -> tuple[int, int]:
    found = min(len(places), ends.size)
    np.add(places[:found], base, out=ends[:found])
    if found == len(places):
        return found, size
    return found, int(places[found - 1]) if found else 0


def widened(spans: Ints, sizes: Ints) -> Ints:
    """Return where records begin and how long they are with the byte before and the one behind, where there is one: int64 [2, n].

    Args:
        spans: int64 [3, n], file, offset and length of each.
        sizes: int64 [files].
    """
    out = np.empty((2, spans.shape[1]), np.int64)
    chosen("widen", widened_twin)(spans, sizes, out)
    return out


def widened_twin(spans: Ints, sizes: Ints, out: Ints) -> None:
    """Do what the C function does, with NumPy."""
    files, offsets, lengths = spans
    np.maximum(offsets - 1, 0, out=out[0])
    out[1] = np.minimum(offsets + lengths + 1, sizes.take(files)) - out[0]


def check_ends(data: Uint8s, spans: Ints, sizes: Ints, begins: Ints, separator: int, mark: bytes) -> tuple[int, Ints]:
    """Look at both ends of records that were read as `widened` says: a separator, or the end of a file, or of the mark at its beginning.

    Args:
        data: what was read.
        spans: as for `widened`.
        sizes: likewise.
        begins: int64 [n], where each is in `data`, with the byte before it.
        separator: the byte between records.
        mark: the bytes that may stand in front of the first.

    Returns:
        (int, int64 [2, n]): the first row with another byte or -1, and where each record begins and ends in `data`.
    """
    out = np.empty((2, spans.shape[1]), np.int64)
    row: int = chosen("check_ends", check_ends_twin)(data, spans, sizes, begins, (separator, mark[-1], len(mark)), out)
    return row, out


def check_ends_twin(data: Uint8s, spans: Ints, sizes: Ints, begins: Ints, marks: tuple[int, int, int], out: Ints) -> int:
    """Do what the C function does, with NumPy; return what it returns."""
    separator, mark, mark_size = marks
    files, offsets, lengths = spans
    np.add(begins, offsets > 0, out=out[0])
    np.add(out[0], lengths, out=out[1])
    if not data.size:
        return -1
    before, behind = data.take(out[0] - 1, mode="clip"), data.take(out[1], mode="clip")
    bad = (offsets > 0) & (before != separator) & ((offsets != mark_size) | (before != mark))
    bad |= (offsets + lengths < sizes.take(files)) & (behind != separator)
    return int(np.argmax(bad)) if bad.any() else -1
