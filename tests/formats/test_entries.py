from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import penstock.formats.cache_stores as module
from penstock.formats.cache_stores import ENTRY_BYTES, PlaceTable, RecordPlace, checksum, entry, trusted

KEY = 0x0123456789ABCDEF


def written(rows: list[tuple[int, RecordPlace]]) -> bytes:
    return b"".join(entry(position, place, KEY) for position, place in rows)


def test_entries_are_read_back() -> None:
    data = written([(7, RecordPlace(0, 2**40, 300, 5)), (0, RecordPlace(0, 0, 2**32 - 1, 2**32 - 1))])
    assert len(data) == 2 * ENTRY_BYTES == 64
    assert [row[:4] for row in trusted(data, KEY).tolist()] == [(7, 2**40, 300, 5), (0, 0, 2**32 - 1, 2**32 - 1)]


def test_an_entry_with_any_wrong_byte_or_of_another_plan_is_left_out() -> None:
    data = written([(1, RecordPlace(0, 10, 20, 30)), (2, RecordPlace(0, 40, 50, 60))])
    for at in range(len(data)):
        for change in (1, 0x80, 0xFF):
            broken = bytearray(data)
            broken[at] ^= change
            assert trusted(bytes(broken), KEY)["position"].tolist() == [2 if at < ENTRY_BYTES else 1]
    assert len(trusted(data, KEY + 1)) == 0
    assert [len(trusted(data[:cut], KEY)) for cut in (0, 31, 32, 63, 64)] == [0, 0, 1, 1, 2]


def test_a_checksum_depends_on_bytes_place_and_plan() -> None:
    found = {
        checksum(b"abc", 1, 2, KEY),
        checksum(b"abd", 1, 2, KEY),
        checksum(b"ab", 1, 2, KEY),
        checksum(b"abc", 2, 2, KEY),
        checksum(b"abc", 1, 3, KEY),
        checksum(b"abc", 1, 2, KEY + 1),
    }
    assert len(found) == 6


steps = st.lists(
    st.one_of(
        st.tuples(st.just("drop"), st.integers(0, 12)),
        st.tuples(st.just("add"), st.lists(st.integers(0, 12), max_size=6)),
    ),
    max_size=12,
)


@given(steps, st.integers(0, 5))
def test_a_table_is_a_dict_however_small_its_dict_is(wanted: list[tuple[str, int | list[int]]], most: int) -> None:
    table, reference, number = PlaceTable(), dict[int, RecordPlace](), 0
    before, module._MOST_RECENT = module._MOST_RECENT, most
    try:
        for kind, value in wanted:
            number += 1
            if isinstance(value, int):
                table.drop(value)
                reference.pop(value, None)
                continue
            rows = [(position, RecordPlace(number, number + at, number * 2, number * 3)) for at, position in enumerate(value)]
            table.add(number, trusted(written(rows), KEY))
            reference.update(rows)
            assert kind == "add"
            assert len(table) == len(reference)
        assert table.find(list(range(14))) == [reference.get(position) for position in range(14)]
        assert len(table) == len(reference)
    finally:
        module._MOST_RECENT = before


def test_many_entries_become_arrays_not_objects() -> None:
    count = 200_000
    entries = np.zeros(count, module._ENTRY)
    entries["position"] = np.arange(count)[::-1]
    entries["length"] = np.arange(count)
    table = PlaceTable()
    table.add(3, entries)
    assert not table._recent
    assert len(table) == count
    assert table.find([0, count - 1, count]) == [RecordPlace(3, 0, count - 1, 0), RecordPlace(3, 0, 0, 0), None]
