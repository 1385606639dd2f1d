"""Numbers that a source knows by itself, and operators that go by them without `measure`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock as ps
from penstock._contracts.source import ColumnSource, NumberedSource
from penstock.errors import PlanError
from penstock.formats.tfrecord import RecordWriter
from penstock.testing import check_source

SIZES = [7 * number % 11 + number % 3 for number in range(40)]


def lines(folder: Path) -> None:
    (folder / "a.txt").write_bytes(b"".join(b"x" * size + b"\n" for size in SIZES[:25]))
    (folder / "b.txt").write_bytes(b"\n".join(b"x" * size for size in SIZES[25:]))


def records(folder: Path) -> None:
    for name, sizes in (("a", SIZES[:3]), ("b", SIZES[3:])):
        with open(folder / f"{name}.tfrecord", "wb") as file:
            writer = RecordWriter(file)
            for size in sizes:
                writer.write(b"x" * size)
            writer.close()


def files(folder: Path) -> None:
    for number, size in enumerate(SIZES):
        (folder / f"{number:02}.bin").write_bytes(b"x" * size)


WRITE = {"text": lines, "tfrecord": records, "files": files}


def opened(folder: Path, name: str) -> ps.Dataset:
    return {"text": ps.read_text, "tfrecord": ps.read_tfrecord, "files": ps.read_files}[name](str(folder / "*.*"))


def length(element: dict[str, Any]) -> int:
    return next(len(element[name]) for name in ("text", "record", "data") if name in element)


def numbers(ds: ps.Dataset) -> ColumnSource:
    return ds._root.known_numbers["num_bytes"]


@pytest.mark.parametrize("name", WRITE)
def test_known_numbers_keep_the_laws_of_a_source(tmp_path: Path, name: str) -> None:
    WRITE[name](tmp_path)
    ds = opened(tmp_path, name)
    assert isinstance(ds._root.source, NumberedSource)  # type: ignore[attr-defined]
    expected = [np.int64(length(element)) for element in ds]
    check_source(numbers(ds), expected=expected, again=lambda: numbers(opened(tmp_path, name)))
    assert numbers(ds).describe(3).startswith("num_bytes of ")
    assert numbers(ds).label().startswith(f"num_bytes of read_{name}(")


@pytest.mark.parametrize("name", WRITE)
def test_operators_go_by_them_without_measuring(tmp_path: Path, name: str) -> None:
    WRITE[name](tmp_path)
    lengths = opened(tmp_path, name).map(length)
    kept = lengths.filter(by="num_bytes").shuffle(seed=1)
    assert sorted(kept) == sorted(filter(None, SIZES))
    assert len(kept) == sum(map(bool, SIZES))
    with lengths.sort_window("num_bytes", 8).batch(8).feed(num_workers=2) as feed:
        assert [batch.tolist() for batch in feed] == [sorted(SIZES[begin : begin + 8]) for begin in range(0, 40, 8)]


def test_plan_and_error_name_them(tmp_path: Path) -> None:
    lines(tmp_path)
    ds = opened(tmp_path, "text").map(len)
    assert "  known without computing, for by=: num_bytes" in ds.explain().splitlines()
    with pytest.raises(PlanError, match=r"no number 'length' is known of the elements of read_text.*; known below it: num_bytes"):
        ds.sort_window("length", 10)


@pytest.mark.parametrize("name", WRITE)
def test_other_numbers_are_another_plan(tmp_path: Path, name: str) -> None:
    WRITE[name](tmp_path)
    before = opened(tmp_path, name).sort_window("num_bytes", 8)
    state = before.batch(4).feed(executor="inline").state_dict()
    assert opened(tmp_path, name).sort_window("num_bytes", 8)._root.identity() == before._root.identity()
    path = sorted(tmp_path.glob("*.*"))[1]
    data = path.read_bytes()
    path.write_bytes(data[:1] + data if name != "tfrecord" else data * 2)
    os.utime(path, ns=(1, 1))
    after = opened(tmp_path, name).sort_window("num_bytes", 8)
    assert after._root.identity() != before._root.identity()
    with after.batch(4).feed(executor="inline") as feed, pytest.raises(ps.errors.StateMismatch):
        feed.load_state_dict(state)
