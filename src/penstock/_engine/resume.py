"""From a token to a saved state and back: pure."""

from __future__ import annotations

from typing import Any, NamedTuple, cast

from penstock._contracts.source import StatefulStream, StreamSource
from penstock._engine.bounds import LARGEST, border_of, count, known_of, listed, tally_of
from penstock._engine.lower import lower
from penstock._engine.unit import Done, Note, Record, Token
from penstock._order.arithmetic import INFINITE, shard_resume
from penstock._order.chain import HoldingFold
from penstock._order.folds import Fold
from penstock._plan.describe import lines, sources
from penstock._plan.length import is_indexable, length_of, walk
from penstock._plan.node import AnyBatch, Map, Node, Prefetch, ReadStream, Repeat, Shard, children_of
from penstock._plan.progress import GlobalPosition, global_position, resharded, shard_of
from penstock._plan.reweighting import histories, reweighted
from penstock._plan.saved import FORMAT, checked, compare, sealed
from penstock.errors import StateDamaged, StateMismatch, StateUnavailable

__all__ = ["Form", "Part", "restored", "saved"]


class Form(NamedTuple):
    """What is lowered, and how."""

    root: Node
    folded: bool
    skips: bool = False


class Part(NamedTuple):
    """A program to run from a token on."""

    form: Form
    token: Token


def saved(root: Node, form: Form, token: Token, step: int, dataset: list[dict[str, Any]], version: str) -> dict[str, Any]:
    """Return the state that resumes right behind `token` of `form`, a part of the plan `root`.

    Raises:
        StateUnavailable: when the source is a generator that may not be read again.
    """
    note = _note_of(root, token)
    shard = None if form.folded else _movable_shard(root)
    shards = [node for node in walk(root) if isinstance(node, Shard)]
    record: dict[str, Any] = {
        "penstock_state": FORMAT,
        "version": version,
        "plan": lines(root, saved=True),
        "dataset": dataset,
        "shard": [[node.num_shards, node.index] for node in shards],
        "step": step,
        "position": None,
        "global": None,
    }
    if token.tally:
        record["lost"] = [list(entry) for entry in token.tally]
    mixes = histories(form.root)[: len(histories(root))]  # a moved plan may hold them twice
    if mixes:
        record["mix"] = mixes
    if shard is not None:
        place = global_position(form.root, token.source[1])
        record["global"] = {"epoch": place.epoch, "element": place.element}
    else:
        record["position"] = {
            "folded": form.folded,
            **({"skips": True} if form.skips else {}),
            "source": list(token.source),
            "done": [[list(run) for run in token.done.runs], [[place, list(results)] for place, results in token.done.partial]],
            "sequencers": [listed(one) for one in token.sequencers],
        }
        if note is not None:
            record["position"]["stream"] = {"pass": note.pass_number, "position": note.position, "cut": note.cut, "state": note.state}
    return sealed(record)


def _note_of(root: Node, token: Token) -> Note | None:
    """Return what a stream said of its place, when a resume is to go there.

    Raises:
        StateUnavailable: when a stream cannot be brought back to its place.
    """
    note = token.note
    for node in sources(root):
        if not isinstance(node, ReadStream) or node.source.can_fast_forward():
            continue
        if not isinstance(node.source, StatefulStream):
            raise StateUnavailable(
                "a generator cannot say where it is, so this feed has no state to save",
                where=node.source.label(),
                fix="use from_source with __getitem__, from_stream with an object that has state_dict() and load_state_dict(), "
                "or fast_forward=True to read and drop what was delivered",
            )
        if note is not None and note.missing is not None:
            raise StateUnavailable(note.missing.what, where=note.missing.where, fix=note.missing.fix)
    return None if note is None or note.missing is not None else note


