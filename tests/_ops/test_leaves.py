from __future__ import annotations

from typing import Any

import numpy as np

from penstock._ops.block import Block
from penstock._ops.collation import Stack
from penstock._ops.operator import ChainOp
from penstock._ops.reading import BatchLeaf, ConcatenateLeaf, ReadLeaf, RepeatOp, ShuffleOp, ZipLeaf
from penstock._ops.worker import WorkerContext
from penstock.sources import IndexableSource

WORKER = WorkerContext(0)


def read(values: Any) -> ChainOp:
    return ChainOp(ReadLeaf(IndexableSource(values), None, None), ())


def run(leaf: Any, positions: list[int], epoch: int = 0) -> Block:
    found: Block = leaf.run(np.full(len(positions), epoch), np.array(positions, np.int64), WORKER)
    return found


def test_every_leaf_tells_the_keys_of_its_elements_without_computing_them() -> None:
    letters, more = read(list("abcd")), read(list("xy"))
    two = ConcatenateLeaf((letters, more), (4, 2), parts_of_one=False)
    nested = ChainOp(ConcatenateLeaf((ChainOp(two, ()), more), (6, 2), parts_of_one=False), (ShuffleOp(8, None, 1, True), RepeatOp(8, 2)))
    leaves: list[tuple[Any, int]] = [
        (letters, 4),
        (ZipLeaf((more, letters)), 2),
        (two, 6),
        (ConcatenateLeaf((letters, more), (4, 2), parts_of_one=True), 6),
        (BatchLeaf(letters, 4, 3, Stack(), 3, 1), 2),
        (nested, 16),
    ]
    for leaf, count in leaves:
        for epoch in (0, 3):
            positions = np.arange(count)[::-1].copy()
            block = run(leaf, positions.tolist(), epoch)
            found = leaf.keys(np.full(count, epoch), positions)
            assert [column.tolist() for column in found] == [block.epochs.tolist(), block.indices.tolist(), block.lanes.tolist()]
