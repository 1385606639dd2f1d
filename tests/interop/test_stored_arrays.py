"""Arrays of zarr and h5py: rows are read when they are asked for, and the same for every executor."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock as ps
from penstock.sources.arrays import ArraySource
from penstock.testing.runs import exact

COUNT = 400
MATRIX = np.arange(COUNT * 3, dtype=np.int32).reshape(COUNT, 3)
NUMBERS = np.arange(COUNT) / 8
WAYS: tuple[dict[str, Any], ...] = (
    {"executor": "inline"},
    {"executor": "threads", "num_workers": 2},
    {"executor": "processes", "num_workers": 2},
)


@pytest.fixture(params=["zarr", "h5py"])
def stored(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """Return the arrays MATRIX and NUMBERS in files."""
    package = pytest.importorskip(request.param, reason=f"{request.param} is not installed")
    if request.param == "h5py":
        with package.File(tmp_path / "a.h5", "w") as file:
            file["group/matrix"], file["numbers"] = MATRIX, NUMBERS
        with package.File(tmp_path / "a.h5", "r") as file:
            yield file["group/matrix"], file["numbers"]
        return
    made = []
    for name, array, chunks in (("matrix", MATRIX, (64, 3)), ("numbers", NUMBERS, (100,))):
        made.append(package.create_array(tmp_path / name, shape=array.shape, dtype=array.dtype, chunks=chunks))
        made[-1][:] = array
    yield made
    pytest.importorskip("zarr.core.sync").cleanup_resources()  # its event loop and threads


def test_rows_are_those_of_the_array_for_every_executor(stored: Any) -> None:
    matrix, numbers = stored
    ds = ps.from_arrays({"m": matrix, "n": numbers, "here": np.arange(COUNT)}).shuffle(seed=1)
    order = [int(element["here"]) for element in ds]
    assert sorted(order) == list(range(COUNT))
    wanted = exact([{"m": MATRIX[row], "n": NUMBERS[row], "here": np.int64(row)} for row in order])
    for options in WAYS:
        with ds.feed(**options) as feed:
            assert exact(list(feed)) == wanted
        with ds.batch(7).feed(**options) as feed:
            assert np.concatenate([batch["m"] for batch in feed]).tolist() == MATRIX[order].tolist()


def test_from_source_and_a_bare_array_give_the_same_rows(stored: Any) -> None:
    for array, values in zip(stored, (MATRIX, NUMBERS), strict=True):
        for ds in (ps.from_source(array), ps.from_arrays(array)):
            assert len(ds) == COUNT
            assert exact(ds[5]) == exact(values[5])
            assert np.array_equal(next(iter(ds.skip(390).batch(20))), values[390:])


def test_nothing_of_it_is_in_memory(stored: Any) -> None:
    source = ArraySource(stored[0])
    assert not source.in_memory
    assert source.held() == []


def test_a_file_of_h5py_that_is_open_to_write_is_not_sent_to_another_process(tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py", reason="h5py is not installed")
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["x"] = MATRIX
        ds = ps.from_arrays(file["x"])
        assert exact(ds[3]) == exact(MATRIX[3])
        with ds.feed(executor="processes", num_workers=2) as feed, pytest.raises(ps.errors.PlanError) as caught:
            next(feed)
    assert f"'{tmp_path / 'a.h5'}' is open to write, so that another process cannot read it" in caught.value.what
    assert "open it to read: h5py.File(path, 'r')" in caught.value.what
