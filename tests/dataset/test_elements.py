from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from dataset.small import POSITIONS, Row, assert_refused, double, generated, noisy, numbers, refusals

import penstock as ps
from penstock.errors import SpecError


def balanced(*arguments: Any) -> ps.Dataset:
    return numbers(3).rejection_resample(*arguments)


async def fetch(x: int) -> int:
    return x


async def stream(x: int) -> AsyncIterator[int]:
    yield x


WRONG: list[Row] = [
    ("map without a function", lambda: numbers(3).map(3), "3 is not callable", "map()", "a function that takes one element"),  # type: ignore[arg-type]
    ("map with concurrency 0", lambda: numbers(3).map(double, concurrency=0), "concurrency=0", "map()", "whole number >= 1"),
    (
        "map declared as a dtype",
        lambda: numbers(3).map(double, output_spec=np.float32),
        "no ArraySpec",
        "map(output_spec=...)",
        "as ds.spec()",
    ),
    ("map with a negative seed", lambda: numbers(3).map(double, seed=-1), "seed=-1 is not a whole number >= 0", "map()", "seed"),
    ("enumerate from a fraction", lambda: numbers(3).enumerate(1.5), "start=1.5 is not a whole number", "enumerate()", "start"),  # type: ignore[arg-type]
    ("enumerate beyond 63 bits", lambda: numbers(3).enumerate(2**63 - 1), f"as large as {2**63 + 1}", "enumerate()", "smaller numbers"),
    ("cache in a number", lambda: numbers(3).cache(5), "path=5 is no path", "cache()", "pathlib.Path"),  # type: ignore[arg-type]
    ("cache in nothing", lambda: numbers(3).cache(""), "path='' is no path", "cache()", "that is not empty"),
    ("filter without a function", lambda: numbers(3).filter(None), "None is not callable", "filter()", "takes one element"),  # type: ignore[arg-type]
    ("filter with an rng", lambda: numbers(3).filter(noisy), "filter gives no rng", "filter(", "draw in a map"),
    ("resample without a function", lambda: balanced(3, [1]), "3 is not callable", "rejection_resample()", "takes one element"),
    ("resample with an rng", lambda: balanced(noisy, [1]), "gives no rng", "rejection_resample(", "draw in a map"),
    ("resample to zeros", lambda: balanced(abs, [0, 0]), "target_dist=[0, 0]", "rejection_resample()", "not all of them 0"),
    ("resample from other classes", lambda: balanced(abs, [1, 1], [1]), "is not a list of 2 shares", "rejection_resample()", "2 numbers"),
    ("resample with a word", lambda: balanced(abs, [1, 1], None, "x"), "seed='x' is not a whole number", "rejection_resample()", "seed"),
    (
        "unbatch of a ragged batch",
        lambda: numbers(3).ragged_batch(2).unbatch(),
        "a ragged batch has values and row_splits of other lengths",
        "unbatch() after ragged_batch()",
        "use flat_map",
    ),
    ("an async filter", lambda: numbers(3).filter(fetch), "filter does not await", "filter(fetch)", "await in a map() before it"),
    (
        "an async flat_map",
        lambda: numbers(3).flat_map(partial(fetch)),
        "flat_map does not await",
        "flat_map(partial(fetch))",
        "let flat_map",
    ),
    ("map with an async generator", lambda: numbers(3).map(stream), "no single element to await", "map(stream)", "flat_map(list) after"),
    ("an async map in a branch", lambda: numbers(3).zip(numbers(3).map(fetch)), "a branch of zip", "map(async", "after the zip"),
    ("a branch of one", lambda: numbers(3).map(fetch).concatenate(numbers(3)), "a branch of concatenate", "map(async", "after the con"),
    ("flat_map without a function", lambda: numbers(3).flat_map([]), "[] is not callable", "flat_map()", "takes one element"),  # type: ignore[arg-type]
    ("cache behind a filter", lambda: numbers(3).filter(double).cache(), f"cache {POSITIONS}", "cache()", "put cache() before the filter"),
    ("cache of a generator", lambda: generated().cache(), f"cache {POSITIONS}", "cache()", "when from_source reads it by number"),
    (
        "cache of a map with workers",
        lambda: numbers(3).map(double, concurrency=2).cache(),
        "concurrency= has no effect inside a branch of cache",
        "map(concurrency=...) before cache()",
        "give concurrency= to a map after the cache",
    ),
    ("cache of no bytes", lambda: numbers(3).cache(max_bytes=0), "max_bytes=0 is not a whole number >= 1", "cache()", "max_bytes"),
    ("cache in a file", lambda: numbers(3).cache(__file__), "test_elements.py' is a file", "cache()", "give the path of a folder"),
    ("version of memory", lambda: numbers(3).cache(version=2), "version='2' without a path", "cache()", "give a path"),
    (
        "folder for a lambda",
        lambda: numbers(3).map(lambda x: x, name="decode").cache("/nowhere"),
        "<lambda> says too little: a lambda, a partial and a function or method with values of its own",
        "cache() after map(decode)",
        "give version=, and another one after each change",
    ),
]


@refusals(WRONG)
def test_what_cannot_run_is_refused_where_it_is_written(call: Callable[[], Any], what: str, where: str, fix: str) -> None:
    assert_refused(call, what, where, fix)


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
