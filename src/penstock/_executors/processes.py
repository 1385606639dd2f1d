"""Workers as processes: Python functions run side by side, and a worker may die without the stream noticing."""

from __future__ import annotations

import os
import pickle
import re
import select
import signal
import socket
import sys
import threading
import time
import weakref
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, NamedTuple

from penstock._contracts.element import bytes_of_all
from penstock._contracts.event import Notice
from penstock._engine.chunk import BatchItem, Outcome, WorkItem
from penstock._engine.compute import Computer
from penstock._engine.engine import Engine
from penstock._engine.error_policy import ErrorHandler
from penstock._engine.program import Policies, SegmentPlan
from penstock._engine.resume import PlanVariant
from penstock._engine.segment import READER, RETRY_WORKER, SHARED
from penstock._executors.remote import SPOT, AtRow, Place, Reply, Request, Retrying, Spot, Stages, serve
from penstock._executors.threads import Stopped, ThreadsExecutor, work
from penstock._ops.rows import Rows
from penstock._ops.stack import BatchSpec
from penstock._ops.worker import WorkerContext
from penstock._processes.arena import Arena
from penstock._processes.child import Child, importable_program, stop_all
from penstock._processes.failure import BY_NAME, Pickling, by_value
from penstock._processes.inbox import Inbox
from penstock._processes.outbox import Parcelled
from penstock._processes.pipe import NO_SIGNAL, not_sendable
from penstock._processes.shared_pickle import PickledOnce, Unsent, pickle_apart
from penstock.errors import PlanError, WorkerDied

__all__ = ["ProcessesExecutor", "WorkerProcesses"]

_MOST_LEASED = 16
"""So many results of one process may be referred to before further ones are copied out of its memory."""
_STACK_S, _QUIET_S = 0.5, 0.05
_CALL = re.compile(r'  File "(.*)", line (\d+) in (.*)')
_METHOD = "forkserver" if sys.platform == "linux" else "spawn"
_GRACE_S = 1.0  # an idle process ends in 2 ms
_MOST_STARTS = 3
"""So many processes in a row may die before they have computed anything."""


class Sent(NamedTuple):
    """What worker processes compute, pickled once.

    Attributes:
        serial: a number of its own.
        stages: where it lies.
        descriptor: of the memory file.
        pickling: how it was pickled, and messages are.
        imports_program: whether a worker imports the file that is run.
    """

    serial: int
    stages: PickledOnce
    descriptor: int
    pickling: Pickling
    imports_program: bool


class WorkerProcesses:
    """The worker processes of one feed, kept over its epochs. They are started when there is work, from the threads that need them."""

    def __init__(self, owner: object) -> None:
        """Make the memory of batches. The processes end with `end()`, and when `owner` is no longer referred to.

        Raises:
            OSError: the system has no descriptor left.
        """
        self.arena = Arena()
        self._workers: dict[tuple[str, int], WorkerProcess] = {}
        self._form: PlanVariant | None = None
        self._sent: Sent | None = None
        self.starting = threading.RLock()
        self.closed = False
        self.end = weakref.finalize(owner, self._close)

    @property
    def sent(self) -> Sent:
        """What is run."""
        assert self._sent is not None
        return self._sent

    def run(self, plans: Sequence[SegmentPlan], policies: Policies, form: PlanVariant, most_bytes: int | None = None) -> None:
        """Compute segments from now on; those of the same plan in the same form are the same.

        Raises:
            PlanError: something in them cannot be sent to another process, or takes more than `most_bytes`.
        """
        before = self._form
        if before is not None and before.root is form.root and before[1:] == form[1:]:
            return
        serial = 1 if self._sent is None else self._sent.serial + 1
        sent = _pickled(Stages(tuple(map(_computed_part, plans)), policies), serial, most_bytes)
        if self._sent is not None:
            os.close(self._sent.descriptor)
        self._sent, self._form = sent, form

    def worker(self, pool: str, index: int, engine: Engine, plans: list[SegmentPlan]) -> WorkerProcess:
        """Return the process of a worker, for one run."""
        found = self._found(pool, index)
        found.engine, found.plans = engine, plans
        return found

    def _found(self, pool: str, index: int) -> WorkerProcess:
        found = self._workers.get((pool, index))
        if found is None:
            found = self._workers[pool, index] = WorkerProcess(self, f"worker process {pool}-{index}", index)
        return found

    def start(self, num_workers: int) -> None:
        """Start the processes of the shared workers ahead of a run."""
        for index in range(num_workers):
            self._found(SHARED, index).start()

    @property
    def ready(self) -> bool:
        """Whether the processes that were started ahead have begun. Never blocks."""
        workers = list(self._workers.values())
        return bool(workers) and all(worker.child is not None and worker.child.has_begun() for worker in workers)

    def kill(self) -> None:
        """Kill the processes that still compute for a run that was ended."""
        stop_all([worker.child for worker in self._workers.values() if worker.busy and worker.child is not None], 0.0)

    def _close(self) -> None:
        with self.starting:
            self.closed = True
        stop_all([worker.child for worker in self._workers.values() if worker.child is not None], _GRACE_S)
        for worker in self._workers.values():
            worker.let_go()
        self._workers.clear()
        if self._sent is not None:
            os.close(self._sent.descriptor)
        self.arena.close()

    @property
    def pids(self) -> list[int]:
        """The processes that run."""
        return [worker.child.pid for worker in self._workers.values() if worker.child is not None]


