"""Numbers that a source knows by itself, and operators that go by them without `measure`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sources.gathering import fill

import penstock as ps
from penstock.errors import PlanError, StateMismatch
from penstock.formats.tfrecord import RecordWriter
from penstock.sources.files import WholeFiles
from penstock.testing import check_source

SIZES = [7 * number % 11 + number % 3 for number in range(40)]
READ = {"text": ps.read_text, "record": ps.read_tfrecord, "data": ps.read_files}


def opened(folder: Path, field: str) -> ps.Dataset:
    return READ[field](str(folder / "*.x"))


def write(folder: Path, field: str, sizes: list[int] = SIZES) -> ps.Dataset:
    """Write elements whose field has so many bytes."""
    if field == "data":
        for number, size in enumerate(sizes):
            (folder / f"{number:02}.x").write_bytes(b"x" * size)
    elif field == "text":
        (folder / "a.x").write_text("".join("x" * size + "\n" for size in sizes), newline="\n")
    else:
        with open(folder / "a.x", "wb") as file:
            writer = RecordWriter(file)
            for size in sizes:
                writer.write(b"x" * size)
            writer.close()
    return opened(folder, field)


@pytest.mark.parametrize("field", READ)
def test_known_numbers_keep_the_laws_of_a_source(tmp_path: Path, field: str) -> None:
    numbers = write(tmp_path, field)._root.known_numbers["num_bytes"]
    expected = [*map(np.int64, SIZES)]
    check_source(numbers, expected=expected, again=lambda: opened(tmp_path, field)._root.known_numbers["num_bytes"])
    assert (numbers.describe(3)[:13], numbers.label()[:13]) == ("num_bytes of ",) * 2


@pytest.mark.parametrize("field", READ)
def test_operators_go_by_them_without_measuring(tmp_path: Path, field: str) -> None:
    def length(element: dict[str, Any]) -> int:
        return len(element[field])

    lengths = write(tmp_path, field).map(length)
    assert sorted(lengths.filter(by="num_bytes").shuffle(seed=1)) == sorted(filter(None, SIZES))
    with lengths.sort_window("num_bytes", 8).batch(8).feed(num_workers=2) as feed:
        assert [batch.tolist() for batch in feed] == [sorted(SIZES[begin : begin + 8]) for begin in range(0, 40, 8)]


def test_the_bytes_of_whole_files_are_those_of_all_files_of_an_element(tmp_path: Path) -> None:
    fill(tmp_path, "masks/a.png", "masks/bcd.png", "photos/a.png", "photos/bcd.png")
    photos, lines, coco = tmp_path / "photos", tmp_path / "list.txt", tmp_path / "a.json"
    lines.write_text("photos/a.png 0\nphotos/a.png 0\nmasks/bcd.png 1\n")
    coco.write_text('{"images": [{"id": 1, "file_name": "bcd.png"}, {"id": 2, "file_name": "a.png"}]}')
    pairs = ps.read_pairs(image=photos / "*", mask=tmp_path / "masks" / "*")
    lists = ps.read_list(lines, duplicates="drop")
    opened = [ps.read_files(photos / "*"), lists, ps.read_images(tmp_path), pairs, ps.read_coco(photos, coco)]
    assert {type(ds._root.source) for ds in opened} == set(WholeFiles.__subclasses__())  # type: ignore[attr-defined]
    for ds in opened:
        numbers = ds._root.known_numbers["num_bytes"].values(np.arange(len(ds)))  # type: ignore[attr-defined]
        assert numbers.tolist() == [sum(len(value) for value in element.values() if isinstance(value, bytes)) for element in ds]


def test_plan_and_error_name_them(tmp_path: Path) -> None:
    ds = write(tmp_path, "text").map(len)
    assert "  known without computing, for by=: num_bytes" in ds.explain().splitlines()
    with pytest.raises(PlanError, match=r"no number 'length' is known of the elements of read_text.*; known before it: num_bytes"):
        ds.sort_window("length", 10)


@pytest.mark.parametrize("field", READ)
def test_a_state_goes_with_the_numbers_that_it_was_saved_with(tmp_path: Path, field: str) -> None:
    state = write(tmp_path, field).sort_window("num_bytes", 8).feed(executor="inline").state_dict()
    opened(tmp_path, field).sort_window("num_bytes", 8).feed(executor="inline").load_state_dict(state)
    other = write(tmp_path, field, [SIZES[0] + 1, *SIZES[1:]]).sort_window("num_bytes", 8)
    with pytest.raises(StateMismatch):
        other.feed(executor="inline").load_state_dict(state)


def test_labels_are_known_and_balance_classes(tmp_path: Path) -> None:
    for number in range(12):
        path = tmp_path / ("a" if number < 9 else "b") / f"{number:02}.png"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"")
    ds = ps.read_images(str(tmp_path)).concatenate(ps.read_images(str(tmp_path)))
    labels = ds.take(20).numbers("label")
    assert labels.tolist() == [element["label"] for element in ds.take(20)]
    drawn = ds.take(20).sample(1000, 1 / np.bincount(labels)[labels], reshuffle_each_epoch=False).numbers("label")
    assert 450 < np.count_nonzero(drawn) < 550
    with pytest.raises(PlanError, match="gives another order"):
        ds.shuffle(seed=1).numbers("label")
