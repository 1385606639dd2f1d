"""What becomes of a chunk whose rows are done: its items, then the folds behind its segment, and the tokens of what comes out."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from penstock._contracts.element import bytes_of
from penstock._engine.chunk import (
    BatchItem,
    Chunk,
    Counted,
    Failure,
    FoldState,
    KeyedElement,
    KnownLoss,
    LateFailure,
    LostElement,
    Result,
    Token,
    merged,
)
from penstock._engine.compute import HERE, Computer, concatenated
from penstock._engine.error_policy import RAISING, ErrorHandler, LossLedger
from penstock._engine.program import SegmentPlan
from penstock._ops.block import UNLIMITED, Block, ElementFailed, Ints
from penstock._ops.collation import Collate
from penstock._ops.reading import Moves
from penstock._ops.streams import Gathered, Measured
from penstock._ops.worker import WorkerContext
from penstock._order.chain import BufferedElement, Chain
from penstock._order.folds import Fold
from penstock._order.holding import Group
from penstock.errors import PlanError, StateMismatch

__all__ = [
    "DROP_END",
    "OPEN",
    "PASS_END",
    "Failing",
    "FoldRunner",
    "Sequenced",
    "bytes_in",
    "check_results",
    "failure_in",
    "finish_chunk",
    "helds_in",
    "pieces_by_input",
    "pieces_of",
    "size_of",
    "unmeasured",
    "unwrapped",
]


def pieces_by_input(chunk: Chunk) -> list[list[KeyedElement]]:
    """Return the pieces that each good item of the chunk gave."""
    if chunk.all_in_place and chunk.batch_rows_in_place:
        _take_out(chunk)
    result = chunk.result
    assert isinstance(result, Result)
    pieces = pieces_of(result)
    if result.origins is None:
        return [[piece] for piece in pieces]
    out: list[list[KeyedElement]] = [[] for _ in range(chunk.good_count())]
    for origin, piece in zip(result.origins, pieces, strict=True):
        out[origin].append(piece)
    return out


def _take_out(chunk: Chunk) -> None:
    """Take all elements out of the batches that they were written into: the folds have others in mind."""
    chunk.collected.parts = taken_out(chunk)
    chunk.result = join(chunk, chunk.num_items)


def pieces_of(result: Result) -> list[KeyedElement]:
    """Return the elements of a result, each with its key."""
    block = result.block
    if block is None:
        assert not result.items
        return []
    keys = zip(block.epochs.tolist(), block.indices.tolist(), block.lanes.tolist(), strict=True)
    return [KeyedElement(item, key) for item, key in zip(result.items, keys, strict=True)]


def size_of(item: Any) -> Any:
    """Return the weight that a worker gave an element."""
    piece = item.item if type(item) is BufferedElement else item
    return piece.value.weight


def unmeasured(piece: KeyedElement) -> KeyedElement:
    """Take the weight off an element."""
    return KeyedElement(piece.value.value, piece.key) if type(piece.value) is Measured else piece


def helds_in(out: Any) -> Sequence[BufferedElement]:
    """List the items in what comes out of a chain of folds that does not unwrap."""
    if isinstance(out, BufferedElement):
        return (out,)
    if isinstance(out, Group):
        return out.items
    return [held for part in out for held in helds_in(part)] if isinstance(out, list) else ()


def failure_in(out: Any) -> Failure | None:
    """Return the failure of an element in what leaves the folds, or None."""
    if isinstance(out, list):
        return next(filter(None, map(failure_in, out)), None)
    value = out.value if isinstance(out, KeyedElement) else out
    if isinstance(value, Gathered):
        return next(filter(None, map(failure_in, value.values)), None)
    return value.failure if isinstance(value, LateFailure) else None


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


class Sequenced(NamedTuple):
    """What came out of one chunk: items (a Piece each, or a list of pieces behind a batch), a token each, and the marks that go on."""

    items: list[Any]
    tokens: Sequence[Token] | Counted
    ends_pass: bool
    tail: Failure | None
    cut: bool
    empty_pass: bool
    excess: Failure | None = None
    """The tail, if it is that of a limit: the segment does not know of it yet."""
    unchanged: bool = False
    """Whether the chunk goes on as it is: `items` are only as many as there are."""
    late: bool = False
    """Whether there may be elements among the items that failed."""
    notices: Sequence[str] = ()


class Failing(NamedTuple):
    """What becomes of a failure."""

    hands_on: bool = False
    """An element that failed goes on to the next segment; else its failure ends the run where it comes out."""
    goes_on: bool = False
    """A failure may stand behind what is wanted of the pass: then the end of the pass must come behind it, and the next one."""


class FoldRunner:
    """Numbers what passes it. Not thread-safe: it runs under the engine's mutex, in chunk order.

    Without a holding fold nothing is held whenever something comes out, and the token is the place and the folds' states. With one, a
    token is the last checkpoint and how many results came out since: a resume runs the folds again from there. A checkpoint in turn is the
    place before the oldest held item, and how many items entered since: they are put back first.
    """

    def __init__(
        self,
        folds: Sequence[Fold],
        before: Token,
        saved: FoldState | None,
        *,
        transparent: bool = False,
        ledger: LossLedger | None = None,
        behind_another: bool = False,
        first_pass: int = 0,
        failing: Failing = Failing(),  # noqa: B008 - a frozen value
    ) -> None:
        """Start with the resume token of the input before, and this fold runner's own saved state; `ledger` counts what was left out."""
        self._ledgers = ledger or LossLedger()
        self._input = before.source[0], -1  # the last one: its pass, and its number in what this run saw of the pass
        self._origin = before.source[0], 0  # the first one behind the checkpoint
        self._known: list[KnownLoss] = []  # inputs behind the checkpoint that were left out or replaced
        self._before = before
        record = saved or FoldState(0, OPEN, ())
        self._skip, self._mode, self._drop = record.skip, record.mode, record.drop
        self._chain = Chain(folds, None if saved is None else record.states, recall=record.recall, unwrap=unwrapped, first_pass=first_pass)
        self._holds = self._chain.holding is not None
        if saved is None:
            record = record._replace(states=tuple(self._chain.snapshot()))
        self._checkpoint = before, record._replace(drop=0, known=(), replay=(0, 0))
        self._num_outs = 0
        self._entered, self._patience = 0, _CHECKPOINT_ITEMS
        self._started = False
        self._late = False  # whether an element that failed is among those in the folds
        self._hands_on, self._goes_on = failing
        self._dropping = False  # whether nothing more is wanted of the pass that goes on upwards
        self._failed: Failure | None = None  # that of the first one that came out
        self._transparent = transparent
        # Positions are those of the source: what a later fold runner takes is numbered otherwise.
        self._partial = (before.source[0], {} if behind_another else dict(before.done.partial))

    def take(self, chunk: Chunk) -> Sequenced:
        """Take one finished chunk, in order."""
        items: list[Any] = []
        tokens: list[Token] = []
        try:
            return self._take(chunk, items, tokens)
        except (StateMismatch, PlanError) as error:  # what was held when the state was saved did not come again; uneven ranks
            return Sequenced(items, tokens, False, Failure(len(items), error, "resume", 0), False, False, late=self._late)

    def drop_pass(self) -> None:
        """Let nothing more come of the pass that goes on upwards, but its end."""
        self._dropping = True

    def waiting(self) -> list[Any]:
        """List what the folds hold."""
        return self._chain.waiting()

    def _take(self, chunk: Chunk, items: list[Any], tokens: list[Token]) -> Sequenced:
        ends, excess = self._begin(items, tokens), None
        counted = None if items else self._take_whole(chunk, items)
        if chunk.result is not None and counted is None:
            goes_on, excess = self._take_inputs(chunk, items, tokens)
            ends = ends or goes_on
        ends, tail = self._take_end(chunk, self._failure_behind(chunk, excess), ends, items, tokens)
        if self._failed is not None:
            excess = tail
        cut = self._mode != OPEN or self._dropping
        self._dropping = self._dropping or (tail is not None and self._goes_on)
        unchanged = counted is not None
        notices, self._chain.notices = self._chain.notices, []
        return Sequenced(
            items, tokens if counted is None else counted, ends, tail, cut, self._chain.empty_pass, excess, unchanged, self._late, notices
        )

    def _begin(self, items: list[Any], tokens: list[Token]) -> bool:
        """End the pass at once if nothing of it is wanted; return whether its end goes on upwards."""
        if self._goes_on:
            self._failed = None
        if self._started and not self._dropping:
            return False
        self._started = True
        return not self._chain.recalling and self._close(items, tokens, self._before, 0)[0]

    def _failure_behind(self, chunk: Chunk, excess: Failure | None) -> Failure | None:
        """Return the failure behind a chunk: `excess`, that of a limit, or its tail, unless this is behind an early end of the pass."""
        tail = excess or chunk.tail
        return None if self._mode != OPEN and excess is None and tail is not None and not tail.of_close else tail

    def _take_end(
        self, chunk: Chunk, tail: Failure | None, ends: bool, items: list[Any], tokens: list[Token]
    ) -> tuple[bool, Failure | None]:
        """Take the end of a chunk, and of its pass if it has that; return whether the end of the pass goes on upwards, and the failure."""
        ended = chunk.ends_pass and tail is None
        if ended:
            ends = self._end(chunk, items, tokens) or ends
        if ends and self._num_outs < self._drop:
            raise _not_again(f"{self._drop} results were delivered behind the last checkpoint, and {self._num_outs} came again")
        if self._failed is not None:
            if self._goes_on and (ends or ended):  # it comes behind the failure, alone
                self._mode = PASS_END if ends else DROP_END
            return False, self._failed._replace(at=len(items))
        if self._holds and (ends or ended):
            self._save(self._before, 0)
        return ends, tail

    def _take_inputs(self, chunk: Chunk, items: list[Any], tokens: list[Token]) -> tuple[bool, Failure | None]:
        """Take the inputs of a chunk one by one; return whether the end of the pass goes on upwards, and the error of a limit."""
        ends = False
        lost = chunk.lost_by_item() if chunk.collected.lost else {}
        self._late = self._late or bool(chunk.collected.late)
        for number, results in enumerate(pieces_by_input(chunk)):
            if self._mode != OPEN:
                break
            self._count(chunk.pass_number)
            if number in lost:
                excess = self._book(lost[number], chunk, number)
                if excess is not None:
                    return ends, excess
            taken = self._partial[1].get(chunk.first + number, ()) if chunk.pass_number == self._partial[0] else ()
            ends = self._take_input(self._after(chunk, number), results, taken, items, tokens) or ends
            if self._failed is not None:
                break
        return ends, None

    def _take_whole(self, chunk: Chunk, items: list[Any]) -> Sequence[Token] | Counted | None:
        """Take all of a chunk at once if it comes out as it went in, which changes no state but counts; return its tokens.

        None, and nothing is done, where the inputs must be looked at one by one.
        """
        result, size = chunk.result, (chunk.all_in_place and chunk.batch_rows_in_place) or 1
        count = chunk.num_items // size
        if result is None or not count or self._changes(chunk) or not self._chain.lets_through(count, chunk.batch_rows_in_place and size):
            return None
        self._chain.mark_passes()
        tokens = self._tokens_of_whole(chunk, count, size)
        pass_number, number = self._input
        self._input = chunk.pass_number, chunk.num_items + (number if pass_number == chunk.pass_number else -1)
        self._before = self._after(chunk, chunk.num_items - 1)
        items.extend(result.items or [None] * count)
        return tokens

    def _changes(self, chunk: Chunk) -> bool:
        """Tell whether the state of this fold runner, or what became of some inputs of a chunk, changes more than counts."""
        if self._mode != OPEN or self._holds or self._skip or (self._partial[1] and chunk.pass_number == self._partial[0]):
            return True
        collected, result = chunk.collected, chunk.result
        return bool(collected.lost or collected.late) or chunk.tail is not None or result is None or result.origins is not None

    def _tokens_of_whole(self, chunk: Chunk, count: int, size: int) -> Sequence[Token] | Counted:
        if chunk.tokens is None and not self._chain.counts:
            first = Token((chunk.pass_number, chunk.first), (), chunk.beyond, loss_counts=self._ledgers.loss_counts)
            return Counted(first if self._transparent else self._with_states(first), size)
        if chunk.tokens is not None and self._transparent and not self._ledgers.loss_counts:
            return chunk.tokens
        tokens = []
        for number in range(size - 1, count * size, size):
            self._chain.count_one()
            after = self._after(chunk, number)
            tokens.append(after if self._transparent else self._with_states(after))
        return tokens

    def _with_states(self, before: Token) -> Token:
        return _with(before, FoldState(0, OPEN, tuple(self._chain.snapshot())))

    def _count(self, pass_number: int) -> None:
        self._input = (pass_number, self._input[1] + 1 if pass_number == self._input[0] else 0)

    def _book(self, lost: list[LostElement], chunk: Chunk, number: int) -> Failure | None:
        """Count what was left out or replaced at an input; return the error when that is too much."""
        source = chunk.token_after(number)
        if not self._holds:
            self._known.clear()
        for loss in lost:
            row = -1 if loss.row < 0 else loss.row - chunk.first_row(loss.item)
            if not loss.fixed:
                self._known.append(KnownLoss(*self._input, loss.how, loss.site, loss.inner, row))
            error = self._ledgers.book(loss, source.loss_counts, source.source[0], source.source[1])
            if error is not None:
                return Failure(number, error, loss.stage, loss.worker)
        return None

    def _after(self, chunk: Chunk, number: int) -> Token:
        token = chunk.token_after(number)
        return token._replace(loss_counts=merged(token.loss_counts, self._ledgers.loss_counts)) if self._ledgers.loss_counts else token

    def _again(self, origin: tuple[int, int]) -> dict[str, Any]:
        """Say what of the inputs from number `origin` on is to be treated as before when they are read again."""
        known = tuple(one._replace(number=_since(origin, one[:2])[1]) for one in self._known if one[:2] >= origin)
        pass_number, number = _since(origin, self._input)
        return {"known": known, "replay": (pass_number, number + 1)}

    def _take_input(self, after: Token, results: list[KeyedElement], taken: Sequence[int], items: list[Any], tokens: list[Token]) -> bool:
        """Fold the results of an input; return whether the end of the pass goes on upwards."""
        skip, self._skip = self._skip, 0
        check_results(skip, len(results))
        for number, piece in enumerate(results):
            if number < skip or number in taken:
                continue
            if self._late and isinstance(piece.value, LateFailure) and piece.value.at_once:
                self._failed = self._failed or piece.value.failure
                break
            mark = (self._before, number, self._chain.lower(), self._input) if self._holds else None
            outs = self._chain.push(piece, mark)
            place = (after, 0) if number == len(results) - 1 else (self._before, number + 1)
            if outs:
                self._emit(outs, items, tokens, *place)
            ends, cut = self._close(items, tokens, *place)
            if cut:
                self._before = after
                return ends
            if self._holds and self._chain.num_entered - self._entered >= self._patience:
                self._save(*place)
        self._before = after
        return False

    def _close(self, items: list[Any], tokens: list[Token], before: Token, skip: int) -> tuple[bool, bool]:
        """End the pass early if nothing more is wanted of it; return (whether its end goes on, whether the rest of the pass is cut)."""
        if self._mode != OPEN:
            return False, False
        outs, how = self._chain.close_early(wanted=not self._dropping)
        if how == "open":
            return False, False
        self._emit(outs, items, tokens, before, skip, PASS_END if how == "end" else DROP_END)
        self._mode = FOLD_END if how == "rest" else DROP_END
        self._dropping = self._dropping and how != "end"
        return how == "end", True

    def _end(self, chunk: Chunk, items: list[Any], tokens: list[Token]) -> bool:
        """Take the end of the pass; return whether it goes on upwards."""
        mode, self._mode = self._mode, OPEN
        goes_on = mode == PASS_END
        if mode in (OPEN, FOLD_END):
            outs, goes_on = self._chain.end()
            self._emit(outs, items, tokens, self._before, 0, PASS_END if goes_on else DROP_END)
        self._dropping = self._dropping and not goes_on
        self._before, self._skip = self._pass_start(chunk), 0
        self._started = False  # a take(0) is full before the next pass begins
        return goes_on

    def _pass_start(self, chunk: Chunk) -> Token:
        """Return the token of the start of the next pass: the source's next pass, and every fold runner below as it is then."""
        if chunk.tokens is None:
            return Token((chunk.pass_number + 1, 0), loss_counts=self._ledgers.loss_counts)
        assert chunk.pass_token is not None
        token = chunk.pass_token
        return token._replace(loss_counts=merged(token.loss_counts, self._ledgers.loss_counts)) if self._ledgers.loss_counts else token

    def _emit(self, outs: Sequence[Any], items: list[Any], tokens: list[Token], before: Token, skip: int, mode: int = OPEN) -> None:
        if not outs or self._failed is not None or self._dropping:
            return
        if self._late and not self._hands_on:
            outs = self._good(outs)
        if self._holds:
            below, record = self._checkpoint
            record = record._replace(**self._again(self._origin))
            for out in outs:
                self._num_outs += 1
                if self._num_outs > self._drop:
                    items.append(out)
                    tokens.append(_with(below, record._replace(drop=self._num_outs)))
            return
        if self._transparent:
            token = before
        else:
            again = self._again(self._input) if skip else {}
            token = _with(before, FoldState(skip, mode, tuple(self._chain.snapshot()), **again))
        items.extend(outs)
        tokens.extend([token] * len(outs))

    def _good(self, outs: Sequence[Any]) -> Sequence[Any]:
        """Return what comes out before the first one with an element that failed; results that were delivered before count as good."""
        first = max(0, self._drop - self._num_outs) if self._holds else 0
        for number in range(first, len(outs)):
            self._failed = failure_in(outs[number])
            if self._failed is not None:
                return outs[:number]
        return outs

    def _save(self, before: Token, skip: int) -> None:
        """Take a checkpoint at this place, unless it cannot be one."""
        chain = self._chain
        if chain.recalling or not chain.settled or self._num_outs < self._drop:
            return
        held = chain.held()
        if held:
            oldest = min(held, key=lambda one: one.number)
            below, skipped, lower, self._origin = oldest.mark
            states = tuple(chain.snapshot(lower, oldest.number))
            self._checkpoint = below, FoldState(skipped, OPEN, states, chain.num_entered - oldest.number)
        else:
            self._checkpoint = before, FoldState(skip, self._mode, tuple(chain.snapshot(first=chain.num_entered)))
            self._origin = self._input if skip else self._next(before)
        self._known = [one for one in self._known if one[:2] >= self._origin]
        self._num_outs = self._drop = 0
        self._entered, self._patience = chain.num_entered, max(_CHECKPOINT_ITEMS, len(held))

    def _next(self, before: Token) -> tuple[int, int]:
        """Return the number of the input behind `before`: the next one, perhaps of the next pass."""
        pass_number, number = self._input
        return (pass_number, number + 1) if before.source[0] == pass_number else (before.source[0], 0)

    def start_of_next_pass(self, chunk: Chunk) -> Token:
        """Return the token that resumes behind the end of a pass that `take` let go on upwards, `chunk` being the last one it took.

        When a full `take` ended it in the middle of `chunk`'s pass, the fold runners below are in the middle of theirs: the token is that
        place, and drops what is left of the pass with its end.
        """
        early = chunk.tokens is not None and not chunk.ends_pass
        below, mode = (self._before, self._mode) if early else (self._pass_start(chunk), OPEN)
        if self._transparent:
            return below
        return _with(below, FoldState(0, mode, tuple(self._chain.snapshot(first=self._chain.num_entered))))