def restored(
    root: Node, state: Any, dataset: list[dict[str, Any]], *, strict: bool, folded: bool, skips: bool = False, ordered: bool = False
) -> tuple[list[Part], int]:
    """Return the parts to run for a saved state, and its step. With `folded` they are folded; a folded state stays so without it.

    With `skips`, elements may be left out from now on. With `ordered`, elements keep their order.

    Raises:
        StateDamaged: when the state is cut, changed or out of bounds.
        StateMismatch: when it belongs to another plan, dataset or number of shards that cannot be mapped.
    """
    record = checked(state)
    step = count(record["step"], "step")
    if strict:
        compare(record, lines(root, saved=True), dataset)
    shards = [[node.num_shards, node.index] for node in walk(root) if isinstance(node, Shard)]
    root = _with_weights(root, record, strict=strict)
    if record["global"] is not None and _movable_shard(root) is not None:
        place = _global_place(root, record["global"])
        parts = _parts(root, place)
        first, *rest = [_folded_part(root, part, ordered=ordered) for part in parts] if folded else parts
        first = first._replace(token=first.token._replace(tally=tally_of(record.get("lost", []))))
        return [_skipping(part, skips=skips) for part in (first, *rest)], step
    if strict and record["shard"] != shards:
        raise StateMismatch(
            f"the state was saved with shard{_words(record['shard'])} and this plan has shard{_words(shards)}; a state moves to another "
            "number of shards only when nothing but map, batch, repeat and prefetch stands above the shard",
            where="load_state_dict()",
            fix="resume with the same shards, or put shard() above shuffle and filter",
        )
    part = _part(root, record["position"])
    part = _skipping(_folded_part(root, part, ordered=ordered) if folded else part, skips=skips)
    return [part._replace(token=part.token._replace(tally=tally_of(record.get("lost", []))))], step


def _skipping(part: Part, *, skips: bool) -> Part:
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


def _with_weights(root: Node, record: dict[str, Any], *, strict: bool) -> Node:
    """Return the plan with the history of its mixes; the bounds of the position are checked later, against this plan."""
    shard = _movable_shard(root)
    place, number, below = record["position"], None, None
    if shard is not None and isinstance(record["global"], dict):
        number = record["global"].get("element") if record["global"].get("epoch") == 0 and not _repeated(root, shard) else None
        below = shard.child
    elif (
        is_indexable(root)
        and isinstance(place, dict)
        and isinstance(place.get("source"), list)
        and place["source"][:1] == [0]
        and place.get("folded") is not True
    ):
        number = place["source"][-1]
    number = number if isinstance(number, int) and 0 <= number <= LARGEST else None
    return reweighted(root, record.get("mix"), number, below, strict=strict)


def _movable_shard(root: Node) -> Shard | None:
    return shard_of(root) if is_indexable(root) else None


def _words(shards: Any) -> str:
    return ", ".join(f"({number}, {index})" for number, index in shards) or "s: none"


def _global_place(root: Node, record: Any) -> GlobalPosition:
    shard = shard_of(root)
    assert shard is not None
    total = length_of(shard.child)
    repeat = _repeated(root, shard)
    most_epochs: float = 1 if repeat is None else (INFINITE if repeat.count is None else repeat.count)
    if not isinstance(record, dict):
        count(record, "global position")
    epoch = count(record.get("epoch"), "epoch", most_epochs)
    element = count(record.get("element"), "element", INFINITE if total is None else total)
    return GlobalPosition(epoch, 0 if epoch == most_epochs else element)


def _repeated(root: Node, shard: Shard) -> Repeat | None:
    """Return the repeat above the shard."""
    here = root
    while here is not shard:
        if isinstance(here, Repeat):
            return here
        here = children_of(here)[0]
    return None


def _parts(root: Node, place: GlobalPosition) -> list[Part]:
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


def _folded_part(root: Node, part: Part, *, ordered: bool) -> Part:
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


