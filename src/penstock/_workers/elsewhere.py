"""Workers that compute elsewhere, as the threads see them that work with them: items go out, and again when a worker dies."""

from __future__ import annotations

import weakref
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable
from dataclasses import is_dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from penstock._contracts.element import bytes_of_all
from penstock._contracts.event import noted
from penstock._engine.chunk import BatchItem, Outcome, WorkItem
from penstock._engine.compute import HERE, Computer
from penstock._engine.engine import Engine
from penstock._engine.error_policy import ErrorHandler
from penstock._engine.program import IN_PROGRAM, SHARED, SegmentPlan
from penstock._engine.segment import READER, RETRY_WORKER
from penstock._engine.turns import Stopped
from penstock._ops.reading import ReadLeaf
from penstock._ops.rows import Rows
from penstock._ops.worker import WorkerContext
from penstock._plan.base import Node
from penstock._workers.remote import Reply, Spot, Stages
from penstock._workers.settings import settings_of
from penstock._workers.threads import ThreadsExecutor, work
from penstock.errors import WorkerDied

if TYPE_CHECKING:
    from penstock._contracts.source import IndexedSource


_MOST_STARTS = 3
"""So many times in a row a worker may die before it has computed anything."""


class RemoteWorker(ABC):
    """One worker, as the thread that works with it sees it. It is started when it is needed, and again when it has died.

    Attributes:
        busy: whether it computes.
        engine, plans: of the run that it computes for.
    """

    engine: Engine
    plans: list[SegmentPlan]

    def __init__(self) -> None:
        self.busy = False
        self._given_up: BaseException | None = None
        self._num_failed_starts = 0

    def compute(self, plan: SegmentPlan, item: WorkItem, slot: Rows | None, worker: WorkerContext, error_handler: ErrorHandler) -> Outcome:
        """Compute an item there; see `penstock._engine.compute.compute`."""
        reply = self._ask(plan, item, slot, worker, error_handler)
        outcome = reply.outcome
        if outcome is None:
            return HERE.compute(plan, item, slot, worker, error_handler)
        if outcome.lost and plan.stream is not None:
            outcome = outcome._replace(lost=[one._replace(where=plan.stream.describe(one.key[1])) for one in outcome.lost])
        if slot is None or not (reply.beside or reply.columns):
            return outcome
        num_bytes = bytes_of_all(list(reply.beside.values()))
        return outcome._replace(kept_bytes=outcome.kept_bytes - num_bytes + slot.merge(item.begin, reply.columns, reply.beside))

    def compute_batches(self, plan: SegmentPlan, item: BatchItem, worker: WorkerContext, error_handler: ErrorHandler) -> Outcome:
        """Compute batches there, from copies of them: a function that changes its batch may be run again."""
        outcome = self._ask(plan, item, None, worker, error_handler).outcome
        assert outcome is not None
        return outcome

    def _ask(
        self, plan: SegmentPlan, item: WorkItem | BatchItem, slot: Rows | None, worker: WorkerContext, error_handler: ErrorHandler
    ) -> Reply:
        """Send an item and wait for the reply; send it again, to another worker, when this one dies.

        From then on its rows are computed one by one. The row at which two workers died has failed: one may have been killed by chance.

        Raises:
            WorkerDied: workers die before they have computed anything.
            Stopped: the engine was stopped, and the worker killed.
        """
        fatal: dict[int, BaseException] = {}
        deaths: Counter[int] = Counter()
        number = next(number for number, one in enumerate(self.plans) if one is plan)
        while True:
            self.busy, at = True, [] if item.fatal is not None else _only_row(item)
            try:
                reply = self._exchange(number, item, slot, error_handler, at)
                worker.cpu_ns, worker.busy_ns = worker.cpu_ns + reply.cpu_ns, reply.busy_ns
                worker.packed(*reply.packed)
                for notice in reply.notices:
                    self.engine.draws.add(*notice)
                self._num_failed_starts = 0
                return reply
            except WorkerDied as died:
                spot, given_up = self.spot(), self._given_up
                began = self._lose() and (item.fatal is None or bool(at))  # else it announces each row, and came to none
                self._may_start_another(died, began)
                if given_up is not None and spot is not None and spot.row is not None:
                    at = [spot.row]
                deaths.update(at[-1:])
                fatal.update((row, given_up or died) for row in at[-1:] if given_up is not None or deaths[row] > 1)
                item = item._replace(fatal=fatal)
            finally:
                self.busy = False

    def _may_start_another(self, died: WorkerDied, began: bool) -> None:
        if self.engine.stopping:
            raise Stopped from None
        self._num_failed_starts = 0 if began else self._num_failed_starts + 1
        if self._num_failed_starts == _MOST_STARTS:
            raise died
        self.engine.announce(noted("worker", f"{died.what}; another one computes its elements again"))

    @abstractmethod
    def _exchange(self, segment: int, item: WorkItem | BatchItem, slot: Rows | None, error_handler: ErrorHandler, at: list[int]) -> Reply:
        """Send an item of a segment and return the reply; `at` gets the rows that are announced meanwhile.

        Raises:
            WorkerDied: it died.
        """

    @abstractmethod
    def _lose(self) -> bool:
        """Let go of the worker, which died; return whether it had begun to compute."""

    @abstractmethod
    def spot(self) -> Spot | None:
        """Return where it was a moment ago; None while it computes nothing. From any thread; never blocks."""

    @property
    @abstractmethod
    def pid(self) -> int | None:
        """The process that computes; 0 for one of another machine, None where there is none."""

    @abstractmethod
    def calls(self) -> list[tuple[str, int, str]]:
        """Return its Python calls, innermost last: file, line and function. From any thread; blocks for a moment."""

    @abstractmethod
    def give_up(self, error: BaseException) -> bool:
        """Kill it; its element is one that failed with `error`. From any thread."""


