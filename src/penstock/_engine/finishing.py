"""A unit whose wanted rows are done: its batches, or its elements in order, through the top operators. Holds no lock."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import Any

import numpy as np

from penstock._engine.chunk import BatchItem, Chunk, Failure, LateFailure, Result
from penstock._engine.compute import compute_batches, concatenated
from penstock._engine.program import SegmentPlan
from penstock._engine.rescue import RAISING, ErrorHandler
from penstock._ops.block import UNLIMITED, Block, ElementFailed, Ints
from penstock._ops.positions import moves_only
from penstock._ops.worker import WorkerContext

__all__ = ["finish_unit", "join", "taken_out"]


def finish_unit(plan: SegmentPlan, unit: Chunk, worker: WorkerContext, rescue: ErrorHandler = RAISING) -> tuple[Result, Failure | None]:
    """Make the items of a unit whose wanted rows are done: batches through the top operators, or the parts joined.

    Returns:
        (the items before the first failure, that failure with the number of its item or None).
    """
    worker.rest()
    worker.take_room(UNLIMITED)
    worker.finishing = True
    failure = unit.failure
    count = unit.good_items()
    if failure is not None:
        failure = failure._replace(at=unit.item_of(failure.at))
    unit.in_place = unit.rows is not None and not unit.rows.beside and moves_only(plan.top)
    if unit.ahead and unit.rows is not None:
        result = all_written(plan, unit)
        if result is not None:
            return result, None
        unit.parts, unit.in_place = taken_out(unit), False
    late = _bad_items(unit)
    if unit.rows is None:
        unit.late.update(late)
        return join(unit, count), failure
    bad: dict[int, ElementFailed] = {}
    batches = unit.rows.finish(count, bad, without=late)
    if bad and not (plan.late_failures and plan.settled_at_top < -1):
        first = min(bad)
        failure = Failure(first, bad[first].error, bad[first].stage, worker.index)
        batches, bad = batches[:first], {}
    unit.rows = None
    if plan.folds is None and moves_only(plan.top):
        return Result(batches, None, None), failure
    unit.late.update(late)
    outcome = compute_batches(plan, _batch_item(unit, batches, bad, frozenset(late)), worker, rescue)
    unit.take(outcome)
    end, block, failed, origins = outcome[:4]
    del outcome  # the frames of its errors lead to this one
    items = list(block.rows()) if block is not None else []
    return _with_late(unit, items, list(origins), block, end), failed or failure


def _batch_item(unit: Chunk, batches: list[Any], bad: dict[int, ElementFailed], without: frozenset[int]) -> BatchItem:
    given = unit.given
    keys = None if given is None else Block(given.epochs, given.indices, given.lanes)
    return BatchItem(batches, unit.sizes, keys, unit.top_levels, unit.known_items, unit.num_replayed, bad, without)


def _bad_items(unit: Chunk) -> dict[int, list[tuple[int, tuple[int, int, int], LateFailure]]]:
    """Return the items that have a row without an element, as `late` has them: each with the failure of its first such row."""
    out: dict[int, list[tuple[int, tuple[int, int, int], LateFailure]]] = {}
    for row in sorted(unit.bad_rows):
        item = unit.item_of(row)
        if item not in out:
            key = unit.given.key_of(unit.first_row(item)) if unit.given is not None else _key_at_top(unit, item)
            out[item] = [(0, key, unit.bad_rows[row])]
    return out


def _key_at_top(unit: Chunk, item: int) -> tuple[int, int, int]:
    epochs, positions = unit.top_levels[0]
    return int(epochs[item]), int(positions[item]), 0


def join(unit: Chunk, count: int) -> Result:
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
    return _with_late(unit, items, origins, concatenated(blocks), count)


def _with_late(unit: Chunk, items: list[Any], origins: list[int], block: Block | None, count: int) -> Result:
    """Make the result of a unit; elements that failed late stand in their places."""
    late = [(row, one) for row in sorted(unit.late) if row < count for one in reversed(unit.late[row])]
    if late:
        keys = [block.key_of(place) for place in range(len(items))] if block is not None else []
        for row, (number, key, failed) in late:  # taken out last, put back first
            place = bisect_right(origins, row) if failed.at_once else bisect_left(origins, row) + number
            items.insert(place, failed)
            origins.insert(place, row)
            keys.insert(place, key)
        epochs, indices, lanes = zip(*keys, strict=True)
        block = Block(np.array(epochs, np.int64), np.array(indices, np.int64), np.array(lanes, np.uint64), rows=items)
    one_to_one = len(items) == count and origins == list(range(count))
    return Result(items, None if one_to_one else origins, block)


# -- rows that were written into batches before the fold had counted them -----------------------------------------------------
#
# The folds behind a segment say which elements stand in which batch. Where elements come one to one and may only be left out, the guess is
# that none will be. If the guess fails, the rows of the unit go to the folds one by one, and later units are cut where batches begin again.


def all_written(plan: SegmentPlan, unit: Chunk) -> Result | None:
    """Return the result of a unit that wrote ahead, all of whose wanted rows are done: its batches, where nothing else is to be done.

    None, and nothing is done, if a row is missing, or if some do not fit each other: that is judged where they are counted.
    """
    if unit.failure is not None or sum(len(rows) for _, rows in unit.keys.values()) != unit.num_rows:
        return None
    batches: list[Any] = []
    assert unit.rows is not None
    if plan.direct and not unit.rows.beside:  # rows beside are let go when their batch is made, and the folds may yet want them
        try:
            batches = unit.rows.finish(unit.num_rows // unit.ahead)
        except ElementFailed:
            return None
    unit.whole = True
    return Result(batches, None, None)


def taken_out(unit: Chunk) -> dict[int, tuple[Block, Ints]]:
    """Return the parts of a unit that wrote ahead with their elements, taken out of the batches again."""
    assert unit.rows is not None
    elements, unit.rows, unit.whole = unit.rows.elements(), None, False
    return {
        begin: (block.with_rows([elements[row] for row in rows]), np.asarray(rows, np.int64)) for begin, (block, rows) in unit.keys.items()
    }
