from __future__ import annotations

from typing import Any, cast

import numpy as np
import pytest

from penstock._ops.block import LEFT_OUT, Block, ElementFailed, EmptyBatch
from penstock._ops.collation import Pad, Stack
from penstock._ops.operator import ChainOp
from penstock._ops.reading import BatchLeaf, ConcatenateLeaf, ReadLeaf, RepeatOp, ShuffleOp, ZipLeaf, rows_at_once
from penstock._ops.worker import WorkerContext
from penstock.errors import SpecError
from penstock.sources import ArraySource, IndexableSource

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


def test_a_source_is_read_at_its_positions_and_gives_the_keys() -> None:
    leaf = ReadLeaf(IndexableSource(list("abcdef")), None, None)
    found = run(leaf, [4, 0], epoch=3)
    assert found.rows() == ["e", "a"]
    assert (found.epochs.tolist(), found.indices.tolist(), found.lanes.tolist()) == ([3, 3], [4, 0], [0, 0])
    assert leaf.key(3, 4) == (3, 4)
    assert "4" in leaf.where(3, 4)
    assert not found.columnar


def test_an_array_source_is_read_by_columns() -> None:
    source = ArraySource(np.arange(9))
    found = run(ReadLeaf(source, source, None), [4, 0])
    assert found.columnar
    assert found.columns()[0].tolist() == [4, 0]


def test_zip_pairs_elements_under_the_key_of_the_first_branch() -> None:
    leaf = ZipLeaf((read(list("abc")), read([10, 20, 30])))
    found = run(leaf, [2, 0], epoch=1)
    assert found.rows() == [("c", 30), ("a", 10)]
    assert found.indices.tolist() == [2, 0]
    assert leaf.key(1, 2) == (1, 2)
    assert " with " in leaf.where(1, 2)
    assert failure(ZipLeaf((read(list("abc")), read(Broken(3, 1)))), [0, 2, 1]).offset == 1


def test_concatenate_gives_the_branches_one_after_the_other_with_keys_of_their_own() -> None:
    leaf = ConcatenateLeaf((read(list("abc")), read(list("xy"))), (3, 2), False)
    found = run(leaf, [4, 0, 3, 2], epoch=2)
    assert found.rows() == ["y", "a", "x", "c"]
    assert found.indices.tolist() == [1, 0, 0, 2]
    assert found.lanes.tolist() == [1, 0, 1, 0]
    assert leaf.key(2, 4) == (2, 1)
    assert leaf.where(2, 4) == read(list("xy")).where(2, 1)


def test_parts_of_one_dataset_share_its_keys() -> None:
    found = run(ConcatenateLeaf((read(list("abc")), read(list("abc"))), (3, 3), True), [1, 4])
    assert found.rows() == ["b", "b"]
    assert found.lanes.tolist() == [0, 0]


def test_of_several_failures_in_a_concatenation_the_lowest_place_wins() -> None:
    leaf = ConcatenateLeaf((read(Broken(3, 2)), read(Broken(5, 1))), (3, 5), False)
    assert failure(leaf, [0, 4, 2]).offset == 1
    assert failure(leaf, [0, 3, 2]).offset == 2
    found = failure(leaf, [3, 0, 5, 2])
    assert (found.offset, found.stage) == (2, "read")
    assert str(found.error) == "element 2 of 5"


def test_an_inner_batch_is_computed_whole() -> None:
    leaf = BatchLeaf(read(range(7)), 7, 3, Stack(), 3, 1)
    found = run(leaf, [2, 0], epoch=1)
    assert [row.tolist() for row in found.rows()] == [[6], [0, 1, 2]]
    assert found.indices.tolist() == [2, 0]
    assert leaf.key(1, 2) == (1, 2)
    assert leaf.where(0, 2) == f"batch 2 (from {read(range(7)).where(0, 6)})"


def test_a_failure_in_an_inner_batch_is_counted_in_batches() -> None:
    assert failure(BatchLeaf(read(Broken(9, 7)), 9, 2, Stack(), 2, 1), [0, 1, 3, 2]).offset == 2
    failed = failure(BatchLeaf(read([1, 2, 3, 4.0]), 4, 2, Stack(), 2, 1), [0, 1])
    assert (failed.offset, failed.stage) == (1, "batch")
    assert isinstance(failed.error, SpecError)
    assert read([1, 2, 3, 4.0]).where(0, 3) in failed.error.where


def mending(bad: set[int]) -> WorkerContext:
    """Return a worker whose policies leave out the elements `bad`."""
    worker = WorkerContext(0)
    worker.mend = lambda child, length, epochs, positions: [LEFT_OUT if place in bad else place for place in positions.tolist()]
    return worker


def test_what_policies_leave_out_is_missing_in_an_inner_batch_and_one_with_nothing_left_is_none() -> None:
    leaf, zeros = BatchLeaf(read(Broken(9, 0)), 9, 3, Stack(), 3, 1), np.zeros(3, np.int64)
    found = leaf.run(zeros, np.array([2, 0, 1]), mending({0, 1, 4}))
    assert [row.tolist() for row in found.rows()] == [[6, 7, 8], [2], [3, 5]]
    with pytest.raises(ElementFailed) as caught:
        leaf.run(zeros, np.array([2, 0, 1]), mending({0, 1, 2, 4}))
    assert (caught.value.offset, caught.value.stage) == (1, "batch")
    assert isinstance(caught.value.error, EmptyBatch)
    assert not caught.value.final


def test_windows_are_batches_that_overlap() -> None:
    leaf = BatchLeaf(read(range(7)), 7, 3, Stack(), 2, 2)
    assert [row.tolist() for row in run(leaf, [1, 3, 0]).rows()] == [[2, 4, 6], [6], [0, 2, 4]]
    assert leaf.where(0, 2) == f"batch 2 (from {read(range(7)).where(0, 4)})"


def test_an_inner_batch_can_be_padded() -> None:
    found = run(BatchLeaf(read([np.ones(1), np.ones(2)]), 2, 2, Pad(None, 5), 2, 1), [0])
    assert found.rows()[0].tolist() == [[1, 5], [1, 1]]


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
