from __future__ import annotations

import enum
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

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

PLAIN = ["?", "u1", "<i2", ">i2", ">i8", "<u8", "<f2", ">f2", "<f4", ">f8", "<c8", ">c16", "<M8[ns]", ">M8[s]", "<m8[ms]", "V5"]
STRUCTURED = [[("x", "<i4"), ("y", ">f8")], [("name", "S3"), ("box", "<f4", (2, 2))]]
DTYPES = [np.dtype(kind) for kind in (*PLAIN, *STRUCTURED)]


@st.composite
def arrays(draw: Any, dtype: np.dtype[Any], shape: tuple[int, ...]) -> np.ndarray:
    """Draw an array of any bytes, in one of several layouts: plain, Fortran order, every second row, mirrored, read-only."""
    size = dtype.itemsize * int(np.prod(shape, dtype=int))
    raw = np.frombuffer(draw(st.binary(min_size=size, max_size=size)), np.uint8).copy()
    array = (raw & 1 if dtype.kind == "b" else raw).view(dtype).reshape(shape)
    match draw(st.sampled_from(["plain", "fortran", "strided", "mirrored", "readonly"])):
        case "fortran":
            array = np.asfortranarray(array).reshape(shape)
        case "strided" if array.ndim:
            wide = np.empty((2 * shape[0], *shape[1:]), dtype)
            wide[::2] = array
            array = wide[::2]
        case "mirrored" if array.ndim:
            array = array[::-1].copy()[::-1]
        case "readonly":
            array.flags.writeable = False
    return array


SHAPES = hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4)


@given(st.sampled_from(DTYPES), SHAPES, st.integers(1, 5), st.sampled_from(["source", "arrays"]), st.data())
def test_every_byte_survives_the_whole_way_through_a_feed(
    dtype: np.dtype[Any], shape: tuple[int, ...], size: int, kind: str, data: st.DataObject
) -> None:
    rows = [data.draw(arrays(dtype, shape)) for _ in range(size)]
    if kind == "source":
        dataset = ps.from_source(rows)
    else:
        whole = np.empty((size, *shape), dtype)
        for place, row in enumerate(rows):
            whole[place] = row
        dataset = ps.from_arrays(whole)
        if not shape:  # its elements are NumPy scalars, which have the byte order of the machine
            rows = list(whole)
            dtype = rows[0].dtype
    with dataset.batch(3).feed(executor="inline") as feed:
        batches = list(feed)
    assert all(batch.dtype == dtype for batch in batches)
    assert b"".join(batch.tobytes() for batch in batches) == b"".join(row.tobytes() for row in rows)


@given(st.lists(st.text(max_size=30), min_size=1, max_size=6))
def test_strings_are_never_cut(texts: list[str]) -> None:
    for rows in (texts, [np.str_(text) for text in texts]):
        batch = stack_rows(list(rows), name)
        assert batch.dtype == object
        assert batch.tolist() == rows
    arrays_of = [np.array([text, "x"]) for text in texts]
    assert stack_rows(list(arrays_of), name).tolist() == [array.tolist() for array in arrays_of]
    with ps.from_source(texts).batch(4).feed(executor="inline") as feed:
        assert [text for batch in feed for text in batch] == texts


@given(st.lists(st.binary(max_size=30), min_size=1, max_size=6))
def test_bytes_are_never_cut_nor_stripped_of_their_zeros(values: list[bytes]) -> None:
    assert stack_rows(list(values), name).tolist() == values
    assert stack_rows([{"data": value + b"\0"} for value in values], name)["data"].tolist() == [value + b"\0" for value in values]
    with ps.from_source(values).batch(4).feed(executor="inline") as feed:
        assert [value for batch in feed for value in batch] == values


# -- what cannot stand in one batch ---------------------------------------------------------------------------------------------------


def test_two_shapes_in_one_batch_are_refused_with_both_elements_and_shapes() -> None:
    error = refused([np.zeros((3, 224, 224), "u1"), np.zeros((3, 224, 224), "u1"), np.zeros((1, 224, 224), "u1")])
    assert error.what == "two elements of one batch differ: the element is uint8[3, 224, 224] in one and uint8[1, 224, 224] in the other"
    assert error.where == "stage 'batch', element number 0 and element number 2"
    assert "resize, crop, cast" in error.fix
    assert "padded_batch" in error.fix


@pytest.mark.parametrize(
    ("one", "other", "words"),
    [
        (np.float32(1), np.float64(1), "float32[] in one and float64[] in the other"),
        (1, 1.0, "int64[] in one and float64[] in the other"),
        (1, True, "int64[] in one and bool[] in the other"),
        (1, "one", "int64[] in one and object[] in the other"),
        (np.zeros(2, "<i4"), np.zeros(2, ">i4"), "int32[2] in one and >i4[2] in the other"),
        (np.datetime64(1, "s"), np.datetime64(1, "ns"), "datetime64[s][] in one and datetime64[ns][] in the other"),
    ],
)
def test_a_change_of_dtype_is_refused_and_nothing_is_promoted(one: Any, other: Any, words: str) -> None:
    for rows in ([one, other], [one, one, one, other]):
        error = refused([{"x": row} for row in rows])
        assert "two elements of one batch differ: ['x'] is " in error.what
        assert words in error.what
        assert f"number 0 and element number {len(rows) - 1}" in error.where
        dataset = ps.from_source(rows).batch(len(rows))
        with dataset.feed(executor="inline") as feed, pytest.raises(SpecError) as caught:
            next(feed)
        assert "differ" in caught.value.what


@pytest.mark.parametrize(
    ("one", "other", "words"),
    [
        ({"x": 1}, {"y": 1}, "the structure is {'x': array} in one and {'y': array} in the other"),
        ({"x": 1}, {"x": 1, "y": 2}, "{'x': array} in one and {'x': array, 'y': array} in the other"),
        ((1, 2), [1, 2], "(array, array) in one and array in the other"),
        (("a", "b"), ["a", "b"], "(array, array) in one and [array, array] in the other"),
        ((1, 2), (1, 2, 3), "(array, array) in one and (array, array, array) in the other"),
        ({"x": (1,)}, {"x": 1}, "{'x': (array)} in one and {'x': array} in the other"),
        (5, {"x": 5}, "array in one and {'x': array} in the other"),
    ],
)
def test_two_structures_in_one_batch_are_refused(one: Any, other: Any, words: str) -> None:
    assert words in refused([one, other]).what


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


class Colour(enum.Enum):
    RED = 1


@pytest.mark.parametrize(
    "value", [None, {1}, object(), Colour.RED, bytearray(b"x"), memoryview(b"x"), range(3), 1 << 3 == 8 and (lambda: 0)]
)
def test_what_has_no_place_in_a_batch_is_refused_with_its_type_and_field(value: Any) -> None:
    for rows in ([{"label": value}], [{"label": "text"}, {"label": value}]):
        error = refused(rows)
        assert error.what == f"['label'] is a {type(value).__name__}, which cannot stand in a batch"
        assert error.where == f"stage 'batch', element number {len(rows) - 1}"
        assert "drop or convert this field in a map before batch" in error.fix


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


@pytest.mark.parametrize("place", [0, 5])
def test_masks_are_not_lost_in_a_batch(place: int) -> None:
    rows: list[Any] = [{"m": np.ones(3)} for _ in range(8)]
    rows[place] = {"m": np.ma.masked_array([1.0, 2.0, 3.0], [0, 1, 0])}
    with pytest.raises(SpecError, match=r"\['m'\] is a MaskedArray, which cannot stand in a batch"):
        next(iter(ps.from_source(rows).batch(8)))
