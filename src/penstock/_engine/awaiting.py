"""The task of an async stage: its elements before they are awaited, and what it leaves when they are. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from penstock._engine.unit import Failure, Outcome, Task
from penstock._ops.awaited import AwaitedOp, CallResult
from penstock._ops.block import Block, ElementFailed

__all__ = ["begun", "ended", "failed_call"]


def begun(task: Task) -> Block | None:
    """Return the elements of a task, or None when a row before them failed meanwhile: nobody wants them any more."""
    unit = task.unit
    assert unit is not None
    given = unit.given  # before looking at `finishing`: who finishes the unit takes it away
    if unit.finishing or task.begin >= unit.limit:
        return None
    if task.block is not None:
        return task.block
    assert given is not None
    return given.select(slice(task.begin, task.end))


def failed_call(op: AwaitedOp, outcomes: Sequence[CallResult]) -> ElementFailed | None:
    """Return the failure that ended a block, or None."""
    error = outcomes[-1].error if outcomes else None
    return None if error is None else ElementFailed(0, op.name, error, op.policy)


def ended(task: Task, block: Block, outcomes: Sequence[CallResult], stage: str) -> Outcome:
    """Return what became of the task.

    Args:
        task: what was claimed.
        block: its elements, from `begun`.
        outcomes: one per element; when one failed, it is the last, and those behind it are missing.
        stage: the name for errors.
    """
    values = [outcome.value for outcome in outcomes]
    last = outcomes[-1] if outcomes else None
    if last is None or last.error is None:
        out = block.with_rows(values)
        out.origins = block.origins
        return Outcome(task.end, out)
    failed = len(outcomes) - 1
    row = failed if block.origins is None else int(block.origins[failed])
    failure = Failure(task.begin + row, last.error, stage, last.worker)
    if row == 0:
        return Outcome(task.begin, None, failure)
    # Behind a flat_map other results of the failed row may stand before the failed one: the row goes as a whole.
    count = row if block.origins is None else int(np.searchsorted(block.origins, row))
    kept = block.select(slice(0, count))
    out = kept.with_rows(values[:count])
    out.origins = kept.origins
    return Outcome(task.begin + row, out, failure)
