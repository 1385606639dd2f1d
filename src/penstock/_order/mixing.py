"""Which child of a `mix` gives the element at a position, and which of its elements that is: exact proportions, no drift.

The children are the leaves of a balanced binary tree. Of the first t elements that pass a node, floor(t * p / 2**63 + 1/2) go left, where p
is the left side's share of the weights as a whole number of 2**63rds. So every count is a function of t alone. With h levels a count is
never further from weight * t than 3/4 of h: each level rounds by 1/2 and, up to t = 2**62, its p by 1/4. Over any window that is 3/2 of h.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import field, replace
from fractions import Fraction
from functools import lru_cache
from heapq import heapify, heappop, heappush
from itertools import pairwise, zip_longest

import numpy as np
from numpy.typing import NDArray

from penstock import kernels
from penstock._order.arithmetic import INFINITE, Length
from penstock._system.lazy import dataclass

__all__ = [
    "History",
    "InterleaveFold",
    "MixFold",
    "from_position",
    "in_words",
    "interleaved",
    "interleaving",
    "joined",
    "lasting",
    "mixed_parts",
    "mixed_turns",
    "mixing",
    "same_shares",
    "tree_of",
]


Ints = NDArray[np.int64]
Part = tuple[int, Ints, Ints, Ints]
History = tuple[tuple[int, tuple[float, ...]], ...]
"""(first position, weights from there on), beginning with position 0. Children that came later have no weights in the earlier entries.

