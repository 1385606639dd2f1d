"""How each format is looked into."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from packing.small import dataset

import penstock as ps
from penstock.errors import RecordError
from penstock.formats.tfrecord import frame
from penstock.packing.looks import begins_as_tfrecord, look_parquet, look_tar, look_tfrecord
from penstock.packing.report import Inspection

LOOKS = {"tfrecord": look_tfrecord, "tar": look_tar, "parquet": look_parquet}
WAYS = [("tfrecord", None), ("tfrecord", "GZIP"), ("tar", None), ("parquet", None)]


@pytest.fixture(params=WAYS, ids=["tfrecord", "tfrecord-gzip", "tar", "parquet"])
def packed(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Any, Path]:
    fmt, compression = request.param
    if fmt == "parquet":
        pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    manifest = ps.pack(dataset(12), tmp_path / "out", executor="threads", num_shards=1, format=fmt, compression=compression)
    return LOOKS[fmt], Path(manifest.files()[0])


def look(function: Any, path: Path, verify: bool = True) -> Inspection:
    report = Inspection(path=str(path), kind="", size=path.stat().st_size)
    function(report, verify, 2)
    return report


def test_records_sizes_fields_and_samples_are_found(packed: tuple[Any, Path]) -> None:
    report = look(*packed)
    assert report.count == 12
    assert len(report.samples) == 2
    assert any("number" in line for line in report.fields)
    assert report.problems == []
    assert any(line.startswith("verified: ") for line in report.remarks)
    assert report.lengths is None or (len(report.lengths) == 12 and report.lengths.min() > 100)
    assert not any(line.startswith("verified: ") for line in look(*packed, verify=False).remarks)


def test_every_cut_is_an_error_or_a_problem_or_a_smaller_count(packed: tuple[Any, Path]) -> None:
    function, path = packed
    data = path.read_bytes()
    whole = len(data.rstrip(b"\0")) + 1024 if function is look_tar else len(data)  # what pads a tar behind its end may be missing
    for length in range(0, whole, max(1, whole // 40)):
        path.write_bytes(data[:length])
        try:
            report = look(function, path)
        except RecordError:
            continue
        assert report.problems or report.count < 12


def test_changed_bytes_of_records_are_found(tmp_path: Path) -> None:
    manifest = ps.pack(dataset(12), tmp_path / "out", executor="threads", num_shards=1)
    path = Path(manifest.files()[0])
    data = path.read_bytes()
    for place in range(0, len(data), 41):
        changed = bytearray(data)
        changed[place] ^= 0x40
        path.write_bytes(changed)
        with pytest.raises(RecordError):
            look(look_tfrecord, path)


def test_records_that_are_no_examples_are_shown_as_bytes(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(frame(b"\xffno") + frame(b""))
    assert look(look_tfrecord, tmp_path / "a").samples == [{"record": b"\xffno"}, {"record": b""}]


def test_a_damaged_record_among_the_samples_is_a_problem_and_no_sample_also_unverified(tmp_path: Path) -> None:
    frames = [frame(b"%d" % number) for number in range(4)]
    for damaged, shown, num_problems in ((0, [b"1"], 1), (1, [b"0"], 1), (2, [b"0", b"1"], 0)):
        bad = frames[damaged][:12] + b"x" + frames[damaged][13:]
        (tmp_path / "a").write_bytes(b"".join([*frames[:damaged], bad, *frames[damaged + 1 :]]))
        report = look(look_tfrecord, tmp_path / "a", verify=False)
        assert [sample["record"] for sample in report.samples] == shown
        assert len(report.problems) == num_problems
        assert all(f"record {damaged} of" in problem and "masked CRC32C" in problem for problem in report.problems)
        assert report.count == 4


# Their low bytes are those that gzip and zlib begin with.
@pytest.mark.parametrize("length", [0x0178, 0x5E78, 0x9C78, 0xDA78, 0x8B1F])
def test_a_record_as_long_as_compressed_files_begin_is_no_compressed_file(tmp_path: Path, length: int) -> None:
    (tmp_path / "a").write_bytes(frame(bytes(length)) * 2)
    report = look(look_tfrecord, tmp_path / "a")
    assert (report.kind, report.count) == ("TFRecord", 2)


def test_a_parquet_footer_without_the_rows_that_it_counts_is_a_problem_or_an_error(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    path = Path(ps.pack(ps.from_source(range(5)), tmp_path / "out", executor="threads", format="parquet").files()[0])
    data = path.read_bytes()
    found = []
    for place in range(len(data) - 8 - int.from_bytes(data[-8:-4], "little"), len(data)):
        changed = bytearray(data)
        changed[place] ^= 16
        path.write_bytes(changed)
        try:
            found += look(look_parquet, path, verify=False).problems
        except RecordError:
            continue
    assert "no row can be read, and the footer says 5" in found


def test_a_frame_is_known_by_the_check_sum_of_its_length() -> None:
    assert begins_as_tfrecord(frame(b"x")[:12])
    assert not begins_as_tfrecord(b"{" * 12)
    assert not begins_as_tfrecord(b"")
