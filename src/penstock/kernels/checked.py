"""Order, random numbers, packing and images: the checked functions and their twins in NumPy.

The functions check their arguments, about 1 us per call, and call the C library or the twin; the checks are what makes the C safe. A twin
takes arguments as its function left them: right dtypes and shapes, outputs C-contiguous and not overlapping inputs. It gives the same
bytes as the C function of its name. From any thread. Keys made of several integers are the same on every platform.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections.abc import Sequence
from functools import lru_cache
from operator import index

import numpy as np
from numpy.typing import NDArray

from penstock.errors import SpecError
from penstock.kernels.library import (
    FLOAT32_DTYPE,
    INT64_DTYPE,
    UINT8_DTYPE,
    Array,
    DType,
    Ints,
    Uint8s,
    block,
    chosen,
    integer,
    place,
    require,
    require_out,
    require_shape,
)

Bools = NDArray[np.bool_]
Floats = NDArray[np.float32]
MASK64 = (1 << 64) - 1
# 2^64 divided by the golden ratio: consecutive multiples of it are spread evenly over 64 bits.
GOLDEN = 0x9E3779B97F4A7C15


def finish(value: int) -> int:
    """Scramble 64 bits one to one: every output bit depends on every input bit (the finaliser of splitmix64)."""
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & MASK64
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & MASK64
    return value ^ (value >> 31)


def mix(*values: int) -> int:
    """Mix integers of any size and sign into one 64-bit key.

    The order and the number of the values count: `mix(1, 2)`, `mix(2, 1)` and `mix(1, 2, 0)` are unrelated. From any thread.

    Args:
        values: what the key is derived from, for example `(seed, epoch, node)`; Python or NumPy integers.

    Returns:
        An integer in 0..2**64-1.

    Raises:
        SpecError: a value is not an integer.
    """
    state = finish(len(values) + GOLDEN)
    for number_of_value, value in enumerate(values):
        try:
            number = index(value)
        except TypeError as error:
            raise SpecError(
                f"value {number_of_value} of a key is {value!r} of type {type(value).__name__}, not an integer",
                where=f"penstock.kernels.mix, argument {number_of_value} of {len(values)}",
                fix="pass integers only, for example mix(seed, epoch, node)",
            ) from error
        if not 0 <= number <= MASK64:
            # Sign and number of words go in first, and all words but the last, so that -1 and 2**64 - 1 do not meet.
            negative = number < 0
            number = ~number if negative else number
            num_words = max(1, (number.bit_length() + 63) // 64)
            state = finish((state ^ MASK64) + 2 * num_words + negative & MASK64)
            for _ in range(num_words - 1):
                state = finish((state ^ (number & MASK64)) + GOLDEN & MASK64)
                number >>= 64
        state = finish((state ^ number) + GOLDEN & MASK64)
    return state


# Positions per step: its arrays stay in the second-level cache.
_PIECE = 8192
_BITS32 = np.uint64(32)
_HALF, _BELOW = 2**62, 2**63 - 1
_MULTIPLY_1 = np.uint64(0xD6E8FEB86659FD93)
_MULTIPLY_2 = np.uint64(0xA0761D6478BD642F)

# Up to `SMALL` elements the permutation is a shuffled table (Fisher-Yates), so that each of the n! orders is equally likely.
# Above, it is a Feistel network over a grid of `num_left` x 2**right_bits cells, `num_left` chosen so that fewer than
# 2**right_bits (about the square root of n) cells lie beyond n: a position that lands there walks on, which is rare.
SMALL = 256
# At n = 257, the weakest case, differences of neighbours over 30,000 keys are 2,100 standard deviations off after 4 rounds, 29 after 6 and
# within 2 after 8. Ten keep a factor of 70 in hand, at 240 M positions/s.
ROUNDS = 10


def read_file_twin(path: bytes, buffer: Uint8s) -> int:
    """Return -1: reading is left to the caller's own way, which uses the same calls of the system."""
    return -1


