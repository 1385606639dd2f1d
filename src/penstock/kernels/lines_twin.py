"""Ends of lines and of CSV records in NumPy: what runs where the C library is missing, and what it is tested against."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

__all__ = ["BEFORE", "BEHIND", "PLAIN", "QUOTED", "find_lines", "find_records"]

BEFORE: Final = 0
PLAIN: Final = 1
QUOTED: Final = 2
BEHIND: Final = 3
_NEWLINE: Final = 10


def find_lines(data: NDArray[np.uint8], base: int, ends: NDArray[np.int64]) -> tuple[int, int]:
    """Write base + the place behind each newline to `ends`; return how many, and how many bytes are done."""
    places = np.flatnonzero(data == _NEWLINE) + 1
    return _keep(places, data.size, base, ends)


def find_records(
    data: NDArray[np.uint8], base: int, delimiter: int, quote: int, state: int, ends: NDArray[np.int64]
) -> tuple[int, int, int]:
    """Do as `find_lines`, but newlines inside quotes end nothing; return also where the bytes that are done leave off."""
    places: list[int] = []
    starts = state
    for place, byte in enumerate(data.tobytes()):
        if byte == quote and state in (BEFORE, BEHIND):
            state = QUOTED
        elif byte == quote and state == QUOTED:
            state = BEHIND
        elif state != QUOTED:
            if byte == _NEWLINE:
                places.append(place + 1)
            state = BEFORE if byte in (delimiter, _NEWLINE) else PLAIN
    found, consumed = _keep(np.array(places, np.int64), data.size, base, ends)
    return found, consumed, state if consumed == data.size else BEFORE if consumed else starts


def _keep(places: NDArray[np.int64], size: int, base: int, ends: NDArray[np.int64]) -> tuple[int, int]:
    found = min(len(places), ends.size)
    np.add(places[:found], base, out=ends[:found])
    if found == len(places):
        return found, size
    return found, int(places[found - 1]) if found else 0
