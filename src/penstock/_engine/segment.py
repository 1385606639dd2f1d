"""One segment's decisions: which unit opens, which rows are claimed, which units are committed. Pure; the engine's mutex guards it."""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np

from penstock._engine.ahead import rows_ahead
from penstock._engine.program import SegmentPlan
from penstock._engine.renewing import renewed
from penstock._engine.sizing import block_sizes
from penstock._engine.tune import UnitSize
from penstock._engine.unit import NOTHING_DONE, Known, Levels, Record, Task, Token, Unit
from penstock._ops.collation import Collation
from penstock._ops.operator import ChainOp
from penstock._ops.stack import BatchSpec
from penstock._order.arithmetic import batch_rows
from penstock._order.runs import Recording

__all__ = ["Segment"]

_UNKNOWN = 1 << 40


class Segment:
    """Units between their opening and their commit, in order.

    Attributes:
        plan: what it runs.
        alone: whether elements are awaited: a batch is a unit then.
        inbox: units that the sequencer before has made, waiting to be opened.
        queues: blocks waiting for each stage after the first.
        opened, committed: how many units.
        guess: the spec of the last finished batch.
        most_rows: of a unit without a batch, for the byte budget.
        loose: whether units are committed as they are finished; the end of a pass still waits for all of it.
        lowest: the first unit that is not committed.
        rows_open: of the units that are not committed.
        widest: workers of its own, or calls in flight, that its widest stage has, or 0.
        failed_seq: the lowest unit that failed, or None; nothing behind it is claimed.
    """

    __slots__ = (
        "_current",
        "_done",
        "_ends",
        "_gone",
        "_heirs",
        "_known",
        "_next_item",
        "_num_passes",
        "_num_rows",
        "_opened_in",
        "_pass_number",
        "_phase",
        "_positions",
        "_renewed",
        "_replay",
        "alone",
        "blocks",
        "committed",
        "cut_pass",
        "exhausted",
        "failed_seq",
        "finished",
        "guess",
        "inbox",
        "keeps_going",
        "loose",
        "lowest",
        "most_rows",
        "number",
        "opened",
        "plan",
        "queues",
        "reading",
        "recording",
        "rows_open",
        "units",
        "widest",
    )

    def __init__(self, number: int, plan: SegmentPlan, num_passes: float, start: Token, at_once: bool = False) -> None:
        """Start at (pass, position) `start.source`, without what `start.done` names; a leaf has `num_passes` passes in all."""
        self.number = number
        self.plan = plan
        self.inbox: deque[Unit] = deque()
        self.queues: list[deque[Task]] = [deque() for _ in plan.stages]
        self.widest = max((stage.concurrency or 0 for stage in plan.stages), default=0)
        # What is awaited may never come: nothing that is ready stands in one unit with it but the rest of its batch.
        self.alone = not at_once and any(stage.awaited for stage in plan.stages)
        self.blocks, least_rows = block_sizes(plan, at_once=at_once)
        single = plan.batch is None
        self.units = UnitSize(least_rows if single and not self.alone else 1, one_thread=at_once and single)
        self.opened = 0
        self.committed = 0
        self.finished: dict[int, Unit] = {}
        self.guess: BatchSpec | None = None
        self.failed_seq: int | None = None
        self.exhausted = False
        self.most_rows = _UNKNOWN
        self.reading = False
        self.loose = self.keeps_going = False
        self.recording: Recording | None = None
        self.lowest = 0
        self.rows_open = 0
        self._ends: deque[int] = deque()
        self._gone: set[int] = set()
        self.cut_pass = -1
        self._num_passes = num_passes
        self._pass_number, self._next_item = start.source
        self._done = start.done
        self._known: dict[tuple[int, int], list[Known]] = {}
        self._replay = 0, 0
        self._opened_in = start.source[0], 0
        self._num_rows = 0
        self._phase = 0  # so many rows of an unfinished batch the folds will have when all open units have passed, if none loses more
        self._current: Unit | None = None
        self._heirs: dict[int, Unit] = {}  # not known to the units themselves: who is stuck in one must not hold the next one's batches
        self._renewed: deque[Unit] = deque()  # units that stalled, begun anew; claimed before any other
        self._positions = ChainOp(plan.leaf, tuple(op for stage in plan.stages for op in stage.operators)) if plan.leaf else None

    def read_again(self, record: Record | None) -> None:
        """Treat as before what the sequencer behind this segment had taken before the state was saved."""
        if record is None:
            return
        self._replay = record.replay
        for one in record.known:
            self._known.setdefault((one.pass_number, one.number), []).append(one)

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
        self.rows_open += unit.num_rows
        if self._replay > self._opened_in:
            self._note_replayed(unit)
        if unit.ends_pass:
            self._ends.append(unit.seq)
        if unit.num_rows and unit.result is None:
            self._current = unit
        if self.plan.ahead is not None:
            self._phase = 0 if unit.ends_pass else (self._phase + unit.num_rows) % self.plan.ahead.batch_size
        self._num_rows += unit.num_rows
        return unit

    def _note_replayed(self, unit: Unit) -> None:
        """Tell the unit which of its items were read before, and what became of them."""
        pass_number, count = self._opened_in
        first = count if pass_number == unit.pass_number else 0
        self._opened_in = unit.pass_number, first + unit.num_items
        border = (0, unit.num_items)[unit.pass_number < self._replay[0]]
        if unit.pass_number == self._replay[0]:
            border = min(unit.num_items, max(0, self._replay[1] - first))
        unit.num_replayed = border
        for item in range(border if self._known else 0):
            for one in self._known.get((unit.pass_number, first + item), ()):
                if one.row >= 0 or unit.sizes is None:
                    unit.known.setdefault(unit.first_row(item) + max(one.row, 0), []).append(one)
                else:
                    unit.known_items.setdefault(item, []).append(one)

    def wanted_units(self, rounds: int = 4) -> int:
        """Return how many units may be open for the sake of stages with a concurrency of their own, by the mean size of those so far.

        Their rows are four times what is in work at once: in flight, next in turn, done but behind a slow one, and on their way out.
        """
        return rounds * self.widest * self.opened // max(1, self._num_rows) + 2 if self.widest else 0

    def _open_given(self) -> Unit:
        unit = self.inbox.popleft()
        unit.seq = self.opened
        self.opened += 1
        return unit

    def _open_leaf(self) -> Unit:
        length = self.plan.length
        assert length is not None
        border, ahead = self._next_run(length), 0
        num_batches = 1 if self.alone else self.units.items
        wanted: float = num_batches
        if self.plan.ahead is not None:
            wanted, ahead = rows_ahead(self.plan, self._phase, num_batches, border - self._next_item)
        elif not self.plan.batch:
            wanted = min(self.most_rows, *(block.rows(1 << 40, 1) for block in (self.blocks if self.alone else self.blocks[:1])))
        count = 0 if self.cut_pass >= self._pass_number else int(min(wanted, border - self._next_item))
        first, pass_number, beyond = self._next_item, self._pass_number, self._done
        self._next_item += count
        if self.recording is not None:
            self.recording.take(first, first + count)
        self._next_run(length)
        ends = count == 0 or (self._next_item == length and not self.loose)  # what waits for all of a pass is an empty unit then
        if ends:
            if self.recording is not None:
                self.recording.start(())
            self._pass_number, self._next_item, self._done = pass_number + 1, 0, NOTHING_DONE
            self.exhausted = self._pass_number >= self._num_passes
        unit = self._leaf_unit(pass_number, first, count, ends)
        unit.beyond, unit.ahead = beyond, ahead if count else 0
        self.opened += 1
        return unit

    def _next_run(self, length: float) -> float:
        """Go to the next position that is to be computed; return where the run of such positions ends."""
        if self.recording is not None:
            self._next_item, border = self.recording.next(self._pass_number, length)
            return border
        self._leave_out_done()
        return self._done.runs[0][0] if self._done.runs else length

    def follow(self, recording: Recording) -> None:
        """Open units in a recorded order."""
        recording.start([(0, self._next_item), *self._done.runs])
        self.recording = recording

    def _leave_out_done(self) -> None:
        """Go on behind what an earlier run delivered in completion order."""
        while self._done.runs and self._done.runs[0][0] <= self._next_item:
            self._next_item = max(self._next_item, self._done.runs[0][1])
            self._done = self._done._replace(runs=self._done.runs[1:])
        if self._done.partial and self._done.partial[-1][0] < self._next_item:
            self._done = self._done._replace(partial=())

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
            batch = plan.batch
            epochs, positions, sizes = batch_rows(epochs, positions, batch.length, batch.batch_size, batch.shift, batch.stride)
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
        unit = self._unclaimed()
        if unit is None:
            return None
        begin = unit.claimed
        split = num_workers if (self.plan.batch is not None or unit.ahead) and unit.seq == 0 else 1
        rows = min(block.rows(unit.limit - begin, split) for block in self.blocks)  # what later stages take as it comes
        end = unit.claimed = unit.limit if unit.whole else begin + (1 if unit.single else rows)
        if unit is self._current and end >= unit.limit:
            self._current = None
        return Task(self.number, 0, unit, begin, end, None)

    def has_rows(self) -> bool:
        """Tell whether `next_rows` would give a task."""
        return self._unclaimed() is not None

    def _unclaimed(self) -> Unit | None:
        """Return the unit to claim rows of next."""
        while self._renewed and (self._renewed[0].dead or not self._has_wanted_rows(self._renewed[0])):
            self._renewed.popleft()
        unit = self._renewed[0] if self._renewed else self._current
        return unit if unit is not None and self._has_wanted_rows(unit) else None

    def _has_wanted_rows(self, unit: Unit) -> bool:
        return unit.claimed < unit.limit and (self.failed_seq is None or unit.seq <= self.failed_seq)

    def living(self, unit: Unit) -> Unit | None:
        """Return the unit that stands in the place of one now, perhaps itself; None when it was committed."""
        return self._heirs.get(unit.seq) if unit.dead else unit

    def renew(self, unit: Unit) -> Unit:
        """Give a unit up and return one in its place, of the same rows, of which nothing is done yet."""
        levels = [] if self.plan.leaf is None else self._leaf_unit(unit.pass_number, unit.first, unit.num_items, unit.ends_pass).levels
        heir = renewed(unit, levels)  # positions anew: replacements have moved them
        if self._current is unit:
            self._current = None
        self._renewed.append(heir)
        self._heirs[unit.seq] = heir
        for queue in self.queues:  # now: where many wait nothing is claimed before them
            kept = [task for task in queue if task.unit is not unit]
            queue.clear()
            queue.extend(kept)
        return heir

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
        """Note that a unit failed: nothing behind it is of use, unless it may stand behind the end of its pass."""
        if self.keeps_going:
            return
        if self.failed_seq is None or unit.seq < self.failed_seq:
            self.failed_seq = unit.seq

    @property
    def known_rows(self) -> int:
        """How many elements fit the byte budget of a unit, or 0 as long as their size is not known."""
        return self.most_rows if self.most_rows < _UNKNOWN else 0

    def next_finished(self) -> Unit | None:
        """Return the next unit to commit if it is finished, without taking it."""
        if not self.loose:
            return self.finished.get(self.committed)
        border = self._ends[0] if self._ends else self.opened
        return next((unit for seq, unit in self.finished.items() if seq < border or seq == self.committed), None)

    def commit(self, unit: Unit) -> None:
        """Take a finished unit out."""
        self._heirs.pop(unit.seq, None)
        del self.finished[unit.seq]
        self.committed += 1
        self.rows_open -= unit.num_rows
        if self.plan.ahead is not None and not unit.whole and unit.result is not None and unit.pass_number == self._pass_number:
            self._phase = (self._phase - (unit.num_items - len(unit.result.items))) % self.plan.ahead.batch_size
        if unit.ends_pass:
            self._ends.remove(unit.seq)
        self._gone.add(unit.seq)
        while self.lowest in self._gone:
            self._gone.remove(self.lowest)
            self.lowest += 1

    def batches_of(self, unit: Unit) -> tuple[list[int], Collation] | None:
        """Return the sizes and the collation of the batches that the last stage writes the unit's rows into; None when it keeps them."""
        if unit.ahead and self.plan.ahead is not None:
            return [unit.ahead] * (unit.num_rows // unit.ahead), self.plan.ahead.collation
        if self.plan.batch is None:
            return None
        assert unit.sizes is not None
        return unit.sizes, self.plan.batch.collation

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

    def name_of(self, unit: Unit, row: int) -> str:
        """Name a row in words for an error: its key, and where it comes from."""
        words, key = self.where(unit, row)
        return f"epoch {key[0]} index {key[1]}" + (f" ({words})" if words else "")

    def drop(self) -> None:
        """Let go of the rows of all units, after the end: they name themselves by their unit, so both would live until a collection."""
        waiting = (task.unit for queue in self.queues for task in queue)
        for unit in (self._current, *self._heirs.values(), *self._renewed, *self.inbox, *self.finished.values(), *waiting):
            if unit is not None:
                unit.rows = None

    def position(self) -> dict[str, Any]:
        """Say how far the segment is, for tests and reports."""
        return {"opened": self.opened, "committed": self.committed, "waiting": sum(map(len, self.queues))}
