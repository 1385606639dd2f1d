"""What becomes of a chunk whose rows are done: its items, then the folds behind its segment, and the tokens of what comes out."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import field
from typing import Any

import numpy as np

from penstock._contracts.element import bytes_of
from penstock._engine.chunk import (
    BatchItem,
    Chunk,
    Completed,
    Counted,
    Failure,
    FoldState,
    KeyedElement,
    KnownLoss,
    LostElement,
    Result,
    Token,
    merged,
)
from penstock._engine.compute import HERE, Computer, concatenated, not_again
from penstock._engine.error_policy import RAISING, ErrorHandler, LossLedger
from penstock._engine.program import Program, SegmentPlan
from penstock._ops.block import UNLIMITED, Block, ElementFailed
from penstock._ops.collation import Collate
from penstock._ops.operator import Leaf
from penstock._ops.reading import Moves
from penstock._ops.streams import Gathered, Measured
from penstock._ops.worker import WorkerContext
from penstock._order.chain import BufferedElement, Chain, Mark, items_again, passes_above
from penstock._order.holding import Group
from penstock._order.runs import Runs
from penstock._system.lazy import dataclass
from penstock.errors import PlanError, StateMismatch, TooManySkipped


def pieces_by_input(chunk: Chunk) -> list[list[KeyedElement]]:
    """Return the pieces that each good item of the chunk gave."""
    result = chunk.result
    assert isinstance(result, Result)
    pieces = pieces_of(result)
    if result.origins is None:
        return [[piece] for piece in pieces]
    out: list[list[KeyedElement]] = [[] for _ in range(chunk.good_count())]
    for origin, piece in zip(result.origins, pieces, strict=True):
        out[origin].append(piece)
    return out


def pieces_of(result: Result) -> list[KeyedElement]:
    """Return the elements of a result, each with its key; what is delivered as it is has none."""
    block = result.block
    if block is None:
        return [KeyedElement(item, (-1, -1, 0)) for item in result.items]
    keys = zip(block.epochs.tolist(), block.indices.tolist(), block.lanes.tolist(), strict=True)
    return [KeyedElement(item, key) for item, key in zip(result.items, keys, strict=True)]


def size_of(item: Any) -> Any:
    """Return the weight that a worker gave an element."""
    piece = item.item if type(item) is BufferedElement else item
    return piece.value.weight


def unmeasured(piece: KeyedElement) -> KeyedElement:
    """Take the weight off an element."""
    return KeyedElement(piece.value.value, piece.key) if type(piece.value) is Measured else piece


def bytes_in(waiting: Iterable[Any]) -> int:
    """Return the memory of what folds hold."""
    total = 0
    for one in waiting:
        if isinstance(one, (list, Group)):
            total += bytes_in(one if isinstance(one, list) else one.items)
        else:
            total += bytes_of(unmeasured(one.item if type(one) is BufferedElement else one).value)
    return total


def unwrapped(out: Any) -> Any:
    """Return what leaves the folds as the next segment takes it: a piece, or a list of pieces for a batch."""
    if isinstance(out, BufferedElement):
        return unmeasured(out.item)
    if isinstance(out, list):
        return [unwrapped(part) for part in out]
    if isinstance(out, KeyedElement):
        return unmeasured(out)
    assert isinstance(out, Group)
    pieces = [unmeasured(held.item) for held in out.items]
    return KeyedElement(Gathered(tuple(piece.value for piece in pieces), out.layout), pieces[0].key)


OPEN, DROP_END, PASS_END, FOLD_END = 0, 1, 2, 3
"""What becomes of the rest of a pass: it is folded; ignored with its end; ignored, but its end goes on upwards; or its end alone is
folded. The last one is not saved: the folds are as they were when it was decided."""

_CHECKPOINT_ITEMS = 64  # a resume runs at least so many items again, so that a checkpoint of few held items costs nothing either


@dataclass(slots=True)
class Sequenced:
    """What came out of one chunk: items (a KeyedElement each, or a list of them behind a batch), a token each, and what goes on behind.

    Attributes:
        ends_pass: whether the end of the pass goes on.
        tail: the failure behind the items: that of the chunk, or one that the segment does not know of yet.
        cut: whether nothing more is wanted of the pass.
        empty_pass: whether a whole pass of an endless repeat gave nothing.
        unchanged: whether the chunk goes on as it is: `items` are only as many as there are.
        notices: what is to be announced.
    """

    items: list[Any] = field(default_factory=list)
    tokens: Any = field(default_factory=list)
    ends_pass: bool = False
    tail: Failure | None = None
    cut: bool = False
    empty_pass: bool = False
    unchanged: bool = False
    notices: Sequence[str] = ()


class FoldRunner:
    """Numbers what passes it. Not thread-safe: it runs under the engine's mutex, in chunk order.

    What goes on as it is finished comes in the order of its tokens: a resume brings it again in the same order.

    Without a holding fold nothing is held whenever something comes out, and the token is the place and the folds' states. With one, a
    token is the last checkpoint and how many results came out since: a resume runs the folds again from there. A checkpoint in turn is
    what was taken without the inputs of held items, and how many items these give: they are put back first. Where the inputs are not the
    positions of the source in their order, it is the place before the oldest held item, and all that entered since is put back.
    """

    def __init__(
        self, program: Program, number: int, before: Token, saved: FoldState | None, ledger: LossLedger, first_pass: int = 0
    ) -> None:
        """Start with the resume token of the input before, and this fold runner's own saved state.

        Args:
            program: what runs.
            number: of the segment.
            before: the token of the input before.
            saved: its own saved state.
            ledger: counts what was left out.
            first_pass: the number of the pass that comes first.
        """
        self._program, self._plan = program, program.segments[number]
        self._transparent = self._plan.transparent  # it adds nothing to a token
        self._may_cut = program.may_cut  # a failure may stand behind what is wanted of a pass
        self._ledger, folds = ledger, self._plan.folds
        self._input = before.source[0], -1  # the last one: its pass, and its number in what this run saw of the pass
        self._origin = before.source[0], 0  # the first one behind the checkpoint
        self._known: list[tuple[KnownLoss, bool]] = []  # of inputs that the checkpoint does not have; and whether they are tried again
        self._before = self._read_up_to = before
        record = saved or FoldState(0, OPEN, tuple(Chain(folds, first_pass=first_pass).snapshot()))
        self.begin = record
        self._skip, self._mode, self._drop = record.skip, record.mode, record.drop
        self._chain = Chain(folds, None if saved is None else record.states, recall=record.recall, unwrap=unwrapped, first_pass=first_pass)
        self._holds = self._chain.holding is not None
        self._checkpoint = before, record._replace(drop=0, known=(), replay=(0, 0))
        self._num_outs = 0
        self._entered, self._patience = 0, _CHECKPOINT_ITEMS
        self._started = False
        self._dropping = False  # whether nothing more is wanted of the pass that goes on upwards

    def take(self, chunk: Chunk) -> Sequenced:
        """Take one finished chunk, in order."""
        tail_alone = chunk.tail is None or not (self._may_cut or chunk.tail.inside)
        if self._transparent and tail_alone and not self._changes(chunk) and not self._ledger.loss_counts:
            whole, ends = [] if chunk.result is None else chunk.result.items, chunk.ends_pass and chunk.tail is None
            if self._may_cut:
                self._before = self._pass_start(chunk) if ends else chunk.tokens[chunk.num_items - 1]
            return Sequenced(whole, chunk.tokens, ends, chunk.tail, unchanged=bool(whole))
        out = Sequenced()
        try:
            self._take(chunk, out)
        except (StateMismatch, PlanError) as error:  # what was held when the state was saved did not come again; uneven ranks
            out.tail = Failure(len(out.items), error, "resume", 0)
        return out

    def drop_pass(self) -> None:
        """Let nothing more come of the pass that goes on upwards, but its end."""
        self._dropping = True

    def waiting(self) -> list[Any]:
        """List what the folds hold."""
        return self._chain.waiting()

    def _take(self, chunk: Chunk, out: Sequenced) -> None:
        ends, excess = self._begin(out), None
        out.unchanged = not out.items and self._take_whole(chunk, out)
        if chunk.result is not None and not out.unchanged:
            goes_on, excess = self._take_inputs(chunk, out)
            ends |= goes_on
        tail = excess or chunk.tail
        if excess is None and tail is not None and self._mode != OPEN and not tail.of_close:
            tail = None  # it stands behind an early end of the pass
        out.ends_pass, out.tail = self._take_end(chunk, tail, ends, out)
        out.cut = self._mode != OPEN or self._dropping
        self._dropping = self._dropping or (out.tail is not None and self._may_cut)
        out.empty_pass = self._chain.empty_pass
        out.notices, self._chain.notices = self._chain.notices, []

    def _begin(self, out: Sequenced) -> bool:
        """End the pass at once if nothing of it is wanted; return whether its end goes on upwards."""
        if self._started and not self._dropping:
            return False
        self._started = True
        return not self._chain.recalling and self._close(out, self._before, 0)[0]

    def _take_end(self, chunk: Chunk, tail: Failure | None, ends: bool, out: Sequenced) -> tuple[bool, Failure | None]:
        """Take the end of a chunk, and of its pass if it has that; return whether the end of the pass goes on upwards, and the failure."""
        ended = chunk.ends_pass and tail is None
        if ended:
            ends = self._end(chunk, out) or ends
        if ends and self._num_outs < self._drop:
            raise not_again(f"{self._drop} results were delivered behind the last checkpoint, and {self._num_outs} came again")
        if self._holds and (ends or ended):
            self._save(self._before, 0)
        return ends, tail

    def _take_inputs(self, chunk: Chunk, out: Sequenced) -> tuple[bool, Failure | None]:
        """Take the inputs of a chunk one by one; return whether the end of the pass goes on upwards, and the error of a limit."""
        ends = False
        lost = chunk.lost_by_item() if chunk.lost else {}
        for number, (results, after) in enumerate(zip(pieces_by_input(chunk), chunk.tokens, strict=False)):
            if self._mode != OPEN:
                break
            position = self._count(chunk, number)
            if number in lost:
                excess = self._book(lost[number], chunk, number, left=len(results))
                if excess is not None:
                    return ends, excess
            more = chunk.tail is not None and chunk.tail.inside and number == chunk.tail.row
            ends = self._take_input(self._counting(after), results, out, position, more=more) or ends
        return ends, None

    def _take_whole(self, chunk: Chunk, out: Sequenced) -> bool:
        """Take all of a chunk at once if it comes out as it went in, which changes no state but counts.

        False, and nothing is done, where the inputs must be looked at one by one.
        """
        result, count = chunk.result, chunk.num_items
        if result is None or not count or chunk.tail is not None or self._changes(chunk) or not self._chain.lets_through(count):
            return False
        self._chain.mark_passes()
        out.tokens = self._tokens_of_whole(chunk, count)
        pass_number, number = self._input
        self._input = chunk.pass_number, count + (number if pass_number == chunk.pass_number else -1)
        self._before = self._counting(chunk.tokens[count - 1])
        out.items.extend(result.items)
        return True

    def _changes(self, chunk: Chunk) -> bool:
        """Tell whether the state of this fold runner, or what became of some inputs of a chunk, changes more than counts."""
        if self._mode != OPEN or self._holds or self._skip or self._drop or self._dropping:
            return True
        if chunk.result is None:
            return chunk.num_items > 0
        return bool(chunk.lost) or chunk.result.origins is not None

    def _tokens_of_whole(self, chunk: Chunk, count: int) -> Sequence[Token]:
        if self._transparent and not self._ledger.loss_counts:
            return chunk.tokens
        if isinstance(chunk.tokens, Counted) and not self._chain.counts:
            return Counted(self._behind_folds(self._counting(chunk.tokens.first)), count)
        tokens = []
        for token in chunk.tokens:
            self._chain.count_one()
            tokens.append(self._behind_folds(self._counting(token)))
        return tokens

    def _behind_folds(self, before: Token) -> Token:
        return before if self._transparent else _with(before, FoldState(0, OPEN, tuple(self._chain.snapshot())))

    def _count(self, chunk: Chunk, number: int) -> int | None:
        """Count an input; where a fold holds elements, return its position in the source, if the inputs are these in their order."""
        pass_number = chunk.pass_number
        self._input = (pass_number, self._input[1] + 1 if pass_number == self._input[0] else 0)
        in_source = self._before.done.at is None and (chunk.made_of is None or chunk.made_of[0] < 0)
        return chunk.first + number if self._holds and in_source else None

    def _book(self, lost: list[LostElement], chunk: Chunk, number: int, *, left: int) -> Failure | None:
        """Count what was left out or replaced at an input, of which so many elements are left; return the error when that is too much."""
        source = chunk.tokens[number]
        num_read = source.source[1] + sum(end - begin for begin, end in source.done.runs)
        first = self._program.segments[0]
        num_read *= 1 if first.batch is None else first.batch.shift  # limits that are rates count elements
        if not self._holds:
            self._known.clear()
        for loss in lost:
            row = -1 if loss.row < 0 else loss.row - chunk.first_row(loss.item)
            self._known.append((KnownLoss(*self._input, loss.how, loss.site, loss.inner, row), loss.fixed))
            error = self._ledger.book(loss, source.loss_counts, source.source[0], num_read)
            if error is not None:
                return Failure(number, error, loss.stage, loss.worker)
        equal_steps = self._program.policies.equal_steps and self._plan is first  # other ranks do not leave out theirs
        if equal_steps and not left and lost[-1].error is not None:
            return Failure(number, _step_left_out(lost[-1]), lost[-1].stage, lost[-1].worker)
        return None

    def _counting(self, token: Token) -> Token:
        """Add what this fold runner has counted."""
        return token._replace(loss_counts=merged(token.loss_counts, self._ledger.loss_counts)) if self._ledger.loss_counts else token

    def _again(self, record: FoldState, origin: tuple[int, int]) -> FoldState:
        """Add what of the inputs behind a record is to be treated as before when they are read again; the first one has number `origin`."""
        begin = origin[0], origin[1] + record.replay[1]
        known = (one._replace(number=_since(origin, one[:2])[1]) for one, fixed in self._known if not fixed and one[:2] >= begin)
        pass_number, number = _since(origin, self._input)
        return record._replace(known=(*record.known, *known), replay=(pass_number, number + 1))

    def _take_input(self, after: Token, results: list[KeyedElement], out: Sequenced, position: int | None, *, more: bool) -> bool:
        """Fold the results of an input, behind which `more` would come; return whether the end of the pass goes on upwards."""
        skip, self._skip = self._skip, 0
        if skip > len(results):
            raise not_again(f"{skip} results of one element were delivered, and it gives {len(results)} now")
        before = self._before if position is None else self._before._replace(source=(after.source[0], position))
        for number, piece in enumerate(results):
            if number < skip:
                continue
            mark = Mark(before, self._input, position, number, len(results)) if self._holds else None
            outs = self._chain.push(piece, mark)
            place = (after, 0) if number == len(results) - 1 and not more else (before.read_up_to(after), number + 1)
            self._read_up_to = after
            if outs:
                self._emit(outs, out, *place)
            ends, cut = self._close(out, *place)
            if cut:
                self._before = after
                return ends
            if self._holds and self._chain.num_entered - self._entered >= self._patience:
                self._save(*place)
        self._before = self._read_up_to = after
        return False

    def _close(self, out: Sequenced, before: Token, skip: int) -> tuple[bool, bool]:
        """End the pass early if nothing more is wanted of it; return (whether its end goes on, whether the rest of the pass is cut)."""
        if self._mode != OPEN:
            return False, False
        outs, how = self._chain.close_early(wanted=not self._dropping)
        if how == "open":
            return False, False
        self._emit(outs, out, before, skip, PASS_END if how == "end" else DROP_END)
        self._mode = FOLD_END if how == "rest" else DROP_END
        self._dropping &= how != "end"
        return how == "end", True

    def _end(self, chunk: Chunk, out: Sequenced) -> bool:
        """Take the end of the pass; return whether it goes on upwards."""
        mode, self._mode = self._mode, OPEN
        goes_on = mode == PASS_END
        if mode in (OPEN, FOLD_END):
            outs, goes_on = self._chain.end()
            self._read_up_to = self._read_up_to.read_up_to(Token((self._read_up_to.source[0] + 1, 0)))
            self._emit(outs, out, self._before, 0, PASS_END if goes_on else DROP_END)
        self._dropping &= not goes_on
        self._before, self._skip = self._pass_start(chunk), 0
        self._read_up_to = self._before
        self._started = False  # a take(0) is full before the next pass begins
        return goes_on

    def _pass_start(self, chunk: Chunk) -> Token:
        """Return the token of the start of the next pass: the source's next pass, and every fold runner below as it is then."""
        assert chunk.pass_token is not None
        return self._counting(chunk.pass_token)

    def _emit(self, outs: Sequence[Any], out: Sequenced, before: Token, skip: int, mode: int = OPEN) -> None:
        if not outs or self._dropping:
            return
        if self._holds:
            below, record = self._checkpoint
            below = below.read_up_to(self._read_up_to)
            record = self._again(record, self._origin)
            for item in outs:
                self._num_outs += 1
                if self._num_outs > self._drop:
                    out.items.append(item)
                    out.tokens.append(_with(below, record._replace(drop=self._num_outs)))
            return
        delivered = min(self._drop, len(outs))  # an older state drops them behind folds that hold nothing
        self._drop, outs = self._drop - delivered, outs[delivered:]
        if self._transparent:
            token = before
        else:
            record = FoldState(skip, mode, tuple(self._chain.snapshot()))
            token = _with(before, self._again(record, self._input) if skip else record)
        out.items.extend(outs)
        out.tokens.extend([token] * len(outs))

    def _save(self, before: Token, skip: int) -> None:
        """Take a checkpoint at this place, unless it cannot be one."""
        chain = self._chain
        if chain.recalling or not chain.settled or self._num_outs < self._drop:
            return
        held = sorted(chain.held(), key=lambda one: one.number)
        begin, again = self._input if skip else self._next(before), list[tuple[KnownLoss, bool]]()
        if not held:
            self._checkpoint = before, FoldState(skip, self._mode, tuple(chain.snapshot()))
        elif held[0].mark.position is None:
            first, oldest = held[0].number, held[0].mark
            begin, states = oldest.input, tuple(chain.snapshot({one.number: one.number - first for one in held}))
            self._checkpoint = oldest.before, FoldState(oldest.number, OPEN, states, chain.num_entered - first)
        else:
            self._checkpoint, again = self._without(held, before, skip, begin)
        self._known = [*again, *(known for known in self._known if known[0][:2] >= begin)]
        self._origin = begin[0], begin[1] - self._checkpoint[1].replay[1]
        self._num_outs = self._drop = 0
        self._entered, self._patience = chain.num_entered, max(_CHECKPOINT_ITEMS, len(held))

    def _without(
        self, held: Sequence[BufferedElement], before: Token, skip: int, end: tuple[int, int]
    ) -> tuple[tuple[Token, FoldState], list[tuple[KnownLoss, bool]]]:
        """Return a checkpoint that has all up to a place, but not the inputs of held items, and what is known of these inputs.

        Of input `end`, behind the place, `skip` items were taken.
        """
        numbers, inputs, recall = items_again(held, end)
        order = {mark.input: number for number, mark in enumerate(inputs)}
        again = [known for known in self._known if known[0][:2] in order]
        last = self._checkpoint[0]
        done = Runs([(0, before.source[1]), *(last.done.runs if last.source[0] == end[0] else ())])
        watermark, runs = done.split(mark.position for mark in inputs)
        counts = merged(before.loss_counts, (one.undone for one, _ in again))
        place = held[0].mark.before._replace(source=(end[0], watermark), done=Completed(runs), loss_counts=counts)
        known = tuple(one._replace(number=order[one[:2]]) for one, fixed in again if not fixed)
        states = tuple(self._chain.snapshot(numbers))
        return (place, FoldState(0, OPEN, states, recall + skip, known=known, replay=(end[0], len(inputs)))), again

    def _next(self, before: Token) -> tuple[int, int]:
        """Return the number of the input behind `before`: the next one, perhaps of the next pass."""
        pass_number, number = self._input
        return (pass_number, number + 1) if before.source[0] == pass_number else (before.source[0], 0)

    def start_of_next_pass(self, chunk: Chunk) -> Token:
        """Return the token that resumes behind the end of a pass that `take` let go on upwards, `chunk` being the last one it took.

        When a full `take` ended it in the middle of `chunk`'s pass, the fold runners below are in the middle of theirs: the token is that
        place, and drops what is left of the pass with its end.
        """
        below, mode = (self._before, self._mode) if chunk.pass_token is None else (self._pass_start(chunk), OPEN)
        if self._transparent:
            return below
        return _with(below, FoldState(0, mode, tuple(self._chain.snapshot())))


