"""Files that get their name when they are complete, and input files that change."""

from __future__ import annotations

import errno
import hashlib
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from packing.small import Disk, FailingDisk, StepDisk

import penstock as ps
from penstock.errors import SourceError
from penstock.packing.disk import Folder, OutFile, check_unchanged, look, make_folder


def publish(folder: Path, fill: Any) -> None:
    Folder(str(folder))._publish([str(folder / "out")], lambda files: fill(files[0]))


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / ".packing").mkdir()
    return tmp_path


def test_a_file_is_written_through_a_buffer_with_its_size_and_hash(tmp_path: Path) -> None:
    data = os.urandom(3_000_000)
    disk = StepDisk(-1)
    with disk.used():
        file = OutFile(str(tmp_path / "out"))
        for begin in range(0, len(data), 1000):
            assert file.write(memoryview(data)[begin : begin + 1000]) == 1000
        file.seal()
        file.close()
    assert (tmp_path / "out").read_bytes() == data
    assert (file.size, file.sha256) == (len(data), hashlib.sha256(data).hexdigest())
    assert disk.names == ["create", "write", "write", "write", "sync", "close"]


def test_an_error_at_any_step_leaves_the_old_file_or_the_new_one_and_nothing_else(place: Path) -> None:
    path = place / "out"
    for at in range(5):
        for after in (False, True):
            path.write_bytes(b"old")
            with FailingDisk(at, errno.EDQUOT, after=after).used(), pytest.raises(OSError) as caught:
                publish(place, lambda file: file.write(b"new"))
            assert caught.value.errno == errno.EDQUOT
            assert path.read_bytes() in ((b"old", b"new") if at == 4 else (b"old",))
            assert os.listdir(place / ".packing") == []


def test_the_names_of_new_folders_are_on_the_disk(tmp_path: Path) -> None:
    synced = []

    class Noting(Disk):
        def sync(self, descriptor: int) -> None:
            super().sync(descriptor)
            synced.append((self.folders[descriptor], os.listdir(self.folders[descriptor])))

    with Noting().used():
        make_folder(str(tmp_path / "a" / "b"))
        make_folder(str(tmp_path / "a" / "b"))
    assert synced == [(str(tmp_path), ["a"]), (str(tmp_path / "a"), ["b"])]


def test_what_cannot_be_cleaned_up_is_a_note_of_the_error(place: Path) -> None:
    def fill(file: OutFile) -> None:
        os.unlink(file.path)
        os.mkdir(file.path)
        raise ValueError("no content")

    with pytest.raises(ValueError, match="no content") as caught:
        publish(place, fill)
    assert "and then, removing" in caught.value.__notes__[0]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "class").mkdir()
    for number in range(4):
        (tmp_path / "class" / f"{number}.jpg").write_bytes(b"x" * 10)
    (tmp_path / "list.txt").write_text("".join(f"class/{number}.jpg {number}\n" for number in range(4)))
    np.save(tmp_path / "a.npy", np.arange(10))
    return tmp_path


@pytest.mark.parametrize(("name", "num_files"), [("files", 4), ("list", 4), ("folder", 4), ("map", 1), ("none", 0), ("two", 8)])
def test_an_input_file_that_changes_is_named(folder: Path, name: str, num_files: int) -> None:
    root = {
        "files": lambda: ps.read_files(str(folder / "class" / "*")),
        "list": lambda: ps.read_list(folder / "list.txt").map(len).shuffle(seed=1),
        "folder": lambda: ps.read_images(folder),
        "map": lambda: ps.from_arrays({"a": np.load(folder / "a.npy", mmap_mode="r"), "b": np.zeros(10)}),
        "none": lambda: ps.from_source(range(3)),
        "two": lambda: ps.read_images(folder).concatenate(ps.read_files(str(folder / "class" / "*"))),
    }[name]()._root
    before = look(root)
    assert len(before.stamps) == num_files
    check_unchanged(root, before)
    changed = folder / ("a.npy" if name == "map" else "class/2.jpg")
    os.utime(changed, ns=(1, 1))
    if num_files:
        with pytest.raises(SourceError, match=f"{changed.name}'.* changed while it was packed"):
            check_unchanged(root, before)


def test_several_files_are_counted(folder: Path) -> None:
    root = ps.read_files(str(folder / "class" / "*"))._root
    before = look(root)
    for number in (1, 3):
        (folder / "class" / f"{number}.jpg").unlink()
    with pytest.raises(SourceError, match=r"1\.jpg' and 1 more files changed"):
        check_unchanged(root, before)


@pytest.mark.parametrize("fmt", ["tfrecord", "tar", "parquet"])
def test_files_of_records_are_looked_at_too(tmp_path: Path, fmt: Any) -> None:
    if fmt == "parquet":
        pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    ps.pack(ps.from_source([{"n": 1}, {"n": 2}]), tmp_path, executor="threads", num_shards=2, format=fmt)
    assert len(look(ps.read_packed(tmp_path)._root).stamps) == 2
