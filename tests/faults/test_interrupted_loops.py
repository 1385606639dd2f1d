"""A handler of signals that raises at any moment of a loop, which goes on with `next(feed)`: nothing is lost or repeated."""

from __future__ import annotations

import random
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

import numpy as np
import pytest
from core import core

import penstock as ps

pytestmark = [
    pytest.mark.skipif(sys.platform == "win32", reason="there are no interval timers on Windows"),
    # Python drops what is raised in the callback of a weak reference, and says so.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

WAYS: dict[str, dict[str, Any]] = {
    "inline": {"num_workers": 0},
    "threads": {"executor": "threads", "num_workers": 2},
    "processes": {"executor": "processes", "num_workers": 2},
    "default": {},
    "in any order": {"executor": "threads", "num_workers": 2, "ordered": False},
}


class Late(Exception):
    pass


@contextmanager
def alarms() -> Iterator[Callable[[float], None]]:
    """Give a function that has an alarm raise Late in so many seconds, 0 for never; not amid a loop's own statements.

    There it can come between the return of `next` and the assignment: no library can help that.
    """

    def handler(_: int, frame: FrameType | None) -> None:
        if frame is None or not frame.f_code.co_name.startswith("test_a_loop"):
            raise Late

    before = signal.signal(signal.SIGALRM, handler)
    try:
        yield lambda delay_s: signal.setitimer(signal.ITIMER_REAL, delay_s) and None
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def work(number: int) -> dict[str, Any]:
    return {"number": number, "sum": sum(range(2_000))}


PLANS: dict[str, Callable[[], ps.Dataset]] = {
    "a map": lambda: ps.from_source(range(1 << 40)).map(work).batch(4),
    "two maps and a filter": lambda: ps.from_source(range(1 << 40)).map(work).filter(lambda e: True).map(dict, concurrency=2).batch(4),
    "a generator": lambda: ps.from_generator(lambda: iter(range(1 << 40)), fast_forward=True).map(work).batch(4),
    "lists": lambda: ps.from_source(range(1 << 40)).map(work).batch(4, collate_fn=lambda rows: {"number": [one["number"] for one in rows]}),
}


@pytest.mark.parametrize(
    ("plan", "way"),
    core(
        [*(("a map", way) for way in WAYS), *((plan, "inline") for plan in list(PLANS)[1:])],
        [("a map", "threads"), ("a generator", "inline")],
    ),
)
def test_a_loop_goes_on_behind_each_of_fifty_interrupts(plan: str, way: str) -> None:
    draw, numbers, num_late = random.Random(1), [], 0
    with PLANS[plan]().feed(**WAYS[way]) as feed, alarms() as alarm:
        while num_late < 50:
            batch = None
            try:
                alarm(draw.random() * 0.02)
                batch = next(feed)
                alarm(0)
            except Late:
                num_late += 1
            if batch is not None:
                numbers += np.asarray(batch["number"]).tolist()
        state = feed.state_dict()
        assert sorted(numbers) == list(range(len(numbers))) or way == "in any order"
        assert len(set(numbers)) == len(numbers) == 4 * feed.step == 4 * state["step"]
    with PLANS[plan]().feed(num_workers=0) as feed:
        feed.load_state_dict(state)
        following = np.asarray(next(feed)["number"]).tolist()
    assert following == list(range(len(numbers), len(numbers) + 4)) or way == "in any order"


@pytest.mark.parametrize("delay_s", core([1e-4, 1e-3, 1e-2], [1e-3]))
@pytest.mark.parametrize("way", WAYS)
def test_a_feed_whose_start_was_interrupted_starts_again(way: str, delay_s: float) -> None:
    with PLANS["a map"]().feed(**WAYS[way]) as feed, alarms() as alarm:
        try:
            alarm(delay_s)
            first = next(feed)
        except Late:
            first = next(feed)
        finally:
            alarm(0)
        assert len(first["number"]) == 4


@pytest.mark.parametrize("executor", ["processes", ps.Processes(isolate=False)], ids=["isolated", "in the program"])
def test_a_start_that_is_interrupted_anywhere_leaves_no_process(executor: Any) -> None:
    for number in range(40):
        with PLANS["a map"]().feed(executor=executor, num_workers=2) as feed, alarms() as alarm, suppress(Late):
            alarm(5e-4 * (number + 4))
            next(feed)


def test_an_interrupted_generator_that_cannot_be_read_again_is_named() -> None:
    def numbers() -> Iterator[int]:
        yield 0
        alarm(1e-2)
        while True:
            pass

    with ps.from_generator(numbers).feed(num_workers=0) as feed, alarms() as alarm:
        with pytest.raises(Late):
            next(feed)
        with pytest.raises(ps.errors.FeedClosed, match="an interrupt came while an element was on its way, and it cannot be read again"):
            next(feed)


def test_an_error_of_a_function_is_raised_as_it_is_whatever_it_was_made_of_and_wherever_the_loop_runs() -> None:
    def limited(number: int) -> int:
        try:
            alarm(1e-3)
            while True:
                pass
        except Late as late:
            raise ValueError(f"{number} took too long") from late

    def failing(number: int) -> int:
        raise ValueError(f"{number} is bad")

    def circular(number: int) -> int:
        error = ValueError(f"{number} causes itself")
        raise error from error

    with alarms() as alarm:
        for function, text in ((limited, "0 took too long"), (failing, "0 is bad"), (circular, "0 causes itself")):
            with ps.from_source(range(3)).map(function).feed(num_workers=0) as feed:
                try:
                    raise KeyboardInterrupt
                except KeyboardInterrupt:
                    with pytest.raises(ValueError, match=text):
                        next(feed)
                with pytest.raises(ps.errors.FeedClosed, match="stopped at an error"):
                    next(feed)


def test_a_time_limit_that_a_function_sets_itself_fails_its_element_where_a_policy_cares() -> None:
    def limited(number: int) -> int:
        if number == 2:
            alarm(1e-3)
            while True:
                pass
        return number

    with ps.from_source(range(5)).map(limited, on_error=ps.Skip(errors=Late)).feed(num_workers=0) as feed, alarms() as alarm:
        assert list(feed) == [0, 1, 3, 4]
