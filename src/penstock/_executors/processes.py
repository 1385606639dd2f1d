"""Workers as processes: Python functions run side by side, and a worker may die without the stream noticing."""

from __future__ import annotations

import os
import pickle
import sys
import threading
import time
import weakref
from dataclasses import replace

from penstock._contracts.element import bytes_of_all
from penstock._contracts.event import Notice
from penstock._engine.chunk import BatchItem, Outcome, WorkItem
from penstock._engine.compute import HERE, Computer
from penstock._engine.engine import Engine
from penstock._engine.error_policy import ErrorHandler
from penstock._engine.program import Program, SegmentPlan
from penstock._engine.resume import PlanVariant
from penstock._engine.segment import READER
from penstock._executors.remote import AtRow, Place, Reply, Request, Retrying, Stages, serve
from penstock._executors.threads import Stopped, ThreadsExecutor, work
from penstock._ops.rows import Rows
from penstock._ops.stack import BatchSpec
from penstock._ops.worker import WorkerContext
from penstock._processes.arena import Arena
from penstock._processes.child import Child, importable_program, stop_all
from penstock._processes.inbox import Inbox
from penstock._processes.outbox import Parcelled
from penstock._processes.pipe import not_sendable
from penstock._processes.shared_pickle import PickledOnce, pickle_once
from penstock.errors import PlanError, WorkerDied

__all__ = ["ProcessesExecutor", "WorkerProcesses"]

_MOST_LEASED = 16
"""So many results of one process may be referred to before further ones are copied out of its memory."""
_METHOD = "forkserver" if sys.platform == "linux" else "spawn"
_GRACE_S = 1.0  # an idle process ends in 2 ms
_MOST_STARTS = 3
"""So many processes in a row may die before they have computed anything."""


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
        self._stages: tuple[int, PickledOnce, int] | None = None  # a serial number, where they lie, and the descriptor
        self.starting = threading.Lock()
        self.end = weakref.finalize(owner, self._close)

    @property
    def stages(self) -> tuple[int, PickledOnce, int]:
        """The serial number of what is run, where it lies and its descriptor."""
        assert self._stages is not None
        return self._stages

    def run(self, program: Program, form: PlanVariant) -> None:
        """Compute the segments of a program from now on; one that was lowered from the same plan in the same form is the same.

        Raises:
            PlanError: something in it cannot be sent to another process.
        """
        before, self._form = self._form, form
        if before is not None and before.root is form.root and before[1:] == form[1:]:
            return
        where, descriptor = _pickled(Stages(tuple(map(_computed_part, program.segments)), program.policies))
        serial = 1
        if self._stages is not None:
            serial = self._stages[0] + 1
            os.close(self._stages[2])
        self._stages = serial, where, descriptor

    def worker(self, pool: str, index: int, engine: Engine, plans: list[SegmentPlan]) -> WorkerProcess:
        """Return the process of a worker, for one run."""
        found = self._workers.get((pool, index))
        if found is None:
            found = self._workers[pool, index] = WorkerProcess(self, f"worker process {pool}-{index}", index)
        found.engine, found.plans = engine, plans
        return found

    def kill(self) -> None:
        """Kill the processes that still compute for a run that was ended."""
        stop_all([worker.child for worker in self._workers.values() if worker.busy and worker.child is not None], 0.0)

    def _close(self) -> None:
        stop_all([worker.child for worker in self._workers.values() if worker.child is not None], _GRACE_S)
        self._workers.clear()
        if self._stages is not None:
            os.close(self._stages[2])
        self.arena.close()

    @property
    def pids(self) -> list[int]:
        """The processes that run."""
        return [worker.child.pid for worker in self._workers.values() if worker.child is not None]


class ProcessesExecutor(ThreadsExecutor):
    """A thread for each worker process: it claims, sends the message, waits for the outcome and books it."""

    __slots__ = ("_plans", "_processes")

    def __init__(self, engine: Engine, processes: WorkerProcesses) -> None:
        super().__init__(engine)
        self._processes = processes
        self._plans = engine.plans

    def work(self, pool: str, index: int) -> None:
        """Be the worker `index` of a pool, whose process computes, in this thread."""
        if pool == READER:
            work(self._engine, pool, index)
        else:
            process = self._processes.worker(pool, index, self._engine, self._plans)
            work(self._engine, pool, index, Computer(process.compute, process.compute_batches))

    def join(self, grace_period_s: float) -> list[str]:
        """Wait for the threads to end; kill the processes that compute longer than `grace_period_s`."""
        alive = super().join(grace_period_s)
        if not alive:
            return []
        self._processes.kill()
        return super().join(grace_period_s)


