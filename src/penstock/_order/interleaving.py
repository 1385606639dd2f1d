"""Which member of an `interleave` gives the element at a position: tf.data's order, from a table of the moments at which it changes.

A member of n elements has its slot of the cycle for n // block + 1 turns: full ones, and a last one that gives the n % block elements left
(perhaps none). The next member begins at the turn after that. So between two such moments every round of the cycle gives the same number
of elements of the same members. What each slot gives in a round is a tree of sums; a moment changes few slots, and its tree shares all
other branches with the one before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

import numpy as np
from numpy.typing import NDArray

__all__ = ["InterleaveFold", "interleaved", "interleaving"]

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class InterleaveFold:
    """The table: 3 moments and 3 * (depth + 1) nodes per member at most.

    Attributes:
        block_length: elements per full turn.
        depth: levels of the trees.
        begins: the round in which each member begins.
        rounds, positions, roots: of each moment, the first round, the first position, and the tree from there on.
        lefts, rights, sums: of each node of the trees. At the bottom `lefts` holds the member.
        length: of the whole.
    """

    block_length: int
    depth: int
    begins: Ints
    rounds: Ints
    positions: Ints
    roots: Ints
    lefts: Ints
    rights: Ints
    sums: Ints
    length: int


def interleaving(lengths: Sequence[int], cycle_length: int, block_length: int) -> InterleaveFold:
    """Return the order of members of `lengths`, `cycle_length` of them open at a time, `block_length` elements from each in turn."""
    begins, moments = _schedule(lengths, cycle_length, block_length)
    depth = (max(1, min(cycle_length, len(lengths))) - 1).bit_length()
    trees = _Trees(depth)
    rounds, positions, roots = [0], [0], [0]
    for moment in sorted(moments):
        root = roots[-1]
        positions.append(positions[-1] + (moment - rounds[-1]) * trees.sums[root])
        for slot, (member, count) in moments[moment].items():
            root = trees.changed(root, slot, member, count)
        rounds.append(moment)
        roots.append(root)
    names = {"rounds": rounds, "positions": positions, "roots": roots, "lefts": trees.lefts, "rights": trees.rights, "sums": trees.sums}
    return InterleaveFold(
        block_length=block_length,
        depth=depth,
        begins=np.array(begins, np.int64),
        length=sum(lengths),
        **{name: np.array(values, np.int64) for name, values in names.items()},
    )


def _schedule(lengths: Sequence[int], cycle_length: int, block_length: int) -> tuple[list[int], dict[int, dict[int, tuple[int, int]]]]:
    """Return the first round of each member, and {round: {slot: (member, its elements per round from there on)}}."""
    free = [(0, slot) for slot in range(min(cycle_length, len(lengths)))]
    heapify(free)
    begins: list[int] = []
    moments: dict[int, dict[int, tuple[int, int]]] = {}
    for member, length in enumerate(lengths):
        begin, slot = heappop(free)
        full, rest = divmod(length, block_length)
        begins.append(begin)
        if full:
            moments.setdefault(begin, {})[slot] = (member, block_length)
        moments.setdefault(begin + full, {})[slot] = (member, rest)
        moments.setdefault(begin + full + 1, {}).setdefault(slot, (member, 0))
        heappush(free, (begin + full + 1, slot))
    return begins, moments


class _Trees:
    """Binary trees over the slots that share what did not change. Node 0 is the empty tree of any height."""

    def __init__(self, depth: int) -> None:
        self.depth = depth
        self.lefts, self.rights, self.sums = [0], [0], [0]

    def changed(self, root: int, slot: int, member: int, count: int) -> int:
        """Return the root of the tree in which `slot` gives `count` elements of `member`."""
        path = []
        for level in range(self.depth - 1, -1, -1):
            right = slot >> level & 1
            path.append((root, right))
            root = self.rights[root] if right else self.lefts[root]
        new = self._add(member, 0, count) if count else 0
        for node, right in reversed(path):
            left, other = (self.lefts[node], new) if right else (new, self.rights[node])
            new = self._add(left, other, self.sums[left] + self.sums[other])
        return new

    def _add(self, left: int, right: int, total: int) -> int:
        self.lefts.append(left)
        self.rights.append(right)
        self.sums.append(total)
        return len(self.sums) - 1


def interleaved(table: InterleaveFold, positions: Ints) -> tuple[Ints, Ints]:
    """Return the member that gives each position, and the place in it. All of 0 <= positions < length."""
    moments = np.searchsorted(table.positions, positions, side="right") - 1
    nodes = table.roots[moments]
    inside = positions - table.positions[moments]
    turns = inside // table.sums[nodes]
    inside -= turns * table.sums[nodes]
    for _ in range(table.depth):
        lefts = table.lefts[nodes]
        before = table.sums[lefts]
        goes_right = inside >= before
        inside -= np.where(goes_right, before, 0)
        nodes = np.where(goes_right, table.rights[nodes], lefts)
    members = table.lefts[nodes]
    return members, (table.rounds[moments] + turns - table.begins[members]) * table.block_length + inside