def records_of(program: Program, start: Token) -> list[FoldState | None]:
    """Return what the fold runner of each segment had saved, None where nothing was or is."""
    saved = iter(start.fold_runners)
    return [None if segment.transparent else next(saved, None) for segment in program.segments]


def fold_runners_of(program: Program, start: Token, ledgers: Sequence[LossLedger]) -> list[FoldRunner]:
    """Make the fold runner of each segment."""
    out: list[FoldRunner] = []
    below, first_pass = start._replace(fold_runners=()), program.first_pass
    for number, (segment, record) in enumerate(zip(program.segments, records_of(program, start), strict=True)):
        runner = FoldRunner(program, number, below, record, ledgers[number], first_pass)
        out.append(runner)
        if not segment.transparent:
            below = below._replace(fold_runners=(*below.fold_runners, record or runner.begin))
        for fold in segment.folds:
            first_pass = passes_above(fold, first_pass)
    return out


def _since(origin: tuple[int, int], where: Sequence[int]) -> tuple[int, int]:
    """Return the pass of an input, and its number in it as a run counts that begins at `origin`."""
    return where[0], where[1] - (origin[1] if where[0] == origin[0] else 0)


def _step_left_out(loss: LostElement) -> TooManySkipped:
    error = TooManySkipped(
        "Skip left out a whole step, a batch or an element, and beside shard() every rank must make as many steps",
        where=f"Skip() of {loss.site}; the last element: epoch {loss.key[0]} index {loss.key[1]}"
        + (f" ({loss.where})" if loss.where else ""),
        fix="use Replace(), which puts another element in the place of one that fails, or larger batches",
    )
    error.__cause__ = loss.error
    return error


