"""Positions: lengths and places of shard, take, skip, repeat, concatenate, batch and window; keyed shuffles.

`None` is an unknown length, INFINITE an endless one.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from penstock import kernels

__all__ = [
    "INFINITE",
    "GroupOrders",
    "Length",
    "batch_length",
    "batch_rows",
    "by_epoch",
    "concatenate_parts",
    "grouped",
    "padded_round",
    "rank_length",
    "repeat_length",
    "repeated",
    "shard_length",
    "shard_resume",
    "sharded",
    "shuffled",
    "window_length",
    "window_shuffled",
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
    batch_size, shift, stride = _within(length, batch_size, batch_size if shift is None else shift, stride)
    starts = positions * shift
    rows = (starts[:, None] + np.arange(batch_size, dtype=np.int64) * stride).ravel()
    row_epochs = np.repeat(epochs, batch_size)
    if length is None or length == INFINITE or len(rows) == 0 or int(rows.max()) < length:
        return row_epochs, rows, [batch_size] * len(positions)
    sizes = np.clip(-((starts - int(length)) // stride), 0, batch_size)
    keep = rows < length
    return row_epochs[keep], rows[keep], sizes.tolist()


def _within(length: Length, size: int, shift: int, stride: int) -> tuple[int, int, int]:
    """Return size, shift and stride of windows that are no larger than there are elements: beyond memory and 64 bits they are harmless."""
    if not length or length == INFINITE:
        return size, shift, stride
    end = int(length)
    stride = min(stride, end)
    return min(size, -(-end // stride)), min(shift, end), stride


# -- keyed shuffles ---------------------------------------------------------------------------------------------------------------

_SMALL_WINDOW = 256  # up to here sorting whole windows of hashes beats one Feistel call per window
_GLOBAL, _FIRST_PASS, _SECOND_PASS = 1, 2, 3


def by_epoch(epochs: Ints) -> list[tuple[int, slice]]:
    """Return (epoch, slice) for each run of equal values in `epochs`."""
    borders = [0, *(np.flatnonzero(np.diff(epochs)) + 1).tolist(), len(epochs)]
    return [(int(epochs[start]), slice(start, stop)) for start, stop in pairwise(borders) if start < stop]


def shuffled(epochs: Ints, positions: Ints, num_elements: int, *, seed: int, reshuffle: bool) -> Ints:
    """Return where each position of the shuffled order stands in the order below it.

    Args:
        epochs: int64[n], the pass that each position belongs to.
        positions: int64[n], each in 0..num_elements-1.
        num_elements: length of one pass, 1 to 2**63.
        seed: of the shuffle. Two shuffles of one length with one seed give the same permutation.
        reshuffle: whether each epoch has a permutation of its own.
    """
    return _per_epoch(
        epochs, positions, reshuffle, lambda epoch, part: kernels.permute(part, num_elements, kernels.mix(seed, epoch, _GLOBAL))
    )


def window_shuffled(epochs: Ints, positions: Ints, num_elements: int, window: int, *, seed: int, reshuffle: bool) -> Ints:
    """Shuffle so that no element moves `window` places or more; `window >= num_elements` is the global shuffle.

    Two keyed permutations of windows of half the size, the second shifted by half of one, one after the other.
    """
    if window >= num_elements:
        return shuffled(epochs, positions, num_elements, seed=seed, reshuffle=reshuffle)
    half = (window + 1) // 2

    def permute(epoch: int, part: Ints) -> Ints:
        part = _permute_windows(part, num_elements, half, half // 2, kernels.mix(seed, epoch, _SECOND_PASS))
        return _permute_windows(part, num_elements, half, 0, kernels.mix(seed, epoch, _FIRST_PASS))

    return _per_epoch(epochs, positions, reshuffle, permute)


def _per_epoch(epochs: Ints, positions: Ints, reshuffle: bool, permute: Callable[[int, Ints], Ints]) -> Ints:
    if not len(positions):  # a shuffle of nothing has no permutation either
        return positions
    first = int(epochs[0]) if reshuffle else 0
    if not reshuffle or (epochs == first).all():
        return permute(first, positions)
    out = np.empty_like(positions)
    for epoch, part in by_epoch(epochs):
        out[part] = permute(epoch, np.ascontiguousarray(positions[part]))
    return out


def _permute_windows(positions: Ints, num_elements: int, size: int, shift: int, key: int) -> Ints:
    """Permute inside windows [k*size - shift, (k+1)*size - shift) cut to 0..num_elements-1."""
    if size <= 1:
        return positions
    windows = (positions + shift) // size
    starts = np.maximum(windows * size - shift, 0)
    stops = np.minimum((windows + 1) * size - shift, num_elements)
    numbers, inverse = np.unique(windows, return_inverse=True)
    out = np.empty_like(positions)
    if size <= _SMALL_WINDOW:
        first = np.maximum(numbers * size - shift, 0)
        lengths = np.minimum((numbers + 1) * size - shift, num_elements) - first
        table = _window_table(numbers, lengths, size, key)
        out[:] = starts + table[inverse, positions - starts]
        return out
    for row, number in enumerate(numbers.tolist()):
        members = np.flatnonzero(inverse == row)
        start, stop = int(starts[members[0]]), int(stops[members[0]])
        out[members] = start + kernels.permute(positions[members] - start, stop - start, kernels.mix(key, number))
    return out


def _window_table(numbers: Ints, lengths: Ints, size: int, key: int) -> Ints:
    """Rank hashes of (key, window, place): row r holds a permutation of 0..lengths[r]-1, then the unused places."""
    places = np.arange(size, dtype=np.uint64)
    hashes = _scramble(numbers.astype(np.uint64)[:, None] * np.uint64(0x9E3779B97F4A7C15) + np.uint64(key))
    hashes = _scramble(hashes + (places + np.uint64(1)) * np.uint64(0xD1B54A32D192ED03))
    hashes |= np.uint64(1)
    hashes[places[None, :] >= lengths.astype(np.uint64)[:, None]] = np.uint64(0xFFFFFFFFFFFFFFFF)
    return np.argsort(hashes, axis=1, kind="stable").astype(np.int64)


def _scramble(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Mix 64-bit values (the splitmix64 finaliser, Steele, Lea and Flood 2014)."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


_GROUPS, _ROWS = 4, 5  # what a key is for, beside the 1 to 3 of `permutation`
_KEPT_EPOCHS = 4


class _Pass(NamedTuple):
    """One epoch: which group comes at each rank, where each rank begins in the shuffled order, and where each window does."""

    epoch: int
    groups: Ints
    borders: Ints
    windows: Ints
    key: int


class GroupOrders:
    """The shuffled order of a grouped source: any position of any epoch in O(log groups), with O(groups) memory.

    In each epoch the groups are permuted. Then each `window` of them that stand next to each other are one window, in which positions are
    permuted; the last window may have fewer groups. Thread-safe.

    Args:
        starts: int64 [groups + 1], ascending without repeats, from 0: the first position of each group, then the length.
        window: groups in a window, at least 1.
        seed: of the shuffle.
        reshuffle: whether each epoch has an order of its own.
    """

    __slots__ = ("_kept", "_reshuffle", "_seed", "_sizes", "_starts", "_window")

    def __init__(self, starts: Ints, window: int, *, seed: int, reshuffle: bool) -> None:
        self._starts, self._sizes = starts, np.diff(starts)
        self._window, self._seed, self._reshuffle = min(window, max(1, len(self._sizes))), seed, reshuffle
        self._kept: tuple[_Pass, ...] = ()

    def shuffled(self, epochs: Ints, positions: Ints) -> Ints:
        """Return where each position of the shuffled order stands in the order below it.

        Args:
            epochs: int64 [n], the pass that each position belongs to.
            positions: int64 [n], each in 0..length-1.
        """
        if not self._reshuffle:
            return _places(self._pass(0), self._starts, positions)
        out = np.empty_like(positions)
        for epoch, part in by_epoch(epochs):
            out[part] = _places(self._pass(epoch), self._starts, positions[part])
        return out

    def _pass(self, epoch: int) -> _Pass:
        # Replaced as a whole: two threads that miss at once make the same one twice, and nothing else.
        kept = self._kept
        for one in kept:
            if one.epoch == epoch:
                return one
        made = self._made(epoch)
        self._kept = (made, *kept[: _KEPT_EPOCHS - 1])
        return made

    def _made(self, epoch: int) -> _Pass:
        count = len(self._sizes)
        groups = np.arange(count, dtype=np.int64)
        if count:
            groups = kernels.permute(groups, count, kernels.mix(self._seed, epoch, _GROUPS))
        borders = np.zeros(count + 1, np.int64)
        np.cumsum(self._sizes[groups], out=borders[1:])
        return _Pass(epoch, groups, borders, borders[: -1 : self._window], kernels.mix(self._seed, epoch, _ROWS))


def _places(one: _Pass, starts: Ints, positions: Ints) -> Ints:
    if not len(positions):
        return positions
    mixed = np.empty_like(positions)
    windows = np.searchsorted(one.windows, positions, side="right") - 1
    for window, members in grouped(windows):
        first = int(one.windows[window])
        end = int(one.windows[window + 1]) if window + 1 < len(one.windows) else int(one.borders[-1])
        mixed[members] = first + kernels.permute(positions[members] - first, end - first, kernels.mix(one.key, window))
    ranks = np.searchsorted(one.borders, mixed, side="right") - 1
    return starts[one.groups[ranks]] + (mixed - one.borders[ranks])
