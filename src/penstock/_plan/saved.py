"""A saved state: a JSON record that says what it belongs to, and checks itself."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from typing import Any

from penstock.errors import StateDamaged, StateMismatch

__all__ = ["FORMAT", "checked", "compare", "sealed"]

FORMAT = 1
_KEYS = {"penstock_state", "version", "plan", "dataset", "shard", "step", "position", "global", "crc32"}
_FIX_DAMAGED = "use an older checkpoint; a state that was changed cannot be trusted to lose or repeat nothing"


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
            f"this is no penstock state but a {type(state).__name__} {_short(state)}",
            where="load_state_dict()",
            fix="give what state_dict() returned, or its JSON",
        )
    if state["penstock_state"] != FORMAT:
        raise StateMismatch(
            f"the state has format {state['penstock_state']!r} (written by penstock {state.get('version')!r}); "
            f"this penstock reads format {FORMAT}",
            where="load_state_dict()",
            fix="resume with the penstock version that wrote it",
        )
    missing = sorted(_KEYS - set(state))
    if missing:
        raise StateDamaged(f"the state lacks {', '.join(missing)}", where="load_state_dict()", fix=_FIX_DAMAGED)
    record = dict(state)
    try:
        found = _crc(record)
    except (TypeError, ValueError, RecursionError) as error:
        raise StateDamaged(f"the state is not JSON: {error}", where="load_state_dict()", fix=_FIX_DAMAGED) from error
    if found != record["crc32"]:
        raise StateDamaged(
            f"the checksum of the state is {record['crc32']!r}, its content gives {found}", where="load_state_dict()", fix=_FIX_DAMAGED
        )
    return record


def compare(saved: dict[str, Any], plan: list[str], dataset: list[dict[str, Any]]) -> None:
    """Refuse a state of another plan or dataset, naming the first difference.

    Raises:
        StateMismatch: on any difference.
    """
    before, now = saved["plan"], plan
    for number in range(max(len(before), len(now))):
        was = f"had {before[number].strip()!r}" if number < len(before) else "ended"
        is_now = f"has {now[number].strip()!r}" if number < len(now) else "ends"
        if was[4:] != is_now[4:]:
            raise StateMismatch(
                f"the state was saved with another plan: it {was} where this one {is_now}",
                where=f"load_state_dict(), operator {number + 1} from the source",
                fix="resume with the pipeline that was saved, or load_state_dict(state, strict=False) to keep only the position",
            )
    for number, (was, is_now) in enumerate(zip(saved["dataset"], json.loads(json.dumps(dataset)), strict=True)):
        for key in sorted(set(was) | set(is_now)):
            if was.get(key) != is_now.get(key):
                raise StateMismatch(
                    f"the state was saved with other data: {key} was {_short(was.get(key))} and is now {_short(is_now.get(key))}",
                    where=f"load_state_dict(), source {number + 1}",
                    fix="resume with the data that was saved, or load_state_dict(state, strict=False) to keep only the position",
                )


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
