"""An event loop that runs only while one thread waits for one block: for the inline executor, `ds[i]` and leaves."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from penstock._engine.fine_loop import new_event_loop
from penstock._engine.hearing import hear
from penstock._engine.lanes import Lanes
from penstock._ops.awaited import AwaitedOp, CallResult
from penstock._ops.block import Block

if TYPE_CHECKING:
    import asyncio

__all__ = ["PrivateLoop", "gather_alone"]


def gather_alone(op: AwaitedOp, block: Block) -> list[CallResult]:
    """Run a block on a loop of its own; return the outcomes up to the first failure. A loop costs 0.1 ms."""
    loop = PrivateLoop()
    try:
        return loop.gather(op, block) or []
    finally:
        loop.close()


class PrivateLoop:
    """A loop that is made when first used and keeps what hangs on it (connections, locks) until `close`.

    In a thread that runs an event loop already, as a notebook's does, each block runs in a short-lived thread instead: Python allows
    one running loop per thread.

    `gather` by one thread at a time; `close` by any, also inside of `gather`.
    """

    def __init__(self) -> None:
        self._runner: list[Any] = []
        self._main: asyncio.Task[Any] | None = None
        self._busy = False
        self.closed = False

    def gather(self, op: AwaitedOp, block: Block) -> list[CallResult] | None:
        """Run a block; return the outcomes up to the first failure and that, or None when the loop was closed meanwhile.

        Raises:
            KeyboardInterrupt: of the user; what was in flight has been cancelled and has ended.
        """
        if not len(block):
            return []
        outcomes: list[CallResult] | None = self._in_free_thread(lambda: self._gather(op, block))
        return outcomes

    def close(self) -> None:
        """Cancel what is in flight, let it end, and close the loop. A second call does nothing."""
        self.closed = True  # before the look at `_busy`: `_gather` does both in the other order, so one of the two closes the loop
        if self._busy:
            self._cancel()
        else:
            self._in_free_thread(self._dispose)

    def _gather(self, op: AwaitedOp, block: Block) -> list[CallResult] | None:
        import asyncio

        self._busy = True
        try:
            if self.closed:
                return None
            if not self._runner:
                # With a factory the runner leaves the thread's "current" loop, which may be the user's, as it is.
                self._runner.append(asyncio.Runner(loop_factory=new_event_loop))
            result: list[CallResult] | None = self._runner[0].run(self._run(op, block))
            return result
        except asyncio.CancelledError:
            if self.closed:
                return None
            raise
        finally:
            self._main, self._busy = None, False
            if self.closed:
                self._dispose()

    async def _run(self, op: AwaitedOp, block: Block) -> list[CallResult] | None:
        import asyncio

        self._main = asyncio.current_task()
        if self.closed:
            return None
        finished: asyncio.Future[list[CallResult]] = asyncio.get_running_loop().create_future()
        lanes = Lanes(op, finished.set_exception)
        lanes.add(block, lambda outcomes, _: finished.set_result(outcomes))
        try:
            return await finished
        finally:
            await lanes.cancel()

    def _cancel(self) -> None:
        main = self._main
        if main is not None:
            try:
                main.get_loop().call_soon_threadsafe(main.cancel)
            except RuntimeError:  # it has ended and its loop is closed
                return

    def _dispose(self) -> None:
        try:
            runner = self._runner.pop()  # whoever gets it closes it
        except IndexError:
            return
        runner.close()

    def _in_free_thread(self, job: Callable[[], Any]) -> Any:
        """Do a job in a thread where no loop runs: this one, or a short-lived one."""
        if not _loop_runs_here():
            return job()
        answers: list[Any] = []
        errors: list[BaseException] = []

        body = partial(hear, errors.append, lambda: answers.append(job()))
        thread = threading.Thread(target=body, name="penstock-event-loop", daemon=True)
        thread.start()
        try:
            thread.join()
        except BaseException:  # Ctrl-C
            self._cancel()
            thread.join()
            raise
        if errors:
            raise errors[0]
        return answers[0]


def _loop_runs_here() -> bool:
    events = sys.modules.get("asyncio.events")  # not imported: then no loop runs anywhere
    return events is not None and events._get_running_loop() is not None