def _with(below: Token, record: FoldState) -> Token:
    return below._replace(fold_runners=(*below.fold_runners, record))


# -- a chunk whose wanted rows are done: its batches, or its elements in order, through the operators above the batch -----------------


def finish_chunk(
    plan: SegmentPlan, chunk: Chunk, worker: WorkerContext, error_handler: ErrorHandler = RAISING, computer: Computer = HERE
) -> tuple[Result, Failure | None]:
    """Make the items of a chunk whose wanted rows are done: batches through the top operators, or the parts joined.

    Returns:
        (the items before the first failure, that failure with the number of its item or None).
    """
    worker.rest()
    worker.take_room(UNLIMITED)
    worker.finishing = True
    failure = chunk.failure and chunk.failure._replace(at=chunk.item_of(chunk.failure.at))
    count = chunk.good_items()
    moves = all(isinstance(operator, Moves) for operator in plan.batch_ops)
    as_written = moves and chunk.rows is not None and not chunk.rows.beside
    if chunk.rows is None:
        return join(chunk, count), failure
    missing = chunk.left_out_rows() if chunk.lost else frozenset[int]()
    collated = _collates_here(plan, computer, error_handler)
    batches, failure = _batches_of(chunk, count, missing, _AS_ROWS[collated], failure, worker.index)
    without = frozenset(number for number, batch in enumerate(batches) if batch is None) if missing else frozenset[int]()
    as_written = as_written and not missing
    if plan.delivers and not plan.folds and moves and collated and not without:
        return Result(batches, None, None, as_written), failure
    item = _batch_item(chunk, batches, missing, without)._replace(collated=collated)
    result, failed = _through_batch_ops(plan, chunk, item, worker, error_handler, computer)
    return result._replace(as_written=as_written), failed or failure