def _since(origin: tuple[int, int], where: Sequence[int]) -> tuple[int, int]:
    """Return the pass of an input, and its number in it as a run counts that begins at `origin`."""
    return where[0], where[1] - (origin[1] if where[0] == origin[0] else 0)


def check_results(num_taken: int, num_results: int) -> None:
    """Refuse an element that gives fewer results than were delivered of it.

    Raises:
        StateMismatch: it does.
    """
    if num_taken > num_results:
        raise _not_again(f"{num_taken} results of one element were delivered, and it gives {num_results} now")


def _not_again(what: str) -> StateMismatch:
    return StateMismatch(
        f"the data or functions are other ones than when the state was saved: {what}",
        where="load_state_dict()",
        fix="resume with the data and functions that the state was saved with",
    )


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
    failure = chunk.progress.failure and chunk.progress.failure._replace(at=chunk.item_of(chunk.progress.failure.at))
    count = chunk.good_items()
    moves = all(isinstance(operator, Moves) for operator in plan.batch_ops)
    as_written = moves and chunk.rows is not None and not chunk.rows.beside
    if chunk.batch_rows_in_place and chunk.rows is not None:
        result = all_written(plan, chunk)
        if result is not None:
            return result._replace(as_written=as_written), None
        chunk.collected.parts, as_written = taken_out(chunk), False
    late = _bad_items(chunk)
    if chunk.rows is None:
        chunk.collected.late.update(late)
        return join(chunk, count), failure
    bad: dict[int, ElementFailed] = {}
    collated = _collates_here(plan, computer, error_handler)
    batches = chunk.rows.finish(count, bad, without=late, collation=_AS_ROWS[collated])
    if bad and not (plan.late_failures and plan.settled_in_batch_ops < -1):
        first = min(bad)
        failure = Failure(first, bad[first].error, bad[first].stage, worker.index)
        batches, bad = batches[:first], {}
    chunk.rows = None
    if plan.folds is None and moves and collated:
        return Result(batches, None, None, as_written), failure
    chunk.collected.late.update(late)
    item = _batch_item(chunk, batches, bad, frozenset(late))._replace(collated=collated)
    result, failed = _through_batch_ops(plan, chunk, item, worker, error_handler, computer)
    return result._replace(as_written=as_written), failed or failure


