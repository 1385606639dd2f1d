"""Folds in the order in which items are finished, and that order recorded and replayed. Pure."""

from __future__ import annotations

import json
import os
from bisect import insort
from collections.abc import Iterable, Sequence
from typing import Any, overload

from penstock._engine.chunk import Chunk, CompletedRuns, Failure, FoldState, KeyedElement, LostElement, StreamState, Token
from penstock._engine.error_policy import LossLedger
from penstock._engine.folding import (
    OPEN,
    PASS_END,
    Failing,
    FoldRunner,
    Sequenced,
    check_results,
    helds_in,
    pieces_by_input,
    pieces_of,
    unwrapped,
)
from penstock._engine.program import Program
from penstock._order.chain import BufferedElement, Chain, passes_above
from penstock._order.folds import BatchFold, Fold, RepeatFold, ResampleFold
from penstock._order.holding import ConcatenateFold, WindowFold
from penstock._order.runs import ENDLESS, Recording, Run, Runs, kept
from penstock.errors import StateDamaged, StateMismatch

__all__ = ["Completion", "Recorder", "fold_runners_of", "read_recording", "records_of", "refused"]


def refused(folds: Sequence[Fold]) -> Fold | None:
    """Return the first fold that needs its items in order, or that would keep items of two passes; None when all are fine."""
    later = False
    for fold in reversed(folds):
        holds = isinstance(fold, BatchFold) or hasattr(fold, "held")
        if not (holds or isinstance(fold, (RepeatFold, ResampleFold))) or isinstance(fold, (ConcatenateFold, WindowFold)):
            return fold
        if isinstance(fold, RepeatFold) and later:
            return fold
        later = later or holds
    return None


