"""One task on one worker: rows through a stage, into the batch or on to the next stage. Holds no lock."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple, cast

import numpy as np

from penstock._engine.ahead import all_written, taken_out
from penstock._engine.joining import concatenated, join, joined
from penstock._engine.program import SegmentPlan
from penstock._engine.renewing import check_wanted, stalls_at
from penstock._engine.rescue import GONE, MOST_REPLACEMENTS, RAISING, Case, Rescue, in_pieces, mended
from penstock._engine.sifting import Without, sift
from penstock._engine.unit import TOP, Failure, Known, Levels, Result, Task, Unit
from penstock._ops.block import Block, ElementFailed, Ints
from penstock._ops.leaves import BatchLeaf
from penstock._ops.operator import ChainOp, WritesRows, climb
from penstock._ops.positions import moves_only
from penstock._ops.rows import Rows
from penstock._ops.worker import WorkerContext
from penstock._order.arithmetic import INFINITE

__all__ = ["finish_unit", "run_task"]


def run_task(plan: SegmentPlan, task: Task, worker: WorkerContext, rescue: Rescue = RAISING) -> tuple[Block | None, int, Failure | None]:
    """Run the rows of a task through its stage.

    When an element fails, the rows before it are run again without it, and `rescue` says what becomes of it; then the rows behind it are
    run. If it gives up, everything before the failure is delivered whatever the size of the block.

    Returns:
        (the block for the next stage or None, the first row that is not done, the failure or None).

    Raises:
        KeyboardInterrupt: of the user, in the main thread; the task may be run again.
    """
    unit = task.unit
    assert unit is not None
    rows, given = unit.rows, unit.given  # before looking at `finishing`: who finishes the unit takes them away
    if unit.whole:
        return None, task.end, None  # its rows are written already
    if unit.finishing or unit.dead:
        return None, task.begin, None  # a row before these failed, and the unit was finished without them
    job = _Job(plan, task, given, rows, worker, rescue)
    try:
        blocks, end, failure = in_pieces(task.begin, task.end, job.known_rows(), job.run, job.treat)
    except BaseException:
        _forget(unit, task)
        raise
    worker.piece = None
    if task.stage == len(plan.stages) - 1 or end == task.begin:
        return None, end, failure
    return joined(task, [(begin, block) for begin, block in blocks if block is not None]), end, failure


def _forget(unit: Unit, task: Task) -> None:
    """Take back what an interrupted run left with the unit: it will be run again, perhaps in other pieces."""
    for parts in (unit.parts, unit.keys):
        for begin in [begin for begin in parts if task.begin <= begin < task.end]:
            del parts[begin]
    unit.mishaps[:] = [mishap for mishap in unit.mishaps if not task.begin <= mishap.row < task.end]


class _Job(NamedTuple):
    """A task in work."""

    plan: SegmentPlan
    task: Task
    given: Block | None
    rows: Rows | None
    worker: WorkerContext
    rescue: Rescue

    def run(self, begin: int, end: int, without: Without = ()) -> Block | None:
        """Run rows through the stage."""
        check_wanted(self.task.unit)
        self.worker.begin((begin, end), without)
        piece = self.task._replace(begin=begin, end=end)
        block = _input(self.plan, self.task, self.given, begin, end, self.worker)
        return _run_rows(self.plan, piece, block, self.rows, self.worker, without)

    def known_rows(self) -> Collection[int]:
        """Return the rows that are known to have failed in this stage before the state was saved, or to stall in it."""
        unit, stage = self.task.unit, self.task.stage
        assert unit is not None
        stalled = [row for at, row in unit.stalled if at == stage and self.task.begin <= row < self.task.end]
        return stalled + [row for row, some in unit.known.items() if any(self._is_due(one) for one in some)]

    def _is_due(self, known: Known) -> bool:
        """Tell whether this stage is where something is done about what is known: for a whole input the first that is run here.

        Async calls are begun elsewhere; their stage comes here when one of them fails.
        """
        stages = self.plan.stages
        first = next((number for number, stage in enumerate(stages) if stage.awaited is None), len(stages))
        return known.inner[0] == self.task.stage if known.inner else self.task.stage <= first

    def treat(self, row: int, failed: ElementFailed | None) -> Any:
        """Say what stands for a row that failed, or is known to have failed before the state was saved, or to stall."""
        unit, stage = self.task.unit, self.task.stage
        assert unit is not None
        if unit.dead and failed is not None:
            return Failure(row, failed.error, failed.stage, self.worker.index)  # nobody looks at it
        known = [one for one in unit.known.get(row, ()) if self._is_due(one)]
        whole = next((one for one in known if not one.inner), None)
        ends = self.worker.index, unit.mishaps, stalls_at(unit, stage, row)
        if whole is not None and failed is None:
            if not whole.how:
                unit.mishaps.append(self._case(unit, row, ()).known_as(whole))
                return GONE
            case = self._case(unit, row, ())
            _move(self.plan, unit, row, whole.how)
            return mended(self.rescue, lambda _: case, lambda out: self._alone(row, out), None, known, *ends)
        return mended(
            self.rescue,
            lambda out: self._case(unit, row, out),
            lambda out: self.run(row, row + 1, out),
            failed,
            known if failed is None else (),
            *ends,
        )

    def _case(self, unit: Unit, row: int, without: Without) -> Case:
        key, where, place = _identity(self.plan, unit, row)
        item = unit.item_of(row)
        saved = [(int(e[row]), int(p[row])) for e, p in unit.levels]
        hung = {stall.stand_in for stall in unit.stalled.get((self.task.stage, row), ())}

        def restore() -> None:
            for (epochs, positions), (epoch, position) in zip(unit.levels, saved, strict=True):
                epochs[row], positions[row] = epoch, position

        def others() -> Iterator[tuple[int, Callable[[], Any]]]:
            for distance in range(1, _num_others(self.plan) + 1):
                if distance in hung:
                    continue
                restore()
                _move(self.plan, unit, row, distance)
                yield distance, partial(self._alone, row, stand_in=distance)

        return Case(
            item,
            row,
            lambda: self.run(row, row + 1, without),
            others if unit.levels else None,
            restore,
            key,
            where,
            () if place is None and unit.given is None else (key,),  # a whole batch has no key of an element
            place,
            item < unit.num_replayed,
            self.task.stage,
        )

    def _alone(self, row: int, without: Without = (), stand_in: int = 0) -> Block | None:
        """Run one row through all stages up to this one."""
        check_wanted(self.task.unit)
        self.worker.begin((row, row + 1), without, stand_in)
        block: Block | None = None
        for stage in range(self.task.stage + 1):
            piece = self.task._replace(stage=stage, begin=row, end=row + 1, block=block)
            given = _input(self.plan, piece, self.given, row, row + 1, self.worker)
            block = _run_rows(self.plan, piece, given, self.rows, self.worker, without if stage == self.task.stage else ())
        return block


def _identity(plan: SegmentPlan, unit: Unit, row: int) -> tuple[tuple[int, int, int], str, tuple[int, int] | None]:
    """Return the key of a row, where it comes from in words, and its place in the leaf."""
    if unit.given is not None:
        given = unit.given
        key = int(given.epochs[row]), int(given.indices[row]), int(given.lanes[row])
        return key, "" if plan.stream is None else plan.stream.describe(key[1]), None
    assert plan.leaf is not None
    epochs, positions = unit.levels[0]
    keys = plan.leaf.keys(epochs[row : row + 1], positions[row : row + 1])
    place = int(epochs[row]), int(positions[row])
    key = int(keys[0][0]), int(keys[1][0]), int(keys[2][0])
    return key, plan.leaf.where(*place), None if isinstance(plan.leaf, BatchLeaf) else place


def _num_others(plan: SegmentPlan) -> int:
    """Count the elements that may stand in for a row."""
    length = plan.batch.length if plan.batch is not None else plan.length
    return MOST_REPLACEMENTS if length is None else int(min(MOST_REPLACEMENTS, length - 1))


def _move(plan: SegmentPlan, unit: Unit, row: int, distance: int) -> None:
    """Let a row of a unit stand for the element `distance` places further on, counted round the end of the pass."""
    assert plan.leaf is not None
    length = plan.batch.length if plan.batch is not None else plan.length
    epochs, positions = unit.levels[-1]
    position = int(positions[row]) + distance
    if length is not None and length != INFINITE:
        position %= int(length)
    chain = ChainOp(plan.leaf, tuple(step for stage in plan.stages for step in stage.operators))
    moved = chain.levels(epochs[row : row + 1].copy(), np.array([position], np.int64))
    for (below_epochs, below_positions), (epoch, place) in zip(unit.levels, moved, strict=True):
        below_epochs[row], below_positions[row] = epoch[0], place[0]


def _run_rows(plan: SegmentPlan, task: Task, block: Block, rows: Rows | None, worker: WorkerContext, without: Without = ()) -> Block | None:
    """Run a block through a stage; return it for the next stage, or leave it in the batch or with the unit."""
    stage, unit = plan.stages[task.stage], task.unit
    assert unit is not None
    operators = stage.operators
    levels = _levels(plan, task, block) if operators else []
    last = task.stage == len(plan.stages) - 1
    worker.block, worker.operator, worker.origins = block, None, block.origins
    if last and rows is not None and block.origins is None:
        keys, count = block, len(block)
        if operators and hasattr(operators[-1], "up_into"):
            block = climb(operators[:-1], block, levels[:-1], worker)
            worker.block, worker.operator = block, operators[-1]
            cast(WritesRows, operators[-1]).up_into(block, worker, rows, task.begin)
        else:
            rows.put_block(task.begin, climb(operators, block, levels, worker))
        if unit.ahead:
            unit.keys[task.begin] = Block(keys.epochs, keys.indices, keys.lanes), range(task.begin, task.begin + count)
        return None
    origins = block.origins
    try:
        block = climb(operators, block, levels, worker)
    except ElementFailed as failed:
        raise failed if origins is None else failed.moved(int(origins[failed.offset])) from failed.error
    if stage.sifts:
        block, origins = sift(stage.sifts, block, origins, worker, without)
    block.rows()  # a block with origins is made of rows already: nothing is read here that could fail
    block.origins = origins
    if not last:
        return block
    places = (np.arange(len(block), dtype=np.int64) if origins is None else origins) + task.begin
    if rows is not None:
        for row, element in zip(places.tolist(), block.rows(), strict=True):
            rows.put(row, element)
        unit.keys[task.begin] = Block(block.epochs, block.indices, block.lanes), places
        return None
    unit.parts[task.begin] = block, places
    return None


def _levels(plan: SegmentPlan, task: Task, block: Block) -> Levels:
    """Return the (epochs, positions) of the stage's operators; where rows are given, those of the keys: only maps stand there."""
    assert task.unit is not None
    if plan.leaf is None:
        return [(block.epochs, block.indices)] * len(plan.stages[task.stage].operators)
    first = 1 + sum(len(earlier.operators) for earlier in plan.stages[: task.stage])
    here: Any = slice(task.begin, task.begin + len(block)) if block.origins is None else block.origins + task.begin
    return [(e[here], p[here]) for e, p in task.unit.levels[first : first + len(plan.stages[task.stage].operators)]]


