"""Coroutines in flight: a bounded number at once, begun in the order of their elements, on the event loop that runs here."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from penstock._engine.hearing import hear
from penstock._engine.unit import Task
from penstock._ops.awaited import AwaitedOp, CallResult
from penstock._ops.block import Block

if TYPE_CHECKING:
    import asyncio
    import contextvars

__all__ = ["Call", "Lanes"]


class _Run:
    """One block: what became of its elements, and how many are missing."""

    __slots__ = ("block", "busy_ns", "done", "missing", "outcomes", "task", "tasks", "wanted")

    def __init__(self, block: Block, done: Callable[[list[CallResult], int], None], task: Task | None) -> None:
        self.block = block
        self.done = done
        self.task = task
        self.wanted = self.missing = len(block)
        self.outcomes: list[CallResult | None] = [None] * self.missing
        self.tasks: dict[int, asyncio.Task[None]] = {}
        self.busy_ns = 0

    def failed(self, offset: int) -> None:
        """Cancel everything behind a failure; what comes before it is still wanted."""
        self.wanted = offset + 1
        for other, task in self.tasks.items():
            if other > offset:
                task.cancel()


class Call:
    """One call in flight.

    Attributes:
        block, offset: its element.
        task: what the engine claimed, if it did.
        lane: its place among those in flight.
        begin_ns: `time.perf_counter_ns` at its begin.
        age_ns, watched_ns: the counted and the elapsed time up to the last look; the watching consumer's.
    """

    __slots__ = ("_booked", "_run", "age_ns", "begin_ns", "lane", "offset", "watched_ns")

    def __init__(self, run: _Run, offset: int, lane: int, begin_ns: int) -> None:
        self._run, self.offset, self.lane = run, offset, lane
        self.begin_ns = begin_ns
        self.age_ns = self.watched_ns = 0
        self._booked = False

    @property
    def block(self) -> Block:
        return self._run.block

    @property
    def task(self) -> Task | None:
        return self._run.task


class Lanes:
    """The calls of one async function. Used by the thread of its loop only, but for the two counters.

    A task of its own for every element: a context, a name and a cancellation of its own, as in any asyncio program. It costs 15 us; a
    request costs more.

    Attributes:
        num_started: elements that wait no longer, ever. Read by any thread.
    """

    def __init__(
        self,
        op: AwaitedOp,
        on_error: Callable[[BaseException], Any],
        *,
        on_begin: Callable[[], None] | None = None,
        on_end: Callable[[Call, int], None] | None = None,
    ) -> None:
        """Prepare.

        Args:
            op: what to call.
            on_error: hears what the other functions here raise: in a callback of the loop nobody else would.
            on_begin: called after calls were begun.
            on_end: called with every call that ended, and when it did.
        """
        self._op = op
        self._on_error = on_error
        self._task_name = f"penstock {op.name}"
        self._on_begin = on_begin
        self._on_end = on_end
        self._free = list(range(op.concurrency - 1, -1, -1))
        self._waiting: deque[tuple[_Run, int]] = deque()
        self._calls: dict[asyncio.Task[None], Call] = {}
        self._closed = False
        self._context: contextvars.Context | None = None
        self.num_started = 0

    def __len__(self) -> int:
        """Return how many coroutines are in flight."""
        return len(self._calls)

    def in_flight(self) -> list[tuple[asyncio.Task[None], Call]]:
        """List the calls that have begun and not ended, with their tasks of asyncio. From any thread."""
        return list(self._calls.copy().items())

    @property
    def name(self) -> str:
        """The stage."""
        return self._op.name

    def add(self, block: Block, done: Callable[[list[CallResult], int], None], task: Task | None = None) -> None:
        """Compute the elements of a block behind those that wait already.

        Args:
            block: at least one element; none is begun after `cancel`.
            done: called with the outcomes in order, up to the first failure, and the nanoseconds of all calls together.
            task: what the engine claimed, for who looks at the calls.
        """
        run = _Run(block, done, task)
        self._waiting.extend((run, offset) for offset in range(len(block)))
        self._start()

    async def cancel(self) -> None:
        """Cancel all that is in flight and wait for it, so that `finally` blocks have run. No `done` is called any more."""
        import asyncio

        self._closed = True
        self._waiting.clear()
        for task in self._calls:
            task.cancel()
        while self._calls:
            await asyncio.wait(list(self._calls))

    def _start(self) -> None:
        if self._waiting and self._free:
            self._start_some()
        if self._on_begin is not None:
            self._on_begin()

    def _start_some(self) -> None:
        import asyncio
        import contextvars

        loop = asyncio.get_running_loop()
        context = self._context = self._context or contextvars.copy_context()  # and not that of the call that has just ended
        while self._waiting and self._free:
            run, offset = self._waiting.popleft()
            self.num_started += 1
            if offset >= run.wanted:
                self._settle(run)
                continue
            lane = self._free.pop()
            begin_ns = time.perf_counter_ns()
            call = Call(run, offset, lane, begin_ns)
            task = loop.create_task(self._call(call), name=self._task_name, context=context.copy())
            run.tasks[offset] = task
            self._calls[task] = call
            task.add_done_callback(partial(self._ended, call))

    async def _call(self, call: Call) -> None:
        """Run a call and book it, which begins the next one, before the task has ended: two rounds of the loop earlier."""
        import asyncio

        outcome = await self._op.outcome(call._run.block, call.offset, call.lane)
        call._booked = True
        hear(self._on_error, self._take, call, asyncio.current_task(), outcome)
        del outcome  # its error may hold this frame

    def _ended(self, call: Call, task: asyncio.Task[None]) -> None:
        """Book a call that was cancelled before its first step, by the user's own code: it has no outcome."""
        import asyncio

        if not call._booked:
            hear(self._on_error, self._take, call, task, CallResult(None, asyncio.CancelledError(), call.lane))

    def _take(self, call: Call, task: asyncio.Task[None], outcome: CallResult) -> None:
        run, offset, lane = call._run, call.offset, call.lane
        del self._calls[task]
        self._free.append(lane)
        del run.tasks[offset]
        if self._closed:
            return
        end_ns = time.perf_counter_ns()
        run.busy_ns += end_ns - call.begin_ns
        if self._on_end is not None:
            self._on_end(call, end_ns)
        if offset < run.wanted:
            run.outcomes[offset] = outcome
            if outcome.error is not None:
                run.failed(offset)
        self._settle(run)
        self._start()

    def _settle(self, run: _Run) -> None:
        run.missing -= 1
        if not run.missing:
            run.done([outcome for outcome in run.outcomes[: run.wanted] if outcome is not None], run.busy_ns)