def read_files_twin(paths: bytes, buffer: Uint8s, most_ns: int, ends: Ints, at: Ints) -> int:
    """Return 0, as `read_file_twin`."""
    return 0


def permute_twin(positions: Ints, num_elements: int, key: int, out: Ints) -> int:
    """Write the permuted positions to `out`; return -1, or the first row whose position is out of range."""
    bad = (positions < 0) | (positions > num_elements - 1)
    if bad.any():
        return int(bad.argmax())
    seed = seed_of(num_elements, key)
    if num_elements <= SMALL:
        np.take(_shuffled_table(num_elements, seed), positions, out=out)
        return -1
    keys = [np.uint64(word) for word in round_keys(seed, ROUNDS)]
    num_left, right_bits = grid(num_elements)
    end = np.uint64(num_elements)
    for start in range(0, positions.size, _PIECE):
        cells = _feistel(positions[start : start + _PIECE].astype(np.uint64), num_left, right_bits, keys)
        beyond = np.flatnonzero(cells >= end)
        while beyond.size:
            walked = _feistel(cells[beyond], num_left, right_bits, keys)
            cells[beyond] = walked
            beyond = beyond[walked >= end]
        out[start : start + _PIECE] = cells.view(np.int64)
    return -1


def seed_of(num_elements: int, key: int) -> int:
    """Mix the number of elements into the key, so that n and n + 1 give unrelated permutations."""
    return finish((key + finish(num_elements)) & MASK64)


def round_keys(seed: int, count: int) -> list[int]:
    """Derive `count` 64-bit keys from one: the outputs of splitmix64."""
    return [finish((seed + GOLDEN * (place + 1)) & MASK64) for place in range(count)]


def grid(num_elements: int) -> tuple[int, int]:
    """Return (num_left, right_bits) with num_left * 2**right_bits >= num_elements; right_bits <= 32, num_left <= 2**31."""
    right_bits = ((num_elements - 1).bit_length() + 1) // 2
    return -(-num_elements >> right_bits), right_bits


def _shuffled_table(num_elements: int, seed: int) -> Ints:
    table = list(range(num_elements))
    for last, word in zip(range(num_elements - 1, 0, -1), round_keys(seed, num_elements - 1), strict=True):
        other = (word * (last + 1)) >> 64
        table[last], table[other] = table[other], table[last]
    return np.array(table, np.int64)


def _feistel(cells: NDArray[np.uint64], num_left: int, right_bits: int, keys: list[np.uint64]) -> NDArray[np.uint64]:
    size = np.uint64(num_left)
    drop = np.uint64(32 - right_bits)
    left = cells >> np.uint64(right_bits)
    right = cells & np.uint64((1 << right_bits) - 1)
    for turn in range(0, ROUNDS, 2):
        left += (_scramble(right, keys[turn]) * size) >> _BITS32
        # Below `size` the difference wraps around to a huge number, so the smaller of the two is the remainder.
        np.minimum(left, left - size, out=left)
        right ^= _scramble(left, keys[turn + 1]) >> drop
    return (left << np.uint64(right_bits)) | right


def _scramble(words: NDArray[np.uint64], key: np.uint64) -> NDArray[np.uint64]:
    mixed = (words ^ key) * _MULTIPLY_1
    mixed ^= mixed >> _BITS32
    mixed *= _MULTIPLY_2
    mixed >>= _BITS32
    return mixed


def philox_uniform_twin(key0: int, key1: int, epochs: Ints, indices: Ints, lanes: NDArray[np.uint64], out: NDArray[np.float64]) -> None:
    """Fill row i of `out` with the first numbers of Philox4x64-10 with key (key0, key1) and counter (0, lane, index, epoch)."""
    key, counters = np.array([key0, key1], np.uint64), np.zeros((len(out), 4), np.uint64)
    counters[:, 1], counters[:, 2], counters[:, 3] = lanes, indices.view(np.uint64), epochs.view(np.uint64)
    for row, counter in zip(out, counters, strict=True):
        row[:] = np.random.Generator(np.random.Philox(key=key, counter=counter)).random(row.size)


