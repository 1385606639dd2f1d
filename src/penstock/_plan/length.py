"""How long a plan is, and whether any position of it can be computed at once."""

from __future__ import annotations

from penstock._order.arithmetic import INFINITE, Length, batch_length, repeat_length, shard_length, window_length
from penstock._order.mixing import Mixing, mixing
from penstock._plan.node import (
    AnyBatch,
    BucketByLength,
    Concatenate,
    Filter,
    FlatMap,
    Interleave,
    Mix,
    Node,
    PackSequences,
    Pick,
    Read,
    ReadStream,
    RejectionResample,
    Repeat,
    Shard,
    Skip,
    Take,
    Unbatch,
    Window,
    Zip,
    children_of,
)

__all__ = ["INFINITE", "STREAMS", "is_indexable", "length_of", "mixing_of", "passes_of", "walk"]

STREAMS = (Filter, FlatMap, Unbatch, ReadStream, BucketByLength, PackSequences, RejectionResample)
"""Nodes behind which only reading tells which element stands where."""


def walk(node: Node) -> list[Node]:
    """List the nodes of a plan from the sources up: each child before its parent."""
    out: list[Node] = []
    for child in children_of(node):
        out.extend(walk(child))
    return [*out, node]


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
            return shard_length(length_of(node.child), node.num_shards, node.index)
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


def passes_of(node: Node) -> int:
    """Return how many passes of its source one pass of the plan holds: by so much its epochs count up. Endless repeats count as one."""
    below = max((passes_of(child) for child in children_of(node)), default=1)
    return below * (node.count or 1) if isinstance(node, Repeat) else below


def mixing_of(node: Mix) -> Mixing:
    """Return the order of a mix."""
    return mixing(node.history, [length_of(child) for child in node.children], restart=node.restart)
