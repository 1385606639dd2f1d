"""Shuffles of a source that lies in groups: groups in another order, positions inside windows of several groups."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from penstock import kernels
from penstock._order.arithmetic import grouped
from penstock._order.permutation import by_epoch

__all__ = ["GroupOrders"]

Ints = NDArray[np.int64]
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
