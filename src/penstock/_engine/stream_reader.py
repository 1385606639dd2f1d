"""Reads a stream source, in one thread at a time."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from penstock._contracts.element import WEIGHTLESS, bytes_of
from penstock._contracts.source import IndependentPasses, StatefulStream, StreamSource
from penstock._engine.chunk import Chunk, Counted, Failure, StreamState, Token
from penstock._engine.tuning import BlockSize, followed
from penstock._ops.block import UNLIMITED, Block, ElementFailed
from penstock._order.arithmetic import INFINITE
from penstock._order.runs import Runs
from penstock._system.failing import add_note
from penstock.errors import LengthMismatch, StateUnavailable

_END = object()
_SLICE_NS = 2_000_000  # a slow generator hands over what it has after this time


class Reader:
    """The passes of a generator, cut into chunks. `read` is called by one thread at a time.

    Attributes:
        busy, num_blocks, blocks: the engine's: whether a read is claimed, how many there were, and how large they should be.
        pass_number: of the pass that is read.
        row_bytes: of an element; estimated.
    """

    def __init__(self, source: StreamSource, start: Token, num_passes: float) -> None:
        """Start at position start.source[1] of pass start.source[0].

        Elements before it and those that were delivered beyond it are read and dropped; those before start.note are not read.
        """
        self.busy = False
        self._source = source
        self._stateful = source if isinstance(source, StatefulStream) else None
        self._note = self._resume_at = start.note
        self.pass_number, self._skip = start.source
        self._done = Runs(start.done.runs)
        self._again = start.done.taken
        self._position = 0
        self._num_passes = num_passes
        self._iterator: Iterator[Any] | None = None
        self._cut_pass = -1
        self._failed = False
        self._unclosed: BaseException | None = None
        self.blocks = BlockSize()
        self.row_bytes = 0.0
        self.num_blocks = 0
        self._room_left = UNLIMITED
        self._rows: list[Any] = []  # of the running `read`, for who looks at it from outside

    @property
    def num_read(self) -> int:
        """How many elements of the pass were read, or dropped on the way to a resumed place. From any thread."""
        return self._position + len(self._rows)

    @property
    def done(self) -> bool:
        """Whether nothing more is read: behind the last pass, or behind a failure."""
        return self._failed or self._unclosed is not None or self.pass_number >= self._num_passes

    def describe(self, index: int) -> str:
        """Say where an element comes from."""
        return self._source.describe(index)

    def cut(self, pass_number: int) -> None:
        """Ask for the end of a pass: what is left of it is not wanted. From any thread."""
        self._cut_pass = max(self._cut_pass, pass_number)
        if self._failed and pass_number >= self.pass_number:  # it failed behind what anybody wanted of the pass
            self._failed = False

    def read(self, count: int, room: int = UNLIMITED) -> tuple[Chunk, Failure | None]:
        """Read up to `count` elements of the current pass, or those up to the one with which they hold more than `room` bytes.

        A failure's `at` is the position of the element that failed.
        """
        self._room_left = room
        if self._again and any(number == self.pass_number and self._position < end for number, _, end in self._again):
            count = 1  # a chunk that goes on in a saved order has no element with another place in it
        rows: list[Any] = []
        self._rows = rows
        pass_number = self.pass_number
        failure, ended = None, False
        try:
            ended = self._fill(rows, count)
        except ElementFailed as failed:
            failure = Failure(failed.offset, failed.error, failed.stage, 0)
            self._failed = True
        first, self._position = self._position, self._position + len(rows)
        self._rows = []
        if ended:
            try:
                self._next_pass()
            except ElementFailed as failed:
                failure = Failure(failed.offset, failed.error, failed.stage, 0, of_close=True)
        chunk = self._chunk(pass_number, first, rows, ended)
        chunk.given_bytes = room - self._room_left
        self.row_bytes = followed(self.row_bytes, chunk.given_bytes / max(1, len(rows)))
        return chunk, failure

    def close(self) -> None:
        """End the generator: its `finally` blocks run. Raises what they raise, also when that was in an earlier `read`."""
        iterator, self._iterator = self._iterator, None
        close = getattr(iterator, "close", None)
        if close is not None:
            try:
                close()
            except BaseException as error:
                add_note(error, f"penstock: stage 'read', while closing {self._source.label()}")
                raise
        left, self._unclosed = self._unclosed, None
        if left is not None:
            raise left

    def _fill(self, rows: list[Any], count: int) -> bool:
        """Read into `rows` until there are `count`, or for a while; return whether the pass is at its end."""
        deadline_ns, most = time.perf_counter_ns() + _SLICE_NS, self._most_elements()
        try:
            if self._is_cut():  # not opened again: a pass that failed to open is cut too
                return True
            iterator, room = self._begin(), self._room_left
            while len(rows) < count and room >= 0:
                if self._is_cut():
                    return True
                delivered = self._position + len(rows) in self._done  # by an earlier run, in completion order
                if delivered and rows:
                    break  # a chunk has no gaps
                row = next(iterator, _END)
                if row is _END:
                    self._check_length(self._position + len(rows))
                    return True
                if self._position + len(rows) >= most:
                    raise self._mismatch(int(most), f"more than {int(most)}")
                if delivered:
                    self._position += 1
                else:
                    rows.append(row)
                    if type(row) not in WEIGHTLESS:
                        room = self._room_left = room - bytes_of(row)
                if len(rows) == 1 and self._stateful is not None:
                    self._note = self._noted(self._stateful)
                if time.perf_counter_ns() > deadline_ns:
                    break
        except BaseException as error:
            raise ElementFailed(self._position + len(rows), "read", error) from error
        return False

    def _most_elements(self) -> float:
        declared = self._source.declared_length()
        return INFINITE if declared is None else declared

    def _is_cut(self) -> bool:
        """Tell whether the rest of this pass is not wanted; the note then says so too."""
        if self._cut_pass < self.pass_number:
            return False
        if self._note is not None and self._note.pass_number == self.pass_number:
            self._note = self._note._replace(cut=True)
        return True

    def _begin(self) -> Iterator[Any]:
        if self._iterator is None:
            self._open()
            assert self._iterator is not None
            while self._position < self._skip and self._cut_pass < self.pass_number:
                try:
                    next(self._iterator)
                except StopIteration:
                    raise LengthMismatch(
                        f"the generator ended after {self._position} elements, but the state was saved behind {self._skip}",
                        where=self._source.label(),
                        fix="resume with the data that the state was saved with",
                    ) from None
                self._position += 1
            self._skip = 0
        return self._iterator

    def _open(self) -> None:
        """Open the current pass, after a resume behind the last note."""
        note, self._resume_at = self._resume_at, None
        self._position = 0
        if note is None or self._stateful is None:
            self._iterator = iter(self._source.open(self.pass_number))
            return
        if note.pass_number != self.pass_number and isinstance(self._stateful, IndependentPasses):
            self._iterator = iter(self._stateful.open_next(self.pass_number, note.state))
            return
        self._iterator = iter(self._stateful.open_at(note.pass_number, note.state))
        if note.pass_number == self.pass_number:
            self._position = note.position
            return
        for _ in self._iterator:  # how the next pass begins may depend on the end of this one, or on its beginning if it was cut
            if note.cut:
                break
        self.close()
        self._iterator = iter(self._source.open(self.pass_number))

    def _noted(self, stream: StatefulStream) -> StreamState:
        """Note where the stream is, behind the first element of a chunk: once per block, for it may cost as much as reading an element."""
        place = self.pass_number, self._position + 1
        try:
            return StreamState(*place, stream.state())
        except StateUnavailable as missing:
            return StreamState(*place, None, missing=missing)

    def _next_pass(self) -> None:
        try:
            self.close()
        except BaseException as error:  # the `finally` of a generator that was cut short
            self._unclosed = error  # what was wanted of the pass may all be delivered: then the end of the feed raises it
            raise ElementFailed(self._position, "read", error) from error
        self.pass_number += 1
        self._position, self._done = 0, Runs()

    def _check_length(self, count: int) -> None:
        declared = self._source.declared_length()
        if declared is not None and declared != count:
            raise self._mismatch(declared, str(count))

    def _mismatch(self, declared: int, found: str) -> LengthMismatch:
        return LengthMismatch(
            f"the generator declared {declared} elements and gave {found}",
            where=self._source.label(),
            fix="correct length=, or leave it out",
        )

    def _chunk(self, pass_number: int, first: int, rows: list[Any], ended: bool) -> Chunk:
        count = len(rows)
        positions = np.arange(first, first + count, dtype=np.int64)
        block = Block(np.full(count, pass_number, np.int64), positions, np.zeros(count, np.uint64), rows=rows)
        return Chunk(
            seq=-1,
            pass_number=pass_number,
            first=first,
            sizes=None,
            num_rows=count,
            given=block,
            tokens=Counted(Token((pass_number, first), note=self._note), count),
            ends_pass=ended,
            pass_token=Token((pass_number + 1, 0), note=self._note) if ended else None,
        )
