"""A run in a process of its own, as its feed sees it: a socket and the mapped memory, and no thread."""

from __future__ import annotations

import math
import mmap
import os
import pickle
import socket
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import numpy as np

from penstock._contracts.event import BatchDelivered, Event, Fill, Listener, noted
from penstock._contracts.frameworks import Pin
from penstock._contracts.options import Threads
from penstock._engine.chunk import Failure, LossCounts
from penstock._engine.resume import ResumeStep, lost_before
from penstock._engine.scheduler import Ready
from penstock._system.memory import FeedMemory, release_freed_memory
from penstock._system.process import leak, uninterrupted
from penstock._workers import failure
from penstock._workers.child import Child
from penstock._workers.executed import pools_here
from penstock._workers.failure import Logged, Warned, log_levels
from penstock._workers.inbox import Leases, mapped
from penstock._workers.parts import warn_of_generators
from penstock._workers.pipe import MESSAGE, Pipe, PipeEnded, pickled
from penstock._workers.processes import RELEASE_BYTES, digest_of, no_system_resources, pickled_once
from penstock._workers.sending import digest, dumps_to_worker
from penstock._workers.settings import settings_of
from penstock._workers.shared_pickle import Unsent
from penstock.errors import PlanError, WorkerDied
from penstock.feed.compiled import Compiled
from penstock.feed.engine_process import DeliveryMessage, Hello, Job, Opening, Pages, Raised, RunEnded, Taken, Told, at_length, serve
from penstock.feed.run import Outgoing, Run
from penstock.observe.stats import Snapshot, Stats, Sums
from penstock.observe.ticker import Ticker

_NAME = "the engine process"
_T = TypeVar("_T")
_NUM_AHEAD = 2
_MOST_DEATHS = 5
"""So many times in a row the process may die before it has delivered anything."""
_LOOK_S = 0.2
_GRACE_S = 1.0


