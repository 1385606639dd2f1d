"""Windows of tokens from open files straight into the rows of a batch: one call for a block, without the GIL."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from penstock.kernels.library import INT64_DTYPE, DType, Ints, block, chosen, integer, require, require_out
from penstock.kernels.spans import read_fully

_INT32 = np.dtype(np.int32)

SHORT: Final = 1
FAILED: Final = 2
OUTSIDE: Final = 3


class TokenFailure(NamedTuple):
    """The first row that could not be read: why (SHORT, FAILED, OUTSIDE), and bytes that are there, errno, or place of the token."""

    row: int
    cause: int
    detail: int


def read_windows(descriptors: NDArray[np.int32], offsets: Ints, dtype: DType, bound: int, out: Ints) -> TokenFailure | None:
    """Read `out.shape[1]` tokens from byte offsets[i] of descriptors[i] on into row i of `out`, widened to int64.

    Nothing is mapped: a file that ends too soon is a short read. From any thread; blocks while the system reads.

    Args:
        descriptors: int32 [n], open for reading; they must stay open until this returns.
        offsets: int64 [n], in bytes, 0 or more.
        dtype: integers of 1, 2, 4 or 8 bytes, signed or not, in the byte order of this machine (uint64 keeps its bits).
        bound: 0, or every token must lie in 0..bound-1.
        out: int64 [n, length], C-contiguous.

    Returns:
        None, or the first row that failed; the rows before it are complete.

    Raises:
        SpecError: an array of another dtype, shape or layout, or a negative bound.
    """
    descriptors = block("read_windows", "descriptors", descriptors, _INT32)
    offsets = block("read_windows", "offsets", offsets, INT64_DTYPE, descriptors.shape[0])
    require("read_windows", "out", out, INT64_DTYPE, 2)
    require_out("read_windows", out, INT64_DTYPE, (offsets.shape[0], out.shape[1]), offsets)
    bound = integer("read_windows", "bound", bound, 0, 1 << 63)
    report = np.zeros(2, np.int64)
    row = chosen("read_windows", read_windows_twin)(descriptors, offsets, dtype, bound, out, report)
    return None if row < 0 else TokenFailure(row, int(report[0]), int(report[1]))


def read_windows_twin(descriptors: NDArray[np.int32], offsets: Ints, dtype: DType, bound: int, out: Ints, report: Ints) -> int:
    """Fill row i of `out` with the tokens from byte offsets[i] of descriptors[i] on; return -1, or the first row that failed.

    `report` says why: (SHORT, bytes of the row that are there), (FAILED, errno), (OUTSIDE, place of the token in its row).
    """
    size = out.shape[1] * dtype.itemsize
    for row, (descriptor, offset) in enumerate(zip(descriptors.tolist(), offsets.tolist(), strict=True)):
        try:
            data = read_fully(descriptor, size, offset)
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
