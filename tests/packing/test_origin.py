"""Whether a rerun may take what is there for its own."""

from __future__ import annotations

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
from penstock.errors import PackError
from penstock.packing.disk import Disk
from penstock.packing.inputs import look
from penstock.packing.options import PackOptions
from penstock.packing.origin import Origin, origin_of
from penstock.packing.packer import Packing
from penstock.packing.ticks import Watching


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


OTHER_DATA = "the arrays or objects in memory, or the elements of a stream, have changed"


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
