"""Everything in the consumer's thread: the reference answer."""

from __future__ import annotations

import time

from penstock._contracts.event import BlockDone
from penstock._engine.async_calls import PrivateLoop, begun
from penstock._engine.chunk import Claim
from penstock._engine.engine import Engine
from penstock._ops.map import AwaitedOp
from penstock._ops.worker import WorkerContext


class InlineExecutor:
    """Runs one task at a time, when the consumer has nothing to take."""

    __slots__ = ("_engine", "_loop", "_worker")

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._loop = PrivateLoop()
        self._worker = WorkerContext(0)
        self._worker.draws = engine.draws

    def start(self) -> bool:
        """Start nothing; return True: there is always a thread to run in."""
        return True

    def wait(self) -> None:
        """Run one task in this thread.

        Raises:
            KeyboardInterrupt: of the user, in the middle of a task; the task will be run again.
        """
        self._engine.occupied = True  # close() may come in the middle, from a signal handler or another thread
        try:
            task = self._engine.try_claim()
            if task is not None:
                self._run(task)
        finally:
            self._engine.occupied = False

    def _run(self, task: Claim) -> None:
        try:
            op = self._engine.awaited_by(task)
            if op is None:
                self._engine.run(task, self._worker)
            else:
                self._run_awaited(op, task)
        except BaseException:
            self._engine.put_back(task)
            raise

    def _run_awaited(self, op: AwaitedOp, task: Claim) -> None:
        """Run one block of coroutines together; none of another block is in flight meanwhile."""
        block, begin_ns = begun(task), time.perf_counter_ns()
        outcomes = [] if block is None else self._loop.gather(op, block)
        if outcomes is None:
            return  # the feed was closed meanwhile
        end_ns = time.perf_counter_ns()
        self._engine.announce(BlockDone(op.name, 0, begin_ns, end_ns, 0, task.end - task.begin))
        self._engine.book_awaited(task, block, outcomes, (end_ns - begin_ns) * op.concurrency, self._worker)

    def join(self, grace_period_s: float) -> list[str]:
        """Close the event loop, if one was used; return the names of threads that are still alive: none."""
        self._loop.close()
        return []
