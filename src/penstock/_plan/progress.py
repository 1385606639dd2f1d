"""The place that all shards of a dataset have reached together, and the plans of what is left behind it."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from penstock._order.arithmetic import INFINITE, shard_resume
from penstock._order.folds import uneven
from penstock._plan.length import length_of
from penstock._plan.node import (
    AnyBatch,
    Concatenate,
    Map,
    Node,
    Prefetch,
    Repeat,
    Shard,
    Skip,
    children_of,
)

__all__ = ["GlobalPosition", "global_position", "resharded", "shard_of"]


class GlobalPosition(NamedTuple):
    """All elements of the order below `shard` before `element` in pass `epoch`, and all earlier passes, were delivered."""

    epoch: int
    element: int


def shard_of(root: Node) -> Shard | None:
    """Return the shard of a plan whose saved state can be resumed with another number of shards, or None.

    That is a shard with nothing above it but maps, prefetches, one batch and one repeat, which is not that of an endless shard.
    """
    seen: set[str] = set()
    node = root
    while isinstance(node, Map | Prefetch | AnyBatch | Repeat):
        kind = "batch" if isinstance(node, AnyBatch) else type(node).__name__
        if kind in ("batch", "Repeat") and kind in seen:
            return None
        seen.add(kind)
        node = node.child
    endless = "Repeat" in seen and length_of(node) == INFINITE
    return node if isinstance(node, Shard) and not endless else None


def global_position(root: Node, position: int) -> GlobalPosition:
    """Return what root position `position` means for all shards together. `shard_of` of the whole plan must not be None."""
    node, epoch, lead = root, 0, 0
    repeated = ended = False
    while not isinstance(node, Shard):
        if isinstance(node, Concatenate):
            node, position = _part(node, position)
            continue
        if isinstance(node, AnyBatch):
            position *= node.batch_size
        elif isinstance(node, Repeat):
            repeated = True
            epoch, position = divmod(position, int(length_of(node.child) or 1))
            ended = node.count is not None and epoch >= node.count
            if ended:  # or behind the end: the last batch of a batch above a repeat may be short
                epoch, position = node.count or 0, 0
            epoch += node.first
        elif isinstance(node, Skip):
            position, lead = position + (0 if ended else node.count), node.lead
        node = children_of(node)[0]
    element, total = node.first + position * node.num_shards - lead, length_of(node.child)
    if total is None or total == INFINITE:
        return GlobalPosition(epoch, element)
    if not repeated or not total:
        return GlobalPosition(epoch, min(element, int(total)))
    return GlobalPosition(*divmod(epoch * int(total) + element, int(total)))


def _part(node: Concatenate, position: int) -> tuple[Node, int]:
    """Return the part of a moved plan that a position falls in, and the position in it."""
    first = int(length_of(node.children[0]) or 0)
    return (node.children[0], position) if position < first else (node.children[1], position - first)


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
    first = Repeat(child=_rest(node.child, place), count=1, first=place.epoch, whole=node.count)
    after = Repeat(child=_rest(node.child, place, whole=True), count=left, first=place.epoch + 1, whole=node.count)
    if left == 0:
        return [_rebuilt(above, first)]
    if any(isinstance(part, AnyBatch) for part in above):
        return [_rebuilt(above, Concatenate(children=(first, after), parts_of_one=True))]
    return [_rebuilt(above, first), _rebuilt(above, after)]


def _rebuilt(above: list[Node], node: Node) -> Node:
    for part in reversed(above):
        assert isinstance(part, Map | Prefetch | AnyBatch)
        node = replace(part, child=node)
    return node


def _rest(node: Node, place: GlobalPosition, *, whole: bool = False) -> Node:
    """Return what is left of a pass at `place`, or a whole later pass of a run that was moved there.

    The shards have reached `place` together, which need not be a multiple of their number; the next saved state must say so again.
    """
    if isinstance(node, Shard) and node.even is not None:  # rounds begin where the ranks are
        num_left = int(length_of(node.child) or 0) - place.element if node.even == "error" and not whole else 0
        if num_left % node.num_shards:
            raise uneven(node.num_shards, num_left % node.num_shards)
        return node if whole else replace(node, first=place.element)
    if isinstance(node, Shard):
        count = shard_resume(place.element, node.num_shards, node.index)
        return Skip(child=node, count=0 if whole else count, lead=count * node.num_shards - place.element)
    assert isinstance(node, Map | Prefetch | AnyBatch)
    return replace(node, child=_rest(node.child, place, whole=whole))