class WorkerProcess:
    """One worker process, as the thread that works with it sees it. It is started when it is needed, and again when it has died."""

    def __init__(self, processes: WorkerProcesses, name: str, index: int) -> None:
        self.child: Child | None = None
        self.busy = False
        self.engine: Engine
        self.plans: list[SegmentPlan]
        self._processes, self._name, self._index = processes, name, index
        self._num_failed_starts = 0
        self._begin()

    def _begin(self) -> None:
        """Begin with a new process, which has nothing yet."""
        self.child, self._serial = None, 0
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
        """Compute batches in this process."""
        return HERE.compute_batches(plan, item, worker, error_handler)

    def _ask(self, plan: SegmentPlan, item: WorkItem, slot: Rows | None, worker: WorkerContext, error_handler: ErrorHandler) -> Reply:
        """Send an item and wait for the reply; send it again, to another process, when this one dies.

        Raises:
            WorkerDied: processes die before they have computed anything.
            Stopped: the engine was stopped, and the process killed.
        """
        fatal: dict[int, BaseException] = {}
        num_deaths = 0
        while True:
            self.busy, at = True, [item.begin] if item.end - item.begin == 1 else []
            try:
                return self._exchange(plan, item, slot, worker, error_handler, at)
            except WorkerDied as died:
                num_deaths += 1
                self._lose(died)
                if num_deaths > 1:
                    fatal.update((row, died) for row in at[-1:])
                    item = item._replace(fatal=fatal)
            finally:
                self.busy = False

    def _exchange(
        self, plan: SegmentPlan, item: WorkItem, slot: Rows | None, worker: WorkerContext, error_handler: ErrorHandler, at: list[int]
    ) -> Reply:
        """Send an item and return the reply; `at` gets the rows that are announced meanwhile."""
        child = self._started()
        number = next(number for number, one in enumerate(self.plans) if one is plan)
        serial, stages, descriptor = self._processes.stages
        place = None if slot is None else self._place(slot)
        given = stages if serial != self._serial else None
        request = Request(number, item, slot is not None, place, self._inbox.take_returned(), given)
        child.send(request, fds=[descriptor] if given is not None else ())
        self._serial = serial
        while not isinstance(message := child.receive(), Parcelled):
            if isinstance(message, AtRow):
                at.append(message.row)
            elif isinstance(message, Retrying):
                error_handler.retrying(*pickle.loads(message.what))
        reply: Reply = self._inbox.open(message, child.take_fd)
        self._num_failed_starts = 0
        worker.cpu_ns += reply.cpu_ns
        worker.packed(*reply.packed)
        return reply

    def _started(self) -> Child:
        if self.child is None:
            arena = self._processes.arena
            with self._processes.starting:
                _preload()
                self.child = Child.start(serve, (self._name, self._index, arena.num_bytes), name=self._name, method=_METHOD)
            self.child.send(self._name, fds=[arena.fd])
        return self.child

    def _lose(self, died: WorkerDied) -> None:
        """Let go of a process that died; raise what keeps another one from being started."""
        began = self.child is not None and self.child.began
        if self.child is not None:
            self.child.stop(0.0)
        self._begin()
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


def _preload() -> None:
    """Let the fork server import this package once, unless the program has said what it imports, or it runs already."""
    from multiprocessing import forkserver

    server = forkserver._forkserver  # type: ignore[attr-defined]
    if server._forkserver_pid is None and server._preload_modules == ["__main__"]:
        server.set_forkserver_preload(["__main__", serve.__module__])


def _computed_part(plan: SegmentPlan) -> SegmentPlan:
    """Return what a worker needs of a segment: a generator stays here, and so do the folds."""
    return replace(plan, stream=None, folds=None if plan.folds is None else ())


def _pickled(stages: Stages) -> tuple[PickledOnce, int]:
    """Pickle what is run, with cloudpickle where functions cannot be imported by their names.

    Raises:
        PlanError: something cannot be pickled.
    """
    what = "functions of a notebook or of `python -c` cannot be imported by a worker process"
    if importable_program():
        try:
            return pickle_once(stages)
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            what = not_sendable(stages, error, "").what
    try:
        import cloudpickle
    except ImportError:
        raise PlanError(
            what,
            where='executor="processes"',
            fix='define functions at the top of a module, run `pip install "penstock[processes]"`, or give executor="threads"',
        ) from None
    try:
        return pickle_once(stages, cloudpickle.dumps)
    except Exception as error:
        raise PlanError(
            not_sendable(stages, error, "").what,
            where='executor="processes"',
            fix='make it where it is used (open a file, a lock or a client inside the function), or give executor="threads"',
        ) from error
