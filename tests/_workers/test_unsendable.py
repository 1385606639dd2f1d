"""A result that cannot be sent to the program fails its element, and no other; its policy says what becomes of it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from core import core

import penstock as ps

COUNT, BAD = 60, {7, 31, 45}
PROCESSES: dict[str, Any] = {"executor": "processes", "num_workers": 2}


class Frame:
    """What holds something that belongs to its process."""

    def __init__(self) -> None:
        self.lock = threading.Lock()


def frame(number: int) -> Any:
    return Frame() if number in BAD else number


def field(number: int) -> dict[str, Any]:
    return {"number": number, "frame": Frame() if number in BAD else number}


def frames(batch: Any) -> Any:
    return Frame() if BAD & set(batch.tolist()) else batch


def number_of(element: Any) -> list[int]:
    if isinstance(element, dict):
        return number_of(element["number"])
    return [number for one in element for number in number_of(one)] if isinstance(element, list) else np.ravel(element).tolist()


PLANS: dict[str, Callable[[ps.Dataset], ps.Dataset]] = {
    "a map": lambda ds: ds.map(frame),
    "behind a filter": lambda ds: ds.filter(lambda number: True).map(frame),
    "a flat_map": lambda ds: ds.flat_map(lambda number: [frame(number)]),
    "a field of a batch": lambda ds: ds.map(field).padded_batch(4),
}


@pytest.mark.parametrize("plan", core(PLANS, ["a map", "a field of a batch"]))
def test_skip_leaves_out_the_elements_and_no_other(plan: str) -> None:
    with PLANS[plan](ps.from_source(range(COUNT))).feed(**PROCESSES, on_error=ps.Skip()) as feed:
        found = [number for item in feed for number in number_of(item)]
        assert feed.stats().num_skipped == len(BAD)
    assert found == [number for number in range(COUNT) if number not in BAD]


def test_replace_puts_the_next_one_in_their_place() -> None:
    with ps.from_source(range(COUNT)).map(frame).feed(**PROCESSES, on_error=ps.Replace()) as feed:
        assert list(feed) == [{7: 8, 31: 32, 45: 46}.get(number, number) for number in range(COUNT)]
        assert feed.stats().num_replaced == len(BAD)


def test_a_batch_that_cannot_be_sent_is_left_out() -> None:
    with ps.from_source(range(COUNT)).batch(10).map(frames).feed(**PROCESSES, on_error=ps.Skip()) as feed:
        assert [batch[0] for batch in feed] == [10, 20, 50]
