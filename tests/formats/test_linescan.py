"""Lines and CSV records of whole files, whatever pieces they come in."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from numpy.typing import NDArray

from penstock.errors import RecordError
from penstock.formats.linescan import Rules, line_number, scan_lines

CSV = Rules(skip="empty", delimiter=ord(","))


def in_pieces(data: bytes, size: int) -> Iterator[NDArray[np.uint8]]:
    """Hand out a file in one buffer that is used again; the first piece shows what kind of file it is."""
    buffer = np.empty(max(size, 8), np.uint8)
    begin = 0
    while begin < len(data):
        piece = data[begin : begin + (size if begin else max(size, 8))]
        buffer[: len(piece)] = np.frombuffer(piece, np.uint8)
        yield buffer[: len(piece)]
        begin += len(piece)
    buffer[:] = 0


def scanned(data: bytes, rules: Rules, *, size: int = 1 << 20, first: Any = None) -> dict[str, Any]:
    return scan_lines(in_pieces(data, size), "file.txt", rules, first)


def records(data: bytes, found: dict[str, Any]) -> list[bytes]:
    spans = zip(found["offsets"].tolist(), found["lengths"].tolist(), strict=True)
    return [data[begin : begin + length] for begin, length in spans]


def numbers(found: dict[str, Any]) -> list[int]:
    return [line_number(found, number) for number in range(len(found["offsets"]))]


@given(st.lists(st.sampled_from([b"\n", b"a", b" ", b"\r\n", b"\t", b"bc", b"\r"]), max_size=40).map(b"".join), st.integers(1, 9))
@example(b" \n\n  a\n", 1)
@example(b"aaaaaaa\r\n\n", 1)
def test_lines_and_their_numbers_are_those_of_a_plain_loop_in_pieces_of_any_size(data: bytes, size: int) -> None:
    every = data.split(b"\n")
    every = every if every[-1] else every[:-1]
    for skip, left_out in (
        ("none", lambda line: False),
        ("empty", lambda line: line in (b"", b"\r")),
        ("blank", lambda line: not line.strip()),
    ):
        found = scanned(data, Rules(skip=skip), size=size)
        kept = [(number, line) for number, line in enumerate(every, 1) if not left_out(line)]
        assert records(data, found) == [line for _, line in kept]
        assert numbers(found) == [number for number, _ in kept]


@given(
    st.lists(st.sampled_from(['"', ",", "\n", "a", "\r\n", '""', '"b\nb"', "\n\n"]), max_size=30).map("".join),
    st.integers(1, 9),
    st.booleans(),
)
def test_csv_records_and_their_lines_are_those_of_pythons_csv_module(text: str, size: int, header: bool) -> None:
    data = text.encode()
    reader = csv.reader(io.StringIO(text.replace("\r\n", "\n"), newline=""))
    expected, begins, at = [], [], 0
    for row in reader:
        if row:
            expected.append(row)
            begins.append(at + 1)
        at = reader.line_num
    heads: list[bytes] = []
    try:
        found = scanned(data, CSV, size=size, first=heads.append if header else None)
    except RecordError as error:
        allowed = ["the file ends inside quotes"] + ["the file has no header"] * (header and not expected)
        if error.what in allowed:
            return
        raise
    ours = [
        next(csv.reader(io.StringIO(line.decode().replace("\r\n", "\n").removesuffix("\r"), newline="")))
        for line in [*heads, *records(data, found)]
    ]
    assert ours == expected
    assert numbers(found) == begins[len(heads) :]


def test_where_line_numbers_leap_takes_memory_and_nothing_else_does() -> None:
    data = b"a\n\nb\nc\n" + b"d\n" * 1000 + b"\n\ne\n"
    found = scanned(data, Rules(skip="empty"))
    assert found["file_line_from"].tolist() == [1, 1003]
    assert found["file_line_by"].tolist() == [1, 3]
    assert [line_number(found, number) for number in (0, 1, 2, 1002, 1003)] == [1, 3, 4, 1004, 1007]


def test_a_header_is_handed_over_and_is_no_record() -> None:
    for size in (1, 2, 5, 100):
        found = scanned(b'\r\n\n"x\ny",z\n1,2\n', CSV, size=size, first=lambda head: {"header": head.decode()})
        assert found["meta"] == {"header": '"x\ny",z'}
        assert found["offsets"].tolist() == [11]
        assert numbers(found) == [5]
    assert scanned(b"x,y", CSV, size=1, first=bytes.upper)["meta"] == b"X,Y"
    with pytest.raises(RecordError, match="the file has no header"):
        scanned(b"\n\r\n", CSV, first=bytes.upper)


def test_more_lines_than_one_call_has_room_for_are_found() -> None:
    found = scanned(b"\n" * 200_000, Rules(), size=150_000)
    assert found["offsets"].tolist() == list(range(200_000))
    assert not found["file_line_from"].size


@pytest.mark.parametrize("size", [8, 64, 1 << 20])
def test_a_line_beyond_the_limit_is_found_before_it_is_read_whole(size: int) -> None:
    taken = 0

    def pieces() -> Iterator[NDArray[np.uint8]]:
        nonlocal taken
        yield np.frombuffer(b"short\n\n", np.uint8)
        while taken < 1 << 30:  # a gigabyte, if somebody asked for it
            taken += size
            yield np.full(size, 97, np.uint8)

    with pytest.raises(RecordError, match="line 3 is longer than 1000 bytes") as caught:
        scan_lines(pieces(), "big.txt", Rules(max_line_bytes=1000))
    assert caught.value.where == "line 3 of 'big.txt', offset 7"
    assert taken <= 1000 + size
    with pytest.raises(RecordError, match="line 2 is longer than 4 bytes"):
        scanned(b"1234\n12345\n123456\n", Rules(max_line_bytes=4), size=size)


def test_a_quote_that_is_not_closed_is_an_error_at_the_record_that_opened_it() -> None:
    with pytest.raises(RecordError, match="the file ends inside quotes") as caught:
        scanned(b'x,y\n1,2\n"3,4\n5,6\n', CSV)
    assert caught.value.where == "the record that begins at line 3 of 'file.txt', offset 8"
    with pytest.raises(RecordError, match="line 2 is longer than 100 bytes") as caught:
        scanned(b'x,y\n"3,4\n' + b"5,6\n" * 100, Rules(delimiter=44, max_line_bytes=100), size=50)
    assert "a quote that is not closed" in caught.value.fix


@pytest.mark.parametrize(
    ("head", "kind"),
    [
        (b"\x1f\x8b\x08", "gzip"),
        (b"BZh9", "bzip2"),
        (b"\xff\xfea\x00", "UTF-16"),
        (b"PK\x03\x04", "a zip"),
        (b"PAR1", "Parquet"),
        (b"\x93NUMPY", "npy"),
    ],
)
def test_a_file_that_is_no_text_is_refused_by_its_first_bytes(head: bytes, kind: str) -> None:
    with pytest.raises(RecordError, match=f"the file looks like .*{kind}") as caught:
        scanned(head + bytes(20), Rules())
    assert caught.value.where == "'file.txt', offset 0"
