"""Declarations: what is taken, what is refused, and what goes into a fingerprint."""

from __future__ import annotations

import json
import pickle
from typing import Any

import numpy as np
import pytest

import penstock as ps
from penstock.errors import PlanError
from penstock.formats.features import check_features, default_of, features_record


@pytest.mark.parametrize("dtype", [np.float32, "float32", np.dtype(np.float32), "<f4"])
def test_dtypes_may_be_named_in_any_way(dtype: Any) -> None:
    assert ps.FixedLenFeature([2], dtype) == ps.FixedLenFeature((2,), "float32")


@pytest.mark.parametrize("dtype", [bytes, str, "bytes", "string", object, np.bytes_])
def test_text_and_bytes_are_bytes(dtype: Any) -> None:
    assert ps.VarLenFeature(dtype).dtype is bytes


def test_a_dtype_of_tensorflow_is_taken_by_what_it_says_it_is() -> None:
    class Like:
        def __init__(self, kind: Any) -> None:
            self.as_numpy_dtype = kind

    assert ps.VarLenFeature(Like(np.int64)).dtype == np.int64
    assert ps.VarLenFeature(Like(np.object_)).dtype is bytes


@pytest.mark.parametrize("dtype", ["float64", "int32", np.uint8, "nonsense", None, 7])
def test_dtypes_that_a_record_cannot_hold_are_refused_with_what_to_do(dtype: Any) -> None:
    with pytest.raises(PlanError, match="none that a record can hold") as caught:
        ps.FixedLenFeature((), dtype)
    assert "convert it in a map" in caught.value.fix


@pytest.mark.parametrize("shape", [3, None, (-1,), (2.5,), ("a",), (1 << 20, 1 << 20)])
def test_shapes_that_are_none_are_refused(shape: Any) -> None:
    with pytest.raises(PlanError, match="is no shape"):
        ps.FixedLenFeature(shape, "int64")


@pytest.mark.parametrize(
    ("shape", "dtype", "default", "flat"),
    [
        ((), "int64", 7, [7]),
        ((2,), "int64", -1, [-1, -1]),
        ((2,), "float32", [1.5, 2.5], [1.5, 2.5]),
        ((2, 1), "float32", np.ones((2, 1)), [1, 1]),
        ((), bytes, b"x", [b"x"]),
        ((2,), bytes, b"", [b"", b""]),
        ((2,), bytes, [b"a", b"bc"], [b"a", b"bc"]),
        ((), "float32", 3, [3]),
        ((), "int64", [5], [5]),
        ((0,), "int64", 1, []),
    ],
)
def test_defaults_are_one_value_or_an_array_of_the_shape(shape: Any, dtype: Any, default: Any, flat: list[Any]) -> None:
    feature = ps.FixedLenFeature(shape, dtype, default)
    found = default_of(feature)
    assert list(found) == flat
    if dtype is not bytes:
        assert found.dtype == np.dtype(dtype)
    assert hash(feature) == hash(ps.FixedLenFeature(shape, dtype, default))


@pytest.mark.parametrize(
    ("shape", "dtype", "default"),
    [
        ((), "int64", 1.5),
        ((), "int64", 2**70),
        ((), "int64", "1"),
        ((), bytes, 1),
        ((3,), "int64", [1, 2]),
        ((), "float32", [[1], [2, 3]]),
    ],
)
def test_defaults_that_do_not_fit_are_refused(shape: Any, dtype: Any, default: Any) -> None:
    with pytest.raises(PlanError, match="default_value"):
        ps.FixedLenFeature(shape, dtype, default)


def test_steps_of_no_values_and_defaults_that_pad_are_refused() -> None:
    with pytest.raises(PlanError, match="number of steps"):
        ps.FixedLenSequenceFeature((0,), "int64")
    with pytest.raises(PlanError, match="padded_batch"):
        ps.FixedLenSequenceFeature((), "int64", default_value=0)


@pytest.mark.parametrize(
    "features", [{}, None, ["a"], {1: ps.VarLenFeature("int64")}, {"a": "int64"}, {"\ud800": ps.VarLenFeature("int64")}]
)
def test_what_is_no_mapping_of_features_is_refused(features: Any) -> None:
    with pytest.raises(PlanError, match="argument 'features'"):
        check_features(features, "read_tfrecord")


def test_the_record_of_features_tells_all_that_differs_and_is_json() -> None:
    several: list[dict[str, Any]] = [
        {"a": ps.FixedLenFeature((), "int64")},
        {"b": ps.FixedLenFeature((), "int64")},
        {"a": ps.FixedLenFeature((), "int64", 0)},
        {"a": ps.FixedLenFeature((), "int64", 1)},
        {"a": ps.FixedLenFeature((1,), "int64")},
        {"a": ps.FixedLenFeature((), "float32")},
        {"a": ps.FixedLenFeature((), "float32", float("nan"))},
        {"a": ps.FixedLenFeature((), bytes, b"\xff")},
        {"a": ps.VarLenFeature("int64")},
        {"a": ps.FixedLenSequenceFeature((), "int64")},
        {"a": ps.FixedLenSequenceFeature((), "int64", allow_missing=True)},
        {"a": ps.VarLenFeature("int64"), "b": ps.VarLenFeature("int64")},
        {"b": ps.VarLenFeature("int64"), "a": ps.VarLenFeature("int64")},
    ]
    records = [json.dumps(features_record(features)) for features in several]
    assert len(set(records)) == len(records)
    assert records == [json.dumps(features_record(pickle.loads(pickle.dumps(features)))) for features in several]
