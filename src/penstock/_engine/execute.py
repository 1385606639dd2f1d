"""One task on one worker: rows through a stage, into the batch or on to the next stage. Holds no lock."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np

from penstock._engine.failing import is_interrupt
from penstock._engine.program import SegmentPlan, Sift
from penstock._engine.unit import Failure, Levels, Result, Task, Unit
from penstock._ops.block import Block, ElementFailed, Ints
from penstock._ops.operator import Operator, WritesRows, climb
from penstock._ops.rows import Rows
from penstock._ops.worker import WorkerContext

__all__ = ["finish_unit", "run_task"]


def run_task(plan: SegmentPlan, task: Task, worker: WorkerContext) -> tuple[Block | None, int, Failure | None]:
    """Run the rows of a task through its stage.

    When an element fails, the rows before it are run again without it, so that everything before the first failure is delivered
    whatever the size of the block.

    Returns:
        (the block for the next stage or None, the first row that is not done, the failure or None).

    Raises:
        KeyboardInterrupt: of the user, in the main thread; the task may be run again.
    """
    unit = task.unit
    assert unit is not None
    rows, given = unit.rows, unit.given  # before looking at `finishing`: who finishes the unit takes them away
    if unit.finishing:
        return None, task.begin, None  # a row before these failed, and the unit was finished without them
    end, failure = task.end, None
    while end > task.begin:
        try:
            return _run_rows(plan, task, _input(plan, task, given, end, worker), rows, worker), end, failure
        except ElementFailed as failed:
            if is_interrupt(failed.error):
                raise failed.error from None
            end = task.begin + failed.offset
            failure = Failure(end, failed.error, failed.stage, worker.index)
    return None, end, failure


def _run_rows(plan: SegmentPlan, task: Task, block: Block, rows: Rows | None, worker: WorkerContext) -> Block | None:
    """Run a block through a stage; return it for the next stage, or leave it in the batch or with the unit."""
    stage, unit = plan.stages[task.stage], task.unit
    assert unit is not None
    operators = stage.operators
    levels = _levels(plan, task, block) if operators else []
    last = task.stage == len(plan.stages) - 1
    worker.block, worker.operator, worker.origins = block, None, block.origins
    if last and rows is not None:
        if operators and hasattr(operators[-1], "up_into"):
            block = climb(operators[:-1], block, levels[:-1], worker)
            worker.block, worker.operator = block, operators[-1]
            cast(WritesRows, operators[-1]).up_into(block, worker, rows, task.begin)
        else:
            rows.put_block(task.begin, climb(operators, block, levels, worker))
        return None
    origins = block.origins
    block = climb(operators, block, levels, worker)
    if stage.sifts:
        block, origins = _sift(stage.sifts, block, origins, worker)
    block.rows()
    block.origins = origins
    if not last:
        return block
    unit.parts[task.begin] = (block, (np.arange(len(block), dtype=np.int64) if origins is None else origins) + task.begin)
    return None


def _levels(plan: SegmentPlan, task: Task, block: Block) -> Levels:
    """Return the (epochs, positions) of the stage's operators; where rows are given, those of the keys: only maps stand there."""
    assert task.unit is not None
    if plan.leaf is None:
        return [(block.epochs, block.indices)] * len(plan.stages[task.stage].operators)
    count = len(block)
    first = 1 + sum(len(earlier.operators) for earlier in plan.stages[: task.stage])
    here = slice(task.begin, task.begin + count)
    return [(e[here], p[here]) for e, p in task.unit.levels[first : first + len(plan.stages[task.stage].operators)]]


def _input(plan: SegmentPlan, task: Task, given: Block | None, end: int, worker: WorkerContext) -> Block:
    """Return the block of a task up to input row `end`."""
    if task.block is not None:
        block = task.block
        if end == task.end:
            return block
        count = end - task.begin if block.origins is None else int(np.searchsorted(block.origins, end - task.begin))
        return block.select(slice(0, count))
    if given is not None:
        return given if (task.begin, end) == (0, len(given)) else given.select(slice(task.begin, end))
    assert plan.leaf is not None
    assert task.unit is not None
    epochs, positions = task.unit.levels[0]
    return plan.leaf.run(epochs[task.begin : end], positions[task.begin : end], worker)


