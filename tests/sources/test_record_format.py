from __future__ import annotations

import numpy as np

from penstock.formats.index import Index, joined
from penstock.sources.records import RecordTable


def index_of(offsets: list[int]) -> Index:
    columns = {"offsets": np.array(offsets, np.int64), "lengths": np.ones(len(offsets), np.uint32)}
    return Index(kind="k", options={}, size=100, crc32c=0, columns=columns)


def table() -> RecordTable:
    names = ["dir/a", "dir/b", "dir/c"]
    return RecordTable(indices=joined([index_of([0, 10]), index_of([]), index_of([5])], names), names=names)


def test_a_record_is_placed_behind_a_file_without_any() -> None:
    assert [table().place(index) for index in range(3)] == [(0, 0), (0, 1), (2, 0)]
    assert table().describe(2, "line") == "line 0 of 'dir/c', offset 5"
