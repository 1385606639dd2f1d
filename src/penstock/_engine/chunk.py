"""Chunks of rows on their way through a segment, the tokens behind their items, and the messages to and from a worker. Plain records."""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import field
from typing import Any, NamedTuple, TypeVar

import numpy as np

from penstock._contracts.event import ElementLost
from penstock._engine.slots import Lease
from penstock._ops.block import UNLIMITED, Block, Ints
from penstock._ops.rows import Rows
from penstock._order.runs import Run
from penstock._system.lazy import dataclass
from penstock.errors import StateUnavailable

_T = TypeVar("_T")

Key = tuple[int, int, int]
"""Epoch, index and lane: they name an element."""

PositionsPerOp = list[tuple[Ints, Ints]]


class LostElement(NamedTuple):
    """One element that was left out or replaced.

    Attributes:
        item: of its chunk.
        row: of its chunk; -1 for a whole item.
        key: epoch, index, lane.
        where: in words.
        keys: of the elements in it, when it is a group of several.
        place: its pass and number in the leaf of the plan, None when only its key is known.
        fixed: whether it is an element of a batch inside the leaf of the plan: a resume that reads it again tries it once more.
        how: 0 for left out, k for replaced by the k-th next one.
        site: whose limit it counts for: a stage with a policy of its own, or the feed's policies.
        limit: of that policy.
        error: None when it is known from a saved state and was not tried again.
        inner: as that of `KnownLoss`.
        quarantine: the file that gets a line of it.
    """

    item: int
    row: int
    key: Key
    where: str
    keys: tuple[Key, ...]
    place: tuple[int, int] | None
    fixed: bool = False
    how: int = 0
    site: str = ""
    limit: int | float | None = None
    stage: str = ""
    worker: int = 0
    error: BaseException | None = None
    retries: int = 0
    inner: tuple[int, ...] = ()
    quarantine: str | os.PathLike[str] | None = None

    @property
    def action(self) -> str:
        """Say what was done about it."""
        return "replaced" if self.how else "skipped"

    def event(self, now_ns: int) -> ElementLost:
        """Return what is announced of it."""
        assert self.error is not None
        what = self.stage, self.worker, self.where, self.keys, self.place, self.error, self.retries, self.quarantine
        return ElementLost(now_ns, self.action, *what)


class Entry(NamedTuple):
    """How many elements of one site were skipped, or replaced, in all and in one pass.

    `keys` has (index, lane) of each of them once, if the limit is a number of elements: one that fails in each epoch counts once.
    """

    action: str
    site: str
    total: int
    pass_number: int
    in_pass: int
    keys: frozenset[tuple[int, int]] = frozenset()


LossCounts = tuple[Entry, ...]


def merged(first: LossCounts, second: Iterable[Entry]) -> LossCounts:
    """Add up two tallies."""
    out = {(entry.action, entry.site): entry for entry in first}
    for entry in second:
        name = entry.action, entry.site
        other = out.get(name, Entry(*name, 0, entry.pass_number, 0))
        old, new = sorted((entry, other), key=lambda one: one.pass_number)
        in_pass = new.in_pass + (old.in_pass if old.pass_number == new.pass_number else 0)
        keys = other.keys if entry.keys <= other.keys else entry.keys | other.keys
        out[name] = Entry(*name, entry.total + other.total, new.pass_number, in_pass, keys)
    return tuple(out.values())


class KnownLoss(NamedTuple):
    """An input that was skipped or replaced before the state was saved, and must be again.

    Attributes:
        pass_number: of the source.
        number: of the input in its pass, from the place of the record or from the beginning of the pass on.
        how: 0 for skipped, k for replaced by the k-th next one.
        site: whose policy it was.
        inner: for one of several elements that an input gave, where it failed: (0, step, counted over all stages of the segment, its number
            there); empty for the whole input. So a state does not depend on how operators are cut into stages.
        row: of a batch, which of its rows; -1 for the batch itself. Older states have -1 for inputs of one row as well.
    """

    pass_number: int
    number: int
    how: int
    site: str
    inner: tuple[int, ...] = ()
    row: int = -1

    @property
    def undone(self) -> Entry:
        """What takes it out of the counts."""
        return Entry("replaced" if self.how else "skipped", self.site, -1, self.pass_number, -1)


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


