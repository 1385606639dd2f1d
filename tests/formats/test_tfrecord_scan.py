from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
import pytest
from formats.tfrecords import FIVE, borders, record_at, tfrecord
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from penstock.errors import RecordError
from penstock.formats.tfrecord import scan_headers


def pieces(data: bytes, sizes: Iterator[int]) -> Iterator[NDArray[np.uint8]]:
    """Give pieces in memory that is written over when the next one is asked for, as a reader with working memory does."""
    memory = np.empty(max(1, len(data)), np.uint8)
    begin = 0
    while begin < len(data):
        piece = memory[: min(next(sizes), len(data) - begin)]
        piece[:] = np.frombuffer(data, np.uint8)[begin : begin + piece.size]
        yield piece
        memory[:] = 0xEE
        begin += piece.size


def scan(data: bytes, size: int = 1 << 20, *, resync: bool = False) -> dict[str, NDArray[np.int64]]:
    return scan_headers(pieces(data, itertools.repeat(size)), len(data), "f", resync=resync)


def expected(records: list[bytes]) -> list[list[int]]:
    return [borders(records)[:-1], [len(record) + 16 for record in records]]


@given(st.lists(st.binary(max_size=60), max_size=30), st.lists(st.integers(1, 70), min_size=1))
def test_frames_are_found_however_the_file_is_cut_into_pieces(records: list[bytes], sizes: list[int]) -> None:
    data = tfrecord(records)
    spans = scan_headers(pieces(data, itertools.cycle(sizes)), len(data), "f")
    assert [part.tolist() for part in spans.values()] == expected(records)
    assert {part.dtype for part in spans.values()} == {np.dtype(np.int64)}


def test_more_frames_than_are_found_at_once() -> None:
    data = tfrecord([b""]) * 70_000
    assert scan(data)["offsets"].tolist() == list(range(0, len(data), 16))


@pytest.mark.parametrize("size", [11, 1000])
def test_damage_is_one_span_up_to_the_next_header(size: int) -> None:
    good, places = tfrecord(FIVE), borders(FIVE)
    for offset in range(len(good)):
        data = bytearray(good)
        data[offset] ^= 1 << offset % 8
        assert [part.tolist() for part in scan(bytes(data), size, resync=True).values()] == expected(FIVE)
    for cut in range(1, len(good)):
        spans = scan(good[:cut], size, resync=True)
        assert spans["offsets"].tolist() == places[: record_at(FIVE, cut - 1) + 1]
        assert spans["offsets"][-1] + spans["lengths"][-1] == cut


@pytest.mark.parametrize("size", [1, 11, 12, 1000])
def test_every_cut_inside_a_record_is_found(size: int) -> None:
    good, places = tfrecord(FIVE), borders(FIVE)
    for cut in range(len(good)):
        if cut in places:
            assert len(scan(good[:cut], size)["offsets"]) == places.index(cut)
            continue
        with pytest.raises(RecordError) as error:
            scan(good[:cut], size)
        number = record_at(FIVE, cut)
        assert error.value.what.startswith(f"record {number} of 'f' at offset {places[number]}: the file is truncated: ")


def test_a_compressed_file_is_no_damage_to_go_on_behind() -> None:
    for resync in (False, True):
        with pytest.raises(RecordError, match="this looks like GZIP") as error:
            scan(tfrecord(FIVE, "GZIP"), resync=resync)
        assert error.value.fix == 'give compression="GZIP" or "auto"'
