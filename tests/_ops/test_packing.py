from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock._ops.collation import pack_rows, places_in_use, sequence_length
from penstock.errors import SpecError

LENGTHS = st.lists(st.integers(1, 6), min_size=1, max_size=5)


def tokens(number: int, length: int) -> Any:
    return np.arange(length, dtype=np.uint16) + 100 * number


@given(LENGTHS, st.integers(0, 5), st.integers(-9, 9))
def test_a_row_holds_its_sequences_one_after_the_other_and_says_where_each_begins(lengths: list[int], room: int, padding: int) -> None:
    size = sum(lengths) + room
    values = tuple(
        {"x": tokens(number, length).astype(np.int64), "y": -tokens(number, length).astype(float)} for number, length in enumerate(lengths)
    )
    row = pack_rows(size, padding, "segment")(values, None)
    assert places_in_use(row) == (sum(lengths), size)
    assert row["x"].tolist() == [int(token) for value in values for token in value["x"]] + [padding] * room
    assert row["y"].tolist() == [float(token) for value in values for token in value["y"]] + [padding] * room
    assert row["segment_ids"].tolist() == [1 + number for number, length in enumerate(lengths) for _ in range(length)] + [0] * room
    assert row["positions"].tolist() == [place for length in lengths for place in range(length)] + [0] * room
    assert {name: array.dtype for name, array in row.items()} == {
        "x": np.int64,
        "y": np.float64,
        "segment_ids": np.int32,
        "positions": np.int32,
    }


@pytest.mark.parametrize(
    ("element", "words"),
    [
        ([[1, 2, 3]], "an array int64[1, 3] cannot be packed"),
        (["a"], "a list cannot be packed"),
        ([[1], [2, 3]], "a list of lists of different lengths, which is no array cannot be packed"),
        ({"a": [1, 2**63]}, "a dict of a: a list with 9223372036854775808, which does not fit int64 cannot be packed"),
        (7, "a int cannot be packed"),
        (np.zeros((2, 3), np.float32), "an array float32[2, 3] cannot be packed"),
        (np.float64(3), "a float64 cannot be packed"),
        ({}, "a dict of nothing cannot be packed"),
        ({"a": np.zeros(2, np.int8), "b": np.zeros(3, np.int8)}, "a dict of a: an array int8[2], b: an array int8[3] cannot be packed"),
        ({"a": np.zeros(2, np.int8), "b": (1, 2)}, "a dict of a: an array int8[2], b: a tuple cannot be packed"),
        ({"positions": np.zeros(2, np.int8)}, "a dict of positions: an array int8[2] cannot be packed"),
        ({"a": np.zeros(2), "segment_ids": np.zeros(2)}, "segment_ids: an array float64[2] cannot be packed"),
        ({"a": np.zeros(2), "b": "a text"}, "a dict of a: an array float64[2], b: a str cannot be packed"),
        ({"a": np.zeros(2), "b": np.array("a")}, "b: an array <U1[] cannot be packed"),
        ({"a": np.zeros(2), "b": np.ma.masked_array(1.0)}, "b: a masked array float64[] cannot be packed"),
        ({"a": 1, "b": 2.5}, "a dict of a: a int, b: a float cannot be packed"),
        (np.ma.masked_array([1.0, 2.0], [True, False]), "a masked array float64[2] cannot be packed"),
        ({"a": np.ma.masked_array(np.zeros(2, np.int8))}, "a dict of a: a masked array int8[2] cannot be packed"),
    ],
)
def test_what_is_no_sequence_is_refused(element: Any, words: str) -> None:
    with pytest.raises(SpecError) as caught:
        sequence_length(element)
    assert words in caught.value.what
    assert caught.value.where == "pack_sequences()"
    assert caught.value.fix == (
        "give one array of one dimension, or a dict of such arrays of equal lengths and of numbers "
        "(none masked, none named segment_ids or positions), and leave texts and other fields out in a map before"
    )


@pytest.mark.parametrize(
    ("other", "words"),
    [
        ({"a": np.zeros(2, np.int32)}, "a int64 and a int32"),
        ({"b": np.zeros(2, np.int64)}, "a int64 and b int64"),
        (np.zeros(2, np.int64), "a int64 and tokens int64"),
    ],
)
def test_sequences_of_one_row_have_the_same_fields_and_dtypes(other: Any, words: str) -> None:
    with pytest.raises(SpecError) as caught:
        pack_rows(8, 0, "segment")(({"a": np.zeros(2, np.int64)}, other), None)
    assert caught.value.what == f"sequences of one row differ: {words}"
    assert caught.value.where == "pack_sequences()"
    assert caught.value.fix == "give all sequences the same fields and dtypes before pack_sequences"


def test_each_field_is_padded_with_what_its_dtype_holds() -> None:
    values = {"ids": np.ones(1, np.int8), "words": np.array(["a"]), "mask": np.ones(1, bool), "more": np.ones(1, np.int8)}
    row = pack_rows(2, 0, "segment")((values,), None)
    assert {name: row[name].tolist() for name in values} == {"ids": [1, 0], "words": ["a", ""], "mask": [True, False], "more": [1, 0]}
    for value, field in ((0.5, "ids int8"), (np.int64(300), "ids int8"), ("7", "ids int8"), (7, "words <U1")):
        given = {name: values[name] for name in (["words"] if "words" in field else ["ids"])}
        with pytest.raises(SpecError) as caught:
            pack_rows(2, value, "segment")((given,), None)
        assert caught.value.what == f"padding_value={value!r} does not fit {field}"
    row = pack_rows(2, {"ids": -100}, "segment")((values,), None)
    assert (row["ids"].tolist(), row["more"].tolist()) == ([1, -100], [1, 0])
    with pytest.raises(SpecError, match="padding_value names 'id', and the sequences have ids int8, words"):
        pack_rows(2, {"id": -100}, "segment")((values,), None)
    full = pack_rows(2, -1, "segment")((np.ones(2, np.uint16),), None)
    assert full["tokens"].tolist() == [1, 1]


@pytest.mark.parametrize(("positions", "places"), [("segment", [0, 1, 0, 0]), ("document", [1, 2, 0, 0])])
def test_a_number_is_that_of_each_token_of_its_sequence_and_positions_of_a_part_may_be_those_in_it(positions: str, places: Any) -> None:
    values = tuple({"a": tokens(number, 3), "w": weight, "n": np.array(number, np.int8)} for number, weight in enumerate((0.5, 2)))
    with pytest.raises(SpecError, match="w float64, n int8 and a uint16, w int64"):
        pack_rows(4, -1, positions)(values, [(1, 3), (0, 1)])
    row = pack_rows(4, 7, positions)((values[0], {**values[1], "w": 2.0}), [(1, 3), (0, 1)])
    assert (row["w"].tolist(), row["n"].tolist(), row["n"].dtype) == ([0.5, 0.5, 2, 7], [0, 0, 1, 7], np.int8)
    assert row["positions"].tolist() == places
