from __future__ import annotations

import asyncio
import ctypes
import gc
import json
import os
import signal
import sys
import weakref
from collections import ChainMap, UserDict
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
from laws.plans import plain

import penstock as ps
from penstock._contracts.event import BatchDelivered, BlockDone, Event
from penstock._engine.engine import Engine
from penstock.errors import FeedClosed, SpecError, StopRaised

WAYS: list[dict[str, Any]] = [
    {"executor": "inline"},
    {"num_workers": 0},
    {"executor": "threads", "num_workers": 1},
    {"num_workers": 3, "executor": "threads"},
]


@pytest.fixture(params=WAYS, ids=str)
def way(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Return feed options for each way to run."""
    chosen: dict[str, Any] = request.param
    return chosen


def numbers(count: int) -> ps.Dataset:
    return ps.from_source(list(range(count)))


def double(x: Any) -> Any:
    return x * 2


class Refused(Exception):
    """A user's error."""


def fails_at(bad: int) -> Callable[[int], int]:
    def look(x: int) -> int:
        if x == bad:
            raise Refused(f"not {x}")
        return x

    return look


# -- delivering -------------------------------------------------------------------------------------------------------------------


# -- state ------------------------------------------------------------------------------------------------------------------------


def test_a_state_is_json_and_does_not_move_the_feed(way: dict[str, Any]) -> None:
    with numbers(10).feed(**way) as feed:
        next(feed)
        first, second = feed.state_dict(), feed.state_dict()
        assert first == second == json.loads(json.dumps(first))
        assert next(feed) == 1


def test_loading_a_state_in_the_middle_of_a_run_goes_back_to_it(way: dict[str, Any]) -> None:
    with numbers(20).feed(**way) as feed:
        head = [next(feed) for _ in range(5)]
        state = feed.state_dict()
        tail = list(feed)
        feed.load_state_dict(json.dumps(state))
        assert list(feed) == tail
    assert head + tail == list(range(20))


def test_a_state_loads_after_an_error_and_after_close(way: dict[str, Any]) -> None:
    with numbers(10).map(fails_at(4)).feed(**way) as feed:
        next(feed)
        state = feed.state_dict()
        with pytest.raises(Refused):
            list(feed)
        feed.load_state_dict(state)
        assert next(feed) == 1
        feed.close()
        feed.load_state_dict(state)
        assert next(feed) == 1


# -- finalize ---------------------------------------------------------------------------------------------------------------------


def test_finalize_in_the_middle_takes_the_next_element_as_the_pattern(way: dict[str, Any]) -> None:
    def grow(x: int) -> np.ndarray[Any, Any]:
        return np.zeros(min(x, 3), np.float64 if x < 6 else np.float32)

    with numbers(10).map(grow).feed(**way) as feed:
        for _ in range(3):
            next(feed)
        feed.finalize()
        for _ in range(3):
            assert next(feed).shape == (3,)
        with pytest.raises(SpecError, match=r"float32"):
            next(feed)


# -- figures ----------------------------------------------------------------------------------------------------------------------


def test_stats_count_every_element_of_every_stage(way: dict[str, Any]) -> None:
    with numbers(50).map(double, name="twice").batch(5).feed(**way) as feed:
        list(feed)
        stats = feed.stats()
    assert sum(stage.num_elements for stage in stats.stages if "twice" in stage.name) == 50
    assert stats.consumer.num_batches == 10
    assert stats.elapsed_s > 0


def test_a_report_names_the_stages_and_one_before_the_start_says_so(way: dict[str, Any]) -> None:
    with numbers(50).map(double, name="twice").batch(5).feed(**way) as feed:
        assert feed.report().startswith("too little to judge: 0 batches were delivered")
        list(feed)
        assert "twice" in feed.report()


def test_listeners_get_every_event(way: dict[str, Any]) -> None:
    events: list[Event] = []
    with numbers(50).map(double, name="twice").batch(5).feed(listeners=[events.append], **way) as feed:
        list(feed)
    assert sum(event.num_elements for event in events if isinstance(event, BlockDone)) == 50
    assert sum(event.num_delivered for event in events if isinstance(event, BatchDelivered)) == 10
    assert all(event.end_ns >= event.start_ns and event.cpu_ns >= 0 for event in events if isinstance(event, BlockDone))
    assert all(event.wait_ns >= 0 for event in events if isinstance(event, BatchDelivered))


# -- errors -----------------------------------------------------------------------------------------------------------------------


def test_ctrl_c_while_ctypes_converts_an_argument_fails_no_element():
    absolute, interrupts = ctypes.CDLL(None)["abs"], iter([True])

    class Number:
        @staticmethod
        def from_param(x: int) -> ctypes.c_int:
            if x == 3 and next(interrupts, False):
                raise KeyboardInterrupt
            return ctypes.c_int(x)

    absolute.argtypes = [Number]
    with numbers(5).map(absolute).feed(executor="inline") as feed:
        got: list[int] = []
        items = iter(feed)
        with pytest.raises(KeyboardInterrupt):
            got.extend(items)
        assert [*got, *items] == list(range(5))


# -- options ----------------------------------------------------------------------------------------------------------------------


# -- the end ----------------------------------------------------------------------------------------------------------------------


def test_a_closed_feed_still_has_its_step_its_state_and_its_report() -> None:
    feed = numbers(20).feed(executor="threads", num_workers=1)
    next(feed)
    feed.close()
    assert feed.step == 1
    assert "delivered" in feed.report()
    with numbers(20).feed() as again:
        again.load_state_dict(feed.state_dict())
        assert next(again) == 1


class Watched(np.ndarray):
    """An array that can be watched."""


@pytest.mark.usefixtures("no_collections")
@pytest.mark.parametrize("end", ["error", "stop", "close"])
@pytest.mark.parametrize("ordered", [True, False], ids=["ordered", "unordered"])
def test_what_a_feed_that_ended_held_is_free_without_a_garbage_collection(way: dict[str, Any], end: str, ordered: bool) -> None:
    made: list[weakref.ref[Any]] = []

    def fn(value: int) -> Any:
        if value == 300 and end != "close":
            raise {"error": MemoryError, "stop": StopIteration}[end]("no")
        row = np.full(100, value).view(Watched)
        made.append(weakref.ref(row))
        return row

    feed = numbers(1000 if end == "close" else 400).map(fn).batch(400).feed(**way, ordered=ordered)
    if end == "close":
        next(feed)
    else:
        with pytest.raises((MemoryError, StopRaised)):
            next(feed)
    feed.close()
    assert made
    assert sum(ref() is not None for ref in made) == 0


@pytest.mark.usefixtures("no_collections")
@pytest.mark.parametrize("end", ["error", "close"])
def test_what_calls_in_flight_held_is_free_without_a_garbage_collection(way: dict[str, Any], end: str) -> None:
    made: list[weakref.ref[Any]] = []

    async def fn(value: int) -> Any:
        row = np.full(100, value).view(Watched)
        made.append(weakref.ref(row))
        await asyncio.sleep(0)
        if value == 300 and end == "error":
            raise MemoryError
        return row

    feed = numbers(1000).map(fn, concurrency=8).batch(400).feed(**way)
    if end == "error":
        with pytest.raises(MemoryError):
            next(feed)
    else:
        next(feed)
    feed.close()
    assert made
    assert sum(ref() is not None for ref in made) == 0


def test_an_error_leaves_the_generators_alone_that_take_from_the_feed(way: dict[str, Any]) -> None:
    def fn(value: int) -> int:
        if value == 3:
            raise Refused
        return value

    def taking(elements: Iterator[Any]) -> Iterator[Any]:
        try:
            yield from elements
        except (Refused, FeedClosed) as error:
            yield type(error)

    feed = numbers(50).map(fn).feed(**way)
    elements = iter(feed)
    first, second = taking(elements), taking(elements)
    assert next(first) == 0  # the task that fails may have run in this call
    assert [next(second), next(second), next(second)] == [1, 2, Refused]
    assert next(first) is FeedClosed


def test_close_in_a_signal_handler_works(way: dict[str, Any]) -> None:
    feed = numbers(100).map(double).feed(**way)
    before = signal.signal(signal.SIGTERM, lambda number, frame: feed.close())
    try:
        next(feed)
        signal.raise_signal(signal.SIGTERM)
        with pytest.raises(FeedClosed):
            list(feed)
    finally:
        signal.signal(signal.SIGTERM, before)


# -- memory -----------------------------------------------------------------------------------------------------------------------


def test_batches_lie_in_recycled_memory_when_they_are_dropped(way: dict[str, Any]) -> None:
    addresses = set()
    with ps.from_arrays(np.zeros((96, 1 << 18), np.float32)).batch(8).repeat(2).feed(**way) as feed:  # 8 MB each: all free ones are kept
        for batch in feed:
            addresses.add(batch.ctypes.data)
            assert batch.ctypes.data % 64 == 0
            del batch
    assert len(addresses) <= 12  # of 24 batches: what is in flight, and what the pool kept


@pytest.mark.usefixtures("no_collections")
def test_a_held_batch_does_not_keep_the_engine_alive(way: dict[str, Any]) -> None:
    feed = ps.from_arrays(np.arange(100)).batch(10).feed(**way)
    batch = next(feed)
    engine = weakref.ref(feed._run._engine)
    feed.close()
    del feed
    gc.collect()
    assert engine() is None
    assert plain(batch) == list(range(10))


def test_a_dataset_is_true_without_being_counted() -> None:
    assert ps.from_source([1]).filter(bool)
    assert ps.from_source([])


def test_its_repr_says_where_it_is() -> None:
    with numbers(10).batch(4).feed() as feed:
        assert repr(feed) == "Feed(new, epoch 0, element 0 of 3, step 0)"
        next(feed)
        assert repr(feed) == "Feed(running, epoch 0, element 1 of 3, step 1)"
    assert repr(feed) == "Feed(closed, epoch 0, element 1 of 3, step 1)"
    assert repr(numbers(3).filter(bool).feed()) == "Feed(new, epoch 0, element 0 of ?, step 0)"


def test_between_two_epochs_a_feed_is_not_closed_for_a_moment() -> None:
    """Observers look at any time, and would end."""
    seen: list[bool] = []

    def rows() -> Iterator[int]:
        try:
            yield from range(1000)
        finally:
            seen.append(feed.is_closed())

    with ps.from_generator(rows).take(20).batch(4).feed(executor="threads", num_workers=1) as feed:
        for _ in range(10):
            assert len(list(feed)) == 5
    assert seen == [False] * 10


def shared_notices(feed: ps.Feed) -> list[str]:
    return [text for text in feed.stats().notices if text.startswith("two iterators share one epoch of this feed")]


def test_two_living_iterators_of_one_epoch_are_told_once() -> None:
    with ps.from_source(range(6)).feed() as feed:
        assert list(zip(feed, feed, strict=True)) == [(0, 1), (2, 3), (4, 5)]
        assert list(zip(feed, feed, strict=True)) == [(0, 1), (2, 3), (4, 5)]
        (text,) = shared_notices(feed)
        assert "zip(feed, feed) gives pairs of neighbours, and loses an odd last one" in text


def test_an_iterator_that_was_dropped_shares_nothing() -> None:
    with ps.from_source(range(6)).feed() as feed:
        iter(feed)
        for _ in range(2):
            assert list(feed) == [0, 1, 2, 3, 4, 5]
        assert shared_notices(feed) == []


@pytest.mark.parametrize("kind", [UserDict, ChainMap, MappingProxyType])
@pytest.mark.parametrize("options", [{}, {"executor": "threads"}, {"num_workers": 1}], ids=str)
def test_any_mapping_that_a_function_returns_is_a_dict_in_a_batch(kind: Any, options: dict[str, Any]) -> None:
    ds = ps.from_source(range(4)).map(lambda number: kind({"ids": [number, 2], "inner": kind({"text": str(number)})}))
    with ds.batch(4).feed(**options) as feed:
        (batch,) = list(feed)
    assert type(batch) is type(batch["inner"]) is dict
    assert batch["ids"].tolist() == [[0, 2], [1, 2], [2, 2], [3, 2]]
    assert batch["inner"]["text"].tolist() == ["0", "1", "2", "3"]


def test_a_close_at_any_point_of_a_start_or_a_hand_over_ends_the_feed_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    for options in ({"num_workers": 0}, {"executor": "threads", "num_workers": 2}):
        feed = numbers(100).batch(4).feed(**options)
        make = feed._run._placement.executor

        def closed_behind(call: Callable[..., Any], feed: ps.Feed, *given: Any) -> Any:
            made = call(*given)
            feed.close()  # as a signal handler or another thread may
            return made

        monkeypatch.setattr(feed._run._placement, "executor", partial(closed_behind, make, feed))
        with pytest.raises(FeedClosed):
            next(feed)
        assert "closed" in repr(feed)
        feed = numbers(100).batch(4).feed(**options)
        next(feed)
        engine = feed._run._engine
        assert engine is not None
        monkeypatch.setattr(engine, "poll", partial(closed_behind, engine.poll, feed))
        with suppress(FeedClosed):
            for _ in range(30):
                next(feed)
        assert "closed" in repr(feed)


def test_an_interrupt_behind_a_claim_loses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    unpark, left = Engine._unpark_consumer, [signal.SIGINT]

    def interrupted(engine: Engine) -> None:
        if left and sys._getframe(1).f_locals.get("task") is not None:
            signal.raise_signal(left.pop())
        unpark(engine)

    monkeypatch.setattr(Engine, "_unpark_consumer", interrupted)
    feed = numbers(8).batch(4).feed(num_workers=0)
    with pytest.raises(KeyboardInterrupt):
        next(feed)
    assert [batch.tolist() for batch in feed] == [[0, 1, 2, 3], [4, 5, 6, 7]]


def test_a_feed_between_two_epochs_stays_with_the_process_that_made_it() -> None:
    feed = numbers(8).feed(num_workers=0)
    list(feed)
    pid = os.fork()
    if pid == 0:
        try:
            list(feed)
            os._exit(1)
        except FeedClosed:
            os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert len(list(feed)) == 8
