"""Who books what finished units bring: the sequencers, and what is counted where there is none. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from penstock._engine.completion import Completion
from penstock._engine.mishaps import Books, merged
from penstock._engine.program import Program, SegmentPlan
from penstock._engine.sequencer import OPEN, Sequencer
from penstock._engine.unit import Failure, Record, Token, Unit
from penstock._order.chain import Chain
from penstock.errors import LengthMismatch

__all__ = ["ReadCount", "booked_in_place", "records_of", "sequencers_of"]


def booked_in_place(unit: Unit, books: Books) -> tuple[list[Any], Sequence[Token] | tuple[Token, int], Failure | None]:
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


def records_of(program: Program, start: Token) -> list[Record | None]:
    """Return what the sequencer of each segment had saved, None where nothing was or is."""
    saved = iter(start.sequencers)
    return [None if segment.folds is None or segment.transparent else next(saved, None) for segment in program.segments]


def sequencers_of(program: Program, start: Token, books: Sequence[Books], *, ordered: bool) -> list[Sequencer | Completion | None]:
    """Make the sequencer of each segment that has folds; the first one takes what is finished if elements are not `ordered`."""
    out: list[Sequencer | Completion | None] = []
    below = start._replace(sequencers=())
    for number, (segment, record) in enumerate(zip(program.segments, records_of(program, start), strict=True)):
        if segment.folds is None:
            out.append(None)
            continue
        shared: dict[str, Any] = {"transparent": segment.transparent, "books": books[number]}
        if ordered or out:
            out.append(Sequencer(segment.folds, below, record, behind_another=bool(out), **shared))
        else:
            out.append(Completion(segment.folds, below, record, **shared))
        if not segment.transparent:
            record = record or Record(0, OPEN, tuple(Chain(segment.folds).snapshot()))
            below = below._replace(sequencers=(*below.sequencers, record))
    return out


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
