"""Where elements of several datasets come in turn: the leaves of mix and interleave."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from penstock._ops.block import Ints
from penstock._ops.branches import BranchesLeaf, Part
from penstock._ops.operator import Leaf
from penstock._order.arithmetic import grouped
from penstock._order.interleaving import Interleaving, interleaved
from penstock._order.mixing import Mixing, mixed_parts

__all__ = ["InterleaveLeaf", "MixLeaf"]


@dataclass(frozen=True, slots=True)
class MixLeaf(BranchesLeaf):
    """Elements of several branches by their weights."""

    branches: tuple[Leaf, ...]
    mixing: Mixing

    def parts(self, epochs: Ints, positions: Ints) -> Sequence[Part]:
        return mixed_parts(self.mixing, epochs, positions)


@dataclass(frozen=True, slots=True)
class InterleaveLeaf(BranchesLeaf):
    """Elements of several branches, some from each in turn."""

    branches: tuple[Leaf, ...]
    table: Interleaving

    def parts(self, epochs: Ints, positions: Ints) -> Sequence[Part]:
        members, places = interleaved(self.table, positions)
        return [(member, offsets, epochs[offsets], places[offsets]) for member, offsets in grouped(members)]
