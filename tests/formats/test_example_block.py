"""Blocks of records: columns into given rows, rows of dicts, and the first bad one of a block."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from formats.tfrecords import block_of

import penstock as ps
from penstock._contracts.source import RowFailed
from penstock.errors import RecordError
from penstock.formats.example import ExampleReader

FEATURES: dict[str, Any] = {"x": ps.FixedLenFeature((2, 1), "float32"), "y": ps.FixedLenFeature((), "int64", -1)}


def test_columns_are_written_into_the_rows_that_are_given() -> None:
    reader = ExampleReader(FEATURES)
    assert reader.columnar
    assert reader.leaves() == [((2, 1), np.float32), ((), np.int64)]
    assert reader.structure() == ("dict", ("x", "y"), (None, None))
    batch = [np.zeros((5, 2, 1), np.float32), np.zeros(5, np.int64)]
    block = block_of(ps.encode_example({"x": [1, 2], "y": 5}), ps.encode_example({"x": [3.0, 4.0], "more": "skipped"}))
    with pytest.raises(RowFailed) as caught:
        reader.columns(*block, [column[1:3] for column in batch])
    assert (caught.value.row, "holds int64" in str(caught.value.error)) == (0, True)
    block = block_of(ps.encode_example({"x": [1.0, 2.0], "y": 5}), ps.encode_example({"x": [3.0, 4.0], "more": "skipped"}))
    reader.columns(*block, [column[1:3] for column in batch])
    assert batch[0].reshape(5, 2).tolist() == [[0, 0], [1, 2], [3, 4], [0, 0], [0, 0]]
    assert batch[1].tolist() == [0, 5, -1, 0, 0]


@pytest.mark.parametrize("feature", [ps.FixedLenFeature((), bytes), ps.VarLenFeature("int64"), ps.FixedLenSequenceFeature((), "int64")])
def test_bytes_and_lists_that_vary_have_no_columns(feature: Any) -> None:
    assert not ExampleReader({**FEATURES, "z": feature}).columnar


def test_rows_of_a_block_are_those_of_its_records_one_by_one() -> None:
    features: dict[str, Any] = {
        **FEATURES,
        "b": ps.FixedLenFeature((), bytes, b"none"),
        "v": ps.VarLenFeature("int64"),
        "w": ps.VarLenFeature(bytes),
    }
    reader = pickle.loads(pickle.dumps(ExampleReader(features)))
    rng = np.random.default_rng(0)
    records = []
    for number in range(20):
        element: dict[str, Any] = {
            "x": rng.normal(size=2),
            "v": rng.integers(0, 9, number % 4),
            "w": [b"w" * number] * (number % 3) or np.array([], object),
        }
        records.append(ps.encode_example(element | ({"b": b"%d" % number} if number % 2 else {})))
    rows = reader.rows(*block_of(*records))
    for row, record in zip(rows, records, strict=True):
        alone = ps.decode_example(record, features)
        assert list(row) == list(alone) == list(features)
        assert all(np.array_equal(row[name], alone[name]) and type(row[name]) is type(alone[name]) for name in features)
    assert reader.rows(*block_of()) == []
    assert rows[1]["b"] == b"1"
    assert rows[0]["b"] == b"none"


def test_the_first_bad_record_is_named_in_both_calls() -> None:
    reader = ExampleReader({"v": ps.VarLenFeature("int64")})
    good, bad = ps.encode_example({"v": [1, 2]}), ps.encode_example({"v": [1.0]})
    with pytest.raises(RowFailed) as caught:
        reader.rows(*block_of(good, good, bad, bad))
    assert caught.value.row == 2
    assert isinstance(caught.value.error, RecordError)