def normalize_twin(values: Uint8s, scale: Floats, bias: Floats, out: Floats, channels_first: bool) -> None:
    """Write values * scale + bias, rounded to float32 after the product and after the sum."""
    target = out.transpose(0, 2, 3, 1) if channels_first else out
    for channel in range(values.shape[3]):
        plane = target[..., channel]
        np.multiply(values[..., channel], scale[channel], out=plane, dtype=np.float32)
        np.add(plane, bias[channel], out=plane)


def write_images_twin(
    values: Uint8s, flips: Bools, scale: Floats | None, bias: Floats | None, channels_first: bool, outs: Sequence[Array]
) -> None:
    """Mirror and normalise, or copy, one image after the other."""
    for value, flip, out in zip(values, flips, outs, strict=True):
        view = value[:, ::-1] if flip else value
        if scale is None or bias is None:
            np.copyto(out, view)
        else:
            normalize_twin(view[None], scale, bias, out[None], channels_first)


def crop_image_twin(how: bytes, values: Array, top: int, left: int, out: Array) -> None:
    """Cut a window out of an image; `how` is that of `cropping`."""
    flip, fill = np.frombuffer(how, np.int64)[-2:].tolist()
    _cut(values, top, left, flip, fill, out)


def _cut(values: Array, top: int, left: int, flip: bool, fill: float, out: Array) -> None:
    view = out[:, ::-1] if flip else out
    above, below = max(0, -top), min(out.shape[0], values.shape[0] - top)
    before, behind = max(0, -left), min(out.shape[1], values.shape[1] - left)
    if above >= below or before >= behind:
        out[...] = fill
        return
    for border in (view[:above], view[below:], view[above:below, :before], view[above:below, behind:]):
        border[...] = fill
    view[above:below, before:behind] = values[top + above : top + below, left + before : left + behind]


def crop_images_twin(values: Uint8s, tops: Ints, lefts: Ints, flips: Uint8s, fill: int, out: Uint8s) -> None:
    """Cut one window out of each image."""
    for value, top, left, flip, target in zip(values, tops.tolist(), lefts.tolist(), flips.tolist(), out, strict=True):
        _cut(value, top, left, flip, fill, target)


def deal_twin(positions: Ints, shares: NDArray[np.uint64], sides: Ints, num_children: int, out: Ints, starts: Ints) -> int:
    """Say which child of a tree gives the element at each position.

    Args:
        positions: int64 [n], from 0 on.
        shares: uint64 [m], the share of the left side of each node in 2**63rds, below 2**63.
        sides: int64 [m, 2], the left and the right side of each node: the number of a later node, or ~child.
        num_children: how many children there are.
        out: int64 [4, n]: gets the rows in the order of their children, and the place of each there; the child of each row, and its place.
            Or int64 [2, n]: the last two alone.
        starts: int64 [children + 1]: gets where the rows of each child begin. Or empty.

    Returns:
        -1; the first row whose position is negative; or -2 - node for the first node that is none. Nothing is of use then.
    """
    nodes = list(zip(shares.tolist(), sides.tolist(), strict=True))
    for node, (share, children) in enumerate(nodes):
        if share > _BELOW or not all(node < side < len(nodes) or 0 <= ~side < num_children for side in children):
            return -2 - node
    for row, spot in enumerate(positions.tolist()):
        if spot < 0:
            return row
        node = 0 if nodes else ~0
        while node >= 0:
            share, (left, right) = nodes[node]
            before = (spot * share + _HALF) >> 63
            if ((spot + 1) * share + _HALF) >> 63 > before:
                spot, node = before, left
            else:
                spot, node = spot - before, right
        out[-2:, row] = ~node, spot
    if len(starts):
        out[0] = np.argsort(out[2], kind="stable")
        np.take(out[3], out[0], out=out[1])
        starts[0] = 0
        np.cumsum(np.bincount(out[2], minlength=num_children), out=starts[1:])
    return -1


