"""The watch looks at the calls of a real event loop."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import penstock as ps
from penstock._engine.async_calls import AsyncCalls, gather_alone
from penstock._engine.chunk import Token
from penstock._engine.lowering import lower
from penstock._engine.scheduler import Scheduler
from penstock._engine.watchdog import LoopWatch
from penstock._ops.block import Block
from penstock._ops.map import AwaitedOp

MS = 1_000_000
LIMIT_S = 30.0


class Loop:
    """An event loop in a thread, with calls of `fn` in flight, looked at by hand."""

    def __init__(self, fn: Any, count: int) -> None:
        self.fn, self.count, self.answers, self.deaf = fn, count, True, False
        self.there = threading.Event()
        self.thread = threading.Thread(target=lambda: asyncio.run(self._serve()))
        self.ahead_ns = 0

    async def _serve(self) -> None:
        def wrong(error: BaseException) -> None:
            raise AssertionError from error

        self.loop, self.end = asyncio.get_running_loop(), asyncio.Event()
        self.lanes = AsyncCalls(AwaitedOp(self.fn, "fetch", 0, 0, False, self.count, gather_alone), wrong)
        self.watch = LoopWatch([self.lanes], self._ask)
        numbers = np.arange(self.count)
        self.lanes.add(Block(0 * numbers, numbers, numbers.astype(np.uint64), rows=numbers.tolist()), lambda *_: None)
        self.there.set()
        await self.end.wait()
        await self.lanes.cancel()

    def _ask(self, function: Callable[[], None]) -> None:
        if not self.deaf:
            self.loop.call_soon_threadsafe(function)

    def __enter__(self) -> Loop:
        self.thread.start()
        assert self.there.wait(LIMIT_S)
        return self

    def __exit__(self, *_: object) -> None:
        self.loop.call_soon_threadsafe(self.end.set)
        self.thread.join(LIMIT_S)
        assert not self.thread.is_alive()

    def look(self, elapsed_ns: int = 20 * MS) -> bool:
        """Look once, as if so much time had gone by; a loop that is not blocked has answered the look before."""
        if self.answers:
            answered = threading.Event()
            self._ask(answered.set)
            assert answered.wait(LIMIT_S)
        self.ahead_ns += elapsed_ns
        assert self.watch.monitor.read_clocks() >= 0
        return self.watch.observe(time.perf_counter_ns() + self.ahead_ns, elapsed_ns, 0)

    def facts(self, timeout_ns: int) -> Any:
        scheduler = Scheduler(lower(ps.from_source(range(9))._root), 1, 1 << 20, Token((0, 0)))
        return self.watch.facts(scheduler, timeout_ns)


def test_a_call_that_blocks_the_loop_is_told_from_those_that_wait() -> None:
    there, go = threading.Event(), threading.Event()

    async def block(number: int) -> None:
        if number == 1:
            there.set()
            go.wait()
        await asyncio.Event().wait()

    with Loop(block, 3) as loop:
        assert there.wait(LIMIT_S)
        loop.answers = False
        for _ in range(4):
            loop.look()
        assert loop.watch.overdue(50 * MS)
        facts, more, late = loop.facts(50 * MS)
        go.set()
    assert [(fact.index, fact.blocks, fact.stuck) for fact in facts] == [(1, True, True), (0, False, False), (2, False, False)]
    assert facts[0].stack[0].function.endswith("<locals>.block")
    assert facts[0].stack[0].text == "go.wait()"
    assert (more, late) == (0, 0)
