"""Elements that policies treat are freed when they are done with, not at the next garbage collection: memory_bytes counts on it."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import penstock as ps
from penstock import Dataset


def bad(number: int) -> Any:
    value = np.full(100, number)
    if number % 3 == 1:
        raise ValueError(f"number {number}")
    return value


def bad_list(number: int) -> list[Any]:
    return [bad(number), bad(number)]


def ranged() -> Dataset:
    return ps.from_source(range(90))


PLANS: dict[str, Callable[[], Dataset]] = {
    "map": lambda: ranged().map(bad),
    "batch": lambda: ranged().map(bad).batch(4),
    "flat_map": lambda: ranged().flat_map(bad_list).batch(4),
    "padded": lambda: ranged().map(bad).padded_batch(4),
    "above a batch": lambda: ranged().batch(2).map(lambda batch: bad(int(batch[0]))),
}


def flaky() -> Callable[[int], Any]:
    left = dict.fromkeys(range(0, 90, 3), 2)

    def function(number: int) -> Any:
        if left.get(number):
            left[number] -= 1
            raise ValueError(f"number {number}")
        return np.full(100, number)

    return function


def num_errors_alive_after(dataset: Dataset, num_workers: int, policy: Any) -> int:
    gc.collect()
    gc.disable()
    try:
        with dataset.feed(executor="threads", num_workers=num_workers, on_error=policy) as feed:
            assert sum(1 for _ in feed) > 0
            return sum(isinstance(one, ValueError) and str(one).startswith("number ") for one in gc.get_objects())
    finally:
        gc.enable()


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
@pytest.mark.parametrize("policy", [ps.Skip(), ps.Retry(1, then=ps.Skip())], ids=["skip", "retry"])
@pytest.mark.parametrize("num_workers", [0, 2])
def test_errors_of_skipped_elements_and_what_their_frames_hold_are_freed_at_once(
    plan: Callable[[], Dataset], policy: Any, num_workers: int
) -> None:
    assert num_errors_alive_after(plan(), num_workers, policy) <= 8  # of 30: the last ones


@pytest.mark.parametrize("num_workers", [0, 2])
def test_errors_of_replaced_elements_are_freed_at_once(num_workers: int) -> None:
    assert num_errors_alive_after(ranged().map(bad).batch(4), num_workers, ps.Replace()) <= 8


@pytest.mark.parametrize("num_workers", [0, 2])
def test_errors_of_elements_that_a_retry_brought_back_are_freed_at_once(num_workers: int) -> None:
    assert num_errors_alive_after(ranged().map(flaky()).batch(4), num_workers, ps.Retry(2)) <= 8  # of 60
