from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from dataset.small import fetch, noisy, numbers

import penstock as ps
from penstock.errors import SpecError


def test_random_numbers_differ_by_epoch_element_seed_and_place_and_not_by_run() -> None:
    ds = numbers(50).map(noisy, seed=1).repeat(2)
    first = list(ds)
    assert first == list(ds.feed(executor="threads", num_workers=3))
    assert first[:50] != first[50:]
    assert list(numbers(50).map(noisy, seed=2)) != first[:50]
    twice = list(numbers(50).map(lambda x: (x, x)).map(lambda pair: pair[0]).map(noisy, seed=1).map(noisy, seed=1))
    draws = [(value // 1000 * 1000 - (first[place] - place), first[place] - place) for place, value in enumerate(twice)]
    assert sum(one != other for one, other in draws) > 40


def test_a_map_with_concurrency_runs_in_threads_of_its_own() -> None:
    names: set[str] = set()

    def note(x: int) -> int:
        import threading

        names.add(threading.current_thread().name)
        return x

    assert list(numbers(200).map(note, concurrency=2).batch(2).unbatch().feed(executor="threads", num_workers=2)) == list(range(200))
    assert names
    assert not any(name.startswith("penstock-workers") for name in names)


def test_a_name_given_to_an_operator_is_that_of_its_stage() -> None:
    with pytest.raises(ZeroDivisionError) as caught:
        list(numbers(3).flat_map(lambda x: 1 // 0, name="blow"))
    assert any("stage 'blow'" in note for note in caught.value.__notes__)


@pytest.mark.parametrize("number", [-1, 2, 0.5, None])
def test_a_class_out_of_range_is_an_error_at_its_element(number: Any) -> None:
    with pytest.raises(SpecError) as caught:
        list(numbers(5).rejection_resample(lambda x: number if x == 3 else 0, [1, 1], name="kind"))
    assert caught.value.what == f"{number!r} is not a class"
    assert caught.value.where == "rejection_resample(kind)"
    assert caught.value.fix == "return a whole number in 0..1"
    assert any("stage 'kind'" in note and "index 3" in note for note in caught.value.__notes__)


def test_resampling_gives_elements_and_not_pairs_and_leaves_a_class_of_no_share_out() -> None:
    ds = numbers(1000).rejection_resample(lambda x: x % 2, [0, 1])
    assert list(ds) == list(range(1, 1000, 2))
    assert ds.spec() == ps.ArraySpec((), np.dtype(np.int64))
    assert "then in order, at one place: resample" in ds.explain()
    mixed = [x % 10 == 0 for x in numbers(20_000).rejection_resample(lambda x: int(x % 10 == 0), [1, 1])]
    assert 0.45 < sum(mixed) / len(mixed) < 0.55


def test_an_async_function_has_32_calls_in_flight_unless_told_otherwise() -> None:
    assert "on an event loop, 32 call(s) at once" in numbers(3).map(fetch).explain()
    assert "on an event loop, 64 call(s) at once" in numbers(3).map(fetch, concurrency=64).batch(2).explain()
    assert "map(fetch)" in repr(numbers(3).map(fetch))
