"""Folds between two segments: the elements that enter with their keys, the fold loop, and the tokens of what comes out. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from penstock._contracts.element import bytes_of
from penstock._engine.chunk import (
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
from penstock._engine.compute import join, taken_out
from penstock._engine.error_policy import LossLedger
from penstock._ops.streams import Gathered, Measured
from penstock._order.chain import BufferedElement, Chain
from penstock._order.folds import Fold
from penstock._order.holding import Group
from penstock.errors import LengthMismatch, PlanError, StateMismatch

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
    chunk.parts = taken_out(chunk)
    chunk.result = join(chunk, chunk.num_items)


def pieces_of(result: Result) -> list[KeyedElement]:
    """Return the elements of a result, each with its key."""
    block = result.block
    if block is None and result.items:
        raise LengthMismatch(
            f"{len(result.items)} elements came to a fold without their keys",
            where="between two segments of the plan (ds.explain() shows them)",
            fix="this is a fault of penstock: please report it, with print(ds) and the options of the feed",
        )
    if block is None:
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

    __slots__ = (
        "_before",
        "_chain",
        "_checkpoint",
        "_drop",
        "_dropping",
        "_entered",
        "_failed",
        "_goes_on",
        "_hands_on",
        "_holds",
        "_input",
        "_known",
        "_late",
        "_ledgers",
        "_mode",
        "_num_outs",
        "_origin",
        "_partial",
        "_patience",
        "_skip",
        "_started",
        "_transparent",
    )

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
        ends = False
        if self._goes_on:
            self._failed = None
        if not self._started or self._dropping:
            self._started = True
            if not self._chain.recalling:
                ends, _ = self._close(items, tokens, self._before, 0)
        excess = None
        counted = None if items else self._take_whole(chunk, items)
        if chunk.result is not None and counted is None:
            goes_on, excess = self._take_inputs(chunk, items, tokens)
            ends = ends or goes_on
        tail = excess or chunk.tail
        if excess is None and self._mode != OPEN and tail is not None and not tail.of_close:
            tail = None  # it stands behind the early end of the pass
        if chunk.ends_pass and tail is None:
            ends = self._end(chunk, items, tokens) or ends
        if ends and self._num_outs < self._drop:
            raise _not_again(f"{self._drop} results were delivered behind the last checkpoint, and {self._num_outs} came again")
        if self._failed is not None:
            ends = self._end_later(ends, ended=chunk.ends_pass and tail is None)
            tail = excess = self._failed._replace(at=len(items))
        cut = self._mode != OPEN or self._dropping
        self._dropping = self._dropping or (tail is not None and self._goes_on)
        if self._holds and (ends or (chunk.ends_pass and tail is None)):
            self._save(self._before, 0)
        whole = counted is not None
        notices, self._chain.notices = self._chain.notices, []
        return Sequenced(
            items, tokens if counted is None else counted, ends, tail, cut, self._chain.empty_pass, excess, whole, self._late, notices
        )

    def _take_inputs(self, chunk: Chunk, items: list[Any], tokens: list[Token]) -> tuple[bool, Failure | None]:
        """Take the inputs of a chunk one by one; return whether the end of the pass goes on upwards, and the error of a limit."""
        ends = False
        lost = chunk.lost_by_item() if chunk.lost else {}
        self._late = self._late or bool(chunk.late)
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

    def _end_later(self, ends: bool, *, ended: bool) -> bool:
        """Let the end of a pass come behind a failure, alone, where one was folded or goes on; it does not go on now: return False."""
        if self._goes_on and (ends or ended):
            self._mode = PASS_END if ends else DROP_END
        return False

    def _take_whole(self, chunk: Chunk, items: list[Any]) -> Sequence[Token] | Counted | None:
        """Take all of a chunk at once if it comes out as it went in, which changes no state but counts; return its tokens.

        None, and nothing is done, where the inputs must be looked at one by one.
        """
        result, size = chunk.result, chunk.batch_rows_in_place if chunk.all_in_place and chunk.batch_rows_in_place else 1
        if result is None or result.origins is not None or chunk.lost or chunk.late or chunk.tail is not None or not chunk.num_items:
            return None
        partial = chunk.pass_number == self._partial[0] and self._partial[1]
        count = chunk.num_items // size
        if (
            self._mode != OPEN
            or self._holds
            or self._skip
            or partial
            or not self._chain.lets_through(count, chunk.batch_rows_in_place and size)
        ):
            return None
        self._chain.mark_passes()
        tokens = self._tokens_of_whole(chunk, count, size)
        pass_number, number = self._input
        self._input = chunk.pass_number, chunk.num_items + (number if pass_number == chunk.pass_number else -1)
        self._before = self._after(chunk, chunk.num_items - 1)
        items.extend(result.items or [None] * count)
        return tokens

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
