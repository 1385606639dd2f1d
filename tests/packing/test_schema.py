"""Which fields elements have."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import penstock as ps
from penstock.errors import SpecError
from penstock.packing.schema import NoSchema, Schema, columns_of, fields_of, schema_of


def test_fields_of_nested_elements_have_names() -> None:
    assert fields_of({"a": 1, "b": {"c": (2, 3)}}) == {"a": 1, "b/c/0": 2, "b/c/1": 3}
    assert fields_of((4, [5])) == {"0": 4, "1/0": 5}
    assert fields_of(6) == {"value": 6}


@pytest.mark.parametrize(
    ("element", "words"),
    [({}, "has no fields"), ({1: 2}, "the field name 1 is no text"), ({"a": {"b": 1}, "a/b": 2}, "two fields have the name 'a/b'")],
)
def test_fields_that_cannot_be_named_are_an_error(element: object, words: str) -> None:
    with pytest.raises(SpecError) as caught:
        fields_of(element)
    assert words in str(caught.value)


def test_a_schema_has_kinds_and_dtypes_and_leaves_open_what_differs() -> None:
    elements = [
        {"n": n, "s": "x", "b": b"x", "i": np.zeros((2, n, 3), ">u2"), "f": 0.5, "t": np.True_, "m": memoryview(b"x")} for n in (1, 2)
    ]
    schema = schema_of(elements)
    assert [field.type_words() for field in schema.fields] == ["int64", "str", "bytes", "uint16[2, None, 3]", "float64", "bool", "bytes"]
    written = columns_of(schema, "parquet", schema.values(elements[0]))
    assert Schema.from_json(written.as_json()) == written


@pytest.mark.parametrize(
    "record",
    [
        [{"name": "a", "kind": "thing"}],
        [{"name": "a", "kind": "array", "dtype": "O"}],
        [{"name": "a", "kind": "array", "dtype": "<i4", "shape": [-1]}],
        [{"name": "a", "kind": "str", "stored": "pickle"}],
    ],
)
def test_a_record_that_is_no_schema_is_refused(record: object) -> None:
    with pytest.raises(NoSchema):
        Schema.from_json(record)


@pytest.mark.parametrize("value", [None, {1, 2}, np.array(["a"]), np.array([None]), np.datetime64("2020-01-01")])
def test_what_no_format_holds_is_an_error(value: object) -> None:
    with pytest.raises(SpecError, match="field 'odd' is a"):
        schema_of([{"odd": value}])


@pytest.mark.parametrize("value", [np.ma.masked_array([1.0, 2.0], [0, 1]), np.ma.masked, np.ma.masked_array([1.0])])
def test_masks_are_not_dropped_without_a_word(value: object) -> None:
    with pytest.raises(SpecError, match="field 'm' is a masked array") as caught:
        schema_of([{"m": value}])
    assert "value.filled(0)" in caught.value.fix
    with pytest.raises(SpecError, match="masked array"):
        schema_of([{"m": np.zeros(2)}]).values({"m": value})


@pytest.mark.parametrize("empty", [[], (), {}])
def test_empty_fields_are_not_dropped_without_a_word(empty: object) -> None:
    for element in ({"k": 1, "f": empty}, {"k": 1, "f": {"g": empty}}, [1, empty]):
        with pytest.raises(SpecError, match=f"is an empty {type(empty).__name__}, of which nothing would be written"):
            schema_of([element])


def test_fields_may_come_in_any_order_and_are_written_in_that_of_the_first() -> None:
    schema = schema_of([{"a": 1, "b": {"c": b"x", "d": 2.0}}, {"b": {"d": 3.0, "c": b"y"}, "a": 2}])
    assert [field.name for field in schema.fields] == ["a", "b/c", "b/d"]
    a, c, d = schema.values({"b": {"d": 4.0, "c": b"z"}, "a": 5})
    assert (int(a), c, float(d)) == (5, b"z", 4.0)


def test_lists_of_different_lengths_are_an_error_that_says_how_to_make_arrays_of_them() -> None:
    with pytest.raises(SpecError, match="has the fields id, tags/0, tags/1; the sample has the fields id, tags/0") as caught:
        schema_of([{"id": 1, "tags": [1]}]).values({"id": 2, "tags": [1, 2]})
    assert "np.asarray(values, dtype)" in caught.value.fix


def test_the_fields_are_those_of_the_kind_that_is_there_most_often() -> None:
    elements = [{"t": None}, {"t": "a"}, {"t": 1}, {"t": 2}, {"t": "b"}, {"t": "c", "u": 1}]
    assert [field.type_words() for field in schema_of(elements).fields] == ["str"]
    with pytest.raises(SpecError, match="field 't' is a NoneType"):
        schema_of([{"t": None}, {"t": {1}}])


def test_values_come_checked_in_the_order_of_the_fields() -> None:
    schema = schema_of([{"x": np.zeros((2, 3), np.int32), "v": np.zeros(3), "b": b"", "n": 1}])
    array = np.arange(6, dtype=">i4").reshape(3, 2).T
    x, v, b, n = schema.values({"x": array, "v": np.ones(5), "b": bytearray(b"abc"), "n": np.int64(7)})
    assert np.array_equal(x, array)
    assert x.flags.c_contiguous
    assert x.dtype == np.dtype("<i4")
    assert v.shape == (5,)
    assert (b, type(b)) == (b"abc", bytes)
    assert (n.shape, int(n)) == ((), 7)


@pytest.mark.parametrize(
    ("element", "words"),
    [
        ({"y": 1}, "the element has the fields y; the sample has the fields x"),
        ({"x": np.zeros((2, 4))}, "field 'x' is float64[2, 4]; the sample had float64[2, 3]"),
        ({"x": np.zeros((2, 3), np.float32)}, "field 'x' is float32[2, 3]"),
        ({"x": "text"}, "field 'x' is str"),
    ],
)
def test_an_element_unlike_the_sample_is_an_error_that_says_how_to_declare_it(element: object, words: str) -> None:
    with pytest.raises(SpecError) as caught:
        schema_of([{"x": np.zeros((2, 3))}]).values(element)
    assert words in str(caught.value)


class Mine(dict[str, Any]):
    """A dict that is looked at closely."""


VALUES: list[Any] = [
    *(
        1,
        -(1 << 63),
        (1 << 63) - 1,
        1 << 63,
        True,
        np.int64(4),
        np.int32(4),
        np.array(5),
        np.array([5]),
        0.5,
        "x",
        "\u00f6",
        "\ud800",
        b"x",
    ),
    *(bytearray(b"x"), memoryview(b"x"), None, {}, {"a": 1}, [1, 2], np.zeros((2, 3)), np.zeros((2, 3), ">f8"), np.zeros((3, 2)).T),
    *(np.zeros((2, 4)), np.ma.masked_array([1, 2], [True, False]), np.zeros((2, 3), "<f4"), np.array(["x"]), np.zeros(0), np.zeros(2)),
]


@pytest.mark.parametrize("usual", [7, "text", b"bytes", np.zeros((2, 3)), np.zeros(3), 0.5, True, np.uint8(3)], ids=repr)
def test_a_plain_dict_is_checked_as_closely_as_any_other_element(usual: object) -> None:
    schema = schema_of([{"field": usual, "n": 1}])
    for value in VALUES:
        told = []
        for element in ({"field": value, "n": 1}, Mine(field=value, n=1)):
            try:
                found = schema.values(element)
                told.append(
                    [(type(one), getattr(one, "dtype", None), getattr(one, "shape", None), np.asarray(one).tolist()) for one in found]
                )
            except SpecError as error:
                told.append(str(error))
        assert told[0] == told[1], value
    for element in ({"field": usual}, {"field": usual, "m": 1}, {"field": usual, "n": 1, "m": 2}):
        with pytest.raises(SpecError, match="the sample has the fields field, n"):
            schema.values(element)


def test_a_single_value_is_no_dict_with_a_field_of_its_name() -> None:
    single, dictionary = schema_of([1]), schema_of([{"value": 1}])
    assert [schema.fields[0].single for schema in (single, dictionary)] == [True, False]
    assert single != dictionary
    with pytest.raises(SpecError, match="the element has the fields value; the sample is a single value"):
        single.values({"value": 1})


@pytest.mark.parametrize(
    ("element", "words"),
    [
        ({"name": "a\udcff.jpg"}, "the text of field 'name' is no Unicode text"),
        ({"a\udcff": 1}, "is no Unicode text"),
        ({"n": 2**70}, "field 'n' is 1180591620717411303424, which int64 does not hold"),
        ({"n": -(2**63) - 1}, "which int64 does not hold"),
    ],
)
def test_texts_and_numbers_that_no_format_holds_are_told(element: dict[str, Any], words: str) -> None:
    with pytest.raises(SpecError) as caught:
        schema_of([element])
    assert words in str(caught.value)
    good = schema_of([{name: type(value)() for name, value in element.items()}]) if words != "is no Unicode text" else None
    if good is not None:
        with pytest.raises(SpecError) as caught:
            good.values(element)
        assert words in str(caught.value)
    assert schema_of([{"n": 2**63 - 1, "é": "é"}]).values({"n": -(2**63), "é": "ü"})


def test_sizes_that_are_declared_open_are_open() -> None:
    elements = [{"x": np.zeros((2, 3, 3)), "y": (np.zeros((2, 2)),), "n": 1}]
    declared = {"x": ps.ArraySpec((None, None, 3), "float64"), "y": (ps.ArraySpec((2, None), "float64"),), "n": ps.ArraySpec((), "int64")}
    assert [field.type_words() for field in schema_of(elements, declared).fields] == ["float64[None, None, 3]", "float64[2, None]", "int64"]
    for other in ({}, {"x": ps.ArraySpec((None,), "float64")}, {"z": ps.ArraySpec((), "int64")}):
        assert schema_of(elements, other) == schema_of(elements)


def test_the_specs_of_a_schema_are_those_of_a_dataset() -> None:
    ds = ps.from_arrays({"a": np.zeros((3, 2, 4), np.uint8)})
    assert [field.type_words() for field in schema_of([ds[0]]).fields] == [repr(ds.spec()["a"])]


def test_the_length_of_a_vector_is_open_even_where_the_sample_had_one() -> None:
    schema = schema_of([{"v": np.zeros(4, np.uint8), "m": np.zeros((4, 2), np.uint8)}])
    assert [field.type_words() for field in schema.fields] == ["uint8[None]", "uint8[4, 2]"]
    assert schema.values({"v": np.ones(6, np.uint8), "m": np.zeros((4, 2), np.uint8)})[0].shape == (6,)