class CompletedRun:
    """Positions begin..end-1 of a pass, that went on one after the other, and what went on next: a list that ends with the last step.

    It is linked forwards. So a place that is kept keeps what came behind it, and what came before all places is let go.
    """

    __slots__ = ("begin", "end", "following", "pass_number")

    def __init__(self, pass_number: int = 0, begin: int = 0, end: int = 0) -> None:
        self.pass_number, self.begin, self.end = pass_number, begin, end
        self.following: CompletedRun | None = None


class Reached(NamedTuple):
    """A place in the order in which positions went on: behind the first `num_taken` positions of a step."""

    step: CompletedRun
    num_taken: int

    def up_to(self, end: Reached) -> tuple[Key, ...]:
        """Return (pass, begin, end) of what went on between two places, in its order."""
        step, begin = self.step, self.step.begin + self.num_taken
        out = []
        while step is not end.step:
            out.append((step.pass_number, begin, step.end))
            following = step.following
            assert following is not None, "the other place comes first"
            step, begin = following, following.begin
        out.append((step.pass_number, begin, step.begin + end.num_taken))
        return tuple(run for run in out if run[1] < run[2])


class Completed(NamedTuple):
    """What positions went on that are not all before `Token.source`, where they go on as they are finished.

    Attributes:
        runs: positions (begin, end) of the pass beyond it that were delivered, ascending.
        again: (pass, begin, end) of what a resume takes first, in this order: what folds had taken behind the place.
        at: the place in the order of the run.
        until: the place up to which folds had taken something: in the order of the run, or (pass, position) where that is the order of
            positions, which is in the next pass once folds knew the end.
    """

    runs: tuple[Run, ...] = ()
    again: tuple[Key, ...] = ()
    at: Reached | None = None
    until: Reached | tuple[int, int] | None = None

    @property
    def taken(self) -> tuple[Key, ...]:
        """What a resume at this place takes first."""
        return self.at.up_to(self.until) if self.at is not None and isinstance(self.until, Reached) else self.again


IN_ORDER = Completed()
"""All positions before the place, and no other one."""


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
    done: Completed = IN_ORDER
    note: StreamState | None = None
    """Of a stream that has states: the last one at or before `source`."""
    loss_counts: LossCounts = ()
    """What was skipped and replaced before."""

    @property
    def read(self) -> tuple[int, int] | None:
        """Up to where folds had taken something, where that is behind `source`, in the order of positions."""
        until = self.done.until
        return None if until is None or isinstance(until, Reached) or until == self.source else until

    def read_up_to(self, last: Token) -> Token:
        """Return this place for a fold that has taken all up to `last`."""
        until = last.done.until or last.done.at or last.source
        if self.done.at is not None and not isinstance(until, Reached):
            return self
        return self._replace(done=self.done._replace(until=until))


class Counted(Sequence[Token]):
    """The places behind items, each one position of the source further on than the one before. They are made when they are asked for."""

    __slots__ = ("_count", "first")

    def __init__(self, first: Token, count: int) -> None:
        """Begin at the place before the first item."""
        self.first, self._count = first, count

    def __len__(self) -> int:
        """Return how many items there are."""
        return self._count

    def __getitem__(self, number: Any) -> Any:
        """Return the place behind an item, or those behind several."""
        (pass_number, position), *others = self.first
        if number.__class__ is slice:
            numbers = range(self._count)[number]
            return Counted(Token._make(((pass_number, position + numbers.start), *others)), len(numbers))
        return Token._make(((pass_number, position + number + 1), *others))

    def __iter__(self) -> Iterator[Token]:
        """Yield all of them: 0.3 us each."""
        (pass_number, position), *others = self.first
        for place in range(position + 1, position + self._count + 1):
            yield Token._make(((pass_number, place), *others))


class KeyedElement(NamedTuple):
    """An element behind a fold, with its key."""

    value: Any
    key: Key


class Failure(NamedTuple):
    """What failed, at which row or item; `of_close` if it was no element but the end of a generator, which is always wanted.

    With `inside` it was one of several elements that the row or item before `at` gave, and those before it are there.
    """

    at: int
    error: BaseException
    stage: str
    worker: int
    of_close: bool = False
    inside: bool = False

    @property
    def row(self) -> int:
        """The row or item that failed."""
        return self.at - self.inside


