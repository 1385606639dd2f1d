"""What runs a compiled plan: an engine, its executor, the workers, and what is sent ahead as batches of another framework."""

from __future__ import annotations

import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import islice
from typing import Any, Protocol

from penstock._contracts.event import BatchDelivered, Event, Fill, Listener, RunBegun, noted
from penstock._contracts.frameworks import Output
from penstock._engine.chunk import Failure, LossCounts
from penstock._engine.engine import Engine
from penstock._engine.resume import ResumeStep
from penstock._engine.scheduler import Ready
from penstock._engine.slots import anonymous_memory
from penstock._engine.tuning import TuningCache
from penstock._engine.watchdog import Watch
from penstock._system.memory import FeedMemory
from penstock._system.process import leak, uninterrupted
from penstock._workers.choice import Apart, Placement
from penstock._workers.inline import Executor, InlineExecutor, abandon
from penstock.errors import PlanError
from penstock.feed.compiled import Compiled
from penstock.formats.quarantine import keep as keep_lost
from penstock.observe.stats import Stats

_AUTO_MEMORY_BYTES = 256 << 20


class Run:
    """Runs a compiled plan: `open` begins at a token, `poll` takes what comes, `close` stops; and again, for the next epoch.

    It knows nothing of epochs behind the one that it runs, or of saved states: it announces events, and adds them up. Worker processes
    stay from one `open` to the next, until `end`. `poll` and `open` are for one thread at a time, `close` for any.

    Attributes:
        stats: its figures.
        listeners: who is called with every event, from the thread where it happens; others may be appended.
        is_open: whether there is an engine: from `open` to `close`.
        stopping: whether `stop` or `close` was called since it was opened.
    """

    def __init__(
        self,
        compiled: Compiled,
        num_cpus: int,
        listeners: Iterable[Listener],
        tuning_cache: TuningCache | None = None,
        apart: Apart | None = None,
        hindrance: str = "",
    ) -> None:
        """Start nothing yet. `apart` is what it has in an engine process; `hindrance` says why worker processes cannot run it."""
        self._compiled, self._tuning_cache = compiled, tuning_cache
        self.stats = Stats(num_cpus)
        self.listeners: list[Listener] = [*([keep_lost] if compiled.policies.quarantines else []), self.stats, *listeners]
        output = compiled.output
        self._allocate = apart.arena.allocate if apart is not None else (output and output.allocate) or anonymous_memory
        self._outgoing = None if output is None else Outgoing(output)
        self._placement = Placement(self, compiled.options, num_cpus, None if output is None else output.pin, apart, hindrance)
        self._engine: Engine | None = None
        self._executor: Executor | None = None
        self._finalizer: Any = None
        self._closed_meanwhile: Engine | None = None
        self.stopping = self.is_open = self._busy = False
        self._num_ahead = 0

    def open(self, at: ResumeStep, epoch: int, step: int, memory: Callable[[], FeedMemory], num_ahead: int = 0) -> None:
        """Begin at a token of a part of the plan. What ran before is closed.

        Args:
            at: the part and the token.
            epoch: its number.
            step: how many elements were delivered before.
            memory: a method that says what the feed holds, for the figures; it is not kept alive.
            num_ahead: how many hand-overs are taken before the training loop takes them.

        Raises:
            PlanError: it cannot run as the options say.
        """
        self._busy, self.stopping = True, False
        self.stats.memory.begin(memory, self.announce)
        self._num_ahead = num_ahead + (0 if self._outgoing is None else self._outgoing.output.depth)
        try:
            while True:
                engine = self._new_engine(at, epoch, step)
                if (executor := self._placement.executor(engine)) is not None:
                    break  # else threads run what worker processes cannot
            if self._engine is not engine:  # `close` came meanwhile
                return
            scheduler, ordered = engine.scheduler, not engine.plans[0].unordered
            plan = scheduler.memory_bytes, engine.concurrency, engine.in_program, scheduler.reader is not None, ordered
            self.announce(RunBegun(time.perf_counter_ns(), *plan, self._placement.hindrance))
            while self._placement.notices:
                self.announce(noted("executor", self._placement.notices.pop(0)))
            if not self._run_with(executor):
                self._run_with(InlineExecutor(engine))
        finally:
            self._leave_engine()

    def _new_engine(self, at: ResumeStep, epoch: int, step: int) -> Engine:
        """Make the engine of what runs next, in the place of one that did not begin."""
        options, root = self._compiled.options, at.part.root
        if self._engine is not None:
            self._engine.stop()
            self._engine.dispose()
        program = self._placement.begin(root, replace(self._compiled.program_of(root), epoch=epoch))
        engine = Engine(
            program,
            num_workers=self._placement.num_workers,
            memory_bytes=_AUTO_MEMORY_BYTES if options.memory_bytes == "auto" else options.memory_bytes,
            start=at.token,
            allocate=self._placement.allocate or self._allocate,
            listeners=self.listeners,
            watch=Watch(options.stall_timeout_s, options.on_stall),
        )
        engine.scheduler.handed_over.step, engine.scheduler.num_ahead = step, self._num_ahead
        if self._tuning_cache is not None:
            engine.learn(self._tuning_cache)
        self._engine, self.is_open = engine, True
        return engine

    def _run_with(self, executor: Executor) -> bool:
        """Let an executor run the engine; return whether it could start."""
        if (engine := self._engine) is None:
            return True  # `close` came meanwhile
        if self._finalizer is not None:
            self._finalizer.detach()
        self._executor = executor
        self._finalizer = weakref.finalize(self, abandon, engine, executor, self._compiled.options.grace_period_s)
        return uninterrupted(executor.start)

    def poll(self, keep: Callable[[Ready], Any], begin_ns: int | None) -> Ready | None:
        """Return what comes next, and announce it; block until it is there. None where it was stopped.

        Args:
            keep: called with it first, to put it where its caller finds it whatever interrupts this call.
            begin_ns: when the training loop began to wait; None where it gets it later, and nothing is announced.
        """
        self._busy = True
        try:
            while (engine := self._engine) is not None and (executor := self._executor) is not None and not self.stopping:
                ready = engine.poll(keep) if self._outgoing is None else self._outgoing.poll(engine, keep)
                if ready is not None:
                    if begin_ns is not None:
                        now_ns = time.perf_counter_ns()
                        found = len(ready.items), ready.chunk_id, *engine.room()
                        self.announce(BatchDelivered(now_ns, now_ns - begin_ns, len(engine.scheduler.ready), *found))
                    return ready
                if engine.stopping:
                    break
                executor.wait()
            return None
        finally:
            self._busy = False
            if self._closed_meanwhile is not None:
                self._leave_engine()

    def room(self, num_sent: int) -> tuple[int, int, int]:
        """Return how many hand-overs are ready, how many the training loop keeps, and how many may exist; `num_sent` are on their way."""
        engine = self._engine
        return (0, 0, 0) if engine is None else (len(engine.scheduler.ready) + num_sent, *engine.room())

    def await_next(self, waits: bool) -> None:
        """Say whether the training loop waits for what another thread takes ahead of it: only then something can stall."""
        engine = self._engine
        if engine is not None:
            engine.watch.awaited = waits
            if waits:
                engine.watch.restart()

    def _leave_engine(self) -> None:
        """End a call of the consumer's: free what a `close` amid it, from a signal handler or another thread, has left to it."""
        self._busy = False
        engine, self._closed_meanwhile = self._closed_meanwhile, None
        if engine is not None:
            engine.dispose()

    def converted(self, items: list[Any], *, more: bool) -> Any:
        """Return the last of `items` as the loop gets it; `more` tells whether the engine has others behind them."""
        return items[-1] if self._outgoing is None else self._outgoing.next_batch(items, self._engine if more else None)

    def renew(self, compiled: Compiled) -> None:
        """Run another plan from the next `open` on, the same but for what its functions hold."""
        self._compiled = compiled

    def stop(self) -> None:
        """Have the workers end, and wake the thread that waits in `poll`."""
        self.stopping, engine = True, self._engine
        if engine is not None:
            engine.stop()

    def close(self) -> list[str]:
        """Stop, and wait for the workers as long as `grace_period_s` says; return the names of those still alive."""
        self.stop()
        if self.is_open:
            self.stats.memory.end()
        if self._outgoing is not None:
            self._outgoing.output.finish()
            self._outgoing = Outgoing(self._outgoing.output)
        engine, executor, finalizer = self._engine, self._executor, self._finalizer
        self._engine = self._executor = self._finalizer = None
        self.is_open = False
        if finalizer is not None:
            finalizer.detach()
        alive = [] if engine is None or executor is None else executor.join(self._compiled.options.grace_period_s)
        if engine is not None and not alive:
            if self._busy:  # in `open` or `poll`, which look at what this would drop
                self._closed_meanwhile = engine
            else:
                engine.dispose()
        return alive

    def end(self) -> None:
        """End the worker processes."""
        self._placement.end()

    def leave(self) -> None:
        """Let go of all that runs, in a process that was just forked: no thread of it is here, and one may have held any of its locks."""
        if self._finalizer is not None:
            self._finalizer.detach()
        if self._engine is not None:
            self._engine.stopping = True  # for a worker whose function forked, and returns here
        leak((self._engine, self._executor, self._outgoing, self._placement.leave()))
        self._engine = self._executor = self._finalizer = None
        self.is_open = False

    # -- what is known of it ------------------------------------------------------------------------------------------------------

    @property
    def is_torn(self) -> bool:
        """Whether an interrupt in the consumer's thread left a change half done: nothing comes any more."""
        engine = self._engine
        return engine is not None and engine.is_torn

    @property
    def failures(self) -> list[Failure]:
        """All errors so far."""
        engine = self._engine
        return [] if engine is None else engine.scheduler.failures

    def loss_counts(self) -> LossCounts | None:
        """Return what was skipped and replaced up to now; None where nothing runs."""
        engine = self._engine
        return None if engine is None else engine.scheduler.loss_counts

    def instead(self, error: PlanError) -> Run:
        """Raise the error of `open`: nothing else can run it."""
        raise error

    def fills(self) -> list[Fill]:
        """Return how full its buffers are; empty where nothing runs."""
        engine = self._engine
        return [] if engine is None else engine.scheduler.fills()

    def memory(self, step: int) -> FeedMemory:
        """Return where its memory is, when `step` elements were delivered."""
        engine = self._engine
        if engine is not None:
            return engine.memory(step)
        return FeedMemory() if self._tuning_cache is None else FeedMemory(slots_bytes=self._tuning_cache.spare_bytes)

    def announce(self, event: Event) -> None:
        """Call the listeners with an event."""
        for listener in self.listeners:
            listener(event)


