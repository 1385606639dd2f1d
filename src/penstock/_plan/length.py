"""How long a plan is, whether any position of it can be computed at once, and how large the numbers get on the way."""

from __future__ import annotations

from penstock._order.arithmetic import INFINITE, Length, batch_length, rank_length, repeat_length, shard_length, window_length
from penstock._order.mixing import Mixing, mixing
from penstock._plan.node import (
    AnyBatch,
    BucketByLength,
    Cache,
    Concatenate,
    Enumerate,
    Filter,
    FlatMap,
    Interleave,
    Map,
    Mix,
    Node,
    PackSequences,
    Pick,
    Prefetch,
    Read,
    ReadStream,
    RejectionResample,
    Repeat,
    Shard,
    Shuffle,
    Skip,
    Take,
    Unbatch,
    Window,
    Zip,
    children_of,
)
from penstock.errors import LengthUnknown

__all__ = [
    "INFINITE",
    "ROOM",
    "STREAMS",
    "batch_size_of",
    "highest_number",
    "is_indexable",
    "known_length",
    "length_of",
    "mixing_of",
    "never_ends",
    "passes_of",
    "walk",
]

STREAMS = (Filter, FlatMap, Unbatch, ReadStream, BucketByLength, PackSequences, RejectionResample)
"""Nodes behind which only reading tells which element stands where."""

ROOM = 2**32
"""So many elements of an endless dataset must be within reach of 64 bits."""


def walk(node: Node) -> list[Node]:
    """List the nodes of a plan from the sources up: each child before its parent."""
    out: list[Node] = []
    for child in children_of(node):
        out.extend(walk(child))
    return [*out, node]


def batch_size_of(node: Node) -> int | None:
    """Return how many elements what a plan delivers is made of: 1 where nothing makes batches, None where that differs or is not known."""
    while isinstance(node, (Cache, Enumerate, Map, Prefetch, Repeat, Shard, Shuffle, Skip, Take)):
        node = node.child
    if isinstance(node, AnyBatch):
        return node.batch_size
    return None if any(isinstance(part, (AnyBatch, BucketByLength)) for part in walk(node)) else 1


def ranks_of(root: Node) -> tuple[int, int] | None:
    """Return (rank, number of ranks) of a plan's shard by rank where they are those of the process, or None."""
    return next(((node.index, node.num_shards) for node in walk(root) if isinstance(node, Shard) and node.found), None)


def is_indexable(node: Node) -> bool:
    """Tell whether element i of the plan is arithmetic: nothing in it is of STREAMS."""
    return not any(isinstance(part, STREAMS) for part in walk(node))


def length_of(node: Node) -> Length:
    """Return the number of elements of one pass, INFINITE, or None when only reading can tell."""
    match node:
        case Read():
            return len(node.source)
        case ReadStream():
            return node.source.declared_length()
        case Filter() | FlatMap() | Unbatch() | BucketByLength() | PackSequences() | RejectionResample():
            return 0 if length_of(node.child) == 0 else None
        case Shard():
            return _length_of_shard(node, length_of(node.child))
        case Take():
            below = length_of(node.child)
            return None if below is None else min(below, node.count)
        case Skip():
            below = length_of(node.child)
            return below if below is None or below == INFINITE else max(0, int(below) - node.count)
        case Repeat():
            return repeat_length(length_of(node.child), node.count)
        case Concatenate():
            lengths = [length_of(child) for child in node.children]
            return None if None in lengths else sum(length for length in lengths if length is not None)
        case Zip():
            lengths = [length_of(child) for child in node.children]
            return None if None in lengths else min(length for length in lengths if length is not None)
        case Mix():
            return mixing_of(node).length
        case Interleave():
            return sum(int(length_of(child) or 0) for child in node.children)
        case _ if isinstance(node, AnyBatch):
            return batch_length(length_of(node.child), node.batch_size, node.drop_remainder)
        case Pick():
            return len(node.places)
        case Window():
            return window_length(length_of(node.child), node.size, node.shift, node.stride, node.drop_remainder)
        case _:
            return length_of(node.child)


def _length_of_shard(node: Shard, below: Length) -> Length:
    if node.even is not None:
        return rank_length(below, node.num_shards, node.first, padded=node.even == "pad")
    return shard_length(below, node.num_shards, node.index)


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


def never_ends(node: Node) -> bool:
    """Tell whether a pass of the plan has no end, also where its length is not known. A stream is taken to end."""
    match node:
        case Take() | Pick():
            return False
        case Repeat():
            return node.count is None or never_ends(node.child)
        case Zip():
            return all(map(never_ends, node.children))
        case _:
            return length_of(node) == INFINITE or any(map(never_ends, children_of(node)))


def passes_of(node: Node) -> int:
    """Return how many passes of its source one pass of the plan holds: by so much its epochs count up. Endless repeats count as one."""
    below = max((passes_of(child) for child in children_of(node)), default=1)
    return below * (node.count or 1) if isinstance(node, Repeat) else below


def mixing_of(node: Mix) -> Mixing:
    """Return the order of a mix."""
    return mixing(node.history, [length_of(child) for child in node.children], restart=node.restart)


def highest_number(root: Node, position: int | None = None) -> int:
    """Return the largest position, pass or number that comes up for the elements of a plan up to `position`.

    By default up to its last one, or up to number ROOM when there is no end or none is known. Behind STREAMS nothing is computed of
    positions but what `enumerate` gives.
    """
    length = length_of(root)
    if length == 0:
        return 0
    if position is None:
        position = ROOM if length is None or length == INFINITE else int(length) - 1
    if is_indexable(root):
        return _highest(root, 0, position)
    return position + root.start if isinstance(root, Enumerate) else position


def _highest(node: Node, epoch: int, position: int) -> int:
    """Return what `highest_number` does, in passes up to `epoch`: only what stands below an endless node can be further than its length."""
    highest, below = _reached(node, position)
    children = children_of(node)
    for child in children:
        length = length_of(child)
        if length == INFINITE:
            found = _highest(child, epoch, below)
        else:
            own = epoch * (node.count or 1) + below // int(length or 1) if isinstance(node, Repeat) else epoch
            found = (own + 1) * passes_of(child) - 1
        highest = max(highest, found)
    return max(highest, epoch)


def _reached(node: Node, position: int) -> tuple[int, int]:
    """Return the largest number that a node makes of positions up to `position`, and the largest position that it asks its children for."""
    match node:
        case Shard():
            below = node.first + position * node.num_shards + node.index
            return max(below, node.num_shards), below
        case Skip():
            return position + node.count, position + node.count
        case Enumerate():
            return position + node.start, position
        case Interleave():
            return max(position, node.cycle_length, node.block_length), position
        case Concatenate():
            ends = sum(int(length) for length in map(length_of, node.children) if length is not None and length != INFINITE)
            return max(position, ends), position
        case Window():
            below = _last_row(length_of(node.child), position, node.size, node.shift, node.stride)
            return below, below
        case _ if isinstance(node, AnyBatch):
            below = _last_row(length_of(node.child), position, node.batch_size, node.batch_size, 1)
            return below, below
        case _:
            return position, position


def _last_row(length: Length, position: int, size: int, shift: int, stride: int) -> int:
    """Return the last position that `batch_rows` computes for window number `position`, before it drops those behind the end."""
    if length is not None and length != INFINITE:
        end = int(length)
        stride = min(stride, end)
        size, shift = min(size, -(-end // stride)), min(shift, end)
    return position * shift + (size - 1) * stride