def _input(plan: SegmentPlan, task: Task, given: Block | None, begin: int, end: int, worker: WorkerContext) -> Block:
    """Return the block of rows begin..end of a task."""
    if task.block is not None:
        return task.block if (begin, end) == (task.begin, task.end) else _part(task.block, begin - task.begin, end - task.begin)
    if given is not None:
        return given if (begin, end) == (0, len(given)) else given.select(slice(begin, end))
    assert plan.leaf is not None
    assert task.unit is not None
    epochs, positions = task.unit.levels[0]
    return plan.leaf.run(epochs[begin:end], positions[begin:end], worker)


def _part(block: Block, begin: int, end: int) -> Block:
    """Return what came of the inputs begin..end of a block."""
    if block.origins is None:
        return block.select(slice(begin, end))
    first, last = np.searchsorted(block.origins, (begin, end)).tolist()
    out = block.select(slice(first, last))
    assert out.origins is not None
    out.origins = out.origins - begin
    return out


def finish_unit(plan: SegmentPlan, unit: Unit, worker: WorkerContext, rescue: Rescue = RAISING) -> tuple[Result, Failure | None]:
    """Make the items of a unit whose wanted rows are done: batches through the top operators, or the parts joined.

    Returns:
        (the items before the first failure, that failure with the number of its item or None).
    """
    worker.rest()
    worker.finishing = True
    failure = unit.failure
    count = unit.good_items()
    if failure is not None:
        failure = failure._replace(at=unit.item_of(failure.at))
    if unit.ahead and unit.rows is not None:
        result = all_written(plan, unit)
        if result is not None:
            return result, None
        unit.parts = taken_out(unit)
    if unit.rows is None:
        return join(unit, count), failure
    try:
        batches = unit.rows.finish(count)
    except ElementFailed as failed:
        failure = Failure(failed.offset, failed.error, failed.stage, worker.index)
        batches = unit.rows.finish(failed.offset)
    unit.rows = None
    if plan.folds is None and moves_only(plan.top):
        return Result(batches, None, None), failure
    return _run_top(plan, unit, batches, worker, rescue, failure)