class ProcessesExecutor(ThreadsExecutor):
    """A thread for each worker process: it claims, sends the message, waits for the outcome and books it."""

    __slots__ = ("_default", "_places", "_plans", "_processes")

    def __init__(self, engine: Engine, processes: WorkerProcesses, default: str) -> None:
        """Prepare to run in `processes`, or in threads, what does not say itself where it runs."""
        super().__init__(engine)
        self._processes, self._default = processes, default
        self._plans, self._places = engine.plans, engine.executors

    def work(self, pool: str, index: int) -> None:
        """Be the worker `index` of a pool, whose process computes, in this thread."""
        if pool in (READER, RETRY_WORKER) or self._places.get(pool, self._default) == "threads":
            work(self._engine, pool, index)
        else:
            process = self._processes.worker(pool, index, self._engine, self._plans)
            work(self._engine, pool, index, Computer(process.compute, process.compute_batches), _Elsewhere(index, process))

    def join(self, grace_period_s: float) -> list[str]:
        """Wait for the threads to end; kill the processes that compute longer than `grace_period_s`."""
        alive = super().join(grace_period_s)
        if not alive:
            return []
        self._processes.kill()
        return super().join(grace_period_s)


class _Elsewhere(WorkerContext):
    """The context of a thread whose items are computed by a worker process: it knows where that is."""

    __slots__ = ("process",)

    def __init__(self, index: int, process: WorkerProcess) -> None:
        super().__init__(index)
        self.process = process

    def place(self) -> Any:
        """Return where the worker is; see `WorkerContext.place`."""
        spot = self.process.spot()
        return super().place() if spot is None else spot.marker

    def row(self) -> int | None:
        """Return the row of the chunk that it is with; see `WorkerContext.row`."""
        spot = self.process.spot()
        return super().row() if spot is None else spot.row

    @property
    def step_name(self) -> str:
        """The step that runs."""
        spot = self.process.spot()
        return super().step_name if spot is None else spot.step

    @property
    def pid(self) -> int | None:
        """The process that computes."""
        child = self.process.child
        return child.pid if child is not None and self.process.busy else None

    def calls(self) -> list[tuple[str, int, str]] | None:
        """Return the Python calls of the process."""
        return self.process.calls() if self.process.busy else None

    def give_up(self, error: BaseException) -> bool:
        """Kill the process."""
        return self.process.give_up(error)