class IsolatedRun:
    """Runs a compiled plan in a process of its own, as `Run` does here. The process stays from one `open` to the next, until `end`.

    Attributes:
        stats, listeners, is_open, stopping: as those of `Run`.
        tickers: what draws and writes while the feed runs, called from `poll`.
        feed_memory: gives the method that says what the feed holds, where the feed is there still.
        is_torn: whether the process has died, or an interrupt left a message half read: nothing comes any more.
    """

    def __init__(self, compiled: Compiled, num_cpus: int, listeners: Iterable[Listener]) -> None:
        """Start nothing yet."""
        self._compiled, self._num_cpus, self.listeners = compiled, num_cpus, list(listeners)
        self._num_own = len(self.listeners)
        self.stats = _Figures(self)
        self._outgoing = None if compiled.output is None else Outgoing(compiled.output)
        self._process: EngineProcess | None = None
        self.tickers: list[Ticker] = []
        self.feed_memory: Any = int
        self._number = self._num_deaths = 0
        self._ended_meanwhile: EngineProcess | None = None
        self.is_open = self.stopping = self.is_torn = self._opens = self._busy = False

    def open(self, at: ResumeStep, epoch: int, step: int, memory: Callable[[], FeedMemory]) -> None:
        """Begin at a token of a part of the plan; see `Run.open`. What the feed holds is known there.

        Raises:
            PlanError: something cannot be sent to the process, or it cannot run it.
        """
        self.stopping, self.feed_memory = False, weakref.WeakMethod(memory)
        if at.part.root is self._compiled.root:
            at = at._replace(part=at.part._replace(root=None))  # type: ignore[arg-type]
        while True:
            self.is_torn, self.is_open, self._opens = False, True, True
            self._number += 1
            try:
                self._begin(at, epoch, step)
                return
            except WorkerDied as died:
                is_over = self._is_over()
                self._break_off()
                if is_over:
                    self.is_torn = False
                    return
                if not self._goes_on(died):
                    raise
            except BaseException:
                self._break_off()
                raise
            finally:
                self._opens = False

    def _begin(self, at: ResumeStep, epoch: int, step: int) -> None:
        ahead = _NUM_AHEAD + (0 if self._outgoing is None else self._outgoing.output.depth)
        lost, self.stats.before = self.stats.before, None
        figures, uncounted = None, list[Event]()
        if self._process is None:  # it goes on where another one has ended
            lost, figures, uncounted = lost_before(at.token), self.stats.last, self.stats.uncounted()
        opening = Opening(self._number, at, epoch, step, ahead, self._listens, figures, lost, log_levels())
        process = self._running()
        process.ask("open", opening, is_short=False)
        process.begin(self._number)
        uncounted += [self.stats.announced.popleft() for _ in range(len(self.stats.announced))]
        if uncounted:
            process.ask("count", uncounted)

    def _is_over(self) -> bool:
        """Tell whether `close` came meanwhile, or the interpreter exits, which has stopped the process: no other one goes on then."""
        self.stopping = self.stopping or (self._process is not None and self._process.is_stopped)
        return self.stopping

    def _goes_on(self, died: WorkerDied) -> bool:
        """Count a death in a row; announce it, and return True, where another process is started."""
        self._num_deaths += 1
        if self._num_deaths < _MOST_DEATHS:
            self.announce(noted("worker", f"{died.what}; another one goes on behind the last batch"))
        return self._num_deaths < _MOST_DEATHS

    def _break_off(self) -> None:
        self.is_torn, self._opens = True, False
        self.end()

    def _running(self) -> EngineProcess:
        """Return the process, started or with what has changed in what the plan holds."""
        process = self._process
        if process is None:
            if self._compiled.options.num_workers != 1 and not isinstance(self._compiled.options.executor, Threads):
                warn_of_generators(self._compiled.root)
            job, workers = self._job(), self._compiled.options.num_workers
            unsent = pickled_once(job, job.num_cpus if workers == "auto" else workers)
            try:
                process = uninterrupted(partial(self._start, unsent, digest(job)))
                del unsent
                if process.job_bytes > RELEASE_BYTES:
                    release_freed_memory()
                process.greet()
            except OSError as error:
                raise no_system_resources(error) from error
        elif notice := process.renewed(self._job()):
            self.announce(noted("worker", notice))
        return process

    def _start(self, unsent: Unsent, digest: bytes) -> EngineProcess:
        output = self._compiled.output
        self._process = process = EngineProcess(unsent, digest, None if output is None else output.pin, self.stats.keep)
        self._finalizer = weakref.finalize(self, process.stop, self.tickers)
        return process

    def _job(self) -> Job:
        compiled, output = self._compiled, self._compiled.output
        there = replace(compiled.options, output="numpy")
        pins = output is not None and output.pin is not None
        return Job(compiled.root, there, settings_of(compiled.program.segments), self._num_cpus, pools_here(), pins)

    def instead(self, error: PlanError) -> Run:
        """Return what runs the plan in the program, where it cannot be sent.

        Raises:
            PlanError: the user has asked for a process of its own.
        """
        compiled, executor = self._compiled, self._compiled.options.executor
        if isinstance(executor, Threads):
            raise error
        hindrance = f"{error.what}; {error.fix}" if executor == "auto" else ""
        self.stats.instead = (run := Run(compiled, self._num_cpus, self.listeners, hindrance=hindrance)).stats
        if not hindrance:
            text = f"the program deals elements to the worker processes, and no process of its own does: {error.what}"
            run.announce(noted("executor", text))
        for ticker in self.tickers:
            ticker.start()
        return run

    @property
    def _listens(self) -> bool:
        return len(self.listeners) > self._num_own

    def poll(self, keep: Callable[[Ready], Any], begin_ns: int) -> Ready | None:
        """Return what comes next; block until it is there. None where it was stopped, or the process is gone. See `Run.poll`."""
        self._busy = True
        try:
            return self._polled(keep, begin_ns)
        finally:
            self._busy = False
            ended, self._ended_meanwhile = self._ended_meanwhile, None
            if ended is not None:
                ended.stop()

    def _polled(self, keep: Callable[[Ready], Any], begin_ns: int) -> Ready | None:
        waits = False
        while (process := self._process) is not None and not self.stopping and not self.is_torn:
            arrivals = _Arrivals(self, process)
            self._look(time.monotonic())
            try:
                ready = arrivals.poll(keep) if self._outgoing is None else self._outgoing.poll(arrivals, keep)
                if ready is not None:
                    self._num_deaths = 0
                    now_ns = time.perf_counter_ns()
                    delivered = BatchDelivered(now_ns, now_ns - begin_ns, 0, len(ready.items), ready.chunk_id)
                    process.tell(delivered, listens=self._listens)  # where it has died, another one gives these items again
                    self.stats.add(delivered)
                    return ready
                process.raise_what_came()
                if self.stopping or process.ended == self._number:
                    return None
                if not waits:
                    process.tell(None, listens=self._listens, waits=True)
                waits = True
                process.wait()
            except WorkerDied as died:
                return self._died(died, keep)
        return None

    def _died(self, died: WorkerDied, keep: Callable[[Ready], Any]) -> Ready | None:
        if self._is_over():
            return None
        self.is_torn = True
        if self._goes_on(died):
            return None
        keep(ready := Ready([], [], False, Failure(0, died, "engine", 0)))
        return ready

    def converted(self, items: list[Any], *, more: bool) -> Any:
        """Return the last of `items` as the loop gets it; see `Run.converted`."""
        process = self._process
        if self._outgoing is None:
            return items[-1]
        return self._outgoing.next_batch(items, _Arrivals(self, process) if more and process is not None else None)

    def stop(self) -> None:
        """Have nothing come any more."""
        self.stopping = True

    def close(self) -> list[str]:
        """Stop the workers, and return no name of any; the process stays for the next epoch. It is killed where they do not end in time."""
        self.stop()
        if self._outgoing is not None:
            self._outgoing.output.finish()
            self._outgoing = Outgoing(self._outgoing.output)
        process, self.is_open = self._process, False
        if process is None:
            return []
        self.is_torn = self.is_torn or process.is_stopped  # at the exit of the interpreter: nothing can be asked any more
        if self.is_torn or self._opens:
            self.end()
            return []
        with suppress(WorkerDied):
            alive, events, figures = process.ask("close", timeout_s=self._compiled.options.grace_period_s + _GRACE_S)
            self.stats.keep(figures)
            for event in events:
                self.heard(event)
            if not alive:
                return []
        self.end()  # functions that do not return end with it
        return []

    def end(self) -> None:
        """End the process."""
        process = self._process
        if process is None:
            return
        if self._opens:  # another thread waits for it, and ends it
            process.kill()
            return
        if not self.is_torn:
            self.stats.snapshot()  # the last figures
            self._look(math.inf)
        self._process = None
        self._finalizer.detach()
        if self._busy:  # another thread, or what a signal handler interrupted, reads from it still
            self._ended_meanwhile = process
            process.kill()
        else:
            process.stop()

    def leave(self) -> None:
        """Let go of all that runs, in a process that was just forked."""
        if self._process is not None:
            self._finalizer.detach()
        leak((self._process, self._outgoing))
        self._process, self.is_open = None, False

    @property
    def failures(self) -> list[Failure]:
        """All errors so far."""
        return self._asked([], "failures")

    def loss_counts(self) -> LossCounts | None:
        """Return what was skipped and replaced up to now; None where nothing runs."""
        return self._asked(None, "loss_counts")

    def fills(self) -> list[Fill]:
        """Return how full its buffers are; empty where nothing runs."""
        return self._asked([], "fills")

    def memory(self, step: int) -> FeedMemory:
        """Return where its memory is, when `step` elements were delivered."""
        return self._asked(FeedMemory(), "memory", step)

    def samples(self, key: int, is_last: bool) -> list[tuple[str, float]]:
        """Return what the process has sampled for some curves since they asked last; nothing where it is gone."""
        return self._asked([], "samples", key, is_last)

    def _look(self, now_s: float) -> None:
        """Have those tickers tick that are due."""
        for ticker in [ticker for ticker in self.tickers if ticker.due_s <= now_s]:
            uninterrupted(ticker.look)

    def _asked(self, otherwise: _T, name: str, *arguments: Any) -> _T:
        """Return the answer of the process, or something else where it is gone."""
        process = self._process
        if process is not None and not self.is_torn and not self._opens:  # a signal handler may ask amid `open`
            with suppress(WorkerDied):
                return process.ask(name, *arguments)  # type: ignore[no-any-return]
        return otherwise

    def announce(self, event: Event) -> None:
        """Call the listeners with an event of the program's, and have it counted."""
        self.heard(event)
        if self._process is None or self.is_torn or self._opens:
            self.stats.announced.append(event)
        else:
            self._asked(None, "count", [event])

    def heard(self, event: Event) -> None:
        """Call the listeners with an event."""
        for listener in self.listeners:
            listener(event)


