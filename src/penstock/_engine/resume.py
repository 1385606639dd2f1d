"""From a token to a saved state and back: pure."""

from __future__ import annotations

from typing import Any, cast

from penstock._engine.lower import lower
from penstock._engine.unit import Record, Token
from penstock._order.arithmetic import INFINITE, shard_resume
from penstock._order.chain import HoldingFold
from penstock._order.folds import Fold
from penstock._plan.describe import lines, sources
from penstock._plan.length import is_indexable, length_of, walk
from penstock._plan.node import Batch, Node, PaddedBatch, ReadStream, Repeat, Shard, children_of
from penstock._plan.progress import GlobalPosition, global_position, resharded, shard_of
from penstock._plan.saved import FORMAT, checked, compare, sealed
from penstock.errors import StateDamaged, StateMismatch, StateUnavailable

__all__ = ["restored", "saved"]

Part = tuple[Node, Token]
_LARGEST = 2**63 - 1


def saved(root: Node, part: Node, token: Token, step: int, dataset: list[dict[str, Any]], version: str) -> dict[str, Any]:
    """Return the state that resumes right behind `token` of `part`, a part of the plan `root`.

    Raises:
        StateUnavailable: when the source is a generator that may not be read again.
    """
    for node in sources(root):
        if isinstance(node, ReadStream) and not node.source.can_fast_forward():
            raise StateUnavailable(
                "a generator cannot say where it is, so this feed has no state to save",
                where=node.source.label(),
                fix="use from_source with __getitem__, or from_generator(fn, fast_forward=True) to read and drop what was delivered",
            )
    shard = _movable_shard(root)
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
    if shard is not None:
        place = global_position(part, token.source[1])
        record["global"] = {"epoch": place.epoch, "element": place.element}
    else:
        record["position"] = {
            "source": list(token.source),
            "sequencers": [[skip, mode, list(states), recall, drop] for skip, mode, states, recall, drop in token.sequencers],
        }
    return sealed(record)


def restored(root: Node, state: Any, dataset: list[dict[str, Any]], *, strict: bool) -> tuple[list[Part], int]:
    """Return the parts to run for a saved state, and its step.

    Raises:
        StateDamaged: when the state is cut, changed or out of bounds.
        StateMismatch: when it belongs to another plan, dataset or number of shards that cannot be mapped.
    """
    record = checked(state)
    step = _count(record["step"], "step")
    if strict:
        compare(record, lines(root, saved=True), dataset)
    shards = [[node.num_shards, node.index] for node in walk(root) if isinstance(node, Shard)]
    if record["global"] is not None and _movable_shard(root) is not None:
        place = _global_place(root, record["global"])
        return _parts(root, place), step
    if strict and record["shard"] != shards:
        raise StateMismatch(
            f"the state was saved with shard{_words(record['shard'])} and this plan has shard{_words(shards)}; a state moves to another "
            "number of shards only when nothing but map, batch, repeat and prefetch stands above the shard",
            where="load_state_dict()",
            fix="resume with the same shards, or put shard() above shuffle and filter",
        )
    return [(root, _token(root, record["position"]))], step


def _movable_shard(root: Node) -> Shard | None:
    return shard_of(root) if is_indexable(root) else None


def _words(shards: Any) -> str:
    return ", ".join(f"({number}, {index})" for number, index in shards) or "s: none"


def _count(value: Any, name: str, most: float = INFINITE) -> int:
    most = min(most, _LARGEST)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= most:
        raise StateDamaged(
            f"the state's {name} is {value!r}, outside 0..{most}",
            where="load_state_dict()",
            fix="use an older checkpoint; this one would skip or repeat elements",
        )
    return value


def _global_place(root: Node, record: Any) -> GlobalPosition:
    shard = shard_of(root)
    assert shard is not None
    total = length_of(shard.child)
    repeat = next((node for node in walk(root) if isinstance(node, Repeat) and _above(root, node, shard)), None)
    most_epochs: float = 1 if repeat is None else (INFINITE if repeat.count is None else repeat.count)
    if not isinstance(record, dict):
        _count(record, "global position")
    epoch = _count(record.get("epoch"), "epoch", most_epochs)
    element = _count(record.get("element"), "element", INFINITE if total is None else total)
    return GlobalPosition(epoch, 0 if epoch == most_epochs else element)


def _above(root: Node, node: Node, shard: Shard) -> bool:
    here = root
    while here is not shard:
        if here is node:
            return True
        here = children_of(here)[0]
    return False


def _parts(root: Node, place: GlobalPosition) -> list[Part]:
    position = _aligned(root, place)
    if position is not None:
        return [(root, Token((0, position)))]
    return [(part, Token((0, 0))) for part in resharded(root, place)]


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
        if isinstance(node, (Batch, PaddedBatch)):
            if position is None or position % node.batch_size:
                return None
            position //= node.batch_size
        elif isinstance(node, Repeat):
            has_repeat = True
            position = (position or 0) + epoch * int(length_of(node.child) or 0)
    if not has_repeat and epoch:
        return int(length_of(root) or 0)
    return position


def _token(root: Node, record: Any) -> Token:
    """Check a position against the plan's program."""
    program = lower(root)
    first = program.segments[0]
    folds = [segment.folds for segment in program.segments if segment.folds is not None and not segment.transparent]
    if not isinstance(record, dict) or not isinstance(record.get("source"), list) or len(record["source"]) != 2:
        _count(None, "position")
    length = first.length if first.leaf is not None else None
    source = (_count(record["source"][0], "pass"), _count(record["source"][1], "position", INFINITE if length is None else length))
    sequencers = record.get("sequencers")
    if not isinstance(sequencers, list) or (len(sequencers) != len(folds) and (sequencers or source != (0, 0))):
        _count(None, "fold states")
    out = []
    for saved_record, chain in zip(sequencers, folds, strict=False):
        out.append(_record(saved_record, chain))
    return Token(source, tuple(out))


def _record(saved_record: Any, folds: tuple[Fold, ...]) -> Record:
    """Check what a sequencer saved against its folds."""
    if not isinstance(saved_record, list) or len(saved_record) != 5 or not isinstance(saved_record[2], list):
        _count(None, "fold states")
    skip, mode, states, recall, drop = saved_record
    if len(states) != len(folds):
        _count(None, "fold states")
    numbers = _count(skip, "sub-position"), _count(mode, "fold mode", 2)
    out = Record(*numbers, tuple(states), _count(recall, "number of held elements"), _count(drop, "number of results"))
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
        _count(value, "fold state")
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
