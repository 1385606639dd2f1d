"""Windows of tokens read with the system's own calls: what runs where the C library is missing, and what it is tested against."""

from __future__ import annotations

import os
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

__all__ = ["FAILED", "OUTSIDE", "SHORT", "read_windows"]

SHORT: Final = 1
FAILED: Final = 2
OUTSIDE: Final = 3


def read_windows(
    descriptors: NDArray[np.int32],
    offsets: NDArray[np.int64],
    dtype: np.dtype[Any],
    bound: int,
    out: NDArray[np.int64],
    report: NDArray[np.int64],
) -> int:
    """Fill row i of `out` with the tokens from byte offsets[i] of descriptors[i] on; return -1, or the first row that failed.

    `report` says why: (SHORT, bytes of the row that are there), (FAILED, errno), (OUTSIDE, place of the token in its row).
    """
    size = out.shape[1] * dtype.itemsize
    for row, (descriptor, offset) in enumerate(zip(descriptors.tolist(), offsets.tolist(), strict=True)):
        try:
            data = _read(descriptor, size, offset)
        except OSError as error:
            report[:] = FAILED, error.errno or 0
            return row
        if len(data) < size:
            report[:] = SHORT, len(data)
            return row
        tokens = np.frombuffer(data, dtype)
        out[row] = tokens.view(np.int64) if dtype.itemsize == 8 else tokens
        outside = (tokens < 0) | (tokens > bound - 1) if bound else np.zeros(0, bool)
        if outside.any():
            report[:] = OUTSIDE, int(outside.argmax())
            return row
    return -1


def _read(descriptor: int, size: int, offset: int) -> bytes:
    """Read `size` bytes, fewer only at the end of the file."""
    data = os.pread(descriptor, size, offset) if size else b""
    while 0 < len(data) < size:
        more = os.pread(descriptor, size - len(data), offset + len(data))
        if not more:
            break
        data += more
    return data