class _Figures:
    """The figures of a run, which are added up there. Those that came last are kept here, and what they do not have yet.

    Attributes:
        last: what came last.
        announced: events of the program's while there was no process.
        before: what was skipped and replaced before a saved state, for the next `open`.
        instead: those of what runs in the place of the run.
    """

    def __init__(self, run: IsolatedRun) -> None:
        self._run = weakref.ref(run)
        self.last: Sums | None = None
        self._delivered, self.announced = deque[BatchDelivered](), deque[Event]()
        self.before: tuple[int, int] | None = None
        self.instead: Stats | None = None

    def keep(self, sums: Sums | None) -> None:
        """Keep what was added up there. From any thread."""
        if self.last is None or (sums is not None and self.last.until_ns <= sums.until_ns):
            self.last = sums

    def add(self, event: BatchDelivered) -> None:
        """Keep what was delivered until it has been added up there. From the thread that takes."""
        self._delivered.append(event)
        while self.last is not None and self._delivered and self._delivered[0].time_ns <= self.last.until_ns:
            self._delivered.popleft()

    def uncounted(self) -> list[Event]:
        """Return what was delivered since."""
        until_ns = 0 if self.last is None else self.last.until_ns
        return [event for event in list(self._delivered) if event.time_ns > until_ns]

    def snapshot(self) -> Snapshot:
        """Return what was measured so far."""
        if self.instead is not None:
            return self.instead.snapshot()
        run, figures = self._run(), Stats()
        if run is not None:
            (run.feed_memory() or int)()  # how many batches the loop has taken is known there then
            self.keep(run._asked(self.last, "figures"))
        if self.last is not None:
            figures.go_on(self.last)
        for event in (*self.uncounted(), *self.announced):
            figures(event)
        return figures.snapshot()

    def begin_from(self, num_skipped: int, num_replaced: int) -> None:
        """Count on from what was skipped and replaced before a saved state."""
        self.before = num_skipped, num_replaced


