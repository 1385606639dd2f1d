"""Where an element that fails is left out by count: by its position it is not computed; in a stream it raises in its turn, as in plain
Python; what stands behind a full take is not asked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
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
LEFT_OUT: dict[str, tuple[Make, tuple[int, ...], list[Any], list[Any]]] = {
    # what is left out, the failing elements, what comes where positions are known, and what comes of a stream before the first error
    "skip": (lambda ds: ds.skip(3), (0, 2), [3, 4, 5, 6, 7, 8, 9], []),
    "skip and take": (lambda ds: ds.skip(1).take(2), (0, 3), [1, 2], []),
    "shard": (lambda ds: ds.shard(2, 1), (2, 8), [1, 3, 5, 7, 9], [1]),
    "a dropped remainder": (
        lambda ds: ds.batch(4, drop_remainder=True),
        (8, 9),
        [[0, 1, 2, 3], [4, 5, 6, 7]],
        [[0, 1, 2, 3], [4, 5, 6, 7]],
    ),
    "a gap between windows": (lambda ds: ds.window(2, 4), (2, 3, 6), [[0, 1], [4, 5], [8, 9]], [[0, 1]]),
    "a stride": (lambda ds: ds.window(2, 5, 2, drop_remainder=True), (1, 3, 4, 6), [[0, 2], [5, 7]], []),
    "skip behind enumerate": (lambda ds: ds.enumerate().skip(8), (0, 7), [[8, 8], [9, 9]], []),
    "skip in each pass": (lambda ds: ds.skip(8).repeat(2), (0, 7), [8, 9, 8, 9], []),
}
POLICIES = pytest.mark.parametrize(
    ("policy", "options"),
    [(ps.Raise(), OPTIONS[0]), (ps.Raise(), OPTIONS[1]), (ps.Skip(errors=KeyError), OPTIONS[1])],
    ids=["Raise, inline", "Raise, 3 workers", "Skip of others, 3 workers"],
)


@POLICIES
@pytest.mark.parametrize("name", LEFT_OUT)
def test_what_is_left_out_by_its_position_is_not_computed(name: str, policy: Any, options: dict[str, Any]) -> None:
    cut, bad, wanted, _ = LEFT_OUT[name]
    for function in (broken(*bad), broken_later(*bad)):
        concurrency = None if function.__name__ == "check" else 2
        ds = cut(ps.from_source(range(10)).map(function, concurrency=concurrency))
        assert outcome(ds, on_error=policy, **options) == (plain(wanted), "")


@POLICIES
@pytest.mark.parametrize("name", LEFT_OUT)
@pytest.mark.parametrize(("source", "below"), [("a source", "a filter"), ("a source", "a flat_map"), ("a generator", "known positions")])
def test_in_a_stream_what_is_left_out_by_count_raises_in_its_turn(
    source: str, below: str, name: str, policy: Any, options: dict[str, Any]
) -> None:
    cut, bad, _, before = LEFT_OUT[name]
    for function in (broken(*bad), broken_later(*bad)):
        concurrency = None if function.__name__ == "check" else 2
        ds = cut(BELOW[below](STREAM[source]()).map(function, concurrency=concurrency))
        assert outcome(ds, on_error=policy, **options) == (plain(before), f"cannot use {bad[0]}")


@POLICIES
@pytest.mark.parametrize("below", BELOW)
@pytest.mark.parametrize("source", STREAM)
def test_what_stands_behind_a_full_take_never_raises(source: str, below: str, policy: Any, options: dict[str, Any]) -> None:
    for function in (broken(4, 9), broken_later(4, 9)):
        concurrency = None if function.__name__ == "check" else 2
        ds = BELOW[below](STREAM[source]()).map(function, concurrency=concurrency)
        assert outcome(ds.take(4), on_error=policy, **options) == ([0, 1, 2, 3], "")
        assert outcome(ds.take(1).repeat(2), on_error=policy, **options) == ([0, 0], "")


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_an_element_whose_value_decides_what_is_kept_raises(options: dict[str, Any]) -> None:
    below = ps.from_source(range(8)).map(broken(7))
    assert outcome(below.filter(always).batch(3, drop_remainder=True), **options) == ([[0, 1, 2], [3, 4, 5]], "cannot use 7")
    assert outcome(ps.from_source(range(8)).filter(broken(1)).skip(3), **options)[1] == "cannot use 1"
    sized = ps.from_source(range(8)).filter(always).map(lambda value: np.full(2, value)).map(broken(1))
    assert outcome(sized.pack_sequences(4).skip(1), **options)[1] == "cannot use [1 1]"


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_batches_that_are_left_out_are_not_made(options: dict[str, Any]) -> None:
    arrays = [np.zeros(2), np.zeros(3), np.ones(2), np.ones(2)]
    ragged = ps.from_source(arrays).filter(always).batch(2).skip(1)
    assert outcome(ragged, **options) == ([[[1.0, 1.0], [1.0, 1.0]]], "")


def R(count: int) -> ps.Dataset:  # noqa: N802
    return ps.from_source(range(count))


async def later(value: Any) -> Any:
    return value


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
def test_what_counts_of_an_element_that_is_tried_again_is_how_it_failed_at_last(options: dict[str, Any]) -> None:
    tried: set[int] = set()

    def unsteady(value: int) -> bool:
        if value not in tried:
            tried.add(value)
            raise OSError("not yet")
        return True

    ds = R(6).filter(unsteady, on_error=ps.Retry(3)).map(broken(5))
    assert outcome(ds, **options) == ([0, 1, 2, 3, 4], "cannot use 5")
