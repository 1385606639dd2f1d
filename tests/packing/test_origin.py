"""Whether a rerun may take what is there for its own."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from packing.small import StepDisk, bad_at_7, dataset, hashes, odd, packed_with

import penstock as ps
from penstock.errors import PackError, PlanError
from penstock.packing.disk import Disk, Origin, changed, check_apart, look, origin_of
from penstock.packing.options import PackOptions, Watching
from penstock.packing.packer import Packing


def add(step: int, number: int) -> int:
    return number + step


def adding(step: int) -> Callable[[int], int]:
    return lambda number: number + step


class Rows:
    """Reads as from_source wants it; with a lock, which no pickle holds, or a fingerprint of its own."""

    def __init__(self, factor: int, **more: Any) -> None:
        self.factor = factor
        vars(self).update(more)

    def __len__(self) -> int:
        return 10

    def __getitem__(self, index: int) -> int:
        return index * self.factor


def origin(ds: ps.Dataset) -> Origin:
    return origin_of(ds._root, look(ds._root))


NUMBERS = ps.from_source(range(300))
CHANGED = np.arange(300_000)
CHANGED[150_001] = -1  # outside every sample


OTHER_DATA = "the arrays or objects in memory have changed"


@pytest.mark.parametrize(
    ("one", "other", "words"),
    [
        (NUMBERS.map(partial(add, 1)), NUMBERS.map(partial(add, 2)), "its functions are others"),
        (NUMBERS.map(adding(1)), NUMBERS.map(adding(2)), "its functions are others"),
        (NUMBERS.map(lambda number: number), NUMBERS.map(lambda number: -number), "its functions are others"),
        (NUMBERS.filter(lambda number: number > 1), NUMBERS.filter(lambda number: number > 2), "its functions are others"),
        (NUMBERS.map(bad_at_7, on_error=ps.Skip()), NUMBERS.map(bad_at_7), "its functions are others"),
        (ps.from_arrays(np.arange(300_000)), ps.from_arrays(CHANGED), OTHER_DATA),
        (ps.from_source(list(range(300))), ps.from_source([*range(150), -1, *range(151, 300)]), "the arrays or objects in memory"),
        (ps.from_source(Rows(1)), ps.from_source(Rows(2)), OTHER_DATA),
        (ps.from_source(pa.table({"x": np.arange(300_000)})), ps.from_source(pa.table({"x": CHANGED})), OTHER_DATA),
        (
            ps.from_source(pa.table({"x": pa.array([*"ab"] * 150).dictionary_encode()})),
            ps.from_source(pa.table({"x": pa.array([*"ac"] * 150).dictionary_encode()})),
            OTHER_DATA,
        ),
        (ps.from_source(Rows(1, fingerprint="a")), ps.from_source(Rows(1, fingerprint="b")), "the arrays or objects in memory"),
    ],
)
def test_other_functions_and_other_data_are_another_origin(one: ps.Dataset, other: ps.Dataset, words: str) -> None:
    assert origin(one).difference(origin(one).record) == ""
    assert words in origin(one).difference(origin(other).record)
    assert "nothing says which input" in origin(one).difference(None)


def test_what_does_not_change_the_elements_changes_no_origin() -> None:
    assert origin(NUMBERS.map(add, concurrency=2).prefetch(3)).record == origin(NUMBERS.map(add)).record


def test_what_cannot_be_told_is_never_the_same() -> None:
    lock = threading.Lock()
    for ds, words in ((NUMBERS.map(lambda number: (number, lock)), "map("), (ps.from_source(Rows(1, lock=lock)), "from_source(Rows")):
        found = origin(ds)
        assert words in found.untold
        assert "nothing tells whether it was made by the same" in found.difference(found.record)
    assert origin(ps.from_source(Rows(1, lock=lock, fingerprint="mine"))).untold == ""


def pack(ds: ps.Dataset, dest: Path, disk: Disk | None = None, **options: Any) -> ps.packing.Manifest:
    packing = Packing(ds, PackOptions(**{"num_shards": 3, **options}), None)
    return packing.run(str(dest), num_workers=1, executor="threads", watching=Watching(), disk=disk or Disk())


def test_a_finished_folder_is_no_answer_to_another_function_or_input(tmp_path: Path) -> None:
    first = pack(NUMBERS.map(adding(1)), tmp_path)
    before = hashes(tmp_path)
    again = pack(NUMBERS.map(adding(1)), tmp_path)
    assert (again.was_there, first.was_there) == (True, False)
    for other in (NUMBERS.map(adding(2)), NUMBERS.map(lambda number: number + 1)):
        with pytest.raises(PackError) as caught:
            pack(other, tmp_path)
        assert "the folder holds a packed dataset 'data' already, and its" in str(caught.value)
    assert hashes(tmp_path) == before
    (tmp_path / ".data-origin.json").unlink()
    with pytest.raises(PackError) as caught:
        pack(NUMBERS.map(adding(1)), tmp_path)
    assert "nothing says which input and functions it was made of" in str(caught.value)


def test_a_finished_folder_is_no_answer_to_a_file_that_changed(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for number in range(200):
        (tmp_path / "in" / f"{number:03d}.bin").write_bytes(bytes([number]) * 100)
    (tmp_path / "list.txt").write_text("".join(f"in/{number:03d}.bin {number}\n" for number in range(200)))
    files = ps.read_list(tmp_path / "list.txt")
    sampled = files._root.source.fingerprint()  # type: ignore[union-attr]
    pack(files, tmp_path / "out")
    (tmp_path / "in" / "077.bin").write_bytes(b"other" * 20)
    assert files._root.source.fingerprint() == sampled  # type: ignore[union-attr]
    with pytest.raises(PackError) as caught:
        pack(files, tmp_path / "out")
    assert "the input files have changed" in str(caught.value)


def test_what_an_earlier_version_packed_is_refused_and_says_so(tmp_path: Path) -> None:
    earlier = {"inputs": {"count": 0, "digest": "e3b0"}, "functions": "0123", "data": "4567"}
    words = "another version of Penstock made it, which compares functions and data in another way: nothing tells whether it is the same"
    stream = ps.from_generator(lambda: iter(range(30)))
    for name, ds in (("numbers", NUMBERS), ("stream", stream)):
        dest = tmp_path / name
        ps.pack(ds, dest, executor="threads")
        (dest / ".data-origin.json").write_text(json.dumps(earlier))
        before = hashes(dest)
        with pytest.raises(PackError) as caught:
            ps.pack(ds, dest, executor="threads")
        assert caught.value.what == f"the folder holds a packed dataset 'data' already, and {words}"
        assert hashes(dest) == before
        assert len(ps.read_packed(dest)) in (30, 300)
    with pytest.raises(OSError, match="broken"):
        pack(NUMBERS, tmp_path / "unfinished", Broken(-1))
    run = tmp_path / "unfinished" / ".packing" / "run.json"
    run.write_text(json.dumps({key: value for key, value in json.loads(run.read_text()).items() if key != "form"} | earlier))
    with pytest.raises(PackError) as caught:
        pack(NUMBERS, tmp_path / "unfinished")
    assert caught.value.what == f"the folder holds an unfinished packing of something else: {words}"


def test_a_version_takes_the_place_of_the_comparison_of_functions(tmp_path: Path) -> None:
    lock = threading.Lock()

    def locked(step: int) -> Callable[[int], Any]:
        def add(number: int) -> int:
            with lock:
                return number + step

        return add

    pack(NUMBERS.map(locked(1)), tmp_path / "without")
    with pytest.raises(PackError) as caught:
        pack(NUMBERS.map(locked(1)), tmp_path / "without")
    assert "nothing tells whether it was made by the same" in caught.value.what
    assert "version= would, given in both runs" in caught.value.what
    first = pack(NUMBERS.map(locked(1)), tmp_path / "out", version="a")
    assert first.record["options"]["version"] == "a"
    assert pack(NUMBERS.map(locked(1)), tmp_path / "out", version="a").was_there
    assert pack(NUMBERS.map(locked(2)), tmp_path / "out", version="a").was_there
    for version, words in (("b", 'version was "a", now "b"'), ("", 'version was "a", now null')):
        with pytest.raises(PackError) as caught:
            pack(NUMBERS.map(locked(1)), tmp_path / "out", version=version)
        assert words in caught.value.what
    rows = ps.from_source(Rows(1, lock=lock))
    pack(rows, tmp_path / "rows", version=1)
    assert pack(rows, tmp_path / "rows", version=1).was_there


class Broken(StepDisk):
    """Fails when the last shard is to get its name."""

    def rename(self, source: str, target: str) -> None:
        if target.endswith("00002-of-00003.tfrecord"):
            raise OSError(5, "broken")
        super().rename(source, target)


@pytest.mark.parametrize("kind", ["lambda", "partial", "closure", "module"])
def test_a_run_that_was_stopped_goes_on_with_the_same_functions_and_never_with_others(tmp_path: Path, kind: str) -> None:
    same: dict[str, Callable[[], Any]] = {
        "lambda": lambda: NUMBERS.map(lambda number: number * 3),
        "partial": lambda: NUMBERS.map(partial(add, 3)),
        "closure": lambda: NUMBERS.map(adding(3)),
        "module": lambda: dataset(300).filter(odd),
    }
    pack(same[kind](), tmp_path / "reference")
    with pytest.raises(OSError, match="broken"):
        pack(same[kind](), tmp_path / "out", Broken(-1))
    there = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "out").glob("*.tfrecord")}
    assert len(there) == 2
    other = dataset(300).map(dict).filter(odd) if kind == "module" else NUMBERS.map(lambda number: number * 4)
    with pytest.raises(PackError) as caught:
        pack(other, tmp_path / "out")
    assert "the folder holds an unfinished packing of something else" in str(caught.value)
    pack(same[kind](), tmp_path / "out")
    assert {name: (tmp_path / "out" / name).stat().st_mtime_ns for name in there} == there
    assert hashes(tmp_path / "out") == hashes(tmp_path / "reference")


def test_an_array_file_that_changed_after_a_stop_is_not_mixed_with_what_it_was(tmp_path: Path) -> None:
    for mode in (None, "r"):
        dest = tmp_path / str(mode)
        np.save(tmp_path / "a.npy", np.arange(300_000).reshape(3000, 100))
        with pytest.raises(OSError, match="broken"):
            pack(ps.from_arrays(np.load(tmp_path / "a.npy", mmap_mode=mode)), dest, Broken(-1))
        np.save(tmp_path / "a.npy", CHANGED.reshape(3000, 100))
        with pytest.raises(PackError) as caught:
            pack(ps.from_arrays(np.load(tmp_path / "a.npy", mmap_mode=mode)), dest)
        assert "the folder holds an unfinished packing of something else" in str(caught.value)
        assert "have changed" in str(caught.value)


def test_a_dataset_of_every_kind_of_field_has_an_origin(tmp_path: Path) -> None:
    packed_with(Disk(), tmp_path)
    assert origin(dataset()).untold == ""


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
    assert before.num_files == len(before.stamps) == count
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
