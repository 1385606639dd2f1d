"""A mix that changes at a resume, by other weights or more components: where it was, what it gave, how the plan goes on from there."""

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

__all__ = ["histories", "mix_places", "plan_before", "reweighted"]

_FIX = (
    "resume with the weights and components that were saved; they can change where nothing but map, batch, take, skip, shard, enumerate, "
    "zip and prefetch stands above mix(), so put shuffle() and repeat() below it"
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
    given = _given(root, saved) if saved is not None or (mixes and strict) else None
    if given is None or not mixes:
        return root
    counted = _with_histories(root, iter(given))
    if below is not None:
        counted = _same_place(root, counted, below)
    known = iter(mix_places(counted, position))
    places = [None if history is None else next(known) for history in given]
    after = [_continued(*each, strict=strict) for each in zip(mixes, given, places, strict=True)]
    out = _with_histories(root, iter(after))
    there = out if below is None else _same_place(root, out, below)
    for node, history, place, now in zip(mixes, given, places, mix_places(there, position), strict=True):
        if (
            place is not None and now != place and after != given and history is not None
        ):  # the last short batch of a mix that goes on is none any more
            if strict:
                raise _unknown_place(node, history)
            return root
    return out


def _continued(node: Mix, history: History | None, place: int | None, *, strict: bool) -> History:
    """Return the history of a mix that goes on at a place with the weights of the plan; `history` is None for one that is new."""
    wanted = node.history[-1][1]
    if history is None:
        return node.history
    if len(wanted) == len(history[-1][1]) and tree_of(wanted) == tree_of(history[-1][1]):
        return history
    if place is not None:
        return (*(entry for entry in history if entry[0] < place), (place, wanted))
    if strict:
        raise _unknown_place(node, history)
    return node.history


def _unknown_place(node: Mix, history: History) -> StateMismatch:
    wanted, were = node.history[-1][1], history[-1][1]
    if len(wanted) == len(were):
        change = f"the weights of mix were {_words(were)} and are now {_words(wanted)}"
    else:
        change = f"the mix had {len(were)} components and has {len(wanted)} now"
    return StateMismatch(
        f"{change}, but how many elements it has given does not follow from the position", where="load_state_dict()", fix=_FIX
    )


def plan_before(root: Node, saved: Any) -> tuple[Node, list[str]]:
    """Return the plan without the components that were added to the end of its mixes, and for each mix that has others a sentence.

    Args:
        root: a plan as it was written.
        saved: the histories of the state, or None.

    Raises:
        StateDamaged: when `saved` is no list of histories.
    """
    given = None if saved is None else _given(root, saved, fewer=True)
    if given is None:
        return root, []
    pairs = [(len(history[-1][1]), len(node.children)) for node, history in zip(_mixes(root), given, strict=True) if history is not None]
    changes = [
        f"the mix had {had} components and has {has} now; they can only be added, behind the others" for had, has in pairs if had != has
    ]
    return _with_histories(root, iter(given)), changes


def _mixes(root: Node) -> list[Mix]:
    return [node for node in walk(root) if isinstance(node, Mix)]


def _given(root: Node, saved: Any, *, fewer: bool = False) -> list[History | None] | None:
    """Return the saved history of each mix of a plan, in the order of `walk`; None for a mix in a component that is new.

    None when they are those of another plan: of another number of mixes, or of one with more components, unless `fewer`.
    """
    left = _checked(saved, _mixes(root))
    try:
        given = _taken(root, left, fewer=fewer)
    except IndexError:  # there are fewer mixes in the state
        return None
    return None if left else given


def _taken(node: Node, left: list[History], *, fewer: bool) -> list[History | None]:
    """Take the histories of a node and of what is below it from the end of `left`: it comes last, its last component before it."""
    out: list[History | None] = []
    children = children_of(node)
    num_before = len(children)
    if isinstance(node, Mix):
        history = left.pop()
        out.append(history)
        num_before = len(history[-1][1]) if history else 0
        if num_before > len(children) and not fewer:
            left.insert(0, history)  # one too many stays: the state is not of this plan
            num_before = len(children)
    for number, child in reversed(list(enumerate(children))):
        out = [*(_taken(child, left, fewer=fewer) if number < num_before else [None] * len(_mixes(child))), *out]
    return out


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
            return [node.first + position * node.num_shards]
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


def _with_histories(node: Node, given: Iterator[History | None]) -> Node:
    """Give the mixes of a plan other histories, in the order of `walk`, and as many components as these have; None leaves a mix as it is.

    What stays the same stays the same node.
    """
    children = tuple(_with_histories(child, given) for child in children_of(node))
    if not isinstance(node, Mix):
        return with_children(node, children)
    history = next(given) or node.history
    children = children[: len(history[-1][1])]
    return replace(node, children=children, history=history) if history != node.history or children != node.children else node


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
    sizes = [len(weights) for _, weights in history]
    return sizes[0] > 1 and sizes == sorted(sizes) and all(0 < weight < INFINITE for _, weights in history for weight in weights)


def _words(weights: Sequence[float]) -> str:
    text = ", ".join(f"{weight:g}" for weight in weights)
    return f"({text})" if len(text) <= 80 else f"({text[:77]}...)"