def best_fit_twin(sizes: Ints, capacity: int, out: Ints) -> int:
    """Write the row of each size; return -1, or the first element whose size is not in 1..capacity."""
    bad = (sizes < 1) | (sizes > capacity)
    if bad.any():
        return int(bad.argmax())
    rooms, num_rows = list[tuple[int, ...]](), 0  # (room, less the later it came to it, row) of rows that are not full, ascending
    for count, element in enumerate(np.argsort(-sizes, kind="stable").tolist()):
        size = int(sizes[element])
        at = bisect_left(rooms, (size,))
        if at < len(rooms):
            room, _, row = rooms.pop(at)
        else:
            room, row, num_rows = capacity, num_rows, num_rows + 1
        out[element] = row
        if room > size:
            insort(rooms, (room - size, -count, row))
    return -1


_UINT64 = np.dtype(np.uint64)
_BOOL = np.dtype(np.bool_)
_LIMIT = 1 << 63
_FIT_LIMIT = 1 << 24  # the C function sorts by two digits of 12 bits
_MASK64 = (1 << 64) - 1


def permute(positions: Ints, num_elements: int, key: int) -> Ints:
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
    positions = block("permute", "positions", positions, INT64_DTYPE)
    num_elements = integer("permute", "num_elements", num_elements, 1, _LIMIT)
    key = integer("permute", "key", key, 0, _MASK64)
    out = np.empty(positions.shape[0], np.int64)
    row = chosen("permute", permute_twin)(positions, num_elements, key, out)
    if row >= 0:
        raise SpecError(
            f"position {positions[row]} is outside 0..{num_elements - 1}",
            where=f"penstock.kernels.permute, positions[{row}]",
            fix="pass positions in 0..num_elements-1; fold longer runs with % first",
        )
    return out


def philox_uniform(key0: int, key1: int, epochs: Ints, indices: Ints, lanes: NDArray[np.uint64], num_draws: int) -> NDArray[np.float64]:
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
    epochs = block("philox_uniform", "epochs", epochs, INT64_DTYPE)
    length = epochs.shape[0]
    indices = block("philox_uniform", "indices", indices, INT64_DTYPE, length)
    lanes = block("philox_uniform", "lanes", lanes, _UINT64, length)
    key0 = integer("philox_uniform", "key0", key0, 0, _MASK64)
    key1 = integer("philox_uniform", "key1", key1, 0, _MASK64)
    num_draws = integer("philox_uniform", "num_draws", num_draws, 0, _LIMIT - 1)
    out = np.empty((length, num_draws), np.float64)
    chosen("philox_uniform", philox_uniform_twin)(key0, key1, epochs, indices, lanes, out)
    return out


def normalize(values: Uint8s, scale: Floats, bias: Floats, out: Floats, channels_first: bool) -> None:
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
    require("normalize", "values", values, UINT8_DTYPE, 4)
    length, height, width, channels = values.shape
    integer("normalize", "number of channels of values", channels, 1, 4)
    scale = block("normalize", "scale", scale, FLOAT32_DTYPE, channels)
    bias = block("normalize", "bias", bias, FLOAT32_DTYPE, channels)
    shape = (length, channels, height, width) if channels_first else (length, height, width, channels)
    require_out("normalize", out, FLOAT32_DTYPE, shape, values)
    chosen("normalize", normalize_twin)(values, scale, bias, out, channels_first)