def _part(root: Node, record: Any) -> Part:
    """Check a position against the plan's program."""
    folded = isinstance(record, dict) and record.get("folded") is True
    skips = isinstance(record, dict) and record.get("skips") is True
    program = lower(root, folded=folded, skips=skips)
    first = program.segments[0]
    folds = [segment.folds for segment in program.segments if segment.folds is not None and not segment.transparent]
    if not isinstance(record, dict) or not isinstance(record.get("source"), list) or len(record["source"]) != 2:
        count(None, "position")
    length = first.length if first.leaf is not None else None
    source = (count(record["source"][0], "pass"), count(record["source"][1], "position", INFINITE if length is None else length))
    sequencers = record.get("sequencers")
    if not isinstance(sequencers, list) or (len(sequencers) != len(folds) and (sequencers or source != (0, 0))):
        count(None, "fold states")
    out = []
    for saved_record, chain in zip(sequencers, folds, strict=False):
        out.append(_record(saved_record, chain))
    return Part(
        Form(root, folded, skips), Token(source, tuple(out), _done(record.get("done")), _note(first.stream, source, record.get("stream")))
    )


def _done(record: Any) -> Done:
    """Check what was delivered in completion order."""
    try:
        runs, partial = record
        out = Done(
            tuple((count(begin, "run"), count(end, "run")) for begin, end in runs),
            tuple((count(place, "position"), tuple(count(number, "result") for number in results)) for place, results in partial),
        )
    except (TypeError, ValueError) as error:
        if isinstance(error, StateDamaged):
            raise
        return Done(((count(None, "list of runs"), 0),))
    places = [place for run in out.runs for place in run]
    if places != sorted(places):
        count(places, "list of runs")
    return out


def _record(saved_record: Any, folds: tuple[Fold, ...]) -> Record:
    """Check what a sequencer saved against its folds."""
    if not isinstance(saved_record, list) or len(saved_record) not in (5, 7) or not isinstance(saved_record[2], list):
        count(None, "fold states")
    skip, mode, states, recall, drop, known, replay = saved_record if len(saved_record) == 7 else [*saved_record, [], [0, 0]]
    if len(states) != len(folds):
        count(None, "fold states")
    numbers = count(skip, "sub-position"), count(mode, "fold mode", 2)
    again = known_of(known), border_of(replay)
    out = Record(*numbers, tuple(states), count(recall, "number of held elements"), count(drop, "number of results"), *again)
    for value, fold in zip(states, folds, strict=True):
        if hasattr(fold, "held"):
            _check_held(value, cast(HoldingFold, fold), out.recall)
        else:
            _check_like(value, fold.initial())
    return out


def _check_held(value: Any, fold: HoldingFold, recall: int) -> None:
    """Check the numbers of held elements: each is one of the `recall` that a resume reads again."""
    try:
        numbers = fold.numbers(value)
    except (TypeError, ValueError, KeyError) as error:
        raise _damaged_fold(f"{value!r} ({error})") from None
    if any(number >= recall for number in numbers):
        raise _damaged_fold(f"{value!r}, which holds more than the {recall} elements that are read again")


def _check_like(value: Any, initial: Any) -> None:
    """Check counts that lie as the initial ones do."""
    if isinstance(initial, int):
        count(value, "fold state")
    elif type(value) is not type(initial) or len(value) != len(initial) or (isinstance(initial, dict) and value.keys() != initial.keys()):
        raise _damaged_fold(repr(value))
    else:
        for place in initial if isinstance(initial, dict) else range(len(initial)):
            _check_like(value[place], initial[place])


def _damaged_fold(words: str) -> StateDamaged:
    return StateDamaged(
        f"the state's fold state is {words}",
        where="load_state_dict()",
        fix="use an older checkpoint; this one would skip or repeat elements",
    )


def _note(stream: StreamSource | None, source: tuple[int, int], record: Any) -> Note | None:
    """Check what a stream said of its place: not behind the place of delivery, and for a stream that can go there."""
    if record is None:
        return None
    if not isinstance(record, dict) or not isinstance(record.get("cut"), bool) or "state" not in record:
        count(None, "stream state")
    place = (count(record.get("pass"), "stream's pass", source[0]), count(record.get("position"), "stream's position"))
    if place > source:
        count(place[1], "stream's position", source[1])
    if stream is None or not (isinstance(stream, StatefulStream) or stream.can_fast_forward()):
        raise StateMismatch(
            "the state holds the place of a stream with states, and this source has none",
            where="load_state_dict()",
            fix="resume with an object that has state_dict() and load_state_dict(), or with fast_forward=True",
        )
    return Note(*place, record["state"], record["cut"])
