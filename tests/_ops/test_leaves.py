from __future__ import annotations

from typing import Any, cast

import numpy as np
import pytest

from penstock._ops.block import Block, ElementFailed
from penstock._ops.collation import Stack
from penstock._ops.operator import ChainOp
from penstock._ops.reading import BatchLeaf, ConcatenateLeaf, ReadLeaf, RepeatOp, ShuffleOp, ZipLeaf, rows_at_once
from penstock._ops.worker import WorkerContext
from penstock.errors import SpecError
from penstock.sources import IndexableSource

WORKER = WorkerContext(0)


class Broken:
    """Reads 0..num-1, but not the elements from `bad` on."""

    def __init__(self, num: int, bad: int) -> None:
        self.num, self.bad = num, bad

    def __len__(self) -> int:
        return self.num

    def __getitem__(self, index: int) -> int:
        if index >= self.bad:
            raise OSError(f"element {index} of {self.num}")
        return index


def read(values: Any) -> ChainOp:
    return ChainOp(ReadLeaf(IndexableSource(values), None, None), ())


def run(leaf: Any, positions: list[int], epoch: int = 0) -> Block:
    found: Block = leaf.run(np.full(len(positions), epoch), np.array(positions, np.int64), WORKER)
    return found


def failure(leaf: Any, positions: list[int]) -> ElementFailed:
    with pytest.raises(ElementFailed) as caught:
        run(leaf, positions).rows()
    return caught.value


def test_of_several_failures_in_a_concatenation_the_lowest_place_wins() -> None:
    leaf = ConcatenateLeaf((read(Broken(3, 2)), read(Broken(5, 1))), (3, 5), False)
    assert failure(leaf, [0, 4, 2]).offset == 1
    assert failure(leaf, [0, 3, 2]).offset == 2
    found = failure(leaf, [3, 0, 5, 2])
    assert (found.offset, found.stage) == (2, "read")
    assert str(found.error) == "element 2 of 5"


def test_a_failure_in_an_inner_batch_is_counted_in_batches() -> None:
    assert failure(BatchLeaf(read(Broken(9, 7)), 9, 2, Stack(), 2, 1), [0, 1, 3, 2]).offset == 2
    failed = failure(BatchLeaf(read([1, 2, 3, 4.0]), 4, 2, Stack(), 2, 1), [0, 1])
    assert (failed.offset, failed.stage) == (1, "batch")
    assert isinstance(failed.error, SpecError)
    assert read([1, 2, 3, 4.0]).where(0, 3) in failed.error.where


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


class _Distant:
    """Says how much should be asked for at once."""

    rows_at_once = 64

    def __len__(self) -> int:
        return 4

    def gather(self, indices: Any, rows: Any) -> None:
        rows.extend(indices)

    def describe(self, index: int) -> str:
        return f"number {index}"

    def fingerprint(self) -> dict[str, Any]:
        return {}

    def label(self) -> str:
        return "far away"


def test_the_most_distant_branch_says_how_much_is_asked_for_at_once() -> None:
    far = ReadLeaf(_Distant(), None, None)
    near = ReadLeaf(cast(Any, range(4)), None, None)
    assert rows_at_once(far) == 64
    assert rows_at_once(near) == 1
    assert rows_at_once(ChainOp(far, ())) == 64
    assert rows_at_once(ZipLeaf((near, ChainOp(far, ())))) == 64
