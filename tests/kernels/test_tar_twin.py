"""The twin reads what Python's tarfile writes, as tarfile reads it."""

from __future__ import annotations

import io
import tarfile

import numpy as np
import pytest

from penstock.kernels import framing_twin, tar_twin
from penstock.kernels.tar import Table
from penstock.kernels.tar_codes import Column, Outcome, Place

NAMES = ["a.jpg", "a.CLS", "d/" * 60 + "b.jpg", "x" * 99 + "/" + "y" * 90 + ".jpg", "e/f/c.seg.png"]


def archive(style: int, extra: list[str]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=style) as file:
        for number, name in enumerate(NAMES + extra):
            info = tarfile.TarInfo(name)
            info.size = 300 * number
            file.addfile(info, io.BytesIO(bytes([number]) * info.size))
    return out.getvalue()


@pytest.mark.parametrize(
    ("style", "extra"),
    [(tarfile.USTAR_FORMAT, []), (tarfile.GNU_FORMAT, ["z" * 300 + ".txt"]), (tarfile.PAX_FORMAT, ["z" * 300 + ".txt", "é/ü.txt"])],
)
def test_names_places_and_sizes_are_those_of_tarfile_in_each_of_its_formats(style: int, extra: list[str]) -> None:
    data = archive(style, extra)
    table = Table(with_crc=True)
    table.reserve(len(data) // 512, len(data))
    outcome = tar_twin.scan(np.frombuffer(data, np.uint8), 0, len(data), table.rows, table.names, table.state)
    assert outcome == Outcome.END
    with tarfile.open(fileobj=io.BytesIO(data)) as file:
        expected = [(info.name, info.offset, info.offset_data, info.size) for info in file]
    rows = table.rows[: table.state[Place.NUM_ROWS]]
    begins = [0, *rows[:-1, Column.NAME_END].tolist()]
    names = [bytes(table.names[begin : row[Column.NAME_END]]).decode() for begin, row in zip(begins, rows, strict=True)]
    found = rows[:, [Column.START, Column.DATA, Column.SIZE]].tolist()
    assert [(name, *row) for name, row in zip(names, found, strict=True)] == expected
    assert rows[:, Column.FIRST].tolist() == [1, 0, *[1] * (len(expected) - 2)]
    end = expected[2][1]
    assert rows[1, Column.CRC] == framing_twin.crc32c(data[:end], end, 0), "the check sum is that of the whole sample"


def test_the_two_hashes_of_keys_differ_where_keys_do() -> None:
    keys = [b"a", b"b", b"ab", b"ba", b"a\0", b"", *(b"%06d" % number for number in range(300))]
    table = [(tar_twin._hash(key), tar_twin._other_hash(key)) for key in keys]
    assert len({one for one, _ in table}) == len({other for _, other in table}) == len(keys)
