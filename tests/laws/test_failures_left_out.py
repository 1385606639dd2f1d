"""A failure is raised only if a value of its element could change a delivered batch: what is left out by count never raises."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from laws.epochs import rest
from laws.plans import plain

import penstock as ps

OPTIONS = [{"executor": "inline"}, {"executor": "threads", "num_workers": 3}]
Make = Callable[[ps.Dataset], ps.Dataset]


def broken(*values: int) -> Callable[[Any], Any]:
    def check(value: Any) -> Any:
        if int(np.ravel(value)[0]) in values:
            raise ValueError(f"cannot use {value}")
        return value

    return check


def broken_later(*values: int) -> Callable[[Any], Any]:
    check = broken(*values)

    async def wait(value: Any) -> Any:
        return check(value)

    return wait


def always(value: Any) -> bool:
    return True


def outcome(ds: ps.Dataset, **options: Any) -> tuple[list[Any], str]:
    found: list[Any] = []
    try:
        with ds.feed(**options) as feed:
            found.extend(plain(item) for item in feed)
    except ValueError as error:
        return found, str(error)
    return found, ""


BELOW: dict[str, Make] = {
    "known positions": lambda ds: ds,
    "a filter": lambda ds: ds.filter(always),
    "a flat_map": lambda ds: ds.flat_map(lambda value: [value]),
}
STREAM: dict[str, Callable[[], ps.Dataset]] = {
    "a source": lambda: ps.from_source(range(10)),
    "a generator": lambda: ps.from_generator(lambda: iter(range(10)), fast_forward=True),
}
LEFT_OUT: dict[str, tuple[Make, tuple[int, ...], list[Any]]] = {
    "skip": (lambda ds: ds.skip(3), (0, 2), [3, 4, 5, 6, 7, 8, 9]),
    "take": (lambda ds: ds.take(4), (4, 9), [0, 1, 2, 3]),
    "skip and take": (lambda ds: ds.skip(1).take(2), (0, 3), [1, 2]),
    "shard": (lambda ds: ds.shard(2, 1), (0, 2, 8), [1, 3, 5, 7, 9]),
    "a dropped remainder": (lambda ds: ds.batch(4, drop_remainder=True), (8, 9), [[0, 1, 2, 3], [4, 5, 6, 7]]),
    "a gap between windows": (lambda ds: ds.window(2, 4), (2, 3, 6), [[0, 1], [4, 5], [8, 9]]),
    "a stride": (lambda ds: ds.window(2, 5, 2, drop_remainder=True), (1, 3, 4, 6), [[0, 2], [5, 7]]),
    "skip behind enumerate": (lambda ds: ds.enumerate().skip(8), (0, 7), [[8, 8], [9, 9]]),
    "skip in each pass": (lambda ds: ds.skip(8).repeat(2), (0, 7), [8, 9, 8, 9]),
    "take in each pass": (lambda ds: ds.take(1).repeat(2), (1, 9), [0, 0]),
}


@pytest.mark.parametrize(
    ("policy", "options"),
    [(ps.Raise(), OPTIONS[0]), (ps.Raise(), OPTIONS[1]), (ps.Skip(errors=KeyError), OPTIONS[1])],
    ids=["Raise, inline", "Raise, 3 workers", "Skip of others, 3 workers"],
)
@pytest.mark.parametrize("name", LEFT_OUT)
@pytest.mark.parametrize("below", BELOW)
@pytest.mark.parametrize("source", STREAM)
def test_what_is_left_out_by_count_never_raises(source: str, below: str, name: str, policy: Any, options: dict[str, Any]) -> None:
    cut, bad, wanted = LEFT_OUT[name]
    for function in (broken(*bad), broken_later(*bad)):
        concurrency = None if function.__name__ == "check" else 2
        ds = cut(BELOW[below](STREAM[source]()).map(function, concurrency=concurrency))
        assert outcome(ds, on_error=policy, **options) == (plain(wanted), "")


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("below", BELOW)
@pytest.mark.parametrize("source", STREAM)
def test_what_is_delivered_raises_behind_everything_before_it(source: str, below: str, options: dict[str, Any]) -> None:
    ds = BELOW[below](STREAM[source]()).map(broken(0, 2, 6))
    assert outcome(ds.skip(1), **options) == ([1], "cannot use 2")
    assert outcome(ds.skip(3).batch(3, drop_remainder=True), **options) == ([[3, 4, 5]], "cannot use 6")
    assert outcome(ds.window(2, 3), **options) == ([], "cannot use 0")


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_an_element_whose_value_decides_what_is_kept_raises(options: dict[str, Any]) -> None:
    below = ps.from_source(range(8)).map(broken(7))
    assert outcome(below.filter(always).batch(3, drop_remainder=True), **options) == ([[0, 1, 2], [3, 4, 5]], "cannot use 7")
    assert outcome(ps.from_source(range(8)).filter(broken(1)).skip(3), **options)[1] == "cannot use 1"
    sized = ps.from_source(range(8)).filter(always).map(lambda value: np.full(2, value)).map(broken(1))
    assert outcome(sized.pack_sequences(4).skip(1), **options)[1] == "cannot use [1 1]"


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_of_several_results_of_one_element_only_the_failing_ones_count(options: dict[str, Any]) -> None:
    ds = ps.from_source(range(4)).flat_map(lambda value: [10 * value, 10 * value + 1]).map(broken(10, 11, 0))
    assert outcome(ds.skip(1).shard(3, 0), **options) == ([1, 20, 31], "")
    assert outcome(ds.skip(1), **options) == ([1], "cannot use 10")


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_batches_that_are_left_out_never_raise(options: dict[str, Any]) -> None:
    ds = ps.from_source(range(9)).batch(3).filter(always).map(broken(0))
    assert outcome(ds.skip(1), **options) == ([[3, 4, 5], [6, 7, 8]], "")
    arrays = [np.zeros(2), np.zeros(3), np.ones(2), np.ones(2)]
    ragged = ps.from_source(arrays).map(broken(7)).batch(2).map(lambda batch: batch).skip(1)
    assert outcome(ragged, on_error=ps.Skip(errors=KeyError), **options) == ([[[1.0, 1.0], [1.0, 1.0]]], "")


@pytest.mark.parametrize("stop", range(4))
def test_a_run_saved_behind_a_failure_that_was_left_out_goes_on(stop: int) -> None:
    ds = ps.from_source(range(10)).filter(always).map(broken(2, 6)).window(2, 4)
    with ds.feed(executor="inline") as feed:
        head = [plain(next(feed)) for _ in range(stop)]
        state = feed.state_dict()
    with ds.feed(executor="threads", num_workers=2) as feed:
        feed.load_state_dict(state)
        assert head + [plain(item) for item in rest(feed)] == [[0, 1], [4, 5], [8, 9]]


async def later(value: Any) -> Any:
    return value


ACROSS: dict[str, tuple[Callable[[Callable[..., Any]], ps.Dataset], list[Any]]] = {
    "a batch of batches": (lambda bad: R(8).filter(always).map(bad(0)).batch(2).batch(2).skip(1), [[[4, 5], [6, 7]]]),
    "the second batch of a batch": (lambda bad: R(8).filter(always).map(bad(3)).batch(2).batch(2).skip(1), [[[4, 5], [6, 7]]]),
    "a dropped remainder of batches": (
        lambda bad: R(6).filter(always).map(bad(5)).batch(2).batch(2, drop_remainder=True),
        [[[0, 1], [2, 3]]],
    ),
    "a window of windows": (lambda bad: R(9).filter(always).map(bad(2)).window(2, 3).window(1, 2).skip(0), [[[0, 1]], [[6, 7]]]),
    "batches, maps of their own and a skip": (
        lambda bad: R(6).filter(always).batch(2).map(bad(0)).map(later).map(lambda batch: batch, concurrency=2).skip(1),
        [[2, 3], [4, 5]],
    ),
    "three batches": (lambda bad: R(8).filter(always).map(bad(6)).batch(2).batch(2).batch(1).take(1), [[[[0, 1], [2, 3]]]]),
}


def R(count: int) -> ps.Dataset:  # noqa: N802
    return ps.from_source(range(count))


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("name", ACROSS)
def test_what_is_left_out_further_up_never_raises(name: str, options: dict[str, Any]) -> None:
    make, wanted = ACROSS[name]
    assert outcome(make(broken), **options) == (wanted, "")
    assert outcome(make(broken), on_error=ps.Skip(errors=KeyError), **options) == (wanted, "")


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_policies_of_some_stages_do_not_change_it(options: dict[str, Any]) -> None:
    ds = R(2).batch(1).map(broken(0), on_error=ps.Raise()).map(later).skip(1)
    assert outcome(ds, on_error=ps.Skip(), **options) == ([[1]], "")
    ds = R(2).map(broken(0)).batch(1).map(lambda batch: batch).skip(1).map(lambda batch: batch, on_error=ps.Skip())
    assert outcome(ds, **options) == ([[1]], "")


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_a_step_that_decides_raises_what_comes_to_it(options: dict[str, Any]) -> None:
    batches = R(8).filter(always).map(broken(0)).batch(2)
    assert outcome(batches.filter(always).batch(2).skip(1), **options) == ([], "cannot use 0")
    assert outcome(batches.batch(2).unbatch().skip(2), **options) == ([], "cannot use 0")


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_the_results_before_one_that_fails_are_delivered(options: dict[str, Any]) -> None:
    check = broken(1)
    ds = R(4).batch(2).unbatch().flat_map(lambda value: [check(value), value])
    assert outcome(ds, **options) == ([0, 0], "cannot use 1")
    assert outcome(ds.map(lambda value: value).skip(1), **options) == ([0], "cannot use 1")
    fails_before = R(4).batch(4).unbatch().flat_map(lambda value: [broken(2)(value), value]).map(check)
    assert outcome(fails_before, **options) == ([0, 0], "cannot use 1")


@pytest.mark.parametrize("stop", range(3))
def test_a_run_saved_behind_a_batch_that_was_left_out_goes_on(stop: int) -> None:
    ds = R(12).filter(always).map(broken(0, 9)).batch(2).batch(2).shard(3, 1).repeat(2)
    with ds.feed(executor="inline") as feed:
        head = [plain(next(feed)) for _ in range(stop)]
        state = feed.state_dict()
    with ds.feed(executor="threads", num_workers=2) as feed:
        feed.load_state_dict(state)
        assert head + [plain(item) for item in rest(feed)] == [[[4, 5], [6, 7]]] * 2


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_what_counts_of_an_element_that_is_tried_again_is_how_it_failed_at_last(options: dict[str, Any]) -> None:
    tried: set[int] = set()

    def unsteady(value: int) -> bool:
        if value not in tried:
            tried.add(value)
            raise OSError("not yet")
        return True

    ds = R(6).filter(unsteady, on_error=ps.Retry(3)).map(broken(0)).skip(1)
    assert outcome(ds, **options) == ([1, 2, 3, 4, 5], "")