def _sift(steps: Sequence[Sift | Operator], block: Block, origins: Ints | None, worker: WorkerContext) -> tuple[Block, Ints]:
    """Run filters, flat_maps and the maps among them; their failures count in input offsets."""
    origins = np.arange(len(block), dtype=np.int64) if origins is None else origins
    for step in steps:
        worker.block, worker.operator, worker.origins = block, step, origins
        if hasattr(step, "sift"):
            block, origins = cast(Sift, step).sift(block, origins)
            continue
        try:
            block = step.up(block, origins, origins, worker)
            block.rows()
        except ElementFailed as failed:
            raise failed.moved(int(origins[failed.offset])) from failed.error
    return block, origins


def finish_unit(plan: SegmentPlan, unit: Unit, worker: WorkerContext) -> tuple[Result, Failure | None]:
    """Make the items of a unit whose wanted rows are done: batches through the top operators, or the parts joined.

    Returns:
        (the items before the first failure, that failure with the number of its item or None).
    """
    failure = unit.failure
    count = unit.good_items()
    if failure is not None:
        failure = failure._replace(at=unit.item_of(failure.at))
    if unit.rows is None:
        return _join(unit, count), failure
    try:
        batches = unit.rows.finish(count)
    except ElementFailed as failed:
        failure = Failure(failed.offset, failed.error, failed.stage, worker.index)
        batches = unit.rows.finish(failed.offset)
    unit.rows = None
    if not plan.top and plan.folds is None:
        return Result(batches, None, None), failure
    while True:
        try:
            return _top(plan, unit, batches, worker), failure
        except ElementFailed as failed:
            failure = Failure(failed.offset, failed.error, failed.stage, worker.index)
            batches = batches[: failed.offset]


def _top(plan: SegmentPlan, unit: Unit, batches: list[Any], worker: WorkerContext) -> Result:
    count = len(batches)
    block = _keyed(unit, batches)
    worker.origins, worker.finishing = None, True
    operators = [step for step in plan.top if not hasattr(step, "sift")]
    sifts: Sequence[Any] = ()
    if len(operators) < len(plan.top):
        first = next(place for place, step in enumerate(plan.top) if hasattr(step, "sift"))
        operators, sifts = list(plan.top[:first]), plan.top[first:]  # type: ignore[arg-type]
    levels: Levels = [(e[:count], p[:count]) for e, p in unit.top_levels[1 : 1 + len(operators)]]
    if not levels and operators:
        levels = [(block.epochs, block.indices)] * len(operators)
    block = climb(operators, block, levels, worker)
    if not sifts:
        return Result(block.rows(), None, block)
    block, origins = _sift(sifts, block, None, worker)
    return Result(block.rows(), origins.tolist(), block)


def _keyed(unit: Unit, batches: list[Any]) -> Block:
    """Give batches keys: their own (epoch, position), or behind a fold those of their first element."""
    count = len(batches)
    if unit.top_levels:
        epochs, positions = unit.top_levels[0]
        return Block(epochs[:count], positions[:count], np.zeros(count, np.uint64), rows=batches)
    assert unit.given is not None
    assert unit.sizes is not None
    first = np.concatenate([[0], np.cumsum(unit.sizes)[:-1]])[:count].astype(np.int64)
    given = unit.given
    return Block(given.epochs[first], given.indices[first], given.lanes[first], rows=batches)


def _join(unit: Unit, count: int) -> Result:
    """Put the parts of a unit without a batch in order, and leave out what lies behind a failure."""
    items: list[Any] = []
    origins: list[int] = []
    blocks: list[Block] = []
    for begin in sorted(unit.parts):
        block, part = unit.parts[begin]
        if begin >= count:
            break
        if len(part) and int(part[-1]) >= count:
            keep = int(np.searchsorted(part, count))
            block, part = block.select(slice(0, keep)), part[:keep]
        items.extend(block.rows())
        origins.extend(part.tolist())
        blocks.append(block)
    unit.parts = {}
    one_to_one = len(items) == count and origins == list(range(count))
    return Result(items, None if one_to_one else origins, _concatenated(blocks))


def _concatenated(blocks: list[Block]) -> Block | None:
    if len(blocks) == 1:
        return blocks[0]
    if not blocks:
        return None
    rows = [row for block in blocks for row in block.rows()]
    return Block(
        np.concatenate([block.epochs for block in blocks]),
        np.concatenate([block.indices for block in blocks]),
        np.concatenate([block.lanes for block in blocks]),
        rows=rows,
    )
