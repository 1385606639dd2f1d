"""Who books what finished units bring: the sequencers, and what is counted where there is none. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from penstock._engine.completion import Completion
from penstock._engine.mishaps import Books, merged
from penstock._engine.program import Program, SegmentPlan
from penstock._engine.sequencer import OPEN, Sequencer
from penstock._engine.unit import Counted, Failure, Record, Token, Unit
from penstock._order.chain import Chain, passes_above
from penstock.errors import LengthMismatch, SourceError

__all__ = ["ReadCount", "booked_in_place", "empty_pass", "records_of", "sequencers_of"]


def booked_in_place(unit: Unit, books: Books) -> tuple[list[Any], Sequence[Token] | Counted, Failure | None]:
    """Return the items of a unit, the state behind each, and the failure behind them.

    The state is counted on from the first, unless there is something else to say behind some of them.
    """
    items, tail = unit.result.items if unit.result is not None else [], unit.tail
    lost = unit.mishaps_by_item() if unit.mishaps else {}
    if not lost and (unit.tokens is None or not books.tally):
        return items, unit.tokens if unit.tokens is not None else Counted(Token((unit.pass_number, unit.first), tally=books.tally)), tail
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
    first_pass = program.first_pass
    for number, (segment, record) in enumerate(zip(program.segments, records_of(program, start), strict=True)):
        if segment.folds is None:
            out.append(None)
            continue
        shared: dict[str, Any] = {"transparent": segment.transparent, "books": books[number], "first_pass": first_pass}
        if ordered or out:
            hands_on = segment.hands_failures_on
            out.append(Sequencer(segment.folds, below, record, behind_another=bool(out), hands_failures_on=hands_on, **shared))
        else:
            out.append(Completion(segment.folds, below, record, **shared))
        if not segment.transparent:
            record = record or Record(0, OPEN, tuple(Chain(segment.folds, first_pass=first_pass).snapshot()))
            below = below._replace(sequencers=(*below.sequencers, record))
        for fold in segment.folds:
            first_pass = passes_above(fold, first_pass)
    return out


def empty_pass() -> SourceError:
    """Return the error of a pass without elements that would be repeated for ever."""
    return SourceError(
        "a whole pass of an endless repeat() gave no element",
        where="repeat() above a filter, take or generator",
        fix="check the filter and the source: repeating nothing would never end",
    )


class ReadCount:
    """Checks that what was read and skipped in a pass adds up to what the source declares, and that an endless repeat gives something."""

    __slots__ = ("_num_read", "_num_skipped", "_skipped_in_row")

    def __init__(self, start: Token) -> None:
        """Count on from a place in a pass."""
        self._num_read = start.source[1] + sum(end - begin for begin, end in start.done.runs)
        self._num_skipped = self._skipped_in_row = 0

    def add(self, unit: Unit, plan: SegmentPlan, *, cut: bool) -> SourceError | None:
        """Count a unit of the first segment; return the error of a pass that does not add up (one that was cut need not), or is empty."""
        skipped = sum(mishap.how == 0 for mishap in unit.mishaps)
        self._skipped_in_row = self._skipped_in_row + skipped if skipped == unit.num_items else 0
        if plan.period and self._skipped_in_row >= 2 * plan.period:  # so many in a row have a whole pass among them
            return empty_pass()
        exact = unit.result is not None and plan.one_to_one and not unit.whole
        self._num_read += len(unit.result.items) if exact and unit.result is not None else unit.num_items - skipped
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
