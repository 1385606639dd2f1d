"""The engine process: it runs a plan apart from the training loop, and sends what is finished.

Two sockets join it to the program. On its pipe go hand-overs, and back what was taken and which memory is free again; the program asks on
the second one, and has an answer to each question. Batches lie in memory that both processes map.
"""

from __future__ import annotations

import os
import pickle
import socket
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from queue import SimpleQueue
from typing import Any, NamedTuple

import numpy as np

from penstock._contracts.event import BatchDelivered, BlockDone, Event, Fill, RowsPacked
from penstock._contracts.options import Options, Threads
from penstock._engine.chunk import Counted, Token
from penstock._engine.chunk import Failure as Failed
from penstock._engine.resume import ResumeStep
from penstock._engine.scheduler import Ready
from penstock._engine.tuning import TuningCache
from penstock._plan.base import Node
from penstock._system.memory import FeedMemory
from penstock._workers.arena import Arena
from penstock._workers.choice import Apart
from penstock._workers.executed import set_pools
from penstock._workers.failure import Failure, dump_with_errors, send_records
from penstock._workers.nursery import Nursery
from penstock._workers.pipe import MESSAGE, Pipe, PipeEnded, not_sendable
from penstock._workers.remote import limit_pools
from penstock._workers.sending import Keep, dumps_to_program, pickler_to_program
from penstock._workers.settings import Settings, set_here
from penstock._workers.shared_pickle import PickledOnce
from penstock.errors import PlanError
from penstock.feed.compiled import Compiled
from penstock.feed.run import Run
from penstock.observe.stats import Sums

_INLINE_BYTES = 1024
"""Buffers of so many bytes, and pickles, go in the message itself."""
_MOST_EVENTS, _HEARD_S = 64, 1.0
_FIGURES_S = 2.0
"""How often the program gets the figures, for the case that this process dies: 1 ms of this process, now and then 10."""
_OFTEN = (BlockDone, BatchDelivered, RowsPacked)
"""Events of each block or batch: they are sent only where the program has listeners."""


class Job(NamedTuple):
    """What the engine process runs.

    Attributes:
        root: the dataset's plan.
        options: of the feed, for this process.
        settings: of modules that their functions read.
        num_cpus: that are available.
        pools: variables of the program that size the pools of native libraries; None for one that is not set.
        pins: whether the program pins the memory of batches.
    """

    root: Node
    options: Options
    settings: Settings
    num_cpus: int
    pools: dict[str, str | None]
    pins: bool


class Hello(NamedTuple):
    """The first message of the process: the bytes of its arena, whose descriptor comes with it."""

    arena_bytes: int


class Opening(NamedTuple):
    """A question: begin to run.

    Attributes:
        number: of this run; hand-overs of others are old.
        at: where; its part has no root where that is the dataset's plan.
        epoch: the number of the epoch.
        step: how many elements were delivered before.
        num_ahead: hand-overs that are sent before the training loop takes them.
        listens: whether the program has listeners, which get all events.
        figures: what another process has added up; None to count on.
        lost: what was skipped and replaced before a saved state; None to count on.
        log_levels: those of the program.
    """

    number: int
    at: ResumeStep
    epoch: int
    step: int
    num_ahead: int
    listens: bool
    figures: Sums | None
    lost: tuple[int, int] | None
    log_levels: dict[str, int]


class DeliveryMessage(NamedTuple):
    """A message with an object: its pickle, and the buffers that the pickle leaves out.

    Attributes:
        run: the number of the run that it belongs to.
        serial: of the memory that it lies in.
        stream: the pickle, or where it lies.
        buffers: they themselves, or where they lie in the arena: (offset, bytes).
    """

    run: int
    serial: int
    stream: bytes | tuple[int, int]
    buffers: tuple[bytearray | tuple[int, int], ...]


class Told(NamedTuple):
    """Events that were announced, pickled."""

    events: bytes


class Pages(NamedTuple):
    """A part of the arena has its pages from now on, or no longer has them."""

    offset: int
    num_bytes: int
    are_there: bool


