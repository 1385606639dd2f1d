"""Order, random numbers and images: the checked functions. They call the C library or its NumPy twin.

The checks are what makes the C safe. They cost about 1 us per call.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from penstock.errors import SpecError
from penstock.kernels import twin
from penstock.kernels.library import block, chosen, integer, place, require, require_integers, require_out, require_shape

__all__ = ["copy_images", "crop_images", "deal", "gather_windows", "normalize", "normalize_image", "permute", "philox_uniform", "read_file"]

_UINT8, _INT64, _UINT64 = np.dtype(np.uint8), np.dtype(np.int64), np.dtype(np.uint64)
_FLOAT32 = np.dtype(np.float32)
_LIMIT = 1 << 63
_MASK64 = (1 << 64) - 1


def permute(positions: NDArray[np.int64], num_elements: int, key: int) -> NDArray[np.int64]:
    """Permute positions of 0..num_elements-1 by a keyed pseudo-random permutation.

    The same on every platform. Any position at once, O(1) memory; from any thread.

    Args:
        positions: int64 [n], each in 0..num_elements-1.
        num_elements: size of the permuted range, 1..2**63.
        key: 0..2**64-1; unrelated keys (see `mix`) give unrelated permutations.

    Returns:
        int64 [n]: where the permutation sends each position.

    Raises:
        SpecError: wrong dtype or shape, num_elements or key out of range, or a position outside 0..num_elements-1.
    """
    positions = block("permute", "positions", positions, _INT64)
    num_elements = integer("permute", "num_elements", num_elements, 1, _LIMIT)
    key = integer("permute", "key", key, 0, _MASK64)
    out = np.empty(positions.shape[0], np.int64)
    row = chosen("permute", twin.permute_twin)(positions, num_elements, key, out)
    if row >= 0:
        raise SpecError(
            f"position {positions[row]} is outside 0..{num_elements - 1}",
            where=f"penstock.kernels.permute, positions[{row}]",
            fix="pass positions in 0..num_elements-1; fold longer runs with % first",
        )
    return out


def philox_uniform(
    key0: int, key1: int, epochs: NDArray[np.int64], indices: NDArray[np.int64], lanes: NDArray[np.uint64], num_draws: int
) -> NDArray[np.float64]:
    """Draw uniform numbers for many elements, each from its own counter-based generator.

    Row i is what `Generator(Philox(key=[key0, key1], counter=[0, lanes[i], indices[i], epochs[i]])).random(num_draws)` gives.
    From any thread.

    Args:
        key0: first word of the key, 0..2**64-1.
        key1: second word of the key, 0..2**64-1.
        epochs: int64 [n]; negative numbers count as their 64 bits.
        indices: int64 [n].
        lanes: uint64 [n].
        num_draws: numbers per row, 0 or more.

    Returns:
        float64 [n, num_draws] in [0, 1).

    Raises:
        SpecError: wrong dtypes, lengths that differ, or a number out of range.
    """
    epochs = block("philox_uniform", "epochs", epochs, _INT64)
    length = epochs.shape[0]
    indices = block("philox_uniform", "indices", indices, _INT64, length)
    lanes = block("philox_uniform", "lanes", lanes, _UINT64, length)
    key0 = integer("philox_uniform", "key0", key0, 0, _MASK64)
    key1 = integer("philox_uniform", "key1", key1, 0, _MASK64)
    num_draws = integer("philox_uniform", "num_draws", num_draws, 0, _LIMIT - 1)
    out = np.empty((length, num_draws), np.float64)
    chosen("philox_uniform", twin.philox_uniform_twin)(key0, key1, epochs, indices, lanes, out)
    return out


def normalize(
    values: NDArray[np.uint8], scale: NDArray[np.float32], bias: NDArray[np.float32], out: NDArray[np.float32], channels_first: bool
) -> None:
    """Write values * scale + bias per channel as float32, rounded after the product and after the sum (no fused multiply-add).

    From any thread.

    Args:
        values: uint8 [n, h, w, c] with c in 1..4 and any strides: crops and mirrored views are read in place.
        scale: float32 [c].
        bias: float32 [c].
        out: float32, C-contiguous, [n, c, h, w] when channels_first, else [n, h, w, c]; not in the memory of `values`.
        channels_first: the layout of `out`.

    Raises:
        SpecError: an array of another dtype, shape or layout.
    """
    require("normalize", "values", values, _UINT8, 4)
    length, height, width, channels = values.shape
    integer("normalize", "number of channels of values", channels, 1, 4)
    scale = block("normalize", "scale", scale, _FLOAT32, channels)
    bias = block("normalize", "bias", bias, _FLOAT32, channels)
    shape = (length, channels, height, width) if channels_first else (length, height, width, channels)
    require_out("normalize", out, _FLOAT32, shape, values)
    chosen("normalize", twin.normalize_twin)(values, scale, bias, out, channels_first)


def normalize_image(
    value: NDArray[np.uint8], scale: NDArray[np.float32], bias: NDArray[np.float32], out: NDArray[np.float32], channels_first: bool
) -> None:
    """Do what `normalize` does for one image [h, w, c]; half the time of a batch of one, for the loop over decoded images.

    From any thread. The caller has made sure that `scale` and `bias` are float32 [c].

    Raises:
        SpecError: an array of another dtype, shape or layout.
    """
    height, width, channels = value.shape
    shape = (channels, height, width) if channels_first else value.shape
    right = value.dtype is _UINT8 and scale.size == bias.size == channels <= 4
    if not right or out.shape != shape or out.dtype is not _FLOAT32 or not out.flags.c_contiguous:
        normalize(value[None], scale, bias, out[None], channels_first)
        return
    chosen("normalize_image", twin.normalize_image_twin)(value, scale, bias, out, channels_first)


def read_file(path: bytes, buffer: NDArray[np.uint8]) -> int:
    """Read all of a regular file with one call that leaves the GIL alone from open to close. From any thread.

    Args:
        path: of the file, as the system has it.
        buffer: uint8, C-contiguous; must be larger than the file by at least one byte.

    Returns:
        The file's size; -2 - size when the buffer is too small; -1 when anything is out of the ordinary (the caller then reads it in Python
        and learns what).

    Raises:
        SpecError: the buffer is not a block of bytes.
    """
    require("read_file", "buffer", buffer, _UINT8, 1)
    if not buffer.flags.carray or b"\0" in path:
        return -1
    return chosen("read_file", twin.read_file_twin)(path, buffer)


def copy_images(values: NDArray[np.uint8], out: NDArray[np.uint8]) -> None:
    """Copy a view of images (a crop, a mirrored view) into a contiguous block. From any thread.

    Args:
        values: uint8 [n, h, w, c] with any strides.
        out: uint8 [n, h, w, c], C-contiguous, not in the memory of `values`.

    Raises:
        SpecError: an array of another dtype, shape or layout.
    """
    require("copy_images", "values", values, _UINT8, 4)
    require_out("copy_images", out, _UINT8, values.shape, values)
    chosen("copy_images", twin.copy_images_twin)(values, out)


def crop_images(
    values: NDArray[np.uint8],
    tops: NDArray[np.int64],
    lefts: NDArray[np.int64],
    flips: NDArray[np.uint8],
    fill: int,
    out: NDArray[np.uint8],
) -> None:
    """Cut one window out of each image, then mirror it left to right where asked. From any thread.

    Args:
        values: uint8 [n, h, w, c], C-contiguous.
        tops: int64 [n], first row of each window; may be negative or beyond the image.
        lefts: int64 [n], first column of each window; may be negative or beyond the image.
        flips: uint8 [n], not 0 where the window is mirrored.
        fill: 0..255, the value of every channel of a pixel outside the image.
        out: uint8 [n, H, W, c], C-contiguous, not in the memory of `values`.

    Raises:
        SpecError: an array of another dtype, shape or layout, or fill out of range.
    """
    require("crop_images", "values", values, _UINT8, 4)
    require("crop_images", "out", out, _UINT8, 4)
    length, _, _, channels = values.shape
    if not values.flags.c_contiguous:
        raise SpecError(
            f"values is not C-contiguous: strides {values.strides} for shape {values.shape}",
            where=place("crop_images", "values"),
            fix="pass np.ascontiguousarray(values), or take the view's crop with copy_images",
        )
    tops = block("crop_images", "tops", tops, _INT64, length)
    lefts = block("crop_images", "lefts", lefts, _INT64, length)
    flips = block("crop_images", "flips", flips, _UINT8, length)
    fill = integer("crop_images", "fill", fill, 0, 255)
    require_out("crop_images", out, _UINT8, (length, out.shape[1], out.shape[2], channels), values)
    chosen("crop_images", twin.crop_images_twin)(values, tops, lefts, flips, fill, out)


def gather_windows(values: NDArray[Any], starts: NDArray[np.int64], out: NDArray[np.int64]) -> None:
    """Copy `values[start : start + length]` for each start, widened to int64. From any thread.

    Args:
        values: 1-d array of integers of 1, 2, 4 or 8 bytes, signed or not (uint64 keeps its bits); fastest when contiguous.
        starts: int64 [n].
        out: int64 [n, length], C-contiguous; its width is the length of the windows. Not in the memory of `values`.

    Raises:
        SpecError: an array of another dtype, shape or layout, or a window that does not lie inside `values`.
    """
    require_integers("gather_windows", "values", values)
    starts = block("gather_windows", "starts", starts, _INT64)
    require("gather_windows", "out", out, _INT64, 2)
    require_out("gather_windows", out, _INT64, (starts.shape[0], out.shape[1]), values)
    # A strided, unaligned or byte-swapped array of tokens is rare enough for NumPy's general loops.
    plain = values.flags.c_contiguous and values.flags.aligned and values.dtype.isnative
    row = (chosen("gather_windows", twin.gather_windows_twin) if plain else twin.gather_windows_twin)(values, starts, out)
    if row >= 0:
        last = values.shape[0] - out.shape[1]
        raise SpecError(
            f"the window of {out.shape[1]} at {starts[row]} does not lie inside the {values.shape[0]} values",
            where=f"penstock.kernels.gather_windows, starts[{row}]",
            fix=f"pass starts in 0..{last} (number of values - length)" if last >= 0 else f"pass at least {out.shape[1]} values",
        )


def deal(
    positions: NDArray[np.int64], shares: NDArray[np.uint64], sides: NDArray[np.int64], num_children: int, *, grouped: bool = True
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Say which child of a binary tree gives the element at each position.

    Of the first x elements that pass a node, floor(x * share / 2**63 + 1/2) go left. From any thread.

    Args:
        positions: int64 [n], each 0 or more.
        shares: uint64 [m], the share of each node's left side in 2**63rds, below 2**63. Node 0 is the root.
        sides: int64 [m, 2], the left and the right side of each node, the number of a later node or ~child.
        num_children: 1 or more.
        grouped: whether the rows are wanted in the order of their children as well.

    Returns:
        (int64 [4, n]: the rows of `positions` ordered by their child, and the place of each in it; the child of each position, and its
        place there. int64 [num_children + 1]: where the rows of each child begin). If not `grouped`, the last two rows alone, and nothing.

    Raises:
        SpecError: an array of another dtype, shape or layout, a side that is neither a later node nor a child, or a negative position.
    """
    positions = block("deal", "positions", positions, _INT64)
    shares = block("deal", "shares", shares, _UINT64)
    num_children = integer("deal", "num_children", num_children, 1, _LIMIT >> 1)
    require("deal", "sides", sides, _INT64, 2)
    require_shape("deal", "sides", sides, (shares.shape[0], 2))
    sides = np.require(sides, requirements=("C", "A"))
    out = np.empty((4 if grouped else 2, positions.shape[0]), np.int64)
    starts = np.empty(num_children + 1 if grouped else 0, np.int64)
    row = chosen("deal", twin.deal_twin)(positions, shares, sides, num_children, out, starts)
    if row >= 0:
        raise SpecError(
            f"position {positions[row]} is negative", where=f"penstock.kernels.deal, positions[{row}]", fix="pass positions from 0 on"
        )
    if row < -1:
        raise SpecError(
            f"node {-2 - row} has share {shares[-2 - row]} and sides {sides[-2 - row].tolist()}",
            where=f"penstock.kernels.deal, sides[{-2 - row}]",
            fix=f"let each side be the number of a later node or ~child, of {num_children} children, and each share less than 2**63",
        )
    return out, starts
