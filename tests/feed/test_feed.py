from __future__ import annotations

import asyncio
import ctypes
import gc
import json
import os
import pickle
import signal
import sys
import threading
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
from penstock.errors import FeedClosed, PlanError, SpecError, StateDamaged, StateMismatch, StateUnavailable, StillRunning, StopRaised

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


def test_it_delivers_everything_once_in_order_and_then_stops_for_good(way: dict[str, Any]) -> None:
    with numbers(100).map(double).feed(**way) as feed:
        assert list(feed) == list(range(0, 200, 2))
        for _ in range(3):
            with pytest.raises(StopIteration):
                next(feed)


def test_nothing_runs_before_the_first_next(way: dict[str, Any]) -> None:
    seen: list[int] = []
    before = threading.active_count()
    feed = numbers(10).map(seen.append).feed(**way)
    assert feed.step == 0
    feed.state_dict()
    feed.report()
    assert (seen, threading.active_count()) == ([], before)
    feed.close()
    assert seen == []


def test_step_counts_what_was_delivered_not_what_was_made(way: dict[str, Any]) -> None:
    with numbers(20).batch(3).feed(**way) as feed:
        steps = [feed.step for _ in feed]
    assert steps == [1, 2, 3, 4, 5, 6, 7]
    assert feed.step == 7


def test_four_threads_that_call_next_get_every_element_exactly_once(way: dict[str, Any]) -> None:
    taken: list[list[int]] = [[] for _ in range(4)]
    with numbers(4000).map(double).feed(**way) as feed:
        iterator = iter(feed)

        def take(mine: list[int]) -> None:
            mine.extend(iterator)

        threads = [threading.Thread(target=take, args=(mine,)) for mine in taken]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert feed.step == 4000
    assert sorted(x for mine in taken for x in mine) == list(range(0, 8000, 2))
    assert all(mine == sorted(mine) for mine in taken)


def test_two_feeds_of_one_dataset_are_independent(way: dict[str, Any]) -> None:
    ds = numbers(30).shuffle(seed=5)
    with ds.feed(**way) as one, ds.feed(**way) as other:
        pairs = list(zip(one, other, strict=True))
    assert [left for left, _ in pairs] == [right for _, right in pairs]
    assert sorted(left for left, _ in pairs) == list(range(30))


def test_an_empty_dataset_ends_at_once_with_a_warning(way: dict[str, Any]) -> None:
    with (
        numbers(5).filter(lambda x: x > 9).feed(**way) as feed,
        pytest.warns(UserWarning, match="this dataset gave no elements: the source, a filter or a take left nothing"),
    ):
        assert list(feed) == []


def test_the_feed_may_run_in_another_thread_than_the_one_that_made_it() -> None:
    got: list[int] = []
    with numbers(50).feed(executor="threads", num_workers=2) as feed:
        thread = threading.Thread(target=lambda: got.extend(feed))
        thread.start()
        thread.join()
    assert got == list(range(50))


def test_three_samples_and_eight_workers_give_three_samples() -> None:
    with numbers(3).map(double).feed(executor="threads", num_workers=8) as feed:
        assert list(feed) == [0, 2, 4]


# -- state ------------------------------------------------------------------------------------------------------------------------


def test_a_state_has_the_same_small_size_wherever_it_is_taken(way: dict[str, Any]) -> None:
    with numbers(100_000).shuffle(seed=1).batch(7).repeat().feed(**way) as feed:
        sizes = {len(json.dumps(feed.state_dict())) for _, _ in zip(range(50), feed, strict=False)}
    assert max(sizes) < 700
    assert max(sizes) - min(sizes) < 20


def test_a_state_is_json_and_does_not_move_the_feed(way: dict[str, Any]) -> None:
    with numbers(10).feed(**way) as feed:
        next(feed)
        first, second = feed.state_dict(), feed.state_dict()
        assert first == second == json.loads(json.dumps(first))
        assert next(feed) == 1


