"""Keyed shuffles of positions, any of them at once: global and inside a moving window in O(1) memory; of whole groups."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from penstock import kernels
from penstock._order.arithmetic import grouped

__all__ = ["GroupOrders", "by_epoch", "shuffled", "window_shuffled"]


Ints = NDArray[np.int64]
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
