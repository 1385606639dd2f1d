"""What `penstock inspect` finds, and what it finds wrong."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from packing.small import bad_at_7, dataset

import penstock as ps
from penstock.errors import RecordError, SourceError
from penstock.formats.index import beside
from penstock.formats.tfrecord import frame
from penstock.packing.inspect import (
    NO_COUNT,
    NO_SUM,
    Inspection,
    _begins_as_tfrecord,
    _look_parquet,
    _look_tar,
    _look_tfrecord,
    inspect,
    shown,
)


@pytest.fixture
def packed(tmp_path: Path) -> Path:
    ps.pack(dataset(20), tmp_path / "out", num_shards=2, executor="threads")
    return tmp_path / "out"


def problems(path: Path, verify: bool = True) -> list[str]:
    return [problem for report in inspect(path, verify=verify) for problem in report.problems]


def test_a_packed_dataset_is_shown_as_it_was_packed(packed: Path) -> None:
    manifest, first, second = inspect(packed, verify=True, num_samples=1)
    assert (manifest.kind, manifest.count, manifest.noun) == ("manifest of a packed dataset", 20, "records in 2 files")
    assert (first.kind, first.count, second.count, first.problems) == ("TFRecord", 10, 10, [])
    assert first.samples[0]["name"] == ["é 0".encode()]
    assert manifest.fields[3] == "pixels: uint8[2, 3] as raw bytes"
    assert "verified: as many records as the manifest says" in first.remarks


def test_a_shard_alone_knows_its_manifest(packed: Path) -> None:
    (report,) = inspect(packed / "data-00001-of-00002.tfrecord", verify=True)
    assert "verified: as many records as the manifest says" in report.remarks
    assert NO_COUNT not in report.remarks


def test_a_cut_between_two_records_is_found_by_manifest_or_index_and_else_is_said_to_be_unseen(packed: Path, tmp_path: Path) -> None:
    path = packed / "data-00000-of-00002.tfrecord"
    lengths = inspect(path)[0].lengths
    assert lengths is not None
    path.write_bytes(path.read_bytes()[: -int(lengths[-1]) - 16])
    assert "9 records were found, and the manifest says 10" in problems(path)

    alone = tmp_path / "alone.tfrecord"
    shutil.copy(packed / "data-00001-of-00002.tfrecord", alone)
    list(ps.read_tfrecord(str(alone)))  # builds the index
    alone.write_bytes(alone.read_bytes()[: -int(inspect(alone)[0].lengths[-1]) - 16])
    found = problems(alone)
    assert "9 records were found, and the index says 10" in found

    Path(beside(str(alone))).unlink()
    (report,) = inspect(alone, verify=True)
    assert report.problems == []
    assert NO_COUNT in report.remarks


def test_an_index_in_the_users_cache_folder_is_compared_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    path = tmp_path / "alone.tfrecord"
    path.write_bytes(frame(b"x") * 5)
    (tmp_path / ".penstock").write_bytes(b"")  # nothing can be written there
    assert len(ps.read_tfrecord(str(path))) == 5
    assert "verified: as many records as the index says" in inspect(path, verify=True)[0].remarks
    path.write_bytes(frame(b"x") * 4)
    assert "4 records were found, and the index says 5" in problems(path)


def test_damage_is_a_problem_and_no_error(packed: Path) -> None:
    path = packed / "data-00000-of-00002.tfrecord"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    found = problems(packed)
    assert any("SHA-256 differs" in problem for problem in found)
    assert any("CRC" in problem or "check sum" in problem for problem in found)


@pytest.mark.parametrize(
    ("fmt", "compression"), [("tfrecord", None), ("tfrecord", "GZIP"), ("tar", None), ("parquet", None), ("parquet", "zstd")]
)
def test_every_changed_byte_of_one_shard_is_found_by_its_manifest(tmp_path: Path, fmt: str, compression: str | None) -> None:
    if fmt == "parquet":
        pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    manifest = ps.pack(dataset(20), tmp_path, num_shards=2, executor="threads", format=fmt, compression=compression)
    path = Path(manifest.files()[0])
    data = path.read_bytes()
    assert "verified: the SHA-256 of the manifest" in inspect(path, verify=True)[0].remarks
    for place in range(4, len(data), len(data) // 25):
        changed = bytearray(data)
        changed[place] ^= 1
        path.write_bytes(changed)
        assert "it has other bytes than when it was packed: its SHA-256 differs from that in the manifest" in problems(path)
    alone = tmp_path / "alone" / path.name
    alone.parent.mkdir()
    alone.write_bytes(data)
    (report,) = inspect(alone, verify=True)
    assert report.problems == []
    assert (NO_SUM in report.remarks) == (fmt != "tfrecord")


def test_two_packed_datasets_in_one_folder_are_both_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, count in (("train", 20), ("val", 6)):
        ps.pack(dataset(count), tmp_path, num_shards=2, executor="threads", name=name)
    (report,) = inspect(tmp_path / "val-00001-of-00002.tfrecord", verify=True)
    assert "verified: as many records as the manifest says" in report.remarks
    monkeypatch.chdir(tmp_path)
    found = [Path(report.path).name for report in inspect(".", verify=True)]
    shards = [f"{which}-0000{n}-of-00002.tfrecord" for which in ("train", "val") for n in (0, 1)]
    assert found == ["train-manifest.json", "val-manifest.json", *shards]
    assert [Path(report.path).name for report in inspect(".")] == [*found[:2], shards[0], shards[2]]
    (tmp_path / "val-manifest.json").write_text('{"penstock_pack": 1')
    assert any("the manifest cannot be read" in problem for problem in problems(tmp_path / "val-00001-of-00002.tfrecord"))
    assert problems(tmp_path / "train-00001-of-00002.tfrecord") == []


def test_a_damaged_parquet_does_not_keep_the_others_from_being_looked_at(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    path = Path(ps.pack(dataset(5), tmp_path / "out", executor="threads", format="parquet").files()[0])
    (tmp_path / "b.parquet").write_bytes(path.read_bytes())
    (tmp_path / "a.parquet").write_bytes(path.read_bytes()[:-9] + bytes(9))
    assert [(report.count, bool(report.problems)) for report in inspect(tmp_path)] == [(0, True), (5, False)]


def test_a_missing_shard_and_a_damaged_manifest_are_problems(packed: Path) -> None:
    (packed / "data-00001-of-00002.tfrecord").unlink()
    assert "'data-00001-of-00002.tfrecord' is missing: it had 10 of 20 elements" in problems(packed, verify=False)
    path = packed / "data-manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "count": 3}))
    report = inspect(packed)[0]
    assert "it was changed" in report.problems[0]


def test_elements_that_were_left_out_are_a_remark(tmp_path: Path) -> None:
    ps.pack(dataset(20).map(bad_at_7), tmp_path / "out", executor="threads", on_error=ps.Skip())
    assert "1 element was left out when it was packed" in inspect(tmp_path / "out")[0].remarks


def test_a_damaged_index_beside_a_file_is_a_problem(packed: Path) -> None:
    path = packed / "data-00000-of-00002.tfrecord"
    Path(f"{path}.psidx").write_bytes(b"PSINDEX\n")
    assert any("cannot be used" in problem for problem in problems(path))


def test_a_folder_without_a_manifest_is_looked_through(tmp_path: Path) -> None:
    for name in ("a.bin", "b.tfrecord"):
        (tmp_path / name).write_bytes(frame(b"x") * 3)
    (tmp_path / "notes.txt").write_text("hello")
    assert [(Path(report.path).name, report.count) for report in inspect(tmp_path)] == [("a.bin", 3), ("b.tfrecord", 3)]


def test_what_is_nothing_to_inspect_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("hello")
    for path, words in (
        (tmp_path / "missing", "does not exist"),
        (tmp_path / "notes.txt", "is no file that can be inspected"),
        (tmp_path, "holds no file"),
    ):
        with pytest.raises(SourceError) as caught:
            inspect(path)
        assert words in str(caught.value)


LOOKS = {"tfrecord": _look_tfrecord, "tar": _look_tar, "parquet": _look_parquet}
WAYS = [("tfrecord", None), ("tfrecord", "GZIP"), ("tar", None), ("parquet", None)]


@pytest.fixture(params=WAYS, ids=["tfrecord", "tfrecord-gzip", "tar", "parquet"])
def one_file(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Any, Path]:
    fmt, compression = request.param
    if fmt == "parquet":
        pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    manifest = ps.pack(dataset(12), tmp_path / "out", executor="threads", num_shards=1, format=fmt, compression=compression)
    return LOOKS[fmt], Path(manifest.files()[0])


def look(function: Any, path: Path, verify: bool = True) -> Inspection:
    report = Inspection(path=str(path), kind="", size=path.stat().st_size)
    function(report, verify, 2)
    return report


def test_records_sizes_fields_and_samples_are_found(one_file: tuple[Any, Path]) -> None:
    report = look(*one_file)
    assert report.count == 12
    assert len(report.samples) == 2
    assert all(any("number" in name for name in sample) for sample in report.samples)
    assert report.problems == []
    assert any(line.startswith("verified: ") for line in report.remarks)
    assert report.lengths is None or (len(report.lengths) == 12 and report.lengths.min() > 100)
    assert not any(line.startswith("verified: ") for line in look(*one_file, verify=False).remarks)


def test_every_cut_is_an_error_or_a_problem_or_a_smaller_count(one_file: tuple[Any, Path]) -> None:
    function, path = one_file
    data = path.read_bytes()
    whole = len(data.rstrip(b"\0")) + 1024 if function is _look_tar else len(data)  # what pads a tar behind its end may be missing
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
            look(_look_tfrecord, path)


def test_records_that_are_no_examples_are_shown_as_bytes(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(frame(b"\xffno") + frame(b""))
    assert look(_look_tfrecord, tmp_path / "a").samples == [{"record": b"\xffno"}, {"record": b""}]


def test_a_damaged_record_among_the_samples_is_a_problem_and_no_sample_also_unverified(tmp_path: Path) -> None:
    frames = [frame(b"%d" % number) for number in range(4)]
    for damaged, whole, num_problems in ((0, [b"1"], 1), (1, [b"0"], 1), (2, [b"0", b"1"], 0)):
        bad = frames[damaged][:12] + b"x" + frames[damaged][13:]
        (tmp_path / "a").write_bytes(b"".join([*frames[:damaged], bad, *frames[damaged + 1 :]]))
        report = look(_look_tfrecord, tmp_path / "a", verify=False)
        assert [sample["record"] for sample in report.samples] == whole
        assert len(report.problems) == num_problems
        assert all(f"record {damaged} of" in problem and "masked CRC32C" in problem for problem in report.problems)
        assert report.count == 4


# Their low bytes are those that gzip and zlib begin with.
@pytest.mark.parametrize("length", [0x0178, 0x5E78, 0x9C78, 0xDA78, 0x8B1F])
def test_a_record_as_long_as_compressed_files_begin_is_no_compressed_file(tmp_path: Path, length: int) -> None:
    (tmp_path / "a").write_bytes(frame(bytes(length)) * 2)
    report = look(_look_tfrecord, tmp_path / "a")
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
            found += look(_look_parquet, path, verify=False).problems
        except RecordError:
            continue
    assert "no row can be read, and the footer says 5" in found


def test_a_frame_is_known_by_the_check_sum_of_its_length() -> None:
    assert _begins_as_tfrecord(frame(b"x")[:12])
    assert not _begins_as_tfrecord(b"{" * 12)
    assert not _begins_as_tfrecord(b"")


def test_problems_are_sentences() -> None:
    report = Inspection(path="a", kind="b", size=1)
    report.add_problem(SourceError("it is bad", where="a", fix="none"))
    report.add_problem(ValueError("odd"))
    assert report.problems == ["it is bad (a)", "ValueError: odd"]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (b"ab\x1b[31m", r"b'ab\x1b[31m'"),
        (b"x" * 41, f"b'{'x' * 40}'... (41 bytes)"),
        ("\x1b]0;title\x07 \u202e", r"'\x1b]0;title\x07 \u202e'"),
        ("é" * 70, f"'{'é' * 40}'... (70 characters)"),
        (np.int64(3), "3"),
        (2.5, "2.5"),
        (None, "None"),
        (np.arange(3, dtype=np.uint8), "uint8[3] [0, 1, 2]"),
        (np.zeros((2, 4), np.float32), "float32[2, 4] [0.0, 0.0, 0.0, 0.0, 0.0, 0.0, ...]"),
        ([b"a"] * 7, "[b'a', b'a', b'a', b'a', b'a', b'a', ...]"),
        ([b"a"], "[b'a']"),
        (np.array([b"\x1b", "a"], object), r"object[2] [b'\x1b', 'a']"),
        ({"a": "x" * 200}, "{'a': '" + "x" * 153 + "..."),
    ],
)
def test_values_are_one_short_line_without_control_characters(value: Any, text: str) -> None:
    assert shown(value) == text
    assert shown(value).isprintable()
