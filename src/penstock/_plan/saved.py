"""A saved state: a JSON record that says what it belongs to, and checks itself; how a place in a plan moves to another number of shards."""

from __future__ import annotations

import json
import re
import sys
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import takewhile, zip_longest
from reprlib import Repr
from typing import Any, NamedTuple

from penstock._contracts.element import mapped
from penstock._order.arithmetic import INFINITE, shard_resume
from penstock._order.folds import uneven
from penstock._order.holding import damaged
from penstock._order.mixing import History, from_position, in_words, joined, same_shares
from penstock._plan.base import Descent, Node, length_of, substituted, walk
from penstock._plan.node import Concatenate, Mix, Repeat, Shard, Skip, mixes_of, shards_of
from penstock.errors import StateDamaged, StateMismatch

FORMAT = 3
_READ = (1, 2, 3)  # 1: without epochs, so of epoch 0; before 3: another form of a position
LARGEST = 2**63 - 1
_BATCH_SIZE = re.compile(r" *\w*batch\(([1-9]\d*)")
_FIX_DAMAGED = "use an older checkpoint; a state that was changed cannot be trusted to lose or repeat nothing"


class _Leaf(NamedTuple):
    """One JSON value: what it must be in words, and whether it is."""

    words: str
    fits: Callable[[Any], bool]


class _Either(NamedTuple):
    """The first form is that of values for which `first` is true, the second that of all others."""

    first: Callable[[Any], bool]
    forms: tuple[Any, Any]


def _whole(least: int = 0, most: int = LARGEST) -> _Leaf:
    return _Leaf(f"a whole number of {least}..{most}", lambda value: type(value) is int and least <= value <= most)


def _if_none(form: Any) -> _Either:
    return _Either(lambda value: value is None, (_ANY, form))


def _if_short(num_items: int, short_form: Any, long_form: Any) -> _Either:
    return _Either(lambda value: isinstance(value, list) and len(value) <= num_items, (short_form, long_form))


_ANY = _Leaf("anything", lambda value: True)
_COUNT, _TEXT = _whole(), _Leaf("a text", lambda value: isinstance(value, str))
_FLAG = _Leaf("true or false", lambda value: isinstance(value, bool))
_OBJECT = _Leaf("an object", lambda value: isinstance(value, dict))
_LIST = _Leaf("a list", lambda value: isinstance(value, list))
_WEIGHT = _Leaf("a finite number >= 0", lambda value: type(value) in (int, float) and 0 <= value <= sys.float_info.max)
_ACTION = _Leaf("'skipped' or 'replaced'", lambda value: value in ("skipped", "replaced"))
_KNOWN = (_COUNT, _COUNT, _COUNT, _TEXT, _if_short(0, (), (_COUNT, _COUNT, _COUNT)))
_LOST = (_ACTION, _TEXT, _COUNT, _COUNT, _COUNT)
_FOLDS = (_COUNT, _whole(most=2), _LIST, _COUNT, _COUNT)

_RUN = (_COUNT, _COUNT)
_FOLD_STATES = [_if_short(5, _FOLDS, (*_FOLDS, [_if_short(5, _KNOWN, (*_KNOWN, _whole(-1)))], _RUN))]
_STREAM = {"pass": _COUNT, "position": _COUNT, "cut": _FLAG, "state": _ANY}
_POSITION = {
    "source": _RUN,
    "done": [_RUN],
    "again": [(_COUNT, _COUNT, _COUNT)],
    "folds": _FOLD_STATES,
    "behind?": (_COUNT, [_RUN]),
    "read?": _RUN,
    "stream?": _STREAM,
}
_OLD_POSITION = {
    "folded?": _FLAG,
    "skips?": _FLAG,
    "source": _RUN,
    "done": ([_RUN], [(_COUNT, [_COUNT])]),
    "sequencers": _FOLD_STATES,
    "stream?": _STREAM,
}

_STATE = {
    "penstock_state": _COUNT,
    "version": _TEXT,
    "plan": [_TEXT],
    "dataset": [_OBJECT],
    "shard": [(_COUNT, _COUNT)],
    "step": _COUNT,
    "epoch?": (_COUNT, _COUNT),
    "position": _if_none(_POSITION),
    "global": _if_none({"epoch": _COUNT, "element": _COUNT}),
    "lost?": [_if_short(5, _LOST, (*_LOST, [(_COUNT, _COUNT)]))],
    "mix?": [[(_COUNT, [_WEIGHT])]],
    "crc32": _whole(most=2**32 - 1),
}
"""The form of a state: [form] is a list of any length, (form, form) a list of so many, "name?" a field that may be missing.

What the plan says of a value, as the bounds of a position, is checked where the plan is known. Fields that this version does not know are
left alone.
"""
_DROPPED: dict[str, Any] = {"dataset": [], "shard": [], "position": None, "global": None}
"""What is put back where it is missing."""
_OLD_STATE = {**_STATE, "position": _if_none(_OLD_POSITION)}
_KEYS = {name for name in _STATE if not name.endswith("?")}


