"""One event loop in one thread, for all async functions of a feed; a thread for each of them that claims its tasks; one that mends."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from penstock._contracts.event import BlockDone
from penstock._contracts.policy import Raise
from penstock._engine.async_calls import AsyncCalls, Call, begun, failed_call, new_event_loop
from penstock._engine.chunk import Claim
from penstock._engine.engine import Engine
from penstock._engine.error_policy import hear
from penstock._engine.segment import RETRY_WORKER
from penstock._engine.watchdog import LoopWatch
from penstock._ops.block import Block
from penstock._ops.map import AwaitedOp, CallResult
from penstock._ops.worker import WorkerContext
from penstock._system.parking import ParkingLot

if TYPE_CHECKING:
    import asyncio


_CPU_EVERY = 16  # calls whose CPU time is read at once: reading it is a system call


class EventLoop:
    """Runs the tasks of all async pools of an engine.

    The loop's thread may not block, so a thread of each pool waits in `engine.claim` and hands tasks over. It claims ahead of what can
    be begun, so that each call that ends is followed by the next at once. What policies do about an element that failed is done in a
    thread of its own, which may wait, and be given up if it is stuck.
    """

    def __init__(self, engine: Engine) -> None:
        """Prepare; `serve`, `claim` and `mend` are the bodies of threads, which the executor starts."""
        self._engine = engine
        self._worker = WorkerContext(0)
        self._broken: SimpleQueue[tuple[Claim, Block, list[CallResult], int] | None] = SimpleQueue()
        self._pools = {pool: _Pool(engine, op) for pool, op in engine.awaited.items()}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._end: asyncio.Event | None = None
        self._opened = threading.Event()
        self._stopped = False

    @property
    def retries(self) -> bool:
        """Tell whether a policy may do something about a call that fails."""
        error_handler = self._engine.error_handler
        return any(not isinstance(op.policy or error_handler.policies.on_error, Raise) for op in self._engine.awaited.values())

    def serve(self) -> None:
        """Run the loop until `stop`; then cancel what is in flight and wait until it has ended."""
        self._hear(self._run)
        self._stopped = True
        self._opened.set()

    def claim(self, pool: str) -> None:
        """Claim tasks of one pool and hand them to the loop until the engine stops."""
        self._opened.wait()
        self._hear(self._claim, pool)

    def mend(self) -> None:
        """Do what the policies say about elements that failed, until the engine stops."""
        self._hear(self._retry)

    def stop(self) -> None:
        """Let `serve`, `claim` and `mend` end. From any thread; a second call does nothing."""
        self._stopped = True
        self._broken.put(None)
        for pool in self._pools.values():
            pool.waiters.ring_all()
        if self._end is not None:
            self._call(self._end.set)

    def still_running(self) -> str:
        """Say which calls have not ended, for a loop that does not end."""
        counts = {pool.lanes.name: len(pool.lanes) for pool in self._pools.values() if len(pool.lanes)}
        return ", ".join(f"{count} call(s) of stage {name!r}" for name, count in counts.items())

    def _hear(self, body: Callable[..., None], *arguments: Any) -> None:
        with self._engine.breaker.attached():
            hear(self._engine.broke, body, *arguments)

    def _run(self) -> None:
        import asyncio

        with asyncio.Runner(loop_factory=new_event_loop) as runner:
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
        self._engine.watch.loops.append(LoopWatch([pool.lanes for pool in self._pools.values()], self._call))
        self._opened.set()
        if not self._stopped:  # `stop` sets it before it looks for the loop: one of the two sees the other
            await self._end.wait()
        await asyncio.gather(*(pool.lanes.cancel() for pool in self._pools.values()))

    def _running(self) -> bool:
        return not self._stopped

    def _call(self, function: Callable[..., Any], *arguments: Any) -> None:
        """Call a function in the loop's thread, where no caller sees an error: it goes to the consumer."""
        loop = self._loop
        if loop is None:
            return
        try:
            loop.call_soon_threadsafe(hear, self._engine.broke, function, *arguments)
        except RuntimeError:
            if not self._stopped:
                raise
            return  # the loop has ended

    def _begin(self, pool: _Pool, task: Claim, block: Block | None) -> None:
        if block is None or not len(block):
            self._engine.book_awaited(task, block, (), 0, self._worker)
            return
        pool.lanes.add(block, partial(self._book, task, block), task)

    def _book(self, task: Claim, block: Block, outcomes: list[CallResult], busy_ns: int) -> None:
        op = self._engine.awaited_by(task)
        failed = None if op is None else failed_call(op, outcomes)
        if failed is not None and self._engine.error_handler.cares(failed):  # elements are run again, or others, and waited for
            self._broken.put((task, block, outcomes, busy_ns))
        else:
            self._engine.book_awaited(task, block, outcomes, busy_ns, self._worker)

    def _retry(self) -> None:
        worker = WorkerContext(0)
        monitor = self._engine.watch.enlist(RETRY_WORKER, worker)
        while True:
            job = self._broken.get()
            if job is None:
                return
            if not self._stopped:
                monitor.begin(job[0])
                self._engine.book_awaited(*job, worker)
            monitor.end()
            del job


class _Pool:
    """The calls of one async function, and how far the claiming is ahead of them."""

    def __init__(self, engine: Engine, op: AwaitedOp) -> None:
        self._engine = engine
        self._name = op.name
        self._most_ahead = op.concurrency
        self._cpu_ns = self._num_ended = 0
        self.lanes = AsyncCalls(op, engine.broke, on_begin=self._begun, on_end=self._ended)
        self.waiters = ParkingLot()
        self.num_claimed = 0  # by the claiming thread; `lanes.num_started` by the loop's: no counter has two writers

    def wait_for_room(self, running: Callable[[], bool]) -> bool:
        """Block the claiming thread while as many elements wait as may be in flight; return False at the end."""
        while running():
            if self._has_room():
                return True
            self.waiters.park(lambda: running() and not self._has_room())
        return False

    def _has_room(self) -> bool:
        return self.num_claimed - self.lanes.num_started < self._most_ahead

    def _begun(self) -> None:
        if self._has_room():
            self.waiters.ring()

    def _ended(self, call: Call, end_ns: int) -> None:
        before = self._cpu_ns
        self._num_ended += 1
        if self._num_ended % _CPU_EVERY == 0:
            self._cpu_ns = time.thread_time_ns()
        key = call.block.key_of(call.offset)[:2]
        cpu_ns = self._cpu_ns - before
        self._engine.announce(BlockDone(self._name, call.call_slot, call.begin_ns, end_ns, cpu_ns, 1, first=key, last=key))
