"""Elements to records and back, with features and without."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from fuzz_examples import damaged, delimited, random_example
from hypothesis import given
from hypothesis import strategies as st

import penstock as ps
from penstock.errors import PlanError, RecordError

NAMES = st.text("abz/ äß", max_size=4)
VALUES = st.one_of(
    st.lists(st.integers(-(2**63), 2**63 - 1), max_size=12).map(lambda values: np.array(values, np.int64)),
    st.lists(st.floats(width=32), max_size=12).map(lambda values: np.array(values, np.float32)),
    st.lists(st.binary(max_size=5), max_size=5).map(lambda values: np.array([*values, None], object)[:-1]),
)


@given(st.dictionaries(NAMES, VALUES, max_size=5))
def test_what_was_written_is_read(element: dict[str, Any]) -> None:
    data = ps.encode_example(element)
    found = ps.decode_example(data)
    assert found.keys() == element.keys()
    for name, value in element.items():
        if value.dtype == object:
            assert found[name] == value.tolist()
        else:
            assert (found[name].dtype, found[name].tobytes()) == (value.dtype, value.tobytes())
    features = {name: ps.VarLenFeature(bytes if value.dtype == object else value.dtype) for name, value in element.items()}
    if features:
        declared = ps.decode_example(data, features)
        assert list(declared) == list(features)
        assert all(declared[name].tolist() == found_list(found[name]) or np.isnan(found[name]).any() for name in features)


def found_list(value: Any) -> list[Any]:
    values: list[Any] = value if isinstance(value, list) else value.tolist()
    return values


def test_declared_features_have_the_declared_shapes() -> None:
    data = ps.encode_example({"image": np.arange(6.0), "label": 3, "raw": b"abc", "names": ["a", "b"], "steps": np.arange(4), "ids": [7, 8]})
    element = ps.decode_example(
        data,
        {
            "label": ps.FixedLenFeature((), "int64"),
            "image": ps.FixedLenFeature((2, 3), "float32"),
            "raw": ps.FixedLenFeature((), bytes),
            "names": ps.FixedLenFeature((2, 1), bytes),
            "steps": ps.FixedLenSequenceFeature((2,), "int64"),
            "ids": ps.VarLenFeature("int64"),
            "none": ps.VarLenFeature(bytes),
            "default": ps.FixedLenFeature((2,), bytes, [b"x", b"yz"]),
            "number": ps.FixedLenFeature((2,), "float32", 1.5),
            "no steps": ps.FixedLenSequenceFeature((3,), "float32", allow_missing=True),
        },
    )
    assert list(element)[:3] == ["label", "image", "raw"]
    assert type(element["label"]) is np.int64
    assert element["image"].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert element["raw"] == b"abc"
    assert (element["names"].shape, element["names"].tolist()) == ((2, 1), [[b"a"], [b"b"]])
    assert element["steps"].tolist() == [[0, 1], [2, 3]]
    assert element["ids"].tolist() == [7, 8]
    assert (element["none"].dtype, element["none"].shape) == (np.dtype(object), (0,))
    assert element["default"].tolist() == [b"x", b"yz"]
    assert element["number"].tolist() == [1.5, 1.5]
    assert element["no steps"].shape == (0, 3)


@pytest.mark.parametrize(
    ("features", "match"),
    [
        ({"gone": ps.FixedLenFeature((), "int64")}, "the record has no feature 'gone'"),
        ({"gone": ps.FixedLenSequenceFeature((), "int64")}, "the record has no feature 'gone'"),
        ({"label": ps.FixedLenFeature((), "float32")}, "'label' holds int64 and is declared float32"),
        ({"raw": ps.VarLenFeature("int64")}, "'raw' holds bytes and is declared int64"),
        ({"label": ps.FixedLenFeature((2,), "int64")}, r"'label' has 1 values, and its shape \(2,\) says otherwise"),
        ({"ids": ps.FixedLenSequenceFeature((2,), "int64")}, r"'ids' has 3 values, and its steps have shape \(2,\)"),
    ],
)
def test_a_record_that_is_not_what_was_declared_is_an_error_with_the_feature(features: Any, match: str) -> None:
    data = ps.encode_example({"label": 3, "raw": b"abc", "ids": [1, 2, 3]})
    with pytest.raises(RecordError, match=match) as caught:
        ps.decode_example(data, features)
    assert "feature '" in caught.value.where


def test_the_map_function_takes_raw_records_and_elements_of_read_tfrecord() -> None:
    parse = ps.parse_example({"y": ps.FixedLenFeature((), "int64")})
    data = ps.encode_example({"y": 4})
    assert [parse(one)["y"] for one in (data, bytearray(data), memoryview(data), {"record": data})] == [4] * 4
    assert pickle.loads(pickle.dumps(parse))(data) == {"y": 4}
    assert repr(parse) == "parse_example(y)"
    assert [element["y"] for element in ps.from_source([data] * 3).map(parse)] == [4] * 3
    for wrong in ("text", {"data": data}, 5):
        with pytest.raises(PlanError, match="parse_example got"):
            parse(wrong)
    with pytest.raises(PlanError, match="features is empty"):
        ps.parse_example({})


@pytest.mark.parametrize(
    ("data", "match", "where"),
    [
        (b"\xff", "cut off", "byte 0"),
        (b"\x0a\x05", "a length does not fit", "byte 1"),
        (delimited(1, delimited(1, delimited(1, b"\xff\xfe") + delimited(2, delimited(3, b"")))), "is no UTF-8", "byte 4"),
        (delimited(1, delimited(1, delimited(1, b"label") + delimited(2, b"\x1a\x7f"))), "a length does not fit", "feature 'label'"),
    ],
)
def test_bytes_that_are_no_example_are_an_error_with_the_place(data: bytes, match: str, where: str) -> None:
    with pytest.raises(RecordError, match=match) as caught:
        ps.decode_example(data)
    assert where in caught.value.where


@given(st.integers(0, 2**32))
def test_damaged_records_give_elements_or_the_documented_error(seed: int) -> None:
    rng = np.random.default_rng(seed)
    data = damaged(rng, random_example(rng))
    for features in (None, {"a": ps.VarLenFeature("int64"), "label": ps.FixedLenFeature((), "float32", 0)}):
        try:
            ps.decode_example(data, features)
        except RecordError as error:
            assert error.where
            assert error.fix


def test_an_empty_record_has_no_features() -> None:
    assert ps.decode_example(b"") == {}
    assert ps.decode_example(b"", {"y": ps.FixedLenFeature((), "int64", 5)}) == {"y": 5}
