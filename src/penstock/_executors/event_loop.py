"""One event loop in one thread, for all async functions of a feed; and a thread for each of them that claims its tasks."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from penstock._contracts.event import BlockDone
from penstock._engine.awaiting import begun
from penstock._engine.engine import Engine
from penstock._engine.hearing import hear
from penstock._engine.lanes import Lanes
from penstock._engine.posts import Post
from penstock._engine.unit import Task
from penstock._ops.awaited import AwaitedOp, Outcome
from penstock._ops.block import Block
from penstock._ops.worker import WorkerContext
from penstock.queues import ParkingLot

if TYPE_CHECKING:
    import asyncio

__all__ = ["EventLoop"]


class EventLoop:
    """Runs the tasks of all async pools of an engine.

    The loop's thread may not block, so a thread of each pool waits in `engine.claim` and hands tasks over. It claims ahead of what can
    be begun, so that each call that ends is followed by the next at once.
    """

    def __init__(self, engine: Engine) -> None:
        """Prepare; `serve` and `claim` are the bodies of threads, which the executor starts."""
        self._engine = engine
        self._worker = WorkerContext(0)
        self._post: Post | None = None
        self._pools = {pool: _Pool(engine, op) for pool, op in engine.awaited.items()}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._end: asyncio.Event | None = None
        self._opened = threading.Event()
        self._stopped = False

    def serve(self) -> None:
        """Run the loop until `stop`; then cancel what is in flight and wait until it has ended."""
        hear(self._engine.broke, self._run)
        self._stopped = True
        self._opened.set()

    def claim(self, pool: str) -> None:
        """Claim tasks of one pool and hand them to the loop until the engine stops."""
        self._opened.wait()
        hear(self._engine.broke, self._claim, pool)

    def stop(self) -> None:
        """Let `serve` and `claim` end. From any thread; a second call does nothing."""
        self._stopped = True
        for pool in self._pools.values():
            pool.lot.ring_all()
        if self._end is not None:
            self._call(self._end.set)

    def still_running(self) -> str:
        """Say which calls have not ended, for a loop that does not end."""
        counts = {pool.lanes.name: len(pool.lanes) for pool in self._pools.values() if len(pool.lanes)}
        return ", ".join(f"{count} call(s) of stage {name!r}" for name, count in counts.items())

    def _run(self) -> None:
        import asyncio

        with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
            runner.run(self._serve())

    def _claim(self, pool: str) -> None:
        here = self._pools[pool]
        while here.wait_for_room(self._running):
            task = self._engine.claim(pool, 0)
            if task is None:
                return
            block = begun(task)
            here.num_claimed += 0 if block is None else len(block)
            self._call(self._begin, here, task, block)
            del task, block

    async def _serve(self) -> None:
        import asyncio

        self._loop, self._end = asyncio.get_running_loop(), asyncio.Event()
        self._post = self._engine.watch.enlist_loop(self._worker, [pool.lanes for pool in self._pools.values()], self._call)
        self._opened.set()
        if not self._stopped:  # `stop` sets it before it looks for the loop: one of the two sees the other
            await self._end.wait()
        await asyncio.gather(*(pool.lanes.cancel() for pool in self._pools.values()))

    def _running(self) -> bool:
        return not self._stopped

    def _call(self, function: Callable[..., Any], *arguments: Any) -> None:
        """Call a function in the loop's thread, where nobody hears an error: it goes to the consumer."""
        loop = self._loop
        if loop is None:
            return
        try:
            loop.call_soon_threadsafe(hear, self._engine.broke, function, *arguments)
        except RuntimeError:
            if not self._stopped:
                raise
            return  # the loop has ended

    def _begin(self, pool: _Pool, task: Task, block: Block | None) -> None:
        unit = task.unit
        assert unit is not None
        stalls = unit.stalled.get((task.stage, task.begin)) if unit.single else None
        if block is not None and (unit.dead or stalls):
            pool.lanes.pass_over(len(block))
            if stalls:  # it is not called again
                self._book(task, block, [Outcome(None, stalls[0].error, stalls[0].worker)], 0)
            return
        if block is None or not len(block):
            self._engine.book_awaited(task, block, (), 0, self._worker)
            return
        pool.lanes.add(block, partial(self._book, task, block), task)

    def _book(self, task: Task, block: Block, outcomes: list[Outcome], busy_ns: int) -> None:
        post = self._post
        assert post is not None
        post.begin(task)  # elements that failed are run again here
        self._engine.book_awaited(task, block, outcomes, busy_ns, self._worker)
        post.end()


class _Pool:
    """The calls of one async function, and how far the claiming is ahead of them."""

    __slots__ = ("_cpu_ns", "_engine", "_most_ahead", "_name", "lanes", "lot", "num_claimed")

    def __init__(self, engine: Engine, op: AwaitedOp) -> None:
        self._engine = engine
        self._name = op.name
        self._most_ahead = op.concurrency
        self._cpu_ns = 0
        self.lanes = Lanes(op, engine.broke, on_begin=self._begun, on_end=self._ended, clock=engine.watch.clock)
        self.lot = ParkingLot()
        self.num_claimed = 0  # by the claiming thread; `lanes.num_started` by the loop's: no counter has two writers

    def wait_for_room(self, running: Callable[[], bool]) -> bool:
        """Block the claiming thread while as many elements wait as may be in flight; return False at the end."""
        while running():
            if self._has_room():
                return True
            self.lot.park(lambda: running() and not self._has_room())
        return False

    def _has_room(self) -> bool:
        return self.num_claimed - self.lanes.num_started < self._most_ahead

    def _begun(self) -> None:
        if self._has_room():
            self.lot.ring()

    def _ended(self, lane: int, begin_ns: int, end_ns: int) -> None:
        before, self._cpu_ns = self._cpu_ns, time.thread_time_ns()
        self._engine.announce(BlockDone(self._name, lane, begin_ns, end_ns, self._cpu_ns - before, 1))
