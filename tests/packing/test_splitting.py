"""A dataset as shards."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from packing.small import dataset, odd, twice

import penstock as ps
from penstock.dataset.builder import Dataset
from penstock.errors import PlanError, SourceError, TooManySkipped
from penstock.packing.sampling import check_losses, for_part, has_positions, policy_of, split

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
@pytest.mark.parametrize("num_shards", [1, 3, 7])
def test_all_parts_together_are_the_whole(name: str, num_shards: int) -> None:
    whole = DATASETS[name]()
    cut = split(whole, variants=1, shuffle=None)
    borders = cut.borders(num_shards)
    parts = [element for begin, end in pairwise(borders) for element in cut.part(begin, end).feed(executor="inline")]
    assert same(parts, list(whole.feed(executor="inline")))
    assert same(parts, list(Dataset(cut.whole()).feed(executor="inline")))


def test_some_positions_are_what_stands_there() -> None:
    cut = split(dataset().shuffle(seed=1), variants=1, shuffle=None)
    whole = list(dataset().shuffle(seed=1))
    assert same(list(cut.some([0, 7, 49])), [whole[0], whole[7], whole[49]])


def test_variants_are_passes_with_other_random_numbers_and_are_shuffled_together() -> None:
    cut = split(dataset(10), variants=3, shuffle=5)
    elements = list(cut.part(0, 30).feed(executor="inline"))
    assert same(elements, list(dataset(10).repeat(3).shuffle(seed=5)))
    assert sorted(one["number"] for one in elements) == sorted([*range(10)] * 3)
    assert len({one["drawn"] for one in elements}) == 30
    assert [one["number"] for one in elements[:10]] != list(range(10))


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


def test_variants_are_made_below_a_filter() -> None:
    cut = split(dataset(10).filter(odd), variants=2, shuffle=None)
    assert [one["number"] for one in cut.part(0, 20)] == [1, 3, 5, 7, 9] * 2


def test_what_has_no_end_is_refused() -> None:
    with pytest.raises(PlanError, match="an endless dataset cannot be packed"):
        split(dataset().repeat(), variants=1, shuffle=None)


def test_the_policy_is_that_of_the_call_or_of_the_dataset_and_puts_nothing_in_place_of_elements() -> None:
    options = dataset()._options
    assert policy_of(options, None) == options.on_error
    assert policy_of(options, ps.Skip(3)) == ps.Skip(3)
    for policy in (ps.Replace(1), ps.Retry(2, then=ps.Replace(1))):
        with pytest.raises(PlanError, match="stands in another shard"):
            policy_of(options, policy)
    with pytest.raises(PlanError, match="on_error"):
        policy_of(options, 3)  # type: ignore[arg-type]


def test_a_rate_of_skipped_elements_is_not_judged_in_a_part() -> None:
    assert for_part(ps.Skip(0.1, errors=OSError)) == ps.Skip(None, errors=OSError)
    assert for_part(ps.Retry(2, then=ps.Skip(0.1))) == ps.Retry(2, then=ps.Skip())
    for policy in (ps.Skip(3), ps.Raise(), ps.Retry(2)):
        assert for_part(policy) is policy


def test_a_result_of_which_too_much_is_missing_is_refused() -> None:
    lost = [{"where": "line 3", "error": "ValueError", "text": "bad"}]
    for policy in (ps.Raise(), ps.Skip(), ps.Skip(1), ps.Skip(0.1), ps.Retry(1, then=ps.Skip(1))):
        check_losses(policy, lost, 9)
    for policy, num_read in ((ps.Skip(0), None), (ps.Skip(0.09), None), (ps.Skip(0.001), 100)):
        with pytest.raises(TooManySkipped, match=f"1 of {num_read or 10} elements failed, limit .*; first: ValueError: bad"):
            check_losses(policy, lost, 9, num_read)
    with pytest.raises(SourceError, match="no element is left to write"):
        check_losses(ps.Skip(), lost, 0)
