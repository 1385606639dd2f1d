"""The checked calls: what they refuse, and reports of the first bad record in words that name it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from formats.tfrecords import block_of

from fuzz_examples import delimited, varint
from penstock.errors import SpecError
from penstock.kernels.examples import COUNT, FIXED, BadRecord, FeaturePlan, fill_examples, make_plan, parse_examples
from penstock.kernels.wire import BYTES, FLOAT, INT64, WireProblem

PLAN = make_plan([FeaturePlan(b"x", FLOAT, FIXED, 2, None), FeaturePlan(b"y", INT64, FIXED, 1, np.int64(-1).tobytes())])


def entry(name: bytes, kind: int, body: bytes) -> bytes:
    return delimited(1, delimited(1, name) + delimited(2, delimited(kind, body)))


def record(x: list[float] | None = None, y: int | None = None, more: bytes = b"") -> bytes:
    entries = more
    if x is not None:
        entries += entry(b"x", FLOAT, delimited(1, np.array(x, "<f4").tobytes()))
    if y is not None:
        entries += entry(b"y", INT64, delimited(1, varint(y)))
    return delimited(1, entries)


def outs(num: int) -> list[Any]:
    return [np.zeros((num, 2), np.float32), np.zeros(num, np.int64)]


@pytest.mark.parametrize(
    ("bad", "fault", "feature", "found"),
    [
        (record(None, 5), WireProblem.MISSING, 0, 0),
        (record([1, 2, 3]), WireProblem.COUNT, 0, 3),
        (record([]), WireProblem.COUNT, 0, 0),
        (record([1, 2], more=entry(b"y", BYTES, delimited(1, b"a"))), WireProblem.KIND, 1, BYTES),
        (record([1, 2], more=entry(b"y", INT64, b"\x0a\x01\x80")), WireProblem.VARINT, 1, 0),
        (record([1, 2], more=entry(b"y", INT64, b"\x0d\x01\x01\x01\x01")), WireProblem.WIRE, 1, 0),
        (record([1, 2])[:-1], WireProblem.LENGTH, -1, 0),
        (b"\x08\x01", WireProblem.WIRE, -1, 0),
        (varint(9 << 3 | 3) * 100, WireProblem.DEPTH, -1, 0),
    ],
)
def test_the_first_bad_record_is_reported_with_what_is_wrong(bad: bytes, fault: WireProblem, feature: int, found: int) -> None:
    data, starts, lengths = block_of(record([1, 2]), bad, bad)
    report = parse_examples(data, starts, lengths, PLAN, outs(3))
    assert report is not None
    assert (report.row, report.fault, report.feature, report.found) == (1, fault, feature, found)


@pytest.mark.parametrize(("start", "length"), [(-1, 1), (0, -1), (3, 99), (2**62, 2**62), (-(2**63), 2**63 - 1)])
def test_a_record_that_does_not_lie_in_the_buffer_is_reported(start: int, length: int) -> None:
    data, _, _ = block_of(record([1, 2]))
    report = parse_examples(data, np.array([start]), np.array([length]), PLAN, outs(1))
    assert report == BadRecord(0, WireProblem.SPAN, -1, 0, 0)


def test_a_record_that_changed_between_the_calls_is_reported_and_nothing_is_written_behind_its_place() -> None:
    plan = make_plan([FeaturePlan(b"v", INT64, COUNT, 1, b"")])
    data, starts, lengths = block_of(delimited(1, entry(b"v", INT64, delimited(1, b"\x01\x02\x03"))))
    bad, _ = fill_examples(data, starts, lengths, plan, [np.array([1])])
    assert bad is not None
    assert (bad.fault, bad.found) == (WireProblem.COUNT, 3)


def test_many_declared_features_are_found_by_hash() -> None:
    num = 20_000
    plan = make_plan([FeaturePlan(b"%d" % number, INT64, FIXED, 1, None) for number in range(num)])
    body = b"".join(entry(b"%d" % number, INT64, delimited(1, varint(number))) for number in reversed(range(num)))
    data, starts, lengths = block_of(delimited(1, body))
    columns = [np.zeros(1, np.int64) for _ in range(num)]
    assert parse_examples(data, starts, lengths, plan, columns) is None
    assert [int(column[0]) for column in columns] == list(range(num))


def test_columns_of_another_dtype_size_or_layout_are_refused() -> None:
    data, starts, lengths = block_of(record([1, 2]))
    with pytest.raises(SpecError, match="float32"):
        parse_examples(data, starts, lengths, PLAN, [np.zeros((1, 2)), np.zeros(1, np.int64)])
    with pytest.raises(SpecError, match="shape"):
        parse_examples(data, starts, lengths, PLAN, outs(2))
    with pytest.raises(SpecError, match="one block"):
        parse_examples(data, starts, lengths, PLAN, [np.zeros((1, 4), np.float32)[:, ::2], np.zeros(1, np.int64)])
    frozen = outs(1)
    frozen[0].flags.writeable = False
    with pytest.raises(SpecError, match="one block"):
        parse_examples(data, starts, lengths, PLAN, frozen)
    with pytest.raises(SpecError, match="lengths"):
        parse_examples(data, starts, np.zeros(2, np.int64), PLAN, outs(1))
