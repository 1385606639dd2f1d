"""The wire format, read in Python: fields, and every kind of bytes that is none."""

from __future__ import annotations

import pytest

from fuzz_examples import delimited, varint
from penstock.kernels.wire import MAX_DEPTH, WireFault, WireProblem, fields, varints

KNOWN = {1: (2,), 2: (0, 2), 3: (5,)}


def group(number: int, inside: bytes) -> bytes:
    return varint(number << 3 | 3) + inside + varint(number << 3 | 4)


def test_known_fields_come_in_order_and_others_are_skipped() -> None:
    unknown = varint(9 << 3) + varint(2**64 - 1) + varint(9 << 3 | 1) + bytes(8) + group(8, varint(7 << 3 | 5) + bytes(4) + group(6, b""))
    data = delimited(1, b"ab") + unknown + varint(2 << 3) + varint(300) + delimited(12, b"xyz") + varint(3 << 3 | 5) + b"abcd"
    found = [(field.number, field.wire, data[field.begin : field.end], field.value) for field in fields(data, 0, len(data), KNOWN)]
    assert found == [(1, 2, b"ab", 0), (2, 0, varint(300), 300), (3, 5, b"abcd", 0)]


@pytest.mark.parametrize("value", [0, 1, 127, 128, 300, 2**32, 2**63 - 1, 2**64 - 1])
def test_numbers_come_back(value: int) -> None:
    data = varint(value) + varint(5)
    assert list(varints(data, 0, len(data))) == [value, 5]


def test_of_the_tenth_byte_of_a_number_one_bit_counts() -> None:
    assert list(varints(b"\xff" * 9 + b"\x7f", 0, 10)) == [2**64 - 1]


@pytest.mark.parametrize(
    ("data", "fault", "at"),
    [
        (b"\x80", WireProblem.VARINT, 0),
        (b"\x0a\x80", WireProblem.VARINT, 1),
        (b"\x0a" + b"\x80" * 10 + b"\x00", WireProblem.VARINT, 1),
        (b"\x00", WireProblem.TAG, 0),
        (b"\x07", WireProblem.TAG, 0),
        (varint(1 << 32), WireProblem.TAG, 0),
        (b"\x4c", WireProblem.TAG, 0),
        (b"\x4e", WireProblem.TAG, 0),
        (b"\x4f", WireProblem.TAG, 0),
        (b"\x0a\x02x", WireProblem.LENGTH, 1),
        (b"\x0a" + varint(2**63) + b"x", WireProblem.LENGTH, 1),
        (b"\x49abcdefg", WireProblem.LENGTH, 0),
        (b"\x4dabc", WireProblem.LENGTH, 0),
        (b"\x08\x01", WireProblem.WIRE, 0),
        (b"\x0a\x00\x15abcd", WireProblem.WIRE, 2),
        (b"\x4b", WireProblem.LENGTH, 1),
        (b"\x4b\x54", WireProblem.TAG, 1),
        (varint(9 << 3 | 3) * (MAX_DEPTH + 1), WireProblem.DEPTH, MAX_DEPTH),
    ],
)
def test_bytes_that_are_no_message_are_a_fault_with_its_place(data: bytes, fault: WireProblem, at: int) -> None:
    with pytest.raises(WireFault) as caught:
        list(fields(data, 0, len(data), KNOWN))
    assert (caught.value.fault, caught.value.at) == (fault, at)


def test_groups_may_lie_in_each_other_up_to_the_limit() -> None:
    data = varint(9 << 3 | 3) * MAX_DEPTH + varint(9 << 3 | 4) * MAX_DEPTH + delimited(1, b"x")
    assert [field.number for field in fields(data, 0, len(data), KNOWN)] == [1]


def test_nothing_behind_the_end_is_read() -> None:
    data = delimited(1, b"abc") + b"\x01"
    assert len(list(fields(data, 0, 5, KNOWN))) == 1
    with pytest.raises(WireFault):
        list(fields(data, 0, 4, KNOWN))