class WorkerProcess:
    """One worker process, as the thread that works with it sees it. It is started when it is needed, and again when it has died."""

    def __init__(self, processes: WorkerProcesses, name: str, index: int) -> None:
        self.child: Child | None = None
        self.busy = False
        self.engine: Engine
        self.plans: list[SegmentPlan]
        self._processes, self._name, self._index = processes, name, index
        self._num_failed_starts = 0
        self._line: _Line | None = None
        self.let_go()

    def let_go(self) -> None:
        """Forget the process, which has ended; the next one has nothing yet."""
        if self._line is not None:
            self._line.close()
        self.child, self._line, self._serial = None, None, 0
        self._given_up: BaseException | None = None
        self._inbox = Inbox(_MOST_LEASED)
        self._spec: tuple[int, BatchSpec | None] = (0, None)  # the last one that was sent, and its number

    def compute(self, plan: SegmentPlan, item: WorkItem, slot: Rows | None, worker: WorkerContext, error_handler: ErrorHandler) -> Outcome:
        """Compute an item in the process; see `penstock._engine.compute.compute`."""
        reply = self._ask(plan, item, slot, worker, error_handler)
        outcome = reply.outcome
        if outcome.lost and plan.stream is not None:
            outcome = outcome._replace(lost=[one._replace(where=plan.stream.describe(one.key[1])) for one in outcome.lost])
        if slot is None or not (reply.beside or reply.texts):
            return outcome
        num_bytes = bytes_of_all(list(reply.beside.values()))
        return outcome._replace(kept_bytes=outcome.kept_bytes - num_bytes + slot.merge(item.begin, reply.texts, reply.beside))

    def compute_batches(self, plan: SegmentPlan, item: BatchItem, worker: WorkerContext, error_handler: ErrorHandler) -> Outcome:
        """Compute batches in the process, from copies of them: a function that changes its batch may be run again."""
        return self._ask(plan, item, None, worker, error_handler).outcome

    def spot(self) -> Spot | None:
        """Return where the process was a moment ago; None while it computes nothing. From any thread; never blocks."""
        line = self._line
        return line.spot() if line is not None and self.busy else None

    def calls(self) -> list[tuple[str, int, str]]:
        """Return the Python calls of the process, innermost last: file, line and function. From any thread; blocks for a moment."""
        line, child = self._line, self.child
        return [] if line is None or child is None else line.calls(child)

    def give_up(self, error: BaseException) -> bool:
        """Kill the process; its element is one that failed with `error`. From any thread."""
        child = self.child
        if child is None or not self.busy:
            return False
        self._given_up = error
        child.kill()
        return True

    def _ask(
        self, plan: SegmentPlan, item: WorkItem | BatchItem, slot: Rows | None, worker: WorkerContext, error_handler: ErrorHandler
    ) -> Reply:
        """Send an item and wait for the reply; send it again, to another process, when this one dies.

        From then on its rows are computed one by one. The row at which two processes died has failed: one may have been killed by chance.

        Raises:
            WorkerDied: processes die before they have computed anything.
            Stopped: the engine was stopped, and the process killed.
        """
        fatal: dict[int, BaseException] = {}
        deaths: Counter[int] = Counter()
        while True:
            self.busy, at = True, [] if item.fatal is not None else _only_row(item)
            try:
                return self._exchange(plan, item, slot, worker, error_handler, at)
            except WorkerDied as died:
                spot, given_up = self.spot(), self._given_up
                self._lose(died, reached_item=item.fatal is None or bool(at))
                if given_up is not None and spot is not None and spot.row is not None:
                    at = [spot.row]
                deaths.update(at[-1:])
                fatal.update((row, given_up or died) for row in at[-1:] if given_up is not None or deaths[row] > 1)
                item = item._replace(fatal=fatal)
            finally:
                self.busy = False

    def _exchange(
        self,
        plan: SegmentPlan,
        item: WorkItem | BatchItem,
        slot: Rows | None,
        worker: WorkerContext,
        error_handler: ErrorHandler,
        at: list[int],
    ) -> Reply:
        """Send an item and return the reply; `at` gets the rows that are announced meanwhile."""
        child = self.start()
        number = next(number for number, one in enumerate(self.plans) if one is plan)
        sent = self._processes.sent
        place = None if slot is None else self._place(slot)
        given = sent.stages if sent.serial != self._serial else None
        message: Any = item if isinstance(item, WorkItem) else self._processes.arena.dumps(item, sent.pickling)
        request = Request(number, message, slot is not None, place, self._inbox.take_returned(), given, sent.pickling is not BY_NAME)
        try:
            data = sent.pickling.dumps(request, protocol=5)
        except Exception as error:
            raise not_sendable(request, error, f"an item for {self._name}") from error
        child.send_bytes(data, fds=[sent.descriptor] if given is not None else ())
        self._serial = sent.serial
        while not isinstance(message := child.receive(), Parcelled):
            if isinstance(message, AtRow):
                at.append(message.row)
            elif isinstance(message, Retrying):
                error_handler.retrying(*pickle.loads(message.what))
        reply: Reply = self._inbox.open(message, child.take_fd)
        self._num_failed_starts = 0
        worker.cpu_ns, worker.busy_ns = worker.cpu_ns + reply.cpu_ns, reply.busy_ns
        worker.packed(*reply.packed)
        return reply

    def start(self) -> Child:
        """Return the process; start it if there is none."""
        if self.child is None:
            arena = self._processes.arena
            with self._processes.starting:
                if self._processes.closed:
                    raise Stopped
                _preload()
                self.child = Child.start(
                    serve,
                    (self._name, self._index, arena.num_bytes),
                    name=self._name,
                    method=_METHOD,
                    imports_program=self._processes.sent.imports_program,
                )
            self._line = _Line(self.child, arena.fd)
        return self.child

    def _lose(self, died: WorkerDied, reached_item: bool) -> None:
        """Let go of a process that died; raise what keeps another one from being started.

        Where `reached_item` is False, it was to announce the rows of its item and came to none: it died while it read its functions.
        """
        began = self.child is not None and self.child.began and reached_item
        if self.child is not None:
            self.child.stop(0.0)
        self.let_go()
        if self.engine.stopping:
            raise Stopped from None
        self._num_failed_starts = 0 if began else self._num_failed_starts + 1
        if self._num_failed_starts == _MOST_STARTS:
            raise died
        self.engine.announce(Notice(time.perf_counter_ns(), "worker", f"{died.what}; another process computes its elements again"))

    def _place(self, slot: Rows) -> Place | None:
        memory = slot.memory()
        if memory is None:
            return None
        spec, arrays = memory
        serial, sent = self._spec
        if spec is not sent:
            serial, sent = self._spec = serial + 1, spec
            sent = None
        offsets = tuple(None if array.dtype.hasobject else self._processes.arena.offset_of(array) for array in arrays)
        return Place(len(arrays[0]), serial, spec if sent is None else None, offsets)