class Completion:
    """Takes the chunks of the first segment in any order inside a pass, and the end of a pass behind all others.

    The token names what was delivered: all before the watermark, runs beyond it, and single results of inputs that had several. What
    a fold holds counts as not delivered: a resume computes it again, and it may then come in other company.
    """

    def __init__(
        self,
        folds: Sequence[Fold],
        before: Token,
        saved: FoldState | None,
        *,
        transparent: bool = False,
        ledger: LossLedger | None = None,
        first_pass: int = 0,
    ) -> None:
        """Start behind `before`; of `saved`, the states of folds that count are taken up."""
        self._ledgers = ledger or LossLedger()
        self._num_read = before.source[1] + sum(end - begin for begin, end in before.done.runs)
        self._folds = tuple(folds)
        self._chain = Chain(folds, None if saved is None else saved.states, first_pass=first_pass)
        self._transparent = transparent
        self._notes = [] if before.note is None else [before.note]
        self._pass, position = before.source
        self._done = Runs([(0, position), *before.done.runs])
        self._partial: dict[int, frozenset[int] | range] = {
            place: frozenset(results) for place, results in before.done.partial if place not in self._done
        }
        if saved is not None and saved.skip:  # of the input that an ordered run reads next: what is done already lies before it
            position, _ = self._done.gap(position, ENDLESS)
            taken, some = range(saved.skip), frozenset(self._partial.get(position, ()))
            self._partial[position] = some.union(taken) if max(some, default=0) >= saved.skip else taken
        self._mode = OPEN if saved is None else saved.mode

    def take(self, chunk: Chunk) -> Sequenced:
        """Take one finished chunk."""
        items: list[Any] = []
        tokens: list[Token] = []
        try:
            return self._take(chunk, items, tokens)
        except StateMismatch as error:  # an element gives fewer results than were delivered of it
            return Sequenced(items, tokens, False, Failure(len(items), error, "resume", 0), False, False)

    def _take(self, chunk: Chunk, items: list[Any], tokens: list[Token]) -> Sequenced:
        if chunk.pass_number != self._pass:
            self._pass, self._done, self._partial, self._num_read = chunk.pass_number, Runs(), {}, 0
        if chunk.tokens and chunk.tokens[0].note is not None:  # one note for all of a chunk
            insort(self._notes, chunk.tokens[0].note, key=_place_of)
        if self._mode != OPEN:
            return self._drop(chunk)
        excess = whole = None
        if self._is_plain(chunk):
            whole = self._take_whole(chunk, items)
        elif chunk.result is not None:
            lost = chunk.lost_by_item() if chunk.collected.lost else {}
            for number, results in enumerate(pieces_by_input(chunk)):
                self._num_read += 1
                excess = self._book(lost[number], number) if number in lost else None
                if excess is not None:
                    break
                self._take_input(chunk.first + number, results, items, tokens)
        ends = False
        tail = excess or chunk.tail
        if chunk.ends_pass and tail is None:
            states = self._states()
            outs, ends = self._chain.end()
            self._emit(outs, items, tokens, states, None)
        return Sequenced(items, tokens if whole is None else whole, ends, tail, False, self._chain.empty_pass, excess)

    def waiting(self) -> list[Any]:
        """List what the folds hold."""
        return self._chain.waiting()

    def _is_plain(self, chunk: Chunk) -> bool:
        """Tell whether the chunk's elements go through as they are: nothing folds them, and each input gave at most one."""
        if self._folds or chunk.result is None or chunk.collected.lost or self._notes or self._partial:
            return False
        origins = chunk.result.origins
        return origins is None or len(set(origins)) == len(origins)

    def _take_whole(self, chunk: Chunk, items: list[Any]) -> Tokens:
        result = chunk.result
        assert result is not None
        count = len(result.items) if result.origins is None else chunk.good_count()
        items.extend(unwrapped(piece) for piece in pieces_of(result))
        ends = range(chunk.first + 1, chunk.first + count + 1) if result.origins is None else [chunk.first + o + 1 for o in result.origins]
        tokens = Tokens(self._token((self._pass, 0), CompletedRuns(), []), self._done.without(()), chunk.first, ends)
        self._done.add(chunk.first, chunk.first + count)
        self._num_read += count
        return tokens

    def _book(self, lost: list[LostElement], number: int) -> Failure | None:
        """Count what was left out or replaced; return the error when that is too much."""
        for loss in lost:
            error = self._ledgers.book(loss, (), self._pass, self._num_read)
            if error is not None:
                return Failure(number, error, loss.stage, loss.worker)
        return None

    def _drop(self, chunk: Chunk) -> Sequenced:
        """Ignore what is left of a pass that was over where an ordered run was saved."""
        ends = chunk.ends_pass and self._mode == PASS_END
        if chunk.ends_pass:
            self._mode = OPEN
        return Sequenced([], [], ends, chunk.tail, not chunk.ends_pass, False)

    def start_of_next_pass(self, chunk: Chunk) -> Token:
        """Return the token that resumes at the start of the pass after `chunk`'s."""
        return self._token((chunk.pass_number + 1, 0), CompletedRuns(), self._states())

    def _take_input(self, position: int, results: list[KeyedElement], items: list[Any], tokens: list[Token]) -> None:
        before = self._partial.pop(position, frozenset())
        if isinstance(before, range):
            check_results(len(before), len(results))
        left = [number for number in range(len(results)) if number not in before]
        for number in left:
            if number == left[-1]:
                self._done.add(position, position + 1)
            outs = self._chain.push(results[number], (position, number, len(results)))
            if outs:
                open_input = None if number == left[-1] else (position, frozenset((*before, *(one for one in left if one <= number))))
                self._emit(outs, items, tokens, self._states(), open_input)
        if not left:
            self._done.add(position, position + 1)

    def _emit(
        self,
        outs: Sequence[Any],
        items: list[Any],
        tokens: list[Token],
        states: list[Any],
        open_input: tuple[int, frozenset[int]] | None,
    ) -> None:
        """Add what came out. Its token leaves out what the folds still hold and what comes out behind it."""
        inside = self._chain.waiting()
        for number, out in enumerate(outs):
            waiting = [held for one in (*inside, *outs[number + 1 :]) for held in helds_in(one)]
            items.append(unwrapped(out))
            tokens.append(self._token(*self._place(waiting, open_input), states))

    def _place(
        self, waiting: Iterable[BufferedElement], open_input: tuple[int, frozenset[int]] | None
    ) -> tuple[tuple[int, int], CompletedRuns]:
        taken: dict[int, set[int]] = {}
        if open_input is not None:
            taken[open_input[0]] = set(open_input[1])
        for held in waiting:
            position, number, total = held.mark
            taken.setdefault(position, set(range(total))).discard(number)
        watermark, runs = _split(self._done.without(taken))
        partial = {**self._partial, **taken}
        in_order = ((position, partial[position]) for position in sorted(partial))
        some = tuple((position, one if isinstance(one, range) else tuple(sorted(one))) for position, one in in_order if one)
        return (self._pass, watermark), CompletedRuns(runs, some)

    def _states(self) -> list[Any]:
        """Return the states of the folds: those that hold items start empty, the others go on."""
        now = self._chain.snapshot(first=self._chain.num_entered)
        fresh = Chain(self._folds).snapshot()
        return [
            new if isinstance(fold, BatchFold) or hasattr(fold, "held") else state
            for fold, state, new in zip(self._folds, now, fresh, strict=True)
        ]

    def _token(self, source: tuple[int, int], done: CompletedRuns, states: list[Any]) -> Token:
        records = () if self._transparent else (FoldState(0, OPEN, tuple(states)),)
        return Token(source, records, done, self._note_before(source), loss_counts=self._ledgers.loss_counts)

    def _note_before(self, source: tuple[int, int]) -> StreamState | None:
        """Return what a stream last said of its place at or before the watermark, which never goes back: earlier notes are dropped."""
        notes = self._notes
        while len(notes) > 1 and _place_of(notes[1]) <= source:
            del notes[0]
        return notes[0] if notes and _place_of(notes[0]) <= source else None


