"""Weights of a mix that change at a resume: where the mix was, what was delivered before, and the plan that goes on from there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from penstock._order.arithmetic import INFINITE
from penstock._order.mixing import History, tree_of
from penstock._plan.length import length_of, mixing_of, walk
from penstock._plan.node import (
    Batch,
    Enumerate,
    Map,
    Mix,
    Node,
    PaddedBatch,
    Prefetch,
    Repeat,
    Shard,
    Skip,
    Take,
    Zip,
    children_of,
    with_children,
)
from penstock.errors import StateDamaged, StateMismatch

__all__ = ["histories", "mix_places", "reweighted"]

_FIX = (
    "resume with the weights that were saved; they can change where nothing but map, batch, take, skip, shard, enumerate, zip and prefetch "
    "stands above mix(), so put shuffle() and repeat() below it"
)


def histories(root: Node) -> list[Any]:
    """Return the history of each mix of a plan, in the order of its lines, as a state holds it."""
    return [[[start, list(weights)] for start, weights in node.history] for node in walk(root) if isinstance(node, Mix)]


def reweighted(root: Node, saved: Any, position: int | None, below: Node | None = None, *, strict: bool) -> Node:
    """Return the plan `root` with what its mixes gave up to `position` under the weights of the state, and then under its own.

    Args:
        root: a plan as it was written, without history.
        saved: the histories of the state.
        position: how many elements of `below`, or of the root, were delivered; None when that is not known.
        below: the node that `position` counts when it is not the root; above all mixes.
        strict: whether to refuse what does not fit, rather than to go on without history.

    Raises:
        StateDamaged: when `saved` is no list of histories.
        StateMismatch: when weights changed where `position` does not say what the mix has given.
    """
    mixes = [node for node in walk(root) if isinstance(node, Mix)]
    before = _checked(saved, mixes) if saved is not None or (mixes and strict) else []
    if not mixes or len(before) != len(mixes):
        return root
    if not all(len(history[0][1]) == len(node.children) for history, node in zip(before, mixes, strict=True)):
        return root
    counted = _with_histories(root, iter(before))
    if below is not None:
        counted = _same_place(root, counted, below)
    places = mix_places(counted, position)
    after = []
    for node, history, place in zip(mixes, before, places, strict=True):
        wanted = node.history[-1][1]
        if tree_of(wanted) == tree_of(history[-1][1]):
            after.append(history)
        elif place is not None:
            after.append((*(entry for entry in history if entry[0] < place), (place, wanted)))
        elif strict:
            raise StateMismatch(
                f"the weights of mix were {_words(history[-1][1])} and are now {_words(wanted)}, but how many elements it has given does "
                "not follow from the position",
                where="load_state_dict()",
                fix=_FIX,
            )
        else:
            after.append(node.history)
    return _with_histories(root, iter(after))


def mix_places(node: Node, position: int | None) -> list[int | None]:
    """Return how many elements each mix of a plan has given when its root has given `position`, in the order of `walk`; None if unknown."""
    if position is not None:
        position = int(min(position, _length(node)))
    children = children_of(node)
    out = [place for child, below in zip(children, _below(node, position), strict=True) for place in mix_places(child, below)]
    return [*out, position] if isinstance(node, Mix) else out


def _below(node: Node, position: int | None) -> Sequence[int | None]:
    """Return how many elements each child has given. All shards are at the same place, as they are at every step."""
    unknown = [None] * len(children_of(node))
    if position is None:
        return unknown
    match node:
        case Map() | Take() | Enumerate() | Prefetch():
            return [position]
        case Skip():
            return [position + node.count]
        case Batch() | PaddedBatch():
            return [position * node.batch_size]
        case Shard():
            return [position * node.num_shards]
        case Zip():
            return [position] * len(node.children)
        case Repeat():
            return [position if length_of(node.child) == INFINITE else None]
        case Mix():
            counts = mixing_of(node).counts(position)
            return [count if count <= _length(child) else None for child, count in zip(node.children, counts, strict=True)]
    return unknown


def _length(node: Node) -> float:
    length = length_of(node)
    return INFINITE if length is None else length


def _with_histories(node: Node, given: Iterator[History]) -> Node:
    """Give the mixes of a plan other histories, in the order of `walk`; what stays the same stays the same node."""
    children = tuple(_with_histories(child, given) for child in children_of(node))
    if isinstance(node, Mix):
        history = next(given)
        return replace(node, children=children, history=history) if history != node.history or children != node.children else node
    return with_children(node, children)


def _same_place(root: Node, rebuilt: Node, wanted: Node) -> Node:
    """Return the node that stands in `rebuilt` where `wanted` stands in `root`, above any branching."""
    while root is not wanted:
        root, rebuilt = children_of(root)[0], children_of(rebuilt)[0]
    return rebuilt


def _checked(saved: Any, mixes: Sequence[Mix]) -> list[History]:
    """Turn the histories of a state into tuples."""
    try:
        found = [tuple((start, tuple(float(weight) for weight in weights)) for start, weights in history) for history in saved]
    except (TypeError, ValueError):
        found = [()]
    if not all(map(_is_history, found)):
        raise StateDamaged(
            f"the state's mix is {saved!r:.80}, not the weights of {len(mixes)} mixes with the positions they hold from",
            where="load_state_dict()",
            fix="use an older checkpoint; this one would skip or repeat elements",
        )
    return found


def _is_history(history: History) -> bool:
    starts = [start for start, _ in history]
    whole = all(isinstance(start, int) and not isinstance(start, bool) and start < 2**63 for start in starts)
    if not whole or starts[:1] != [0] or starts != sorted(set(starts)):
        return False
    sizes = {len(weights) for _, weights in history}
    return sizes != {0} and len(sizes) == 1 and all(0 < weight < INFINITE for _, weights in history for weight in weights)


def _words(weights: Sequence[float]) -> str:
    text = ", ".join(f"{weight:g}" for weight in weights)
    return f"({text})" if len(text) <= 80 else f"({text[:77]}...)"
