"""Values to bytes: what becomes which list, deterministic, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as ps
from fuzz_examples import delimited, varint
from penstock.errors import SpecError
from penstock.formats.features import _varints


@given(st.lists(st.integers(0, 2**64 - 1), max_size=40))
def test_many_numbers_at_once_are_encoded_as_one_by_one(values: list[int]) -> None:
    assert _varints(np.array(values, np.uint64)) == b"".join(map(varint, values))


def test_the_bytes_are_those_of_the_format_with_names_in_order() -> None:
    one = delimited(1, delimited(1, b"a") + delimited(2, delimited(3, delimited(1, b"\x05"))))
    two = delimited(1, delimited(1, "ö".encode()) + delimited(2, delimited(2, delimited(1, np.float32(1.5).tobytes()))))
    assert ps.encode_example({"ö": 1.5, "a": 5}) == ps.encode_example({"a": 5, "ö": 1.5}) == delimited(1, one + two)
    assert ps.encode_example({}) == b"\x0a\x00"


@pytest.mark.parametrize(
    ("value", "found"),
    [
        (True, [1]),
        (np.uint8(200), [200]),
        ([1, -1], [1, -1]),
        (range(3), [0, 1, 2]),
        (np.array([[1, 2], [3, 4]]).T, [1, 3, 2, 4]),
        (np.arange(100) - 50, list(range(-50, 50))),
        (np.array([], np.int32), []),
        (0.5, [0.5]),
        (np.array([1, 2], np.float16), [1, 2]),
        (np.array([1e300]), [np.inf]),
        (b"a", [b"a"]),
        ("ä", ["ä".encode()]),
        ([b"a", "b", bytearray(b"c"), memoryview(b"d")], [b"a", b"b", b"c", b"d"]),
        (np.array(["x", "yy"]), [b"x", b"yy"]),
        (np.array([b"x", b"yy"], object), [b"x", b"yy"]),
        (np.array([], object), []),
        ([np.arange(2), np.arange(2)], [0, 1, 0, 1]),
        ([["a\0", b"b\0"], [bytearray(b"cd"), memoryview(b"e")]], [b"a\0", b"b\0", b"cd", b"e"]),
    ],
)
def test_values_come_back_flat(value: Any, found: list[Any]) -> None:
    assert list(ps.decode_example(ps.encode_example({"v": value}))["v"]) == found


@pytest.mark.parametrize(
    ("value", "match"),
    [
        (None, "NoneType"),
        ([], "empty list"),
        ([[1], [2, 3]], "ragged"),
        (2**63, "does not fit int64"),
        (np.array([2**63], np.uint64), "does not fit int64"),
        (1j, "complex128"),
        (np.datetime64("2026-01-01"), "datetime64"),
        (["a", 1], "int, str have no place in one list"),
        ("\ud800", "UTF-8"),
        ({"a": 1}, "dict have no place"),
    ],
)
def test_what_no_list_can_hold_is_refused_with_its_name(value: Any, match: str) -> None:
    with pytest.raises(SpecError, match=match) as caught:
        ps.encode_example({"good": 1, "v": value})
    assert "'v'" in caught.value.where


FEATURES: dict[str, Any] = {
    "x": ps.FixedLenFeature((2,), "float32"),
    "y": ps.FixedLenFeature((), "int64", 0),
    "v": ps.VarLenFeature(bytes),
    "s": ps.FixedLenSequenceFeature((2,), "int64", allow_missing=True),
}


def test_declared_features_are_written_with_their_kinds() -> None:
    data = ps.encode_example({"x": [1, 2], "v": [], "s": np.arange(4).reshape(2, 2)}, FEATURES)
    assert {name: list(value) for name, value in ps.decode_example(data).items()} == {"x": [1, 2], "v": [], "s": [0, 1, 2, 3]}


@pytest.mark.parametrize(
    ("element", "match"),
    [
        ({"x": [1.0]}, "1 items"),
        ({"x": ["a", "b"]}, "declared float32"),
        ({"y": 1}, "has no 'x'"),
        ({"x": [1, 2], "y": 1.5}, "declared int64"),
        ({"x": [1, 2], "s": [1]}, "1 items"),
        ({"x": [1, 2], "z": 1}, "features does not name"),
        ({"x": [1, 2], 3: 1}, "no str"),
        ([1], "not a dict"),
    ],
)
def test_an_element_that_is_not_what_was_declared_is_refused(element: Any, match: str) -> None:
    with pytest.raises(SpecError, match=match):
        ps.encode_example(element, FEATURES)
    with pytest.raises(SpecError, match="has no 's'"):
        ps.encode_example({}, {"s": ps.FixedLenSequenceFeature((), "int64")})


@pytest.mark.parametrize(
    ("feature", "value", "match"),
    [
        (ps.FixedLenFeature((2, 3), "float32"), np.zeros((3, 2)), r"shape \(3, 2\), and is declared with shape \(2, 3\)"),
        (ps.FixedLenFeature((2, 1, 3), "int64"), [[1, 2], [3, 4], [5, 6]], r"shape \(3, 2\)"),
        (ps.FixedLenSequenceFeature((3,), "int64"), np.arange(6).reshape(3, 2), "for a step"),
    ],
)
def test_a_value_with_dimensions_has_those_that_were_declared(feature: Any, value: Any, match: str) -> None:
    with pytest.raises(SpecError, match=match) as caught:
        ps.encode_example({"a": value}, {"a": feature})
    assert "'a'" in caught.value.where


@pytest.mark.parametrize(
    ("shape", "value"), [((6,), [[1, 2, 3], [4, 5, 6]]), ((2, 3), [[[1, 2, 3], [4, 5, 6]]]), ((1, 6), [[1], [2], [3], [4], [5], [6]])]
)
def test_a_flat_declaration_and_axes_of_one_take_the_items_in_their_order(shape: tuple[int, ...], value: Any) -> None:
    features = {"a": ps.FixedLenFeature(shape, "int64")}
    assert ps.decode_example(ps.encode_example({"a": value}, features), features)["a"].reshape(-1).tolist() == [1, 2, 3, 4, 5, 6]


def test_the_items_of_a_declared_shape_may_come_flat() -> None:
    features = {"a": ps.FixedLenFeature((2, 3), "float32"), "b": ps.FixedLenSequenceFeature((2,), "int64")}
    decoded = ps.decode_example(ps.encode_example({"a": range(6), "b": [1, 2, 3, 4]}, features), features)
    assert decoded["a"].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert decoded["b"].tolist() == [[1, 2], [3, 4]]
    assert ps.decode_example(ps.encode_example({"a": [[]]}, {"a": ps.VarLenFeature("int64")}))["a"].tolist() == []


@pytest.mark.parametrize(("name", "match"), [("\ud800", "is no UTF-8"), (3, "is no str")])
def test_a_name_that_cannot_be_written_is_refused(name: Any, match: str) -> None:
    with pytest.raises(SpecError, match=match) as caught:
        ps.encode_example({name: 1})
    assert caught.value.where == "encode_example, argument 'element'"
