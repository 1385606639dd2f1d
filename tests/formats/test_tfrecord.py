from __future__ import annotations

import array
import gzip
import io
import itertools
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from formats.tfrecords import FIVE, borders, header, record_at, tfrecord
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import PlanError, RecordError, SpecError
from penstock.formats.tfrecord import RecordWriter, read_records

GOLDEN = Path(__file__).parents[1] / "golden" / "tfrecord"
GOLDEN_RECORDS = [b"", b"a", b"penstock" * 100, bytes(range(256)) * 3, bytes(1000)]
COMPRESSIONS = [None, "GZIP", "ZLIB"]


class Trickle(io.RawIOBase):
    """A stream that gives a few bytes at a time, as a socket does."""

    def __init__(self, data: bytes, most: int) -> None:
        self._data, self._most, self._place = data, most, 0

    def read(self, size: int = -1) -> bytes:
        begin, self._place = self._place, min(len(self._data), self._place + min(size, self._most))
        return self._data[begin : self._place]


def read(data: bytes, **options: Any) -> list[bytes]:
    return list(read_records(io.BytesIO(data), name="f", **options))


def read_until_bad(data: bytes, **options: Any) -> tuple[list[bytes], RecordError | None]:
    """Return what was given before an error, and the error."""
    records: list[bytes] = []
    try:
        records.extend(read_records(io.BytesIO(data), name="f", **options))
    except RecordError as error:
        return records, error
    return records, None


@pytest.mark.parametrize("compression", COMPRESSIONS)
@given(records=st.lists(st.binary(max_size=300), max_size=20), most=st.integers(1, 4000))
def test_what_was_written_is_read(compression: str | None, records: list[bytes], most: int) -> None:
    data = tfrecord(records, compression)
    assert list(read_records(Trickle(data, most), compression=compression)) == records


@pytest.mark.parametrize(("name", "compression"), [("gzip.tfrecord.gz", "GZIP"), ("zlib.tfrecord", "ZLIB")])
def test_compressed_files_of_tensorflow_are_read(name: str, compression: str) -> None:
    assert read((GOLDEN / name).read_bytes(), compression=compression) == GOLDEN_RECORDS


def test_uncompressed_files_are_byte_for_byte_those_of_tensorflow() -> None:
    files = [(GOLDEN / f"plain.tfrecord-0000{shard}-of-00002").read_bytes() for shard in (0, 1)]
    assert [record for file in files for record in read(file)] == GOLDEN_RECORDS
    assert tfrecord(GOLDEN_RECORDS) == b"".join(files)


def test_the_same_records_give_the_same_bytes_without_time_or_name() -> None:
    for compression in COMPRESSIONS:
        assert tfrecord(FIVE, compression) == tfrecord(FIVE, compression)
    assert tfrecord(FIVE, "GZIP")[4:8] == bytes(4)
    assert gzip.decompress(tfrecord(FIVE, "GZIP")) == zlib.decompress(tfrecord(FIVE, "ZLIB")) == tfrecord(FIVE)


def test_the_writer_counts_and_leaves_the_file_open() -> None:
    file = io.BytesIO()
    writer = RecordWriter(file)
    for record in FIVE:
        writer.write(record)
    assert writer.num_bytes == len(file.getvalue()) == borders(FIVE)[-1]
    writer.close()
    writer.close()
    assert not file.closed
    compressed = RecordWriter(file := io.BytesIO(), "GZIP")
    compressed.write(b"x")
    compressed.close()
    assert compressed.num_bytes == len(file.getvalue())


@pytest.mark.parametrize("compression", ["gzip", "BZIP2", "", "auto", 5])
def test_a_compression_that_does_not_exist_is_refused(compression: Any) -> None:
    for call in (lambda: RecordWriter(io.BytesIO(), compression), lambda: read(b"", compression=compression)):
        with pytest.raises(PlanError) as refusal:
            call()
        assert refusal.value.what == f"compression={compression!r} is unknown"
        assert "argument 'compression'" in refusal.value.where
        assert refusal.value.fix == "give one of None, 'GZIP', 'ZLIB', upper case as in TFRecord"


def test_every_flipped_bit_is_found_in_its_record() -> None:
    good, places = tfrecord(FIVE), borders(FIVE)
    for offset, bit in itertools.product(range(len(good)), range(8)):
        data = bytearray(good)
        data[offset] ^= 1 << bit
        number = record_at(FIVE, offset)
        records, error = read_until_bad(bytes(data))
        assert records == FIVE[:number]
        assert error is not None
        assert error.what.startswith(f"record {number} of 'f' at offset {places[number]}: ")
        assert error.where == f"'f', record {number}, offset {places[number]}"
        assert error.fix


def test_every_cut_inside_a_record_is_found_there() -> None:
    good, places = tfrecord(FIVE), borders(FIVE)
    for cut in range(len(good)):
        records, error = read_until_bad(good[:cut])
        number = record_at(FIVE, cut)
        assert records == FIVE[:number]
        if cut in places:
            assert error is None
            continue
        assert error is not None
        left = cut - places[number]
        what = f"{left} bytes are left, and a header has 12"
        if left >= 12:
            what = f"the record says {len(FIVE[number])} bytes, and {max(0, left - 16)} are left for them"
        assert error.what == f"record {number} of 'f' at offset {places[number]}: the file is truncated: {what}"
        assert error.fix