class Arrivals(Protocol):
    """What finished items are taken from."""

    def poll(self, keep: Callable[[Ready], Any]) -> Ready | None:
        """Take the next ones if they are there; never block."""


class Outgoing:
    """Batches on their way to a loop that gets them as another framework's.

    `polled` is what was taken from the engine ahead of the feed; `sent` what became of the next batches, by their identity, with the batch.
    """

    def __init__(self, output: Output) -> None:
        """Begin with nothing ahead."""
        self.output = output
        self.polled: deque[Ready] = deque()
        self._last: Ready | None = None
        self.sent: dict[int, tuple[Any, Any]] = {}

    def poll(self, engine: Arrivals, keep: Callable[[Ready], Any]) -> Ready | None:
        """Take what comes next, if it is there, after `keep` has put it where the feed finds it."""
        if not self.polled:
            return engine.poll(lambda ready: ready is self._last or keep(ready))
        keep(self.polled[0])
        return self.polled.popleft()

    def _keep(self, ready: Ready) -> None:
        if ready is not self._last:
            self.polled.append(ready)
            self._last = ready

    def next_batch(self, items: list[Any], engine: Arrivals | None) -> Any:
        """Return the last of `items` as the output gives it, and send those behind it that are ready; `engine` has more, or is None."""
        most = self.output.depth + 1
        while engine is not None and len(items) + sum(len(ready.items) for ready in self.polled) < most:
            if self.polled and (self.polled[-1].end or self.polled[-1].error):
                break
            if engine.poll(self._keep) is None:
                break
        groups = items, *(ready.items for ready in self.polled)
        for batch, group in islice(((one, them) for them in groups for one in reversed(them)), most):
            if id(batch) not in self.sent:
                try:
                    self.sent[id(batch)] = batch, self.output.send(batch, group)
                except Exception:
                    if batch is not items[-1]:
                        break  # it is raised when the loop takes this batch
                    raise
        batch = self.output.receive(self.sent[id(items[-1])][1])
        del self.sent[id(items[-1])]
        return batch
