"""The look at some elements before packing."""

from __future__ import annotations

import pickle
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from packing.small import bad_at_7, dataset, odd

import penstock as ps
from penstock.errors import PackError, SourceError, SpecError, TooManySkipped
from penstock.packing.options import PackOptions
from penstock.packing.sampling import PositionsLook, SamplePart, _look, check_room, split, take_sample


def sampled(ds: ps.Dataset, options: PackOptions | None = None, policy: ps.Raise | ps.Skip | None = None):  # type: ignore[no-untyped-def]
    return take_sample(split(ds, variants=1, shuffle=None), options or PackOptions(), policy or ps.Raise())


def test_a_small_dataset_is_measured_whole_and_its_size_is_exact(tmp_path: Path) -> None:
    found = sampled(dataset(50))
    manifest = ps.pack(dataset(50), tmp_path / "out", executor="threads", num_shards=1)
    assert found.num_sampled == 50
    assert (found.total_count, found.total_bytes) == (50, manifest.num_bytes)
    assert found.element_s > 0


def test_a_large_one_is_judged_by_64_elements_and_always_the_same(tmp_path: Path) -> None:
    first, second = sampled(dataset(5000)), sampled(dataset(5000))
    assert first.num_sampled == 64
    assert first.total_count == 5000
    assert (first.schema, first.columns, first.total_bytes) == (second.schema, second.columns, second.total_bytes)
    assert 0.9 < first.total_bytes / ps.pack(dataset(5000), tmp_path / "out", executor="threads").num_bytes < 1.1


def test_a_filter_makes_the_count_an_estimate() -> None:
    assert 1500 < sampled(dataset(5000).filter(odd)).total_count < 3500


def test_bad_elements_are_left_out_or_raised_as_the_policy_says() -> None:
    assert sampled(dataset(20).map(bad_at_7), policy=ps.Skip()).total_count == 19
    with pytest.raises(ValueError, match="number 7 is bad"):
        sampled(dataset(20).map(bad_at_7))


def none_at_multiples(number: int, of: int) -> dict[str, object]:
    return {"number": number, "text": None if number % of == 0 else str(number)}


def test_a_sampled_element_that_cannot_be_written_is_left_out_as_any_other(tmp_path: Path) -> None:
    for of in (63 * 7, 5):  # of 442 elements the first and the last, which are sampled, and of many
        ds = ps.from_source(range(442)).map(partial(none_at_multiples, of=of))
        found = sampled(ds, policy=ps.Skip())
        assert [field.kind for field in found.schema.fields] == ["array", "str"]
        manifest = ps.pack(ds, tmp_path / str(of), executor="threads", on_error=ps.Skip())
        lost = len(range(0, 442, of))
        assert (len(manifest), len(manifest.skipped)) == (442 - lost, lost)
        with pytest.raises(SpecError, match="field 'text' is a NoneType"):
            sampled(ds, policy=ps.Skip(errors=OSError))


def test_the_element_of_the_sample_that_differs_is_named() -> None:
    ds = ps.from_source(range(2000)).map(partial(none_at_multiples, of=1999)).map(lambda element: element, name="mine")
    with pytest.raises(SpecError) as caught:
        sampled(ds.skip(1))
    assert any("index 1999 (element 1999 of range)" in note for note in caught.value.__notes__)


def test_a_filter_that_leaves_few_is_followed_until_there_is_one(tmp_path: Path) -> None:
    ds = ps.from_source(range(10_000)).filter(rare)
    found = sampled(ds)
    assert found.num_sampled == 1024
    assert found.total_count == pytest.approx(10, abs=1)
    assert len(ps.pack(ds, tmp_path / "out", executor="threads")) == 10


def rare(number: int) -> bool:
    return number % 1000 == 700