def sealed(record: dict[str, Any]) -> dict[str, Any]:
    """Return the record with its checksum."""
    return {**record, "crc32": _crc(record)}


def _crc(record: Mapping[str, Any]) -> int:
    body = {key: value for key, value in record.items() if key != "crc32"}
    return zlib.crc32(json.dumps(body, sort_keys=True, separators=(",", ":")).encode())


def checked(state: Any) -> dict[str, Any]:
    """Return the state as a dict after checking its form and checksum. Accepts the dict, or its JSON as str, bytes or an array.

    What saves checkpoints may turn its numbers and lists into arrays, its whole numbers into floats, and drop what is None or empty: the
    checksum proves that what was made of it is what was saved.

    Raises:
        StateDamaged: when it is cut, changed, or no state at all.
        StateMismatch: when another version of the format wrote it.
    """
    try:
        if hasattr(state, "tolist"):
            state = state.tolist()  # a text, or its bytes
            state = state if isinstance(state, str | bytes) else bytes(state)
        state = _plain(json.loads(state) if isinstance(state, str | bytes | bytearray) else state)
    except (TypeError, ValueError, RecursionError) as error:
        fix = f"{_FIX_DAMAGED}; of a file, give what json.load() or torch.load() returns, not its name"
        raise StateDamaged(f"the state is not JSON: {error}", where="load_state_dict()", fix=fix) from error
    if not isinstance(state, Mapping) or "penstock_state" not in state:
        raise StateDamaged(
            f"this is no penstock state but a {type(state).__name__} {short(state)}",
            where="load_state_dict()",
            fix="give what state_dict() returned, or its JSON",
        )
    state = state if "crc32" not in state else {**state, "crc32": _whole_number(state["crc32"])}
    forms = [{**_DROPPED, **form} for form in (state, mapped(state, _whole_number, (float, str)))]
    state = next((form for form in forms if _crc(form) == form.get("crc32")), state)
    if type(state["penstock_state"]) is not int or state["penstock_state"] not in _READ:
        raise StateMismatch(
            f"the state has format {short(state['penstock_state'])} (written by penstock {short(state.get('version'))}); "
            f"this penstock reads formats {', '.join(map(str, _READ))}",
            where="load_state_dict()",
            fix="resume with the penstock version that wrote it",
        )
    missing = sorted(_KEYS - set(state))
    if missing:
        raise StateDamaged(f"the state lacks {', '.join(missing)}", where="load_state_dict()", fix=_FIX_DAMAGED)
    record: dict[str, Any] = state
    found = _crc(record)
    if found != record["crc32"]:
        raise StateDamaged(
            f"the checksum of the state is {short(record['crc32'])}, its content gives {found}", where="load_state_dict()", fix=_FIX_DAMAGED
        )
    _check(record, _STATE if record["penstock_state"] >= FORMAT else _OLD_STATE, "")
    if (record["position"] is None) == (record["global"] is None):
        raise _wrong("position", record["position"], f"one of position and global, global being {short(record['global'])}")
    return record


