"""The twin against what a random generator wrote; that the C gives the same is in test_examples_native.py."""

from __future__ import annotations

import numpy as np

from fuzz_examples import delimited, varint
from penstock.kernels import examples
from penstock.kernels.examples import COUNT, FIXED, FeaturePlan, make_plan
from penstock.kernels.wire import BYTES, FLOAT, INT64

PLAN = make_plan(
    [FeaturePlan(b"x", FLOAT, FIXED, 2, None), FeaturePlan(b"y", INT64, COUNT, 1, b""), FeaturePlan(b"z", BYTES, FIXED, 1, b"")]
)


def entry(name: bytes, kind: int, body: bytes) -> bytes:
    return delimited(1, delimited(1, name) + delimited(2, delimited(kind, body)))


def test_both_calls_fill_the_columns_of_a_block() -> None:
    first = entry(b"x", FLOAT, delimited(1, np.array([1, 2], "<f4").tobytes())) + entry(b"z", BYTES, delimited(1, b"hello"))
    second = entry(b"y", INT64, delimited(1, varint(7) + varint(300))) + entry(b"x", FLOAT, delimited(1, np.array([3, 4], "<f4").tobytes()))
    records = [delimited(1, first), delimited(1, second)]
    data = np.frombuffer(b"".join(records), np.uint8)
    lengths = np.array([len(record) for record in records])
    starts, report = np.cumsum(lengths) - lengths, np.zeros(4, np.int64)
    outs = [np.zeros(4, np.float32), np.zeros(2, np.int64), np.zeros(4, np.int64)]
    assert examples.parse_examples_twin(data, starts, lengths, PLAN, PLAN.first, outs, None, report) == -1
    assert outs[0].tolist() == [1, 2, 3, 4]
    assert outs[1].tolist() == [0, 2]
    begin, length, default, zero = outs[2].tolist()
    assert data[begin : begin + length].tobytes() == b"hello"
    assert (default, zero) == (-1, 0)
    offsets = [np.zeros(1, np.int64), np.array([0, 0, 2]), np.zeros(1, np.int64)]
    filled = [outs[0], np.zeros(2, np.int64), outs[2]]
    assert examples.parse_examples_twin(data, starts, lengths, PLAN, PLAN.second, filled, offsets, report) == -1
    assert filled[1].tolist() == [7, 300]