def _batches_of(
    chunk: Chunk, count: int, missing: Collection[int], collation: Collate | None, failure: Failure | None, worker: int
) -> tuple[list[Any], Failure | None]:
    """Take the first batches out of their rows, up to one whose elements do not fit each other; else `failure` is behind them."""
    bad: dict[int, ElementFailed] = {}
    assert chunk.rows is not None
    batches = chunk.rows.finish(count, bad, missing=missing, collation=collation)
    chunk.rows = None
    if not bad:
        return batches, failure
    first = min(bad)
    return batches[:first], Failure(first, bad[first].error, bad[first].stage, worker)


_AS_ROWS = {True: None, False: Collate(list)}


def _through_batch_ops(
    plan: SegmentPlan, chunk: Chunk, item: BatchItem, worker: WorkerContext, error_handler: ErrorHandler, computer: Computer
) -> tuple[Result, Failure | None]:
    outcome = computer.compute_batches(plan, item, worker, error_handler)
    if plan.leaf is not None and outcome.lost:
        outcome = outcome._replace(lost=[_with_elements(plan.leaf, chunk, loss) for loss in outcome.lost])
    chunk.take(outcome)
    end, block, failed, origins = outcome[:4]
    del outcome  # the frames of its errors lead to this one
    items = list(block.rows()) if block is not None else []
    return _result(items, list(origins), block, end), failed