_AS_ROWS = {True: None, False: Collate(list)}


def _through_batch_ops(
    plan: SegmentPlan, chunk: Chunk, item: BatchItem, worker: WorkerContext, error_handler: ErrorHandler, computer: Computer
) -> tuple[Result, Failure | None]:
    outcome = computer.compute_batches(plan, item, worker, error_handler)
    chunk.take(outcome)
    end, block, failed, origins = outcome[:4]
    del outcome  # the frames of its errors lead to this one
    items = list(block.rows()) if block is not None else []
    return _with_late(chunk, items, list(origins), block, end), failed


def _collates_here(plan: SegmentPlan, computer: Computer, error_handler: ErrorHandler) -> bool:
    """Tell whether batches are made as they are taken out of their rows, and not by a function that runs elsewhere, or twice."""
    runs_here = computer is HERE and not error_handler.policies.verify
    return runs_here or plan.batch is None or not isinstance(plan.batch.collation, Collate)


def _batch_item(chunk: Chunk, batches: list[Any], bad: dict[int, ElementFailed], without: frozenset[int]) -> BatchItem:
    given = chunk.given
    keys = None if given is None else Block(given.epochs, given.indices, given.lanes)
    replayed = chunk.replayed
    return BatchItem(batches, chunk.sizes, keys, chunk.positions.batches, replayed.known_items, replayed.num_items, bad, without)


