"""What a feed asks of an executor; the executor of the consumer's own thread; the end of one whose feed was not closed."""

from __future__ import annotations

import threading
import time
import warnings
from typing import Protocol, runtime_checkable

from penstock._contracts.event import BlockDone
from penstock._engine.async_calls import PrivateLoop, begun
from penstock._engine.chunk import Claim
from penstock._engine.engine import Engine
from penstock._ops.map import AwaitedOp
from penstock._ops.worker import WorkerContext


@runtime_checkable
class Executor(Protocol):
    """Runs the tasks of one engine, which it is made with: `engine.claim` or `try_claim`, then `engine.run`, in its own threads or none."""

    def start(self) -> bool:
        """Start the workers; return False when not one can be started any more (the interpreter exits): the feed then runs inline."""

    def wait(self) -> None:
        """Block the consumer until there may be something to take, or until the engine stops; an executor without threads works here."""

    def join(self, grace_period_s: float) -> list[str]:
        """Wait until all workers have ended, at most `grace_period_s`; return the names of those still alive. The engine is stopped."""


def abandon(engine: Engine, executor: Executor, grace_period_s: float) -> None:
    """End the workers and free what they held. A finaliser: it runs in whatever thread drops the feed.

    Waits for the workers. Where the garbage collector happened to run in one of them, it may hold what the others wait for, such as the
    engine's lock: then a thread waits that is started for it.
    """
    engine.stop()
    if engine.breaker.is_attached:
        threading.Thread(target=_end, args=(engine, executor, grace_period_s), name="penstock-end", daemon=True).start()
    else:
        _end(engine, executor, grace_period_s)


def _end(engine: Engine, executor: Executor, grace_period_s: float) -> None:
    alive = executor.join(grace_period_s)
    if alive:
        warnings.warn(f"penstock: a dropped feed left threads running: {', '.join(alive)}", ResourceWarning, stacklevel=1)
    else:
        engine.dispose()


class InlineExecutor:
    """Runs one task at a time, when the consumer has nothing to take."""

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
