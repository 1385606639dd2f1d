from __future__ import annotations

import pytest

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