def write_images(
    values: Uint8s, flips: Bools, scale: Floats | None, bias: Floats | None, channels_first: bool, outs: Sequence[Array]
) -> None:
    """Write several images, each to an array of its own, with one call. From any thread.

    Args:
        values: uint8 [n, h, w, c] with c in 1..4.
        flips: bool [n], whether an image is mirrored.
        scale: float32 [c], as in `normalize`; None to copy the bytes.
        bias: float32 [c]; None with `scale`.
        channels_first: the layout of `outs`, where they are normalised.
        outs: n arrays, C-contiguous, float32 [c, h, w] when channels_first, else [h, w, c]; uint8 [h, w, c] where bytes are copied. They
            share no memory with `values` nor each other.

    Raises:
        SpecError: an array of another dtype, shape or layout.
    """
    require("write_images", "values", values, UINT8_DTYPE, 4)
    values = np.ascontiguousarray(values)
    length, height, width, channels = values.shape
    integer("write_images", "number of channels of values", channels, 1, 4)
    flips = block("write_images", "flips", flips, _BOOL, length)
    if scale is not None:
        scale = block("write_images", "scale", scale, FLOAT32_DTYPE, channels)
        bias = block("write_images", "bias", bias, FLOAT32_DTYPE, channels)  # type: ignore[arg-type]  # None is refused
    shape = (channels, height, width) if channels_first else (height, width, channels)
    dtype = UINT8_DTYPE if scale is None else FLOAT32_DTYPE
    integer("write_images", "number of outs", len(outs), length, length)
    for out in outs:
        if out.shape != shape or out.dtype is not dtype or not out.flags.carray:
            require_out("write_images", out, dtype, shape, values)
    chosen("write_images", write_images_twin)(values, flips, scale, bias, channels_first, outs)


def read_file(path: bytes, buffer: Uint8s) -> int:
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
    require("read_file", "buffer", buffer, UINT8_DTYPE, 1)
    if not buffer.flags.carray or b"\0" in path:
        return -1
    return chosen("read_file", read_file_twin)(path, buffer)


def read_files(paths: bytes, buffer: Uint8s, most_ns: int, ends: Ints, at: Ints) -> int:
    """Read several files as `read_file` does, one behind the other, with one call. From any thread.

    Args:
        paths: of the files, a 0 behind each.
        buffer: uint8, C-contiguous, like the others.
        most_ns: after so many nanoseconds no other file is begun.
        ends: int64 [files], gets where each ends in the buffer.
        at: int64 [1], gets the number of the file that is being read.

    Returns:
        How many were read, before the first that does not fit, is out of the ordinary, or is not begun in time.

    Raises:
        SpecError: an array of another dtype or shape.
    """
    require("read_files", "buffer", buffer, UINT8_DTYPE, 1)
    ends = block("read_files", "ends", ends, INT64_DTYPE, paths.count(b"\0"))
    at = block("read_files", "at", at, INT64_DTYPE, 1)
    return chosen("read_files", read_files_twin)(paths, buffer, most_ns, ends, at)


def crop_image(values: Array, top: int, left: int, flip: bool, fill: float, out: Array) -> None:
    """Cut a window out of one image, and mirror it left to right where asked. From any thread.

    The C function copies bytes: it does it where the pixels of a row follow each other, and the fill is 0 or that of uint8.

    Args:
        values: [h, w] or [h, w, c] of any dtype and strides.
        top: first row of the window; may be negative or beyond the image.
        left: first column of the window; may be negative or beyond the image.
        flip: whether the window is mirrored.
        fill: the value of what lies outside of the image.
        out: [H, W] or [H, W, c], of the same dtype, not in the memory of `values`.

    Raises:
        OverflowError: the dtype cannot hold `fill`.
    """
    how = cropping(values.shape, values.strides, values.dtype, out.shape, out.dtype, flip, fill) if out.flags.carray else None
    if how is None:
        _cut(values, top, left, flip, fill, out)
    else:
        chosen("crop_image", crop_image_twin)(how, values, top, left, out)


