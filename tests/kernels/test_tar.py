"""The checked functions refuse what the C could not bear, and make room for what is found."""

from __future__ import annotations

import numpy as np
import pytest
from formats.archives import END, header, member, sample

from penstock.errors import SpecError
from penstock.kernels.tar import MemberColumn, MemberTable, ScanOutcome, StatePlace, scan_members, scan_samples


def array(data: bytes) -> np.ndarray:
    return np.frombuffer(data, np.uint8)


def test_arguments_that_could_lead_outside_are_refused() -> None:
    data = array(END)
    for bad in (data.astype(np.int8), data.reshape(2, 512), b"bytes"):
        with pytest.raises(SpecError, match="data is"):
            scan_members(bad, 0, 1024, MemberTable(with_crc=False))  # type: ignore[arg-type]
    for base, total, name in ((-1, 1024, "base"), (1, 1024, "base"), (0, 1023, "base"), (0, -1, "total"), (0, 1 << 63, "total")):
        with pytest.raises(SpecError) as caught:
            scan_members(data, base, total, MemberTable(with_crc=False))
        assert name in str(caught.value)
    one = np.zeros(1, np.int64)
    with pytest.raises(SpecError, match=r"out has shape \(2,\), not \(1,\)"):
        scan_samples(data, one, one, MemberTable(with_crc=False), np.zeros(2, np.int64))


def test_samples_with_far_more_members_and_longer_names_than_usual_get_room() -> None:
    folder = b"f" * 90 + b"/"
    wide = sample(folder + b"a", {b"%d" % number: b"" for number in range(256)})
    data = array(wide * 3)
    starts = np.arange(3, dtype=np.int64) * len(wide)
    table, ends = MemberTable(with_crc=False), np.zeros(3, np.int64)
    assert scan_samples(data, starts, np.full(3, len(wide)), table, ends) == ScanOutcome.MORE
    assert ends.tolist() == [256, 512, 768]
    assert table.rows[[0, 256, 512], MemberColumn.START].tolist() == starts.tolist()


def test_spans_that_lie_outside_or_are_not_one_sample_name_their_number() -> None:
    data = array(sample(b"a", {b"x": b"1"}) + sample(b"b", {b"x": b"2"}))
    for start, length, outcome in (
        (0, 2048, ScanOutcome.NOT_ONE),
        (0, 512, ScanOutcome.CUT),
        (0, 0, ScanOutcome.NOT_ONE),
        (0, 1025, ScanOutcome.NOT_ONE),
        (-1, 512, ScanOutcome.OUTSIDE),
        (1024, 1025, ScanOutcome.OUTSIDE),
        (2**63 - 1, 2**63 - 1, ScanOutcome.OUTSIDE),
    ):
        table, ends = MemberTable(with_crc=False), np.zeros(2, np.int64)
        assert scan_samples(data, np.array([1024, start]), np.array([1024, length]), table, ends) == outcome
        assert (table.state[StatePlace.SAMPLE], ends[0]) == (1, 1)


def test_a_table_forgets_its_first_rows_and_keeps_the_others_with_their_names() -> None:
    data = array(b"".join(member(name) for name in (b"one.x", b"two.x", b"three.x", b"three.y")))
    table = MemberTable(with_crc=False)
    assert scan_members(data, 0, data.size, table) == ScanOutcome.MORE
    before = table.rows[2:4].copy()
    table.drop(0)
    table.drop(2)
    assert table.state[[StatePlace.NUM_ROWS, StatePlace.SAMPLE]].tolist() == [2, 0]
    assert bytes(table.names[: table.state[StatePlace.NUM_NAME_BYTES]]) == b"three.xthree.y"
    assert table.rows[:2, MemberColumn.NAME_END].tolist() == [7, 14]
    columns = [MemberColumn.START, MemberColumn.DATA, MemberColumn.KEY_HASH]
    assert (table.rows[:2, columns] == before[:, columns]).all()
    table.drop(2)
    assert table.state[[StatePlace.NUM_ROWS, StatePlace.SAMPLE]].tolist() == [0, -1]


def test_a_sample_of_more_than_32_bits_is_found_by_headers_alone() -> None:
    half = b"\x80" + (1 << 31).to_bytes(11, "big")
    table, total = MemberTable(with_crc=False), (1 << 32) + 1024
    assert scan_members(array(header(b"a.x", half)), 0, total, table) == ScanOutcome.MORE
    place = int(table.state[StatePlace.POSITION])
    assert place == 512 + (1 << 31)
    table.state[StatePlace.POSITION] = 0
    assert scan_members(array(header(b"a.y", half)), place, total, table) == ScanOutcome.LARGE_SAMPLE
