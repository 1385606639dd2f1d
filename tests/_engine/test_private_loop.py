from __future__ import annotations

import asyncio
import signal
import threading
from typing import Any

import numpy as np
import pytest
from _engine.engines import block_of

import penstock as ps
from penstock._engine.async_calls import PrivateLoop, gather_alone
from penstock._ops.map import AwaitedOp


def awaited(fn: Any, concurrency: int = 8) -> AwaitedOp:
    return AwaitedOp(fn, "fn", 0, 0, False, concurrency, gather_alone)


async def loop_id(_: Any) -> int:
    await asyncio.sleep(0)
    return id(asyncio.get_running_loop())


def values(outcomes: Any) -> list[Any]:
    return [outcome.value for outcome in outcomes]


def test_a_loop_lives_from_the_first_block_to_close_and_each_call_alone_has_its_own() -> None:
    loop = PrivateLoop()
    first = values(loop.gather(awaited(loop_id), block_of([1, 2, 3])))
    assert len(first) == 3
    assert len(set(first + values(loop.gather(awaited(loop_id), block_of([4]))))) == 1
    assert loop.gather(awaited(loop_id), block_of([])) == []
    loop.close()
    loop.close()
    assert loop.gather(awaited(loop_id), block_of([1])) is None
    assert len(gather_alone(awaited(loop_id), block_of([1]))) == 1


def test_in_a_thread_that_runs_a_loop_the_block_runs_in_another_thread() -> None:
    threads: set[str] = set()

    async def fn(x: int) -> int:
        threads.add(threading.current_thread().name)
        await asyncio.sleep(0)
        if x == 7:
            raise LookupError(x)
        return x * 2

    async def notebook() -> None:
        dataset = ps.from_source(list(range(9))).map(fn)
        assert dataset[3] == 6
        assert dataset.spec().dtype == np.int64
        with dataset.feed(executor="inline") as feed:
            assert [next(feed) for _ in range(7)] == list(range(0, 14, 2))
            with pytest.raises(LookupError):
                next(feed)
        with pytest.raises(LookupError):
            dataset[7]
        for _ in dataset.feed(executor="inline"):
            break

    asyncio.run(notebook())
    assert threads == {"penstock-event-loop"}


def test_ctrl_c_cancels_what_is_in_flight_and_the_block_runs_again() -> None:
    ended: list[int] = []
    left = [1]

    async def fn(x: int) -> int:
        try:
            if x == 2 and left:
                left.pop()
                signal.raise_signal(signal.SIGINT)
                await asyncio.Event().wait()
            await asyncio.sleep(0)
            return x
        finally:
            ended.append(x)

    with ps.from_source(list(range(4))).map(fn).batch(4).feed(executor="inline") as feed:
        with pytest.raises(KeyboardInterrupt):
            next(feed)
        assert 2 in ended
        assert next(feed).tolist() == [0, 1, 2, 3]


def test_an_interrupt_that_a_call_raises_is_the_users_and_the_block_runs_again() -> None:
    left = [1]

    async def fn(x: int) -> int:
        if x == 2 and left:
            left.pop()
            raise KeyboardInterrupt
        return x

    with ps.from_source(list(range(4))).map(fn).batch(4).feed(executor="inline") as feed:
        with pytest.raises(KeyboardInterrupt):
            next(feed)
        assert next(feed).tolist() == [0, 1, 2, 3]
    left.append(1)
    with pytest.raises(KeyboardInterrupt):
        ps.from_source(list(range(4))).map(fn)[2]


def test_close_from_another_thread_cancels_the_block_that_runs() -> None:
    begun, ended = threading.Event(), []

    async def fn(x: int) -> int:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(x)
        return x

    feed = ps.from_source(list(range(4))).map(fn).batch(4).feed(executor="inline")
    errors: list[BaseException] = []

    def read() -> None:
        try:
            next(feed)
        except BaseException as error:
            errors.append(error)

    reader = threading.Thread(target=read)
    reader.start()
    assert begun.wait(30)
    feed.close()
    reader.join(30)
    assert not reader.is_alive()
    assert sorted(ended) == list(range(len(ended)))
    assert ended
    assert [type(error) for error in errors] == [ps.errors.FeedClosed]


def test_close_inside_of_a_call_ends_the_feed() -> None:
    feeds: list[Any] = []

    async def fn(x: int) -> int:
        if x == 1:
            feeds[0].close()
            await asyncio.Event().wait()
        return x

    feed = ps.from_source(list(range(4))).map(fn).batch(4).feed(executor="inline")
    feeds.append(feed)
    with pytest.raises(ps.errors.FeedClosed):
        next(feed)
