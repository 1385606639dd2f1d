"""Grain's sources behind from_source, its iterables behind from_stream."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from laws.epochs import rest

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


def assert_resumes(made: Any, stops: tuple[int, ...] = (0, 1, 150, 299)) -> list[Any]:
    with made().feed(executor="threads", num_workers=4) as feed:
        whole = [np.asarray(item).tolist() for item in feed]
    for stop in stops:
        with made().feed(executor="threads", num_workers=2) as feed:
            head = [np.asarray(next(feed)).tolist() for _ in range(min(stop, len(whole)))]
            state = json.loads(json.dumps(feed.state_dict()))
        with made().feed(executor="threads", num_workers=1) as feed:
            feed.load_state_dict(state)
            assert head + [np.asarray(item).tolist() for item in rest(feed)] == whole
    return whole


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


def test_a_map_dataset_is_shuffled_globally_and_goes_on_exactly() -> None:
    ds = ps.from_source(mapped())
    assert len(ds) == COUNT
    assert ds[-1] == 2 * COUNT - 2
    whole = assert_resumes(lambda: ps.from_source(mapped()).shuffle(seed=3).batch(7))
    assert sorted(number for batch in whole for number in batch) == list(range(0, 2 * COUNT, 2))


def test_its_own_shuffle_and_batches_come_as_they_are() -> None:
    made = mapped().shuffle(seed=5).batch(10)
    expected = [made[place].tolist() for place in range(len(made))]
    assert [batch.tolist() for batch in ps.from_source(made)] == expected


def test_an_error_names_its_element() -> None:
    def fails_at_77(number: int) -> int:
        if number == 77:
            raise ValueError("number 77")
        return int(number)

    ds = ps.from_source(grain.MapDataset.range(COUNT).map(fails_at_77))
    with pytest.raises(ValueError, match="number 77") as caught, ds.batch(10).feed(executor="threads", num_workers=3) as feed:
        list(feed)
    assert any("index 77 (element 77 of MapMapDataset)" in note for note in caught.value.__notes__)
    with ds.feed(on_error=ps.Skip(1)) as feed:
        assert list(feed) == [number for number in range(COUNT) if number != 77]


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
    whole = assert_resumes(lambda: made().shuffle(seed=2))
    assert sorted(whole) == sorted(f"record {number}".encode() for number in range(300))


@pytest.mark.parametrize(
    "change",
    [lambda ds: ds, lambda ds: ds.filter(lambda number: number % 3 == 0), lambda ds: ds.batch(4)],
    ids=["plain", "filter", "batch"],
)
def test_an_iter_dataset_goes_on_exactly_where_its_iterator_was(change: Any) -> None:
    def made() -> ps.Dataset:
        return ps.from_stream(change(grain.MapDataset.range(COUNT).shuffle(seed=1).to_iter_dataset()))

    whole = assert_resumes(made, (0, 1, 40, 70))
    assert sorted(np.array(whole).ravel().tolist()) == [number for number in range(COUNT) if len(whole) != 100 or number % 3 == 0]


def test_a_data_loader_goes_on_exactly_where_its_iterator_was() -> None:
    def made() -> ps.Dataset:
        source = grain.sources.RangeDataSource(0, COUNT, 1)
        sampler = grain.samplers.IndexSampler(
            num_records=COUNT, num_epochs=1, shard_options=grain.sharding.NoSharding(), shuffle=True, seed=3
        )
        return ps.from_stream(grain.DataLoader(data_source=source, sampler=sampler, worker_count=0))

    assert sorted(assert_resumes(made, (0, 100))) == list(range(COUNT))
