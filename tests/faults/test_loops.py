"""What a training loop may do to a feed: leave it, drop it, share it, keep its batches: FAULTS B1 to B8, B19 to B21, B24, B25, B32."""

from __future__ import annotations

import contextlib
import gc
import itertools
import os
import sys
import threading
import time
import weakref
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest
from core import core
from faults.ways import (
    SETTLED_S,
    drained,
    engine_threads,
    every_thread_count,
    every_thread_count_and_order,
    every_way,
    every_way_and_order,
    needs_proc,
    notes,
    resident_bytes,
)
from laws.plans import plain

import penstock as ps

CLOSED_S = 20.0  # a limit for what would last for ever if it hung
"""DESIGN section 5, point 7."""

NUM_BATCHES = 40
WHOLE = [list(range(start, start + 5)) for start in range(0, 5 * NUM_BATCHES, 5)]


def numbers() -> ps.Dataset:
    return ps.from_source(range(5 * NUM_BATCHES)).map(lambda x: x, name="same").batch(5)


def in_order(batches: list[Any], way: dict[str, Any]) -> list[Any]:
    """Return batches as they are, or their numbers in order where any order is right."""
    return batches if way.get("ordered", True) else sorted(itertools.chain.from_iterable(batches))


def nothing_runs() -> bool:
    return engine_threads() == []


@every_way_and_order
@pytest.mark.parametrize("step", core([0, 1, 17, NUM_BATCHES - 1], [0, 17]))
def test_a_loop_left_by_break_at_any_step_leaves_nothing_and_the_next_epoch_is_whole(step: int, way: dict[str, Any]) -> None:
    ds = numbers()
    for _ in range(25):
        seen = []
        with ds.feed(**way) as feed:
            for number, batch in enumerate(feed):
                seen.append(plain(batch))
                if number == step:
                    break
            begin = time.monotonic()
        assert time.monotonic() - begin < CLOSED_S
        assert nothing_runs()
        assert seen == WHOLE[: step + 1] if way.get("ordered", True) else len(seen) == len(set(map(tuple, seen))) == step + 1
        assert feed.step == step + 1
    items, error = drained(ds.feed(**way))
    assert error is None
    assert in_order(items, way) == in_order(WHOLE, way)


def test_a_plain_for_loop_left_by_break_leaves_nothing_either() -> None:
    for _ in range(50):
        for number, _batch in enumerate(numbers()):
            if number == 3:
                break
        assert nothing_runs()


@every_way
def test_a_feed_that_was_never_started_closes_without_having_run_anything(way: dict[str, Any]) -> None:
    calls: list[int] = []
    feed = ps.from_source(range(10)).map(calls.append).feed(**way)
    assert feed.state_dict()["step"] == feed.step == 0
    feed.report()
    assert nothing_runs()
    feed.close()
    del feed
    gc.collect()
    assert calls == []


@every_thread_count_and_order
def test_a_dropped_feed_ends_its_threads_at_once(way: dict[str, Any]) -> None:
    feed = numbers().feed(**way)
    assert plain(next(feed)) in WHOLE
    assert engine_threads()
    gone = weakref.ref(feed)
    del feed
    assert gone() is None
    assert nothing_runs()


@pytest.mark.usefixtures("no_collections")  # one that ran in a worker would leave the end to a thread
@every_thread_count_and_order
def test_a_feed_in_a_reference_cycle_ends_with_the_cycle(way: dict[str, Any]) -> None:
    class Trainer:
        def __init__(self) -> None:
            self.feed = numbers().feed(**way)
            self.me = self

    trainer = Trainer()
    assert plain(next(trainer.feed)) in WHOLE
    del trainer
    gc.collect()
    assert nothing_runs()


@every_thread_count
def test_a_feed_held_by_a_traceback_lives_as_long_as_it_and_no_longer(way: dict[str, Any]) -> None:
    def train() -> None:
        feed = numbers().feed(**way)
        next(feed)
        raise ArithmeticError("loss is nan")

    try:
        train()
    except ArithmeticError as error:
        sys.last_exc = error  # as an interactive session does
    try:
        assert engine_threads()
    finally:
        del sys.last_exc
    assert nothing_runs()


