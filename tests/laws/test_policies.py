"""Policies as laws: what is delivered is what plain Python leaves over, on every executor, saved and resumed anywhere."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from laws.plans import plain

import penstock as ps
from penstock.errors import TooManySkipped

OPTIONS: list[dict[str, Any]] = [{"executor": "inline"}, {"num_workers": 1}, {"num_workers": 3}, {"num_workers": 2, "memory_bytes": 1}]
SIZE = 23
BAD = frozenset({0, 3, 4, 10, 11, 12, 17, 22})


class Faulty:
    """A map function that fails at some values, and remembers what it was called with."""

    def __init__(self, bad: frozenset[int] = BAD) -> None:
        self.bad, self.calls = bad, list[int]()

    def __call__(self, value: Any) -> Any:
        number = int(np.max(value))
        self.calls.append(number)
        if number in self.bad:
            raise ValueError(f"bad {number}")
        return value

    def __repr__(self) -> str:
        return "Faulty()"


def numbers(count: int = SIZE) -> ps.Dataset:
    return ps.from_source(list(range(count)))


def generated(count: int = SIZE) -> ps.Dataset:
    return ps.from_generator(lambda: iter(range(count)), fast_forward=True)


def odd(value: Any) -> bool:
    return int(value) % 2 == 1


def twice(value: Any) -> list[Any]:
    return [value, value + 100]


def tokens(value: Any) -> Any:
    return np.full(1 + int(value) % 4, int(value), np.int32)


def length(value: Any) -> int:
    return len(value)


def groups(values: list[Any], size: int) -> list[Any]:
    return [values[start : start + size] for start in range(0, len(values), size)]


Build = Callable[[Callable[[Any], Any]], ps.Dataset]
Reference = Callable[[Callable[[int], bool]], list[Any]]
SKIP = ps.Skip()


def row(name: str, build: Build, reference: Reference) -> Any:
    return pytest.param(build, reference, id=name)


def kept(good: Callable[[int], bool], values: Any = range(SIZE)) -> list[Any]:
    return [value for value in values if good(value)]


ROWS = [
    row("map", lambda f: numbers().map(f, on_error=SKIP), lambda g: kept(g)),
    row("batch", lambda f: numbers().map(f, on_error=SKIP).batch(4), lambda g: groups(kept(g), 4)),
    row("two passes of batches", lambda f: numbers().map(f, on_error=SKIP).batch(4).repeat(2), lambda g: groups(kept(g), 4) * 2),
    row("batches of two passes", lambda f: numbers().map(f, on_error=SKIP).repeat(2).batch(4), lambda g: groups(kept(g) * 2, 4)),
    row("workers of its own", lambda f: numbers().map(abs).map(f, on_error=SKIP, concurrency=2).map(abs).batch(4), lambda g: groups(kept(g), 4)),
    row("take counts positions", lambda f: numbers().map(f, on_error=SKIP).take(8).batch(3), lambda g: groups(kept(g, range(8)), 3)),
    row("filter below", lambda f: numbers().filter(odd).map(f, on_error=SKIP).batch(3), lambda g: groups(kept(g, range(1, SIZE, 2)), 3)),
    row(
        "take behind a filter counts what is left",
        lambda f: numbers().filter(odd).map(f, on_error=SKIP).take(5).batch(2),
        lambda g: groups(kept(g, range(1, SIZE, 2))[:5], 2),
    ),
    row(
        "maps behind a take behind a filter",
        lambda f: numbers().filter(odd).take(9).map(f, on_error=SKIP).batch(2),
        lambda g: groups(kept(g, range(1, SIZE, 2)[:9]), 2),
    ),
    row("a filter that fails", lambda f: numbers().filter(lambda x: f(x) >= 0, on_error=SKIP).batch(3), lambda g: groups(kept(g), 3)),
    row(
        "flat_map above",
        lambda f: numbers().map(f, on_error=SKIP).flat_map(twice).batch(3),
        lambda g: groups([y for x in kept(g) for y in twice(x)], 3),
    ),
    row(
        "a flat_map that fails",
        lambda f: numbers().flat_map(lambda x: twice(f(x)), on_error=SKIP).batch(3),
        lambda g: groups([y for x in kept(g) for y in twice(x)], 3),
    ),
    row(
        "behind a flat_map",
        lambda f: numbers().flat_map(twice).map(f, on_error=SKIP).batch(3),
        lambda g: groups([y for x in range(SIZE) for y in twice(x) if g(y)], 3),
    ),
    row("a generator", lambda f: generated().map(f, on_error=SKIP).batch(4), lambda g: groups(kept(g), 4)),
    row("a generator, one by one", lambda f: generated().map(f, on_error=SKIP), lambda g: kept(g)),
    row("whole batches", lambda f: numbers().batch(2).map(f, on_error=SKIP), lambda g: [b for b in groups(list(range(SIZE)), 2) if g(max(b))]),
    row(
        "whole batches of a filter, counted",
        lambda f: numbers().filter(odd).batch(2).map(f, on_error=SKIP).take(4),
        lambda g: [b for b in groups(list(range(1, SIZE, 2)), 2) if g(max(b))][:4],
    ),
    row(
        "packed",
        lambda f: numbers().map(f, on_error=SKIP).map(tokens).pack_sequences(6, num_bins=3).map(lambda r: r["tokens"]),
        lambda g: _packed(kept(g)),
    ),
    row(
        "bucketed",
        lambda f: numbers().map(f, on_error=SKIP).map(tokens).bucket_by_length(length, [3], [3, 2]).map(lambda b: b[:, 0]),
        lambda g: _bucketed(kept(g)),
    ),
    row("windows", lambda f: numbers().map(f, on_error=SKIP).window(3, 2), lambda g: _windows(kept(g), 3, 2)),
]


def _packed(values: list[int]) -> list[Any]:
    bins: list[list[int]] = []
    out = []
    for value in values:
        some = [value] * (1 + value % 4)
        one = next((one for one in bins if len(one) + len(some) <= 6), None)
        if one is None:
            if len(bins) == 3:
                out.append(bins.pop(max(range(3), key=lambda place: len(bins[place]))))
            one = []
            bins.append(one)
        one.extend(some)
        if len(one) == 6:
            bins = [other for other in bins if other is not one]
            out.append(one)
    return [one + [0] * (6 - len(one)) for one in out + bins]


def _bucketed(values: list[int]) -> list[Any]:
    buckets: tuple[list[int], list[int]] = ([], [])
    out = []
    for value in values:
        number = int(1 + value % 4 >= 3)
        buckets[number].append(value)
        if len(buckets[number]) == (3, 2)[number]:
            out.append(list(buckets[number]))
            buckets[number].clear()
    return out + [bucket for bucket in buckets if bucket]


def _windows(values: list[int], size: int, shift: int) -> list[Any]:
    return [values[start : start + size] for start in range(0, len(values), shift)]


def fine(value: int) -> bool:
    return value not in BAD


@pytest.mark.parametrize(("build", "reference"), ROWS)
def test_what_is_skipped_is_as_if_it_had_never_been_there(build: Build, reference: Reference) -> None:
    for options in OPTIONS:
        with build(Faulty()).feed(**options) as feed:
            assert [plain(item) for item in feed] == reference(fine)
            stats = feed.stats()
        assert stats.num_skipped > 0
        assert stats.num_skipped == sum(stage.num_skipped for stage in stats.failures)


def lost(state: dict[str, Any]) -> int:
    again = [] if state["position"] is None else [known for record in state["position"]["sequencers"] for known in record[5]]
    return sum(entry[2] for entry in state["lost"]) + len(again)


@pytest.mark.parametrize(("build", "reference"), ROWS)
def test_a_state_saved_anywhere_resumes_with_the_same_elements_and_the_same_count(build: Build, reference: Reference) -> None:
    whole = reference(fine)
    with build(Faulty()).feed(executor="inline") as feed:
        states = [feed.state_dict(), *(feed.state_dict() for _ in feed)]
    counts = [lost(state) for state in states]
    assert counts == sorted(counts)
    for stop, state in enumerate(states):
        with build(Faulty()).feed(**OPTIONS[stop % 4]) as feed:
            feed.load_state_dict(json.loads(json.dumps(state)))
            assert feed.stats().num_skipped == counts[stop]
            middle = [plain(next(feed)) for _ in range(min(2, len(whole) - stop))]
            again = feed.state_dict()
            assert lost(again) == counts[stop + len(middle)]
        with build(Faulty()).feed(**OPTIONS[(stop + 1) % 4]) as feed:
            feed.load_state_dict(again)
            assert whole[:stop] + middle + [plain(item) for item in feed] == whole


@pytest.mark.parametrize(("build", "reference"), ROWS)
def test_an_element_that_was_skipped_before_the_save_is_skipped_again_without_being_run(build: Build, reference: Reference) -> None:
    if "repeat" in str(build(abs)):
        return
    with build(Faulty()).feed(executor="inline") as feed:
        head = []
        states = [feed.state_dict()]
        for item in feed:
            head.append(plain(item))
            states.append(feed.state_dict())
    for stop, state in enumerate(states):
        mended = Faulty(frozenset())
        with build(mended).feed(**OPTIONS[stop % 4]) as feed:
            feed.load_state_dict(state)
            tail = [plain(item) for item in feed]
        found = [border for border in range(200) if reference(lambda x, border=border: fine(x) or x >= border) == head[:stop] + tail]
        assert found, (stop, head[:stop], tail)
        assert not {value for value in mended.calls if value < found[0] and value in BAD}
