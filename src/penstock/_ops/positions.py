"""Operators that only move positions: their data pass through untouched."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from penstock._ops.block import Block, Ints
from penstock._ops.worker import WorkerContext
from penstock._order import arithmetic
from penstock._order.grouping import GroupOrders
from penstock._order.permutation import shuffled, window_shuffled

__all__ = ["EnumerateOp", "GroupShuffleOp", "PickOp", "RepeatOp", "ShardOp", "ShuffleOp", "SkipOp", "moves_only"]


class _Moves:
    """An operator without data."""

    __slots__ = ()

    @property
    def name(self) -> str:
        return ""

    def apply(self, block: Block, epochs: Ints, positions: Ints, worker: WorkerContext) -> Block:
        return block


def moves_only(operators: Iterable[object]) -> bool:
    """Tell whether operators leave all elements as they are."""
    return all(isinstance(operator, _Moves) for operator in operators)


@dataclass(frozen=True, slots=True)
class ShuffleOp(_Moves):
    """Positions through a keyed permutation."""

    num_elements: int
    buffer_size: int | None
    seed: int
    reshuffle: bool

    def source_positions(self, epochs: Ints, positions: Ints) -> tuple[Ints, Ints]:
        if self.buffer_size is None:
            return epochs, shuffled(epochs, positions, self.num_elements, seed=self.seed, reshuffle=self.reshuffle)
        window = window_shuffled(epochs, positions, self.num_elements, self.buffer_size, seed=self.seed, reshuffle=self.reshuffle)
        return epochs, window


@dataclass(frozen=True, slots=True, eq=False)
class GroupShuffleOp(_Moves):
    """Groups in another order, and positions inside windows of several groups."""

    orders: GroupOrders

    def source_positions(self, epochs: Ints, positions: Ints) -> tuple[Ints, Ints]:
        return epochs, self.orders.shuffled(epochs, positions)


@dataclass(frozen=True, slots=True)
class ShardOp(_Moves):
    """Every num_shards-th position from `first` on; with `padded_length`, those behind it are the first ones of the last round."""

    num_shards: int
    index: int
    first: int = 0
    padded_length: int | None = None

    def source_positions(self, epochs: Ints, positions: Ints) -> tuple[Ints, Ints]:
        below = arithmetic.sharded(positions, self.num_shards, self.index) + self.first
        if self.padded_length is not None:
            below = arithmetic.padded_round(below, self.padded_length, self.num_shards, self.first)
        return epochs, below


@dataclass(frozen=True, slots=True, eq=False)
class PickOp(_Moves):
    """Chosen places, each of a pass of its own."""

    epochs: Ints
    places: Ints

    def source_positions(self, epochs: Ints, positions: Ints) -> tuple[Ints, Ints]:
        return self.epochs[positions], self.places[positions]


@dataclass(frozen=True, slots=True)
class SkipOp(_Moves):
    """Positions moved by a count."""

    count: int

    def source_positions(self, epochs: Ints, positions: Ints) -> tuple[Ints, Ints]:
        return epochs, positions + self.count


@dataclass(frozen=True, slots=True)
class RepeatOp(_Moves):
    """Positions of several passes, of `count` in all; the first of them is pass `first`."""

    num_elements: int
    count: int | None
    first: int = 0

    def source_positions(self, epochs: Ints, positions: Ints) -> tuple[Ints, Ints]:
        below, inner = arithmetic.repeated(epochs, positions, self.num_elements, self.count)
        return (below + self.first if self.first else below), inner


@dataclass(frozen=True, slots=True)
class EnumerateOp:
    """Pairs (number, element): the number is the position."""

    start: int

    @property
    def name(self) -> str:
        return ""

    def source_positions(self, epochs: Ints, positions: Ints) -> tuple[Ints, Ints]:
        return epochs, positions

    def apply(self, block: Block, epochs: Ints, positions: Ints, worker: WorkerContext) -> Block:
        rows = block.rows()  # perhaps fewer than there are positions
        numbers = (positions[: len(rows)] + self.start).tolist()
        return block.with_rows(list(zip(numbers, rows, strict=True)), block.num_bytes)