def _run_top(
    plan: SegmentPlan, unit: Unit, batches: list[Any], worker: WorkerContext, rescue: Rescue, failure: Failure | None
) -> tuple[Result, Failure | None]:
    """Run batches through the top operators, around those that fail."""

    def run(begin: int, end: int, without: Without = ()) -> tuple[Block, Ints]:
        check_wanted(unit)
        return _top(plan, unit, batches, begin, end, worker, without)

    def treat(item: int, failed: ElementFailed | None) -> Any:
        if unit.dead and failed is not None:
            return Failure(item, failed.error, failed.stage, worker.index)
        known = unit.known_items.get(item, []) if failed is None else []
        if known and not known[0].inner:
            unit.mishaps.append(_top_case(unit, item, lambda: None).known_as(known[0]))
            return GONE
        return mended(
            rescue,
            lambda out: _top_case(unit, item, lambda: run(item, item + 1, out)),
            lambda out: run(item, item + 1, out),
            failed,
            known,
            worker.index,
            unit.mishaps,
            stalls_at(unit, TOP, item),
        )

    known_items = [*unit.known_items, *(item for stage, item in unit.stalled if stage == TOP)]
    parts, end, failed = in_pieces(0, len(batches), known_items, run, treat, single=unit.single)
    worker.piece = None
    if failed is not None:
        failure = failed._replace(at=end)
    block = concatenated([part for _, (part, _) in parts])
    origins = [origin + begin for begin, (_, part) in parts for origin in part.tolist()]
    items = block.rows() if block is not None else []
    return Result(items, None if origins == list(range(end)) else origins, block), failure