A weight may be 0 in some entries.
"""

_ONE, _HALF = 2**63, 2**62


@dataclass(frozen=True, slots=True, kw_only=True)
class Tree:
    """Proportions of a balanced binary tree over `num_children` leaves.

    Attributes:
        shares: p of each node, uint64, the root first.
        sides: the left and the right one of each node, int64 [nodes, 2]: the number of a later node, or ~child.
        paths: of each child, from the root: (p, whether it lies left).
    """

    num_children: int
    shares: NDArray[np.uint64] = field(compare=False)
    sides: Ints = field(compare=False)
    paths: tuple[tuple[tuple[int, bool], ...], ...]

    @property
    def height(self) -> int:
        """The most steps from the root to a child."""
        return max(map(len, self.paths))

    def counts(self, position: int) -> list[int]:
        """Return how many of the first `position` elements each child gives."""
        return [_along(path, position) for path in self.paths]

    def reach(self, child: int, count: int) -> int:
        """Return the largest position before which `child` gives at most `count` elements."""
        for p, left in reversed(self.paths[child]):
            count = ((count + 1) * _ONE - _HALF - 1) // p if left else (count * _ONE + _HALF) // (_ONE - p)
        return count

    def parts(self, positions: Ints) -> Iterator[tuple[int, Ints, Ints]]:
        """Yield (child, offsets into `positions`, places in the child) for each child that gives some of them, in ascending order."""
        (offsets, places, _, _), starts = kernels.deal(positions, self.shares, self.sides, self.num_children)
        for child, (begin, end) in enumerate(pairwise(starts.tolist())):
            if begin < end:
                yield child, offsets[begin:end], places[begin:end]

    def turns(self, positions: Ints) -> tuple[Ints, Ints]:
        """Return the child of each position, and its place there."""
        (children, places), _ = kernels.deal(positions, self.shares, self.sides, self.num_children, grouped=False)
        return children, places


@lru_cache(maxsize=64)
def tree_of(weights: tuple[float, ...]) -> Tree:
    """Return the tree of finite weights, not all of them 0; exact for any of them but for the rounding of each p.

    The rounding keeps a child of weight 0 from giving anything before 2**62.
    """
    exact = [Fraction(weight) for weight in weights]
    nodes: list[tuple[int, int, int]] = []
    paths: list[tuple[tuple[int, bool], ...]] = []

    def split(first: int, stop: int, path: tuple[tuple[int, bool], ...]) -> int:
        if stop - first == 1:
            paths.append(path)
            return ~first
        middle = (first + stop + 1) // 2
        left = sum(exact[first:middle], Fraction(0))
        both = left + sum(exact[middle:stop], Fraction(0))
        p = round(_ONE * left / both) if both else _HALF
        p = min(max(p, 1), _ONE - 1)
        number = len(nodes)
        nodes.append((p, 0, 0))
        nodes[number] = (p, split(first, middle, (*path, (p, True))), split(middle, stop, (*path, (p, False))))
        return number

    split(0, len(exact), ())
    shares = np.array([p for p, _, _ in nodes], np.uint64)
    sides = np.array([(left, right) for _, left, right in nodes], np.int64).reshape(-1, 2)
    return Tree(num_children=len(exact), shares=shares, sides=sides, paths=tuple(paths))


def _before(position: int, p: int) -> int:
    return (position * p + _HALF) >> 63


def _along(path: tuple[tuple[int, bool], ...], position: int) -> int:
    for p, left in path:
        position = _before(position, p) if left else position - _before(position, p)
    return position


@dataclass(frozen=True, slots=True, kw_only=True)
class MixFold:
    """An order over children of known lengths, whose weights may have changed on the way.

    Attributes:
        starts: the first position of each stretch of equal weights.
        trees: of each stretch.
        bases: how many elements each child gave before each stretch.
        lengths: of the children.
        restart: whether a child that has ended starts over as its next pass.
        length: of the whole.
        passes: how many passes of each child one pass of the whole touches.
    """

    starts: tuple[int, ...]
    trees: tuple[Tree, ...]
    bases: tuple[tuple[int, ...], ...]
    lengths: tuple[Length, ...]
    restart: bool
    length: Length
    passes: tuple[int, ...]

    def counts(self, position: int) -> list[int]:
        """Return how many elements each child gives before `position`."""
        stretch = sum(start <= position for start in self.starts) - 1
        return _added(self.bases[stretch], self.trees[stretch].counts(position - self.starts[stretch]))


def mixing(history: History, lengths: Sequence[Length], *, restart: bool) -> MixFold:
    """Return the order of children of `lengths` (INFINITE for endless ones) under the weights of `history`.

    Without `restart` it ends before the first element that a child does not have; with it, behind the last element that comes for the
    first time.
    """
    starts = tuple(start for start, _ in history)
    trees = tuple(tree_of(weights) for _, weights in history)
    bases = [(0,) * len(lengths)]
    for number in range(1, len(starts)):
        gained = trees[number - 1].counts(starts[number] - starts[number - 1])
        bases.append(tuple(_added(bases[-1], gained)))
    length: int | float = 0
    for number, (_, weights) in enumerate(history):
        length = starts[number] + lasting(weights, bases[number], lengths, restart=restart)
        if number + 1 == len(starts) or length < starts[number + 1]:
            break
    once = (1,) * len(lengths)
    out = MixFold(starts=starts, trees=trees, bases=tuple(bases), lengths=tuple(lengths), restart=restart, length=length, passes=once)
    if not restart or length == INFINITE:  # endless only by the last weights of a state, before those of the plan hold
        return out
    passes = (max(1, -(-count // int(own or 1))) for count, own in zip(out.counts(int(length)), lengths, strict=True))
    return replace(out, passes=tuple(passes))


def _added(base: Sequence[int], gained: Sequence[int]) -> list[int]:
    """Add what each child gave; children that were not there yet gave nothing."""
    return [count + more for count, more in zip_longest(base, gained, fillvalue=0)]


def lasting(weights: tuple[float, ...], base: Sequence[int], lengths: Sequence[Length], *, restart: bool) -> int | float:
    """Return how many elements come under `weights` until the end, when the children have given `base` elements before."""
    own = zip(range(len(weights)), lengths, base, strict=False)
    left = [(child, int(length) - given) for child, length, given in own if length is not None and length != INFINITE]

    def reach(child: int, count: int) -> int | float:
        return tree_of(weights).reach(child, count) if weights[child] else INFINITE

    if restart:
        return max((reach(child, count - 1) + 1 for child, count in left if count > 0), default=0)
    return min((reach(child, count) for child, count in left), default=INFINITE)


# -- histories ----------------------------------------------------------------------------------------------------------------------


def from_position(history: History, position: int) -> History:
    """Return the weights from `position` on."""
    now = [weights for start, weights in history if start <= position]
    return ((position, now[-1]), *(entry for entry in history if entry[0] > position))


def joined(before: History, position: int, after: History) -> History:
    """Return the weights of `before` up to `position`, then those of `after`; where their shares are equal there, the stretch goes on."""
    rest = from_position(after, position)
    goes_on = same_shares(from_position(before, position)[:1], rest[:1])
    return (*(entry for entry in before if entry[0] < position + goes_on), *rest[goes_on:])


def same_shares(one: History, other: History) -> bool:
    """Tell whether two histories have the same shares in each stretch, wherever the first one begins."""
    shares = [[(number and start, tree_of(weights)) for number, (start, weights) in enumerate(history)] for history in (one, other)]
    return shares[0] == shares[1]


def in_words(history: History) -> str:
    """Show weights, later ones with the position they hold from."""
    return "; ".join(f"{', '.join(f'{one:g}' for one in weights)}{f' from {start}' if start else ''}" for start, weights in history)


# -- which child gives an element ---------------------------------------------------------------------------------------------------


def mixed_parts(mixing: MixFold, epochs: Ints, positions: Ints) -> list[Part]:
    """Return (child, offsets into `positions`, epochs and places in the child) for each run of elements of one child."""
    out: list[Part] = []
    for offsets, stretch in _stretches(mixing, positions):
        start, base = mixing.starts[stretch], mixing.bases[stretch]
        own = positions if offsets is None else positions[offsets]
        for child, found, places in mixing.trees[stretch].parts(own - start if start else own):
            numbers = places + base[child] if base[child] else places
            spots = found if offsets is None else offsets[found]
            below, length = epochs[spots], mixing.lengths[child]
            if mixing.restart and length:
                number = numbers // int(length)
                below, numbers = below * mixing.passes[child] + number, numbers - number * int(length)
            out.append((child, spots, below, numbers))
    return out


def mixed_turns(mixing: MixFold, positions: Ints) -> tuple[Ints, Ints]:
    """Return the child of each position, and its place there counted over all passes of the child."""
    children, places = np.empty_like(positions), np.empty_like(positions)
    for offsets, stretch in _stretches(mixing, positions):
        if offsets is None:
            return mixing.trees[stretch].turns(positions)
        found, there = mixing.trees[stretch].turns(positions[offsets] - mixing.starts[stretch])
        children[offsets], places[offsets] = found, there + np.array(mixing.bases[stretch], np.int64)[found]
    return children, places


def _stretches(mixing: MixFold, positions: Ints) -> list[tuple[Ints | None, int]]:
    """Return (offsets of the positions, stretch) for each stretch that is touched; None for all positions."""
    if len(mixing.starts) == 1 or len(positions) == 0:
        return [(None, 0)]
    number = np.searchsorted(np.asarray(mixing.starts, np.int64), positions, side="right") - 1
    return [(np.flatnonzero(number == stretch), stretch) for stretch in np.unique(number).tolist()]


# -- interleave: blocks of each child in turn -------------------------------------------------------------------------------------


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