def _bad_items(chunk: Chunk) -> dict[int, list[tuple[int, tuple[int, int, int], LateFailure]]]:
    """Return the items that have a row without an element, as `late` has them: each with the failure of its first such row."""
    out: dict[int, list[tuple[int, tuple[int, int, int], LateFailure]]] = {}
    for row in sorted(chunk.collected.bad_rows):
        item = chunk.item_of(row)
        if item not in out:
            key = chunk.given.key_of(chunk.first_row(item)) if chunk.given is not None else _key_of_batch(chunk, item)
            out[item] = [(0, key, chunk.collected.bad_rows[row])]
    return out


def _key_of_batch(chunk: Chunk, item: int) -> tuple[int, int, int]:
    epochs, positions = chunk.positions.batches[0]
    return int(epochs[item]), int(positions[item]), 0


def join(chunk: Chunk, count: int) -> Result:
    """Put the parts of a chunk without a batch in order, and leave out what lies behind a failure."""
    items: list[Any] = []
    origins: list[int] = []
    blocks: list[Block] = []
    for begin in sorted(chunk.collected.parts):
        block, part = chunk.collected.parts[begin]
        if begin >= count:
            break
        if len(part) and int(part[-1]) >= count:
            keep = int(np.searchsorted(part, count))
            block, part = block.select(slice(0, keep)), part[:keep]
        items.extend(block.rows())
        origins.extend(part.tolist())
        blocks.append(block)
    chunk.collected.parts = {}
    return _with_late(chunk, items, origins, concatenated(blocks), count)


