"""An object that several processes read: pickled once, its arrays copied once."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from penstock._workers.shared_pickle import pickle_apart

needs_maps = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells what is mapped")


def test_it_is_read_as_often_as_wanted_and_what_one_reader_writes_no_other_sees() -> None:
    value = {"a": np.arange(10_000), "text": "x" * 100, "f": np.asfortranarray(np.ones((3, 5)))}
    where, descriptor = pickle_apart(value).write()
    first, second = where.load(os.dup(descriptor)), where.load(os.dup(descriptor))
    first["a"][:] = 0
    assert np.array_equal(second["a"], value["a"])
    assert second["text"] == value["text"]
    assert np.array_equal(second["f"], value["f"])
    os.close(descriptor)


def through(value: Any) -> Any:
    where, descriptor = pickle_apart(value).write()
    return where.load(descriptor), where


@pytest.fixture
def numbers(tmp_path: Path) -> Path:
    """A file of 4 MB: the numbers 0, 1, 2, ..."""
    np.save(tmp_path / "numbers.npy", np.arange(1 << 19))
    return tmp_path / "numbers.npy"


@needs_maps
def test_a_memory_map_goes_as_its_file(numbers: Path) -> None:
    given = np.load(numbers, mmap_mode="r")
    found, where = through(given)
    assert where.num_bytes < 10_000
    assert type(found) is np.memmap
    assert (found.filename, found.mode, found.flags.writeable) == (given.filename, "r", False)
    assert np.array_equal(found, given)
    assert [part.path for part in where.buffers] == [str(numbers)]


@needs_maps
@pytest.mark.parametrize(
    "view",
    [
        lambda array: array[1000:],
        lambda array: array[5:-5:3],
        lambda array: array[::-1],
        lambda array: np.asarray(array).reshape(-1, 64)[:, 3:40],
        lambda array: np.lib.stride_tricks.sliding_window_view(np.asarray(array), 1025),
        lambda array: np.asarray(array).reshape(512, -1).T,
    ],
)
def test_a_part_of_a_memory_map_goes_as_a_part_of_its_file(numbers: Path, view: Any) -> None:
    given = view(np.load(numbers, mmap_mode="r"))
    found, where = through({"a": given})
    assert where.num_bytes < 10_000
    assert (found["a"].shape, found["a"].dtype, type(found["a"])) == (given.shape, given.dtype, type(given))
    assert np.array_equal(found["a"][-9:], given[-9:])
    assert np.array_equal(found["a"][:9], given[:9])


@needs_maps
def test_a_map_that_has_pages_of_its_own_goes_as_an_array(numbers: Path) -> None:
    given = np.load(numbers, mmap_mode="c")
    given[0] = 77
    found, where = through(given)
    assert where.num_bytes > given.nbytes
    assert found[0] == 77


@needs_maps
def test_a_map_of_a_file_that_was_replaced_or_removed_goes_as_an_array(numbers: Path) -> None:
    given = np.load(numbers, mmap_mode="r")
    numbers.with_suffix(".other").write_bytes(numbers.read_bytes())
    os.replace(numbers.with_suffix(".other"), numbers)
    assert through(given)[1].num_bytes > given.nbytes
    os.unlink(numbers)
    assert np.array_equal(through(given)[0], given)


@needs_maps
@pytest.mark.parametrize("max_chunksize", [None, 1000])
def test_a_table_that_is_mapped_goes_as_its_file(tmp_path: Path, max_chunksize: int | None) -> None:
    arrow = pytest.importorskip("pyarrow")
    table = arrow.table({"x": np.arange(1 << 19)})
    with arrow.OSFile(str(tmp_path / "table.arrow"), "wb") as file, arrow.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table, max_chunksize=max_chunksize)
    mapped = arrow.ipc.open_file(arrow.memory_map(str(tmp_path / "table.arrow"))).read_all()
    found, where = through(mapped)
    assert where.num_bytes < 10_000 + (1 << 20 if max_chunksize else 0) + 100 * mapped.column(0).num_chunks
    assert found.equals(table)
