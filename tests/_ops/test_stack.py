from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as ps
from penstock._contracts.element import map_leaves, structure_of
from penstock._ops.stack import BatchSpec, stack_rows
from penstock.errors import SpecError


def name(row: int) -> str:
    return f"number {row}"


def spec(element: Any) -> BatchSpec:
    return BatchSpec(element, lambda: name(0))


def refused(rows: list[Any]) -> SpecError:
    with pytest.raises(SpecError) as caught:
        stack_rows(rows, name)
    return caught.value


# -- bytes in, the same bytes out -----------------------------------------------------------------------------------------------------


@given(st.lists(st.binary(max_size=30), min_size=1, max_size=6))
def test_bytes_are_never_cut_nor_stripped_of_their_zeros(values: list[bytes]) -> None:
    assert stack_rows(list(values), name).tolist() == values
    assert stack_rows([{"data": value + b"\0"} for value in values], name)["data"].tolist() == [value + b"\0" for value in values]
    with ps.from_source(values).batch(4).feed(executor="inline") as feed:
        assert [value for batch in feed for value in batch] == values


@pytest.mark.parametrize("operator", ["batch", "padded_batch", "ragged_batch"])
def test_of_an_array_without_dimensions_its_text_stands_in_a_batch(operator: str) -> None:
    batch = getattr(ps.from_source([{"name": np.array(text)} for text in ("", "bb")]), operator)(2)[0]
    assert list(map(type, batch["name"])) == [str, str]


# -- what cannot stand in one batch ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [2**63, -(2**63) - 1, 10**40])
@pytest.mark.parametrize("rows", [[None], [None, 1], [1, None], [1, 2, None, 3]])
def test_an_int_beyond_64_bits_is_refused_as_that_element_alone(number: int, rows: list[Any]) -> None:
    place = rows.index(None)
    for wrap, words in (
        (lambda x: x, f"the element = {number} does not fit int64"),
        (lambda x: {"x": x}, f"['x'] = {number} does not fit int64"),
        (lambda x: {"x": (x, 5)}, f"['x'][0] = {number} does not fit int64"),
        (lambda x: {"x": [5, x]}, f"['x'] is a list with {number}, which does not fit int64"),
    ):
        error = refused([wrap(number if row is None else row) for row in rows])
        assert error.what == words
        assert error.where == f"stage 'batch', element number {place}"
        assert "np.uint64 or np.float64" in error.fix
    assert refused([1 << 20_000]).what == "the element = an int of 20001 bits does not fit int64"
    assert spec(1).difference(number) == f"the element = {number} does not fit int64"


def test_two_dtypes_are_refused_with_the_cast_that_makes_them_one() -> None:
    error = refused([{"ids": [1, 2]}, {"ids": [1, 2]}, {"ids": [1.5, 2]}])
    assert error.what == "two elements of one batch differ: ['ids'] is int64[2] in one and float64[2] in the other"
    assert error.where == "stage 'batch', element number 0 and element number 2"
    assert error.fix == "make them equal before batch: cast to one dtype in a map, such as np.asarray(value, np.float64)"
    assert refused(["a", 1]).fix == "make them equal before batch: cast to one dtype in a map"


# -- one spec -------------------------------------------------------------------------------------------------------------------------


class Point(NamedTuple):
    x: Any
    y: Any


NESTED = [
    ({"id": 1, "t": [1, "2"]}, {"t": [3, "4"], "id": 2}),
    ({"a": {"x": 1, "y": 2.0}, "b": 3}, {"b": 6, "a": {"y": 5.0, "x": 4}}),
    ([{"x": 1, "y": 2}], [{"y": 4, "x": 3}]),
    (({"x": 1, "y": 2}, 0), ({"y": 4, "x": 3}, 0)),
    (Point({"x": 1, "y": 2}, 0), Point({"y": 4, "x": 3}, 0)),
    ({"a": {}, "b": [{"x": "s", "y": (1, {"p": 2, "q": 3})}]}, {"b": [{"y": (4, {"q": 6, "p": 5}), "x": "t"}], "a": {}}),
]


@pytest.mark.parametrize("rows", NESTED)
def test_the_order_of_keys_does_not_matter_at_any_depth(rows: tuple[Any, Any]) -> None:
    one, other = rows
    batch = stack_rows([one, other, one], name)
    assert structure_of(batch) == structure_of(one)
    for place, row in enumerate((one, other, one)):
        assert map_leaves(lambda column, place=place: column[place].item() if column.dtype != object else column[place], batch) == row
    assert spec(one).difference(other) is None
    with ps.from_source([one, other] * 3).batch(3).feed(executor="inline") as feed:
        assert [structure_of(item) for item in feed] == [structure_of(one), structure_of(other)]  # that of its first element
