"""Several branches behind one run of positions: each computes its own elements at once, then all are put back in order."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from penstock._ops.block import UNLIMITED, Block, ElementFailed, Ints, Keys, zeros
from penstock._ops.operator import Leaf
from penstock._ops.worker import WorkerContext

__all__ = ["BranchesLeaf", "Part"]

Part = tuple[int, Ints, Ints, Ints]
"""(branch, offsets into the positions, epochs and positions in the branch)."""


class BranchesLeaf(ABC):
    """A leaf whose elements come from one of several branches each. The lane tells apart equal indices of different branches."""

    __slots__ = ()

    branches: tuple[Leaf, ...]

    def share_keys(self) -> bool:
        """Tell whether the branches are parts of one dataset, whose keys they share."""
        return False

    @abstractmethod
    def parts(self, epochs: Ints, positions: Ints) -> Sequence[Part]:
        """Return which elements each branch gives."""

    def run(self, epochs: Ints, positions: Ints, worker: WorkerContext) -> Block:
        blocks: list[Block] = []
        places: list[Ints] = []
        numbers: list[int] = []
        failures: list[ElementFailed] = []
        left, end = worker.room, len(positions)  # each branch gives one element at least, and all those before `end`
        for branch, offsets, below_epochs, below in self.parts(epochs, positions):
            count = len(offsets) if end == len(positions) else int(np.searchsorted(offsets, end))
            if not count:
                continue
            try:
                block = read_within(self.branches[branch], below_epochs[:count], below[:count], worker, left)
            except ElementFailed as failure:
                failures.append(failure.moved(int(offsets[failure.offset])))
                continue
            left -= block.num_bytes
            if len(block) < count:
                end = int(offsets[len(block)])
            blocks.append(block)
            places.append(offsets[: len(block)])
            numbers.append(branch)
        if end < len(positions):
            epochs, positions = epochs[:end], positions[:end]
            kept = [int(np.searchsorted(offsets, end)) for offsets in places]
            blocks = [block if len(block) == count else block.select(slice(0, count)) for block, count in zip(blocks, kept, strict=True)]
            places = [offsets[:count] for offsets, count in zip(places, kept, strict=True)]
        if not failures and not _alike(blocks):
            failures = _read(blocks, places)
        if failures:
            raise min(failures, key=lambda failure: failure.offset)
        joined = self._joined(blocks, places, numbers, epochs, positions)
        joined.num_bytes = worker.room - left
        return joined

    def _joined(self, blocks: list[Block], places: list[Ints], numbers: list[int], epochs: Ints, positions: Ints) -> Block:
        """Put the elements of all branches in the order of their offsets."""
        if not blocks:
            return Block(epochs, positions, np.zeros(0, np.uint64), rows=[])
        order = np.concatenate(places)
        back = np.empty_like(order)
        back[order] = np.arange(len(order))
        lanes = np.concatenate([block.lanes for block in blocks])
        if not self.share_keys():
            lanes = lanes * np.uint64(len(self.branches)) + np.repeat(np.array(numbers, np.uint64), [len(part) for part in places])
        keys = (np.concatenate([block.epochs for block in blocks])[back], np.concatenate([block.indices for block in blocks])[back])
        if _alike(blocks):
            return Block(*keys, lanes[back], columns=(blocks[0].structure(), _columns(blocks, back)))
        rows = chain.from_iterable(block.rows() for block in blocks)
        # Through an array of references: 20 ns per element, where a loop over indices needs 48.
        return Block(*keys, lanes[back], rows=np.fromiter(rows, object, len(back)).take(back).tolist())

    def where(self, epoch: int, position: int) -> str:
        branch, below_epoch, below = self._branch(epoch, position)
        return self.branches[branch].where(below_epoch, below)

    def key(self, epoch: int, position: int) -> tuple[int, int]:
        branch, below_epoch, below = self._branch(epoch, position)
        return self.branches[branch].key(below_epoch, below)

    def keys(self, epochs: Ints, positions: Ints) -> Keys:
        out = epochs.copy(), positions.copy(), zeros(len(positions))
        for branch, offsets, below_epochs, below in self.parts(epochs, positions):
            out[0][offsets], out[1][offsets], lanes = self.branches[branch].keys(below_epochs, below)
            own = np.uint64(0 if self.share_keys() else branch)
            out[2][offsets] = lanes * np.uint64(1 if self.share_keys() else len(self.branches)) + own
        return out

    def _branch(self, epoch: int, position: int) -> tuple[int, int, int]:
        ((branch, _, epochs, below),) = self.parts(np.array([epoch], np.int64), np.array([position], np.int64))
        return branch, int(epochs[0]), int(below[0])


def read_within(leaf: Leaf, epochs: Ints, positions: Ints, worker: WorkerContext, room: int) -> Block:
    """Return the elements of a leaf, read already unless they come in columns; fewer than were asked for where there is no room for all."""
    with worker.given_room(max(0, room) if room < UNLIMITED else room):
        block = leaf.run(epochs, positions, worker)
        block.room = worker.room
    if not block.columnar:
        block.rows()
    return block


def _alike(blocks: list[Block]) -> bool:
    """Tell whether all blocks have columns of one structure, shape and dtype: then no element is made one by one."""
    if not blocks or not all(block.columnar for block in blocks):
        return False
    structure, types = blocks[0].structure(), blocks[0].leaf_types()
    return all(block.structure() == structure and block.leaf_types() == types for block in blocks[1:])


def _read(blocks: list[Block], places: list[Ints]) -> list[ElementFailed]:
    """Make rows of all blocks; return the failures, counted in the offsets of the whole."""
    failures = []
    for block, offsets in zip(blocks, places, strict=True):
        try:
            block.rows()
        except ElementFailed as failure:
            failures.append(failure.moved(int(offsets[failure.offset])))
    return failures


def _columns(blocks: list[Block], back: Ints) -> list[NDArray[Any]]:
    return [np.concatenate(parts)[back] for parts in zip(*(block.columns() for block in blocks), strict=True)]
