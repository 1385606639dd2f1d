from __future__ import annotations

import numpy as np
import pytest

from penstock.errors import RecordError
from penstock.formats.index import Index
from penstock.sources.record_format import RecordTable, join


def index_of(offsets: list[int], **own: list[int]) -> Index:
    columns = {"offsets": np.array(offsets, np.int64), "lengths": np.ones(len(offsets), np.uint32)}
    columns |= {key: np.array(value) for key, value in own.items()}
    return Index(kind="k", options={}, size=100, crc32c=0, columns=columns)


def joined() -> RecordTable:
    return join([index_of([0, 10], file_notes=[7]), index_of([]), index_of([5], file_notes=[8, 9])], ["dir/a", "dir/b", "dir/c"])


def test_columns_are_joined_and_those_of_a_file_stay_with_it() -> None:
    table = joined()
    assert table.starts.tolist() == [0, 2, 2, 3]
    assert table.columns["offsets"].tolist() == [0, 10, 5]
    assert sorted(table.columns) == ["lengths", "offsets"]
    assert [{key: value.tolist() for key, value in index.columns.items()} for index in table.indices] == [
        {"file_notes": [7]},
        {},
        {"file_notes": [8, 9]},
    ]


def test_a_record_is_placed_behind_a_file_without_any() -> None:
    assert [joined().place(index) for index in range(3)] == [(0, 0), (0, 1), (2, 0)]
    assert joined().describe(2, "line") == "line 0 of 'dir/c', offset 5"


def test_indices_with_other_columns_cannot_be_joined() -> None:
    with pytest.raises(RecordError) as caught:
        join([index_of([1], own=[1]), index_of([1])], ["a", "b"])
    assert "'b' has no column 'own'" in caught.value.what
