"""What a commit does: chunks are counted, get the places behind their items, and what folds let through becomes chunks again. Pure."""

from __future__ import annotations

from bisect import insort
from collections.abc import Sequence
from typing import Any

import numpy as np

from penstock._engine.chunk import IN_ORDER, Chunk, Completed, CompletedRun, Reached, Result, StreamState, Token
from penstock._engine.folding import Sequenced, pieces_of
from penstock._engine.program import Program, SegmentPlan
from penstock._ops.block import Block
from penstock._order.arithmetic import INFINITE
from penstock._order.folds import RepeatFold, TakeFold
from penstock._order.runs import Run, Runs
from penstock.errors import LengthMismatch, SourceError


def empty_pass() -> SourceError:
    """Return the error of a pass without elements that would be repeated for ever."""
    return SourceError(
        "a whole pass of an endless repeat() gave no element",
        where="repeat() after a filter, take or generator",
        fix="check the filter and the source: repeating nothing would never end",
    )


_FEWEST_INPUTS = 300


class LeftOut:
    """Notices when Skip leaves nothing of an endless repeat below a segment: repeating that would never end.

    A pass may be short, and chance may decide what fails: so it takes many elements too. Where a filter or flat_map drops some of them it
    takes more passes, for batches differ from pass to pass; and where a function draws random numbers, the next pass may always be another.
    """

    def __init__(self, period: int, passes: int, *, random: bool) -> None:
        """Begin; a pass of the repeat is `period` positions of the source, or so many `passes` of it."""
        self._period, self._passes, self._random = period, passes, random
        self._begin: tuple[int, int] | None = None  # behind the first chunk in a row that gave nothing
        self._num_inputs = self._num_skipped = 0

    def add(self, chunk: Chunk) -> SourceError | None:
        """Count a chunk of the segment; return the error of passes that nothing is left of."""
        if not chunk.num_items:
            return None
        if chunk.result is None or chunk.result.items:
            self._begin = None
            return None
        place = chunk.tokens[chunk.num_items - 1].source
        if self._begin is None:
            self._begin, self._num_inputs, self._num_skipped = place, 0, 0
            return None
        self._num_inputs += chunk.num_items
        self._num_skipped += len({loss.item for loss in chunk.lost if not loss.how})
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
        for fold in segment.folds:
            if isinstance(fold, TakeFold):
                period = passes = 0
            elif isinstance(fold, RepeatFold) and fold.count is None:
                passes = passes or counted
            elif isinstance(fold, RepeatFold) and fold.count is not None:
                counted *= fold.count
    return out


class ReadCount:
    """Checks that what was read and skipped in a pass adds up to what the source declares."""

    def __init__(self, start: Token) -> None:
        """Count on from a place in a pass."""
        self._num_read = start.source[1] + sum(end - begin for begin, end in start.done.runs)
        self._num_skipped = 0
        self._failed = False

    def add(self, chunk: Chunk, plan: SegmentPlan, *, cut: bool) -> SourceError | None:
        """Count a chunk of the first segment; return the error of a pass that does not add up.

        One that was cut need not add up, nor one that failed: behind the failure nothing may be wanted of it.
        """
        self._failed |= chunk.tail is not None
        result = chunk.result if plan.one_to_one else None
        count = chunk.num_items if result is None else len(result.items)
        self._num_read += count
        self._num_skipped += (chunk.num_items - count) if chunk.lost else 0
        if not chunk.ends_pass:
            return None
        read, skipped, failed = self._num_read, self._num_skipped, self._failed
        self._num_read, self._num_skipped, self._failed = 0, 0, False
        if cut or failed or read + skipped == plan.length:
            return None
        return LengthMismatch(
            f"pass {chunk.pass_number} declared {plan.length} elements; {read} were read and {skipped} skipped",
            where="the end of the pass",
            fix="this is a fault of penstock: please report it, with print(ds) and the options of the feed",
        )


def chunks_of(chunk: Chunk, out: Sequenced, *, batched: bool, one_batch_per_chunk: bool) -> list[Chunk]:
    """Make the chunks of the next segment of what came out of the folds: one of all, or, where elements are to be alone, one of each."""
    if out.unchanged and not one_batch_per_chunk:
        return [passed_on(chunk, out.tokens)]
    items: list[Any] = list(pieces_of(chunk.result)) if out.unchanged and chunk.result is not None else out.items
    groups = items if batched else [[piece] for piece in items]
    size = 1 if one_batch_per_chunk else max(1, len(groups))
    return [
        given_chunk(groups[first : first + size], batched, out.tokens[first : first + size], chunk.pass_number)
        for first in range(0, max(1, len(groups)), size)
    ]


