"""The parts of a saved state that say what was skipped and replaced, and the check of every number in it. Pure."""

from __future__ import annotations

from typing import Any

from penstock._engine.mishaps import Entry, Tally, num_lost
from penstock._engine.unit import Known, Record, Token
from penstock._order.arithmetic import INFINITE
from penstock.errors import StateDamaged

__all__ = ["LARGEST", "border_of", "count", "known_of", "listed", "lost_before", "tally_of"]

LARGEST = 2**63 - 1


def count(value: Any, name: str, most: float = INFINITE) -> int:
    most = min(most, LARGEST)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= most:
        raise StateDamaged(
            f"the state's {name} is {value!r}, outside 0..{most}",
            where="load_state_dict()",
            fix="use an older checkpoint; this one would skip or repeat elements",
        )
    return value


def tally_of(record: Any) -> Tally:
    """Check what was skipped and replaced before the save."""
    if not isinstance(record, list):
        count(None, "list of skipped elements")
    out = []
    for entry in record:
        good = isinstance(entry, list) and len(entry) == 5 and entry[0] in ("skipped", "replaced") and isinstance(entry[1], str)
        if not good:
            count(None, "list of skipped elements")
        out.append(Entry(entry[0], entry[1], *(count(number, "number of skipped elements") for number in entry[2:])))
    return tuple(out)


def known_of(record: Any) -> tuple[Known, ...]:
    """Check what was skipped or replaced among the elements that will be read again."""
    if not isinstance(record, list) or not all(_is_known(one) for one in record):
        count(None, "list of skipped elements")
    for one in record:
        for number in (*one[:3], *one[4], *(number for number in one[5:] if number != -1)):
            count(number, "skipped element")
    return tuple(Known(pass_number, number, how, site, tuple(inner), *row) for pass_number, number, how, site, inner, *row in record)


def _is_known(one: Any) -> bool:
    return isinstance(one, list) and len(one) in (5, 6) and isinstance(one[3], str) and isinstance(one[4], list) and len(one[4]) in (0, 3)


def border_of(record: Any) -> tuple[int, int]:
    if not isinstance(record, list) or len(record) != 2:
        count(None, "place")
    return count(record[0], "pass"), count(record[1], "place")


def lost_before(token: Token) -> tuple[int, int]:
    """Return how many elements were skipped and replaced up to a token; those that will be read again are told apart by it."""
    again = [known.how for record in token.sequencers for known in record.known]
    replaced = sum(how > 0 for how in again)
    return num_lost(token.tally, "skipped") + len(again) - replaced, num_lost(token.tally, "replaced") + replaced


def listed(record: Record) -> list[Any]:
    """Return the JSON form of what a sequencer saves; the last two parts only where something is read again."""
    out = [record.skip, record.mode, list(record.states), record.recall, record.drop]
    if record.replay == (0, 0):
        return out
    return [*out, [[*known[:4], list(known.inner), known.row] for known in record.known], list(record.replay)]
