"""Counts what a finished unit brings: what was read, and what was replaced in units whose items keep their positions. Pure."""

from __future__ import annotations

from typing import Any

from penstock._engine.mishaps import Books, merged
from penstock._engine.program import SegmentPlan
from penstock._engine.unit import Failure, Token, Unit
from penstock.errors import LengthMismatch

__all__ = ["ReadCount", "booked_in_place"]


def booked_in_place(unit: Unit, books: Books) -> tuple[list[Any], list[Token] | tuple[Token, int], Failure | None]:
    """Return the items of a unit, the state behind each, and the failure behind them.

    The state is counted on from the first, unless there is something else to say behind some of them.
    """
    items, tail = unit.result.items if unit.result is not None else [], unit.tail
    lost = unit.mishaps_by_item() if unit.mishaps else {}
    if not lost and (unit.tokens is None or not books.tally):
        return items, unit.tokens if unit.tokens is not None else (Token((unit.pass_number, unit.first), tally=books.tally), 1), tail
    tokens: list[Token] = []
    for number in range(len(items)):
        after = unit.token_after(number)
        for mishap in lost.get(number, ()):
            error = books.book(mishap, after.tally, *after.source)
            if error is not None:
                return items[:number], tokens, Failure(number, error, mishap.stage, mishap.worker)
        tokens.append(after._replace(tally=merged(after.tally, books.tally)))
    return items, tokens, tail


class ReadCount:
    """Checks at the end of a pass that what was read and what was skipped add up to what the source declares."""

    __slots__ = ("_num_read", "_num_skipped")

    def __init__(self, start: Token) -> None:
        """Count on from a place in a pass."""
        self._num_read = start.source[1] + sum(end - begin for begin, end in start.done.runs)
        self._num_skipped = 0

    def add(self, unit: Unit, plan: SegmentPlan, *, cut: bool) -> LengthMismatch | None:
        """Count a unit of the first segment; return the error of a pass that does not add up. One that was cut need not."""
        skipped = sum(mishap.how == 0 for mishap in unit.mishaps)
        whole = unit.result is not None and plan.one_to_one
        self._num_read += len(unit.result.items) if whole and unit.result is not None else unit.num_items - skipped
        self._num_skipped += skipped
        if not unit.ends_pass:
            return None
        read, skipped = self._num_read, self._num_skipped
        self._num_read = self._num_skipped = 0
        if cut or read + skipped == plan.length:
            return None
        return LengthMismatch(
            f"pass {unit.pass_number} declared {plan.length} elements; {read} were read and {skipped} skipped",
            where="the end of the pass",
            fix="this is a fault of penstock: please report it, with print(ds) and the options of the feed",
        )