class RemoteWorkers(ABC):
    """The workers of one feed that compute elsewhere, kept over its epochs. They are started from the threads that need them."""

    end: weakref.finalize[Any, Any]
    """Ends them, also when the feed is no longer referred to."""

    def __init__(self) -> None:
        self._root: Node | None = None
        self._workers: dict[tuple[str, int], Any] = {}

    def run(self, engine: Engine, root: Node, default: str, num_workers: int) -> None:
        """Compute the segments of an engine from now on; of the same plan only what has changed is sent again.

        What threads of the program compute is left out; `default` is the executor of stages that do not name one.

        Raises:
            PlanError: something in them cannot be sent, or would take too much memory.
        """
        parts = tuple(_part_there(plan, default) for plan in engine.plans)
        stages = Stages(parts, engine.error_handler.policies, num_workers, settings_of(parts))
        if root != self._root or self._has_changed(stages, engine):
            executors = engine.executors
            there = [pool for pool in engine.pools if pool not in (READER, RETRY_WORKER) and executors.get(pool, default) != "threads"]
            self._send(stages, root, sum(engine.pools[pool] for pool in there))
            self._root = root

    def _has_changed(self, stages: Stages, engine: Engine) -> bool:
        """Tell whether functions and objects hold something else than when they were sent."""
        return False

    def worker(self, pool: str, index: int, engine: Engine, plans: list[SegmentPlan]) -> RemoteWorker:
        """Return a worker of a pool, for one run."""
        found: RemoteWorker | None = self._workers.get((pool, index))
        if found is None:
            found = self._workers[pool, index] = self._make(f"{pool}-{index}", index)
        found.engine, found.plans = engine, plans
        return found

    @abstractmethod
    def _send(self, stages: Stages, root: Node, num_workers: int) -> None:
        """Have all workers compute these from now on: the segments of `root`."""

    @abstractmethod
    def _make(self, name: str, index: int) -> RemoteWorker:
        """Return a new worker, which is not started."""

    @abstractmethod
    def kill(self) -> None:
        """Kill those that still compute for a run that was ended."""


class RemoteExecutor(ThreadsExecutor):
    """A thread for each worker: it claims, sends the message, waits for the outcome and books it."""

    def __init__(self, engine: Engine, workers: RemoteWorkers, default: str, computer: Callable[[str, int], Computer]) -> None:
        """Prepare to run with `workers`, or in threads, what does not say itself where it runs."""
        super().__init__(engine, computer)
        self._workers, self._default = workers, default
        self._plans, self._places = engine.plans, engine.executors

    def work(self, pool: str, index: int) -> None:
        """Be the thread of the worker `index` of a pool."""
        if pool in (READER, RETRY_WORKER) or self._places.get(pool, self._default) == "threads":
            super().work(pool, index)
        else:
            worker = self._workers.worker(pool, index, self._engine, self._plans)
            work(self._engine, pool, index, Computer(worker.compute, worker.compute_batches), WorkerContext(index, worker))

    def join(self, grace_period_s: float) -> list[str]:
        """Wait for the threads to end; kill the workers that compute longer than `grace_period_s`."""
        alive = super().join(grace_period_s)
        if not alive:
            return []
        self._workers.kill()
        return super().join(grace_period_s)


def _only_row(item: WorkItem | BatchItem) -> list[int]:
    """Return the row, or batch, of an item that has one."""
    begin, end = (item.begin, item.end) if isinstance(item, WorkItem) else (0, len(item.batches))
    return [begin] if end - begin == 1 else []


def _part_there(plan: SegmentPlan, default: str) -> SegmentPlan:
    """Return what a worker needs of a segment: the generator and the folds stay here, and so does what threads of the program compute."""
    there = [(stage.workers and stage.workers.executor) or default for stage in plan.stages]
    here = [replace(_left_out(stage), workers=IN_PROGRAM) for stage in plan.stages]
    stages = tuple(here[n] if there[n] == "threads" else stage for n, stage in enumerate(plan.stages))
    plan = replace(plan, stream=None, folds=None if plan.folds is None else (), stages=stages)
    if there[0] == "threads":
        plan = replace(plan, leaf=_left_out(plan.leaf))
    if {IN_PROGRAM.pool: "threads", SHARED: default}.get(plan.finisher, there[-1]) == "threads":
        plan = replace(plan, batch=_left_out(plan.batch), batch_ops=_left_out(plan.batch_ops))
    return plan


def _left_out(part: Any) -> Any:
    """Return a part of a plan without the functions and sources in it: its kind, its names and the positions that it makes stay."""
    if isinstance(part, tuple):
        return tuple(map(_left_out, part))
    if isinstance(part, ReadLeaf):
        return ReadLeaf(cast("IndexedSource", _SourceElsewhere(part.source.label())), None, None)
    if not is_dataclass(part) or isinstance(part, type):
        return part
    fields = part.__dataclass_fields__
    inner = {name: _left_out(getattr(part, name)) for name in _INNER if name in fields}
    return replace(part, **inner, **{name: None for name in ("fn", "in_turn", "transform") if name in fields})


_INNER = ("leaf", "child", "branches", "operators", "filter_steps", "collation", "steps", "parts")


class _SourceElsewhere(NamedTuple):
    """Stands for a source that only threads read."""

    words: str

    def describe(self, index: int) -> str:
        return f"element {index} of {self.words}"
