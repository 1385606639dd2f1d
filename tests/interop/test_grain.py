"""Grain's own sources, its filters and its files; `test_datasets.py` has what holds for other libraries too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from interop.resuming import resumed

import penstock as ps
from penstock.errors import LawBroken
from penstock.testing import check_source

grain = pytest.importorskip("grain", reason="grain is not installed")
pytestmark = pytest.mark.slow

COUNT = 300


def doubled(number: int) -> int:
    return int(number) * 2


def mapped() -> Any:
    return grain.MapDataset.range(COUNT).map(doubled)


class Squares(grain.sources.RandomAccessDataSource):  # type: ignore[misc, name-defined]
    def __len__(self) -> int:
        return COUNT

    def __getitem__(self, index: Any) -> int:
        if not 0 <= index < COUNT:
            raise IndexError(index)
        return int(index) ** 2


def test_a_random_access_source_of_a_users_own_keeps_the_laws_of_a_source() -> None:
    check_source(Squares(), expected=[number**2 for number in range(COUNT)], again=Squares, most_elements=32)
    assert sorted(ps.from_source(Squares()).shuffle(seed=1)) == [number**2 for number in range(COUNT)]
    assert list(ps.from_source(grain.sources.RangeDataSource(0, 50, 1))) == list(range(50))


def test_a_map_dataset_breaks_one_law_alone_it_begins_anew_behind_its_end() -> None:
    with pytest.raises(LawBroken) as caught:  # which nobody asks it for
        check_source(mapped(), expected=list(range(0, 2 * COUNT, 2)), again=mapped, most_elements=32)
    assert caught.value.what == f"index {COUNT} is beyond the end and gave an element"


def test_what_its_filter_left_out_comes_as_none_and_can_be_filtered() -> None:
    odd = grain.MapDataset.range(20).filter(lambda number: number % 2 == 1)
    assert [number for number in ps.from_source(odd).filter(lambda number: number is not None)] == list(range(1, 20, 2))  # noqa: C416
    assert list(ps.from_stream(odd.to_iter_dataset())) == list(range(1, 20, 2))


def test_array_record_files_are_read_by_number_from_threads(tmp_path: Path) -> None:
    module = pytest.importorskip("array_record.python.array_record_module", reason="array_record is not installed")
    for file in range(3):
        writer = module.ArrayRecordWriter(str(tmp_path / f"{file}.array_record"), "group_size:1")
        for number in range(100):
            writer.write(f"record {file * 100 + number}".encode())
        writer.close()

    def made() -> ps.Dataset:
        paths = [str(tmp_path / f"{file}.array_record") for file in range(3)]
        return ps.from_source(grain.sources.ArrayRecordDataSource(paths))

    assert made()[205] == b"record 205"
    whole = resumed(lambda: made().shuffle(seed=2), (0, 150))
    assert sorted(whole) == sorted(f"record {number}".encode() for number in range(300))
