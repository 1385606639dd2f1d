from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from penstock._ops.block import Block, ElementFailed
from penstock._ops.operator import ChainOp, Leaf
from penstock._ops.reading import BranchesLeaf, Part, ReadLeaf
from penstock._ops.worker import WorkerContext
from penstock._order.arithmetic import grouped
from penstock.sources import ArraySource, IndexableSource

WORKER = WorkerContext(0)


@dataclass(frozen=True, slots=True)
class Turns(BranchesLeaf):
    """Element i comes from branch i modulo their number."""

    branches: tuple[Leaf, ...]

    def parts(self, epochs: Any, positions: Any) -> list[Part]:
        count = len(self.branches)
        return [(branch, offsets, epochs[offsets] + 1, positions[offsets] // count) for branch, offsets in grouped(positions % count)]


class Broken(list[int]):
    """Fails at its last element."""

    def __getitem__(self, index: Any) -> Any:
        if index == len(self) - 1:
            raise OSError(f"element {index}")
        return super().__getitem__(index)


def read(values: Any) -> ChainOp:
    return ChainOp(ReadLeaf(IndexableSource(values), None, None), ())


def columns(values: Any) -> ChainOp:
    source = ArraySource(values)
    return ChainOp(ReadLeaf(source, source, None), ())


def run(leaf: Leaf, positions: list[int]) -> Block:
    return leaf.run(np.zeros(len(positions), np.int64), np.array(positions, np.int64), WORKER)


def test_the_elements_of_all_branches_come_in_the_order_of_the_positions_with_keys_of_their_own() -> None:
    leaf = Turns((read(list("abc")), read(list("xyz"))))
    found = run(leaf, [5, 0, 3, 2])
    assert found.rows() == ["z", "a", "y", "b"]
    assert found.indices.tolist() == [2, 0, 1, 1]
    assert found.epochs.tolist() == [1, 1, 1, 1]
    assert found.lanes.tolist() == [1, 0, 1, 0]
    assert leaf.key(0, 5) == (1, 2)
    assert leaf.where(0, 5) == read(list("xyz")).where(1, 2)


def test_elements_of_any_kind_come_through_as_the_objects_they_are() -> None:
    things: list[Any] = [np.arange(2), np.array(5), [1, 2], (3,), None, "text", {"x": 1}, np.int64(4), [[1], [2]], b""]
    found = run(Turns((read(things[::2]), read(things[1::2]))), list(range(10))).rows()
    assert all(one is other for one, other in zip(found, things, strict=True))


def test_nested_branches_have_lanes_of_their_own() -> None:
    inner = Turns((read(list("ab")), read(list("cd"))))
    found = run(Turns((inner, inner, inner)), list(range(12)))
    keys = set(zip(found.indices.tolist(), found.lanes.tolist(), strict=True))
    assert len(keys) == 12


def test_branches_of_equal_arrays_stay_columns() -> None:
    both = Turns((columns({"x": np.arange(3), "y": np.ones((3, 2))}), columns({"x": np.arange(9), "y": np.zeros((9, 2))})))
    found = run(both, [1, 4, 3])
    assert found.columnar
    assert [column.tolist() for column in found.columns()] == [[0, 2, 1], [[0, 0], [1, 1], [0, 0]]]
    assert [row["x"] for row in found.rows()] == [0, 2, 1]


@pytest.mark.parametrize("other", [np.arange(3, dtype=np.int32), np.ones((3, 2), np.int64), {"x": np.arange(3)}])
def test_branches_of_other_arrays_become_rows(other: Any) -> None:
    found = run(Turns((columns(np.arange(3)), columns(other))), [0, 2, 1])
    assert not found.columnar
    assert len(found.rows()) == 3
    assert found.rows()[:2] == [0, 1]


def test_no_positions_give_an_empty_block() -> None:
    found = run(Turns((read(list("ab")),)), [])
    assert (len(found), found.rows()) == (0, [])


def test_of_several_failures_the_lowest_place_wins() -> None:
    with pytest.raises(ElementFailed) as caught:
        run(Turns((read(Broken([1, 2, 3])), read(Broken([1, 2])))), [0, 4, 1, 3])
    assert (caught.value.offset, caught.value.stage) == (1, "read")
    assert str(caught.value.error) == "element 2"


def test_a_failure_among_columns_that_become_rows_is_counted_in_the_whole() -> None:
    class Torn(ArraySource):
        def gather(self, indices: Any, rows: list[Any]) -> None:
            raise OSError("torn")

    torn = Torn(np.arange(3, dtype=np.int32))
    with pytest.raises(ElementFailed) as caught:
        run(Turns((columns(np.arange(3)), ChainOp(ReadLeaf(torn, torn, None), ()))), [0, 2, 1])
    assert caught.value.offset == 2
