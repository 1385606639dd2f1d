"""The destination while it is packed."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from penstock.errors import PackError
from penstock.packing.disk import Folder, Inputs, lock_folder, sha256_of, sums_of

RUN: dict[str, Any] = {"format": "tar", "options": {"on_error": "Raise()", "name": "data"}, "inputs": "a", "id": "1"}


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(str(tmp_path))


def finish(folder: Folder, name: str, **more: Any) -> None:
    folder.publish([name], lambda files: files[0].write(b"content"), lambda files: {**sums_of([name], files), **more})


def test_a_run_of_the_same_kind_goes_on_and_removes_what_was_left(folder: Folder, tmp_path: Path) -> None:
    folder.prepare(RUN, ["a"])
    (tmp_path / ".packing" / "a.1.part").write_bytes(b"half")
    folder.prepare({**RUN, "id": "2"}, ["a"])
    assert sorted(os.listdir(tmp_path / ".packing")) == ["run.json"]
    folder.check_run("2")
    with pytest.raises(PackError, match="another packer has begun in this folder"):
        folder.check_run("1")
    folder.clear()
    assert os.listdir(tmp_path) == []
    folder.clear()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"format": "parquet"}, 'its format is another: "tar", now "parquet"'),
        ({"options": {"on_error": "Raise()", "name": "x"}}, 'its options is another: name was "data", now "x"'),
        ({"inputs": "b"}, 'its inputs is another: "a", now "b"'),
    ],
)
def test_a_part_of_a_run_of_another_kind_is_refused(folder: Folder, change: dict[str, Any], words: str) -> None:
    folder.prepare(RUN, [])
    finish(folder, "a")
    with pytest.raises(PackError) as caught:
        folder.prepare({**RUN, **change}, [])
    assert words in str(caught.value)


def test_a_run_of_another_kind_that_finished_nothing_makes_room(folder: Folder, tmp_path: Path) -> None:
    folder.prepare(RUN, ["a"])
    (tmp_path / ".packing" / "a.1.part").write_bytes(b"half")
    folder.prepare({**RUN, "format": "parquet", "id": "2"}, ["b"])
    folder.check_run("2")
    assert sorted(os.listdir(tmp_path / ".packing")) == ["run.json"]
    (tmp_path / "a").write_bytes(b"mine")
    with pytest.raises(PackError, match="'a' is there already"):
        folder.prepare(RUN, ["a"])


def test_files_that_nobody_knows_are_not_replaced(folder: Folder, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"mine")
    with pytest.raises(PackError, match="'a' is there already, and nothing says what it is"):
        folder.prepare(RUN, ["b", "a"])
    assert (tmp_path / "a").read_bytes() == b"mine"


def test_shards_of_something_else_are_told_before_anything_is_written(folder: Folder, tmp_path: Path) -> None:
    names = ["data-00000-of-00002.tfrecord", "data-00001-of-00002.tfrecord"]
    for name in ("data-00000-of-00010.tfrecord.psidx", "other-00000-of-00010.tfrecord", "data-00000-of-00010.tar", "data-manifest.json"):
        (tmp_path / name).touch()
    folder.prepare(RUN, names)
    (tmp_path / "data-00000-of-00010.tfrecord").touch()
    with pytest.raises(PackError, match=r"'data-00000-of-00010\.tfrecord' is there, which looks like a shard and is none of this dataset"):
        folder.prepare(RUN, names)


def test_a_shard_is_finished_when_note_size_and_hash_fit(folder: Folder, tmp_path: Path) -> None:
    folder.prepare(RUN, ["a"])
    assert folder.finished("a") is None
    finish(folder, "a")
    note = folder.finished("a")
    assert note is not None
    assert note["sha256"] == sha256_of(str(tmp_path / "a"))
    for content in (b"other c", b"content!"):
        (tmp_path / "a").write_bytes(content)
        assert folder.finished("a") is None
    (tmp_path / "a").unlink()
    assert folder.finished("a") is None


def test_a_damaged_note_is_an_error_that_says_what_to_remove(folder: Folder, tmp_path: Path) -> None:
    folder.prepare(RUN, ["a"])
    (tmp_path / ".packing" / "run.json").write_text("{")
    with pytest.raises(PackError, match=r"run\.json' cannot be read"):
        folder.prepare(RUN, ["a"])


def test_a_manifest_is_written_as_json(folder: Folder, tmp_path: Path) -> None:
    folder.prepare(RUN, [])
    folder.write_manifest("m.json", {"é": 1}, Inputs("digest", np.zeros((0, 3), np.int64)))
    assert folder.inputs("m.json") == "digest"
    assert json.loads((tmp_path / "m.json").read_text("ascii")) == {"é": 1}


def test_a_lock_keeps_other_packers_away_but_not_workers(tmp_path: Path) -> None:
    packer = lock_folder(str(tmp_path), shared=False)
    worker = lock_folder(str(tmp_path), shared=True)
    os.close(packer)
    with pytest.raises(PackError, match="or its workers have not ended yet"):
        lock_folder(str(tmp_path), shared=False)
    os.close(worker)
    os.close(lock_folder(str(tmp_path), shared=False))
