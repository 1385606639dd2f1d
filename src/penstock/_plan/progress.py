"""How far each part of a plan is when its root has given so many elements, and the plan of what is left.

For the place that all shards of a dataset have reached together, which another number of shards goes on from; and for a mix that changes at
a resume, by other weights or more components.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from penstock._order.arithmetic import INFINITE, shard_resume
from penstock._order.folds import uneven
from penstock._order.mixing import History, tree_of
from penstock._plan.base import Descent, Node, length_of, walk
from penstock._plan.node import Concatenate, Mix, Repeat, Shard, Skip, mixes_of, shards_of
from penstock.errors import StateDamaged, StateMismatch

__all__ = [
    "GlobalPosition",
    "above_shard",
    "global_position",
    "histories",
    "mix_places",
    "plan_before",
    "resharded",
    "reweighted",
    "shard_of",
]


class GlobalPosition(NamedTuple):
    """All elements of the order below `shard` before `element` in pass `epoch`, and all earlier passes, were delivered."""

    epoch: int
    element: int


_FIX = (
    "resume with the weights and components that were saved; they can change where nothing but map, batch, take, skip, shard, enumerate, "
    "zip and prefetch stands above mix(), so put shuffle() and repeat() below it"
)


def above_shard(root: Node) -> tuple[list[Node], Node]:
    """Return the nodes that a saved place passes on its way to another number of shards, from the root down, and the node below them."""
    above: list[Node] = []
    node = root
    while node.moves_as:
        above.append(node)
        node = node.children[0]
    return above, node


def shard_of(root: Node) -> Shard | None:
    """Return the shard of a plan whose saved state can be resumed with another number of shards, or None.

    That is a shard with nothing above it but maps, prefetches, one batch and one repeat, which is not that of an endless shard.
    """
    above, bottom = above_shard(root)
    kinds = [node.moves_as for node in above]
    if kinds.count("batch") > 1 or kinds.count("repeat") > 1 or ("repeat" in kinds and length_of(bottom) == INFINITE):
        return None
    return next((node for node in shards_of(bottom) if node is bottom), None)


def global_position(root: Node, position: int) -> GlobalPosition:
    """Return what root position `position` means for all shards together. `shard_of` of the whole plan must not be None."""
    node, place = root, Descent(position)
    while (below := node.descend(place)) is not None:
        node, place = below
    shard = shard_of(node)
    assert shard is not None
    element, total = shard.first + place.position * shard.num_shards - place.lead, length_of(shard.child)
    if total is None or total == INFINITE:
        return GlobalPosition(place.epoch, element)
    if not place.repeated or not total:
        return GlobalPosition(place.epoch, min(element, int(total)))
    return GlobalPosition(*divmod(place.epoch * int(total) + element, int(total)))


def resharded(root: Node, place: GlobalPosition) -> list[Node]:
    """Return the plans that deliver, one after the other, what is left after `place`: the rest of its pass, then the passes after it."""
    path, shard = above_shard(root)[0], shard_of(root)
    assert shard is not None
    number = next((number for number, node in enumerate(path) if node.moves_as == "repeat"), None)
    if number is None:
        return [_rebuilt(path, _rest(shard, place))]
    above, inside, count = path[:number], path[number + 1 :], path[number].num_passes
    left = None if count is None else count - place.epoch - 1
    first = Repeat(child=_rebuilt(inside, _rest(shard, place)), count=1, first=place.epoch, whole=count)
    passes = _rebuilt(inside, _rest(shard, place, whole=True))
    after = Repeat(child=passes, count=left, first=place.epoch + 1, whole=count)
    if left == 0:
        return [_rebuilt(above, first)]
    if any(part.makes_batches for part in above):
        return [_rebuilt(above, Concatenate(children=(first, after), parts_of_one=True))]
    return [_rebuilt(above, first), _rebuilt(above, after)]


def _rebuilt(above: list[Node], node: Node) -> Node:
    for part in reversed(above):
        node = part.with_children([node])
    return node


def _rest(shard: Shard, place: GlobalPosition, *, whole: bool = False) -> Node:
    """Return what is left of a pass at `place`, or a whole later pass of a run that was moved there.

    The shards have reached `place` together, which need not be a multiple of their number; the next saved state must say so again.
    """
    if shard.even is not None:  # rounds begin where the ranks are
        num_left = int(length_of(shard.child) or 0) - place.element if shard.even == "error" and not whole else 0
        if num_left % shard.num_shards:
            raise uneven(shard.num_shards, num_left % shard.num_shards)
        return shard if whole else replace(shard, first=place.element)
    count = shard_resume(place.element, shard.num_shards, shard.index)
    return Skip(child=shard, count=0 if whole else count, lead=count * shard.num_shards - place.element)


def histories(root: Node) -> list[Any]:
    """Return the history of each mix of a plan, in the order of its lines, as a state holds it."""
    return [[[start, list(weights)] for start, weights in node.history] for node in mixes_of(root)]


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
    mixes = mixes_of(root)
    given = _given(root, saved) if saved is not None or (mixes and strict) else None
    if given is None or not mixes:
        return root

    def at(plan: Node) -> Node:
        return plan if below is None else _same_place(root, plan, below)

    known = iter(mix_places(at(_with_histories(root, iter(given))), position))
    places = [None if history is None else next(known) for history in given]
    after = [_continued(*each, strict=strict) for each in zip(mixes, given, places, strict=True)]
    out = _with_histories(root, iter(after))
    if after == given:
        return out
    for node, history, place, now in zip(mixes, given, places, mix_places(at(out), position), strict=True):
        if history is not None and place is not None and now != place:  # the last short batch of a mix that goes on is none any more
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
    pairs = [(len(history[-1][1]), len(node.children)) for node, history in zip(mixes_of(root), given, strict=True) if history is not None]
    changes = [
        f"the mix had {had} components and has {has} now; they can only be added, behind the others" for had, has in pairs if had != has
    ]
    return _with_histories(root, iter(given)), changes


def _given(root: Node, saved: Any, *, fewer: bool = False) -> list[History | None] | None:
    """Return the saved history of each mix of a plan, in the order of `walk`; None for a mix in a component that is new.

    None when they are those of another plan: of another number of mixes, or of one with more components, unless `fewer`.
    """
    mixes = mixes_of(root)
    left = _checked(saved, mixes)
    out: list[History | None] = []
    num_new = 0
    for mix in reversed(mixes):  # each before those in its components, the last component first
        if num_new:
            num_new -= 1
            out.append(None)
            continue
        num_before = len(left[-1][-1][1]) if left else 0
        if not left or (num_before > len(mix.children) and not fewer):
            return None
        out.append(left.pop())
        num_new = sum(len(mixes_of(child)) for child in mix.children[num_before:])
    return None if left else out[::-1]


def mix_places(node: Node, position: int | None) -> list[int | None]:
    """Return how many elements each mix of a plan has given when its root has given `position`, in the order of `walk`; None if unknown."""
    return [place for node, place in zip(walk(node), _places(node, position), strict=True) if node.history]


def _places(node: Node, position: int | None) -> list[int | None]:
    """Return how many elements each node has given, in the order of `walk`."""
    length = length_of(node)
    if position is not None and length is not None:
        position = int(min(position, length))
    below = [None] * len(node.children) if position is None else node.given_below(position)
    out = [place for child, given in zip(node.children, below, strict=True) for place in _places(child, given)]
    return [*out, position]


def _with_histories(node: Node, given: Iterator[History | None]) -> Node:
    """Give the mixes of a plan other histories, in the order of `walk`, and as many components as these have; None leaves a mix as it is.

    What stays the same stays the same node.
    """
    children = [_with_histories(child, given) for child in node.children]
    return node.with_history(next(given) if node.history else None, children)


def _same_place(root: Node, rebuilt: Node, wanted: Node) -> Node:
    """Return the node that stands in `rebuilt` where `wanted` stands in `root`, above any branching."""
    while root is not wanted:
        root, rebuilt = root.children[0], rebuilt.children[0]
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
