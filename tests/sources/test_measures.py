"""A folder of known numbers, and a column of it as a source."""

from __future__ import annotations

import json
import os
import pickle
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dataset.measured import inline, is_even, numbers, tripled

from penstock._contracts.source import ColumnSource, FileSource
from penstock._plan.facts import identity
from penstock.errors import LengthMismatch, PenstockError, PlanError, SourceError
from penstock.sources.measures import RECORD, WORK, Column, read_measures
from penstock.testing import check_source

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="measure() needs locks of files between processes")
COUNT = 45


def large(element: int) -> int:
    return element << 40


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    inline(tmp_path / "out", numbers(COUNT), {"length": tripled, "large": large, "even": is_even})
    return tmp_path / "out"


def read(folder: Path, count: int = COUNT, length: int = COUNT) -> dict[str, Column]:
    return read_measures(folder, identity(numbers(count)._root, ""), length).columns


def test_a_column_keeps_the_laws_of_a_source(folder: Path) -> None:
    expected = {
        "length": [np.int64(3 * number) for number in range(COUNT)],
        "large": [np.int64(number << 40) for number in range(COUNT)],
        "even": [np.int64(number % 2 == 0) for number in range(COUNT)],
    }
    for name, column in read(folder).items():
        assert isinstance(column, ColumnSource)
        check_source(column, expected=expected[name], again=lambda name=name: read(folder)[name])  # type: ignore[misc]


def test_a_column_says_what_it_is(folder: Path) -> None:
    column = read(folder)["even"]
    assert (len(column), column.is_bool, column.name) == (COUNT, True, "even")
    assert column.label() == "column('even', 45 elements)"
    assert column.describe(7) == "number 7 of column 'even'"
    assert column.fingerprint() == {"kind": "column", "name": "even", "dtype": "bits", "count": COUNT, "crc32": column.crc}
    assert isinstance(column, FileSource)
    assert list(column.input_files()) == [str(folder / "even.bits")]
    out = np.empty(2, np.int64)
    assert column.gather_columns(np.array([0, 1]), [out])[0] is out
    assert out.tolist() == [1, 0]
    with pytest.raises(LengthMismatch, match="there are 45 numbers, and indices from -1 to -1"):
        column.gather_columns(np.array([-1]), None)


def test_a_column_is_sent_by_path_and_mapped_where_it_is_read(folder: Path) -> None:
    column = read(folder)["length"]
    column.gather([1], [])
    sent = pickle.dumps(column)
    assert len(sent) < 500
    os.unlink(folder / "length.i4")
    again = pickle.loads(sent)
    assert again == column
    with pytest.raises(SourceError, match="the file of column 'length' is lost"):
        again.gather([1], [])


def test_a_column_that_is_damaged_is_an_error_when_it_is_first_read(folder: Path) -> None:
    data = bytearray((folder / "length.i4").read_bytes())
    data[40] ^= 1
    (folder / "length.i4").write_bytes(data)
    column = read(folder)["length"]
    with pytest.raises(SourceError, match="the file of column 'length' is damaged"):
        column.gather([0], [])


def test_files_that_are_lost_or_cut_are_errors(folder: Path) -> None:
    os.truncate(folder / "large.i8", 7)
    with pytest.raises(SourceError) as caught:
        read(folder)
    assert caught.value.what == "the file of column 'large' has 7 bytes, not 360"
    assert caught.value.where == str(folder / "large.i8")
    os.unlink(folder / "even.bits")
    os.unlink(folder / "large.i8")
    with pytest.raises(SourceError, match="the file of column 'large' is lost"):
        read(folder)


@pytest.mark.parametrize("text", ["", "[]", "{", '{"form": 1, "identity": {}}', "\xff"])
def test_a_record_that_cannot_be_understood_is_an_error(folder: Path, text: str) -> None:
    (folder / RECORD).write_bytes(text.encode("latin-1"))
    with pytest.raises(SourceError, match="the file is no record of numbers in form 2"):
        read(folder)


def test_numbers_of_something_else_are_refused(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "begun" / WORK).mkdir(parents=True)
    cases: list[tuple[Any, type[PenstockError], str]] = [
        (lambda: read(tmp_path / "none"), SourceError, "no numbers of a dataset are here"),
        (lambda: read(tmp_path / "begun"), SourceError, "not complete: measuring was begun, and has not ended"),
        (lambda: read(folder, count=46), PlanError, "measured for another dataset: other dataset"),
        (lambda: read(folder, length=46), PlanError, "numbers of 45 elements are here, and the dataset has 46"),
    ]
    for call, kind, words in cases:
        with pytest.raises(kind) as caught:
            call()
        assert words in str(caught.value)
        assert ("ds.measure(folder, ...) or `penstock measure`" in caught.value.fix) == (kind is SourceError)


def test_the_record_has_the_check_sums_of_the_files(folder: Path) -> None:
    record = json.loads((folder / RECORD).read_text())
    assert record["length"] == COUNT
    assert {name: stored["dtype"] for name, stored in record["columns"].items()} == {"length": "i4", "large": "i8", "even": "bits"}
