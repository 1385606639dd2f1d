"""A feed in completion order: FAULTS A14, B32, C14, E16 there."""

from __future__ import annotations

import random
import threading
from typing import Any

import numpy as np
import pytest
from faults.lives import noisy
from faults.test_resume import _quiet, keep  # noqa: F401
from faults.ways import UNORDERED, drained, every_unordered_way, resumed
from laws.plans import plain

import penstock as ps

pytestmark = pytest.mark.slow  # together with its kin two minutes; `make check` runs it

SIZE = 200
THREADS = UNORDERED[1:]
every_unordered_thread_count = pytest.mark.parametrize("way", THREADS, ids=["1 thread", "2 threads", "8 threads"])


def copies(x: int) -> list[int]:
    return [10 * x + number for number in range(x % 4)]


def numbers(size: int = SIZE) -> ps.Dataset:
    return ps.from_source(range(size)).map(lambda x: x, name="same")


def parts(item: Any) -> list[Any]:
    return list(item) if isinstance(item, list) else [item]


def flat(items: list[Any]) -> list[Any]:
    return sorted(part for item in items for part in parts(item))


def everything(ds: ps.Dataset) -> list[Any]:
    items, error = drained(ds.feed(executor="inline"))
    assert error is None
    return flat(items)


# -- exactly once, saved anywhere (E16) ----------


@every_unordered_thread_count
def test_states_taken_by_another_thread_and_at_a_high_rate_are_all_consistent(way: dict[str, Any]) -> None:
    ds = numbers().filter(keep).flat_map(copies).map(noisy).as_completed().batch(4).repeat(2)
    whole = everything(ds)
    got: list[Any] = []
    states: list[Any] = []
    done = threading.Event()
    with ds.feed(**way) as feed:

        def watch() -> None:
            while not done.is_set():
                states.append(feed.state_dict())

        watcher = threading.Thread(target=watch)
        watcher.start()
        try:
            got.extend(plain(item) for item in feed)
        finally:
            done.set()
            watcher.join(60)
    steps = [state["step"] for state in states]
    assert steps == sorted(steps)
    for state in random.Random(1).sample(states, min(6, len(states))):
        assert flat(got[: state["step"]] + resumed(ds, state, **way)) == whole


# -- slow elements (A14, B32) ----------


@pytest.mark.parametrize("num_workers", [2, 8])
def test_a_stuck_element_holds_up_nobody_and_comes_when_it_is_done(num_workers: int) -> None:
    stuck, go_on = threading.Event(), threading.Event()

    def sometimes_stuck(x: int) -> int:
        if x == 0:
            stuck.set()
            assert go_on.wait(60)
        return x

    ds = ps.from_source(range(400)).map(sometimes_stuck)
    try:
        with ds.feed(executor="threads", num_workers=num_workers, ordered=False) as feed:
            others = [next(feed) for _ in range(300)]  # while element 0 is stuck, all the time
            assert stuck.is_set()
            state = feed.state_dict()
            go_on.set()
            rest = list(feed)
    finally:
        go_on.set()
    assert 0 in rest
    assert sorted(others + rest) == list(range(400))
    assert sorted(others + resumed(ds, state, executor="inline")) == list(range(400))


# -- data (C14) ----------


@every_unordered_way
def test_shapes_that_differ_inside_a_batch_are_an_error_with_both(way: dict[str, Any]) -> None:
    def image(x: int) -> Any:
        return np.zeros((1 if x == 30 else 3, 8, 8), np.uint8)

    items, error = drained(ps.from_source(range(80)).map(image).batch(8).feed(**way))
    assert type(error) is ps.errors.SpecError
    assert "uint8[1, 8, 8]" in error.what
    assert "uint8[3, 8, 8]" in error.what
    assert all(len(batch) == 8 for batch in items)
