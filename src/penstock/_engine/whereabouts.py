"""Which stage and which element somebody is with, in words. Pure looks at what others write."""

from __future__ import annotations

from penstock._contracts.failing import attempt
from penstock._engine.flow import Flow
from penstock._engine.pools import READER, SHARED
from penstock._engine.posts import Post
from penstock._engine.segment import Segment
from penstock._engine.unit import Task
from penstock._ops.block import Block
from penstock._ops.worker import WorkerContext

__all__ = ["call_of", "element_of", "place_of", "pool_words", "row_of", "stage_of"]


def stage_of(flow: Flow, post: Post, task: Task) -> str:
    block, operator = post.worker.block, post.worker.operator
    if task.read or (block is not None and block.reading):
        return "read"
    return getattr(operator, "name", "") or flow.segments[task.segment].plan.stages[task.stage].name or "batch"


def element_of(flow: Flow, post: Post, task: Task) -> str:
    """Name the element, or the first of those among which it is."""
    if task.read:
        assert flow.reader is not None
        number = flow.reader.num_read
        return f"element epoch {flow.reader.pass_number} index {number} ({flow.reader.describe(number)})"
    segment, row = flow.segments[task.segment], row_of(post.worker, task)
    if row is not None:
        return f"element {_name(segment, task, row)}"
    return f"one of {task.end - task.begin} elements from {_name(segment, task, task.begin)} on"


def call_of(flow: Flow, task: Task | None, block: Block, offset: int) -> str:
    """Name the element of an async call."""
    if task is None:
        return "an element"
    row = offset if block.origins is None else int(block.origins[offset])
    return f"element {_name(flow.segments[task.segment], task, task.begin + row)}"


def _name(segment: Segment, task: Task, row: int) -> str:
    found = place_of(segment, task, row)
    if found is None:
        return "an element that is not wanted any more"
    words, key = found
    return f"epoch {key[0]} index {key[1]}" + (f" ({words})" if words else "")


def place_of(segment: Segment, task: Task, row: int) -> tuple[str, tuple[int, int]] | None:
    """Return as `Segment.where`; None where the unit was finished or cut meanwhile, without this row. Without the mutex."""
    unit = task.unit
    given = None if unit is None else unit.given  # once: the worker that finishes the unit takes it away
    try:
        if given is not None:
            return "", (int(given.epochs[row]), int(given.indices[row]))
        return None if unit is None or not unit.levels else attempt(segment.where, unit, row)  # it asks the user's source
    except IndexError:
        return None


def row_of(worker: WorkerContext, task: Task) -> int | None:
    """Return the row of the unit that a worker is with, of a batch its first."""
    row, unit = worker.row(), task.unit
    if row is None or unit is None:
        return task.begin if task.end - task.begin == 1 and not worker.finishing else None
    return sum(unit.sizes[:row]) if worker.finishing and unit.sizes is not None else row


def pool_words(flow: Flow, pool: str) -> str:
    if pool == SHARED:
        return "shared workers"
    if pool == READER:
        return "readers of the generator"
    segment, _, stage = pool.partition(".")
    return f"workers of stage {flow.segments[int(segment)].plan.stages[int(stage)].name!r}"
