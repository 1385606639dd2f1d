"""Nobody awaits without an end: FAULTS A11, A13, with async functions. Every stuck call is real."""

from __future__ import annotations

import asyncio
import socket
import threading
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
from faults.test_stalls import stalled
from faults.ways import drained, notes

import penstock as ps

SOON: dict[str, Any] = {"stall_timeout_s": 0.05, "grace_period_s": 0.05, "executor": "threads", "num_workers": 2}
ORDERS = pytest.mark.parametrize("order", [{}, {"ordered": False}], ids=["ordered", "unordered"])
LOCKS = "check who holds it: the thread that calls next() must not hold what a worker needs; give the wait a timeout"


@ORDERS
@pytest.mark.parametrize("batched", [False, True], ids=["elements", "batches"])
def test_a_call_that_awaits_for_ever_is_an_error_with_stage_key_and_what_it_awaits(order: dict[str, Any], batched: bool) -> None:
    async def hung() -> None:
        await asyncio.Event().wait()

    async def fetch(value: int) -> int:
        if value == 17:
            await hung()
        return value

    ds = ps.from_source(range(60)).shuffle(seed=3).map(fetch, name="fetch", concurrency=8)
    items, error = stalled((ds.batch(4) if batched else ds).feed(**order, **{**SOON, "grace_period_s": 60}))
    assert not any(17 in (item if batched else [item]) for item in items)
    assert error.what.startswith("a call of stage 'fetch' has been awaited for ")
    assert "likely cause: a lock or event that nobody releases, in " in error.what
    assert "in test_a_call_that_awaits_for_ever" in error.what
    assert "stage 'fetch', call " in error.where
    assert "(penstock-event-loop), element epoch 0 index 17 (element 17 of range)" in error.where
    lines = [line.strip() for line in error.where.splitlines()]
    begin = lines.index("what it awaits, innermost last:")
    assert lines[begin + 1].endswith("<locals>.fetch: await hung()")
    assert lines[begin + 2].endswith("<locals>.hung: await asyncio.Event().wait()")
    assert "in Event.wait: " in lines[begin + 3]
    assert "awaited.py" not in error.where
    assert error.fix == LOCKS
    assert notes(error) == ""  # it was cancelled and has ended


def test_of_many_calls_that_hang_some_are_listed_and_all_are_counted() -> None:
    locks: list[Any] = []

    async def locked(value: int) -> int:
        if not locks:
            locks.extend([asyncio.Lock(), asyncio.get_running_loop()])
            await locks[0].acquire()
        async with locks[0]:
            return value

    def listen(event: Any) -> None:
        if "and 19 more like it; likely cause: a lock or event that nobody releases" in getattr(event, "text", ""):
            locks[1].call_soon_threadsafe(locks[0].release)  # the first reports may come before all have begun

    ds = ps.from_source(range(99)).map(locked, name="fetch", concurrency=20).batch(99)
    with warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("always")
        assert drained(ds.feed(on_stall="warn", listeners=[listen], **SOON)) == ([list(range(99))], None)
    text = next(str(warning.message) for warning in given if "and 19 more" in str(warning.message))
    assert text.count("  call ") == 3
    assert "  16 more calls in flight, 16 of them too long as well" in text
    assert "  2 of 2 shared workers: nothing to do" in text


def test_a_queue_that_nobody_fills_is_an_empty_source() -> None:
    async def get(value: int) -> int:
        queue: asyncio.Queue[int] = asyncio.Queue()
        return await queue.get() if value else value

    _, error = stalled(ps.from_source(range(9)).map(get, concurrency=2).feed(**SOON))
    assert "likely cause: an empty source: it waits for a queue into which nobody puts anything" in error.what


