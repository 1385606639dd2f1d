"""Where elements of several datasets come in turn: the leaves of mix and interleave."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import getitem
from typing import Any

import numpy as np
from numpy.typing import NDArray

from penstock._contracts.source import SubscriptedSource
from penstock._ops.block import Block, Ints, Keys
from penstock._ops.branches import BranchesLeaf, Part
from penstock._ops.leaves import ReadLeaf
from penstock._ops.operator import ChainOp, Leaf
from penstock._ops.positions import moves_only
from penstock._ops.worker import WorkerContext
from penstock._order.arithmetic import grouped
from penstock._order.interleaving import InterleaveFold, interleaved
from penstock._order.mixing import MixFold, mixed_parts, mixed_turns

__all__ = ["InTurn", "InterleaveLeaf", "MixLeaf", "in_turn"]


@dataclass(frozen=True, slots=True, eq=False)
class InTurn:
    """Sources that only look into objects: elements of all of them can be read in their order, and none has to be put back into it.

    Attributes:
        sources: of the branches.
        objects: what each looks into, as an array of references.
        plain: whether the branches are nothing but these sources: no shuffle, shard or repeat.
    """

    sources: tuple[SubscriptedSource, ...]
    objects: NDArray[Any]
    plain: bool


def in_turn(branches: Sequence[ChainOp]) -> InTurn | None:
    """Return the sources of branches that do nothing but look into objects; None if one does more."""
    sources: list[SubscriptedSource] = []
    for branch in branches:
        source = branch.leaf.source if isinstance(branch.leaf, ReadLeaf) and moves_only(branch.operators) else None
        if not isinstance(source, SubscriptedSource) or source.subscripted() is None:
            return None
        sources.append(source)
    plain = not any(branch.operators for branch in branches)
    objects = np.empty(len(sources), object)
    for number, source in enumerate(sources):
        objects[number] = source.subscripted()  # one by one: NumPy would look into them
    return InTurn(tuple(sources), objects, plain)


@dataclass(frozen=True, slots=True)
class MixLeaf(BranchesLeaf):
    """Elements of several branches by their weights."""

    branches: tuple[Leaf, ...]
    mixing: MixFold
    in_turn: InTurn | None = None

    def parts(self, epochs: Ints, positions: Ints) -> Sequence[Part]:
        return mixed_parts(self.mixing, epochs, positions)

    def run(self, epochs: Ints, positions: Ints, worker: WorkerContext) -> Block:
        if self.in_turn is None:
            return BranchesLeaf.run(self, epochs, positions, worker)
        epochs, indices, lanes = self.keys(epochs, positions)
        return Block(epochs, indices, lanes, source=_Turns(self.in_turn, lanes.view(np.int64)))

    def keys(self, epochs: Ints, positions: Ints) -> Keys:
        if self.mixing.restart or self.in_turn is None or not self.in_turn.plain:
            return BranchesLeaf.keys(self, epochs, positions)
        members, places = mixed_turns(self.mixing, positions)
        return epochs, places, members.view(np.uint64)


@dataclass(frozen=True, slots=True)
class _Turns:
    """Reads elements of several sources; `members` says of which each is."""

    of: InTurn
    members: Ints

    def gather(self, indices: Sequence[int], rows: list[Any]) -> None:
        """Append one element per index."""
        objects = self.of.objects.take(self.members).tolist()
        try:
            # As the loop below, which needs 20 ns more per element: also what came before an error stays.
            rows.extend(map(getitem, objects, indices))
            while len(rows) < len(indices):  # a StopIteration of theirs looks like the end there
                rows.append(objects[len(rows)][indices[len(rows)]])
        except Exception as error:
            place = len(rows)
            explained = self.of.sources[self.members[place]].explained(indices[place], error)
            if explained is error:
                raise
            raise explained from error


@dataclass(frozen=True, slots=True)
class InterleaveLeaf(BranchesLeaf):
    """Elements of several branches, some from each in turn."""

    branches: tuple[Leaf, ...]
    table: InterleaveFold

    def parts(self, epochs: Ints, positions: Ints) -> Sequence[Part]:
        members, places = interleaved(self.table, positions)
        return [(member, offsets, epochs[offsets], places[offsets]) for member, offsets in grouped(members)]
