from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from formats.tfrecords import FIVE, tfrecord, write_tfrecord

import penstock as ps
from penstock.errors import PlanError, RecordError
from penstock.sources.tfrecord import TFRecordSource, TFRecordStream, compression_of, open_tfrecord

FIVE_ELEMENTS = [{"record": record} for record in FIVE]


@pytest.mark.parametrize("compression", [None, "GZIP", "ZLIB"])
def test_auto_reads_what_is_there(tmp_path: Path, compression: str | None) -> None:
    for number in range(3):
        write_tfrecord(tmp_path / f"x.tfrecord-0000{number}-of-00003", FIVE, compression)
    pattern = str(tmp_path / "x.tfrecord-*-of-00003")
    source = open_tfrecord(pattern, compression="auto")
    assert type(source) is (TFRecordSource if compression is None else TFRecordStream)
    for given in ("auto", compression):
        assert list(ps.read_tfrecord(pattern, compression=given)) == FIVE_ELEMENTS * 3


def test_files_of_several_compressions_are_refused(tmp_path: Path) -> None:
    write_tfrecord(tmp_path / "x0", FIVE)
    write_tfrecord(tmp_path / "x1", FIVE, "GZIP")
    with pytest.raises(PlanError) as refusal:
        open_tfrecord(str(tmp_path / "x*"), compression="auto")
    what = f"'{tmp_path / 'x0'}' looks like no compression; '{tmp_path / 'x1'}' looks like GZIP"
    assert refusal.value.what == f"the files differ in their compression: {what}"
    assert refusal.value.where == 'read_tfrecord, compression="auto"'
    assert refusal.value.fix


def test_a_length_with_its_check_sum_is_no_compression_whatever_it_looks_like() -> None:
    assert compression_of(tfrecord([b"x" * 0x9C78])[:12]) is None  # begins with 78 9c, as ZLIB does
    assert compression_of(tfrecord(FIVE, "ZLIB")[:12]) == "ZLIB"
    assert compression_of(b"\x1f\x8b\x08") == "GZIP"
    assert compression_of(b"") is None


@pytest.mark.parametrize(
    ("written", "given", "words"),
    [
        ("GZIP", None, "this looks like GZIP"),
        ("ZLIB", None, "it may be a ZLIB stream"),
        (None, "GZIP", "this does not look like GZIP"),
        (None, "ZLIB", "this does not look like ZLIB"),
        ("GZIP", "ZLIB", "this looks like GZIP"),
        ("ZLIB", "GZIP", "this looks like ZLIB"),
    ],
)
def test_the_wrong_compression_is_told_by_the_first_bytes(tmp_path: Path, written: Any, given: Any, words: str) -> None:
    path = write_tfrecord(tmp_path / "x", FIVE, written)
    with pytest.raises(RecordError) as error:
        list(ps.read_tfrecord(path, compression=given))
    assert words in error.value.what
    assert str(path) in error.value.what
    assert "auto" in error.value.fix or "ZLIB" in error.value.fix


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"compression": "gzip"}, "compression='gzip' is unknown"),
        ({"max_record_bytes": -1}, "max_record_bytes=-1 is no count of bytes"),
        ({"max_record_bytes": 1.5}, "max_record_bytes=1.5 is no count of bytes"),
        ({"compression": "GZIP", "resync": True}, "resync does not go with GZIP files, which can only be read from their beginning"),
    ],
)
def test_options_that_do_not_go_together_are_refused(tmp_path: Path, options: dict[str, Any], what: str) -> None:
    path = write_tfrecord(tmp_path / "x", FIVE, "GZIP")
    with pytest.raises(PlanError) as refusal:
        ps.read_tfrecord(path, **options)
    assert refusal.value.what == what
    assert refusal.value.where.startswith("read_tfrecord")
    assert refusal.value.fix


@pytest.mark.parametrize("index", ["idx", ["x.idx"], Path("x.idx")])
def test_a_text_index_is_refused_with_the_command_that_builds_one(tmp_path: Path, index: Any) -> None:
    path = write_tfrecord(tmp_path / "x", FIVE)
    with pytest.raises(PlanError, match="text indices of other tools are not read") as refusal:
        ps.read_tfrecord(path, index=index)
    assert refusal.value.where == "read_tfrecord, argument 'index'"
    assert "`penstock index PATTERN`" in refusal.value.fix


def test_a_bad_record_is_one_skipped(tmp_path: Path) -> None:
    path = write_tfrecord(tmp_path / "x", FIVE * 20)
    data = bytearray(path.read_bytes())
    data[sum(len(record) + 16 for record in FIVE) * 7 + 12] ^= 1
    path.write_bytes(data)
    with ps.read_tfrecord(path).feed(on_error=ps.Skip()) as feed:
        assert [element["record"] for element in feed] == FIVE * 7 + FIVE[1:] + FIVE * 12
        assert feed.stats().num_skipped == 1
    data[sum(len(record) + 16 for record in FIVE) * 9] ^= 1
    path.write_bytes(data)
    with pytest.raises(RecordError):
        ps.read_tfrecord(path)
    with ps.read_tfrecord(path, resync=True).batch(100, drop_remainder=True).feed(on_error=ps.Skip()) as feed:
        (batch,) = feed
        assert list(batch["record"]) == FIVE * 7 + FIVE[1:] + FIVE + FIVE[1:] + FIVE * 10
