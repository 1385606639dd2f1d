"""The engine: one mutex around the segments, parking lots around the mutex. Workers claim, run and complete; the consumer takes."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

from penstock._contracts.event import BlockDone, Listener, Notice
from penstock._engine.execute import finish_unit, run_task
from penstock._engine.failing import prepare
from penstock._engine.program import Program
from penstock._engine.reader import Reader
from penstock._engine.segment import Segment, given_unit
from penstock._engine.sequencer import OPEN, Sequencer
from penstock._engine.slots import SlotPool
from penstock._engine.tune import ActiveWorkers
from penstock._engine.unit import Failure, Task, Token, Unit
from penstock._ops.rows import Rows
from penstock._ops.worker import WorkerContext
from penstock._order.arithmetic import INFINITE
from penstock._order.folds import Passes
from penstock.errors import SourceError
from penstock.queues import ParkingLot

__all__ = ["Engine", "Ready"]

_READER = "reader"


class Ready(NamedTuple):
    """What the consumer takes: items in reverse order, with the token after each; or the end; or an error."""

    items: list[Any]
    tokens: list[Token] | tuple[Token, int]
    """One token per item, in the order of delivery; or the token before the first and a stride of 1 for plain positions."""
    end: bool
    error: Failure | None


class Engine:
    """Runs a program. Starts no thread: an executor calls `claim` and `run`, in as many threads as it likes.

    Thread-safe. `take` is for consumers, `stop` for anybody.
    """

    def __init__(
        self,
        program: Program,
        *,
        num_workers: int,
        memory_bytes: int,
        start: Token,
        allocate: Any,
        listeners: list[Listener],
    ) -> None:
        """Prepare to run from the state `start`; nothing happens yet."""
        self.program = program
        self.num_workers = max(1, num_workers)
        self.memory_bytes = memory_bytes
        self.listeners = listeners
        self.stopping = False
        self.delivered = 0
        self._mutex = threading.Lock()
        self._version = 0
        self._ready: deque[Ready] = deque()
        self._num_ready = 0
        self._waiting = 0
        self._ended = False
        self._live = 0
        self._unit_bytes = 0
        self.failures: list[Failure] = []
        self.consumers = ParkingLot()
        self.pools = _pools(program)
        self.lots = {pool: ParkingLot() for pool in self.pools}
        self._bench = ParkingLot()  # for shared workers that are not wanted at the moment
        self.slots = SlotPool(allocate, self._ring_workers)
        self._inner_slots = SlotPool(allocate, lambda: None)
        passes = _num_passes(program)
        self.segments = [
            Segment(number, plan, passes, start.source) for number, plan in enumerate(program.segments)
        ]
        self._sequencers = _sequencers(program, start)
        stream = program.segments[0].stream
        self.reader = None if stream is None else Reader(stream, start.source, passes)
        self._active = ActiveWorkers(self.num_workers)

    # -- workers ------------------------------------------------------------------------------------------------------------------

    def size_of(self, pool: str) -> int:
        """Return how many workers a pool should have."""
        return self.pools[pool] or self.num_workers

    def claim(self, pool: str, worker: int) -> Task | None:
        """Return the next task for a worker of `pool`; block while there is none; None when the engine stops."""
        while True:
            with self._mutex:
                before = self._version
                task = self._next_task(pool, worker)
                seen = self._mark()
            if task is not None:
                self._ring_workers()
                return task
            if seen[0] != before:  # committing made work, perhaps for another pool, perhaps in a segment that was looked at before
                self._ring_workers()
                continue
            if self.stopping:
                return None
            lot = self._bench if pool == "workers" and worker >= self._active.limit else self.lots[pool]
            lot.park(partial(self._unchanged, seen))

    def try_claim(self) -> Task | None:
        """Return the next task of any pool, or None; never block. For the inline executor."""
        with self._mutex:
            for pool in reversed(self.pools):
                task = self._next_task(pool, 0)
                if task is not None:
                    return task
        return None

    def run(self, task: Task, worker: WorkerContext) -> None:
        """Run a claimed task and book its outcome."""
        if task.read:
            self._run_reader(task)
            return
        segment = self.segments[task.segment]
        unit = task.unit
        assert unit is not None
        if unit.rows is None and segment.plan.batch is not None and task.stage == len(segment.plan.stages) - 1:
            self._open_rows(segment, unit)
        begin_ns, begin_cpu = time.perf_counter_ns(), time.thread_time_ns()
        block, end, failure = run_task(segment.plan, task, worker)
        end_ns, cpu_ns = time.perf_counter_ns(), time.thread_time_ns() - begin_cpu
        if failure is not None:
            failure = prepare(failure, *segment.where(unit, failure.at))
        with self._mutex:
            complete = self._complete(segment, task, block, end, failure, end_ns - begin_ns, cpu_ns)
        if self.listeners:
            stage = segment.plan.stages[task.stage].name or "batch"
            self._announce(BlockDone(stage, worker.index, begin_ns, end_ns, cpu_ns, task.end - task.begin))
        if complete:
            self._finish(segment, unit, worker)
        self._ring_workers()

    # -- consumers ----------------------------------------------------------------------------------------------------------------

    def poll(self) -> Ready | None:
        """Take the next finished items if there are any; never block."""
        try:
            ready = self._ready.popleft()
        except IndexError:
            return None
        self.delivered += 1
        self._ring_workers()
        return ready

    def wait(self) -> None:
        """Block until there may be something to take."""
        self._waiting += 1
        self._ring_workers()
        try:
            self.consumers.park(lambda: not self._ready and not self.stopping)
        finally:
            self._waiting -= 1

    @property
    def num_ready(self) -> int:
        """How many hand-overs wait for the consumer."""
        return len(self._ready)

    def stop(self) -> None:
        """Let all workers run out. Safe from any thread, in finalisers and signal handlers."""
        self.stopping = True
        for lot in self.lots.values():
            lot.ring_all()
        self._bench.ring_all()
        self.consumers.ring_all()

    def dispose(self) -> None:
        """Drop what is queued and free buffers, after the workers have ended."""
        self._ready.clear()
        self.slots.close()
        self._inner_slots.close()
        if self.reader is not None:
            self.reader.close()

    def put_back(self, task: Task) -> None:
        """Undo a claim whose run was interrupted."""
        with self._mutex:
            if task.read and self.reader is not None:
                self.reader.busy = False
            elif task.unit is not None:
                self.segments[task.segment].put_back(task)

    # -- under the mutex ----------------------------------------------------------------------------------------------------------

    def _unchanged(self, seen: tuple[int, int, int, int]) -> bool:
        return not self.stopping and self._mark() == seen

    def _mark(self) -> tuple[int, int, int, int]:
        return self._version, len(self.slots.returned), self.delivered, self._waiting

    def _next_task(self, pool: str, worker: int) -> Task | None:
        if self.stopping or self._ended:
            return None
        if pool == _READER:
            return self._next_read()
        if pool == "workers" and worker >= self._active.limit:
            return None
        self._pump()
        for segment in reversed(self.segments):
            task = self._segment_task(segment, pool)
            if task is not None:
                self._version += 1
                return task
        return None

    def _segment_task(self, segment: Segment, pool: str) -> Task | None:
        for stage in range(len(segment.plan.stages) - 1, 0, -1):
            if _pool(segment, stage) == pool:
                task = segment.next_block(stage)
                if task is not None:
                    return task
        if _pool(segment, 0) != pool or self._blocked_by_next_stage(segment):
            return None
        while not segment.has_rows() and segment.can_open() and self._room(segment):
            unit = segment.open()
            if segment is self.segments[-1]:
                self._live += 1
            if unit.num_rows == 0:
                self._close_unit(segment, unit)
                self._pump()
        return segment.next_rows(self.size_of(pool) if pool != "workers" else self._active.limit)

    def _blocked_by_next_stage(self, segment: Segment) -> bool:
        """Back-pressure between the stages of a segment: a bounded number of blocks waits for the second one."""
        queues = segment.queues
        return any(len(queue) > 2 * self.size_of(_pool(segment, stage)) + 2 for stage, queue in enumerate(queues) if stage)

    def _room(self, segment: Segment) -> bool:
        """Tell whether the engine may hold one more unit of this segment."""
        if segment is not self.segments[-1]:
            return segment.opened - segment.committed < 2 * self.num_workers + 2
        self._reclaim()
        in_flight = segment.opened - self._delivered_units()
        most = self._most_units()
        if in_flight >= most:
            return False
        if self._live < most:
            return True
        # The consumer keeps batches. They are its own; it still gets the next ones, in fresh buffers.
        return bool(self._waiting) and not self._ready and in_flight < most - 1

    def _delivered_units(self) -> int:
        return self.segments[-1].committed - len(self._ready)

    def _reclaim(self) -> None:
        returned = self.slots.returned
        while returned:
            returned.popleft()
            self._live -= 1
            self._version += 1

    def _most_units(self) -> int:
        """Units of the last segment that may exist: finished, in work, or held by the consumer."""
        wanted = max(2 * self.num_workers + 2, self.program.prefetch + 2, 4)
        if self._unit_bytes == 0:
            return 3
        return max(3, min(wanted, self.memory_bytes // self._unit_bytes))

    def _complete(
        self, segment: Segment, task: Task, block: Any, end: int, failure: Failure | None, wall_ns: int, cpu_ns: int
    ) -> bool:
        """Book a finished task; return whether its unit is ready to be finished by this worker."""
        self._version += 1
        unit = task.unit
        assert unit is not None
        if end > task.begin:
            segment.blocks[task.stage].observe(end - task.begin, wall_ns)
            if _pool(segment, task.stage) == "workers":
                self._observe(end - task.begin, wall_ns, cpu_ns)
        unit.cost_ns += wall_ns
        if failure is not None:
            self.failures.append(failure)
            unit.fail(failure)
            segment.fail(unit)
        if block is not None:
            segment.queues[task.stage + 1].append(Task(task.segment, task.stage + 1, unit, task.begin, end, block))
        elif end > task.begin and task.stage == len(segment.plan.stages) - 1:
            unit.done.append((task.begin, end))
        if unit.finishing or not unit.rows_complete():
            return False
        unit.finishing = True
        return True

    def _observe(self, num_rows: int, wall_ns: int, cpu_ns: int) -> None:
        before, limit = self._active.notice, self._active.limit
        self._active.observe(num_rows, wall_ns, cpu_ns)
        if self._active.limit > limit:
            self._bench.ring_all()
        if self._active.notice != before and self.listeners:
            self._announce(Notice(time.perf_counter_ns(), "workers", self._active.notice))

    def _finish(self, segment: Segment, unit: Unit, worker: WorkerContext) -> None:
        """Make the items of a complete unit (no lock), then commit it."""
        if unit.rows is not None:
            segment.guess = unit.rows.spec
        begin_ns = time.perf_counter_ns()
        unit.result, tail = finish_unit(segment.plan, unit, worker)
        unit.cost_ns += time.perf_counter_ns() - begin_ns
        if tail is not None and unit.failure is None:
            row = sum(unit.sizes[: tail.at]) if unit.sizes is not None else tail.at
            tail = prepare(tail, *segment.where(unit, row))
        with self._mutex:
            if tail is not None:
                if unit.failure is None:
                    self.failures.append(tail)
                unit.tail = tail
                segment.fail(unit)
            if segment.plan.batch is not None and unit.num_items:
                num_bytes = segment.guess.row_bytes * unit.num_rows if segment.guess is not None else 0
                segment.units.observe(unit.num_items, unit.cost_ns, num_bytes)
                if segment is self.segments[-1]:
                    self._unit_bytes = max(1, num_bytes)
            elif segment is self.segments[-1]:
                self._unit_bytes = max(1, self._unit_bytes)
            self._close_unit(segment, unit)
            self._pump()

    def _close_unit(self, segment: Segment, unit: Unit) -> None:
        self._version += 1
        unit.given = None
        if unit.tail is None:
            unit.tail = unit.inherited
        segment.finished[unit.seq] = unit

    def _pump(self) -> None:
        """Commit finished units in order, as far as there is room behind them; the last segment first."""
        moved = True
        while moved:
            moved = False
            for segment in reversed(self.segments):
                while not self._ended:
                    unit = segment.next_finished()
                    if unit is None or not self._room_behind(segment):
                        break
                    del segment.finished[unit.seq]
                    segment.committed += 1
                    self._version += 1
                    self._commit(segment, unit)
                    moved = True

    def _room_behind(self, segment: Segment) -> bool:
        if segment is not self.segments[-1]:
            return len(self.segments[segment.number + 1].inbox) < 4
        return len(self._ready) < max(3, self._most_units())

    def _commit(self, segment: Segment, unit: Unit) -> None:
        sequencer = self._sequencers[segment.number]
        last = segment is self.segments[-1]
        if last and not unit.leased:
            self._live -= 1
        if sequencer is None:
            assert last
            items = unit.result.items if unit.result is not None else []
            tokens: Any = unit.tokens if unit.tokens is not None else (Token((unit.pass_number, unit.first)), 1)
            self._deliver(Ready(items[::-1], tokens, unit.ends_pass and unit.tail is None, unit.tail))
            return
        out = sequencer.take(unit)
        if out.cut:
            self._cut(unit.pass_number)
        tail = out.tail
        if out.empty_pass and tail is None:
            tail = Failure(0, _empty_pass(), segment.plan.name, 0)
        if last:
            values = [item.value for item in out.items]
            if values or out.ends_pass or tail is not None:
                self._deliver(Ready(values[::-1], out.tokens, out.ends_pass and tail is None, tail))
            return
        self._pass_on(segment, unit, sequencer, out, tail)

    def _pass_on(self, segment: Segment, unit: Unit, sequencer: Sequencer, out: Any, tail: Failure | None) -> None:
        if not out.items and not out.ends_pass and tail is None:
            return
        following = self.segments[segment.number + 1]
        batched = following.plan.batch is not None
        groups = out.items if batched else [[piece] for piece in out.items]
        given = given_unit(groups, batched, out.tokens, unit.pass_number, 0)
        given.ends_pass = out.ends_pass
        given.pass_token = sequencer.start_of_next_pass(unit)
        if tail is not None:
            given.inherited = tail._replace(at=len(groups))
        following.inbox.append(given)

    def _deliver(self, ready: Ready) -> None:
        if ready.end or ready.error is not None:
            self._ended = True
        self._ready.append(ready)
        self.consumers.ring()

    def _cut(self, pass_number: int) -> None:
        first = self.segments[0]
        first.cut_pass = max(first.cut_pass, pass_number)
        if self.reader is not None:
            self.reader.cut(pass_number)

    # -- reading a generator ------------------------------------------------------------------------------------------------------

    def _next_read(self) -> Task | None:
        reader, first = self.reader, self.segments[0]
        if reader is None or reader.busy or reader.done or first.failed_seq is not None:
            return None
        if len(first.inbox) >= 2 * self.num_workers + 2 or (first is self.segments[-1] and not self._room(first)):
            return None
        reader.busy = True
        return Task(0, 0, None, 0, 0, None, read=reader.block_size())

    def _run_reader(self, task: Task) -> None:
        reader = self.reader
        assert reader is not None
        begin_ns, begin_cpu = time.perf_counter_ns(), time.thread_time_ns()
        unit, failure = reader.read(task.read)
        end_ns = time.perf_counter_ns()
        if failure is not None:
            failure = prepare(failure, reader.describe(failure.at), (unit.pass_number, failure.at))
        with self._mutex:
            self._version += 1
            reader.observe(unit.num_items, end_ns - begin_ns)
            if failure is not None:
                self.failures.append(failure)
                unit.inherited = failure._replace(at=unit.num_items)
            reader.busy = False
            if unit.num_items or unit.ends_pass or failure is not None:
                self.segments[0].inbox.append(unit)
        if self.listeners and unit.num_items:
            self._announce(BlockDone("read", 0, begin_ns, end_ns, time.thread_time_ns() - begin_cpu, unit.num_items))
        self._ring_workers()

    # -- the rest -----------------------------------------------------------------------------------------------------------------

    def _open_rows(self, segment: Segment, unit: Unit) -> None:
        with self._mutex:
            if unit.rows is not None:
                return
            assert unit.sizes is not None and segment.plan.batch is not None
            is_last = segment is self.segments[-1]

            def allocate(leaves: Any) -> Any:
                unit.leased = is_last
                return (self.slots if is_last else self._inner_slots).lease(leaves).arrays(leaves)

            def name(row: int) -> str:
                words, key = segment.where(unit, row)
                return f"epoch {key[0]} index {key[1]}" + (f" ({words})" if words else "")

            unit.rows = Rows(unit.sizes, segment.guess, allocate, name, segment.plan.batch.padding)

    def _ring_workers(self) -> None:
        for lot in self.lots.values():
            lot.ring()

    def _announce(self, event: Any) -> None:
        for listener in self.listeners:
            listener(event)


def _pool(segment: Segment, stage: int) -> str:
    concurrency = segment.plan.stages[stage].concurrency
    return "workers" if concurrency is None else f"{segment.number}.{stage}"


def _pools(program: Program) -> dict[str, int]:
    """Name the worker pools: 0 stands for the shared number of workers."""
    pools = {"workers": 0}
    for number, segment in enumerate(program.segments):
        for stage, plan in enumerate(segment.stages):
            if plan.concurrency is not None:
                pools[f"{number}.{stage}"] = plan.concurrency
    if program.segments[0].stream is not None:
        pools[_READER] = 1
    return pools


def _num_passes(program: Program) -> float:
    """Multiply the repeats that stand behind folds: so many passes of the source may be needed."""
    passes: float = 1
    for segment in program.segments:
        for fold in segment.folds or ():
            if isinstance(fold, Passes):
                passes *= INFINITE if fold.count is None else fold.count
    return passes


def _sequencers(program: Program, start: Token) -> list[Sequencer | None]:
    out: list[Sequencer | None] = []
    saved: Iterator[Any] = iter(start.sequencers)
    below = Token(start.source)
    for segment in program.segments:
        if segment.folds is None:
            out.append(None)
            continue
        record = next(saved, None)
        out.append(Sequencer(segment.folds, below, record))
        if record is not None:
            below = Token(below.source, (*below.sequencers, record))
        else:
            below = Token(below.source, (*below.sequencers, (0, OPEN, tuple(fold.initial() for fold in segment.folds))))
    return out


def _empty_pass() -> SourceError:
    return SourceError(
        "a whole pass of an endless repeat() gave no element",
        where="repeat() above a filter, take or generator",
        fix="check the filter and the source: repeating nothing would never end",
    )


