"""The parts of a saved state that say what was skipped and replaced, and the bounds of every number in it. Pure.

The form of the state is checked before: see `penstock._plan.saved`.
"""

from __future__ import annotations

from itertools import chain
from typing import Any

from penstock._engine.mishaps import Entry, Tally, num_lost
from penstock._engine.unit import Known, Record, Token
from penstock._order.arithmetic import INFINITE
from penstock._plan.length import ROOM, highest_number
from penstock._plan.node import Node
from penstock._plan.saved import LARGEST, short
from penstock.errors import StateDamaged

__all__ = ["count", "known_of", "listed", "listed_tally", "lost_before", "tally_of", "within_reach"]


def count(value: Any, name: str, most: float = INFINITE) -> int:
    most = min(most, LARGEST)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= most:
        raise StateDamaged(
            f"the state's {name} is {short(value)}, outside 0..{most}",
            where="load_state_dict()",
            fix="use an older checkpoint; this one would skip or repeat elements",
        )
    return value


def within_reach(node: Node, position: int, name: str) -> None:
    """Refuse a position of an endless node behind which numbers get too large.

    Raises:
        StateDamaged: fewer than ROOM elements behind it have numbers below 2**63.
    """
    highest = highest_number(node, position + ROOM)
    if highest > LARGEST:
        raise StateDamaged(
            f"the state's {name} is {position}, behind which numbers get as large as {highest}, beyond 2**63 - 1",
            where="load_state_dict()",
            fix="use an older checkpoint; this one would skip or repeat elements",
        )


def tally_of(record: list[Any]) -> Tally:
    """Return what was skipped and replaced before the save."""
    return tuple(
        Entry(action, site, total, pass_number, in_pass, frozenset((index, lane) for index, lane in chain(*keys)))
        for action, site, total, pass_number, in_pass, *keys in record
    )


def listed_tally(tally: Tally) -> list[Any]:
    """Return the JSON form of what was skipped and replaced."""
    return [[*entry[:5], *([sorted(map(list, entry.keys))] if entry.keys else [])] for entry in tally]


def known_of(record: list[Any]) -> tuple[Known, ...]:
    """Return what was skipped or replaced among the elements that will be read again."""
    return tuple(Known(pass_number, number, how, site, tuple(inner), *row) for pass_number, number, how, site, inner, *row in record)


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
