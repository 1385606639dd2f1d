"""One segment's decisions: which unit opens, which rows are claimed, which units are committed. Pure; the engine's mutex guards it."""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np

from penstock._engine.program import SegmentPlan
from penstock._engine.tune import BlockSize, UnitSize
from penstock._engine.unit import Levels, Task, Token, Unit
from penstock._ops.block import Block
from penstock._ops.operator import ChainOp
from penstock._ops.stack import BatchSpec
from penstock._order.arithmetic import batch_rows

__all__ = ["Segment", "given_unit"]


class Segment:
    """Units between their opening and their commit, in order.

    Attributes:
        plan: what it runs.
        inbox: units that the sequencer before has made, waiting to be opened.
        queues: blocks waiting for each stage after the first.
        opened, committed: how many units.
        guess: the spec of the last finished batch.
        most_rows: of a unit without a batch, for the byte budget.
        most_awaited: calls that may be in flight in the widest of its async stages, or 0.
        failed_seq: the lowest unit that failed, or None; nothing behind it is claimed.
    """

    __slots__ = (
        "_current",
        "_next_item",
        "_num_passes",
        "_num_rows",
        "_pass_number",
        "_positions",
        "blocks",
        "committed",
        "cut_pass",
        "exhausted",
        "failed_seq",
        "finished",
        "guess",
        "inbox",
        "most_awaited",
        "most_rows",
        "number",
        "opened",
        "plan",
        "queues",
        "reading",
        "units",
    )

    def __init__(self, number: int, plan: SegmentPlan, num_passes: float, source: tuple[int, int]) -> None:
        """Start at position `source[1]` of pass `source[0]`; a leaf has `num_passes` passes in all."""
        self.number = number
        self.plan = plan
        self.inbox: deque[Unit] = deque()
        self.queues: list[deque[Task]] = [deque() for _ in plan.stages]
        self.most_awaited = max((stage.concurrency or 0 for stage in plan.stages if stage.awaited), default=0)
        # Rows of one block are ready together: no more of them than are awaited together.
        self.blocks = [BlockSize(self.most_awaited) if self.most_awaited else BlockSize() for _ in plan.stages]
        self.units = UnitSize()
        self.opened = 0
        self.committed = 0
        self.finished: dict[int, Unit] = {}
        self.guess: BatchSpec | None = None
        self.failed_seq: int | None = None
        self.exhausted = False
        self.most_rows = 1 << 40
        self.reading = False
        self.cut_pass = -1
        self._num_passes = num_passes
        self._pass_number, self._next_item = source
        self._num_rows = 0
        self._current: Unit | None = None
        self._positions = ChainOp(plan.leaf, tuple(op for stage in plan.stages for op in stage.operators)) if plan.leaf else None

    # -- opening ------------------------------------------------------------------------------------------------------------------

    def can_open(self) -> bool:
        """Tell whether there is a next unit at all (the engine decides whether there is room for it)."""
        if self.failed_seq is not None:
            return False
        if self.plan.leaf is None:
            return bool(self.inbox)
        return not self.exhausted

    def open(self) -> Unit:
        """Open the next unit."""
        unit = self._open_leaf() if self.plan.leaf is not None else self._open_given()
        if unit.num_rows:
            self._current = unit
        self._num_rows += unit.num_rows
        return unit

    def wanted_units(self, rounds: int = 4) -> int:
        """Return how many units may be open for the sake of async stages, by the mean size of those so far.

        Their rows are four times what is awaited at once: in flight, next in turn, done but behind a slow one, and on their way out.
        """
        return rounds * self.most_awaited * self.opened // max(1, self._num_rows) + 2 if self.most_awaited else 0

    def _open_given(self) -> Unit:
        unit = self.inbox.popleft()
        unit.seq = self.opened
        self.opened += 1
        return unit

    def _open_leaf(self) -> Unit:
        length = self.plan.length
        assert length is not None
        if self.cut_pass >= self._pass_number:
            count = 0
        else:
            wanted = self.units.items if self.plan.batch else min(self.blocks[0].rows(1 << 40, 1), self.most_rows)
            count = int(min(wanted, length - self._next_item))
        first, pass_number = self._next_item, self._pass_number
        self._next_item += count
        ends = count == 0 or self._next_item == length
        if ends:
            self._pass_number, self._next_item = pass_number + 1, 0
            self.exhausted = self._pass_number >= self._num_passes
        unit = self._leaf_unit(pass_number, first, count, ends)
        self.opened += 1
        return unit

    def _leaf_unit(self, pass_number: int, first: int, count: int, ends: bool) -> Unit:
        plan = self.plan
        epochs = np.full(count, pass_number, np.int64)
        positions = np.arange(first, first + count, dtype=np.int64)
        top_levels: Levels = []
        sizes = None
        if plan.batch is not None:
            top_levels = [(epochs, positions)]
            for step in reversed([step for step in plan.top if hasattr(step, "down")]):
                epochs, positions = step.down(epochs, positions)
                top_levels.append((epochs, positions))
            top_levels.reverse()
            epochs, positions, sizes = batch_rows(epochs, positions, plan.batch.length, plan.batch.batch_size)
        assert self._positions is not None
        return Unit(
            seq=self.opened,
            pass_number=pass_number,
            first=first,
            sizes=sizes,
            num_items=count,
            num_rows=len(positions),
            levels=self._positions.levels(epochs, positions) if len(positions) else [],
            top_levels=top_levels,
            ends_pass=ends,
        )

    # -- claiming -----------------------------------------------------------------------------------------------------------------

    def next_rows(self, num_workers: int) -> Task | None:
        """Claim the next rows of the open unit for the first stage."""
        unit = self._current
        if unit is None or unit.claimed >= unit.limit or (self.failed_seq is not None and unit.seq > self.failed_seq):
            return None
        begin = unit.claimed
        end = begin + self.blocks[0].rows(unit.limit - begin, num_workers if self.plan.batch is not None and unit.seq == 0 else 1)
        unit.claimed = end
        if end >= unit.limit:
            self._current = None
        return Task(self.number, 0, unit, begin, end, None)

    def has_rows(self) -> bool:
        """Tell whether `next_rows` would give a task."""
        unit = self._current
        return unit is not None and unit.claimed < unit.limit and (self.failed_seq is None or unit.seq <= self.failed_seq)

    def next_block(self, stage: int) -> Task | None:
        """Claim the next block that waits for a later stage; blocks behind a failure are dropped."""
        queue = self.queues[stage]
        while queue:
            task = queue.popleft()
            assert task.unit is not None
            if task.begin < task.unit.limit and (self.failed_seq is None or task.unit.seq <= self.failed_seq):
                return task
        return None

    def put_back(self, task: Task) -> None:
        """Undo a claim: the consumer's thread was interrupted in the middle of it."""
        assert task.unit is not None
        if task.stage == 0 and task.block is None:
            task.unit.claimed = task.begin
            self._current = task.unit
        else:
            self.queues[task.stage].appendleft(task)

    def fail(self, unit: Unit) -> None:
        """Note that a unit failed: nothing behind it is of use."""
        if self.failed_seq is None or unit.seq < self.failed_seq:
            self.failed_seq = unit.seq

    def next_finished(self) -> Unit | None:
        """Return the next unit in order if it is finished, without taking it."""
        return self.finished.get(self.committed)

    def where(self, unit: Unit, row: int) -> tuple[str, tuple[int, int]]:
        """Return where a row comes from, in words, and its key (epoch, index)."""
        if unit.given is not None:
            key = int(unit.given.epochs[row]), int(unit.given.indices[row])
            return "", key
        leaf = self.plan.leaf
        assert leaf is not None
        epochs, positions = unit.levels[0]
        spot = int(epochs[row]), int(positions[row])
        return leaf.where(*spot), leaf.key(*spot)

    def position(self) -> dict[str, Any]:
        """Say how far the segment is, for tests and reports."""
        return {"opened": self.opened, "committed": self.committed, "waiting": sum(map(len, self.queues))}


def given_unit(pieces: list[list[Any]], batched: bool, tokens: list[Token], pass_number: int, first: int) -> Unit:
    """Make a unit for the next segment of what a sequencer emitted: groups of pieces, or single ones."""
    flat = [piece for group in pieces for piece in group]
    keys = [piece.key for piece in flat]
    block = Block(
        np.array([key[0] for key in keys], np.int64),
        np.array([key[1] for key in keys], np.int64),
        np.array([key[2] for key in keys], np.uint64),
        rows=[piece.value for piece in flat],
    )
    return Unit(
        seq=-1,
        pass_number=pass_number,
        first=first,
        sizes=[len(group) for group in pieces] if batched else None,
        num_items=len(pieces),
        num_rows=len(flat),
        given=block,
        tokens=tokens,
    )
