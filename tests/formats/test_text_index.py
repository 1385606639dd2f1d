from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import IndexStale, RecordError
from penstock.formats.text_index import parse_text_index

GOOD = b"0 21\n21 16\n37 28\n"


def test_offsets_and_sizes_are_read() -> None:
    for text in (GOOD, GOOD.rstrip(b"\n"), GOOD.replace(b"\n", b"\r\n")):
        spans = parse_text_index(text, name="i", file_name="f", file_size=65)
        assert spans.offsets.tolist() == [0, 21, 37]
        assert spans.lengths.tolist() == [21, 16, 28]


@pytest.mark.parametrize(
    ("text", "words", "where"),
    [
        (b"", "the index 'i' of 'f' is empty", "'i'"),
        (b"0 21\n21\n", "line 2 of the index 'i' is b'21', not an offset and a size", "'i', line 2"),
        (b"0 21 5\n", "line 1 of the index 'i' is b'0 21 5', not an offset and a size", "'i', line 1"),
        (b"0 21\n\n21 16", "line 2 of the index 'i' is b'', not an offset and a size", "'i', line 2"),
        (b"0 -21\n", "line 1 of the index 'i' is b'0 -21', not an offset and a size", "'i', line 1"),
        (b"0 " + b"9" * 30, "line 1 of the index 'i' is", "'i', line 1"),
        (b"PSINDEX\n\0\0", "line 1 of the index 'i' is b'PSINDEX', not an offset and a size", "'i', line 1"),
    ],
)
def test_an_index_that_is_none_is_an_error(text: bytes, words: str, where: str) -> None:
    with pytest.raises(RecordError) as error:
        parse_text_index(text, name="i", file_name="f", file_size=65)
    assert words in error.value.what
    assert error.value.where == where
    assert error.value.fix


@pytest.mark.parametrize(
    ("text", "size", "words"),
    [
        (GOOD, 93, "3 records that end at 65"),
        (GOOD, 64, "record 2 at 37, 28 bytes; the record before ends at 37"),
        (b"0 21\n22 16\n", 38, "record 1 at 22, 16 bytes; the record before ends at 21"),
        (b"5 21\n", 26, "record 0 at 5, 21 bytes; the first record is at 0"),
        (b"0 21\n21 15\n", 36, "record 1 at 21, 15 bytes; the record before ends at 21"),
        (b"0 999999999999999999\n", 36, "record 0 at 0, 999999999999999999 bytes; the first record is at 0"),
    ],
)
def test_an_index_of_another_file_is_stale(text: bytes, size: int, words: str) -> None:
    with pytest.raises(IndexStale) as error:
        parse_text_index(text, name="i", file_name="f", file_size=size)
    assert error.value.what == f"the index 'i' does not fit 'f' of {size} bytes: it says {words}"
    assert error.value.where.startswith("'i', line ")
    assert "if the file was cut, get another copy" in error.value.fix


SIZES = st.lists(st.integers(16, 10**12), min_size=1, max_size=40)
ENDS = st.sampled_from([b"\n", b"\r\n", b" \n", b"\r"])
BETWEEN = st.sampled_from([b" ", b"  ", b"\t"])


@given(SIZES, st.lists(st.tuples(BETWEEN, ENDS), min_size=1, max_size=40), st.booleans(), st.booleans())
def test_numbers_are_those_of_the_lines_whatever_space_is_in_them(
    sizes: list[int], spaces: list[tuple[bytes, bytes]], plain: bool, cut: bool
) -> None:
    offsets = [sum(sizes[:row]) for row in range(len(sizes))]
    lines = [
        b"%d%b%d%b" % (offset, *((b" ", size, b"\n") if plain else (spaces[row % len(spaces)][0], size, spaces[row % len(spaces)][1])))
        for row, (offset, size) in enumerate(zip(offsets, sizes, strict=True))
    ]
    text = b"".join(lines)
    spans = parse_text_index(text.rstrip() if cut else text, name="i", file_name="f", file_size=sum(sizes))
    assert spans.offsets.tolist() == offsets
    assert spans.lengths.tolist() == sizes


def long_index(count: int) -> bytes:
    return b"".join(b"%d 1000\n" % (row * 1000) for row in range(count))


def test_a_long_index_takes_no_object_for_each_record() -> None:
    count = 300_000
    text = long_index(count)
    tracemalloc.start()
    try:
        spans = parse_text_index(text, name="i", file_name="f", file_size=count * 1000)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    np.testing.assert_array_equal(spans.offsets, np.arange(count) * 1000)
    assert peak < 80 * count + (8 << 20), "224 bytes a record with an object for each"


def test_a_bad_line_far_inside_is_named_by_its_number() -> None:
    text = long_index(100_000).replace(b"\n77777000 1000\n", b"\n77777000 -1000\n")
    with pytest.raises(RecordError, match=r"line 77778 of the index 'i' is b'77777000 -1000'"):
        parse_text_index(text, name="i", file_name="f", file_size=10**8)