def test_no_elements_are_an_error() -> None:
    with pytest.raises(SourceError) as caught:
        sampled(ps.from_arrays(np.zeros((0, 2))))
    assert "the dataset has no elements" in str(caught.value)
    with pytest.raises(SourceError) as caught:
        sampled(dataset(3).take(1).filter(odd))
    assert "none of 1 elements could be made, or all were filtered out" in str(caught.value)


def test_a_disk_without_room_is_an_error(tmp_path: Path) -> None:
    check_room(str(tmp_path), 1)
    with pytest.raises(PackError) as caught:
        check_room(str(tmp_path), 10**18)
    assert "are needed and" in str(caught.value)


def parts_of(ds: ps.Dataset, num_parts: int, policy: ps.Raise | ps.Skip) -> list[PositionsLook]:
    part = pickle.loads(pickle.dumps(SamplePart(split(ds, variants=1, shuffle=None), policy, num_parts)))
    return [pickle.loads(pickle.dumps(part(number))) for number in range(num_parts)]


def twice(number: int) -> list[int]:
    return [number, number]


def bad_at_odd(number: int) -> dict[str, object]:
    if number % 2:
        raise ValueError(f"number {number} is bad")
    return {"number": number, "text": "x" * (number % 9)}


@pytest.mark.parametrize("num_parts", [1, 3, 64, 100])
@pytest.mark.parametrize(
    "ds",
    [
        dataset(5000),
        dataset(3),
        dataset(5000).filter(odd),
        ps.from_source(range(10_000)).filter(rare),
        ps.from_source(range(700)).flat_map(twice),
        ps.from_source(range(500)).map(bad_at_odd),
    ],
    ids=["many", "three", "filtered", "none of them", "flat_map", "failing"],
)
def test_a_sample_in_parts_is_the_sample(ds: ps.Dataset, num_parts: int) -> None:
    policy, cut = ps.Skip(errors=ValueError), split(ds, variants=1, shuffle=None)
    whole, joined = (take_sample(cut, PackOptions(), policy, looks) for looks in ((), parts_of(ds, num_parts, policy)))
    assert joined.element_s >= 0
    assert replace(joined, element_s=0.0) == replace(whole, element_s=0.0)


@pytest.mark.parametrize("limit", [0, 31, 32, 64])
def test_a_count_of_losses_is_for_all_parts_together(limit: int) -> None:
    ds, policy = ps.from_source(range(64)).map(bad_at_odd), ps.Skip(limit=limit)
    cut = split(ds, variants=1, shuffle=None)
    looks = [SamplePart(cut, ps.Skip(limit=limit or 8), 8)(number) for number in range(8)]
    assert [look.num_lost for look in looks] == [4] * 8
    if limit < 32:
        with pytest.raises(TooManySkipped):
            take_sample(cut, PackOptions(), policy, looks)
    else:
        assert take_sample(cut, PackOptions(), policy, looks).total_count == 32


def test_of_a_sample_in_parts_nothing_is_made_again_unless_a_part_is_missing() -> None:
    made: list[int] = []
    ds = ps.from_source(range(100)).map(lambda number: made.append(number) or {"number": number})
    cut = split(ds, variants=1, shuffle=None)
    looks = [SamplePart(cut, ps.Raise(), 3)(number) for number in range(3)]
    assert sorted(made) == sorted({place * 99 // 63 for place in range(64)})
    made.clear()
    take_sample(cut, PackOptions(), ps.Raise(), looks)
    assert made == []
    take_sample(cut, PackOptions(), ps.Raise(), [*looks[:2], None])
    assert len(made) == 64


def test_the_sample_has_the_positions_that_it_names_also_where_elements_are_left_out_below_a_batch() -> None:
    def bad_at_9(number: int) -> int:
        if number == 9:
            raise ValueError(number)
        return number

    dataset = ps.from_source(range(40)).map(bad_at_9).batch(4)
    found = _look(split(dataset, variants=1, shuffle=None), ps.Skip(), [0, 7])
    assert [batch.tolist() for batch in found.elements] == [[0, 1, 2, 3], [29, 30, 31, 32]]