class Result(NamedTuple):
    """The finished items of a chunk.

    Attributes:
        items: in order.
        origins: the item of the chunk that gave each; None when they are one to one.
        block: the items with their keys, for folds behind them.
        as_written: whether they are batches as the workers wrote them.
    """

    items: list[Any]
    origins: list[int] | None
    block: Block | None
    as_written: bool = False


class Replayed(NamedTuple):
    """What of a chunk was read before the state was saved that the run began with.

    Attributes:
        num_items: so many, from the first one on; they may not fail but where they did before.
        known: by row, what was skipped or replaced then.
        known_items: the same by batch.
    """

    num_items: int
    known: dict[int, list[KnownLoss]]
    known_items: dict[int, list[KnownLoss]]

    def behind(self, count: int, rows: int) -> Replayed:
        """Return the same of a chunk that begins behind so many items and rows."""
        return Replayed(max(0, self.num_items - count), _from(self.known, rows), _from(self.known_items, count))


NOTHING_REPLAYED = Replayed(0, {}, {})


@dataclass(slots=True, kw_only=True, eq=False)
class Chunk:
    """One batch, or several tiny ones, or a run of elements, on their way through a segment.

    Attributes:
        seq: its number in the segment.
        pass_number, first: of the source, and its first item in that pass.
        sizes: rows of each item; None where items are rows.
        num_rows: of all items.
        positions: (epochs, positions) of the rows at each level of the segment's chain, where a leaf makes them.
        batch_positions: the same of its batches.
        given: what it was made of, where no leaf makes it.
        tokens: the place behind each item.
        ends_pass: whether the end of the pass stands behind it.
        pass_token: the place behind the end of the pass. Without a leaf only that of a chunk that ends its pass is known.
        tail: the failure behind it: one that came with it, or its own, by item, when it is finished.
        rows: its batches under construction.
        result: its items, when it is finished.
        made_of: (segment, seq) of the chunk that it was made of: in the segment before, or in segment -1 of what was read.
        lease: of the buffer that its rows are written into; None where there is none.
        given_bytes: of what it was made of.
        kept_bytes: of what was made of that so far.
        expected_bytes: of what will be made of it, at least.
        granted_bytes: of tasks in work.
        charged_bytes: all of it as the scheduler has counted it.
        parts: by first row, elements that are not written into a batch, with the row that each came from.
        lost: what was skipped or replaced.
        claimed: so many rows were claimed for the first stage.
        done: (begin, end) of the rows that have left the last stage; `num_done` in all.
        failure: that of the lowest row which failed.
        begun: by stage, for those that take rows in order: the rows before this one were claimed for it.
        finishing: whether a worker makes its items, or has made them.
        cost_ns: what the tasks took.
    """

    seq: int
    pass_number: int
    first: int
    sizes: list[int] | None
    num_rows: int
    positions: PositionsPerOp = field(default_factory=list)
    batch_positions: PositionsPerOp = field(default_factory=list)
    given: Block | None = None
    tokens: Sequence[Token] = ()
    ends_pass: bool = False
    pass_token: Token | None = None
    tail: Failure | None = None
    rows: Rows | None = None
    result: Result | None = None
    made_of: tuple[int, int] | None = None
    replayed: Replayed = NOTHING_REPLAYED
    lease: weakref.ref[Lease] | None = None
    given_bytes: int = 0
    kept_bytes: int = 0
    expected_bytes: int = 0
    granted_bytes: int = 0
    charged_bytes: int = 0
    parts: dict[int, tuple[Block, Ints]] = field(default_factory=dict)
    lost: list[LostElement] = field(default_factory=list)
    claimed: int = 0
    done: list[tuple[int, int]] = field(default_factory=list)
    num_done: int = 0
    failure: Failure | None = None
    begun: dict[int, int] = field(default_factory=dict)
    finishing: bool = False
    cost_ns: int = 0

    @property
    def limit(self) -> int:
        """The first row that is not wanted."""
        return self.num_rows if self.failure is None else self.failure.at

    @property
    def num_bytes(self) -> int:
        """All that it holds."""
        return self.given_bytes + max(self.kept_bytes, self.expected_bytes) + self.granted_bytes

    def charge(self) -> int:
        """Count all of it again; return by how much it has grown."""
        before, self.charged_bytes = self.charged_bytes, self.num_bytes
        return self.charged_bytes - before

    def grant(self, room: int) -> int:
        """Grant a task so many bytes; return as `charge`."""
        self.granted_bytes += room
        return self.charge()

    @property
    def num_items(self) -> int:
        """How many batches, or elements, they are."""
        return self.num_rows if self.sizes is None else len(self.sizes)

    def cut(self, count: int) -> Chunk:
        """Keep the first `count` items; return a chunk of the others, of which nothing is done in this stage.

        One worker at most has rows of it, and those it has done belong to the items that are kept.
        """
        rows, head, others = self.first_row(count), slice(count), slice(count, None)
        given_bytes = int(self.given_bytes * (self.num_rows - rows) / self.num_rows)
        tail = Chunk(
            seq=-1,
            pass_number=self.pass_number,
            first=self.first + count,
            sizes=None if self.sizes is None else self.sizes[others],
            num_rows=self.num_rows - rows,
            positions=_part_of(self.positions, slice(rows, None)),
            batch_positions=_part_of(self.batch_positions, others),
            given=None if self.given is None else self.given.select(slice(rows, None)),
            tokens=self.tokens[others],
            ends_pass=self.ends_pass,
            pass_token=self.pass_token,
            tail=None if self.tail is None else self.tail._replace(at=self.tail.at - count),
            made_of=self.made_of,
            replayed=self.replayed.behind(count, rows),
            given_bytes=given_bytes,
            lost=[loss._replace(item=loss.item - count, row=loss.row - rows) for loss in self.lost if loss.item >= count],
        )
        if self.failure is not None and self.failure.at >= rows:
            tail.failure, self.failure = self.failure._replace(at=self.failure.at - rows), None
        self.lost = [loss for loss in self.lost if loss.item < count]
        self.positions, self.batch_positions = _part_of(self.positions, slice(rows)), _part_of(self.batch_positions, head)
        self.sizes, self.num_rows, self.tokens = None if self.sizes is None else self.sizes[head], rows, self.tokens[head]
        self.replayed = self.replayed._replace(num_items=min(self.replayed.num_items, count))
        self.given_bytes -= given_bytes
        self.ends_pass, self.tail = False, None
        if self.given is not None:
            self.given, self.pass_token = self.given.select(slice(rows)), None
        return tail

    def end_alone(self) -> Chunk:
        """Return a chunk of nothing but the end of the pass that this one ends."""
        end = Chunk(seq=self.seq, pass_number=self.pass_number, first=self.first + self.num_items, sizes=None, num_rows=0)
        end.pass_token, end.ends_pass = self.pass_token, True
        return end

    def key_of(self, row: int) -> tuple[int, int]:
        """Return (epoch, index) of the element that a row is made of."""
        given, positions_per_op = self.given, self.positions  # another worker may finish or cut the chunk meanwhile
        epochs, indices = (given.epochs, given.indices) if given is not None else positions_per_op[0] if positions_per_op else ((), ())
        return (int(epochs[row]), int(indices[row])) if row < len(epochs) else (self.pass_number, self.first + row)

    def fail(self, failure: Failure) -> None:
        """Keep the failure with the lowest row; rows from there on are not wanted any more."""
        if self.failure is None or failure.at < self.failure.at:
            self.failure = failure

    def take(self, outcome: Outcome) -> None:
        """Keep what a worker found and made."""
        self.parts.update(outcome.parts)
        if outcome.lost:
            self.lost += [lost if lost.row < 0 else lost._replace(item=self.item_of(lost.row)) for lost in outcome.lost]
        for row, places in outcome.moved:
            for (epochs, positions), (epoch, position) in zip(self.positions, places, strict=True):
                epochs[row], positions[row] = epoch, position

    def rows_complete(self) -> bool:
        """Tell whether every wanted row is done."""
        limit = self.limit
        if self.failure is None:
            return self.num_done >= limit
        return sum(min(stop, limit) - start for start, stop in self.done if start < limit) >= limit

    def good_items(self) -> int:
        """Count the items all of whose rows come before the failure."""
        return self.num_items if self.failure is None else self.item_of(self.limit)

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
        return row, row

    def first_row(self, item: int) -> int:
        """Return the first row of an item."""
        return item if self.sizes is None else sum(self.sizes[:item])

    def left_out_rows(self) -> set[int]:
        """Return the rows that have no element because a policy left theirs out."""
        return {loss.row for loss in self.lost if loss.row >= 0 and not (loss.how or loss.inner or loss.fixed)}

    def lost_by_item(self) -> dict[int, list[LostElement]]:
        """Return what was skipped or replaced, by item, in order."""
        out: dict[int, list[LostElement]] = {}
        for loss in sorted(self.lost, key=lambda one: (one.item, one.row)):
            out.setdefault(loss.item, []).append(loss)
        return out


