"""A dataset as shards, and the look at some elements before packing."""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from core import core
from packing.small import bad_at_7, dataset, odd, twice

import penstock as ps
from penstock.dataset.builder import Dataset
from penstock.dataset.measuring import for_part
from penstock.errors import PlanError, SourceError, SpecError
from penstock.packing.options import PackOptions
from penstock.packing.split import Estimate, has_positions, split, take_sample

DATASETS = {
    "plain": dataset,
    "shuffled": lambda: dataset().shuffle(seed=3).repeat(2),
    "filter": lambda: dataset().shuffle(seed=3).filter(odd).map(len),
    "flat_map": lambda: dataset().flat_map(twice).map(dict),
    "batches": lambda: dataset().map(len).batch(4),
    "unbatched": lambda: ps.from_source(range(20)).batch(3).unbatch(),
    "prefetch": lambda: dataset().filter(odd).prefetch(2),
}


def same(one: list[Any], other: list[Any]) -> bool:
    return repr(one) == repr(other)


@pytest.mark.parametrize("name", DATASETS)
@pytest.mark.parametrize("num_shards", core([3, 1, 7]))
def test_all_parts_together_are_the_whole(name: str, num_shards: int) -> None:
    whole = DATASETS[name]()
    cut = split(whole)
    borders = cut.borders(num_shards)
    parts = [element for begin, end in pairwise(borders) for element in cut.part(begin, end).feed(executor="inline")]
    assert same(parts, list(whole.feed(executor="inline")))
    assert same(parts, list(Dataset(cut.whole()).feed(executor="inline")))


def test_some_positions_are_what_stands_there() -> None:
    cut = split(dataset().shuffle(seed=1))
    whole = list(dataset().shuffle(seed=1))
    assert same(list(cut.some([0, 7, 49])), [whole[0], whole[7], whole[49]])


def test_what_has_positions_is_told_from_what_only_reading_tells() -> None:
    for make in DATASETS.values():
        assert has_positions(make()._root)
    for ds in (
        ps.from_generator(lambda: iter(range(9))),
        ps.from_generator(lambda: iter(range(9)), fast_forward=True, length=9).map(str),
        dataset().filter(odd).take(5),
        dataset().filter(odd).batch(2),
        dataset().flat_map(twice).repeat(2).map(dict),
    ):
        assert not has_positions(ds._root)


def test_what_has_no_end_is_refused() -> None:
    with pytest.raises(PlanError, match="an endless dataset cannot be packed"):
        split(dataset().repeat())


def test_a_rate_of_skipped_elements_is_not_judged_in_a_part() -> None:
    assert for_part(ps.Skip(0.1, errors=OSError)) == ps.Skip(None, errors=OSError)
    assert for_part(ps.Retry(2, then=ps.Skip(0.1))) == ps.Retry(2, then=ps.Skip())
    for policy in (ps.Skip(3), ps.Raise(), ps.Retry(2)):
        assert for_part(policy) is policy


def sampled(ds: ps.Dataset, policy: Any = None) -> Estimate:
    return take_sample(split(ds), PackOptions(), policy or ps.Raise())


def test_a_small_dataset_is_measured_whole_and_its_size_is_exact(tmp_path: Path) -> None:
    found = sampled(dataset(50))
    manifest = ps.pack(dataset(50), tmp_path / "out", executor="threads", num_shards=1)
    assert (found.num_sampled, found.count, found.size) == (50, 50, manifest.num_bytes)


def test_a_large_one_is_judged_by_64_elements_and_always_the_same(tmp_path: Path) -> None:
    first, second = sampled(dataset(5000)), sampled(dataset(5000))
    assert (first.num_sampled, first.count) == (64, 5000)
    assert first == second
    assert first.size is not None
    assert 0.9 < first.size / ps.pack(dataset(5000), tmp_path / "out", executor="threads").num_bytes < 1.1


def test_a_filter_makes_the_count_an_estimate() -> None:
    assert 1500 < (sampled(dataset(5000).filter(odd)).count or 0) < 3500


def test_bad_elements_are_left_out_or_raised_as_the_policy_says() -> None:
    assert sampled(dataset(20).map(bad_at_7), policy=ps.Skip()).count == 19
    with pytest.raises(ValueError, match="number 7 is bad"):
        sampled(dataset(20).map(bad_at_7))


def none_at_multiples(number: int, of: int) -> dict[str, object]:
    return {"number": number, "text": None if number % of == 0 else str(number)}


@pytest.mark.parametrize("of", [63 * 7, 5], ids=["the first and the last", "many"])
def test_an_element_of_the_sample_that_cannot_be_written_is_named_or_left_out(tmp_path: Path, of: int) -> None:
    ds = ps.from_source(range(442)).map(partial(none_at_multiples, of=of))
    assert [field.kind for field in sampled(ds).schema.fields] == ["array", "str"]
    manifest = ps.pack(ds, tmp_path / "skip", executor="threads", on_error=ps.Skip())
    lost = len(range(0, 442, of))
    assert (len(manifest), len(manifest.skipped)) == (442 - lost, lost)
    with pytest.raises(SpecError, match="field 'text' is a NoneType") as caught:
        ps.pack(ds, tmp_path / "raise", executor="threads", on_error=ps.Skip(errors=OSError))
    assert any("index 0 (element 0 of range)" in note for note in caught.value.__notes__)


def rare(number: int) -> bool:
    return number % 1000 == 700


def test_a_filter_that_leaves_few_is_followed_until_there_is_one(tmp_path: Path) -> None:
    ds = ps.from_source(range(10_000)).filter(rare)
    assert sampled(ds).num_sampled == 1
    assert len(ps.pack(ds, tmp_path / "out", executor="threads")) == 10


def test_no_elements_are_an_error() -> None:
    for ds, words in (
        (ps.from_arrays(np.zeros((0, 2))), "no elements"),
        (dataset(3).take(1).filter(odd), "none of 1 elements could be made"),
    ):
        with pytest.raises(SourceError, match=words):
            sampled(ds)