class Tokens(Sequence[Token]):
    """The tokens of elements that went on one after the other, each made when it is asked for."""

    __slots__ = ("_before", "_ends", "_first", "_form")

    def __init__(self, form: Token, before: tuple[Run, ...], first: int, ends: Sequence[int]) -> None:
        """Prepare.

        Args:
            form: a token of the right pass, with everything but the place.
            before: what was done before, as runs.
            first: the first position.
            ends: for each element, the position behind it.
        """
        self._form, self._before, self._first, self._ends = form, before, first, ends

    def __len__(self) -> int:
        """Return how many elements there are."""
        return len(self._ends)

    @overload
    def __getitem__(self, number: int) -> Token: ...
    @overload
    def __getitem__(self, number: slice) -> list[Token]: ...
    def __getitem__(self, number: int | slice) -> Token | list[Token]:
        """Return the token behind an element."""
        if isinstance(number, slice):
            return [self[one] for one in range(*number.indices(len(self)))]
        done = Runs(self._before)
        done.add(self._first, self._ends[number])
        source, rest = _split(done.without(()))
        return self._form._replace(source=(self._form.source[0], source), done=CompletedRuns(rest))


def _split(runs: tuple[Run, ...]) -> tuple[int, tuple[Run, ...]]:
    """Return the watermark and the runs beyond it."""
    watermark = runs[0][1] if runs and runs[0][0] == 0 else 0
    return watermark, runs[1:] if watermark else runs


def _place_of(note: StreamState) -> tuple[int, int]:
    return note.pass_number, note.position


def records_of(program: Program, start: Token) -> list[FoldState | None]:
    """Return what the fold runner of each segment had saved, None where nothing was or is."""
    saved = iter(start.fold_runners)
    return [None if segment.folds is None or segment.transparent else next(saved, None) for segment in program.segments]


def fold_runners_of(program: Program, start: Token, ledger: Sequence[LossLedger], *, ordered: bool) -> list[FoldRunner | Completion | None]:
    """Make the fold runner of each segment that has folds; the first one takes what is finished if elements are not `ordered`."""
    out: list[FoldRunner | Completion | None] = []
    below = start._replace(fold_runners=())
    first_pass = program.first_pass
    for number, (segment, record) in enumerate(zip(program.segments, records_of(program, start), strict=True)):
        if segment.folds is None:
            out.append(None)
            continue
        shared: dict[str, Any] = {"transparent": segment.transparent, "ledger": ledger[number], "first_pass": first_pass}
        if ordered or out:
            failing = Failing(segment.hands_failures_on, program.may_cut)
            out.append(FoldRunner(segment.folds, below, record, behind_another=bool(out), failing=failing, **shared))
        else:
            out.append(Completion(segment.folds, below, record, **shared))
        if not segment.transparent:
            record = record or FoldState(0, OPEN, tuple(Chain(segment.folds, first_pass=first_pass).snapshot()))
            below = below._replace(fold_runners=(*below.fold_runners, record))
        for fold in segment.folds:
            first_pass = passes_above(fold, first_pass)
    return out


_FORMAT = 1
_TAIL_BYTES = 4096


Resumed = tuple[int, tuple[Run, ...]]
"""A pass, and the positions of it that were delivered; those of earlier passes all were."""


