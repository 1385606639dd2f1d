"""Where records lie: file, offset and length of each record of a block, with one call that holds no GIL."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from penstock.kernels.library import block, chosen, require, require_shape

__all__ = ["Places", "by_twin"]

_INT64, _UINT32 = np.dtype(np.int64), np.dtype(np.uint32)
Ints = NDArray[np.int64]


class Places:
    """A table of where records lie, whose addresses are known. Any thread; nobody writes to the arrays.

    Args:
        starts: int64 [files + 1], in order, the first 0: the number of the first record of each file, and the number of all.
        offsets: int64 or uint32 [n], in bytes.
        lengths: int64 or uint32 [n], in bytes.

    Raises:
        SpecError: an array of another dtype or length.
    """

    __slots__ = ("arguments", "lengths", "offsets", "starts")

    def __init__(self, starts: Ints, offsets: NDArray[Any], lengths: NDArray[Any]) -> None:
        self.starts = block("Places", "starts", starts, _INT64)
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
        rows = block("find", "rows", rows, _INT64)
        out = np.empty((3, rows.size), np.int64)
        return out if chosen("look_up", by_twin)(self, rows, out) < 0 else None


def _column(argument: str, column: NDArray[Any], count: int) -> NDArray[Any]:
    if column.dtype != _UINT32:
        require("Places", argument, column, _INT64, 1)
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