def _top_case(unit: Unit, item: int, again: Callable[[], Any]) -> Case:
    """Say who a batch is: it goes by its first element."""
    keys: tuple[tuple[int, int, int], ...] = ()
    if unit.given is not None and unit.sizes is not None:
        first = sum(unit.sizes[:item])
        here, given = slice(first, first + unit.sizes[item]), unit.given
        keys = tuple(zip(given.epochs[here].tolist(), given.indices[here].tolist(), given.lanes[here].tolist(), strict=True))
    elif unit.top_levels:
        epochs, positions = unit.top_levels[0]
        keys = ((int(epochs[item]), int(positions[item]), 0),)
    where = f"a batch of {len(keys)}" if unit.given is not None else "a batch"
    return Case(
        item, -1, again, None, lambda: None, keys[0], where, keys if unit.given is not None else (), None, item < unit.num_replayed, 0
    )


def _top(
    plan: SegmentPlan, unit: Unit, batches: list[Any], begin: int, end: int, worker: WorkerContext, without: Without
) -> tuple[Block, Ints]:
    worker.begin((begin, end), without)
    block = _keyed(unit, batches, begin, end)
    operators = [step for step in plan.top if not hasattr(step, "sift")]
    sifts: Sequence[Any] = ()
    if len(operators) < len(plan.top):
        first = next(place for place, step in enumerate(plan.top) if hasattr(step, "sift"))
        operators, sifts = list(plan.top[:first]), plan.top[first:]  # type: ignore[arg-type]
    levels: Levels = [(e[begin:end], p[begin:end]) for e, p in unit.top_levels[1 : 1 + len(operators)]]
    if not levels and operators:
        levels = [(block.epochs, block.indices)] * len(operators)
    block = climb(operators, block, levels, worker)
    if sifts:
        return sift(sifts, block, None, worker, without)
    block.rows()
    return block, np.arange(len(block), dtype=np.int64)


def _keyed(unit: Unit, batches: list[Any], begin: int, end: int) -> Block:
    """Give batches keys: their own (epoch, position), or behind a fold those of their first element."""
    here = slice(begin, end)
    if unit.top_levels:
        epochs, positions = unit.top_levels[0]
        return Block(epochs[here], positions[here], np.zeros(end - begin, np.uint64), rows=batches[here])
    assert unit.given is not None
    assert unit.sizes is not None
    first = np.concatenate([[0], np.cumsum(unit.sizes)[:-1]])[here].astype(np.int64)
    given = unit.given
    return Block(given.epochs[first], given.indices[first], given.lanes[first], rows=batches[here])