class EngineProcess:
    """The process, and what joins it to this one. `receive`, `wait` and `tell` are for one thread at a time, `ask` for any.

    Attributes:
        pid: of the process.
        job_bytes: of what it runs, pickled.
        ended: the number of the last run of which nothing more comes.
        raised: the error that a wait there ended with.
        is_stopped: whether `stop` was called.
    """

    def __init__(self, unsent: Unsent, digest: bytes, pin: Pin | None, keep: Callable[[Sums], object]) -> None:
        """Start it, and send it its job, of which `digest` is. Memory of batches is pinned with `pin`; `keep` gets its figures.

        Raises:
            OSError: it cannot be started.
            WorkerDied: it has ended.
        """
        self._digest, self._told_kept, self._keep = digest, False, keep
        self._asking, self._reading = threading.Lock(), threading.Lock()
        ours, theirs = socket.socketpair()
        self._control = Pipe(ours)
        try:
            with theirs:
                self._child = Child.start(serve, (_NAME,), name=_NAME, method="exec")
                try:
                    place, descriptor = unsent.write()
                    self.job_bytes = place.num_bytes
                    try:
                        self._child.send(place, fds=[descriptor, theirs.fileno()])
                    finally:
                        os.close(descriptor)
                except BaseException:
                    self._child.stop(0.0)
                    raise
        except BaseException:
            self._control.close()
            raise
        self.pid = self._child.pid
        self._memory: mmap.mmap | None = None
        self._pin, self._unpin = pin, dict[int, Callable[[], object]]()  # by offset
        self._leases = Leases()
        self._warned: dict[Any, Any] = {}
        self._unsaid: list[tuple[Any, ...]] = []
        self._unreturned: list[int] = []
        self._run = self._num_received = self._num_told = 0
        self._was_stopped = self.is_stopped = False
        self.ended = 0
        self.raised: BaseException | None = None

    def greet(self) -> None:
        """Wait until it has read its job, with all that its functions import.

        Raises:
            PlanError: it cannot read it.
            WorkerDied: it is gone.
        """
        while not isinstance(message := self._child.receive(), Hello):
            self._heed(message, lambda event: None)
        self._memory = mapped(self._child.take_fd(), message.arena_bytes)

    def renewed(self, job: Job) -> str:
        """Send a job again where it holds something else than before; return what is to be announced."""
        found, notice = digest_of(job, self._digest)
        if found != self._digest:
            self._digest = found
            self.ask("renew", job)
        told, self._told_kept = self._told_kept, self._told_kept or bool(notice)
        return "" if told else notice

    def begin(self, run: int) -> None:
        """Expect hand-overs of a run; earlier ones are dropped when they come."""
        self._run, self._num_received = run, 0
        self._unsaid.clear()

    def receive(self, heard: Callable[[Event], None]) -> Ready | None:
        """Return the next hand-over if it has come; never block. Events that have come meanwhile are `heard`.

        Raises:
            WorkerDied: the process is gone.
        """
        while (message := self._next_message()) is not None:
            if type(message) is tuple:
                given = DeliveryMessage(*message)
                found = self._opened(given)
                if given.run == self._run:
                    self._num_received += 1
                    return found
            elif isinstance(message, Raised):
                if message.run == self._run:
                    self._num_received += 1
                    self.raised = pickle.loads(message.error)
                    return None
            elif isinstance(message, RunEnded):
                self.ended = message.run
                return None
            else:
                self._heed(message, heard)
        return None

    def raise_what_came(self) -> None:
        """Raise the error that a wait there ended with, such as a stall; do nothing where there is none."""
        error, self.raised = self.raised, None
        if error is not None:
            raise error

    def _next_message(self) -> Any:
        with self._reading:
            return self._child.receive() if self._child.has_message or self._child.looks() else None

    def _heed(self, message: Any, heard: Callable[[Event], None]) -> None:
        if isinstance(message, Told):
            for event in pickle.loads(message.events):
                heard(event)
        elif isinstance(message, (Logged, Warned)):
            message.show(self._warned)
        elif isinstance(message, Sums):
            self._keep(message)
        elif isinstance(message, Pages) and self._pin is not None:
            if message.are_there:
                assert self._memory is not None
                address = np.frombuffer(self._memory, np.uint8, 1, message.offset).ctypes.data
                self._unpin[message.offset] = self._pin(address, message.num_bytes)
            else:
                self._unpin.pop(message.offset)()

    def _opened(self, given: DeliveryMessage) -> Ready:
        assert self._memory is not None
        places = [*given.buffers, given.stream]
        whole = self._leases.lease(self._memory, given.serial) if any(isinstance(place, tuple) for place in places) else None
        *buffers, stream = (whole[place[0] : sum(place)] if isinstance(place, tuple) else place for place in places)  # type: ignore[index]
        items, tokens, *rest = pickle.loads(memoryview(stream), buffers=buffers)  # type: ignore[arg-type]  # an array is a buffer
        return Ready(items, at_length(tokens), *rest)

    def wait(self) -> None:
        """Wait until something comes, some time at most.

        Raises:
            WorkerDied: it is gone, or was stopped.
        """
        if self._child.has_message or self._child.speaks(_LOOK_S):
            self._was_stopped = False
        else:
            self._kill_if_stopped()

    def _kill_if_stopped(self) -> None:
        """Kill it where it was stopped now and at the last look."""
        was_stopped, self._was_stopped = self._was_stopped, _is_stopped(self.pid)
        if was_stopped and self._was_stopped:
            self._child.kill()

    def tell(self, delivered: BatchDelivered | None, *, listens: bool, waits: bool = False) -> None:
        """Say what has arrived, what the training loop got, which memory is free, and whether the loop waits now.

        Each message says all that has arrived: one that an interrupt has prevented is made up for by the next.
        """
        self._unreturned += self._leases.take_returned()
        if delivered is not None:
            self._unsaid.append(tuple(delivered))
        taken = Taken(self._run, self._num_received, self._unreturned, self._unsaid, listens, waits)
        data = pickle.dumps(tuple(taken), protocol=5)
        self._child.send_bytes(data)  # `send` would take the error of a signal handler for one of the message
        self._unreturned, self._unsaid = [], []
        self._num_told += 1

    def ask(self, name: str, *arguments: Any, timeout_s: float | None = None, is_short: bool = True) -> Any:
        """Return the answer to a question. A short one is not interrupted by a signal handler; behind another one no more can be asked.

        Raises:
            WorkerDied: the process is gone, or does not answer in time; then it is killed.
            BaseException: what it raised.
        """
        question = pickled((self._num_told, self._leases.take_returned(), name, arguments), f"a question to {_NAME}", dumps_to_worker)
        asked = partial(self._ask, question, timeout_s)
        return uninterrupted(asked) if is_short else asked()

    def _ask(self, question: bytes, timeout_s: float | None) -> Any:
        deadline = math.inf if timeout_s is None else time.monotonic() + timeout_s
        with self._asking:
            try:
                self._control.send_bytes(MESSAGE, question)
                while not self._control.readable():
                    self._wait_for_answer()
                    if time.monotonic() > deadline:
                        self._child.kill()
                answer = self._control.receive()
            except PipeEnded:
                raise self._child.died() from None
        if isinstance(answer, failure.Failure):
            raise answer.error(_NAME)
        return answer

    def _wait_for_answer(self) -> None:
        """Wait for an answer, some time at most, and take in what comes on the pipe: the process may have to send that first."""
        if self._child.speaks(_LOOK_S, self._control.fileno()):
            self._was_stopped = False
            if self._reading.acquire(blocking=False):  # else another thread does
                try:
                    self._child.looks()
                finally:
                    self._reading.release()
        else:
            self._kill_if_stopped()

    def kill(self) -> None:
        """Kill it: who waits for it gets `WorkerDied`."""
        self._child.kill()

    def stop(self, tickers: Iterable[Ticker] = ()) -> None:
        """End it, after some tickers that may ask it."""
        self.is_stopped = True
        for ticker in tickers:
            ticker.stop()
        self._child.stop(_GRACE_S)  # in which its functions may end
        self._control.close()
        while self._unpin:
            self._unpin.popitem()[1]()


class _Arrivals:
    """The hand-overs of a run, as `Outgoing` takes them from an engine."""

    def __init__(self, run: IsolatedRun, process: EngineProcess) -> None:
        self._run, self._process = run, process

    def poll(self, keep: Callable[[Ready], Any]) -> Ready | None:
        """Return what comes next if it is there, after `keep` has it; never block."""
        try:
            ready = self._process.receive(self._run.heard)
            if ready is not None:
                keep(ready)
            return ready
        except WorkerDied:
            raise
        except BaseException:  # of a signal handler, amid a message perhaps
            self._run.is_torn = True
            raise


def _is_stopped(pid: int) -> bool:
    """Tell whether a process was stopped by a signal."""
    with suppress(OSError), open(f"/proc/{pid}/stat", "rb") as file:
        return file.read().rpartition(b")")[2].split()[0] == b"T"
    return False