def test_a_state_taken_in_another_thread_is_always_one_between_two_deliveries() -> None:
    ds = numbers(3000).map(double).batch(2)
    states: list[dict[str, Any]] = []
    with ds.feed(executor="threads", num_workers=2) as feed:
        done = threading.Event()

        def save() -> None:
            while not done.is_set():
                states.append(feed.state_dict())

        thread = threading.Thread(target=save)
        thread.start()
        batches = [plain(batch) for batch in feed]
        done.set()
        thread.join()
    for state in states[:: max(1, len(states) // 10)]:
        with ds.feed(executor="inline") as again:
            again.load_state_dict(state)
            step = again.step
            assert [plain(batch) for batch in again][:3] == batches[step : step + 3] or step == len(batches)


def test_a_state_taken_in_a_signal_handler_resumes_right_there(way: dict[str, Any]) -> None:
    ds = numbers(40).shuffle(seed=2).batch(4)
    states: list[dict[str, Any]] = []
    with ds.feed(**way) as feed:
        before = signal.signal(signal.SIGTERM, lambda number, frame: states.append(feed.state_dict()))
        try:
            head = [plain(next(feed)) for _ in range(3)]
            signal.raise_signal(signal.SIGTERM)
            rest = [plain(batch) for batch in feed]
        finally:
            signal.signal(signal.SIGTERM, before)
    with ds.feed(executor="threads", num_workers=2) as again:
        again.load_state_dict(states[0])
        assert again.step == 3
        assert [plain(batch) for batch in again] == rest
    assert len(head) == 3


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


def test_a_state_of_another_plan_is_refused_and_the_feed_goes_on(way: dict[str, Any]) -> None:
    other = numbers(10).batch(3).feed().state_dict()
    with numbers(10).batch(2).feed(**way) as feed:
        next(feed)
        with pytest.raises(StateMismatch) as refusal:
            feed.load_state_dict(other)
        assert "had 'batch(3)' where this one has 'batch(2)'" in refusal.value.what
        assert "operator 2 from the source" in refusal.value.where
        assert "strict=False" in refusal.value.fix
        assert plain(next(feed)) == [2, 3]


def test_a_damaged_state_is_refused() -> None:
    feed = numbers(10).feed()
    state = feed.state_dict()
    with pytest.raises(StateDamaged, match="checksum"):
        feed.load_state_dict({**state, "step": 3})


def test_strict_false_takes_the_position_of_another_plan(way: dict[str, Any]) -> None:
    with numbers(10).map(double, name="x").feed(**way) as feed:
        next(feed)
        next(feed)
        state = feed.state_dict()
    with numbers(10).map(fails_at(99)).feed(**way) as feed:
        with pytest.raises(StateMismatch):
            feed.load_state_dict(state)
        feed.load_state_dict(state, strict=False)
        assert list(feed) == list(range(2, 10))


def test_a_generator_without_fast_forward_has_no_state() -> None:
    feed = ps.from_generator(lambda: iter(range(3))).feed()
    with pytest.raises(StateUnavailable) as refusal:
        feed.state_dict()
    assert "a generator cannot say where it is" in refusal.value.what
    assert "from_generator" in refusal.value.where
    assert "fast_forward=True" in refusal.value.fix


# -- finalize ---------------------------------------------------------------------------------------------------------------------


def test_after_finalize_a_smaller_last_batch_is_an_error(way: dict[str, Any]) -> None:
    with numbers(10).batch(4).feed(**way) as feed:
        feed.finalize()
        assert [plain(next(feed)) for _ in range(2)] == [[0, 1, 2, 3], [4, 5, 6, 7]]
        with pytest.raises(SpecError) as refusal:
            next(feed)
        assert "locked by finalize()" in refusal.value.what
        assert "[2]" in refusal.value.what
        assert "[4]" in refusal.value.what
        assert "stage 'batch(4)', element 2 of this feed (epoch 0)" in refusal.value.where
        assert "drop_remainder=True" in refusal.value.fix
        with pytest.raises(FeedClosed):
            next(feed)


def test_after_finalize_batches_of_one_shape_pass(way: dict[str, Any]) -> None:
    with numbers(10).batch(4, drop_remainder=True).feed(**way) as feed:
        feed.finalize()
        assert len(list(feed)) == 2


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


def test_a_users_error_arrives_once_as_itself_behind_what_comes_before_it(way: dict[str, Any]) -> None:
    with numbers(40).map(fails_at(17)).batch(5).feed(**way) as feed:
        got = [plain(next(feed)) for _ in range(3)]
        with pytest.raises(Refused) as caught:
            next(feed)
        assert got == [list(range(start, start + 5)) for start in (0, 5, 10)]
        assert caught.value.args == ("not 17",)
        assert any("stage 'fails_at.look', worker" in note and "element epoch 0 index 17" in note for note in caught.value.__notes__)
        assert any(entry.name == "look" for entry in caught.traceback)
        for _ in range(2):
            with pytest.raises(FeedClosed) as refusal:
                next(feed)
            assert refusal.value.what == "this feed stopped at an error, which was raised before"
            assert refusal.value.where == "Feed.__next__"
            assert "load_state_dict()" in refusal.value.fix
        assert feed.step == 3


def test_stop_iteration_of_a_users_function_is_not_the_end(way: dict[str, Any]) -> None:
    def stops(x: int) -> int:
        if x == 3:
            raise StopIteration(x)
        return x

    with numbers(10).map(stops).feed(**way) as feed:
        got = [next(feed) for _ in range(3)]
        with pytest.raises(StopRaised) as caught:
            next(feed)
    assert got == [0, 1, 2]
    assert caught.value.what.startswith("the function of stage 'test_stop_iteration_")
    assert caught.value.what.endswith(".stops' raised StopIteration(3)")
    assert "element epoch 0 index 3" in caught.value.where
    assert "filter() or take()" in caught.value.fix
    assert isinstance(caught.value.__cause__, StopIteration)


def test_the_state_before_an_error_leads_back_to_the_same_error(way: dict[str, Any]) -> None:
    ds = numbers(10).map(fails_at(6)).batch(2)
    with ds.feed(**way) as feed:
        next(feed)
        with pytest.raises(Refused):
            list(feed)
        state = feed.state_dict()
    with ds.feed(**way) as feed:
        feed.load_state_dict(state)
        assert feed.step == 3
        with pytest.raises(Refused, match="not 6"):
            next(feed)


def test_ctrl_c_in_a_function_of_an_inline_feed_is_a_keyboard_interrupt_and_nothing_is_lost() -> None:
    left = [1]

    def interrupted(x: int) -> int:
        if x == 5 and left:
            left.pop()
            signal.raise_signal(signal.SIGINT)
        return x

    with numbers(10).map(interrupted).batch(2).feed(executor="inline") as feed:
        got: list[Any] = []
        batches = iter(feed)
        with pytest.raises(KeyboardInterrupt):
            got.extend(map(plain, batches))
        got.extend(map(plain, batches))
    assert got == [[0, 1], [2, 3], [4, 5], [6, 7], [8, 9]]
    assert left == []


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


def test_ctrl_c_while_the_main_thread_waits_leaves_the_feed_usable() -> None:
    gate, asked, caught = threading.Event(), threading.Event(), threading.Event()

    def slow(x: int) -> int:
        asked.set()
        gate.wait(30)
        return x

    def interrupt() -> None:
        asked.wait(30)
        # CPython forgets to look at a signal that comes right before the thread sleeps; so does who presses the keys once more.
        while not caught.is_set():
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
            caught.wait(1.0)

    thread = threading.Thread(target=interrupt)
    with numbers(4).map(slow).feed(executor="threads", num_workers=1) as feed:
        thread.start()
        with pytest.raises(KeyboardInterrupt):
            next(feed)
        caught.set()
        gate.set()
        assert list(feed) == [0, 1, 2, 3]
    thread.join()


def test_keyboard_interrupt_raised_by_a_function_in_a_worker_is_an_error_of_that_function() -> None:
    def raises(x: int) -> int:
        raise KeyboardInterrupt

    with (
        numbers(3).map(raises).feed(executor="threads", num_workers=1) as feed,
        pytest.raises(StopRaised, match="raised KeyboardInterrupt"),
    ):
        next(feed)


@pytest.mark.parametrize("error", [FeedClosed, SpecError, StateDamaged, StillRunning, StopRaised, PlanError])
def test_our_errors_survive_pickling(error: type[ps.errors.PenstockError]) -> None:
    before = error("what", where="where", fix="fix")
    after = pickle.loads(pickle.dumps(before))
    assert type(after) is error
    assert (after.what, after.where, after.fix, str(after)) == ("what", "where", "fix", "what\n  where: where\n  fix:   fix")


# -- options ----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "what", "fix"),
    [
        ({"num_workers": -1}, "num_workers=-1 is not a number of workers", "0 (inline)"),
        ({"num_workers": True}, "num_workers=True is not a number of workers", "positive number"),
        ({"executor": "gpu"}, "executor='gpu' is not known", "auto, inline, threads, processes, ray"),
        ({"memory_bytes": 0}, "memory_bytes=0 is not a size", "number of bytes"),
        ({"grace_period_s": -1.0}, "grace_period_s=-1.0 is not a time", "seconds >= 0"),
        ({"workers": 3}, "there is no option 'workers'", "num_workers"),
    ],
)
def test_a_wrong_option_is_refused_before_anything_runs(options: dict[str, Any], what: str, fix: str) -> None:
    with pytest.raises(PlanError) as refusal:
        numbers(3).feed(**options)
    assert what in refusal.value.what
    assert refusal.value.where == "feed options"
    assert fix in refusal.value.fix


# -- the end ----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("taken", [0, 1, 7, 20])
def test_close_ends_all_threads_from_any_state_and_twice(way: dict[str, Any], taken: int) -> None:
    before = threading.active_count()
    feed = numbers(20).map(double).feed(**way)
    for _ in range(taken):
        next(feed)
    feed.close()
    feed.close()
    assert threading.active_count() == before
    with pytest.raises(FeedClosed) as refusal:
        next(feed)
    assert refusal.value.what == "this feed is closed"
    assert refusal.value.where == "Feed.__next__"
    assert "ds.feed()" in refusal.value.fix


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


def test_close_in_another_thread_wakes_the_one_that_waits() -> None:
    asked, gate = threading.Event(), threading.Event()

    def slow(x: int) -> int:
        asked.set()
        gate.wait(30)
        return x

    feed = numbers(4).map(slow).feed(executor="threads", num_workers=1, grace_period_s=30.0)

    def end() -> None:
        asked.wait(30)
        feed.close()

    closer = threading.Thread(target=end)
    closer.start()
    with pytest.raises(FeedClosed):
        list(feed)
    gate.set()  # the worker is still in its element: whoever waited was woken before it ended
    closer.join()


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


def test_a_close_that_comes_while_the_feed_starts_leaves_nothing_running() -> None:
    before = threading.active_count()
    feed = numbers(100).feed(executor="threads", num_workers=2)

    start = feed._run.open

    def close_then_start(*where: Any) -> None:
        feed.close()  # what a signal handler does between the first two lines of a start
        start(*where)

    feed._run.open = close_then_start  # type: ignore[method-assign]
    with pytest.raises(FeedClosed):
        next(feed)
    feed.close()
    assert threading.active_count() == before


def test_a_function_that_does_not_return_is_named_and_the_caller_goes_on() -> None:
    asked, gate = threading.Event(), threading.Event()

    def stuck(x: int) -> int:
        asked.set()
        gate.wait(30)
        return x

    feed = numbers(4).map(stuck).feed(executor="threads", num_workers=1, grace_period_s=0.01)

    def consume() -> None:
        with pytest.raises(FeedClosed):
            next(feed)

    consumer = threading.Thread(target=consume)
    consumer.start()
    asked.wait(30)
    with pytest.raises(StillRunning) as caught:
        feed.close()
    assert caught.value.what == "1 worker(s) did not stop inside 0.01 s: penstock-workers-0"
    assert caught.value.where == "Feed.close()"
    assert "grace_period_s" in caught.value.fix
    gate.set()
    consumer.join()


def test_stragglers_become_a_note_of_the_error_that_ended_the_block() -> None:
    asked, gate = threading.Event(), threading.Event()

    def stuck(x: int) -> int:
        if x == 3:
            asked.set()
            gate.wait(30)
        return x

    def train() -> None:
        with numbers(8).map(stuck).feed(executor="threads", num_workers=1, grace_period_s=0.01) as feed:
            next(feed)
            asked.wait(30)
            raise Refused("the loop's own")

    with pytest.raises(Refused, match="the loop's own") as caught:
        train()
    assert any("penstock-workers-0" in note for note in caught.value.__notes__)
    gate.set()


def test_leaving_the_loop_early_inside_with_leaves_nothing(way: dict[str, Any]) -> None:
    before = threading.active_count()
    for stop in (0, 1, 5):
        with numbers(1000).map(double).batch(2).feed(**way) as feed:
            for number, _ in enumerate(feed):
                if number == stop:
                    break
    assert threading.active_count() == before


def test_a_feed_that_nobody_holds_any_more_is_ended(way: dict[str, Any]) -> None:
    before = threading.active_count()
    feed = numbers(1000).map(double).feed(**way)
    next(feed)
    gone = weakref.ref(feed)
    del feed
    gc.collect()
    assert gone() is None
    assert threading.active_count() == before


def test_the_generator_of_a_closed_feed_is_closed_too(way: dict[str, Any]) -> None:
    ended: list[str] = []

    def rows() -> Iterator[int]:
        try:
            yield from range(10_000)
        finally:
            ended.append("closed")

    with ps.from_generator(rows).feed(**way) as feed:
        assert next(feed) == 0
    assert ended == ["closed"]


# -- memory -----------------------------------------------------------------------------------------------------------------------


def test_batches_lie_in_recycled_memory_when_they_are_dropped(way: dict[str, Any]) -> None:
    addresses = set()
    with ps.from_arrays(np.zeros((96, 1 << 18), np.float32)).batch(8).repeat(2).feed(**way) as feed:  # 8 MB each: all free ones are kept
        for batch in feed:
            addresses.add(batch.ctypes.data)
            assert batch.ctypes.data % 64 == 0
            del batch
    assert len(addresses) <= 12  # of 24 batches: what is in flight, and what the pool kept


def test_held_batches_stay_as_they_were_and_outlive_the_feed(way: dict[str, Any]) -> None:
    with ps.from_arrays(np.arange(2000)).batch(10).feed(**way) as feed:
        held = [batch[2:5] for batch in feed]
    gc.collect()
    assert [plain(part) for part in held] == [list(range(start + 2, start + 5)) for start in range(0, 2000, 10)]


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


def test_a_slow_consumer_finds_a_bounded_number_of_batches_read(way: dict[str, Any]) -> None:
    made: list[int] = []

    def note(x: Any) -> Any:
        made.append(1)
        return x

    most = 0
    with numbers(4000).map(note).batch(1).feed(memory_bytes=1, **way) as feed:
        for number, _ in enumerate(feed, 1):
            most = max(most, len(made) - number)
            if number == 200:
                break
    assert most <= 3 * 256  # three units, each of as many tiny batches as one may have


def test_single_elements_keep_the_byte_budget_too() -> None:
    ahead, most = [0], [0]

    def large(index: int) -> np.ndarray[Any, Any]:
        ahead[0] += 1
        most[0] = max(most[0], ahead[0])
        return np.zeros(1 << 17, np.float64)  # 1 MB

    with ps.from_source(range(400)).map(large).feed(executor="threads", num_workers=2, memory_bytes=16 << 20) as feed:
        for _ in feed:
            ahead[0] -= 1
    assert most[0] <= 48


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
