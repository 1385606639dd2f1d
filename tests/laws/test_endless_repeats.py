"""An endless repeat ends in an error only when a whole pass gives it nothing, whatever stands above it, and whoever fed before."""

from __future__ import annotations

from itertools import cycle, islice
from typing import Any

import numpy as np
import pytest
from laws.plans import plain

import penstock as ps

ODD = list(range(1, 100, 2))
OPTIONS = [{"executor": "inline"}, {"executor": "threads", "num_workers": 3}]


def odd() -> ps.Dataset:
    return ps.from_source(range(100)).filter(lambda value: value % 2)


def broken(value: int) -> int:
    if value == 1:
        raise ValueError("cannot use 1")
    return value


def failing(value: int) -> int:
    raise ValueError(f"cannot use {value}")


def many(count: int) -> list[int]:
    return list(islice(cycle(ODD), count))


def delivered(ds: ps.Dataset, **options: Any) -> list[Any]:
    with ds.feed(**options) as feed:
        return [plain(item) for item in feed]


BATCHES = [ODD[start : start + 8] for start in range(0, 50, 8)]
PLANS: dict[str, tuple[Any, list[Any]]] = {
    "a batch larger than a pass": (lambda: odd().repeat().batch(120).take(2), [many(120), many(240)[120:]]),
    "a skip of more than a pass": (lambda: odd().repeat().skip(60).take(3), many(63)[60:]),
    "a shard that a pass has nothing for": (lambda: odd().repeat().shard(200, 150).take(2), [many(151)[150], many(351)[350]]),
    "a take that ends with a pass": (lambda: odd().batch(8).repeat().take(7), BATCHES),
    "a take in the second pass": (lambda: odd().batch(8).repeat().take(9), [*BATCHES, *BATCHES[:2]]),
    "a skip of what a take left": (lambda: odd().repeat().take(1).skip(1), []),
    "take(0)": (lambda: odd().repeat().take(0), []),
    "take(0) of nothing": (lambda: ps.from_source([]).flat_map(lambda value: [value]).repeat().take(0), []),
    "a bucket of several passes": (
        lambda: odd().take(1).repeat().bucket_by_length(lambda value: 1, [5], [3, 1]).take(2),
        [[1, 1, 1], [1, 1, 1]],
    ),
    "two repeats": (lambda: odd().take(2).repeat().take(3).repeat(2), [1, 3, 1, 1, 3, 1]),
    "a repeat of what is left": (
        lambda: ps.from_source(range(3)).map(broken, on_error=ps.Skip()).repeat().take(7),
        [0, 2, 0, 2, 0],
    ),
}


@pytest.mark.filterwarnings("ignore:this dataset gave no elements")
@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("name", PLANS)
def test_a_repeat_of_something_delivers_each_time_the_dataset_is_fed(name: str, options: dict[str, Any]) -> None:
    make, wanted = PLANS[name]
    ds = make()
    assert [delivered(ds, **options) for _ in range(3)] == [wanted] * 3


def several(value: int) -> list[int]:
    return [value] * (value % 3)


def drawn(value: int, rng: np.random.Generator) -> int:
    return value + 0 * int(rng.integers(10))


def generated() -> ps.Dataset:
    return ps.from_generator(lambda: iter(range(6)), fast_forward=True)


