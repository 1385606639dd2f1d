"""A saved state: a JSON record that says what it belongs to, and checks itself."""

from __future__ import annotations

import json
import sys
import zlib
from collections.abc import Callable, Mapping, Sequence
from itertools import zip_longest
from reprlib import Repr
from typing import Any, NamedTuple

from penstock.errors import StateDamaged, StateMismatch

__all__ = ["FORMAT", "LARGEST", "checked", "compare", "sealed", "short"]

FORMAT = 2
_READ = (1, 2)  # 1: without epochs, so of epoch 0
LARGEST = 2**63 - 1
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
_WEIGHT = _Leaf("a finite number above 0", lambda value: type(value) in (int, float) and 0 < value <= sys.float_info.max)
_ACTION = _Leaf("'skipped' or 'replaced'", lambda value: value in ("skipped", "replaced"))
_KNOWN = (_COUNT, _COUNT, _COUNT, _TEXT, _if_short(0, (), (_COUNT, _COUNT, _COUNT)))
_LOST = (_ACTION, _TEXT, _COUNT, _COUNT, _COUNT)
_FOLDS = (_COUNT, _whole(most=2), _LIST, _COUNT, _COUNT)

_STATE = {
    "penstock_state": _COUNT,
    "version": _TEXT,
    "plan": [_TEXT],
    "dataset": [_OBJECT],
    "shard": [(_COUNT, _COUNT)],
    "step": _COUNT,
    "epoch?": (_COUNT, _COUNT),
    "position": _if_none(
        {
            "folded?": _FLAG,
            "skips?": _FLAG,
            "source": (_COUNT, _COUNT),
            "done": ([(_COUNT, _COUNT)], [(_COUNT, [_COUNT])]),
            "sequencers": [_if_short(5, _FOLDS, (*_FOLDS, [_if_short(5, _KNOWN, (*_KNOWN, _whole(-1)))], (_COUNT, _COUNT)))],
            "stream?": {"pass": _COUNT, "position": _COUNT, "cut": _FLAG, "state": _ANY},
        }
    ),
    "global": _if_none({"epoch": _COUNT, "element": _COUNT}),
    "lost?": [_if_short(5, _LOST, (*_LOST, [(_COUNT, _COUNT)]))],
    "mix?": [[(_COUNT, [_WEIGHT])]],
    "crc32": _whole(most=2**32 - 1),
}
"""The form of a state: [form] is a list of any length, (form, form) a list of so many, "name?" a field that may be missing.

What the plan says of a value, as the bounds of a position, is checked where the plan is known. Fields that this version does not know are
left alone.
"""
_KEYS = {name for name in _STATE if not name.endswith("?")}


def sealed(record: dict[str, Any]) -> dict[str, Any]:
    """Return the record with its checksum."""
    return {**record, "crc32": _crc(record)}


def _crc(record: Mapping[str, Any]) -> int:
    body = {key: value for key, value in record.items() if key != "crc32"}
    return zlib.crc32(json.dumps(body, sort_keys=True, separators=(",", ":")).encode())


def checked(state: Any) -> dict[str, Any]:
    """Return the state as a dict after checking its form and checksum. Accepts the dict, or its JSON as str or bytes.

    Raises:
        StateDamaged: when it is cut, changed, or no state at all.
        StateMismatch: when another version of the format wrote it.
    """
    if isinstance(state, (str, bytes, bytearray)):
        try:
            state = json.loads(state)
        except (ValueError, RecursionError) as error:
            raise StateDamaged(f"the state is not JSON: {error}", where="load_state_dict()", fix=_FIX_DAMAGED) from error
    if not isinstance(state, Mapping) or "penstock_state" not in state:
        raise StateDamaged(
            f"this is no penstock state but a {type(state).__name__} {short(state)}",
            where="load_state_dict()",
            fix="give what state_dict() returned, or its JSON",
        )
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
    try:
        record: dict[str, Any] = json.loads(json.dumps(dict(state)))
        found = _crc(record)
    except (TypeError, ValueError, RecursionError) as error:
        raise StateDamaged(f"the state is not JSON: {error}", where="load_state_dict()", fix=_FIX_DAMAGED) from error
    if found != record["crc32"]:
        raise StateDamaged(
            f"the checksum of the state is {short(record['crc32'])}, its content gives {found}", where="load_state_dict()", fix=_FIX_DAMAGED
        )
    _check(record, _STATE, "")
    if (record["position"] is None) == (record["global"] is None):
        raise _wrong("position", record["position"], f"one of position and global, global being {short(record['global'])}")
    return record


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
) -> None:
    """Refuse a state of another plan or dataset, naming the first difference.

    Args:
        saved: the state.
        plan: the lines of this plan, without components that were added to a mix since.
        dataset: the fingerprint of each source in it.
        components: for each line and each source, which component of a mix it is in; empty for none.
        changes: a sentence for each mix that has another number of components.

    Raises:
        StateMismatch: on any difference.
    """
    note = "".join(f"; {change}" for change in changes)
    of_lines, of_sources = components
    line = next(
        (number for number, (was, now) in enumerate(zip_longest(saved["plan"], plan)) if (was or "").strip() != (now or "").strip()), None
    )
    at_mix = line is not None and bool(changes) and not any(of_lines[line : line + 1])  # the data say better which component is missing
    if line is not None and not at_mix:
        raise _other_plan(saved["plan"], plan, line, of_lines, note)
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
        raise _other_plan(saved["plan"], plan, line, of_lines, note)


def _other_plan(before: list[str], now: list[str], line: int, of_lines: list[str], note: str) -> StateMismatch:
    was = f"had {before[line].strip()!r}" if line < len(before) else "ended"
    is_now = f"has {now[line].strip()!r}" if line < len(now) else "ends"
    inside = next((name for name in of_lines[line : line + 1] if name), "it")
    return StateMismatch(
        f"the state was saved with another plan: {inside} {was} where this one {is_now}{note}",
        where=f"load_state_dict(), operator {line + 1} from the source",
        fix="resume with the pipeline that was saved, or load_state_dict(state, strict=False) to keep only the position",
    )


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
