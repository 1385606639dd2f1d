"""A chunk whose wanted rows are done: its batches, or its elements in order, through the top operators. Holds no lock."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import Any

import numpy as np

from penstock._engine.chunk import BatchItem, Chunk, Failure, LateFailure, Result
from penstock._engine.compute import HERE, Computer, concatenated
from penstock._engine.error_policy import RAISING, ErrorHandler
from penstock._engine.program import SegmentPlan
from penstock._ops.block import UNLIMITED, Block, ElementFailed, Ints
from penstock._ops.reading import Moves
from penstock._ops.worker import WorkerContext

__all__ = ["finish_chunk", "join", "taken_out"]


def finish_chunk(
    plan: SegmentPlan, chunk: Chunk, worker: WorkerContext, error_handler: ErrorHandler = RAISING, computer: Computer = HERE
) -> tuple[Result, Failure | None]:
    """Make the items of a chunk whose wanted rows are done: batches through the top operators, or the parts joined.

    Returns:
        (the items before the first failure, that failure with the number of its item or None).
    """
    worker.rest()
    worker.take_room(UNLIMITED)
    worker.finishing = True
    failure = chunk.failure
    count = chunk.good_items()
    if failure is not None:
        failure = failure._replace(at=chunk.item_of(failure.at))
    only_moves = all(isinstance(operator, Moves) for operator in plan.batch_ops)
    chunk.in_place = chunk.rows is not None and not chunk.rows.beside and only_moves
    if chunk.batch_rows_in_place and chunk.rows is not None:
        result = all_written(plan, chunk)
        if result is not None:
            return result, None
        chunk.parts, chunk.in_place = taken_out(chunk), False
    late = _bad_items(chunk)
    if chunk.rows is None:
        chunk.late.update(late)
        return join(chunk, count), failure
    bad: dict[int, ElementFailed] = {}
    batches = chunk.rows.finish(count, bad, without=late)
    if bad and not (plan.late_failures and plan.settled_in_batch_ops < -1):
        first = min(bad)
        failure = Failure(first, bad[first].error, bad[first].stage, worker.index)
        batches, bad = batches[:first], {}
    chunk.rows = None
    if plan.folds is None and only_moves:
        return Result(batches, None, None), failure
    chunk.late.update(late)
    outcome = computer.compute_batches(plan, _batch_item(chunk, batches, bad, frozenset(late)), worker, error_handler)
    chunk.take(outcome)
    end, block, failed, origins = outcome[:4]
    del outcome  # the frames of its errors lead to this one
    items = list(block.rows()) if block is not None else []
    return _with_late(chunk, items, list(origins), block, end), failed or failure


def _batch_item(chunk: Chunk, batches: list[Any], bad: dict[int, ElementFailed], without: frozenset[int]) -> BatchItem:
    given = chunk.given
    keys = None if given is None else Block(given.epochs, given.indices, given.lanes)
    return BatchItem(batches, chunk.sizes, keys, chunk.batch_positions, chunk.known_items, chunk.num_replayed, bad, without)


def _bad_items(chunk: Chunk) -> dict[int, list[tuple[int, tuple[int, int, int], LateFailure]]]:
    """Return the items that have a row without an element, as `late` has them: each with the failure of its first such row."""
    out: dict[int, list[tuple[int, tuple[int, int, int], LateFailure]]] = {}
    for row in sorted(chunk.bad_rows):
        item = chunk.item_of(row)
        if item not in out:
            key = chunk.given.key_of(chunk.first_row(item)) if chunk.given is not None else _key_of_batch(chunk, item)
            out[item] = [(0, key, chunk.bad_rows[row])]
    return out


def _key_of_batch(chunk: Chunk, item: int) -> tuple[int, int, int]:
    epochs, positions = chunk.batch_positions[0]
    return int(epochs[item]), int(positions[item]), 0


def join(chunk: Chunk, count: int) -> Result:
    """Put the parts of a chunk without a batch in order, and leave out what lies behind a failure."""
    items: list[Any] = []
    origins: list[int] = []
    blocks: list[Block] = []
    for begin in sorted(chunk.parts):
        block, part = chunk.parts[begin]
        if begin >= count:
            break
        if len(part) and int(part[-1]) >= count:
            keep = int(np.searchsorted(part, count))
            block, part = block.select(slice(0, keep)), part[:keep]
        items.extend(block.rows())
        origins.extend(part.tolist())
        blocks.append(block)
    chunk.parts = {}
    return _with_late(chunk, items, origins, concatenated(blocks), count)


def _with_late(chunk: Chunk, items: list[Any], origins: list[int], block: Block | None, count: int) -> Result:
    """Make the result of a chunk; elements that failed late stand in their places."""
    late = [(row, one) for row in sorted(chunk.late) if row < count for one in reversed(chunk.late[row])]
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
# The folds behind a segment say which elements stand in which batch. Where elements come one to one and may only be left out, it is
# expected that none will be. Else the rows of the chunk go to the folds one by one, and later chunks are cut where batches begin again.


def all_written(plan: SegmentPlan, chunk: Chunk) -> Result | None:
    """Return the result of a chunk that wrote ahead, all of whose wanted rows are done: its batches, where nothing else is to be done.

    None, and nothing is done, if a row is missing, or if some do not fit each other: that is judged where they are counted.
    """
    if chunk.failure is not None or sum(len(rows) for _, rows in chunk.keys.values()) != chunk.num_rows:
        return None
    batches: list[Any] = []
    assert chunk.rows is not None
    if plan.delivers_directly and not chunk.rows.beside:  # rows beside are let go when their batch is made, and the folds may yet want them
        try:
            batches = chunk.rows.finish(chunk.num_rows // chunk.batch_rows_in_place)
        except ElementFailed:
            return None
    chunk.all_in_place = True
    return Result(batches, None, None)


def taken_out(chunk: Chunk) -> dict[int, tuple[Block, Ints]]:
    """Return the parts of a chunk that wrote ahead with their elements, taken out of the batches again."""
    assert chunk.rows is not None
    elements, chunk.rows, chunk.all_in_place = chunk.rows.elements(), None, False
    return {
        begin: (block.with_rows([elements[row] for row in rows]), np.asarray(rows, np.int64)) for begin, (block, rows) in chunk.keys.items()
    }
