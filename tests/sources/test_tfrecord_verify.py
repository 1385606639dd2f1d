from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
from formats.tfrecords import FIVE, borders, header, record_at, tfrecord, write_tfrecord

import penstock as ps
from penstock.errors import PlanError
from penstock.sources.tfrecord_verify import NO_COUNT, Problem, verify


@pytest.mark.parametrize("compression", [None, "GZIP", "ZLIB"])
def test_a_good_file_is_good(tmp_path: Path, compression: str | None) -> None:
    path = write_tfrecord(tmp_path / "x", FIVE, compression)
    report = verify(str(path))
    assert report.good
    assert (report.compression, report.num_records, report.num_bad, report.data_bytes, report.longest) == (compression, 5, 0, 29, 12)
    assert (report.file_bytes, report.counts, report.note) == (path.stat().st_size, (), NO_COUNT)
    assert verify(str(path), compression=compression) == report


def test_every_flipped_bit_is_one_bad_record_with_its_number_and_offset(tmp_path: Path) -> None:
    good, path, places = tfrecord(FIVE), tmp_path / "x", borders(FIVE)
    for offset, bit in itertools.product(range(len(good)), (0, 5)):
        data = bytearray(good)
        data[offset] ^= 1 << bit
        path.write_bytes(data)
        report = verify(str(path), compression=None)
        number = record_at(FIVE, offset)
        assert (report.good, report.num_records, report.num_bad) == (False, 4, 1)
        assert [problem[:2] for problem in report.problems] == [(number, places[number])]


def test_a_cut_between_two_records_is_found_by_a_count_alone(tmp_path: Path) -> None:
    path = write_tfrecord(tmp_path / "x", FIVE)
    assert len(ps.read_tfrecord(path)) == 5
    whole, cut = path.read_bytes(), path.read_bytes()[: borders(FIVE)[3]]
    assert verify(str(path)).note == ""
    path.write_bytes(cut)
    report = verify(str(path))
    assert report.counts == ((f"{path}.psidx", 5),)
    assert report.problems == (Problem(-1, -1, f"'{path}.psidx' says 5 records, and the file has 3"),)
    (tmp_path / "x.psidx").unlink()
    assert (verify(str(path)).good, verify(str(path)).note) == (True, NO_COUNT)
    (tmp_path / "x.idx").write_text("0 21\n21 16\n37 28\n65 19\n")
    assert verify(str(path)).problems == (Problem(-1, -1, f"'{path}.idx' says 4 records, and the file has 3"),)
    (tmp_path / "x.psidx").write_bytes(b"no index")
    path.write_bytes(whole)
    words = [problem.what for problem in verify(str(path)).problems]
    assert words == [f"'{path}.psidx' cannot be read, and the file has 5", f"'{path}.idx' says 4 records, and the file has 5"]


@pytest.mark.parametrize(
    ("tail", "words"),
    [
        (bytes(5), "the file is truncated: 5 bytes are left, and a header has 12"),
        (bytes(5000), "zeros stand here, as in a file whose end was never written"),
        (b"garbage" * 9, "has the masked CRC32C"),
        (header(2**40), "the file is truncated: the record says 1099511627776 bytes, and 0 are left for them"),
    ],
)
def test_what_stands_behind_the_last_record_is_one_problem_at_its_offset(tmp_path: Path, tail: bytes, words: str) -> None:
    path = tmp_path / "x"
    path.write_bytes(tfrecord(FIVE) + tail)
    report = verify(str(path))
    assert (report.num_records, report.num_bad) == (5, 1)
    ((number, offset, what),) = report.problems
    assert (number, offset) == (5, borders(FIVE)[-1])
    assert words in what


def test_a_damaged_compressed_stream_is_a_problem_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(tfrecord(FIVE, "GZIP")[:-3])
    report = verify(str(path))
    assert [problem[:2] for problem in report.problems] == [(-1, -1)]
    assert "it ends before its own end mark" in report.problems[0].what


def test_a_file_of_0_bytes_is_a_problem(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"")
    assert verify(str(tmp_path / "x")).problems == (Problem(-1, -1, "the file has 0 bytes"),)


def test_the_number_of_problems_is_bounded(tmp_path: Path) -> None:
    data = bytearray(tfrecord([b"x"] * 300))
    data[12::17] = b"y" * 300
    (tmp_path / "x").write_bytes(data)
    report = verify(str(tmp_path / "x"))
    assert (len(report.problems), report.num_bad, report.num_records) == (100, 300, 0)


@pytest.mark.parametrize("compression", ["gzip", 1])
def test_a_compression_that_does_not_exist_is_refused(tmp_path: Path, compression: Any) -> None:
    with pytest.raises(PlanError) as refusal:
        verify(str(tmp_path), compression=compression)
    assert refusal.value.what == f"compression={compression!r} is unknown"
    assert refusal.value.where == "verify, argument 'compression'"
    assert refusal.value.fix
