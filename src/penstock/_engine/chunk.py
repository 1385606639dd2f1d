"""Chunks of rows on their way through a segment, the tokens behind their items, and the messages to and from a worker. Plain records."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

import numpy as np

from penstock._engine.slots import Lease
from penstock._ops.block import UNLIMITED, Block, ElementFailed, Ints
from penstock._ops.rows import Rows
from penstock._order.runs import Run
from penstock.errors import StateUnavailable

__all__ = [
    "NOTHING_COMPLETED",
    "BatchItem",
    "Chunk",
    "Claim",
    "CompletedRuns",
    "Counted",
    "Failure",
    "FoldState",
    "KeyedElement",
    "KnownLoss",
    "LateFailure",
    "Outcome",
    "PositionsPerOp",
    "Result",
    "StreamState",
    "Token",
    "WorkItem",
]

_T = TypeVar("_T")

PositionsPerOp = list[tuple[Ints, Ints]]


class KnownLoss(NamedTuple):
    """An input that was skipped or replaced before the state was saved, and must be again.

    Attributes:
        pass_number: of the source.
        number: of the input in its pass, from the place of the record or from the beginning of the pass on.
        how: 0 for skipped, k for replaced by the k-th next one.
        site: whose policy it was.
        inner: for one of several elements that an input gave, where it failed: (stage, step, its number there); empty for the whole input.
        row: of a batch, which of its rows; -1 for the batch itself. Older states have -1 for inputs of one row as well.
    """

    pass_number: int
    number: int
    how: int
    site: str
    inner: tuple[int, ...] = ()
    row: int = -1


class FoldState(NamedTuple):
    """What a fold runner adds to a token.

    Attributes:
        skip: results of the next input that were taken already.
        mode: what to do with the rest of its pass.
        states: of the folds.
        recall: so many items that enter the holding fold next are put back to where they were held.
        drop: so many results that come out next were delivered already.
        known: inputs that were skipped or replaced among those that will be read again.
        replay: the border of these inputs: (pass, number in it), as for `known`.
    """

    skip: int
    mode: int
    states: tuple[Any, ...]
    recall: int = 0
    drop: int = 0
    known: tuple[KnownLoss, ...] = ()
    replay: tuple[int, int] = (0, 0)


class CompletedRuns(NamedTuple):
    """What was delivered beyond a position, in completion order.

    Attributes:
        runs: positions (begin, end) of the pass, ascending.
        partial: for inputs with several results, (position, the numbers of those that were delivered).
    """

    runs: tuple[Run, ...] = ()
    partial: tuple[tuple[int, Sequence[int]], ...] = ()


NOTHING_COMPLETED = CompletedRuns()


class StreamState(NamedTuple):
    """Where a stream said that it was: behind element `position` - 1 of pass `pass_number`."""

    pass_number: int
    position: int
    state: Any
    cut: bool = False
    """Whether the rest of that pass was not wanted: the next one began without it."""
    missing: StateUnavailable | None = None
    """Why there is no state."""


class Token(NamedTuple):
    """Where to resume. `source` is (pass, position); each fold runner on the way adds a record of its own."""

    source: tuple[int, int]
    fold_runners: tuple[FoldState, ...] = ()
    done: CompletedRuns = NOTHING_COMPLETED
    note: StreamState | None = None
    """Of a stream that has states: the last one at or before `source`."""
    loss_counts: LossCounts = ()
    """What was skipped and replaced before."""


class Counted(NamedTuple):
    """The places behind the items of a chunk, each `stride` positions of the source further than the one before."""

    first: Token
    """The place before the first item."""
    stride: int = 1

    def behind(self, count: int) -> Token:
        """Return the place behind so many items."""
        pass_number, position = self.first.source
        return self.first._replace(source=(pass_number, position + count * self.stride))


class KeyedElement(NamedTuple):
    """An element behind a fold, with its key."""

    value: Any
    key: tuple[int, int, int]


class Failure(NamedTuple):
    """What failed, at which row or item; `of_close` if it was no element but the end of a generator, which is always wanted."""

    at: int
    error: BaseException
    stage: str
    worker: int
    of_close: bool = False


@dataclass(frozen=True, slots=True)
class LateFailure:
    """Takes the place of an element that failed, up to the folds: it is raised only if they let it through.

    With `at_once` it is raised as soon as it comes to a fold: how many elements stood in its place is not known.
    """

    failure: Failure
    at_once: bool = False


class Result(NamedTuple):
    """The finished items of a chunk; `origins[i]` is the item of the chunk that gave result i (None when they are one to one)."""

    items: list[Any]
    origins: list[int] | None
    block: Block | None


@dataclass(slots=True, kw_only=True, eq=False)
class Chunk:
    """One batch, or several tiny ones, or a run of elements, on their way through a segment.

    Attributes of what is read again after a resume: `known`, the rows that were skipped or replaced before, `known_items`, the batches that
    were, and `num_replayed`, the number of items that were read before: the others among them may not fail.

    Of elements that failed where folds may leave them out: `late`, by row or item, those of its results that failed (number among the
    results that are left, key, failure), in the order in which they were taken out; `bad_rows`, rows without an element: it failed in an
    earlier segment, or here below a batch, which is then late itself.

    Of rows that are written before the folds behind them have counted them: `batch_rows_in_place`, the rows of each batch (0 where that is
    not so); `all_in_place`, whether all of them are there; and `keys` of those that were written, from each first row on, without
    elements.

    `made_of` is the chunk that it was made of, as (segment, seq): in the segment before, or in segment -1 of what was read.

    `in_place` says that its batches are as the workers wrote them.

    `lease` is that of the buffer that its rows were written into, `leased` says that the buffer is one of those that are delivered.

    Of the memory that it holds: `given_bytes` of what it was made of, `kept_bytes` of what was made of that so far, at least
    `expected_bytes`, `granted_bytes` of tasks in work, and `charged_bytes`, all of it as the scheduler has counted it.
    """

    seq: int
    pass_number: int
    first: int
    sizes: list[int] | None
    num_items: int
    num_rows: int
    positions_per_op: PositionsPerOp = field(default_factory=list)
    batch_positions: PositionsPerOp = field(default_factory=list)
    given: Block | None = None
    tokens: Sequence[Token] | Counted | None = None
    ends_pass: bool = False
    pass_token: Token | None = None
    tail: Failure | None = None
    inherited: Failure | None = None
    rows: Rows | None = None
    parts: dict[int, tuple[Block, Ints]] = field(default_factory=dict)
    claimed: int = 0
    done: list[tuple[int, int]] = field(default_factory=list)
    num_done: int = 0
    limit: int = -1
    failure: Failure | None = None
    cost_ns: int = 0
    finishing: bool = False
    result: Result | None = None
    leased: bool = False
    lease: weakref.ref[Lease] | None = None
    beyond: CompletedRuns = NOTHING_COMPLETED
    lost: list[LostElement] = field(default_factory=list)
    known: dict[int, list[KnownLoss]] = field(default_factory=dict)
    known_items: dict[int, list[KnownLoss]] = field(default_factory=dict)
    num_replayed: int = 0
    batch_rows_in_place: int = 0
    all_in_place: bool = False
    in_place: bool = False
    given_bytes: int = 0
    kept_bytes: int = 0
    expected_bytes: int = 0
    granted_bytes: int = 0
    charged_bytes: int = 0
    keys: dict[int, tuple[Block, Ints | range]] = field(default_factory=dict)
    late: dict[int, list[tuple[int, tuple[int, int, int], LateFailure]]] = field(default_factory=dict)
    bad_rows: dict[int, LateFailure] = field(default_factory=dict)
    made_of: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        self.limit = self.num_rows

    @property
    def num_bytes(self) -> int:
        """The memory that it holds."""
        return self.given_bytes + max(self.kept_bytes, self.expected_bytes) + self.granted_bytes

    def cut(self, count: int) -> Chunk:
        """Keep the first `count` items; return a chunk of the others, of which nothing is done in this stage.

        One worker at most has rows of it, and those it has done belong to the items that are kept.
        """
        rows = self.first_row(count)
        share = (self.num_rows - rows) / self.num_rows
        tail = Chunk(
            seq=-1,
            pass_number=self.pass_number,
            first=self.first + count,
            sizes=None if self.sizes is None else self.sizes[count:],
            num_items=self.num_items - count,
            num_rows=self.num_rows - rows,
            positions_per_op=[(epochs[rows:], positions[rows:]) for epochs, positions in self.positions_per_op],
            batch_positions=[(epochs[count:], positions[count:]) for epochs, positions in self.batch_positions],
            given=None if self.given is None else self.given.select(slice(rows, None)),
            ends_pass=self.ends_pass,
            pass_token=self.pass_token,
            inherited=_behind(self.inherited, count),
            beyond=self.beyond,
            lost=[loss._replace(item=loss.item - count, row=loss.row - rows) for loss in self.lost if loss.item >= count],
            known=_from(self.known, rows),
            known_items=_from(self.known_items, count),
            num_replayed=max(0, self.num_replayed - count),
            batch_rows_in_place=self.batch_rows_in_place,
            given_bytes=int(self.given_bytes * share),
            made_of=self.made_of,
            bad_rows=_from(self.bad_rows, rows),
        )
        if isinstance(self.tokens, Counted):
            tail.tokens = Counted(self.tokens.behind(count), self.tokens.stride)
        elif self.tokens is not None:
            tail.tokens, self.tokens = self.tokens[count:], self.tokens[:count]
        if self.failure is not None and self.failure.at >= rows:
            tail.fail(self.failure._replace(at=self.failure.at - rows))
            self.failure = None
        self.positions_per_op = [(epochs[:rows], positions[:rows]) for epochs, positions in self.positions_per_op]
        self.batch_positions = [(epochs[:count], positions[:count]) for epochs, positions in self.batch_positions]
        self.given = None if self.given is None else self.given.select(slice(0, rows))
        self.sizes = None if self.sizes is None else self.sizes[:count]
        self.lost = [loss for loss in self.lost if loss.item < count]
        self.bad_rows = {row: one for row, one in self.bad_rows.items() if row < rows}
        self.keys = {begin: _rows_before(keys, rows) for begin, keys in self.keys.items() if begin < rows}
        self.num_items, self.num_rows, self.limit = count, rows, rows if self.failure is None else self.limit
        self.num_replayed, self.given_bytes = min(self.num_replayed, count), self.given_bytes - tail.given_bytes
        self.ends_pass, self.pass_token, self.inherited = False, None, None
        return tail

    def end_alone(self) -> Chunk:
        """Return a chunk of nothing but the end of the pass that this one ends."""
        end = Chunk(seq=self.seq, pass_number=self.pass_number, first=self.first + self.num_items, sizes=None, num_items=0, num_rows=0)
        end.tokens, end.pass_token, end.ends_pass = None if self.tokens is None else (), self.pass_token, True
        return end

    def key_of(self, row: int) -> tuple[int, int]:
        """Return (epoch, index) of the element that a row is made of."""
        given, positions_per_op = self.given, self.positions_per_op  # another worker may finish or cut the chunk meanwhile
        epochs, indices = (given.epochs, given.indices) if given is not None else positions_per_op[0] if positions_per_op else ((), ())
        return (int(epochs[row]), int(indices[row])) if row < len(epochs) else (self.pass_number, self.first + row)

    def fail(self, failure: Failure) -> None:
        """Keep the failure with the lowest row; rows from there on are not wanted any more."""
        if self.failure is None or failure.at < self.failure.at:
            self.failure = failure
            self.limit = failure.at

    def take(self, outcome: Outcome) -> None:
        """Keep what a worker found and made."""
        self.parts.update(outcome.parts)
        self.keys.update(outcome.keys)
        self.bad_rows.update(outcome.bad_rows)
        for number, one in outcome.late:
            self.late.setdefault(number, []).append(one)
        self.lost += [lost if lost.row < 0 else lost._replace(item=self.item_of(lost.row)) for lost in outcome.lost]
        for row, places in outcome.moved:
            for (epochs, positions), (epoch, position) in zip(self.positions_per_op, places, strict=True):
                epochs[row], positions[row] = epoch, position

    def rows_complete(self) -> bool:
        """Tell whether every wanted row is done."""
        if self.failure is None:
            return self.num_done >= self.num_rows
        return sum(min(stop, self.limit) - start for start, stop in self.done if start < self.limit) >= self.limit

    def good_items(self) -> int:
        """Count the items all of whose rows come before the failure."""
        if self.failure is None:
            return self.num_items
        if self.sizes is None:
            return self.limit
        return int(np.searchsorted(np.cumsum(self.sizes), self.limit, side="right"))

    def good_count(self) -> int:
        """Count the items before the tail failure, after the chunk is finished."""
        return self.num_items if self.tail is None else self.tail.at

    def item_of(self, row: int) -> int:
        """Return the item that a row belongs to."""
        return row if self.sizes is None else int(np.searchsorted(np.cumsum(self.sizes), row, side="right"))

    def whole_items(self, row: int, *, up: bool) -> tuple[int, int]:
        """Return how many items, and how many rows, can be delivered without those behind `row`: rounded down or up to a whole batch."""
        if self.sizes is not None:
            borders = np.cumsum(self.sizes)
            count = int(np.searchsorted(borders, row, side="left" if up else "right")) + up
            return count, int(borders[count - 1]) if count else 0
        size = self.batch_rows_in_place or 1
        border = -(-row // size) * size if up else row // size * size
        return border, border

    def first_row(self, item: int) -> int:
        """Return the first row of an item."""
        return item if self.sizes is None else sum(self.sizes[:item])

    def lost_by_item(self) -> dict[int, list[LostElement]]:
        """Return what was skipped or replaced, by item, in order."""
        out: dict[int, list[LostElement]] = {}
        for loss in sorted(self.lost, key=lambda one: (one.item, one.row)):
            out.setdefault(loss.item, []).append(loss)
        return out

    def token_after(self, item: int) -> Token:
        """Return the state that resumes right behind an item."""
        if self.tokens is None:
            return Token((self.pass_number, self.first + item + 1), (), self.beyond)
        return self.tokens.behind(item + 1) if isinstance(self.tokens, Counted) else self.tokens[item]


def _from(some: dict[int, _T], border: int) -> dict[int, _T]:
    """Return what stands at rows or items from `border` on, as a chunk counts that begins there."""
    return {number - border: one for number, one in some.items() if number >= border}


def _behind(failure: Failure | None, count: int) -> Failure | None:
    return None if failure is None else failure._replace(at=failure.at - count)


def _rows_before(keys: tuple[Block, Ints | range], border: int) -> tuple[Block, Ints | range]:
    block, rows = keys
    count = int(np.searchsorted(rows, border))
    return Block(block.epochs[:count], block.indices[:count], block.lanes[:count]), rows[:count]


class Claim(NamedTuple):
    """A range of rows of a chunk for one stage; or, with `read`, the next elements of a generator.

    It ends early where it holds more than `room` bytes. `num_bytes` are those of its block.
    """

    segment: int
    stage: int
    chunk: Chunk | None
    begin: int
    end: int
    block: Block | None
    read: int = 0
    room: int = UNLIMITED
    num_bytes: int = 0

    @property
    def item(self) -> WorkItem:
        """What a worker gets of it. Without the mutex: only one worker has these rows."""
        chunk = self.chunk
        assert chunk is not None
        begin, end, given = self.begin, self.end, chunk.given
        here = None if (begin, end) == (0, chunk.num_rows) else slice(begin, end)
        if given is not None:
            given = given if here is None else given.select(here)
            given = given if self.block is None else Block(given.epochs, given.indices, given.lanes)
        return WorkItem(
            self.segment,
            self.stage,
            begin,
            end,
            self.room,
            self.block,
            given,
            chunk.positions_per_op if here is None else [(epochs[here], positions[here]) for epochs, positions in chunk.positions_per_op],
            {row: some for row, some in chunk.known.items() if begin <= row < end} if chunk.known else {},
            {row: one for row, one in chunk.bad_rows.items() if begin <= row < end} if chunk.bad_rows and not self.stage else {},
            chunk.first_row(chunk.num_replayed),
            chunk.batch_rows_in_place > 0,
        )


class WorkItem(NamedTuple):
    """Rows of a chunk for one stage, as values: the message to a worker.

    Attributes:
        segment, stage: which of the program.
        begin, end: the rows of the chunk.
        room: it ends early behind the element with which it holds more than so many bytes.
        block: the rows as the stage before made them; None for the first stage.
        given: the rows that the chunk was made of, for a later stage only their keys; None where they are read from the leaf.
        positions_per_op: (epochs, positions) of these rows at each level of the leaf's chain.
        known: of these rows, what was skipped or replaced before the state was saved.
        bad_rows: of these rows, those without an element.
        num_replayed: rows of the chunk before this one were read before the state was saved.
        writes_in_place: whether rows go into batches before the fold behind has counted them.
        fatal: once it has ended or stalled worker processes: the rows that did, each with the error. Its rows are computed one by one
            then, and each is announced before.
    """

    segment: int
    stage: int
    begin: int
    end: int
    room: int
    block: Block | None
    given: Block | None
    positions_per_op: PositionsPerOp
    known: dict[int, list[KnownLoss]]
    bad_rows: dict[int, LateFailure]
    num_replayed: int
    writes_in_place: bool
    fatal: dict[int, BaseException] | None = None


class BatchItem(NamedTuple):
    """Batches of a chunk for the operators above them, as values: the message to a worker.

    Attributes:
        batches: None in the place of one that could not be made.
        sizes: rows of each, where `keys` has those of their elements.
        keys: of all elements, or None where batches have positions of their own.
        positions_per_op: (epochs, positions) of these batches at each level.
        known: of these batches, what was skipped or replaced before the state was saved.
        num_replayed: batches before this one were read before the state was saved.
        bad: the failures of batches whose elements do not fit each other.
        without: batches that lack an element: nothing is done with them.
        fatal: as that of a WorkItem.
    """

    batches: list[Any]
    sizes: list[int] | None
    keys: Block | None
    positions_per_op: PositionsPerOp
    known: dict[int, list[KnownLoss]]
    num_replayed: int
    bad: dict[int, ElementFailed]
    without: frozenset[int]
    fatal: dict[int, BaseException] | None = None

    def key_of(self, number: int) -> tuple[int, int, int]:
        """Return the key of a batch that has a position of its own."""
        epochs, positions = self.positions_per_op[0]
        return int(epochs[number]), int(positions[number]), 0


class Outcome(NamedTuple):
    """What became of a WorkItem or BatchItem, as values: the message from a worker.

    Attributes:
        end: the first row, or batch, that is not done.
        block: the elements for the next stage, or what came of the batches.
        failure: of the row at `end`; None when all are done, or there was no room for more.
        origins: the batch that each element of `block` came from.
        parts: by first row, elements that are not written into a batch, with the row that each came from.
        keys: by first row, keys and rows of the elements that were written ahead.
        lost: what was skipped or replaced.
        late: by row or batch, failures that are raised only if the folds let their elements through.
        bad_rows: rows whose batch lacks an element for such a failure.
        moved: rows that stand for other positions now, with those at each level.
        kept_bytes: what is left behind, for the batch or the next stage.
        most_bytes: what was held at once.
    """

    end: int
    block: Block | None = None
    failure: Failure | None = None
    origins: Sequence[int] = ()
    parts: Sequence[tuple[int, tuple[Block, Ints]]] = ()
    keys: Sequence[tuple[int, tuple[Block, Ints | range]]] = ()
    lost: Sequence[LostElement] = ()
    late: Sequence[tuple[int, tuple[int, tuple[int, int, int], LateFailure]]] = ()
    bad_rows: Sequence[tuple[int, LateFailure]] = ()
    moved: Sequence[tuple[int, list[tuple[int, int]]]] = ()
    kept_bytes: int = 0
    most_bytes: int = 0