SKIP = {"on_error": ps.Skip()}
NOTHING: dict[str, Any] = {
    "a filter": lambda: ps.from_source(range(10)).filter(lambda value: False).repeat(),
    "a dropped remainder": lambda: odd().batch(60, drop_remainder=True).repeat(),
    "a take": lambda: odd().take(0).repeat(),
    "Skip": lambda: ps.from_source(range(6)).map(failing, on_error=ps.Skip()).repeat(),
    "Skip above a shuffle": lambda: ps.from_source(range(6)).shuffle(seed=1).map(failing, on_error=ps.Skip()).repeat().batch(2),
    "Skip of what it gives": lambda: ps.from_source(range(6)).repeat().map(failing, **SKIP),
    "a flat_map": lambda: ps.from_source(range(6)).repeat().flat_map(failing, **SKIP),
    "all results of a flat_map": lambda: ps.from_source(range(6)).repeat().flat_map(lambda value: [value] * 2).map(failing, **SKIP),
    "the results of a flat_map that has none for some": lambda: ps.from_source(range(6)).repeat().flat_map(several).map(failing, **SKIP),
    "a flat_map of flat_maps": lambda: ps.from_source(range(6)).flat_map(several).repeat().flat_map(failing, **SKIP),
    "Skip behind a filter": lambda: ps.from_source(range(6)).filter(lambda value: True).repeat().map(failing, **SKIP),
    "Skip of a generator": lambda: generated().repeat().map(failing, **SKIP),
    "Skip of batches of a generator": lambda: generated().repeat().batch(2).map(failing, **SKIP),
    "Skip of batches of a source": lambda: ps.from_source(range(4)).batch(4).repeat().filter(failing, **SKIP),
    "Skip of a map of batches": lambda: ps.from_source(range(4)).batch(2).repeat().map(failing, **SKIP),
    "Skip below it of a map of batches": lambda: ps.from_source(range(4)).batch(2).map(failing, **SKIP).repeat(),
    "Skip of two passes": lambda: generated().repeat(2).repeat().map(failing, **SKIP),
    "Skip of packed rows": lambda: ps.from_source([np.ones(2)] * 3).pack_sequences(4).repeat().flat_map(failing, **SKIP),
    "Skip above a take": lambda: generated().take(2).repeat().batch(2).map(failing, **SKIP),
    "Skip of random numbers": lambda: ps.from_source(range(6)).repeat().map(drawn).map(failing, **SKIP),
}


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("name", NOTHING)
def test_a_repeat_of_nothing_is_an_error(name: str, options: dict[str, Any]) -> None:
    with pytest.raises(ps.errors.SourceError) as caught:
        delivered(NOTHING[name](), **options)
    assert caught.value.what == "a whole pass of an endless repeat() gave no element"


@pytest.mark.filterwarnings("ignore:this dataset gave no elements")
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_elements_that_end_may_all_be_left_out(options: dict[str, Any]) -> None:
    assert delivered(ps.from_source(range(6)).repeat().take(2000).map(failing, **SKIP), **options) == []
    assert delivered(odd().repeat().take(2000).map(failing, **SKIP), **options) == []
    assert delivered(odd().repeat(40).map(failing, **SKIP), **options) == []


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_a_function_that_fails_by_chance_is_not_taken_for_one_that_always_does(options: dict[str, Any]) -> None:
    def rare(value: int, rng: np.random.Generator) -> int:
        if rng.integers(10):
            raise ValueError("not this time")
        return value

    ds = ps.from_source(range(2)).repeat().map(rare, seed=5, **SKIP).map(lambda value: value + 1)
    assert set(delivered(ds.filter(lambda value: True).take(40), **options)) == {1, 2}
    few = ps.from_source(range(2)).repeat().map(drawn_of_many, seed=5).filter(lambda value: value < 20).map(broken_above, **SKIP)
    assert len(delivered(few.take(2), **options)) == 2


def drawn_of_many(value: int, rng: np.random.Generator) -> int:
    return int(rng.integers(2000))


def broken_above(value: int) -> int:
    if value > 1:
        raise ValueError("too much")
    return value


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_a_take_of_what_skip_leaves_of_an_endless_repeat_begins_again(options: dict[str, Any]) -> None:
    ds = ps.from_source(range(6)).map(broken, on_error=ps.Skip()).batch(1).map(lambda batch: batch)
    ds = ds.repeat().take(7).filter(lambda batch: True).repeat(2)
    assert delivered(ds, **options) == [[0], [2], [3], [4], [5], [0]] * 2


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_a_full_take_ends_the_run_whatever_takes_again_below_it(options: dict[str, Any]) -> None:
    ds = ps.from_source([2, 2, 4]).filter(lambda value: True).map(lambda value: value, on_error=ps.Skip(errors=OSError))
    assert delivered(ds.take(1).repeat().take(16), **options) == [2] * 16


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_a_take_that_could_not_begin_again_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ps.errors.PlanError) as caught:
        delivered(odd().repeat().filter(lambda value: True).take(7).repeat(2), **options)
    assert "take(7) cannot begin again for the repeat() after it" in caught.value.what
    assert "give the first repeat() a count" in str(caught.value)
    mended = odd().repeat(2).filter(lambda value: True).take(7).repeat(2)
    assert delivered(mended, **options) == [1, 3, 5, 7, 9, 11, 13] * 2
