"""Where chains begin: a source, given elements, and the branches of zip, concatenate and an inner batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from penstock._contracts.element import bytes_of_all
from penstock._contracts.source import ColumnSource, DistantSource, IndexedSource, TransientSource
from penstock._ops.block import UNLIMITED, Block, ElementFailed, Ints, Keys, zeros
from penstock._ops.branches import BranchesLeaf, Part, read_within
from penstock._ops.collation import Collation
from penstock._ops.operator import ChainOp, Leaf
from penstock._ops.worker import WorkerContext
from penstock._order.arithmetic import Length, batch_rows, concatenate_parts

__all__ = ["BatchLeaf", "ConcatenateLeaf", "ReadLeaf", "ZipLeaf", "rows_at_once"]


@dataclass(frozen=True, slots=True)
class ReadLeaf:
    """Elements of an indexed source."""

    source: IndexedSource
    columns: ColumnSource | None
    transient: TransientSource | None

    def run(self, epochs: Ints, positions: Ints, worker: WorkerContext) -> Block:
        lanes = zeros(len(positions))
        return Block(epochs, positions, lanes, source=self.source, column_source=self.columns, transient=self.transient)

    def where(self, epoch: int, position: int) -> str:
        return self.source.describe(position)

    def key(self, epoch: int, position: int) -> tuple[int, int]:
        return epoch, position

    def keys(self, epochs: Ints, positions: Ints) -> Keys:
        return epochs, positions, zeros(len(positions))


@dataclass(frozen=True, slots=True)
class ZipLeaf:
    """Tuples of one element of each branch; the first branch gives the key."""

    branches: tuple[Leaf, ...]

    def run(self, epochs: Ints, positions: Ints, worker: WorkerContext) -> Block:
        blocks: list[Block] = []
        left, count = worker.room, len(positions)
        for branch in self.branches:
            blocks.append(read_within(branch, epochs[:count], positions[:count], worker, left))
            left, count = left - blocks[-1].num_bytes, len(blocks[-1])
        rows = list(zip(*(block.rows()[:count] for block in blocks), strict=True))
        return blocks[0].with_rows(cast("list[Any]", rows), sum(block.num_bytes for block in blocks))

    def where(self, epoch: int, position: int) -> str:
        return " with ".join(branch.where(epoch, position) for branch in self.branches)

    def key(self, epoch: int, position: int) -> tuple[int, int]:
        return self.branches[0].key(epoch, position)

    def keys(self, epochs: Ints, positions: Ints) -> Keys:
        return self.branches[0].keys(epochs, positions)


@dataclass(frozen=True, slots=True)
class ConcatenateLeaf(BranchesLeaf):
    """Elements of several branches, one after the other."""

    branches: tuple[Leaf, ...]
    lengths: tuple[int, ...]
    parts_of_one: bool

    def share_keys(self) -> bool:
        return self.parts_of_one

    def parts(self, epochs: Ints, positions: Ints) -> Sequence[Part]:
        found = concatenate_parts(positions, list(self.lengths))
        return [(branch, offsets, epochs[offsets], below) for branch, offsets, below in found]


def rows_at_once(leaf: Leaf) -> int:
    """Return how many elements of a leaf should be asked for at once, at least: more than one only where a source is far away."""
    if isinstance(leaf, ReadLeaf):
        return leaf.source.rows_at_once if isinstance(leaf.source, DistantSource) else 1
    if isinstance(leaf, ChainOp):
        return rows_at_once(leaf.leaf)
    return max(map(rows_at_once, getattr(leaf, "branches", ())), default=1)


@dataclass(frozen=True, slots=True)
class BatchLeaf:
    """Batches and windows computed whole, for `ds[i]`, for branches and for batches of batches."""

    child: ChainOp
    length: Length
    batch_size: int
    collation: Collation
    shift: int
    stride: int

    def run(self, epochs: Ints, positions: Ints, worker: WorkerContext) -> Block:
        row_epochs, row_positions, sizes = batch_rows(epochs, positions, self.length, self.batch_size, self.shift, self.stride)
        try:
            rows = self._rows(row_epochs, row_positions, worker)
        except ElementFailed as failure:
            moved = failure.moved(int(np.searchsorted(np.cumsum(sizes), failure.offset, side="right")))
            moved.inside_batch, moved.whole = True, False
            raise moved from failure.error
        if len(rows) < len(row_positions):
            count = int(np.searchsorted(np.cumsum(sizes), len(rows), side="right"))
            if not count:
                with worker.given_room(UNLIMITED):
                    return self.run(epochs[:1], positions[:1], worker)
            epochs, positions, sizes = epochs[:count], positions[:count], sizes[:count]
        out, start = [], 0
        for number, size in enumerate(sizes):

            def names(row: int, start: int = start) -> str:
                return self.child.where(int(row_epochs[start + row]), int(row_positions[start + row]))

            try:
                out.append(self.collation.collate(rows[start : start + size], names))
            except BaseException as error:
                failed = ElementFailed(number, "batch", error)
                failed.final = True  # its elements are good, they only do not fit each other
                raise failed from error
            start += size
        block = Block(epochs, positions, zeros(len(positions)), rows=out)
        block.num_bytes = bytes_of_all(out)
        return block

    def _rows(self, epochs: Ints, positions: Ints, worker: WorkerContext) -> list[Any]:
        """Compute the elements of all batches; where the worker can, it puts others in the place of those that fail."""
        try:
            return read_within(self.child, epochs, positions, worker, worker.room).rows()
        except ElementFailed as failure:
            if worker.mend is None or failure.final:
                raise
            return worker.mend(self.child, self.length, epochs, positions)

    def where(self, epoch: int, position: int) -> str:
        first = position * self.shift
        return f"batch {position} (from {self.child.where(epoch, first)})"

    def key(self, epoch: int, position: int) -> tuple[int, int]:
        return epoch, position

    def keys(self, epochs: Ints, positions: Ints) -> Keys:
        return epochs, positions, zeros(len(positions))