@pytest.fixture
def silent() -> Iterator[tuple[str, int]]:
    """The address of a server that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()


def test_a_socket_that_never_answers_is_a_blocked_read(silent: tuple[str, int]) -> None:
    async def ask(value: int) -> bytes:
        reader, writer = await asyncio.open_connection(*silent)
        try:
            return await reader.read(1)
        finally:
            writer.close()
            await writer.wait_closed()

    _, error = stalled(ps.from_source(range(9)).map(ask, name="ask", concurrency=3).feed(**SOON))
    assert "a call of stage 'ask' has been awaited for " in error.what
    assert "likely cause: a blocked read (file, FIFO, network disk or socket) in " in error.what
    assert "in test_a_socket_that_never_answers" in error.what
    assert "ask: return await reader.read(1)" in error.where


def test_a_sleep_and_a_future_have_causes_of_their_own() -> None:
    async def sleep(value: int) -> None:
        await asyncio.sleep(1e6)

    async def never(value: int) -> None:
        await asyncio.get_running_loop().create_future()

    _, error = stalled(ps.from_source(range(3)).map(sleep).feed(**SOON))
    assert "likely cause: a sleep in " in error.what
    _, error = stalled(ps.from_source(range(3)).map(never).feed(**SOON))
    assert "likely cause: something awaited that never comes, in " in error.what
    assert "asyncio.timeout(...)" in error.fix


@ORDERS
def test_a_blocking_call_in_an_async_function_is_named_as_what_holds_up_the_loop(order: dict[str, Any]) -> None:
    go = threading.Event()

    async def fetch(value: int) -> int:
        if value == 5:
            go.wait()
        await asyncio.sleep(0)
        return value

    try:
        _, error = stalled(ps.from_source(range(40)).map(fetch, name="fetch", concurrency=4).batch(5).feed(**order, **SOON))
    finally:
        go.set()
    assert error.what.startswith("a call of stage 'fetch' has held up the event loop of all async functions for ")
    assert "likely cause: a blocking call inside an async function, in " in error.what
    assert "(penstock-event-loop), element epoch 0 index 5 (element 5 of range)" in error.where
    assert "fetch: go.wait()" in error.where
    assert "of a CPU: it waits; its stack" in error.where
    assert "asyncio.to_thread" in error.fix
    assert "penstock: still running: penstock-event-loop (" in notes(error)


def test_a_computation_in_an_async_function_is_named_as_one() -> None:
    over: list[int] = []

    async def fetch(value: int) -> int:
        while value == 3 and not over:
            pass
        return value

    try:
        _, error = stalled(ps.from_source(range(9)).map(fetch, name="fetch", concurrency=2).feed(**SOON))
    finally:
        over.append(1)
    assert "has held up the event loop" in error.what
    assert "likely cause: a computation inside an async function, in " in error.what
    assert "element epoch 0 index 3 (element 3 of range)" in error.where


def test_a_task_of_the_users_own_that_blocks_the_loop_is_none_of_the_calls() -> None:
    go, tasks = threading.Event(), list[Any]()

    async def block() -> None:
        await asyncio.sleep(0)
        go.wait()

    async def fetch(value: int) -> int:
        if not tasks:
            tasks.append(asyncio.create_task(block()))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return value

    try:
        _, error = stalled(ps.from_source(range(9)).map(fetch, concurrency=2).feed(**SOON))
    finally:
        go.set()
    assert error.what.startswith("something has held up the event loop of all async functions for ")
    assert "none of the calls of the feed" in error.where
    assert "block: go.wait()" in error.where


def test_an_element_that_hangs_only_when_it_is_tried_again_is_named() -> None:
    tried, loops = list[int](), list[Any]()

    async def flaky(value: int) -> int:
        if value == 2:
            tried.append(value)
            if len(tried) == 1:
                raise OSError("once")
            loops.append((asyncio.get_running_loop(), asyncio.Event()))
            await loops[0][1].wait()
        return value

    feed = ps.from_source(range(4)).map(flaky, name="flaky", concurrency=2, on_error=ps.Retry(3)).feed(**SOON)
    try:
        _, error = stalled(feed)
    finally:
        loops[0][0].call_soon_threadsafe(loops[0][1].set)
    assert "worker 0 has been with one element of stage 'flaky'" in error.what
    assert "element epoch 0 index 2 (element 2 of range)" in error.where


def test_calls_that_begin_and_end_are_no_stall_however_long_the_next_element_takes_to_come() -> None:
    texts: list[str] = []

    async def fetch(value: int) -> int:
        await asyncio.sleep(0.001)
        return value

    def listen(event: Any) -> None:
        if getattr(event, "kind", "") == "stall":
            texts.append(event.text)

    ds = ps.from_source(range(10**9)).map(fetch, concurrency=2).filter(lambda _: bool(texts))
    with (
        ds.feed(listeners=[listen], stall_timeout_s=0.2, executor="threads", num_workers=1) as feed,
        pytest.warns(RuntimeWarning, match="though work goes on"),
    ):
        next(feed)
    assert "though work goes on; likely cause: much work for little result" in texts[0]
