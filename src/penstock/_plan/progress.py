"""Positions as a user counts them: the epoch, and the global element that all shards have reached."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from penstock._order.arithmetic import INFINITE, shard_resume
from penstock._plan.length import length_of
from penstock._plan.node import Batch, Concatenate, Map, Node, PaddedBatch, Prefetch, Read, Repeat, Shard, Skip, Zip, children_of

__all__ = ["GlobalPosition", "epoch_at", "global_position", "resharded", "shard_of"]


class GlobalPosition(NamedTuple):
    """All elements of the order below `shard` before `element` in pass `epoch`, and all earlier passes, were delivered."""

    epoch: int
    element: int


def epoch_at(root: Node, position: int) -> int:
    """Return the pass that root position `position` belongs to, counted by the repeats of an indexable plan."""
    node, epoch = root, 0
    while not isinstance(node, (Read, Concatenate, Zip)):
        below = children_of(node)[0]
        if isinstance(node, (Batch, PaddedBatch)):
            position *= node.batch_size
        elif isinstance(node, Repeat):
            length = length_of(below)
            if length not in (None, INFINITE, 0):
                passes, position = divmod(position, int(length or 1))
                epoch = epoch * (node.count or 1) + passes
        node = below
    return epoch


def shard_of(root: Node) -> Shard | None:
    """Return the shard of a plan whose saved state can be resumed with another number of shards, or None.

    That is a shard with nothing above it but maps, prefetches, one batch and one repeat.
    """
    seen: set[str] = set()
    node = root
    while isinstance(node, (Map, Prefetch, Batch, PaddedBatch, Repeat)):
        kind = "batch" if isinstance(node, (Batch, PaddedBatch)) else type(node).__name__
        if kind in ("batch", "Repeat") and kind in seen:
            return None
        seen.add(kind)
        node = node.child
    return node if isinstance(node, Shard) else None


def global_position(root: Node, position: int) -> GlobalPosition:
    """Return what root position `position` means for all shards together. `shard_of(root)` must not be None."""
    node, epoch = root, 0
    while not isinstance(node, Shard):
        if isinstance(node, Concatenate):
            first = int(length_of(node.children[0]) or 0)
            node, position = (node.children[0], position) if position < first else (node.children[1], position - first)
            continue
        if isinstance(node, (Batch, PaddedBatch)):
            position *= node.batch_size
        elif isinstance(node, Repeat):
            length = int(length_of(node.child) or 1)
            epoch, position = divmod(position, length)
            epoch += node.first
        elif isinstance(node, Skip):
            position += node.count
        node = children_of(node)[0]
    local = length_of(node)
    total = length_of(node.child)
    if local is not None and local != INFINITE and position >= local:
        return GlobalPosition(epoch, int(total or 0))
    return GlobalPosition(epoch, position * node.num_shards)


def resharded(root: Node, place: GlobalPosition) -> list[Node]:
    """Return the plans that deliver, one after the other, what is left after `place`: the rest of its pass, then the passes after it."""
    above: list[Node] = []
    node = root
    while not isinstance(node, (Repeat, Shard)):
        above.append(node)
        node = children_of(node)[0]
    if isinstance(node, Shard):
        return [_rebuilt(above, _rest(node, place))]
    left = None if node.count is None else node.count - place.epoch - 1
    first = Repeat(child=_rest(node.child, place), count=1, first=place.epoch)
    after = Repeat(child=node.child, count=left, first=place.epoch + 1)
    if left == 0:
        return [_rebuilt(above, first)]
    if any(isinstance(part, (Batch, PaddedBatch)) for part in above):
        return [_rebuilt(above, Concatenate(children=(first, after), parts_of_one=True))]
    return [_rebuilt(above, first), _rebuilt(above, after)]


def _rebuilt(above: list[Node], node: Node) -> Node:
    for part in reversed(above):
        assert isinstance(part, (Map, Prefetch, Batch, PaddedBatch))
        node = replace(part, child=node)
    return node


def _rest(node: Node, place: GlobalPosition) -> Node:
    if isinstance(node, Shard):
        return Skip(child=node, count=shard_resume(place.element, node.num_shards, node.index))
    assert isinstance(node, (Map, Prefetch, Batch, PaddedBatch))
    return replace(node, child=_rest(node.child, place))
