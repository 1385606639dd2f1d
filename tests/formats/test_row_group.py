from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from formats.tables import everything

from penstock.errors import RecordError
from penstock.formats.arrow import ColumnForm, Fixed, RowGroup, Stored, columns_of, row_group


def group_of(table: Any, **null_values: Any) -> RowGroup:
    return row_group(table, columns_of(table.schema, None, "a"), null_values)


def plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, (np.ndarray, np.generic)) else value


def test_numbers_are_views_of_arrows_memory_that_cannot_be_written_to() -> None:
    column = pa.array(np.arange(1000.0))
    (values,) = group_of(pa.table({"x": column})).values
    assert isinstance(values, Fixed)
    assert values.array.__array_interface__["data"][0] == column.buffers()[1].address
    assert not values.array.flags.writeable


@pytest.mark.parametrize(
    "array",
    [
        pa.array([1, None, 3]),
        pa.array(["a", None, "c"]),
        pa.array([[1], [None, 4], []], pa.list_(pa.int8())),
        pa.array([[1, 2], [None, 5], [3, 4]], pa.list_(pa.int8(), 2)),
        pa.array([None, None, None], pa.string()).dictionary_encode(),
    ],
)
def test_a_null_is_told_with_its_row_and_column(array: Any) -> None:
    group = group_of(pa.table({"fine": [1, 2, 3], "x": array}))
    assert group.null_at(np.array([1])) == (0, "x")
    if array.null_count < 3:
        assert group.null_at(np.array([2, 0])) is None
        assert group.null_at(np.array([2, 0, 1])) == (2, "x")


def test_words_of_a_dictionary_are_there_once_however_many_rows_have_them() -> None:
    word = "x" * 1_000_000
    codes = pa.array(np.zeros(100_000, np.int32))
    (values,) = group_of(pa.table({"x": pa.DictionaryArray.from_arrays(codes, pa.array([word, "y"]))})).values
    assert isinstance(values, Stored)
    assert values.nbytes < 4_000_000
    taken = values.take(np.arange(5000))
    assert taken[0] == word
    assert all(other is taken[0] for other in taken)


def test_many_different_words_are_made_when_they_are_asked_for() -> None:
    words = [f"word {number}" for number in range(10_000)]
    (values,) = group_of(pa.table({"x": pa.array(words).dictionary_encode()})).values
    assert values.take(np.array([9_999, 3, 3])) == ["word 9999", "word 3", "word 3"]
    (values,) = group_of(pa.table({"x": words})).values
    assert isinstance(values, Stored)
    assert values.take(np.array([9_999, 3, 3])) == ["word 9999", "word 3", "word 3"]


def test_ragged_values_do_not_hold_the_group() -> None:
    (values,) = group_of(pa.table({"x": pa.array([[1, 2], [3]])})).values
    taken = values.take(np.array([0, 1]))
    assert all(row.base is None for row in taken)


def test_an_empty_table_has_no_values() -> None:
    group = group_of(everything(3).slice(0, 0))
    assert [values.take(np.empty(0, np.int64)) for values in group.values] == [[]] * len(group.columns)


def test_a_column_that_is_not_what_it_should_be_is_an_error() -> None:
    with pytest.raises(RecordError, match=r"the column 'x' is int64\[\], and float32\[\] by its schema"):
        row_group(pa.table({"x": [1]}), [ColumnForm("x", "array", (), "<f4")], {})