class Recorder:
    """Writes a recording. Each call of `write` is one write to the file, so that a killed run leaves at most its last line cut."""

    __slots__ = ("_file",)

    def __init__(self, path: str | os.PathLike[str], plan: list[str], *, resumed: Resumed | None) -> None:
        """Open the file: a new one, or that of the run which is resumed.

        Raises:
            OSError: as the system says it.
            StateMismatch: the file to go on in is of another plan.
            StateDamaged: the file to go on in is no recording.
        """
        new = resumed is None or not os.path.exists(path) or os.path.getsize(path) == 0
        if not new:
            _whole_lines(path, plan, "record")
        self._file = open(path, "wb" if new else "r+b")  # noqa: SIM115 - closed by `close`
        if new:
            self._line({"penstock_order": _FORMAT, "plan": plan})
        else:
            self._go_behind_the_last_line()
        if resumed is not None:
            self._line({"resumed": [resumed[0], [list(run) for run in resumed[1]]]})
        self._file.flush()

    def _line(self, value: dict[str, Any]) -> None:
        self._file.write(json.dumps(value).encode() + b"\n")

    def _go_behind_the_last_line(self) -> None:
        """Cut off what a kill left of a line."""
        end = self._file.seek(0, os.SEEK_END)
        rest = b""
        while b"\n" not in rest:  # the head is a whole line
            begin = max(0, end - _TAIL_BYTES)
            self._file.seek(begin)
            rest, end = self._file.read(end - begin), begin
        self._file.seek(end + rest.rfind(b"\n") + 1)
        self._file.truncate()

    def write(self, runs: Iterable[tuple[int, int, int]]) -> None:
        """Add runs."""
        text = "".join(f"[{number}, {begin}, {end}]\n" for number, begin, end in runs)
        if text:
            self._file.write(text.encode())
            self._file.flush()

    def close(self) -> None:
        """Close the file. A second call does nothing."""
        self._file.close()


def read_recording(path: str | os.PathLike[str], plan: list[str]) -> Recording:
    """Read the order of an earlier run of the same plan. A last line that is cut, by a kill, counts as not written.

    Raises:
        OSError: as the system says it.
        StateMismatch: it is of another plan.
        StateDamaged: a line is none that `Recorder` writes.
    """
    runs: list[tuple[int, int, int]] = []
    for number, line in enumerate(_whole_lines(path, plan, "replay"), 2):
        value = _parsed(line, path, number)
        if isinstance(value, dict):
            pass_number, done = _resumed(value, line, path, number)
            runs = kept(runs, pass_number, done)
        elif _is_numbers(value, 3):
            runs.append((value[0], value[1], value[2]))
        else:
            raise _damaged(line, path, number)
    return Recording(runs)


def _whole_lines(path: str | os.PathLike[str], plan: list[str], option: str) -> list[str]:
    """Return the lines behind the head, which is checked; what follows the last line end is left out."""
    with open(path, encoding="utf-8", errors="replace") as file:
        lines = file.read().split("\n")[:-1]
    try:
        head = json.loads(lines[0]) if lines else None
    except ValueError:
        head = None
    if not isinstance(head, dict) or head.get("penstock_order") != _FORMAT:
        raise StateDamaged(
            f"{os.fspath(path)!r} is no recording of an order", where=f"line 1 of {os.fspath(path)!r}", fix="give a file that record= wrote"
        )
    if head.get("plan") != plan:
        raise StateMismatch(
            f"the recording is of another plan: {_difference(head.get('plan'), plan)}",
            where=f"{option}={os.fspath(path)!r}",
            fix="replay with the pipeline that was recorded" if option == "replay" else "give another file, or take this one away",
        )
    return lines[1:]


def _resumed(value: dict[str, Any], line: str, path: Any, number: int) -> Resumed:
    mark = value.get("resumed")
    if not (isinstance(mark, list) and len(mark) == 2 and _is_numbers(mark[:1], 1) and isinstance(mark[1], list)):
        raise _damaged(line, path, number)
    if not all(_is_numbers(run, 2) for run in mark[1]):
        raise _damaged(line, path, number)
    return mark[0], tuple((run[0], run[1]) for run in mark[1])


def _parsed(line: str, path: Any, number: int) -> Any:
    try:
        return json.loads(line)
    except ValueError as error:
        raise _damaged(line, path, number) from error


def _is_numbers(value: Any, count: int) -> bool:
    return isinstance(value, list) and len(value) == count and all(type(one) is int and one >= 0 for one in value)


def _damaged(line: str, path: Any, number: int) -> StateDamaged:
    return StateDamaged(
        f"line {number} is {line[:60]!r}, not [pass, begin, end]",
        where=f"line {number} of {os.fspath(path)!r}",
        fix="use another recording; this one was changed",
    )


def _difference(was: Any, now: list[str]) -> str:
    lines = was if isinstance(was, list) else []
    for before, here in zip(lines, now, strict=False):
        if before != here:
            return f"it has {str(before).strip()!r} where this one has {here.strip()!r}"
    return f"it has {len(lines)} operators, this one {len(now)}"
