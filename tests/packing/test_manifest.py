"""The manifest, and whether the files are those that it speaks of."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from packing.small import dataset

import penstock as ps
from penstock.errors import PlanError, RecordError, SourceError
from penstock.packing import read_manifest
from penstock.packing.manifest import record_of, sealed
from penstock.packing.options import PackOptions


@pytest.fixture
def packed(tmp_path: Path) -> Path:
    ps.pack(dataset(20), tmp_path / "out", num_shards=3, executor="threads")
    return tmp_path / "out"


def test_a_manifest_is_found_in_its_folder_and_says_what_is_there(packed: Path) -> None:
    manifest = read_manifest(packed)
    assert manifest.record == read_manifest(packed / "data-manifest.json").record
    assert (len(manifest), manifest.format, manifest.compression, manifest.skipped) == (20, "tfrecord", None, ())
    assert manifest.files() == [str(packed / f"data-0000{number}-of-00003.tfrecord") for number in range(3)]
    assert manifest.num_bytes == sum(path.stat().st_size for path in packed.glob("*.tfrecord"))
    assert manifest.record["versions"]["penstock"] == ps.__version__
    manifest.check_files(hashes=True)


def test_every_changed_byte_of_a_manifest_is_found(packed: Path) -> None:
    path = packed / "data-manifest.json"
    data = path.read_bytes()
    whole = json.loads(data)
    found = 0
    for place in range(0, len(data), 7):
        changed = bytearray(data)
        changed[place] ^= 0x04
        path.write_bytes(changed)
        try:
            same = json.loads(changed) == whole  # a change of white space
        except ValueError:
            same = False
        if same:
            continue
        found += 1
        with pytest.raises(RecordError, match="the manifest cannot be read"):
            read_manifest(packed)
    assert found > 100


def test_every_cut_of_a_manifest_is_found(packed: Path) -> None:
    path = packed / "data-manifest.json"
    data = path.read_bytes()
    for length in range(0, len(data.rstrip()), 11):
        path.write_bytes(data[:length])
        with pytest.raises(RecordError):
            read_manifest(packed)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"penstock_pack": 2}, "its form is 2, and 1 is known"),
        ({"count": 21}, "the counts or sizes of the shards are not those of the whole"),
        ({"format": "zip"}, "format 'zip'"),
        ({"shards": []}, "the counts or sizes"),
        ({"fields": [{"name": "a", "kind": "str", "stored": "pickle"}]}, "field 'a' is stored as 'pickle'"),
        ({"fields": 3}, "TypeError"),
    ],
)
def test_a_manifest_that_is_whole_and_wrong_is_refused(packed: Path, change: dict[str, object], words: str) -> None:
    path = packed / "data-manifest.json"
    path.write_text(json.dumps(sealed({**json.loads(path.read_text()), **change})))
    with pytest.raises(RecordError) as caught:
        read_manifest(packed)
    assert words in str(caught.value)


@pytest.mark.parametrize("name", ["../a", "", "..", "a/b"])
def test_a_shard_outside_of_the_folder_is_refused(packed: Path, name: str) -> None:
    path = packed / "data-manifest.json"
    record = json.loads(path.read_text())
    record["shards"][0]["name"] = name
    path.write_text(json.dumps(sealed(record)))
    with pytest.raises(RecordError, match="is no file name"):
        read_manifest(packed)


def test_missing_foreign_and_changed_shards_are_found(packed: Path) -> None:
    manifest = read_manifest(packed)
    first = Path(manifest.files()[0])
    data = first.read_bytes()
    first.write_bytes(data[:-1])
    with pytest.raises(SourceError) as caught:
        manifest.check_files()
    assert f"has {len(data) - 1} bytes and had {len(data)} when it was packed" in str(caught.value)
    first.write_bytes(data[:-1] + b"x")
    manifest.check_files()
    assert [problem.endswith("its SHA-256 differs") for problem in manifest.problems(hashes=True)] == [True]
    first.rename(packed / "data-00003-of-00004.tfrecord")
    assert list(manifest.problems(hashes=False)) == [
        "'data-00000-of-00003.tfrecord' is missing: it had 6 of 20 elements",
        "'data-00003-of-00004.tfrecord' looks like a shard and is not of this dataset",
    ]


def test_a_folder_without_one_manifest_is_an_error(tmp_path: Path, packed: Path) -> None:
    with pytest.raises(SourceError, match="holds no manifest"):
        read_manifest(tmp_path)
    (tmp_path / ".packing").mkdir()
    with pytest.raises(SourceError, match="a packing that was not finished"):
        read_manifest(tmp_path)
    (packed / "b-manifest.json").write_text("{}")
    with pytest.raises(SourceError, match=r"holds the manifests b-manifest\.json, data-manifest\.json"):
        read_manifest(packed)


def test_a_url_is_refused_without_its_password() -> None:
    with pytest.raises(PlanError, match="read_packed") as caught:
        read_manifest("https://user:secret@host/data")
    assert "secret" not in str(caught.value)


def test_libraries_that_write_the_files_are_named() -> None:
    root = ps.from_source(range(3))._root
    assert set(record_of(PackOptions(), ps.Raise(), root)["versions"]) == {"penstock", "numpy"}
    pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    assert set(record_of(PackOptions(format="parquet"), ps.Raise(), root)["versions"]) == {"penstock", "numpy", "pyarrow"}