def _from(some: dict[int, _T], border: int) -> dict[int, _T]:
    """Return what stands at rows or items from `border` on, as a chunk counts that begins there."""
    return {number - border: one for number, one in some.items() if number >= border}


def _part_of(positions_per_op: PositionsPerOp, part: slice) -> PositionsPerOp:
    return [(epochs[part], positions[part]) for epochs, positions in positions_per_op]


NO_CHUNK = Chunk(seq=-1, pass_number=0, first=0, sizes=None, num_rows=0)
"""That of a claim to read from a generator."""


class Claim(NamedTuple):
    """A range of rows of a chunk for one stage; or, with `read`, the next elements of a generator.

    It ends early where it holds more than `room` bytes. `num_bytes` are those of its block.
    """

    segment: int
    stage: int
    chunk: Chunk
    begin: int
    end: int
    block: Block | None
    read: int = 0
    room: int = UNLIMITED
    num_bytes: int = 0

    @property
    def item(self) -> WorkItem:
        """What a worker gets of it. Without the mutex: only one worker has these rows."""
        chunk, begin, end = self.chunk, self.begin, self.end
        given = chunk.given
        positions_per_op, replayed = chunk.positions, chunk.replayed
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
            positions_per_op if here is None else _part_of(positions_per_op, here),
            {row: some for row, some in replayed.known.items() if begin <= row < end} if replayed.known else {},
            chunk.first_row(replayed.num_items),
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
        num_replayed: rows of the chunk before this one were read before the state was saved.
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
    num_replayed: int
    fatal: dict[int, BaseException] | None = None


