"""Elements in the order in which they are finished: a slow one holds up none, and each comes once."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
from dataset.small import double, generated, numbers

import penstock as ps


def test_it_changes_the_order_and_nothing_else_of_a_plan() -> None:
    ds = numbers(7).map(double).as_completed()
    assert sorted(map(int, ds.feed(executor="threads", num_workers=2))) == [2 * value for value in range(7)]
    assert "as_completed()" in repr(numbers(7).as_completed()) or "as_completed()" in numbers(7).as_completed().explain()
    assert len(numbers(7).as_completed()) == 7
    assert numbers(7).as_completed()._root.batch_size_each() == numbers(7)._root.batch_size_each()
    assert sorted(numbers(7).shard(2, 0).as_completed().prefetch(2).feed(executor="threads", num_workers=2)) == [0, 2, 4, 6]


def test_an_element_that_takes_long_is_overtaken_by_those_behind_it() -> None:
    gate = threading.Event()

    def held_back(value: int) -> int:
        if value == 0:
            assert gate.wait(60)
        return value

    with numbers(9).map(held_back, concurrency=3).as_completed().batch(4).feed(executor="threads", num_workers=2) as feed:
        first = next(feed).tolist()
        assert 0 not in first
        gate.set()
        others = [batch.tolist() for batch in feed]
    assert [len(batch) for batch in (first, *others)] == [4, 4, 1]
    assert sorted([*first, *(value for batch in others for value in batch)]) == list(range(9))


def test_the_end_of_a_pass_waits_for_all_its_elements() -> None:
    gate = threading.Event()

    def held_back(value: int) -> int:
        if value == 0:
            assert gate.wait(60)
        return value

    with numbers(5).map(held_back, concurrency=3).as_completed().repeat(2).feed(executor="threads", num_workers=2) as feed:
        first = [int(next(feed)) for _ in range(4)]
        assert sorted(first) == [1, 2, 3, 4]
        gate.set()
        assert [int(next(feed)), *sorted(map(int, feed))] == [0, *range(5)]


FOLDED: dict[str, Any] = {
    "single elements": lambda ds: ds,
    "batches": lambda ds: ds.batch(4),
    "several of each": lambda ds: ds.flat_map(lambda value: [value] * 3).batch(4),
    "passes": lambda ds: ds.repeat(2).batch(4),
    "a buffer": lambda ds: ds.shuffle(5, seed=1).repeat(2),
    "buckets": lambda ds: ds.map(np.arange).bucket_by_length(len, [6], [3, 2]).repeat(2).map(lambda batch: batch.max(axis=1)),
    "a second stream": lambda ds: ds.batch(3).unbatch().filter(lambda value: True).batch(2),
}


@pytest.mark.parametrize("name", sorted(FOLDED))
@pytest.mark.parametrize("failing", [False, True])
def test_saved_anywhere_each_element_comes_once(name: str, failing: bool) -> None:
    def function(value: int) -> int:
        if failing and value % 5 == 3:
            raise ValueError(value)
        return value + 1

    def fed() -> ps.Feed:
        feed: ps.Feed = FOLDED[name](numbers(14).map(function, concurrency=3).as_completed()).feed(
            executor="threads", num_workers=2, on_error=ps.Skip()
        )
        return feed

    with fed() as feed:
        whole = [value for item in feed for value in np.atleast_1d(item).tolist()]
    for stop in (0, 1, 5, 12):
        seen: list[int] = []
        state = None
        for most in (stop, 2, 1000):
            with fed() as feed:
                if state is not None:
                    feed.load_state_dict(state)
                for _ in range(most):
                    if len(seen) == len(whole):
                        break
                    seen += np.atleast_1d(next(feed)).tolist()
                    state = feed.state_dict()
        assert sorted(seen) == sorted(whole), stop


def test_a_stream_goes_on_as_it_is_finished_too() -> None:
    def values() -> Any:
        return iter(range(12))

    ds = ps.from_generator(values, fast_forward=True).map(double).as_completed().batch(5)
    with ds.feed(executor="threads", num_workers=2) as feed:
        first = next(feed).tolist()
        state = feed.state_dict()
    with ds.feed(executor="threads", num_workers=2) as feed:
        feed.load_state_dict(state)
        rest = [value for batch in feed for value in batch.tolist()]
    assert sorted(first + rest) == [2 * value for value in range(12)]
    assert sorted(generated().as_completed().feed()) == sorted(generated().feed())
