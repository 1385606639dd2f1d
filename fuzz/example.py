"""Any bytes as tf.train.Example and SequenceExample: elements or a RecordError; the C parser and its twin agree."""

from __future__ import annotations

from typing import Any

import numpy as np
import running

import penstock as ps
from penstock.errors import RecordError
from penstock.kernels import examples
from penstock.kernels.examples import COUNT, FIXED, FeaturePlan, make_plan
from penstock.kernels.library import load_library
from penstock.kernels.wire import BYTES, FLOAT, INT64

FEATURES: dict[str, Any] = {
    "x": ps.FixedLenFeature((2,), "float32", 0),
    "y": ps.VarLenFeature("int64"),
    "z": ps.FixedLenFeature((), bytes, b"none"),
    "s": ps.FixedLenSequenceFeature((2,), "float32", allow_missing=True),
}
LISTS: dict[str, Any] = {"x": ps.FixedLenSequenceFeature((2,), "float32", allow_missing=True), "y": ps.VarLenFeature("int64")}
PLAN = make_plan(
    [
        FeaturePlan(b"x", FLOAT, FIXED, 2, bytes(8)),
        FeaturePlan(b"y", INT64, COUNT, 1, b""),
        FeaturePlan(b"z", BYTES, FIXED, 1, b""),
        FeaturePlan(b"s", FLOAT, COUNT, 2, b""),
    ]
)
LIBRARY = load_library()


def one_input(data: bytes) -> None:
    """Decode the bytes in every way."""
    calls: list[Any] = [
        lambda: ps.decode_example(data),
        lambda: ps.decode_example(data, FEATURES),
        lambda: ps.decode_sequence_example(data),
        lambda: ps.decode_sequence_example(data, {"y": ps.VarLenFeature("int64")}, LISTS),
    ]
    for call in calls:
        try:
            call()
        except RecordError:
            continue
    if LIBRARY is not None:
        assert _parsed(LIBRARY.parse_examples, data) == _parsed(examples.parse_examples_twin, data)


def _parsed(parse: Any, data: bytes) -> list[Any]:
    outs: list[Any] = [np.zeros(2, np.float32), np.zeros(1, np.int64), np.zeros(2, np.int64), np.zeros(1, np.int64)]
    report = np.zeros(4, np.int64)
    buffer = np.frombuffer(data, np.uint8).copy()
    row = parse(buffer, np.zeros(1, np.int64), np.array([len(data)]), PLAN, PLAN.first, outs, None, report)
    return [row, report.tolist(), *(out.tobytes() for out in outs)] if row < 0 else [row, report.tolist()]


if __name__ == "__main__":
    running.run(one_input)
