"""Async functions: their calls in flight on an event loop, their tasks, and the loop of one thread that waits for a block."""

from __future__ import annotations

import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock._contracts.element import bytes_of_all
from penstock._engine.chunk import Claim, Failure, Outcome
from penstock._engine.error_policy import hear
from penstock._ops.block import Block, ElementFailed
from penstock._ops.map import AwaitedOp, CallResult

if TYPE_CHECKING:
    import asyncio
    import contextvars
    import selectors


_MOST_DESCRIPTORS = 1024  # select() takes no higher ones


def new_event_loop() -> asyncio.AbstractEventLoop:
    """Return a new event loop of the kind that the program has chosen; asyncio's own one with finer timers, on Linux.

    epoll counts in milliseconds and asyncio rounds up: a request of 20 ms ends after 20.5 on average, and all that end within the same
    millisecond go on together from then.
    """
    import asyncio

    loop = asyncio.new_event_loop()
    if sys.platform != "linux" or type(loop) is not asyncio.SelectorEventLoop:
        return loop
    loop.close()
    return asyncio.SelectorEventLoop(_fine_selector()())


@cache
def _fine_selector() -> type[selectors.BaseSelector]:
    import select
    import selectors

    class FineSelector(selectors.EpollSelector):
        """Waits with select(), whose timeout is in microseconds, until epoll has something to tell."""

        def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
            """Wait as `EpollSelector.select` does, but not longer than `timeout` seconds."""
            if timeout is not None and timeout > 0 and self.fileno() < _MOST_DESCRIPTORS:
                if not select.select([self], [], [], timeout)[0]:
                    return []
                timeout = 0
            return super().select(timeout)

    return FineSelector


class _Run:
    """One block: what became of its elements, and how many are missing."""

    __slots__ = ("block", "busy_ns", "done", "missing", "outcomes", "task", "tasks", "wanted")

    def __init__(self, block: Block, done: Callable[[list[CallResult], int], None], task: Claim | None) -> None:
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
        call_slot: its place among those in flight.
        begin_ns: `time.perf_counter_ns` at its begin.
        age_ns, watched_ns: the counted and the elapsed time up to the last look; the watching consumer's.
    """

    __slots__ = ("_run", "age_ns", "begin_ns", "call_slot", "offset", "watched_ns")

    def __init__(self, run: _Run, offset: int, call_slot: int, begin_ns: int) -> None:
        self._run, self.offset, self.call_slot = run, offset, call_slot
        self.begin_ns = begin_ns
        self.age_ns = self.watched_ns = 0

    @property
    def block(self) -> Block:
        return self._run.block

    @property
    def task(self) -> Claim | None:
        return self._run.task


class AsyncCalls:
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
            on_error: gets what the other functions here raise: in a callback of the loop no caller sees it.
            on_begin: called after calls were begun.
            on_end: called with every call that ended, and when it did.
        """
        self._op = op
        self._on_error = on_error
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

    def add(self, block: Block, done: Callable[[list[CallResult], int], None], task: Claim | None = None) -> None:
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
            call_slot = self._free.pop()
            begin_ns = time.perf_counter_ns()
            call = Call(run, offset, call_slot, begin_ns)
            task = loop.create_task(self._call(call), name=f"penstock {self._op.name}", context=context.copy())
            run.tasks[offset] = task
            self._calls[task] = call
            task.add_done_callback(partial(self._ended, call))

    async def _call(self, call: Call) -> None:
        """Run a call and book it, which begins the next one, before the task has ended: two rounds of the loop earlier."""
        import asyncio

        outcome = await self._op.outcome(call._run.block, call.offset, call.call_slot)
        hear(self._on_error, self._take, call, asyncio.current_task(), outcome)
        del outcome  # its error may hold this frame

    def _ended(self, call: Call, task: asyncio.Task[None]) -> None:
        """Book a call that was cancelled before its first step, by the user's own code: it has no outcome."""
        import asyncio

        if task in self._calls:
            hear(self._on_error, self._take, call, task, CallResult(None, asyncio.CancelledError(), call.call_slot))

    def _take(self, call: Call, task: asyncio.Task[None], outcome: CallResult) -> None:
        run, offset, call_slot = call._run, call.offset, call.call_slot
        del self._calls[task]
        self._free.append(call_slot)
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


def begun(task: Claim) -> Block | None:
    """Return the elements of a task, or None when a row before them failed meanwhile: they are no longer wanted."""
    chunk = task.chunk
    given = chunk.given  # before looking at `finishing`: who finishes the chunk takes it away
    if chunk.finishing or task.begin >= chunk.limit:
        return None
    if task.block is not None:
        return task.block
    assert given is not None
    return given.select(slice(task.begin, task.end))


def failed_call(op: AwaitedOp, outcomes: Sequence[CallResult]) -> ElementFailed | None:
    """Return the failure that ended a block, or None."""
    error = outcomes[-1].error if outcomes else None
    return None if error is None else ElementFailed(0, op.name, error, op.policy)


def ended(task: Claim, block: Block, outcomes: Sequence[CallResult], stage: str) -> Outcome:
    """Return what became of the task.

    Args:
        task: what was claimed.
        block: its elements, from `begun`.
        outcomes: one per element; when one failed, it is the last, and those behind it are missing.
        stage: the name for errors.
    """
    values = [outcome.value for outcome in outcomes]
    last = outcomes[-1] if outcomes else None
    if last is None or last.error is None:
        out = block.with_rows(values)
        out.origins = block.origins
        num_bytes = bytes_of_all(values)
        return Outcome(task.end, out, kept_bytes=num_bytes, most_bytes=num_bytes)
    failed = len(outcomes) - 1
    row = failed if block.origins is None else int(block.origins[failed])
    failure = Failure(task.begin + row, last.error, stage, last.worker)
    if row == 0:
        return Outcome(task.begin, None, failure)
    # Behind a flat_map other results of the failed row may stand before the failed one: the row goes as a whole.
    count = row if block.origins is None else int(np.searchsorted(block.origins, row))
    kept = block.select(slice(0, count))
    out = kept.with_rows(values[:count])
    out.origins = kept.origins
    num_bytes = bytes_of_all(out.rows())
    return Outcome(task.begin + row, out, failure, kept_bytes=num_bytes, most_bytes=num_bytes)


def gather_alone(op: AwaitedOp, block: Block) -> list[CallResult]:
    """Run a block on a loop of its own; return the outcomes up to the first failure. A loop costs 0.1 ms."""
    with closing(PrivateLoop()) as loop:
        return loop.gather(op, block) or []


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
        lanes = AsyncCalls(op, finished.set_exception)
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
            runner = self._runner.pop()  # the thread that gets it closes it
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
