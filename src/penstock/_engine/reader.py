"""Reads a stream source, in one thread at a time."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from penstock._contracts.source import StreamSource
from penstock._engine.tune import BlockSize
from penstock._engine.unit import Failure, Token, Unit
from penstock._ops.block import Block, ElementFailed
from penstock.errors import LengthMismatch

__all__ = ["Reader"]

_SLICE_NS = 2_000_000  # a slow generator hands over what it has after this time


class Reader:
    """The passes of a generator, cut into units. `read` is called by one thread at a time; the flags are the engine's."""

    def __init__(self, source: StreamSource, start: tuple[int, int], num_passes: float) -> None:
        """Start at position start[1] of pass start[0]; elements before it are read and dropped."""
        self.busy = False
        self.done = False
        self._source = source
        self._pass_number, self._skip = start
        self._position = 0
        self._num_passes = num_passes
        self._iterator: Iterator[Any] | None = None
        self._cut_pass = -1
        self._unclosed: BaseException | None = None
        self._blocks = BlockSize()
        self._rows: list[Any] = []  # of the running `read`, for who looks at it from outside

    @property
    def pass_number(self) -> int:
        """The pass that is being read."""
        return self._pass_number

    @property
    def num_read(self) -> int:
        """How many elements of the pass were read, or dropped on the way to a resumed place. From any thread."""
        return self._position + len(self._rows)

    def describe(self, index: int) -> str:
        """Say where an element comes from."""
        return self._source.describe(index)

    def block_size(self) -> int:
        """Return how many elements to read at once."""
        return self._blocks.rows(1 << 40, 1)

    def observe(self, num_rows: int, wall_ns: int) -> None:
        """Learn what reading costs."""
        if num_rows:
            self._blocks.observe(num_rows, wall_ns)

    def cut(self, pass_number: int) -> None:
        """Ask for the end of a pass: what is left of it is not wanted. From any thread."""
        self._cut_pass = max(self._cut_pass, pass_number)

    def read(self, count: int) -> tuple[Unit, Failure | None]:
        """Read up to `count` elements of the current pass; a failure's `at` is the position of the element that failed."""
        rows: list[Any] = []
        self._rows = rows
        pass_number = self._pass_number
        failure, ended = None, False
        try:
            ended = self._fill(rows, count)
        except ElementFailed as failed:
            failure = Failure(failed.offset, failed.error, failed.stage, 0)
            self.done = True
        first, self._position, self._rows = self._position, self._position + len(rows), []
        if ended:
            try:
                self._next_pass()
            except ElementFailed as failed:
                failure = Failure(failed.offset, failed.error, failed.stage, 0)
                self.done = True
        return self._unit(pass_number, first, rows, ended), failure

    def close(self) -> None:
        """End the generator: its `finally` blocks run. Raises what they raise, also when that was in an earlier `read`."""
        iterator, self._iterator = self._iterator, None
        close = getattr(iterator, "close", None)
        if close is not None:
            try:
                close()
            except BaseException as error:
                error.add_note(f"penstock: stage 'read', while closing {self._source.label()}")
                raise
        left, self._unclosed = self._unclosed, None
        if left is not None:
            raise left

    def _fill(self, rows: list[Any], count: int) -> bool:
        """Read into `rows` until there are `count`, or for a while; return whether the pass is at its end."""
        deadline_ns, declared = time.perf_counter_ns() + _SLICE_NS, self._source.declared_length()
        try:
            iterator = self._begin()
            while len(rows) < count:
                if self._cut_pass >= self._pass_number:
                    return True
                try:
                    rows.append(next(iterator))
                except StopIteration:
                    self._check_length(self._position + len(rows))
                    return True
                if declared is not None and self._position + len(rows) > declared:
                    rows.pop()
                    raise self._mismatch(declared, f"more than {declared}")
                if time.perf_counter_ns() > deadline_ns:
                    break
        except BaseException as error:
            raise ElementFailed(self._position + len(rows), "read", error) from error
        return False

    def _begin(self) -> Iterator[Any]:
        if self._iterator is None:
            self._iterator = iter(self._source.open())
            self._position = 0
            while self._position < self._skip and self._cut_pass < self._pass_number:
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

    def _next_pass(self) -> None:
        try:
            self.close()
        except BaseException as error:  # the `finally` of a generator that was cut short
            self._unclosed = error  # what was wanted of the pass may all be delivered: then the end of the feed raises it
            raise ElementFailed(self._position, "read", error) from error
        self._pass_number += 1
        self._position = 0
        self.done = self._pass_number >= self._num_passes

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

    def _unit(self, pass_number: int, first: int, rows: list[Any], ended: bool) -> Unit:
        count = len(rows)
        positions = np.arange(first, first + count, dtype=np.int64)
        block = Block(np.full(count, pass_number, np.int64), positions, np.zeros(count, np.uint64), rows=rows)
        unit = Unit(
            seq=-1,
            pass_number=pass_number,
            first=first,
            sizes=None,
            num_items=count,
            num_rows=count,
            given=block,
            tokens=[Token((pass_number, first + number + 1)) for number in range(count)],
            ends_pass=ended,
        )
        unit.pass_token = Token((pass_number + 1, 0))
        return unit
