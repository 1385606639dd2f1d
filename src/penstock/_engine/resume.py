"""From a token to a saved state and back: pure."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, cast

from penstock._contracts.source import StatefulStream, StreamSource
from penstock._engine.bounds import LARGEST, border_of, count, known_of, listed, tally_of
from penstock._engine.lower import lower
from penstock._engine.moving import Form, Part, folded_part, global_place, movable_shard, parts_at, repeated, skipping
from penstock._engine.unit import Done, Note, Record, Token
from penstock._order.arithmetic import INFINITE
from penstock._order.chain import HoldingFold
from penstock._order.folds import Fold
from penstock._plan.describe import lines, sources
from penstock._plan.length import is_indexable, walk
from penstock._plan.node import Node, ReadStream, Shard
from penstock._plan.progress import global_position
from penstock._plan.reweighting import histories, reweighted
from penstock._plan.saved import FORMAT, checked, compare, sealed
from penstock.errors import StateDamaged, StateMismatch, StateUnavailable

__all__ = ["restored", "saved"]


def saved(root: Node, form: Form, token: Token, step: int, dataset: list[dict[str, Any]], version: str) -> dict[str, Any]:
    """Return the state that resumes right behind `token` of `form`, a part of the plan `root`.

    Raises:
        StateUnavailable: when the source is a generator that may not be read again.
    """
    note = _note_of(root, token)
    shard = None if form.folded else movable_shard(root)
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
    if record["global"] is not None and movable_shard(root) is not None:
        place = global_place(root, record["global"])
        parts = parts_at(root, place)
        first, *rest = [folded_part(root, part, ordered=ordered) for part in parts] if folded else parts
        first = first._replace(token=first.token._replace(tally=tally_of(record.get("lost", []))))
        return [skipping(part, skips=skips) for part in (first, *rest)], step
    if strict and record["shard"] != shards:
        raise StateMismatch(
            f"the state was saved with shard{_words(record['shard'])} and this plan has shard{_words(shards)}; a state moves to another "
            "number of shards only when nothing but map, batch, repeat and prefetch stands above the shard",
            where="load_state_dict()",
            fix="resume with the same shards, or put shard() above shuffle and filter",
        )
    part = _part(root, record["position"])
    part = skipping(folded_part(root, part, ordered=ordered) if folded else part, skips=skips)
    return [part._replace(token=part.token._replace(tally=tally_of(record.get("lost", []))))], step


def _with_weights(root: Node, record: dict[str, Any], *, strict: bool) -> Node:
    """Return the plan with the history of its mixes; the bounds of the position are checked later, against this plan."""
    shard = movable_shard(root)
    place, number, below = record["position"], None, None
    if shard is not None and isinstance(record["global"], dict):
        number = record["global"].get("element") if record["global"].get("epoch") == 0 and not repeated(root, shard) else None
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


def _words(shards: Any) -> str:
    return ", ".join(f"({number}, {index})" for number, index in shards) or "s: none"


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
    done = _done(record.get("done"), source[1], INFINITE if length is None else length)
    token = Token(source, tuple(out), done, _note(first.stream, source, record.get("stream")))
    return Part(Form(root, folded, skips), token)


def _done(record: Any, position: int, length: float) -> Done:
    """Check what was delivered in completion order: from `position` on, inside the pass, ascending, with gaps between."""
    try:
        runs, partial = record
        out = Done(
            tuple((count(begin, "run", length), count(end, "run", length)) for begin, end in runs),
            tuple((count(place, "position", length), tuple(count(number, "result") for number in results)) for place, results in partial),
        )
    except (TypeError, ValueError) as error:
        if isinstance(error, StateDamaged):
            raise
        return Done(((count(None, "list of runs"), 0),))
    places = [position - 1, *(place for run in out.runs for place in run)]
    inputs = [place for place, _ in out.partial]
    if any(after <= before for before, after in pairwise(places)) or any(after <= before for before, after in pairwise(inputs)):
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