class Raised(NamedTuple):
    """The error that a run ended a wait with, pickled; the next hand-over may come all the same."""

    run: int
    error: bytes


class RunEnded(NamedTuple):
    """Nothing more comes of a run that was closed."""

    run: int


class Taken(NamedTuple):
    """The message of the program when it has a hand-over, or begins to wait for one.

    Attributes:
        run: the number of the run.
        num_received: hand-overs of it that have arrived.
        returned: serials of memory that is free.
        delivered: for each hand-over that the training loop got since the last message, what `BatchDelivered` has.
        listens: whether the program has listeners, which get all events.
        waits: whether it waits now.
    """

    run: int
    num_received: int
    returned: list[int]
    delivered: list[tuple[Any, ...]]
    listens: bool
    waits: bool


class EngineProcess:
    """What the engine process has. The main thread sends hand-overs; one listens to the pipe, and one answers."""

    def __init__(self, pipe: Pipe, control: Pipe, job: Job, nursery: Nursery | None) -> None:
        self._pipe, self._control = pipe, control
        self.arena = Arena(self._pin if job.pins else None)
        self._root = job.root
        self._run = Run(Compiled(job.root, job.options), job.num_cpus, [self._relay], TuningCache(), Apart(self.arena, nursery))
        self._run.stats.consumer, self._figures_s = 1, time.monotonic() + _FIGURES_S
        self._runs: SimpleQueue[int] = SimpleQueue()
        self._credits: SimpleQueue[bool] = SimpleQueue()
        self._number = self._num_received = self._num_sent = 0
        self._serial = self._step = self._end = self._num_heard = 0
        self._heard, self._idle = threading.Condition(), threading.Event()
        self._idle.set()
        self._held: dict[int, Any] = {}
        self._failed: BaseException | None = None
        self._events: deque[Event] = deque()
        self._listens = False
        self._samples = dict[int, Any]()

    # -- hand-overs ---------------------------------------------------------------------------------------------------------------

    def serve(self) -> None:
        """Send hand-overs until the program ends this process."""
        for body in (self._listen, self._answer):
            threading.Thread(target=body, name=f"penstock{body.__name__}", daemon=True).start()
        while number := self._runs.get():
            self._send_all(number, self._credits)
            self._idle.set()

    def _send_all(self, number: int, credits: SimpleQueue[bool]) -> None:
        """Send what a run gives, as far as there are credits."""
        while credits.get():
            try:
                ready = self._run.poll(lambda ready: None, None)
            except Exception as error:
                self._pipe.send(Raised(number, self._dumps(error, None)))
                continue
            self._tell()
            if ready is None:
                break
            self._failed = None if ready.error is None else ready.error.error
            if self._send(number, ready):
                return
        self._pipe.send(RunEnded(number))

    def _send(self, number: int, ready: Ready) -> bool:
        """Send a hand-over, or why it cannot be sent; return whether it is the last one."""
        buffers: list[pickle.PickleBuffer] = []
        try:
            stream = self._dumps((ready.items, _brief(ready.tokens), *ready[2:-1]), buffers.append)
        except Exception as error:
            told = not_sendable(ready.items, error, f"what {self._root.line()!r} delivers", dumps_to_program)
            ready, buffers = Ready([], [], False, Failed(0, told, "engine", 0)), []
            stream = self._dumps(ready[:-1], None)
        self._num_sent += 1
        serial, made = self._serial + 1, list[Any]()
        self._serial = serial
        places = tuple(self._placed(buffer.raw(), made) for buffer in buffers)
        where = self._placed(memoryview(stream), made)
        if any(isinstance(place, tuple) for place in (*places, where)):
            self._held[serial] = ready.items, made
        given = where if isinstance(where, tuple) else stream
        self._pipe.send_bytes(MESSAGE, pickle.dumps(tuple(DeliveryMessage(number, serial, given, places)), protocol=5))
        return ready.end or ready.error is not None

    def _placed(self, data: memoryview, made: list[Any]) -> bytearray | tuple[int, int]:
        """Return where bytes lie in the arena, copied there if they do not; or themselves where they are few."""
        array = np.frombuffer(data, np.uint8)
        offset = self.arena.offset_of(array) if len(array) else None
        if offset is None and len(array) <= _INLINE_BYTES:
            return bytearray(data)
        if offset is None:
            made.append(self.arena.allocate(len(array)))
            copy = np.frombuffer(made[-1], np.uint8)
            copy[: len(array)] = array
            offset = self.arena.offset_of(copy)
            assert offset is not None
        return offset, len(array)

    def _dumps(self, value: object, keep: Keep | None) -> bytes:
        return dump_with_errors(value, keep, where="the engine process", pickler=pickler_to_program())

    def _pin(self, address: int, num_bytes: int) -> Callable[[], object]:
        offset = address - self.arena.base
        self._pipe.send(Pages(offset, num_bytes, True))
        return partial(self._pipe.send, Pages(offset, num_bytes, False))

    def _listen(self) -> None:
        """Take in what the program says on the pipe."""
        with suppress(PipeEnded):
            while True:
                self._take_in(self._pipe.receive())
                with self._heard:
                    self._num_heard += 1
                    self._heard.notify_all()
        self._run.close()
        self._run.end()
        self._credits.put(False)
        self._runs.put(0)

    def _take_in(self, message: tuple[Any, ...]) -> None:
        taken = Taken(*message)
        self._let_go(taken.returned)
        self._listens = taken.listens
        if taken.run != self._number:
            return
        self._run.await_next(taken.waits)
        for _ in range(taken.num_received - self._num_received):
            self._credits.put(True)
        self._num_received = taken.num_received
        for delivered in taken.delivered:
            event = BatchDelivered(*delivered)
            self._step, self._end = self._end + 1, self._end + event.num_delivered  # it has at least one of those that came together
            num_ready, num_kept, most = self._run.room(self._num_sent - self._num_received)
            self._run.announce(event._replace(num_ready=num_ready, num_kept=num_kept, most=most))
        if taken.delivered and (now_s := time.monotonic()) >= self._figures_s:
            self._figures_s = now_s + _FIGURES_S
            self._pipe.send(self.figures())

    def _let_go(self, serials: list[int]) -> None:
        for serial in serials:
            self._held.pop(serial, None)

    # -- events -------------------------------------------------------------------------------------------------------------------

    def _relay(self, event: Event) -> None:
        often = isinstance(event, _OFTEN)
        if often and not self._listens:
            return
        self._events.append(event)
        if not often or len(self._events) >= _MOST_EVENTS:
            self._tell()

    def _tell(self) -> None:
        events = self._untold()
        if events:
            with suppress(PipeEnded):  # the program has ended: nobody is left to be told
                self._pipe.send(Told(self._dumps(events, None)))

    def _untold(self) -> list[Event]:
        events = []
        while self._events:
            with suppress(IndexError):  # another thread has taken it
                events.append(self._events.popleft())
        return events

    # -- questions ----------------------------------------------------------------------------------------------------------------

    def _answer(self) -> None:
        """Answer the program's questions, one after the other."""
        with suppress(PipeEnded):
            while True:
                num_told, returned, name, arguments = self._control.receive()
                self._wait_for(num_told)
                self._let_go(returned)
                try:
                    answer: Any = getattr(self if hasattr(self, name) else self._run, name)(*arguments)
                    data = self._dumps(answer, None)
                except Exception as error:
                    data = pickle.dumps(Failure.of(error))
                self._control.send_bytes(MESSAGE, data)

    def _wait_for(self, num_told: int) -> None:
        """Wait until what the program said before it asked has been taken in."""
        with self._heard:
            self._heard.wait_for(lambda: self._num_heard >= num_told, _HEARD_S)

    def renew(self, job: Job) -> None:
        """Run another plan from now on: what its functions hold has changed."""
        set_here(job.settings)
        self._root = job.root
        self._run.renew(Compiled(job.root, job.options))

    def open(self, opening: Opening) -> None:
        """Begin to run."""
        send_records(opening.log_levels, self._pipe.send, dumps_to_program)
        if opening.figures is not None:
            self._run.stats.go_on(opening.figures)
        if opening.lost is not None:
            self._run.stats.begin_from(*opening.lost)
        at, number = opening.at, opening.number
        if at.part.root is None:
            at = at._replace(part=at.part._replace(root=self._root))
        self._idle.wait()  # what is sent of one run may not be taken for that of the next
        self._number, self._num_received, self._num_sent = number, 0, 0
        self._listens, self._step, self._end = opening.listens, opening.step, opening.step
        self._credits = SimpleQueue()
        self._run.open(at, opening.epoch, opening.step, self.memory, opening.num_ahead)
        self._run.await_next(False)
        for _ in range(opening.num_ahead):
            self._credits.put(True)
        self._idle.clear()
        self._runs.put(number)

    def close(self) -> tuple[list[str], list[Event], Sums]:
        """Stop; return the names of the workers that are alive still, the last events, and the figures."""
        alive = self._run.close()
        self._credits.put(False)
        return alive, self._untold(), self.figures()

    def failures(self) -> list[Any]:
        """Return all errors so far, but for the one that was handed over."""
        return [failure for failure in self._run.failures if failure.error is not self._failed]

    def fills(self) -> list[Fill]:
        """Return how full the buffers are."""
        return self._run.fills()

    def memory(self, step: int | None = None) -> FeedMemory:
        """Return where the memory is, when `step` elements were delivered."""
        self._step = self._step if step is None else step
        return self._run.memory(self._step)

    def samples(self, key: int, is_last: bool) -> list[tuple[str, float]]:
        """Return what was sampled for some curves since they asked last; sampling begins with the first call."""
        from penstock.observe.curves import SAMPLE_S, Samples, Watched  # which other feeds do not pay
        from penstock.observe.ticker import Ticker

        if key not in self._samples:
            found = Samples()
            add = partial(found.add, [Watched(weakref.ref(self), "feed")])
            add()
            self._samples[key] = found, Ticker("penstock-samples", SAMPLE_S, add, lambda: None)
        found, ticker = self._samples[key]
        if is_last:
            del self._samples[key]
            ticker.stop()
        return list(found.take())

    def figures(self) -> Sums:
        """Return the figures."""
        return self._run.stats.sums()

    def count(self, events: list[Event]) -> None:
        """Count events of the program's."""
        for event in events:
            self._run.stats(event)


