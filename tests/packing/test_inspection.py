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
from penstock.errors import SourceError
from penstock.formats.tfrecord import frame
from penstock.packing.inspection import NO_COUNT, NO_SUM, inspect


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
    assert first.samples[0]["name"] == "é 0"
    assert first.samples[0]["pixels"].shape == (2, 3)
    assert first.fields[3] == "pixels: uint8[2, 3] as raw bytes"
    assert "verified: as many records as the manifest says" in first.remarks


def shapes(number: int) -> dict[str, Any]:
    return {
        "mat": np.full((2, 3), number, np.float32),
        "small": np.ones((1, 1), np.int64),
        "one": np.ones(1, np.float32),
        "none": np.zeros((0, 3), np.float32),
        "ragged": np.ones((number + 1, 2), np.float32),
        "pixels": np.ones((1, 2), np.uint8),
        "data": b"x",
        "number": number,
    }


@pytest.mark.parametrize(
    ("fmt", "compression"), [("tfrecord", None), ("tfrecord", "GZIP"), ("tar", None), ("parquet", None), ("parquet", "zstd")]
)
def test_samples_are_what_read_packed_gives(tmp_path: Path, fmt: str, compression: str | None) -> None:
    if fmt == "parquet":
        pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    ps.pack(ps.from_source(range(3)).map(shapes), tmp_path, num_shards=1, executor="threads", format=fmt, compression=compression)
    _, report = inspect(tmp_path)
    assert report.problems == []
    for sample, element in zip(report.samples, ps.read_packed(tmp_path), strict=True):
        kinds = [
            {name: (type(value), getattr(value, "dtype", None), np.shape(value)) for name, value in one.items()}
            for one in (sample, element)
        ]
        assert kinds[0] == kinds[1]
        assert all(np.array_equal(sample[name], element[name]) for name in element)


def test_a_shard_alone_knows_its_manifest(packed: Path) -> None:
    (report,) = inspect(packed / "data-00001-of-00002.tfrecord", verify=True)
    assert report.samples[0]["name"] == "é 10"
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

    Path(f"{alone}.psidx").unlink()
    (report,) = inspect(alone, verify=True)
    assert report.problems == []
    assert NO_COUNT in report.remarks


def test_an_index_in_the_users_cache_folder_is_compared_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    path = tmp_path / "alone.tfrecord"
    path.write_bytes(frame(b"x") * 5)
    Path(f"{path}.psidx").mkdir()  # nothing can be written there
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
    assert found == [
        name for which in ("train", "val") for name in (f"{which}-manifest.json", *(f"{which}-0000{n}-of-00002.tfrecord" for n in (0, 1)))
    ]
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
    (report,) = inspect(packed)
    assert "it was changed" in report.problems[0]


def test_elements_that_were_left_out_are_a_remark(tmp_path: Path) -> None:
    ps.pack(dataset(20).map(bad_at_7), tmp_path / "out", executor="threads", on_error=ps.Skip())
    assert "1 element was left out when it was packed" in inspect(tmp_path / "out")[0].remarks


def test_an_index_is_shown_and_compared_with_its_file(packed: Path) -> None:
    path = packed / "data-00000-of-00002.tfrecord"
    list(ps.read_tfrecord(str(path)))
    index = Path(f"{path}.psidx")
    (report,) = inspect(index, verify=True)
    assert (report.kind, report.count, report.problems) == ("index", 10, [])
    assert report.fields[0] == "column 'offsets': int64 [10]"
    assert "verified: its own check sums, and those of the file that it describes" in report.remarks
    data = path.read_bytes()
    path.write_bytes(bytes(len(data)))
    assert "has other bytes than when it was built" in problems(index)[0]
    path.write_bytes(data[:-1])
    assert f"has {len(data) - 1} bytes, and had {len(data)}" in problems(index)[0]
    path.unlink()
    assert problems(index) == []
    index.write_bytes(index.read_bytes()[:-1])
    assert len(problems(index)) == 1


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