@lru_cache(maxsize=4096)
def cropping(
    shape: tuple[int, ...], strides: tuple[int, ...], dtype: DType, out_shape: tuple[int, ...], out_dtype: DType, flip: bool, fill: float
) -> bytes | None:
    """Return what C takes for images of one layout: int64 [8]; None where it cannot do them."""
    size = math.prod(shape[2:]) * dtype.itemsize
    plain = strides[1:] == (size, dtype.itemsize)[: len(shape) - 1] and shape[2:] == out_shape[2:] and dtype == out_dtype
    if not plain or dtype.hasobject or 0 in out_shape or (fill and dtype != UINT8_DTYPE):
        return None
    return np.array([*shape[:2], size, strides[0], *out_shape[:2], flip, fill], np.int64).tobytes()


def crop_images(values: Uint8s, tops: Ints, lefts: Ints, flips: Uint8s, fill: int, out: Uint8s) -> None:
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
    require("crop_images", "values", values, UINT8_DTYPE, 4)
    require("crop_images", "out", out, UINT8_DTYPE, 4)
    length, _, _, channels = values.shape
    if not values.flags.c_contiguous:
        raise SpecError(
            f"values is not C-contiguous: strides {values.strides} for shape {values.shape}",
            where=place("crop_images", "values"),
            fix="pass np.ascontiguousarray(values)",
        )
    tops = block("crop_images", "tops", tops, INT64_DTYPE, length)
    lefts = block("crop_images", "lefts", lefts, INT64_DTYPE, length)
    flips = block("crop_images", "flips", flips, UINT8_DTYPE, length)
    fill = integer("crop_images", "fill", fill, 0, 255)
    require_out("crop_images", out, UINT8_DTYPE, (length, out.shape[1], out.shape[2], channels), values)
    chosen("crop_images", crop_images_twin)(values, tops, lefts, flips, fill, out)


def deal(positions: Ints, shares: NDArray[np.uint64], sides: Ints, num_children: int, *, grouped: bool = True) -> tuple[Ints, Ints]:
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
        SpecError: an array of another dtype, shape or layout.
        AssertionError: a side is neither a later node nor a child, or a position is negative.
    """
    positions = block("deal", "positions", positions, INT64_DTYPE)
    shares = block("deal", "shares", shares, _UINT64)
    num_children = integer("deal", "num_children", num_children, 1, _LIMIT >> 1)
    require("deal", "sides", sides, INT64_DTYPE, 2)
    require_shape("deal", "sides", sides, (shares.shape[0], 2))
    sides = np.require(sides, requirements=("C", "A"))
    out = np.empty((4 if grouped else 2, positions.shape[0]), np.int64)
    starts = np.empty(num_children + 1 if grouped else 0, np.int64)
    row = chosen("deal", deal_twin)(positions, shares, sides, num_children, out, starts)
    assert row == -1, f"position {row} is negative" if row >= 0 else f"node {-2 - row} leads nowhere"
    return out, starts


def best_fit(sizes: Ints, capacity: int) -> Ints:
    """Pack elements into rows by best fit decreasing. From any thread.

    The largest goes first, equal ones in their order, each into the fullest row that has room: of several the one that came to this room
    last. The C function takes memory for `capacity` rooms, and the twin does it where these are 2**24 or more.

    Args:
        sizes: int64 [n], each in 1..capacity.
        capacity: of a row, 1 or more.

    Returns:
        int64 [n]: the row of each element; rows are numbered as they are opened.

    Raises:
        SpecError: wrong dtype or shape, or a number out of range.
    """
    sizes = block("best_fit", "sizes", sizes, INT64_DTYPE)
    capacity = integer("best_fit", "capacity", capacity, 1, _LIMIT - 1)
    out = np.empty(sizes.shape[0], np.int64)
    small = capacity < _FIT_LIMIT and sizes.shape[0] < _LIMIT >> 32
    row = (chosen("best_fit", best_fit_twin) if small else best_fit_twin)(sizes, capacity, out)
    if row >= 0:
        raise SpecError(
            f"element {row} has size {sizes[row]}, outside 1..{capacity}",
            where=f"penstock.kernels.best_fit, sizes[{row}]",
            fix="leave out what has no size, and cut what is larger than a row",
        )
    return out