def _brief(tokens: Any) -> Any:
    """Return the places behind the items of most plans as numbers alone: the names of classes are most of the time of a message."""
    is_plain = type(tokens) is Counted and tokens.first == Token(tokens.first.source)
    return (tokens.first.source, len(tokens)) if is_plain else tokens


def at_length(tokens: Any) -> Any:
    """Return what `_brief` was given."""
    is_brief = type(tokens) is tuple and tokens and type(tokens[0]) is tuple
    return Counted(Token(tokens[0]), tokens[1]) if is_brief else tokens


def serve(pipe: Pipe, name: str) -> None:
    """Be the engine process. The job, and the second socket, come with the first message."""
    import multiprocessing

    vars(multiprocessing.current_process())["_config"]["daemon"] = False  # worker processes are its children
    place: PickledOnce = pipe.receive()
    try:
        job: Job = place.load(pipe.take_fd())
        set_here(job.settings)
    except Exception as error:
        raise PlanError(
            f"the functions of the dataset cannot be read in {name}: {type(error).__name__}: {error}",
            where=f"{name}, process {os.getpid()}",
            fix="import what the functions need inside them, or put their modules where other processes find them",
        ) from error
    nursery = None if isinstance(job.options.executor, Threads) else Nursery.forked()
    if nursery is None:
        limit_pools(job.num_cpus)
    set_pools(job.pools)
    engine = EngineProcess(pipe, Pipe(socket.socket(fileno=pipe.take_fd())), job, nursery)
    pipe.send(Hello(engine.arena.num_bytes), fds=[engine.arena.fd])
    engine.serve()
