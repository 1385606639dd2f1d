"""Stacks of real threads and of real coroutines."""

from __future__ import annotations

import asyncio
import threading
import time
import types
from typing import Any

import pytest

from penstock._engine.watchdog import awaits_of, waits_of


async def _inner(event: asyncio.Event) -> None:
    await event.wait()


async def _plain(event: asyncio.Event) -> None:
    await _inner(event)


async def _of_a_task(event: asyncio.Event) -> None:
    await asyncio.create_task(_inner(event))


async def _gathered(event: asyncio.Event) -> None:
    await asyncio.gather(asyncio.sleep(0), _inner(event))


@types.coroutine
def _old(event: asyncio.Event) -> Any:
    yield from _inner(event)


async def _of_an_old_coroutine(event: asyncio.Event) -> None:
    await _old(event)


@pytest.mark.parametrize("fn", [_plain, _of_a_task, _gathered, _of_an_old_coroutine])
def test_the_chain_of_what_a_task_awaits(fn: Any) -> None:
    async def main() -> tuple[str, ...]:
        event = asyncio.Event()
        task = asyncio.create_task(fn(event))
        for _ in range(5):
            await asyncio.sleep(0)
        calls = tuple(call.function for call in awaits_of(task))
        event.set()
        await task
        assert awaits_of(task) == ()  # it has ended
        return calls

    calls = asyncio.run(main())
    assert calls[0] == fn.__name__
    assert calls[-1] == "Event.wait"
    assert "_inner" in calls


def test_the_chain_ends_where_python_does_not_tell() -> None:
    async def values(event: asyncio.Event) -> Any:
        await event.wait()
        yield 1

    async def main() -> list[str]:
        async def over_values() -> None:
            async for _ in values(event):
                pass

        event = asyncio.Event()
        task = asyncio.create_task(over_values())
        await asyncio.sleep(0)
        found = [call.text for call in awaits_of(task)]
        event.set()
        await task
        return found

    assert asyncio.run(main()) == ["async for _ in values(event):"]


def test_tasks_that_await_each_other_end_the_chain() -> None:
    class Knot:  # real tasks in a knot can never be ended again
        def __init__(self) -> None:
            self._fut_waiter = self

        def get_coro(self) -> Any:
            return None

    assert awaits_of(Knot()) == ()


def test_what_a_loop_runs_is_told_from_the_loop_itself() -> None:
    there, go = threading.Event(), threading.Event()

    def block() -> None:
        there.set()
        go.wait()

    async def main() -> None:
        asyncio.get_running_loop().call_soon(block)
        await asyncio.sleep(0)

    thread = threading.Thread(target=asyncio.run, args=(main(),))
    thread.start()
    there.wait()
    calls, frames = waits_of(thread.ident)
    while calls[-1].function != "Condition.wait":  # it has only come to `wait`
        time.sleep(0)
        calls, frames = waits_of(thread.ident)
    go.set()
    thread.join()
    assert calls[0].function.endswith("<locals>.block")
    assert len(frames) > len(calls)
    assert waits_of(None) == ((), [])
