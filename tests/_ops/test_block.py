from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from penstock._contracts.source import RowFailed
from penstock._contracts.transform import Scratch
from penstock._ops.block import Block, ElementFailed
from penstock.errors import LengthMismatch
from penstock.sources import ArraySource, FilesSource, IndexableSource

COLUMNS = {"x": np.arange(20).reshape(10, 2), "y": np.arange(10) * 1.5}


def block(indices: Sequence[int], **content: Any) -> Block:
    return Block(np.zeros(len(indices), np.int64), np.array(indices, np.int64), np.zeros(len(indices), np.uint64), **content)


def of_arrays(indices: Sequence[int]) -> Block:
    source = ArraySource(COLUMNS)
    return block(indices, source=source, column_source=source)


class Broken:
    def __len__(self) -> int:
        return 10

    def __getitem__(self, index: int) -> int:
        if index >= 7:
            raise OSError(f"element {index} is gone")
        return index


def test_rows_are_read_when_they_are_asked_for_and_only_once() -> None:
    read = []

    class Counting(Broken):
        def __getitem__(self, index: int) -> int:
            read.append(index)
            return index

    lazy = block([3, 1], source=IndexableSource(Counting()))
    assert (len(lazy), read) == (2, [])
    assert lazy.rows() == [3, 1]
    assert lazy.rows() is lazy.rows()
    assert read == [3, 1]


def test_a_failed_read_says_which_element_it_was() -> None:
    with pytest.raises(ElementFailed) as caught:
        block([1, 2, 8, 3], source=IndexableSource(Broken())).rows()
    assert (caught.value.offset, caught.value.stage) == (2, "read")
    assert isinstance(caught.value.error, OSError)
    assert "element 8 is gone" in str(caught.value.error)
    moved = caught.value.moved(9)
    assert (moved.offset, moved.stage, moved.error) == (9, "read", caught.value.error)


@pytest.mark.parametrize(("given", "offset"), [(0, 0), (2, 2), (4, 2)])
def test_a_source_that_gives_another_number_of_elements_than_it_is_asked_for_is_refused(given: int, offset: int) -> None:
    class Miscounting(ArraySource):
        def gather(self, indices: Sequence[int], rows: list[Any]) -> None:
            rows.extend([0] * given)

    with pytest.raises(ElementFailed) as caught:
        block([1, 2, 3], source=Miscounting(COLUMNS)).rows()
    assert (caught.value.offset, type(caught.value.error)) == (offset, LengthMismatch)
    assert f"asked for 3 elements at once and gave {given}" in str(caught.value.error)


def test_columns_of_an_array_source_are_gathered_at_once_and_into_given_arrays() -> None:
    lazy = of_arrays([4, 0, 4])
    assert lazy.columnar
    assert lazy.leaf_types() == [((2,), np.dtype("int64")), ((), np.dtype("float64"))]
    assert [column.tolist() for column in lazy.columns()] == [[[8, 9], [0, 1], [8, 9]], [6.0, 0.0, 6.0]]
    out = [np.empty((3, 2), np.int64), np.empty(3)]
    assert lazy.columns(out)[0] is out[0]
    assert out[1].tolist() == [6.0, 0.0, 6.0]


@pytest.mark.parametrize("tree", [COLUMNS, np.arange(10), (np.arange(10), {"z": np.arange(10)}), [np.arange(10)]])
def test_rows_and_columns_of_one_block_hold_the_same(tree: Any) -> None:
    source = ArraySource(tree)
    lazy = block([5, 2], source=source, column_source=source)
    split = block([5, 2], columns=(lazy.structure(), lazy.columns()))
    assert repr(split.rows()) == repr(lazy.rows())
    assert repr(block([5, 2], columns=(lazy.structure(), lazy.columns())).first()) == repr(split.rows()[0])
    assert repr(block([5, 2], source=source, column_source=source).first()) == repr(split.rows()[0])


@pytest.mark.parametrize("offsets", [slice(1, 3), np.array([1, 2])])
def test_a_part_keeps_the_keys_of_its_elements(offsets: Any) -> None:
    whole = Block(np.array([0, 0, 1]), np.array([5, 6, 7]), np.array([1, 2, 3], np.uint64), rows=["a", "b", "c"])
    part = whole.select(offsets)
    assert part.rows() == ["b", "c"]
    assert (part.epochs.tolist(), part.indices.tolist(), part.lanes.tolist()) == ([0, 1], [6, 7], [2, 3])
    again = whole.with_rows(["x", "y", "z"])
    assert again.rows() == ["x", "y", "z"]
    assert again.lanes is whole.lanes


def test_a_block_tells_how_far_it_is_read_and_iterated() -> None:
    seen: list[Any] = []

    class Watched(Broken):
        def __getitem__(self, index: int) -> int:
            seen.append((lazy.begun, lazy.reading))
            return index

    lazy = block([3, 1, 4], source=IndexableSource(Watched()))
    assert (lazy.begun, lazy.reading) == (None, False)
    lazy.rows()
    assert seen == [(0, True), (1, True), (2, True)]
    assert (lazy.begun, lazy.reading) == (None, False)
    assert [(row, lazy.begun) for row in lazy.each()] == [(3, 0), (1, 1), (4, 2)]
    assert (lazy.begun, lazy.reading) == (2, False)


def test_a_block_of_elements_in_working_memory_tells_which_was_read_last(tmp_path: Any) -> None:
    for number in range(2):
        (tmp_path / f"{number}.bin").write_bytes(b"x" * number)
    source = FilesSource(str(tmp_path / "*.bin"))
    files = block([0, 1], source=source, transient=source)
    files.read_transient(1, Scratch())
    assert (files.begun, files.reading) == (1, False)


class FailingColumns(ArraySource):
    """Columns of which some rows cannot be read; says which, or not."""

    def __init__(self, bad: set[int], named: bool) -> None:
        super().__init__(COLUMNS)
        self.bad, self.named = bad, named

    def gather_columns(self, indices: Any, out: Any) -> Any:
        rows = [row for row, index in enumerate(indices.tolist()) if index in self.bad]
        if rows and self.named:
            raise RowFailed(rows[0], OSError("gone"))
        if rows:
            raise OSError("gone")
        return super().gather_columns(indices, out)


@pytest.mark.parametrize("named", [True, False])
def test_a_column_source_that_fails_says_which_row_it_was_or_that_it_does_not_know(named: bool) -> None:
    source = FailingColumns({5, 6}, named)
    with pytest.raises(ElementFailed) as caught:
        block([1, 2, 6, 5], source=source, column_source=source).columns()
    failed = caught.value
    assert (failed.stage, failed.offset, failed.whole) == ("read", 2 if named else 0, not named)
    assert type(failed.error) is OSError
    assert failed.__cause__ is failed.error


def test_a_column_source_that_names_a_row_behind_the_block_is_taken_to_mean_the_last_one() -> None:
    class Wrong(ArraySource):
        def gather_columns(self, indices: Any, out: Any) -> Any:
            raise RowFailed(99, OSError("gone"))

    source = Wrong(COLUMNS)
    with pytest.raises(ElementFailed) as caught:
        block([1, 2], source=source, column_source=source).columns()
    assert caught.value.offset == 1
