"""A saved place said in another way: for other shards, for batches that are folds, for elements that may be left out. Pure."""

from __future__ import annotations

from typing import NamedTuple

from penstock._engine.bounds import count, within_reach
from penstock._engine.lower import lower
from penstock._engine.unit import Record, Token
from penstock._order.arithmetic import INFINITE, shard_resume
from penstock._plan.describe import lines
from penstock._plan.length import ROOM, is_indexable, length_of
from penstock._plan.node import AnyBatch, Map, Node, Prefetch, Repeat, Shard, children_of
from penstock._plan.progress import GlobalPosition, resharded, shard_of
from penstock._plan.saved import LARGEST
from penstock.errors import StateMismatch

__all__ = ["Form", "Part", "check_positions", "folded_part", "global_place", "movable_shard", "parts_at", "repeated", "skipping"]


class Form(NamedTuple):
    """What is lowered, and how."""

    root: Node
    folded: bool
    skips: bool = False


class Part(NamedTuple):
    """A program to run from a token on."""

    form: Form
    token: Token


def skipping(part: Part, *, skips: bool) -> Part:
    """Let elements be left out from here on. A form that allows it stays so.

    Raises:
        StateMismatch: the state counts elements in other places than a run that may leave some out.
    """
    form = part.form
    if form.skips or not skips:
        return part
    new = form._replace(skips=True)
    if part.token.sequencers and _fold_kinds(form) != _fold_kinds(new):
        raise StateMismatch(
            "this state was saved without Skip, and the plan counts elements above a map that may now leave some out",
            where="load_state_dict()",
            fix="resume with the policies that the state was saved with, or use Replace or Retry",
        )
    return Part(new, part.token)


def _fold_kinds(form: Form) -> list[list[type]]:
    program = lower(form.root, folded=form.folded, skips=form.skips)
    return [[type(fold) for fold in segment.folds] for segment in program.segments if segment.folds is not None and not segment.transparent]


def check_positions(root: Node, parts: list[Part]) -> None:
    """Refuse to record or replay a state that moves to other shards: the positions would be those of another plan.

    Raises:
        StateMismatch: the parts are not of the plan `root`.
    """
    if any(lines(part.form.root, saved=True) != lines(root, saved=True) for part in parts):
        raise StateMismatch(
            "record= and replay= name positions of the plan, but this state moves to another number of shards in the middle of an epoch",
            where="load_state_dict()",
            fix="leave record= and replay= out",
        )


def movable_shard(root: Node) -> Shard | None:
    return shard_of(root) if is_indexable(root) else None


def global_place(root: Node, record: dict[str, int]) -> GlobalPosition:
    shard = shard_of(root)
    assert shard is not None
    total = length_of(shard.child)
    repeat = repeated(root, shard)
    most_epochs: float = 1 if repeat is None else (INFINITE if repeat.count is None else repeat.count)
    epoch = count(record["epoch"], "epoch", min(most_epochs, LARGEST // int(total or 1) - ROOM) if total != INFINITE else most_epochs)
    element = count(record["element"], "element", INFINITE if total is None else total)
    if total == INFINITE:
        within_reach(shard.child, element, "element")
    return GlobalPosition(epoch, 0 if epoch == most_epochs else element)


def repeated(root: Node, shard: Shard) -> Repeat | None:
    """Return the repeat above the shard."""
    here = root
    while here is not shard:
        if isinstance(here, Repeat):
            return here
        here = children_of(here)[0]
    return None


def parts_at(root: Node, place: GlobalPosition) -> list[Part]:
    position = _aligned(root, place)
    if position is not None:
        return [Part(Form(root, False), Token((0, position)))]
    return [Part(Form(part, False), Token((0, 0))) for part in resharded(root, place)]


def _aligned(root: Node, place: GlobalPosition) -> int | None:
    """Return the root position of a place that falls on a batch border of this shard, or None."""
    shard = shard_of(root)
    assert shard is not None
    total = length_of(shard.child)
    epoch, offset = place.epoch, shard_resume(place.element, shard.num_shards, shard.index)
    if total not in (None, INFINITE) and place.element >= int(total or 0):
        epoch, offset = epoch + 1, 0
    elif offset * shard.num_shards != place.element:
        return None  # the shards stand between two of their positions: only a moved plan can say that again
    chain: list[Node] = []
    node = root
    while node is not shard:
        chain.append(node)
        node = children_of(node)[0]
    position: int | None = offset
    has_repeat = False
    for node in reversed(chain):
        if isinstance(node, AnyBatch):
            if position is None or position % node.batch_size:
                return None
            position //= node.batch_size
        elif isinstance(node, Repeat):
            has_repeat = True
            position = (position or 0) + epoch * int(length_of(node.child) or 0)
    if not has_repeat and epoch:
        return int(length_of(root) or 0)
    return position


def folded_part(root: Node, part: Part, *, ordered: bool) -> Part:
    """Say a place between batches whose rows are arithmetic as a place between elements.

    Raises:
        StateMismatch: something stands above the batch that makes this impossible.
    """
    form, token = part
    if form.folded or not is_indexable(root):
        if not ordered and any(record.recall or record.drop for record in token.sequencers):
            raise StateMismatch(
                "this state was saved with ordered=True and holds elements in a shuffle buffer, bucket or pack in their order",
                where="load_state_dict()",
                fix="resume with ordered=True",
            )
        return Part(form._replace(folded=True), token)
    chain = [form.root]
    while len(children_of(chain[-1])) == 1:
        chain.append(children_of(chain[-1])[0])
    lowest = max((place for place, node in enumerate(chain) if isinstance(node, AnyBatch)), default=None)
    if lowest is None:
        return Part(Form(form.root, True), token)
    batch, above = chain[lowest], chain[:lowest]
    if form.root is not root or not all(isinstance(node, (Map, Prefetch, Repeat)) for node in above):
        raise StateMismatch(
            "a state that was saved with ordered=True cannot be moved to completion order here: something other than map, prefetch and "
            "repeat stands above the batch, or the number of shards changes as well",
            where="load_state_dict()",
            fix="resume with ordered=True",
        )
    assert isinstance(batch, AnyBatch)
    passes, position, states = 0, token.source[1], []
    for node in above:
        if isinstance(node, Repeat):
            length = int(length_of(node.child) or 1)
            number, position = divmod(position, length)
            if node.count is not None and number >= node.count:
                number, position = node.count - 1, length
            passes = passes * (node.count or 1) + number
            states.append(number)
    element = int(min(position * batch.batch_size, length_of(batch.child) or 0))
    return Part(Form(root, True), Token((passes, element), (Record(0, 0, ([], *reversed(states))),)))