class _Line:
    """A second line to a worker process, for questions while it computes. From any thread."""

    __slots__ = ("_asked", "_buffer", "_end", "_lock", "_spot")

    def __init__(self, child: Child, arena: int) -> None:
        """Send the process its end, and the descriptor of the arena."""
        self._end, theirs = socket.socketpair()
        self._end.setblocking(False)
        with theirs:
            child.send(None, fds=[arena, theirs.fileno()])
        self._lock = threading.Lock()
        self._buffer = b""
        self._spot: Spot | None = None
        self._asked = False

    def spot(self) -> Spot | None:
        """Return the answer to an earlier question, and ask again."""
        with self._lock:
            self._read()
            if not self._asked:
                self._asked = True
                with suppress(OSError):  # the process has ended, which its pipe tells
                    self._end.send(b"?", NO_SIGNAL)
            return self._spot

    def _read(self) -> list[str]:
        """Take in what has arrived; return the lines that are no spots."""
        with suppress(OSError):  # nothing has arrived, or the process has ended
            while data := self._end.recv(1 << 16):
                self._buffer += data
        *lines, self._buffer = self._buffer.split(b"\n")
        others = []
        for line in lines:
            if line.startswith(SPOT):
                self._spot, self._asked = pickle.loads(bytes.fromhex(line[len(SPOT) :].decode())), False
            else:
                others.append(line.decode(errors="replace"))
        return others

    def calls(self, child: Child) -> list[tuple[str, int, str]]:
        """Let the process tell its stack; what it has told within half a second is returned."""
        lines: list[str] = []
        with self._lock:
            self._read()
            child.signal(signal.SIGUSR1)
            poll = select.poll()
            poll.register(self._end, select.POLLIN)
            deadline = time.monotonic() + _STACK_S
            while (left_s := deadline - time.monotonic()) > 0 and poll.poll(1000 * (left_s if not lines else _QUIET_S)):
                found = self._read()
                lines += found
                if not found and not self._buffer:
                    break
        found_calls = [_CALL.match(line) for line in lines]
        return [(call[1], int(call[2]), call[3]) for call in reversed(found_calls) if call is not None]

    def close(self) -> None:
        """Close it."""
        self._end.close()


def _preload() -> None:
    """Let the fork server import this package once, unless the program has said what it imports, or it runs already."""
    from multiprocessing import forkserver

    server: Any = vars(forkserver)["_forkserver"]
    if server._forkserver_pid is None and server._preload_modules == ["__main__"]:
        server.set_forkserver_preload([serve.__module__])


def _only_row(item: WorkItem | BatchItem) -> list[int]:
    """Return the row, or batch, of an item that has one."""
    begin, end = (item.begin, item.end) if isinstance(item, WorkItem) else (0, len(item.batches))
    return [begin] if end - begin == 1 else []


def _computed_part(plan: SegmentPlan) -> SegmentPlan:
    """Return what a worker needs of a segment: a generator stays here, and so do the folds."""
    return replace(plan, stream=None, folds=None if plan.folds is None else ())


def _pickled(stages: Stages, serial: int, most_bytes: int | None) -> Sent:
    """Pickle what is run: by value what the file that is run defines, where there is cloudpickle, so that no worker runs that file.

    Raises:
        PlanError: something cannot be pickled.
    """
    by_name: Unsent | None = None
    failed: Exception | None = None
    try:
        by_name = pickle_apart(stages, most_bytes=most_bytes)
        if not by_name.mentions_program:
            return Sent(serial, *by_name.write(), BY_NAME, imports_program=False)
    except PlanError:  # it is too large
        raise
    except Exception as error:  # also what `__getstate__` of a user's class raises
        failed = error
    try:
        pickling = by_value()
        return Sent(serial, *pickle_apart(stages, pickling.pickler, most_bytes).write(), pickling, imports_program=False)
    except Exception as error:
        if by_name is not None and importable_program():
            return Sent(serial, *by_name.write(), BY_NAME, imports_program=True)
        what = "functions of a notebook or of `python -c` cannot be imported by a worker process"
        raise PlanError(
            what if by_name is not None else not_sendable(stages, failed or error, "").what,
            where='executor="processes"',
            fix="define functions at the top of a module, and open files, locks and clients inside them; "
            + ('run `pip install "penstock[processes]"`; or ' if isinstance(error, ImportError) else "or ")
            + 'give executor="threads"',
        ) from error
