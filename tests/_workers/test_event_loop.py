from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Callable
from typing import Any

import pytest

import penstock as ps
from penstock.errors import StillRunning


def numbers(count: int) -> ps.Dataset:
    return ps.from_source(list(range(count)))


def ours() -> list[str]:
    return sorted(thread.name for thread in threading.enumerate() if thread.name.startswith("penstock-"))


def joined(*names: str) -> None:
    """Wait for the threads of a feed that was dropped."""
    for thread in threading.enumerate():
        if thread.name.startswith(names or "penstock-"):
            thread.join(30.0)


class Waits:
    """An async function whose calls wait until `open` is set, then say that they are over."""

    def __init__(self, at_once: int) -> None:
        self.begun = threading.Semaphore(0)
        self.ended: list[int] = []
        self.loops: set[Any] = set()
        self.threads: set[str] = set()
        self.at_once = at_once

    async def __call__(self, x: int) -> int:
        self.loops.add(id(asyncio.get_running_loop()))
        self.threads.add(threading.current_thread().name)
        self.begun.release()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)  # cleaning up may wait too
            self.ended.append(x)
        return x

    def wait_until_begun(self) -> None:
        for _ in range(self.at_once):
            assert self.begun.acquire(timeout=30)


def test_as_many_calls_as_asked_for_are_in_flight_on_one_loop_across_batches_of_one() -> None:
    together, most = asyncio.Barrier, 24

    def check(build: Callable[[Any], ps.Dataset]) -> None:
        barrier: list[Any] = []
        loops: set[Any] = set()

        async def fn(x: Any) -> Any:
            barrier or barrier.append(together(most))
            loops.add(asyncio.get_running_loop())
            await barrier[0].wait()  # goes on when `most` calls wait here
            return x

        assert len(list(build(fn).feed(executor="threads", num_workers=1))) == 5 * most
        assert len(loops) == 1

    count = 5 * most
    check(lambda fn: numbers(count).map(fn, concurrency=most))
    check(lambda fn: numbers(count).map(fn, concurrency=most).batch(1))
    check(lambda fn: numbers(count).batch(1).map(fn, concurrency=most))
    check(lambda fn: numbers(count).filter(lambda x: True).map(fn, concurrency=most).batch(1))
    check(lambda fn: numbers(count).filter(lambda x: True).take(count).map(fn, concurrency=most))
    check(lambda fn: ps.from_generator(lambda: iter(range(count))).map(fn, concurrency=most))


def test_threads_have_names_and_all_async_functions_of_a_feed_share_one_loop() -> None:
    seen: set[tuple[str, int]] = set()

    async def fn(x: int) -> int:
        seen.add((threading.current_thread().name, id(asyncio.get_running_loop())))
        return x

    with numbers(50).map(fn).map(fn).batch(5).feed(executor="threads", num_workers=1) as feed:
        next(feed)
        assert ours() == ["penstock-0.1-claim", "penstock-0.2-claim", "penstock-event-loop", "penstock-workers-0"]
        for _ in feed:
            pass
    assert len(seen) == 1
    assert next(iter(seen))[0] == "penstock-event-loop"
    assert ours() == []


def test_close_cancels_what_is_in_flight_and_waits_until_it_has_ended() -> None:
    waits = Waits(6)
    feed = numbers(1000).map(waits, concurrency=6).batch(2).feed()
    reader = threading.Thread(target=lambda: list(feed))  # ends without a word: the feed is closed under it
    threading.excepthook, hook = (lambda _: None), threading.excepthook
    try:
        reader.start()
        waits.wait_until_begun()
        feed.close()
        reader.join(30)
    finally:
        threading.excepthook = hook
    assert len(waits.ended) == 6
    assert ours() == []


def test_a_dropped_feed_cancels_too() -> None:
    waits = Waits(4)

    async def fn(x: int) -> int:
        return x if x < 2 else await waits(x)

    for batch in numbers(1000).map(fn, concurrency=4).batch(1).feed(executor="threads", num_workers=1):
        if batch[0] == 1:
            waits.wait_until_begun()
            break
    gc.collect()
    assert len(waits.ended) == 4
    assert ours() == []


def test_a_call_that_ignores_its_cancellation_is_named_and_does_not_hold_up_close() -> None:
    gate, begun = threading.Event(), threading.Event()

    async def stubborn(x: int) -> int:
        while x and not gate.is_set():
            begun.set()
            try:
                await asyncio.sleep(0.001)
            except asyncio.CancelledError:
                continue
        return x

    feed = numbers(2).map(stubborn, name="stubborn").feed(grace_period_s=0.01)
    assert next(feed) == 0
    assert begun.wait(30)
    with pytest.raises(StillRunning, match=r"penstock-event-loop \(1 call\(s\) of stage 'stubborn'\)"):
        feed.close()
    gate.set()
    joined()


def test_what_user_code_left_on_the_loop_is_ended_with_it() -> None:
    ended: list[str] = []

    async def background() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("task")

    async def ticks() -> Any:
        try:
            while True:
                yield 1
        finally:
            ended.append("generator")

    keep: list[Any] = []

    async def fn(x: int) -> int:
        if x == 0:
            keep.append(asyncio.create_task(background()))
            keep.append(ticks())
            await anext(keep[1])
            await asyncio.to_thread(ended.append, "thread")
        return x

    assert list(numbers(5).map(fn)) == list(range(5))
    assert sorted(ended) == ["generator", "task", "thread"]


def test_closing_the_feed_inside_of_a_call_does_not_wait_for_itself() -> None:
    feeds: list[Any] = []

    async def fn(x: int) -> int:
        if x == 3:
            feeds[0].close()
        return x

    feed = numbers(100).map(fn, concurrency=1).feed()
    feeds.append(feed)
    with pytest.raises(ps.errors.FeedClosed):
        for _ in feed:
            pass
    joined()


def test_a_call_that_cancels_everything_on_the_loop_is_an_error() -> None:
    async def fn(x: int) -> int:
        if x == 2:
            for task in asyncio.all_tasks():
                if "fn" in task.get_name():
                    task.cancel()
        await asyncio.sleep(0)
        return x

    with pytest.raises(ps.errors.StopRaised, match="raised CancelledError"):
        list(numbers(9).map(fn, name="fn"))