@every_way_and_order
def test_an_error_of_the_loop_with_full_queues_stays_the_users_and_closes_the_feed(way: dict[str, Any]) -> None:
    big = ps.from_source(range(64)).map(lambda x: np.full(4 << 20, x, np.uint8)).batch(1).prefetch(8)
    begin: list[float] = []

    def train() -> None:
        with big.feed(**way) as feed:
            for number, batch in enumerate(feed):
                assert (batch == number).all() if way.get("ordered", True) else (batch == batch[0, 0]).all()
                if number == 3:
                    begin.append(time.monotonic())
                    raise ZeroDivisionError("at step 3")

    with pytest.raises(ZeroDivisionError, match="at step 3") as caught:
        train()
    assert time.monotonic() - begin[0] < CLOSED_S
    assert nothing_runs()
    assert notes(caught.value) == ""
    assert caught.value.__context__ is None


def _state_of(name: str, way: dict[str, Any]) -> ps.Feed:
    """Return a feed in the state of that name."""
    ds = numbers().map(_fail_at_the_third) if name == "failed" else numbers()
    feed = ds.feed(**way)
    if name == "running":
        next(feed)
    elif name in ("ended", "failed"):
        items, error = [], None
        try:
            items.extend(plain(item) for item in feed)
        except ValueError as failed:
            error = failed
        if name == "ended":
            assert in_order(items, way) == in_order(WHOLE, way)
        elif way.get("ordered", True):
            assert items == WHOLE[:2]
        assert (error is not None) == (name == "failed")
    elif name == "closed":
        next(feed)
        feed.close()
    return feed


def _fail_at_the_third(batch: Any) -> Any:
    if 10 in batch:
        raise ValueError("the third batch")
    return batch


@every_way_and_order
@pytest.mark.parametrize("state", ["new", "running", "ended", "failed", "closed"])
def test_close_works_in_every_state_and_a_second_close_does_nothing(state: str, way: dict[str, Any]) -> None:
    with contextlib.closing(_state_of(state, way)) as feed:
        step = feed.step
    assert nothing_runs()
    feed.close()
    feed.close()
    assert feed.step == step
    with pytest.raises(StopIteration if state == "ended" else ps.errors.FeedClosed) as refused:
        next(feed)
    if state in ("new", "running", "closed"):
        assert isinstance(refused.value, ps.errors.FeedClosed)
        assert refused.value.what == "this feed is closed"
        assert refused.value.where == "Feed.__next__"
        assert "ds.feed()" in refused.value.fix


@every_way
def test_a_generator_around_a_feed_closes_it_with_itself(way: dict[str, Any]) -> None:
    def batches() -> Iterator[Any]:
        with numbers().feed(**way) as feed:
            yield from feed

    for steps in (0, 1, 5):
        generator = batches()
        assert [plain(next(generator)) for _ in range(steps)] == WHOLE[:steps]
        generator.close()
        assert nothing_runs()
    assert [plain(batch) for batch in batches()] == WHOLE


@every_thread_count
def test_close_from_another_thread_wakes_a_consumer_that_waits(way: dict[str, Any]) -> None:
    inside, go_on = threading.Event(), threading.Event()

    def stuck(x: int) -> int:
        inside.set()
        go_on.wait(30)
        return x

    feed = ps.from_source(range(8)).map(stuck).feed(grace_period_s=30, **way)
    outcome: list[BaseException] = []

    def consume() -> None:
        try:
            next(feed)
        except BaseException as error:
            outcome.append(error)

    consumer = threading.Thread(target=consume)
    consumer.start()
    assert inside.wait(30)
    closer = threading.Thread(target=feed.close)
    closer.start()
    consumer.join(30)
    assert not consumer.is_alive()
    assert closer.is_alive()  # the consumer is free before the workers are
    go_on.set()
    closer.join(30)
    assert [type(error) for error in outcome] == [ps.errors.FeedClosed]
    assert nothing_runs()


@every_way
def test_two_feeds_of_one_dataset_at_once_are_independent(way: dict[str, Any]) -> None:
    ds = numbers().with_options(**way)
    assert [(plain(a), plain(b)) for a, b in zip(ds, ds, strict=True)] == list(zip(WHOLE, WHOLE, strict=True))
    small = ds.take(4)
    assert [(plain(a), plain(b)) for a in small for b in small] == [(a, b) for a in WHOLE[:4] for b in WHOLE[:4]]


