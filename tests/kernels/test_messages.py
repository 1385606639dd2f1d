"""Maps and Features as protobuf joins them: the last entry of a name, the last kind, lists put one behind the other."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fuzz_examples import delimited, varint
from penstock.kernels.wire import BYTES, FLOAT, INT64, WireFault, WireProblem, as_array, entries, lists_of, messages, values_of


def entry(name: bytes, *values: bytes) -> bytes:
    return delimited(1, delimited(1, name) + b"".join(delimited(2, value) for value in values))


def ints(*numbers: int) -> bytes:
    return delimited(INT64, delimited(1, b"".join(map(varint, numbers))))


def floats(*numbers: float) -> bytes:
    return delimited(FLOAT, delimited(1, np.array(numbers, "<f4").tobytes()))


def found(data: bytes, name: bytes = b"a", wanted: int | None = None) -> tuple[int, Any]:
    record = delimited(1, data)
    place = entries(record, messages(record, 0, len(record), 1))[name]
    return lists_of(record, values_of(record, place), wanted)


def test_the_last_entry_of_a_name_counts() -> None:
    assert found(entry(b"a", ints(1)) + entry(b"b", ints(7)) + entry(b"a", ints(2))) == (INT64, [2])


def test_values_of_one_entry_are_joined_and_the_last_kind_counts() -> None:
    assert found(entry(b"a", ints(1), ints(2, 3))) == (INT64, [1, 2, 3])
    assert found(entry(b"a", ints(1) + ints(2))) == (INT64, [1, 2])
    assert found(entry(b"a", ints(1), floats(1), ints(4))) == (INT64, [4])
    assert found(entry(b"a", ints(1) + delimited(FLOAT, b""))) == (FLOAT, [])


def test_packed_and_unpacked_numbers_mix() -> None:
    unpacked = varint(1 << 3) + varint(5) + delimited(1, varint(6) + varint(300)) + varint(1 << 3) + varint(2**64 - 1)
    kind, values = found(entry(b"a", delimited(INT64, unpacked)))
    assert as_array(kind, values).tolist() == [5, 6, 300, -1]
    unpacked = varint(1 << 3 | 5) + np.float32(1.5).tobytes() + delimited(1, np.array([2, 3], "<f4").tobytes())
    kind, values = found(entry(b"a", delimited(FLOAT, unpacked)))
    assert as_array(kind, values).tolist() == [1.5, 2.0, 3.0]


def test_the_bits_of_floats_stay() -> None:
    bits = np.array([0x7F800001, 0xFFC00001, 0x80000000], np.uint32)
    kind, values = found(entry(b"a", delimited(FLOAT, delimited(1, bits.astype("<u4").tobytes()))))
    assert as_array(kind, values).view(np.uint32).tolist() == bits.tolist()


def test_an_entry_without_a_name_or_a_value_has_empty_ones() -> None:
    assert found(delimited(1, delimited(2, ints(3))), b"") == (INT64, [3])
    assert found(delimited(1, delimited(1, b"a"))) == (0, [])


def test_lists_of_another_kind_than_the_wanted_one_are_not_looked_into() -> None:
    broken = entry(b"a", delimited(BYTES, b"\xff"))
    assert found(broken, wanted=FLOAT) == (BYTES, [])
    with pytest.raises(WireFault):
        found(broken)


def test_a_fault_inside_an_entry_knows_the_name_that_was_read() -> None:
    record = delimited(1, delimited(1, delimited(1, b"label") + b"\x12\x05x"))
    with pytest.raises(WireFault) as caught:
        entries(record, messages(record, 0, len(record), 1))
    assert (caught.value.fault, caught.value.name) == (WireProblem.LENGTH, b"label")


def test_a_packed_list_of_floats_that_ends_inside_one_is_a_fault() -> None:
    with pytest.raises(WireFault) as caught:
        found(entry(b"a", delimited(FLOAT, delimited(1, b"12345"))))
    assert caught.value.fault == WireProblem.LENGTH


def test_spans_of_bytes_are_places_in_the_record() -> None:
    assert as_array(BYTES, [(4, 2), (9, 0)]).tolist() == [[4, 2], [9, 0]]
    assert as_array(BYTES, []).shape == (0, 2)