def _plain(value: Any) -> Any:
    """Return a value as JSON gives it, arrays and tensors as lists and numbers."""
    if isinstance(value, Mapping):
        return {str(name): _plain(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    if isinstance(value, str | int | float | None):
        return value
    return _plain(value.tolist()) if hasattr(value, "tolist") else json.loads(json.dumps(value))


def _whole_number(value: Any) -> Any:
    """Return a whole float, or a text of digits, as a whole number, and any other value as it is."""
    whole = (isinstance(value, float) and value.is_integer()) or (isinstance(value, str) and value.isdecimal())
    return int(value) if whole else value


def _check(value: Any, form: Any, path: str) -> None:
    """Compare a value with its form.

    Raises:
        StateDamaged: naming the first field that is another one.
    """
    if isinstance(form, _Either):
        _check(value, form.forms[0 if form.first(value) else 1], path)
    elif isinstance(form, _Leaf):
        if not form.fits(value):
            raise _wrong(path, value, form.words)
    elif isinstance(form, dict):
        _check_object(value, form, path)
    else:
        _check_list(value, form, path)


def _check_object(value: Any, form: dict[str, Any], path: str) -> None:
    if not isinstance(value, dict):
        raise _wrong(path, value, "an object")
    for name, inner in form.items():
        key = name.rstrip("?")
        if key in value:
            _check(value[key], inner, f"{path}.{key}" if path else key)
        elif key == name:
            raise _wrong(path, value, f"an object with {key!r}")


def _check_list(value: Any, form: list[Any] | tuple[Any, ...], path: str) -> None:
    num_items = len(form) if isinstance(form, tuple) else None
    if not isinstance(value, list) or num_items not in (None, len(value)):
        raise _wrong(path, value, "a list" if num_items is None else f"a list of {num_items}")
    for number, inner in enumerate(value):
        _check(inner, form[0] if num_items is None else form[number], f"{path}[{number}]")


def _wrong(path: str, value: Any, words: str) -> StateDamaged:
    return StateDamaged(f"the state's {path} is {short(value)}, not {words}", where="load_state_dict()", fix=_FIX_DAMAGED)


def compare(
    saved: dict[str, Any],
    plan: list[str],
    dataset: list[dict[str, Any]],
    components: tuple[list[str], list[str]] = ([], []),
    changes: Sequence[str] = (),
    *,
    of_size: bool = False,
) -> None:
    """Refuse a state of another plan or dataset, naming the first difference.

    Args:
        saved: the state.
        plan: the lines of this plan, without components that were added to a mix since.
        dataset: the fingerprint of each source in it.
        components: for each line and each source, which component of a mix it is in; empty for none.
        changes: a sentence for each mix that has another number of components.
        of_size: whether the plans differ in a batch size alone, one that may change.

    Raises:
        StateMismatch: on any difference.
    """
    note = "".join(f"; {change}" for change in changes)
    of_lines, of_sources = components
    pairs = enumerate(zip_longest(saved["plan"], plan, fillvalue=""))
    line = next((number for number, (was, now) in pairs if not _same(was.strip(), now.strip())), None)
    at_mix = line is not None and bool(changes) and not any(of_lines[line : line + 1])  # the data say better which component is missing
    if line is not None and not at_mix:
        raise _other_plan(saved["plan"], plan, line, of_lines, note, of_size=of_size)
    if line is None and len(saved["dataset"]) != len(dataset):
        raise _wrong("dataset", saved["dataset"], f"a list of {len(dataset)}, one for each source")
    for number, (was, is_now) in enumerate(zip(saved["dataset"], json.loads(json.dumps(dataset)), strict=False)):
        for key in sorted(set(was) | set(is_now)):
            if was.get(key) != is_now.get(key):
                inside = next((f"in {name} " for name in of_sources[number : number + 1] if name), "")
                change = f"{inside}{key} was {short(was.get(key))} and is now {short(is_now.get(key))}"
                raise StateMismatch(
                    f"the state was saved with other data: {change}{note}",
                    where=f"load_state_dict(), source {number + 1}",
                    fix="resume with the data that was saved, or load_state_dict(state, strict=False) to keep only the position",
                )
    if line is not None:
        raise _other_plan(saved["plan"], plan, line, of_lines, note, of_size=of_size)


def _same(was: str, now: str) -> bool:
    """Compare two lines. Earlier releases saved the name alone of an operator that now follows it: map(pad_to) for map(pad_to: ...)."""
    name, mark, _ = now.partition(": ")
    tail = was.removeprefix(name) if mark and name.startswith("map(") else was
    return was == now or (tail != was and tail.startswith((")", ", ")) and now.endswith(tail))


def _other_plan(before: list[str], now: list[str], line: int, of_lines: list[str], note: str, *, of_size: bool) -> StateMismatch:
    was = f"had {before[line].strip()!r}" if line < len(before) else "ended"
    is_now = f"has {now[line].strip()!r}" if line < len(now) else "ends"
    inside = next((name for name in of_lines[line : line + 1] if name), "it")
    pipeline = as_before(before, now) or "resume with the pipeline that was saved"
    go_on = "may_differ=('batch',)) to go on with the next element" if of_size else "strict=False) to keep only the position"
    return StateMismatch(
        f"the state was saved with another plan: {inside} {was} where this one {is_now}{note}",
        where=f"load_state_dict(), operator {line + 1} from the source",
        fix=f"{pipeline}, or load_state_dict(state, {go_on}",
    )


def as_before(before: Sequence[str], now: Sequence[str]) -> str:
    """Say which flag makes a line of a plan what it was, such as one that was added later and is on by default; "" where none does."""
    for was, is_now in zip(before, now, strict=False):
        for flag in re.findall(r", (\w+)=True", is_now):
            if is_now.replace(f", {flag}=True", "") == was:
                return f"give {flag}=False, as it was then"
    return ""


def short(value: Any) -> str:
    """Show a value of a state in 80 characters, however long, deep or large it is."""
    try:
        text = _SHORT.repr(value)
    except ValueError:  # an int of more than 4300 digits
        text = f"a {type(value).__name__} of more than 4300 digits"
    return text if len(text) <= 80 else text[:77] + "..."


_SHORT = Repr()
_SHORT.maxlevel, _SHORT.maxstring, _SHORT.maxlong, _SHORT.maxother = 6, 80, 60, 80
_SHORT.maxlist = _SHORT.maxdict = _SHORT.maxtuple = 20


# -- places in a plan -------------------------------------------------------------------------------------------------------------


class GlobalPosition(NamedTuple):
    """All elements of the order below `shard` before `element` in pass `epoch`, and all earlier passes, were delivered."""

    epoch: int
    element: int


_FIX = (
    "resume with the weights and components that were saved; they can change where no shuffle() without a buffer, repeat(), cache(), "
    "measure() or sample() stands after mix(), no filter or packing after a shard, and not at the end of a pass, so put shuffle() and "
    "repeat() before it"
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


def batched_as(root: Node, saved: Sequence[str]) -> Node:
    """Return a plan with the batch size that a saved plan has in the line of its batch.

    The plan itself where they are equal, where there are several, and where more than maps, prefetches and one repeat stands above it.
    """
    path = above_shard(root)[0]
    above = list(takewhile(lambda node: node.moves_as != "batch", path))
    place = 1 + sum(not node.is_hint for node in above)
    line = _BATCH_SIZE.match(saved[-place]) if place <= len(saved) else None
    several = any(sum(node.moves_as == kind for node in nodes) > 1 for kind, nodes in (("repeat", above), ("batch", path)))
    if line is None or len(above) == len(path) or several:
        return root
    batch: Any = path[len(above)]
    return root if batch.batch_size == int(line[1]) else substituted(root, {batch: replace(batch, batch_size=int(line[1]))})


def global_position(root: Node, position: int) -> GlobalPosition:
    """Return what root position `position` means for all shards together. `shard_of` of the whole plan must not be None."""
    node, place = root, Descent(position)
    while (below := node.descend(place)) is not None:
        node, place = below
    shard = shard_of(node)
    assert shard is not None
    first = 0 if place.ended else shard.first  # the next pass is a whole one
    element, total = first + place.position * shard.num_shards - place.lead, length_of(shard.child)
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
    begins = mix_places(at(root), 0)  # where that is known, other weights may have been given at an earlier resume
    after = [_continued(*each, strict=strict) for each in zip(mixes, given, places, begins, strict=True)]
    out = _with_histories(root, iter(after))
    if after == given:
        return out
    for node, history, place, now in zip(mixes, given, places, mix_places(at(out), position), strict=True):
        if history is not None and place is not None and now != place:  # the last short batch of a mix that goes on is none any more
            if strict:
                raise _unknown_place(node, history)
            return root
    return out


def _continued(node: Mix, history: History | None, place: int | None, begin: int | None, *, strict: bool) -> History:
    """Return the history of a mix that goes on at a place with the weights of the plan; `history` is None for one that is new."""
    if history is None:
        return node.history
    if place is not None:
        return joined(history, place, node.history)
    since = 0 if begin is None else history[-1][0]
    if same_shares(from_position(history, since), from_position(node.history, since)):
        return history
    if strict:
        raise _unknown_place(node, history)
    return node.history


def _unknown_place(node: Mix, history: History) -> StateMismatch:
    had, has = len(history[-1][1]), len(node.children)
    if had == has:
        change = f"the weights of mix were {_words(history)} and are now {_words(node.history)}"
    else:
        change = f"the mix had {had} components and has {has} now"
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
        raise damaged(f"mix is {saved!r:.80}, not the weights of {len(mixes)} mixes with the positions they hold from")
    return found


def _is_history(history: History) -> bool:
    starts = [start for start, _ in history]
    whole = all(isinstance(start, int) and not isinstance(start, bool) and start < 2**63 for start in starts)
    if not whole or starts[:1] != [0] or starts != sorted(set(starts)):
        return False
    sizes = [len(weights) for _, weights in history]
    good = all(0 <= weight < INFINITE for _, weights in history for weight in weights)
    return sizes[0] > 1 and sizes == sorted(sizes) and good and all(max(weights) for _, weights in history)


def _words(history: History) -> str:
    text = in_words(history)
    return f"({text})" if len(text) <= 80 else f"({text[:77]}...)"
