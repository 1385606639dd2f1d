"""Elements to records and back, with features and without."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as ps
from fuzz_examples import damaged, delimited, random_example
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
    data = ps.encode_example(
        {"image": np.arange(6.0), "label": 3, "raw": b"abc", "names": ["a", "b"], "steps": np.arange(4), "ids": [7, 8]}
    )
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
        ({"label": ps.FixedLenFeature((2,), "int64")}, r"'label' has 1 values, and is declared as FixedLenFeature\(shape=\(2,\)"),
        (
            {"ids": ps.FixedLenSequenceFeature((2,), "int64")},
            r"'ids' has 3 values, and is declared as FixedLenSequenceF",
        ),
    ],
)
def test_a_record_that_is_not_what_was_declared_is_an_error_with_the_feature(features: Any, match: str) -> None:
    data = ps.encode_example({"label": 3, "raw": b"abc", "ids": [1, 2, 3]})
    with pytest.raises(RecordError, match=match) as caught:
        ps.decode_example(data, features)
    assert "feature '" in caught.value.where
    assert ("correct its name" in caught.value.fix) == ("gone" in features)


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
        except RecordError:
            continue


def test_an_empty_record_has_no_features() -> None:
    assert ps.decode_example(b"") == {}
    assert ps.decode_example(b"", {"y": ps.FixedLenFeature((), "int64", 5)}) == {"y": 5}


GOLDEN = Path(__file__).parents[1] / "golden" / "example"
WRITTEN: dict[str, Any] = {
    "ints": np.array([0, 1, -1, 127, 128, 2**63 - 1, -(2**63)]),
    "floats": np.array([0.0, -0.0, 1.5, 3.4e38, np.inf, -np.inf, 1e-45], np.float32),
    "bytes": [b"", b"a", b"\x80\x04\xff"],
    "no ints": np.array([], np.int64),
    "no floats": np.array([], np.float32),
    "no bytes": np.array([], object),
    "größe": np.array([7]),
}


def test_records_of_tensorflow_are_read() -> None:
    found = ps.decode_example((GOLDEN / "example.bin").read_bytes())
    assert found.keys() == WRITTEN.keys(), "a feature without a kind is left out"
    for name, value in WRITTEN.items():
        assert list(found[name]) == list(value), name
    assert np.signbit(found["floats"]).tolist() == np.signbit(WRITTEN["floats"]).tolist()
    context, lists = ps.decode_sequence_example((GOLDEN / "sequence.bin").read_bytes())
    assert context["id"].tolist() == [5]
    assert [step.tolist() for step in lists["frames"]] == [[1, 2], [3, 4]]
    assert (lists["words"], lists["none"]) == ([[b"a"], [b"b", b"c"]], [])


def test_the_bytes_are_those_of_tensorflow() -> None:
    without_a_kind = delimited(1, delimited(1, b"nothing") + delimited(2, b""))
    golden = (GOLDEN / "example.bin").read_bytes()
    assert without_a_kind in golden
    features = golden[3:].replace(without_a_kind, b"")
    assert ps.encode_example(WRITTEN) == delimited(1, features)
    lists = {"frames": [[1.0, 2.0], [3.0, 4.0]], "words": [["a"], ["b", "c"]], "none": []}
    assert ps.encode_sequence_example({"id": 5}, lists) == (GOLDEN / "sequence.bin").read_bytes()
    assert ps.encode_example({}) == (GOLDEN / "empty.bin").read_bytes()