def _with_elements(leaf: Leaf, chunk: Chunk, loss: LostElement) -> LostElement:
    """Name the elements of a whole batch that was left out or replaced."""
    assert chunk.sizes is not None
    first, missing = chunk.first_row(loss.item), chunk.left_out_rows()
    rows = [row for row in range(first, first + chunk.sizes[loss.item]) if row not in missing]
    epochs, positions = chunk.positions[0]
    keys = zip(*(some.tolist() for some in leaf.keys(epochs[rows], positions[rows])), strict=True)
    return loss._replace(keys=tuple(keys), where=f"a batch of {len(rows)}")


def _collates_here(plan: SegmentPlan, computer: Computer, error_handler: ErrorHandler) -> bool:
    """Tell whether batches are made as they are taken out of their rows, and not by a function that runs elsewhere, or twice."""
    runs_here = computer is HERE and not error_handler.policies.verify
    return runs_here or plan.batch is None or not isinstance(plan.batch.collation, Collate)


def _batch_item(chunk: Chunk, batches: list[Any], missing: Collection[int], without: frozenset[int]) -> BatchItem:
    given, sizes = chunk.given, chunk.sizes
    keys = None if given is None else Block(given.epochs, given.indices, given.lanes)
    if missing and keys is not None and sizes is not None:
        kept = [row for row in range(chunk.num_rows) if row not in missing]
        keys = keys.select(np.array(kept, np.int64))
        items = np.bincount([chunk.item_of(row) for row in kept], minlength=len(sizes))
        sizes = items.tolist()
    replayed = chunk.replayed
    return BatchItem(batches, sizes, keys, chunk.batch_positions, replayed.known_items, replayed.num_items, without)


def join(chunk: Chunk, count: int) -> Result:
    """Put the parts of a chunk without a batch in order, and leave out what lies behind a failure."""
    items: list[Any] = []
    origins: list[int] = []
    blocks: list[Block] = []
    for begin in sorted(chunk.parts):
        block, part = chunk.parts[begin]
        if begin >= count:
            break
        if len(part) and int(part[-1]) >= count:
            keep = int(np.searchsorted(part, count))
            block, part = block.select(slice(0, keep)), part[:keep]
        items.extend(block.rows())
        origins.extend(part.tolist())
        blocks.append(block)
    chunk.parts = {}
    return _result(items, origins, concatenated(blocks), count)


def _result(items: list[Any], origins: list[int], block: Block | None, count: int) -> Result:
    one_to_one = len(items) == count and origins == list(range(count))
    return Result(items, None if one_to_one else origins, block)
