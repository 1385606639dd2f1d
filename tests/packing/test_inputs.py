"""Whether the files of a dataset stay as they are."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock as ps
from penstock.errors import PlanError
from penstock.packing.inputs import changed, check_apart, look


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for number in range(4):
        (tmp_path / "class").mkdir(exist_ok=True)
        (tmp_path / "class" / f"{number}.jpg").write_bytes(b"x" * 10)
    (tmp_path / "list.txt").write_text("".join(f"class/{number}.jpg {number}\n" for number in range(4)))
    np.save(tmp_path / "a.npy", np.arange(10))
    return tmp_path


def opened(folder: Path) -> dict[str, tuple[Any, int]]:
    return {
        "files": (ps.read_files(str(folder / "class" / "*")), 4),
        "list": (ps.read_list(folder / "list.txt").map(len).shuffle(seed=1), 4),
        "folder": (ps.read_images(folder), 4),
        "map": (ps.from_arrays({"a": np.load(folder / "a.npy", mmap_mode="r"), "b": np.zeros(10)}), 1),
        "none": (ps.from_source(range(3)), 0),
        "two": (ps.read_images(folder).concatenate(ps.read_files(str(folder / "class" / "*"))), 8),
    }


@pytest.mark.parametrize("name", ["files", "list", "folder", "map", "none", "two"])
def test_files_that_stay_as_they_are_are_no_error(folder: Path, name: str) -> None:
    dataset, count = opened(folder)[name]
    before = look(dataset._root)
    assert before.num_files == len(before.marks) == count
    assert changed(dataset._root, before) is None


@pytest.mark.parametrize("name", ["files", "list", "folder", "two"])
def test_a_file_that_changes_is_named(folder: Path, name: str) -> None:
    dataset, _ = opened(folder)[name]
    before = look(dataset._root)
    os.utime(folder / "class" / "2.jpg", ns=(1, 1))
    error = changed(dataset._root, before)
    assert error is not None
    assert "2.jpg'" in error.what
    assert "changed while it was packed" in error.what


def test_a_memory_map_that_changes_is_named(folder: Path) -> None:
    dataset, _ = opened(folder)["map"]
    before = look(dataset._root)
    os.utime(folder / "a.npy", ns=(1, 1))
    error = changed(dataset._root, before)
    assert error is not None
    assert "a.npy'" in error.what


def test_several_files_are_counted(folder: Path) -> None:
    dataset, _ = opened(folder)["files"]
    before = look(dataset._root)
    for number in (1, 3):
        (folder / "class" / f"{number}.jpg").unlink()
    error = changed(dataset._root, before)
    assert error is not None
    assert "1.jpg' and 1 more files changed" in error.what


def test_files_of_records_are_looked_at_too(tmp_path: Path) -> None:
    for fmt in ("tfrecord", "tar", "parquet"):
        if fmt == "parquet":
            pytest.importorskip("pyarrow", reason="pyarrow is not installed")
        ps.pack(ps.from_source([{"n": 1}, {"n": 2}]), tmp_path / fmt, executor="threads", num_shards=2, format=fmt)
        dataset = ps.read_packed(tmp_path / fmt)
        before = look(dataset._root)
        assert before.num_files == 2
        path = sorted((tmp_path / fmt).glob("*[dtr]"))[0]
        os.utime(path, ns=(1, 1))
        error = changed(dataset._root, before)
        assert error is not None
        assert path.name in error.what


@pytest.mark.parametrize("inside", ["packed", "class/packed", "packed/deeper"])
def test_a_destination_that_would_be_a_class_of_the_input_is_refused(folder: Path, inside: str) -> None:
    with pytest.raises(PlanError, match="it would be one more class"):
        check_apart(ps.read_images(folder).map(len)._root, str(folder / inside))


def test_a_destination_beside_the_input_or_hidden_in_it_is_none_of_its_classes(folder: Path) -> None:
    for dest in (folder, folder / ".packed", folder.parent / "packed"):
        check_apart(ps.read_images(folder)._root, str(dest))
    check_apart(ps.read_files(str(folder / "class" / "*"))._root, str(folder / "packed"))
