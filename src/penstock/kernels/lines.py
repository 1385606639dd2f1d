"""Ends of lines, and of CSV records, in a piece of a file: one call for a piece, without the GIL."""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from penstock.errors import SpecError
from penstock.kernels import lines_twin
from penstock.kernels.checks import block, integer, place, require, require_out
from penstock.kernels.library import chosen_library
from penstock.kernels.lines_twin import BEFORE, BEHIND, PLAIN, QUOTED

__all__ = ["BEFORE", "BEHIND", "PLAIN", "QUOTED", "Lines", "NativeLines", "find_lines", "find_records"]

_UINT8, _INT64 = np.dtype(np.uint8), np.dtype(np.int64)
_MAX_BASE = 1 << 62


class Lines(Protocol):
    """What both versions offer; they trust their arguments."""

    def find_lines(self, data: NDArray[np.uint8], base: int, ends: NDArray[np.int64], /) -> tuple[int, int]:
        """Find newlines."""

    def find_records(
        self, data: NDArray[np.uint8], base: int, delimiter: int, quote: int, state: int, ends: NDArray[np.int64], /
    ) -> tuple[int, int, int]:
        """Find newlines outside quotes."""


def find_lines(data: NDArray[np.uint8], base: int, ends: NDArray[np.int64]) -> tuple[int, int]:
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
    data = block("find_lines", "data", data, _UINT8)
    _require_ends("find_lines", data, ends)
    return _chosen().find_lines(data, integer("find_lines", "base", base, 0, _MAX_BASE), ends)


def find_records(
    data: NDArray[np.uint8], base: int, delimiter: int, quote: int, state: int, ends: NDArray[np.int64]
) -> tuple[int, int, int]:
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
    data = block("find_records", "data", data, _UINT8)
    _require_ends("find_records", data, ends)
    base = integer("find_records", "base", base, 0, _MAX_BASE)
    delimiter = integer("find_records", "delimiter", delimiter, 1, 255)
    quote = integer("find_records", "quote", quote, 1, 255)
    if len({delimiter, quote, 10}) < 3:
        raise SpecError(
            f"delimiter {delimiter} and quote {quote}", where=place("find_records", "delimiter"), fix="pass two bytes that are no newline"
        )
    return _chosen().find_records(data, base, delimiter, quote, integer("find_records", "state", state, BEFORE, BEHIND), ends)


def _require_ends(function: str, data: NDArray[np.uint8], ends: NDArray[np.int64]) -> None:
    require(function, "ends", ends, _INT64, 1)
    require_out(function, ends, _INT64, ends.shape, data)


class NativeLines:
    """The functions of an open library. Any thread; never closed."""

    def __init__(self, library: ctypes.CDLL) -> None:
        pointer, number = ctypes.c_void_p, ctypes.c_int64
        self._find_lines = library.penstock_find_lines
        self._find_lines.restype = number
        self._find_lines.argtypes = [pointer, number, number, pointer, number, pointer]
        self._find_records = library.penstock_find_records
        self._find_records.restype = number
        self._find_records.argtypes = [pointer, number, number, ctypes.c_int, ctypes.c_int, pointer, pointer, number, pointer]

    def find_lines(self, data: NDArray[np.uint8], base: int, ends: NDArray[np.int64]) -> tuple[int, int]:
        """Find newlines."""
        consumed = ctypes.c_int64()
        found: int = self._find_lines(data.ctypes.data, data.size, base, ends.ctypes.data, ends.size, ctypes.byref(consumed))
        return found, consumed.value

    def find_records(
        self, data: NDArray[np.uint8], base: int, delimiter: int, quote: int, state: int, ends: NDArray[np.int64]
    ) -> tuple[int, int, int]:
        """Find newlines outside quotes."""
        consumed, here = ctypes.c_int64(), ctypes.c_int64(state)
        found: int = self._find_records(
            data.ctypes.data, data.size, base, delimiter, quote, ctypes.byref(here), ends.ctypes.data, ends.size, ctypes.byref(consumed)
        )
        return found, consumed.value, here.value


@cache
def _chosen() -> Lines:
    library = chosen_library()
    return lines_twin if library is None else NativeLines(library)
