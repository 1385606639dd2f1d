"""How long a plan is, whether any position of it can be computed at once, and how large the numbers get on the way."""

from __future__ import annotations

from penstock._order.arithmetic import INFINITE
from penstock._plan.base import Node, length_of, never_ends, walk
from penstock._plan.node import shards_of
from penstock.errors import LengthUnknown

__all__ = [
    "INFINITE",
    "ROOM",
    "highest_number",
    "is_indexable",
    "known_length",
    "length_of",
    "never_ends",
    "passes_of",
    "ranks_of",
    "walk",
]

ROOM = 2**32
"""So many elements of an endless dataset must be within reach of 64 bits."""


def ranks_of(root: Node) -> tuple[int, int] | None:
    """Return (rank, number of ranks) of a plan's shard by rank where they are those of the process, or None."""
    return next(((node.index, node.num_shards) for node in shards_of(root) if node.found), None)


def is_indexable(node: Node) -> bool:
    """Tell whether element i of the plan is arithmetic: nothing in it streams."""
    return not any(part.streams for part in walk(node))


def known_length(root: Node, where: str) -> int:
    """Return the number of elements.

    Raises:
        LengthUnknown: when it is endless, or only known after reading.
    """
    length = length_of(root)
    if length is None or length == INFINITE:
        what = "endless" if length == INFINITE else "only known after reading (a filter, flat_map, unbatch or generator)"
        raise LengthUnknown(f"the length of this dataset is {what}", where=where, fix="count while you iterate, or use take(n)")
    return int(length)


def passes_of(node: Node) -> int:
    """Return how many passes of its source one pass of the plan holds: by so much its epochs count up. Endless repeats count as one."""
    return max(map(passes_of, node.children), default=1) * (node.num_passes or 1)


def highest_number(root: Node, position: int | None = None) -> int:
    """Return the largest position, pass or number that comes up for the elements of a plan up to `position`.

    By default up to its last one, or up to number ROOM when there is no end or none is known. Where
    only reading tells what stands where, nothing is computed of positions but what `enumerate` gives.
    """
    length = length_of(root)
    if length == 0:
        return 0
    if position is None:
        position = ROOM if length is None or length == INFINITE else int(length) - 1
    if is_indexable(root):
        return _highest(root, 0, position)
    return position + root.first_number


def _highest(node: Node, epoch: int, position: int) -> int:
    """Return what `highest_number` does, in passes up to `epoch`: only what stands below an endless node can be further than its length."""
    highest, below = node.reached(position)
    for child in node.children:
        if length_of(child) == INFINITE:
            found = _highest(child, epoch, below)
        else:
            found = (node.pass_below(epoch, below) + 1) * passes_of(child) - 1
        highest = max(highest, found)
    return max(highest, epoch)