class BatchItem(NamedTuple):
    """Batches of a chunk for the operators above them, as values: the message to a worker.

    Attributes:
        batches: None in the place of one that could not be made.
        sizes: elements of each, where `keys` has those of their elements.
        keys: of all elements, or None where batches have positions of their own.
        positions_per_op: (epochs, positions) of these batches at each level.
        known: of these batches, what was skipped or replaced before the state was saved.
        num_replayed: batches before this one were read before the state was saved.
        without: batches all of whose elements were left out: nothing is done with them.
        fatal: as that of a WorkItem.
        collated: whether batches are batches; else they are lists of rows, and collation comes first.
    """

    batches: list[Any]
    sizes: list[int] | None
    keys: Block | None
    positions_per_op: PositionsPerOp
    known: dict[int, list[KnownLoss]]
    num_replayed: int
    without: frozenset[int]
    fatal: dict[int, BaseException] | None = None
    collated: bool = True


class Outcome(NamedTuple):
    """What became of a WorkItem or BatchItem, as values: the message from a worker.

    Attributes:
        end: the first row, or batch, that is not done.
        block: the elements for the next stage, or what came of the batches.
        failure: of the row at `end`; None when all are done, or there was no room for more.
        origins: the batch that each element of `block` came from.
        parts: by first row, elements that are not written into a batch, with the row that each came from.
        lost: what was skipped or replaced.
        moved: rows that stand for other positions now, with those at each level.
        kept_bytes: what is left behind, for the batch or the next stage.
        most_bytes: what was held at once.
        unknown: types of what could not be compared in elements that were computed twice.
    """

    end: int
    block: Block | None = None
    failure: Failure | None = None
    origins: Sequence[int] = ()
    parts: Sequence[tuple[int, tuple[Block, Ints]]] = ()
    lost: Sequence[LostElement] = ()
    moved: Sequence[tuple[int, list[tuple[int, int]]]] = ()
    kept_bytes: int = 0
    most_bytes: int = 0
    unknown: frozenset[str] = frozenset()