def _with_late(chunk: Chunk, items: list[Any], origins: list[int], block: Block | None, count: int) -> Result:
    """Make the result of a chunk; elements that failed late stand in their places."""
    late = [(row, one) for row in sorted(chunk.collected.late) if row < count for one in reversed(chunk.collected.late[row])]
    if late:
        keys = [block.key_of(place) for place in range(len(items))] if block is not None else []
        for row, (number, key, failed) in late:  # taken out last, put back first
            place = bisect_right(origins, row) if failed.at_once else bisect_left(origins, row) + number
            items.insert(place, failed)
            origins.insert(place, row)
            keys.insert(place, key)
        epochs, indices, lanes = zip(*keys, strict=True)
        block = Block(np.array(epochs, np.int64), np.array(indices, np.int64), np.array(lanes, np.uint64), rows=items)
    one_to_one = len(items) == count and origins == list(range(count))
    return Result(items, None if one_to_one else origins, block)


# -- rows that were written into batches before the fold had counted them -----------------------------------------------------
#
# The folds behind a segment say which elements stand in which batch. Where elements come one to one and may only be left out, it is
# expected that none will be. Else the rows of the chunk go to the folds one by one, and later chunks are cut where batches begin again.


def all_written(plan: SegmentPlan, chunk: Chunk) -> Result | None:
    """Return the result of a chunk that wrote ahead, all of whose wanted rows are done: its batches, where nothing else is to be done.

    None, and nothing is done, if a row is missing, or if some do not fit each other: that is judged where they are counted.
    """
    if chunk.progress.failure is not None or sum(len(rows) for _, rows in chunk.collected.keys.values()) != chunk.num_rows:
        return None
    batches: list[Any] = []
    assert chunk.rows is not None
    if plan.delivers_directly and not chunk.rows.beside:  # rows beside are let go when their batch is made, and the folds may yet want them
        try:
            batches = chunk.rows.finish(chunk.num_rows // chunk.batch_rows_in_place)
        except ElementFailed:
            return None
    chunk.all_in_place = True
    return Result(batches, None, None)


def taken_out(chunk: Chunk) -> dict[int, tuple[Block, Ints]]:
    """Return the parts of a chunk that wrote ahead with their elements, taken out of the batches again."""
    assert chunk.rows is not None
    elements, chunk.rows, chunk.all_in_place = chunk.rows.elements(), None, False
    written = chunk.collected.keys.items()
    return {begin: (block.with_rows([elements[row] for row in rows]), np.asarray(rows, np.int64)) for begin, (block, rows) in written}
