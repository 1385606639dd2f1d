"""Blocks that were computed in pieces, put together again. Pure."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import Any

import numpy as np

from penstock._engine.unit import Result, Task, Unit
from penstock._ops.block import Block

__all__ = ["concatenated", "join", "joined", "with_late"]


def joined(task: Task, blocks: list[tuple[int, Block]]) -> Block:
    """Put the pieces of a task together for the next stage; rows that were left out show in the origins."""
    if not blocks:
        none = np.empty(0, np.int64)
        out = Block(none, none, none.astype(np.uint64), rows=[])
        out.origins = none
        return out
    if len(blocks) == 1 and blocks[0][0] == task.begin:
        return blocks[0][1]
    together = concatenated([block for _, block in blocks])
    assert together is not None
    origins = [np.arange(len(block), dtype=np.int64) if block.origins is None else block.origins for _, block in blocks]
    together.origins = np.concatenate([part + (begin - task.begin) for part, (begin, _) in zip(origins, blocks, strict=True)])
    return together


def join(unit: Unit, count: int) -> Result:
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
    return with_late(unit, items, origins, concatenated(blocks), count)


def with_late(unit: Unit, items: list[Any], origins: list[int], block: Block | None, count: int) -> Result:
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


def concatenated(blocks: list[Block]) -> Block | None:
    """Put blocks one behind the other, as rows; None for none."""
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
