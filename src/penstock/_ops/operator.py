"""What the engine asks of an operator, and a chain of them over a leaf."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import numpy as np

from penstock._ops.block import Block, ElementFailed, Ints, Keys
from penstock._ops.rows import Rows
from penstock._ops.worker import WorkerContext
from penstock._system.lazy import dataclass


class Leaf(Protocol):
    """The lower end of a chain: it turns positions into elements."""

    def run(self, epochs: Ints, positions: Ints, worker: WorkerContext) -> Block:
        """Compute the elements at `positions` of passes `epochs`."""

    def where(self, epoch: int, position: int) -> str:
        """Say where one element comes from."""

    def keys(self, epochs: Ints, positions: Ints) -> Keys:
        """Return the keys that `run` gives, without computing an element."""


class Operator(Protocol):
    """One step of a chain, one to one on positions. Frozen; shared by all workers."""

    @property
    def name(self) -> str:
        """The stage name for errors and figures; empty for pure arithmetic."""

    def source_positions(self, epochs: Ints, positions: Ints) -> tuple[Ints, Ints]:
        """Return the (epochs, positions) below."""

    def apply(self, block: Block, epochs: Ints, positions: Ints, worker: WorkerContext) -> Block:
        """Turn the block from below into this operator's; `epochs` and `positions` are its own.

        What comes out may be shorter: see `Block`.
        """


class OneToOne:
    """An operator that leaves positions alone."""

    __slots__ = ()

    def source_positions(self, epochs: Ints, positions: Ints) -> tuple[Ints, Ints]:
        """Return what it was given."""
        return epochs, positions


@runtime_checkable
class WritesRows(Protocol):
    """An operator that can write its results straight into a batch."""

    def apply_into(self, block: Block, worker: WorkerContext, sink: Rows, row: int) -> tuple[int, int]:
        """Like `apply`, with element i written to row `row + i`. Return how many were, and the bytes of those kept beside the batch."""


@dataclass(frozen=True, slots=True, eq=False)
class ChainOp:
    """A leaf with operators on top; itself a leaf, so that branches nest. `above_batch` if the leaf is a batch."""

    leaf: Leaf
    operators: tuple[Operator, ...]
    above_batch: bool = False

    def positions_per_op(self, epochs: Ints, positions: Ints) -> list[tuple[Ints, Ints]]:
        """Return the (epochs, positions) of every level, the leaf's first, the top's last."""
        out = [(epochs, positions)]
        for operator in reversed(self.operators):
            epochs, positions = operator.source_positions(epochs, positions)
            out.append((epochs, positions))
        out.reverse()
        return out

    def run(self, epochs: Ints, positions: Ints, worker: WorkerContext) -> Block:
        """Compute the elements at `positions`."""
        if not self.operators:
            return self.leaf.run(epochs, positions, worker)
        positions_per_op = self.positions_per_op(epochs, positions)
        block = self.leaf.run(*positions_per_op[0], worker)
        block.room = worker.room
        try:
            return apply_all(self.operators, block, positions_per_op[1:], worker)
        except ElementFailed as failed:
            failed.of_batch = failed.of_batch or self.above_batch
            raise

    def where(self, epoch: int, position: int) -> str:
        """Say where one element comes from."""
        epochs, positions = self.positions_per_op(np.array([epoch], np.int64), np.array([position], np.int64))[0]
        return self.leaf.where(int(epochs[0]), int(positions[0]))

    def keys(self, epochs: Ints, positions: Ints) -> Keys:
        """Return the keys of the elements in their source."""
        return self.leaf.keys(*self.positions_per_op(epochs, positions)[0])


def key_of(leaf: Leaf, epoch: int, position: int) -> tuple[int, int]:
    """Return (epoch, index) of one element in its source."""
    epochs, indices, _ = leaf.keys(np.array([epoch], np.int64), np.array([position], np.int64))
    return int(epochs[0]), int(indices[0])


def apply_all(operators: Sequence[Operator], block: Block, positions_per_op: Sequence[tuple[Ints, Ints]], worker: WorkerContext) -> Block:
    """Run a block up through `operators`; `positions_per_op` are their own (epochs, positions)."""
    for operator, (epochs, positions) in zip(operators, positions_per_op, strict=True):
        worker.block, worker.operator = block, operator
        if len(block) < len(positions):
            epochs, positions = epochs[: len(block)], positions[: len(block)]
        made = operator.apply(block, epochs, positions, worker)
        if made is not block:
            worker.weigh(block.num_bytes + made.num_bytes)
            block.let_go()
        block = made
        if worker.trace is not None:
            worker.trace.note(operator.name, block)
    return block
