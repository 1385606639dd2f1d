"""Pictures in another size by Pillow's antialiasing filters, with one call that holds no GIL."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from penstock.errors import SpecError
from penstock.kernels.library import UINT8_DTYPE, Array, DType, Ints, Uint8s, chosen, place, require_out

DTYPES: Final[tuple[DType, ...]] = tuple(map(np.dtype, ("uint8", "bool", "uint16", "int16", "int32", "float32", "float64")))  # as in C
FILTERS: Final = ("linear", "cubic")
_FINE: Final = 22  # binary digits of Pillow's weights
_ENOUGH: Final = 16
"""With fewer, rows are a level off here and there. Weights of the cubic filter are negative, too, so that several rows make two of it."""


class Way(NamedTuple):
    """What each place of an edge is made of: `taps` places from its start on, times its weights.

    Attributes:
        size: of the new edge.
        taps: how many.
        stride: the taps rounded up to a multiple of 4.
        shift: digits of the weights behind the binary point; 0 for floating weights.
        starts: int64 [size].
        weights: int16 or float64 [size, stride], 0 beyond the taps; with 22 digits int16 [size, 2, stride], the upper and the lower bits.
    """

    size: int
    taps: int
    stride: int
    shift: int
    starts: Ints
    weights: NDArray[Any]


def resample(values: Array, out: Array, interpolation: str) -> Array:
    """Write a picture to `out` in the size of that, antialiased where it shrinks; return `out`. From any thread; holds no GIL.

    The filters are Pillow's BILINEAR and BICUBIC. uint8 is rounded after each of the two passes, as by Pillow; other dtypes are computed
    in float64 and rounded once.

    Args:
        values: [height, width, channels], not empty, of one of `DTYPES`. Where the pixels of a row follow each other nothing is copied.
        out: [height, width, channels], C-contiguous, of the same dtype, not in the memory of `values`.
        interpolation: "linear" or "cubic".

    Raises:
        SpecError: an array of another shape, dtype or layout.
    """
    if values.dtype not in DTYPES or values.ndim != 3 or not values.size or not out.size:
        raise SpecError(
            f"values is {values.dtype}{list(values.shape)}, and out {list(out.shape)}",
            where=place("resample", "values"),
            fix=f"pass pictures [height, width, channels] that are not empty, of {', '.join(map(str, DTYPES))}",
        )
    require_out("resample", out, values.dtype, (*out.shape[:2], values.shape[2]), values)
    if values.strides[1:] != (values.shape[2] * values.itemsize, values.itemsize) or not values.flags.aligned:
        values = values.copy()
    fixed = values.dtype == UINT8_DTYPE
    rows = way(values.shape[0], out.shape[0], interpolation, fixed)
    columns = way(values.shape[1], out.shape[1], interpolation, fixed, exact=interpolation == "cubic")
    numbers = values.shape[2] * (4 * values.shape[1] + (rows.taps + 3) * columns.size)  # four rows, and a ring of as many as are needed
    work = np.empty(numbers * (1 if fixed else 8) + 40 * (rows.taps + 8), np.uint8)
    chosen("resample", resample_twin)(values, DTYPES.index(values.dtype), rows, columns, work, out)
    return out


@lru_cache(maxsize=2048)
def way(before: int, after: int, interpolation: str, fixed: bool, exact: bool = False) -> Way:
    """Return how an edge of `before` pixels becomes one of `after`; in fixed point, perhaps with all digits of Pillow, or floating."""
    scale = before / after
    stretch = max(scale, 1.0)
    reach = 0.5 if before == after else stretch * (1 + FILTERS.index(interpolation))  # half: the pixel alone, so that NaN does not spread
    centres = (np.arange(after) + 0.5) * scale
    starts = np.floor(centres - reach + 0.5).clip(0).astype(np.int64)
    taps = int((np.floor(centres + reach + 0.5).clip(0, before) - starts).max())
    starts = np.minimum(starts, before - taps)
    far = np.abs(starts[:, None] + np.arange(taps) + 0.5 - centres[:, None]) / stretch
    stride = -(-taps // 4) * 4
    weights = np.zeros((after, stride))
    if interpolation == "linear":
        weights[:, :taps] = (1 - far).clip(0)
    else:  # Keys' cubic with a = -0.5
        weights[:, :taps] = np.where(far < 1, (1.5 * far - 2.5) * far**2 + 1, np.where(far < 2, ((2.5 - 0.5 * far) * far - 4) * far + 2, 0))
    weights /= weights.sum(axis=1, keepdims=True)
    if not fixed:
        return Way(after, taps, stride, 0, starts, weights)
    shift = min(_FINE - 1, int(math.log2((2**15 - 1) / np.abs(weights).max())))  # as many digits as 16 bits hold; the sums have 32
    if not exact or shift > _ENOUGH:
        return Way(after, taps, stride, shift, starts, np.rint(weights * 2**shift).astype(np.int16))
    digits = np.rint(weights * 2**_FINE).astype(np.int64)
    lower = (digits + 128) % 256 - 128
    return Way(after, taps, stride, _FINE, starts, np.stack([(digits - lower) // 256, lower], axis=1).astype(np.int16))


def resample_twin(values: Array, kind: int, rows: Way, columns: Way, work: Uint8s, out: Array) -> None:
    """Add up what each place is made of, tap by tap, along the rows and then along the columns."""
    made: Array = values.astype(np.int64 if rows.shift else np.float64)
    for axis, (_, taps, _, shift, starts, weights) in ((1, columns), (0, rows)):
        lines = np.moveaxis(made, axis, 0)
        if shift == _FINE:
            weights = weights[:, 0] * np.int64(256) + weights[:, 1]
        made = np.zeros((len(starts), *lines.shape[1:]), made.dtype)
        for tap in range(taps):
            weight = weights[:, tap, None, None]
            made += weight * np.where(weight == 0, 0, lines[starts + tap])  # 0 times NaN would be NaN
        made = np.moveaxis(made, 0, axis)
        if shift:
            made = ((made + (1 << shift - 1)) >> shift).clip(0, 255)
    if out.dtype.kind in "biu" and not rows.shift:
        limits = (0, 1) if out.dtype.kind == "b" else (np.iinfo(out.dtype).min, np.iinfo(out.dtype).max)
        made = np.trunc((made + np.where(made < 0, -0.5, 0.5)).clip(*limits))
    out[...] = made