@every_way_and_order
def test_two_loops_over_one_feed_share_its_elements(way: dict[str, Any]) -> None:
    with numbers().feed(**way) as feed:
        pairs = [(plain(a), plain(b)) for a, b in zip(feed, feed, strict=True)]
    assert in_order([part for pair in pairs for part in pair], way) == in_order(WHOLE, way)


@every_way_and_order
def test_four_threads_on_one_feed_get_each_element_exactly_once(way: dict[str, Any]) -> None:
    size, start = 10_000, threading.Barrier(4)
    shares: list[list[int]] = [[] for _ in range(4)]
    with ps.from_source(range(size)).map(lambda x: x).feed(**way) as feed:
        elements = iter(feed)

        def consume(share: list[int]) -> None:
            start.wait(30)
            share.extend(elements)

        threads = [threading.Thread(target=consume, args=(share,)) for share in shares]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert feed.step == size
    assert sorted(x for share in shares for x in share) == list(range(size))
    assert all(share == sorted(share) for share in shares) or not way.get("ordered", True)


@every_way_and_order
def test_a_feed_at_its_end_says_so_each_time(way: dict[str, Any]) -> None:
    feed = numbers().feed(**way)
    assert in_order([plain(batch) for batch in feed], way) == in_order(WHOLE, way)
    assert nothing_runs()
    for _ in range(3):
        with pytest.raises(StopIteration):
            next(feed)
    feed.close()
    with pytest.raises(StopIteration):
        next(feed)
    assert feed.step == NUM_BATCHES


# -- consumers that keep, are slow, or wait ---------------------------------------------------------------------------------------


@every_way_and_order
def test_batches_that_are_kept_are_never_written_again(way: dict[str, Any]) -> None:
    size, rows = 2000, 4
    ds = ps.from_source(range(size * rows)).map(lambda x: np.full(16, x, np.int64)).batch(rows).with_options(**way, memory_bytes=1 << 16)
    kept = list(ds)
    assert len(kept) == size
    assert in_order([batch[:, 0].tolist() for batch in kept], way) == in_order(np.arange(size * rows).reshape(size, rows).tolist(), way)
    assert all((batch == batch[:, :1]).all() for batch in kept)
    spans = sorted((batch.__array_interface__["data"][0], batch.nbytes) for batch in kept)
    assert all(at + num_bytes <= following for (at, num_bytes), (following, _) in itertools.pairwise(spans))


@every_way
def test_views_of_a_batch_keep_it_as_it_is(way: dict[str, Any]) -> None:
    with ps.from_source(range(400)).map(lambda x: {"a": np.full(1000, x), "b": x}).batch(4).feed(**way) as feed:
        views = [batch["a"][1, ::100].reshape(2, 5) for batch in feed]
    assert [view.tolist() for view in views] == [np.full((2, 5), 4 * number + 1).tolist() for number in range(100)]


