"""The C scan and that with Python's `tarfile` find the same members and samples, and refuse the same cut files."""

from __future__ import annotations

import io
import tarfile
from typing import Any

import numpy as np
import pytest
from formats.archives import END, header, member, pax

from fuzz_tar import found
from penstock.kernels import framing, tar
from penstock.kernels.library import load_library
from penstock.kernels.tar import MemberColumn, MemberTable, ScanOutcome, StatePlace

LIBRARY = load_library()
needs_library = pytest.mark.skipif(LIBRARY is None, reason="the C library was not built here")
SCANS: dict[str, Any] = {"tarfile": tar.scan, **({} if LIBRARY is None else {"c": LIBRARY.tar_scan})}
both = pytest.mark.parametrize("scan", SCANS.values(), ids=SCANS)

NAMES = ["a.jpg", "a.CLS", "d/" * 60 + "b.jpg", "x" * 99 + "/" + "y" * 90 + ".jpg", "e/f/c.seg.png"]


def archive(style: int, extra: list[str]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=style) as file:
        for number, name in enumerate(NAMES + extra):
            info = tarfile.TarInfo(name)
            info.size = 300 * number
            file.addfile(info, io.BytesIO(bytes([number]) * info.size))
    return out.getvalue()


@both
@pytest.mark.parametrize(
    ("style", "extra"),
    [(tarfile.USTAR_FORMAT, []), (tarfile.GNU_FORMAT, ["z" * 300 + ".txt"]), (tarfile.PAX_FORMAT, ["z" * 300 + ".txt", "é/ü.txt"])],
)
def test_names_places_and_sizes_are_those_of_tarfile_in_each_of_its_formats(scan: Any, style: int, extra: list[str]) -> None:
    data = archive(style, extra)
    table = MemberTable(with_crc=True)
    table.reserve(len(data) // 512, len(data))
    outcome = scan(np.frombuffer(data, np.uint8), 0, len(data), table.rows, table.names, table.state)
    assert outcome == ScanOutcome.END
    with tarfile.open(fileobj=io.BytesIO(data)) as file:
        expected = [(info.name, info.offset, info.offset_data, info.size) for info in file]
    rows = table.rows[: table.state[StatePlace.NUM_ROWS]]
    begins = [0, *rows[:-1, MemberColumn.NAME_END].tolist()]
    names = [bytes(table.names[begin : row[MemberColumn.NAME_END]]).decode() for begin, row in zip(begins, rows, strict=True)]
    found = rows[:, [MemberColumn.START, MemberColumn.DATA, MemberColumn.SIZE]].tolist()
    assert [(name, *row) for name, row in zip(names, found, strict=True)] == expected
    assert rows[:, MemberColumn.FIRST].tolist() == [1, 0, *[1] * (len(expected) - 2)]
    end = expected[2][1]
    assert rows[1, MemberColumn.CRC] == framing.crc32c_twin(data[:end], end, 0), "the check sum is that of the whole sample"


def scanned(scan: Any, data: bytes) -> tuple[int, MemberTable]:
    table = MemberTable(with_crc=False)
    table.reserve(len(data) // 512 + 1, len(data))
    return scan(np.frombuffer(data, np.uint8), 0, len(data), table.rows, table.names, table.state), table


@needs_library
def test_an_archive_that_is_cut_anywhere_is_refused_alike() -> None:
    long_name = member(b"././@LongLink", b"y" * 200 + b".z\0", b"L")
    whole = pax((b"path", b"e/" * 90 + b"a.x")) + member(b"x", b"1" * 600) + long_name + member(b"y")
    outcomes = set()
    for end in [*range(0, len(whole), 37), *range(0, len(whole) + 1, 512)]:
        (one, left), (other, right) = (scanned(scan, whole[:end]) for scan in SCANS.values())
        assert (one, found(left), left.state.tolist()) == (other, found(right), right.state.tolist()), end
        outcomes.add(ScanOutcome(one))
    assert outcomes == {ScanOutcome.MORE, ScanOutcome.CUT, ScanOutcome.CUT_PADDING}


@both
@pytest.mark.parametrize(
    ("data", "outcome"),
    [
        (header(b"a.x", checksum=b"000001\0 "), ScanOutcome.BAD_CHECKSUM),
        (header(b"a.x", checksum=b"000009\0 "), ScanOutcome.BAD_CHECKSUM),
        (b"no archive" * 100, ScanOutcome.BAD_CHECKSUM),
        (header(b"a.x", b"00000000008\0"), ScanOutcome.BAD_SIZE),
        (header(b"a.x", b"\xff" * 12), ScanOutcome.BAD_SIZE),
        (header(b"a.x", b"\x80" + b"\xff" * 11), ScanOutcome.BAD_SIZE),
        (pax((b"size", b"-1")) + member(b"a.x"), ScanOutcome.BAD_SIZE),
        (pax((b"path", b"y" * 4097)) + member(b"a.x"), ScanOutcome.LONG_NAME),
        (pax((b"path", b"a\0.x")) + member(b"a.x"), ScanOutcome.BAD_EXTENDED),
        (header(b"x", 1 << 21, b"x") + bytes(1 << 21), ScanOutcome.LARGE_EXTENDED),
        (member(b"a.x", kind=b"S"), ScanOutcome.SPARSE),
        (pax((b"GNU.sparse.size", b"9")) + member(b"a.x"), ScanOutcome.SPARSE),
        (pax((b"mtime", b"1")) + END, ScanOutcome.ORPHAN),
        (pax((b"path", b"b.x"), kind=b"g") + member(b"a.x"), ScanOutcome.GLOBAL_NAME),
        (pax((b"mtime", b"1")) + pax((b"mtime", b"1"), kind=b"g") + member(b"a.x"), ScanOutcome.BAD_EXTENDED),
        (member(b"a.x", kind=b"M"), ScanOutcome.SEVERAL_VOLUMES),
        (member(b"a.x") + member(b"a.X"), ScanOutcome.SAME_FIELD),
        (b"".join(member(b"a.%d" % number) for number in range(257)), ScanOutcome.MANY_PARTS),
    ],
)
def test_what_is_not_read_is_refused_by_both(scan: Any, data: bytes, outcome: ScanOutcome) -> None:
    assert scanned(scan, data)[0] == outcome


@both
def test_times_in_the_place_of_the_front_of_a_name_are_not_taken_for_it(scan: Any) -> None:
    outcome, table = scanned(scan, member(b"a.x", magic=b"ustar  \0", prefix=b"13000000000\0") + END)
    assert outcome == ScanOutcome.END
    assert bytes(table.names[:3]) == b"a.x"
    assert table.state[StatePlace.NUM_NAME_BYTES] == 3
