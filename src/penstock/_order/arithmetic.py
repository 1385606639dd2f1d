"""Lengths and positions of shard, take, skip, repeat, concatenate, batch and window.

`None` is an unknown length, INFINITE an endless one.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "INFINITE",
    "Length",
    "batch_length",
    "batch_rows",
    "concatenate_parts",
    "grouped",
    "padded_round",
    "rank_length",
    "repeat_length",
    "repeated",
    "shard_length",
    "shard_resume",
    "sharded",
    "window_length",
]

INFINITE = math.inf
Length = int | float | None
Ints = NDArray[np.int64]


def shard_length(length: Length, num_shards: int, index: int) -> Length:
    """Count the positions p of 0..length-1 with p % num_shards == index."""
    if length is None or length == INFINITE:
        return length
    return max(0, (int(length) - index + num_shards - 1) // num_shards)


def rank_length(length: Length, num_ranks: int, first: int, *, padded: bool) -> Length:
    """Count the rounds of `num_ranks` positions in first..length-1, the last one too when it is `padded`."""
    if length is None or length == INFINITE:
        return length
    left = max(0, int(length) - first)
    return -(-left // num_ranks) if padded else left // num_ranks


def padded_round(positions: Ints, length: int, num_ranks: int, first: int) -> Ints:
    """Return the positions of a rank, those behind the end replaced by the first ones of the last round."""
    num_last = (length - first) % num_ranks
    return np.where(positions < length, positions, length - num_last + (positions - first) % num_ranks % max(1, num_last))


def sharded(positions: Ints, num_shards: int, index: int) -> Ints:
    """Return the global position of each local one: every `num_shards`-th, so that consecutive shards share each global batch."""
    return positions * num_shards + index


def shard_resume(global_position: int, num_shards: int, index: int) -> int:
    """Return the first local position of shard `index` whose global position is `global_position` or later."""
    return max(0, (global_position - index + num_shards - 1) // num_shards)


def repeat_length(length: Length, count: int | None) -> Length:
    """Return the length of `count` passes; None for endless passes. An empty dataset stays empty however often it is repeated."""
    if length == 0 or length is None:
        return length
    return INFINITE if count is None else length * count


def repeated(epochs: Ints, positions: Ints, length: int, count: int | None) -> tuple[Ints, Ints]:
    """Return (epoch, position) below a repeat of `count` passes of `length` positions each, in arrays of their own."""
    if int(positions[-1] if len(positions) else 0) < length and (len(positions) == 0 or int(positions.max()) < length):
        passes: Ints | int = 0
        inner = positions.copy()  # a failing element is moved by writing to each level
    else:
        passes = positions // length
        inner = positions - passes * length
    below = epochs + passes if count is None else epochs * count + passes
    return below, inner


def concatenate_parts(positions: Ints, lengths: list[int]) -> list[tuple[int, Ints, Ints]]:
    """Return (child, offsets into `positions`, the child's positions) for each child that `positions` touch."""
    borders = np.cumsum(np.asarray(lengths, np.int64))
    children = np.searchsorted(borders, positions, side="right")
    starts = borders - np.asarray(lengths, np.int64)
    return [(child, offsets, positions[offsets] - starts[child]) for child, offsets in grouped(children)]


def grouped(children: Ints) -> list[tuple[int, Ints]]:
    """Return (child, offsets of it in ascending order) for each child that occurs."""
    order = np.argsort(children, kind="stable")
    found = children[order]
    borders = np.flatnonzero(np.diff(found)) + 1
    return [(int(children[part[0]]), part) for part in np.split(order, borders) if len(part)]


def batch_length(length: Length, batch_size: int, drop_remainder: bool) -> Length:
    """Count the batches of `length` elements."""
    if length is None or length == INFINITE:
        return length
    return int(length) // batch_size if drop_remainder else -(-int(length) // batch_size)


def window_length(length: Length, size: int, shift: int, stride: int, drop_remainder: bool) -> Length:
    """Count the windows of `length` elements: one at every `shift`, as tf.data counts them.

    Windows at the end are short, down to one element; `drop_remainder` keeps those that have all `size`.
    """
    if length is None or length == INFINITE:
        return length
    if not drop_remainder:
        return -(-int(length) // shift)
    rest = int(length) - ((size - 1) * stride + 1)
    return 0 if rest < 0 else rest // shift + 1


def batch_rows(
    epochs: Ints, positions: Ints, length: Length, batch_size: int, shift: int | None = None, stride: int = 1
) -> tuple[Ints, Ints, list[int]]:
    """Return the (epoch, position) of every element of the given batches, and how many each batch has.

    Batch i has the elements i * shift + j * stride for j below `batch_size` (a plain batch moves by its own size); the last ones of a pass
    of `length` elements have what is left over.
    """
    shift = batch_size if shift is None else shift
    if length is not None and length != INFINITE and length > 0:  # no more than there are: sizes beyond memory and 64 bits are harmless
        end = int(length)
        stride = min(stride, end)
        batch_size, shift = min(batch_size, -(-end // stride)), min(shift, end)
    starts = positions * shift
    rows = (starts[:, None] + np.arange(batch_size, dtype=np.int64) * stride).ravel()
    row_epochs = np.repeat(epochs, batch_size)
    if length is None or length == INFINITE or len(rows) == 0 or int(rows.max()) < length:
        return row_epochs, rows, [batch_size] * len(positions)
    sizes = np.clip(-((starts - int(length)) // stride), 0, batch_size)
    keep = rows < length
    return row_epochs[keep], rows[keep], sizes.tolist()