@pytest.mark.parametrize("compression", ["GZIP", "ZLIB"])
def test_every_flipped_bit_and_every_cut_of_a_compressed_file_is_found(compression: str) -> None:
    good = tfrecord(FIVE, compression)
    for cut in range(len(good)):
        assert read_until_bad(good[:cut], compression=compression)[1] is not None
    ignored = 0
    for offset, bit in itertools.product(range(len(good)), range(8)):
        data = bytearray(good)
        data[offset] ^= 1 << bit
        records, error = read_until_bad(bytes(data), compression=compression)
        if error is None:
            assert records == FIVE
            ignored += 1
        else:
            assert records == FIVE[: len(records)]
    # Time, flags and system in the header of GZIP mean nothing, nor do the bits that fill the last byte in front of the check sum.
    assert ignored <= (7 * 8 if compression == "GZIP" else 0) + 7


@pytest.mark.parametrize("length", [2**34, 2**40, 2**63, 2**64 - 1])
def test_a_huge_length_with_the_right_check_sum_is_an_error_before_memory_is_taken(length: int) -> None:
    data = tfrecord(FIVE[:1]) + header(length) + b"short"
    records, error = read_until_bad(data)
    assert records == FIVE[:1]
    assert error is not None
    assert error.what == f"record 1 of 'f' at offset 21: the record says {length} bytes, over max_record_bytes={1 << 30}"


def test_a_record_over_the_limit_is_an_error_that_names_the_option() -> None:
    records, error = read_until_bad(tfrecord([b"12", b"123"]), max_record_bytes=2)
    assert records == [b"12"]
    assert error is not None
    assert error.what == "record 1 of 'f' at offset 18: the record says 3 bytes, over max_record_bytes=2"
    assert error.fix == "give a larger max_record_bytes if such records are meant"


def test_empty_records_and_no_records_are_what_they_are() -> None:
    assert read(tfrecord([b""] * 5000)) == [b""] * 5000
    assert read(b"") == []


def test_zeros_and_garbage_behind_the_last_record_are_errors_at_their_offset() -> None:
    for tail, words in (
        (bytes(4096), "zeros stand here, as in a file whose end was never written"),
        (b"garbage behind it", "and the file says"),
    ):
        records, error = read_until_bad(tfrecord(FIVE) + tail)
        assert records == FIVE
        assert error is not None
        assert error.where == f"'f', record 5, offset {borders(FIVE)[-1]}"
        assert words in error.what
    assert read_until_bad(bytes(100))[1] is not None


def test_two_files_one_behind_the_other_are_one_file() -> None:
    assert read(tfrecord(FIVE) * 2) == FIVE * 2
    for compression in ("GZIP",):
        assert read(tfrecord(FIVE, compression) * 2, compression=compression) == FIVE * 2


def test_without_check_sums_of_data_only_the_lengths_are_checked() -> None:
    data = bytearray(tfrecord(FIVE))
    data[12] ^= 1
    assert read(bytes(data), check_crc=False)[1:] == FIVE[1:]
    data[0] ^= 1
    assert read_until_bad(bytes(data), check_crc=False)[1] is not None


def test_a_bomb_in_one_record_is_refused_with_its_ratio() -> None:
    data = tfrecord([b"before", bytes(1 << 25)], "GZIP")
    records, error = read_until_bad(data, compression="GZIP")
    assert records == [b"before"]
    assert error is not None
    assert error.what.startswith("record 1 of 'f' says 33.6 MB, and its first ")
    assert "were compressed more than" in error.what
    assert error.where == "record 1 of 'f'"
    assert "at most 200:1 is read beyond 8.39 MB" in error.fix


def test_many_small_records_of_nothing_are_no_bomb() -> None:
    records = [bytes(1 << 16)] * 200
    assert read(tfrecord(records, "GZIP"), compression="GZIP") == records


@pytest.mark.parametrize("compression", COMPRESSIONS)
@pytest.mark.parametrize(
    "record",
    [
        np.arange(3),
        memoryview(np.arange(3)),
        np.arange(6, dtype=">f8").reshape(2, 3),
        np.zeros((0, 3)),
        np.zeros(2, "i4,f8"),
        np.float32(1.5),
        array.array("d", [1, 2]),
        bytearray(b"ab"),
        memoryview(b"abcd")[1:3],
        np.bytes_(b"a\0"),
    ],
)
def test_a_record_is_the_bytes_that_lie_side_by_side_not_the_items(record: Any, compression: str | None) -> None:
    assert read(tfrecord([record, b"next"], compression), compression=compression) == [memoryview(record).tobytes(), b"next"]


@pytest.mark.parametrize(
    ("record", "words"),
    [
        (np.arange(6)[::2], "side by side"),
        (np.zeros((2, 3)).T, "side by side"),
        (memoryview(b"abcd")[::2], "side by side"),
        (np.array([None, 1]), "Python objects"),
        (np.ma.masked_array([1, 2], [0, 1]), "mask would be lost"),
        (np.array(["2026"], "M8[D]"), "a ndarray is no record"),
        ("text", "a str is no record"),
        (np.str_("text"), "text must be encoded"),
        (None, "a NoneType is no record"),
        ([1, 2], "a list is no record"),
    ],
)
def test_what_has_no_bytes_side_by_side_is_refused_and_nothing_is_written(record: Any, words: str) -> None:
    file = io.BytesIO()
    writer = RecordWriter(file)
    with pytest.raises(SpecError, match=words) as caught:
        writer.write(record)
    assert caught.value.where == "RecordWriter.write, argument 'record'"
    assert file.getvalue() == b""


@pytest.mark.parametrize("compression", [None, "GZIP", "ZLIB"])
def test_nothing_is_written_behind_the_end_of_a_stream(compression: str | None) -> None:
    out = io.BytesIO()
    writer = RecordWriter(out, compression)
    writer.write(b"one")
    writer.close()
    writer.close()
    whole = out.getvalue()
    with pytest.raises(PlanError, match="the writer is closed"):
        writer.write(b"two")
    assert out.getvalue() == whole
