"""Who books what finished units bring: the sequencers, and what is counted where there is none. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from penstock._engine.completion import Completion
from penstock._engine.mishaps import Books, merged
from penstock._engine.program import Program, SegmentPlan
from penstock._engine.sequencer import OPEN, Failing, Sequencer
from penstock._engine.unit import Counted, Failure, Record, Token, Unit
from penstock._order.arithmetic import INFINITE
from penstock._order.chain import Chain, passes_above
from penstock._order.folds import Passes, Taking
from penstock.errors import LengthMismatch, SourceError

__all__ = ["LeftOut", "ReadCount", "booked_in_place", "empty_pass", "left_out_of", "records_of", "sequencers_of"]


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
            failing = Failing(segment.hands_failures_on, program.may_cut)
            out.append(Sequencer(segment.folds, below, record, behind_another=bool(out), failing=failing, **shared))
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


_FEWEST_INPUTS = 300


class LeftOut:
    """Notices when Skip leaves nothing of an endless repeat below a segment: repeating that would never end.

    A pass may be short, and chance may decide what fails: so it takes many elements too. Where a filter or flat_map drops some of them it
    takes more passes, for batches differ from pass to pass; and where a function draws random numbers, the next pass may always be another.
    """

    __slots__ = ("_begin", "_num_inputs", "_num_skipped", "_passes", "_period", "_random")

    def __init__(self, period: int, passes: int, *, random: bool) -> None:
        """Begin; a pass of the repeat is `period` positions of the source, or so many `passes` of it."""
        self._period, self._passes, self._random = period, passes, random
        self._begin: tuple[int, int] | None = None  # behind the first unit in a row that gave nothing
        self._num_inputs = self._num_skipped = 0

    def add(self, unit: Unit) -> SourceError | None:
        """Count a unit of the segment; return the error of passes that nothing is left of."""
        if not unit.num_items:
            return None
        if unit.result is None or unit.result.items or (unit.whole and unit.ahead):
            self._begin = None
            return None
        place = unit.token_after(unit.num_items - 1).source
        if self._begin is None:
            self._begin, self._num_inputs, self._num_skipped = place, 0, 0
            return None
        self._num_inputs += unit.num_items
        self._num_skipped += len({mishap.item for mishap in unit.mishaps if not mishap.how})
        fewest_passes = 2 if self._num_skipped == self._num_inputs else INFINITE if self._random or not self._num_skipped else 100
        enough = self._num_inputs >= _FEWEST_INPUTS and self._whole_passes(*self._begin, *place) >= fewest_passes
        return empty_pass() if enough else None

    def _whole_passes(self, first_pass: int, begin: int, last_pass: int, end: int) -> int:
        if first_pass == last_pass:
            return (end - begin) // self._period if self._period else 0
        return (last_pass - first_pass - 1) // self._passes if self._passes else 0


def left_out_of(program: Program) -> list[LeftOut | None]:
    """Make what watches each segment above an endless repeat in which elements may be left out; None for the others."""
    out: list[LeftOut | None] = []
    period, passes, counted = program.segments[0].period, 0, 1
    for segment in program.segments:
        watched = program.policies.skips and (period or passes)
        out.append(LeftOut(period, passes, random=program.random) if watched else None)
        for fold in segment.folds or ():
            if isinstance(fold, Taking):
                period = passes = 0
            elif isinstance(fold, Passes) and fold.count is None:
                passes = passes or counted
            elif isinstance(fold, Passes) and fold.count is not None:
                counted *= fold.count
    return out


class ReadCount:
    """Checks that what was read and skipped in a pass adds up to what the source declares."""

    __slots__ = ("_failed", "_num_read", "_num_skipped")

    def __init__(self, start: Token) -> None:
        """Count on from a place in a pass."""
        self._num_read = start.source[1] + sum(end - begin for begin, end in start.done.runs)
        self._num_skipped = 0
        self._failed = False

    def add(self, unit: Unit, plan: SegmentPlan, *, cut: bool) -> SourceError | None:
        """Count a unit of the first segment; return the error of a pass that does not add up.

        One that was cut need not add up, nor one that failed: behind the failure nothing may be wanted of it.
        """
        self._failed = self._failed or unit.tail is not None
        skipped = sum(mishap.how == 0 for mishap in unit.mishaps)
        exact = unit.result is not None and plan.one_to_one and not unit.whole
        self._num_read += len(unit.result.items) if exact and unit.result is not None else unit.num_items - skipped
        self._num_skipped += skipped
        if not unit.ends_pass:
            return None
        read, skipped, failed = self._num_read, self._num_skipped, self._failed
        self._num_read, self._num_skipped, self._failed = 0, 0, False
        if cut or failed or read + skipped == plan.length:
            return None
        return LengthMismatch(
            f"pass {unit.pass_number} declared {plan.length} elements; {read} were read and {skipped} skipped",
            where="the end of the pass",
            fix="this is a fault of penstock: please report it, with print(ds) and the options of the feed",
        )
