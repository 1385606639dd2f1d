"""Numbers that a source knows by itself, and operators that go by them without `measure`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

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
    for name, sizes in (("masks", [5, 0, 7]), ("photos", [10, 40, 20])):
        (tmp_path / name).mkdir()
        for number, size in enumerate(sizes):
            (tmp_path / name / f"{number}.png").write_bytes(b"x" * size)
    (tmp_path / "list.txt").write_text("photos/1.png 0\nphotos/1.png 0\nmasks/2.png 1\n")
    images = [{"id": number, "file_name": f"{number}.png", "height": 6, "width": 8} for number in range(3)]
    (tmp_path / "a.json").write_text(json.dumps({"images": images, "annotations": [], "categories": []}))
    photos = tmp_path / "photos"
    cases = [
        (ps.read_files(photos / "*"), [10, 40, 20]),
        (ps.read_list(tmp_path / "list.txt", duplicates="drop"), [40, 7]),
        (ps.read_images(tmp_path), [5, 0, 7, 10, 40, 20]),
        (ps.read_pairs(image=photos / "*", mask=tmp_path / "masks" / "*"), [15, 40, 27]),
        (ps.read_coco(photos, tmp_path / "a.json", masks=True), [10, 40, 20]),
    ]
    assert {type(ds._root.source) for ds, _ in cases} == set(WholeFiles.__subclasses__())  # type: ignore[attr-defined]
    for ds, sizes in cases:
        assert ds._root.known_numbers["num_bytes"].gather_columns(np.arange(len(ds)), None)[0].tolist() == sizes


def test_plan_and_error_name_them(tmp_path: Path) -> None:
    ds = write(tmp_path, "text").map(len)
    assert "  known without computing, for by=: num_bytes" in ds.explain().splitlines()
    with pytest.raises(PlanError, match=r"no number 'length' is known of the elements of read_text.*; known below it: num_bytes"):
        ds.sort_window("length", 10)


@pytest.mark.parametrize("field", READ)
def test_a_state_goes_with_the_numbers_that_it_was_saved_with(tmp_path: Path, field: str) -> None:
    state = write(tmp_path, field).sort_window("num_bytes", 8).feed(executor="inline").state_dict()
    opened(tmp_path, field).sort_window("num_bytes", 8).feed(executor="inline").load_state_dict(state)
    other = write(tmp_path, field, [SIZES[0] + 1, *SIZES[1:]]).sort_window("num_bytes", 8)
    with pytest.raises(StateMismatch):
        other.feed(executor="inline").load_state_dict(state)