def given_chunk(pieces: list[list[Any]], batched: bool, tokens: Sequence[Token], pass_number: int) -> Chunk:
    """Make a chunk for the next segment of what a fold runner emitted: groups of pieces or single ones."""
    flat = [piece for group in pieces for piece in group]
    keys = [piece.key for piece in flat]
    block = Block(
        np.array([key[0] for key in keys], np.int64),
        np.array([key[1] for key in keys], np.int64),
        np.array([key[2] for key in keys], np.uint64),
        rows=[piece.value for piece in flat],
    )
    return Chunk(
        seq=-1,
        pass_number=pass_number,
        first=0,
        sizes=[len(group) for group in pieces] if batched else None,
        num_rows=len(flat),
        given=block,
        tokens=tokens,
    )


def passed_on(chunk: Chunk, tokens: Sequence[Token]) -> Chunk:
    """Make the chunk of the next segment of one whose elements go through the folds unchanged."""
    assert isinstance(chunk.result, Result)
    block = chunk.result.block
    assert block is not None
    given = Block(block.epochs, block.indices, block.lanes, rows=block.rows())
    num_rows = len(chunk.result.items)
    return Chunk(seq=-1, pass_number=chunk.pass_number, first=0, sizes=None, num_rows=num_rows, given=given, tokens=tokens)


class CompletionOrder:
    """Gives the items of chunks of the first segment their tokens, in whatever order the chunks come inside a pass."""

    def __init__(self, start: Token) -> None:
        """Begin at a place, and at the beginning of the order."""
        self._pass, position = start.source
        self._done = Runs([(0, position), *start.done.runs])
        self._notes = [] if start.note is None else [start.note]
        self._last = CompletedRun(self._pass)
        self.start = start._replace(done=start.done._replace(at=Reached(self._last, 0)))

    def put(self, chunk: Chunk) -> None:
        """Take the next chunk, and give it its tokens."""
        if chunk.pass_number != self._pass:
            self._pass, self._done = chunk.pass_number, Runs()
        count = chunk.num_items
        if count:
            if (note := chunk.tokens[0].note) is not None:
                insort(self._notes, note, key=_place_of)
            step = CompletedRun(chunk.pass_number, chunk.first, chunk.first + count)
            self._last.following = self._last = step
        chunk.tokens = Tokens(self._done.without(()), self._last, tuple(self._notes)) if count else ()
        self._done.add(chunk.first, chunk.first + count)
        while len(self._notes) > 1 and _place_of(self._notes[1]) <= (self._pass, self._done.gap(0, 2**63 - 1)[0]):
            del self._notes[0]
        at = Completed(at=Reached(self._last, self._last.end - self._last.begin))
        chunk.pass_token = chunk.pass_token._replace(done=at) if chunk.ends_pass and chunk.pass_token else None


class Tokens(Sequence[Token]):
    """The places behind the items of a step, each made when it is asked for."""

    __slots__ = ("_before", "_notes", "_step")

    def __init__(self, before: tuple[Run, ...], step: CompletedRun, notes: tuple[StreamState, ...]) -> None:
        """Prepare for a step; `before` was done before."""
        self._before, self._step, self._notes = before, step, notes

    def __len__(self) -> int:
        """Return how many items there are."""
        return self._step.end - self._step.begin

    def __getitem__(self, number: Any) -> Any:
        """Return the place behind an item, or those behind several."""
        if isinstance(number, slice):
            return [self[one] for one in range(*number.indices(len(self)))]
        count = range(len(self))[number] + 1
        done = Runs(self._before)
        done.add(self._step.begin, self._step.begin + count)
        watermark, runs = done.split()
        source = self._step.pass_number, watermark
        note = next((note for note in reversed(self._notes) if _place_of(note) <= source), None)
        at = Reached(self._step, count)
        return Token(source, done=IN_ORDER._replace(runs=runs, at=at), note=note)


def _place_of(note: StreamState) -> tuple[int, int]:
    return note.pass_number, note.position