@needs_proc
@every_thread_count
def test_kept_batches_cost_their_own_bytes_and_no_descriptor(way: dict[str, Any]) -> None:
    batch_bytes, count, budget = 1 << 20, 64, 8 << 20
    ds = ps.from_source(range(count * 4)).map(lambda x: np.full(batch_bytes // 4, x % 251, np.uint8)).batch(4)
    drained(ds.take(4).feed(**way))
    before, descriptors = resident_bytes(), len(os.listdir("/proc/self/fd"))
    with ds.feed(memory_bytes=budget, **way) as feed:
        kept = list(feed)
        grown = resident_bytes() - before
        assert len(os.listdir("/proc/self/fd")) == descriptors
    assert grown <= count * batch_bytes + budget + (16 << 20)  # 16 MB for the allocator and the threads' stacks
    assert [batch[:, 7].tolist() for batch in kept] == [[x % 251 for x in range(n * 4, n * 4 + 4)] for n in range(count)]


@every_thread_count_and_order
def test_a_slow_consumer_stops_the_workers_at_the_bound_and_waiting_costs_no_cpu(way: dict[str, Any]) -> None:
    rows, row_bytes, num_batches, budget_batches = 4, 64 << 10, 60, 6
    budget = budget_batches * rows * row_bytes
    calls: list[int] = []

    def work(x: int) -> Any:
        calls.append(x)
        return np.full(row_bytes, x % 251, np.uint8)

    with ps.from_source(range(num_batches * rows)).map(work).batch(rows).feed(memory_bytes=budget, **way) as feed:
        first = next(feed)
        quiet = 0
        while quiet != len(calls):
            quiet = len(calls)
            threading.Event().wait(SETTLED_S)
        begin = time.process_time()
        threading.Event().wait(SETTLED_S)
        assert time.process_time() - begin < 0.1 * SETTLED_S
        assert len(calls) == quiet
        assert rows <= quiet <= rows * (1 + budget_batches)  # the batch that is trained on, and the budget
        rest = [batch[:, 0].tolist() for batch in feed]
    whole = [[x % 251 for x in range(n * rows, n * rows + rows)] for n in range(num_batches)]
    assert in_order([first[:, 0].tolist(), *rest], way) == in_order(whole, way)


@every_thread_count
def test_a_consumer_that_waits_for_a_slow_source_uses_no_cpu(way: dict[str, Any]) -> None:
    asked, go_on = threading.Event(), threading.Event()

    class Slow:
        def __len__(self) -> int:
            return 50

        def __getitem__(self, index: int) -> int:
            if index == 20:
                asked.set()
                assert go_on.wait(30)
            return index

    got: list[int] = []
    with ps.from_source(Slow()).map(lambda x: x).feed(**way) as feed:
        consumer = threading.Thread(target=lambda: got.extend(feed))
        consumer.start()
        try:
            assert asked.wait(30)
            threading.Event().wait(SETTLED_S)  # what is ready is delivered meanwhile
            begin = time.process_time()
            threading.Event().wait(SETTLED_S)
            used = time.process_time() - begin
        finally:
            go_on.set()
            consumer.join(30)
    assert used < 0.1 * SETTLED_S
    assert got == list(range(50))


def test_the_report_names_the_stage_that_starved_the_loop() -> None:
    never = threading.Event()

    def fetch(x: int) -> int:
        never.wait(0.01)
        return x

    with (
        ps.from_source(range(60))
        .map(fetch, name="fetch")
        .map(lambda x: x, name="light")
        .batch(2)
        .feed(executor="threads", num_workers=2) as feed
    ):
        assert [plain(batch) for batch in feed] == [[x, x + 1] for x in range(0, 60, 2)]
        headline = feed.report().splitlines()[0]
    assert "fetch" in headline
    assert "light" not in headline.replace("fetch, light", "").replace("fetch+light", "")


# -- several errors, errors while closing, functions that do not stop -----------------------------------------------------------------


def test_of_two_errors_at_once_the_first_in_order_is_raised_and_the_other_is_its_note() -> None:
    together = threading.Barrier(2)

    def fail(x: int) -> int:
        if x in (0, 1):
            together.wait(30)
            raise (KeyError if x else ValueError)(f"number {x}")
        return x

    for _ in range(20):
        items, error = drained(ps.from_source(range(40)).map(fail, name="fail").feed(executor="threads", num_workers=2))
        assert items == []
        assert type(error) is ValueError
        assert "number 0" in str(error)
        assert "stage 'fail', worker " in notes(error)
        assert "element epoch 0 index 0" in notes(error)
        assert "also failed: KeyError: 'number 1' (stage 'fail')" in notes(error)


def unclosable(count: int | None = None) -> Iterator[int]:
    try:
        yield from itertools.islice(itertools.count(), count)
    finally:
        raise OSError("the shard could not be closed")


@every_way
def test_an_error_of_a_generators_cleanup_does_not_hide_the_first_error(way: dict[str, Any]) -> None:
    def fail(x: int) -> int:
        if x == 5:
            raise ValueError("number 5")
        return x

    feed = ps.from_generator(unclosable).map(fail, name="fail").feed(**way)
    items: list[int] = []
    with pytest.raises(ValueError) as caught:
        items.extend(feed)
    assert items == [0, 1, 2, 3, 4]
    assert str(caught.value) == "number 5"
    assert "the shard could not be closed" in notes(caught.value)
    with pytest.raises(ps.errors.FeedClosed):
        next(feed)
    feed.close()
    assert nothing_runs()


@every_way
def test_an_error_of_a_generators_cleanup_is_raised_by_close_after_all_threads_have_ended(way: dict[str, Any]) -> None:
    feed = ps.from_generator(unclosable).feed(**way)
    assert [next(feed) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(OSError, match="the shard could not be closed"):
        feed.close()
    assert nothing_runs()
    feed.close()


@every_way
def test_an_error_of_a_generators_cleanup_at_the_end_of_a_pass_is_an_error_behind_all_elements(way: dict[str, Any]) -> None:
    whole = ps.from_generator(partial(unclosable, 1000))
    cut = ps.from_generator(unclosable).take(1000)
    for ds in (whole, cut, cut.repeat(2), cut.map(lambda x: x).filter(lambda x: True)):
        feed = ds.feed(**way)
        items: list[int] = []
        with pytest.raises(OSError, match="the shard could not be closed"):
            items.extend(feed)
        assert items == list(range(1000))
        with pytest.raises(ps.errors.FeedClosed):
            next(feed)
        feed.close()
        assert nothing_runs()


class Deaf:
    """A function that does not stop at the element 1 until it is told to go on."""

    def __init__(self) -> None:
        self.inside, self.go_on = threading.Event(), threading.Event()

    def __call__(self, x: int) -> int:
        if x == 1:
            self.inside.set()
            self.go_on.wait(60)
        return x


@every_thread_count_and_order
def test_a_function_that_does_not_stop_is_named_after_the_grace_period_and_the_main_thread_goes_on(way: dict[str, Any]) -> None:
    deaf = Deaf()
    feed = ps.from_source(range(100)).map(deaf).feed(grace_period_s=0.2, **way)
    try:
        assert next(feed) != 1
        assert deaf.inside.wait(30)
        with pytest.raises(ps.errors.StillRunning) as still:
            feed.close()
        (name,) = engine_threads()
        assert still.value.what == f"1 worker(s) did not stop inside 0.2 s: {name}"
        assert still.value.where == "Feed.close()"
        assert "still busy" in still.value.fix
        assert "grace_period_s" in still.value.fix
        feed.close()  # it was said once
        batches, error = drained(numbers().feed(**way))
        assert (in_order(batches, way), error) == (in_order(WHOLE, way), None)
    finally:
        deaf.go_on.set()
    _wait_for_the_end_of(threading.enumerate())


def test_a_function_that_does_not_stop_becomes_a_note_of_the_loops_own_error() -> None:
    deaf = Deaf()

    def train() -> None:
        with ps.from_source(range(100)).map(deaf).feed(executor="threads", num_workers=1, grace_period_s=0.2) as feed:
            assert next(feed) == 0
            assert deaf.inside.wait(30)
            raise ArithmeticError("loss is nan")

    try:
        with pytest.raises(ArithmeticError, match="loss is nan") as caught:
            train()
    finally:
        deaf.go_on.set()
    assert "did not stop inside 0.2 s: penstock-workers-0" in notes(caught.value)
    _wait_for_the_end_of(threading.enumerate())


def test_a_dropped_feed_whose_function_does_not_stop_warns_with_the_name_of_its_thread() -> None:
    deaf = Deaf()
    feed = ps.from_source(range(10)).map(deaf).feed(executor="threads", num_workers=1, grace_period_s=0.1)
    assert next(feed) == 0
    try:
        assert deaf.inside.wait(30)
        with pytest.warns(ResourceWarning, match="a dropped feed left threads running: penstock-workers-0"):
            del feed
    finally:
        deaf.go_on.set()
    _wait_for_the_end_of(threading.enumerate())


def _wait_for_the_end_of(threads: list[threading.Thread]) -> None:
    for thread in threads:
        if thread.name.startswith("penstock-"):
            thread.join(30)
    assert nothing_runs()


# -- order ------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("num_workers", [2, 8])
def test_elements_finished_out_of_order_are_delivered_in_order(num_workers: int) -> None:
    done = [threading.Event() for _ in range(600)]
    overtaken: list[int] = []

    def work(x: int) -> int:
        if x % 150 == 0 and done[x + 3].wait(0.25 if x else 10):  # the first always has others beside it, however late they start
            overtaken.append(x)  # a later element was finished by another worker meanwhile
        done[x].set()
        return x

    for ds, whole in (
        (ps.from_source(range(600)).map(work), list(range(600))),
        (ps.from_source(range(600)).map(work).batch(3), [list(range(start, start + 3)) for start in range(0, 600, 3)]),
    ):
        overtaken.clear()
        for event in done:
            event.clear()
        assert drained(ds.feed(executor="threads", num_workers=num_workers)) == (whole, None)
        assert overtaken[0] == 0
