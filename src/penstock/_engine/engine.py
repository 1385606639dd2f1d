"""The engine: one mutex around the scheduler, parking lots around the mutex. Workers claim, run and complete; the consumer takes."""

from __future__ import annotations

import math
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from penstock._contracts.event import BlockDone, Event, Listener, RowsPacked, noted
from penstock._engine.async_calls import ended, failed_call
from penstock._engine.chunk import Chunk, Claim, Failure, Outcome, Token
from penstock._engine.compute import HERE, Computer
from penstock._engine.error_policy import ErrorHandler, LossAnnouncer, prepare, signal_in, tell_retry
from penstock._engine.folding import finish_chunk
from penstock._engine.program import IN_PROGRAM, SHARED, Program, SegmentPlan
from penstock._engine.scheduler import Ready, Scheduler
from penstock._engine.segment import Segment, pool_of, stages_of
from penstock._engine.slots import SlotPool, anonymous_memory
from penstock._engine.stall_report import Kind, report
from penstock._engine.tuning import TuningCache, awaited_ns
from penstock._engine.turns import Errands, Gate, Turns
from penstock._engine.watchdog import Glances, Watch
from penstock._ops.block import Block
from penstock._ops.draws import Draws
from penstock._ops.map import AwaitedOp, CallResult
from penstock._ops.worker import WorkerContext
from penstock._system.frames import warn
from penstock._system.memory import FeedMemory
from penstock._system.parking import ParkingLot
from penstock._system.process import Breaker
from penstock.kernels import slow_twins

_IN_HAND = 2  # what is being delivered, and what the name in a `for` stands for until then

Mark = tuple[int, int, int, int]


class Engine:
    """Runs a program. Starts no thread: an executor calls `claim` and `run`, in as many threads as it likes.

    Thread-safe. `poll` and `wait` are for consumers, `stop` for anybody. `error_handler` says what policies do about elements that fail;
    `scheduler` has the state of the run, and its figures may be read from any thread.
    """

    def __init__(
        self,
        program: Program,
        *,
        num_workers: int,
        memory_bytes: int,
        start: Token,
        allocate: Callable[[int], Any],
        listeners: list[Listener],
        watch: Watch | None = None,
    ) -> None:
        """Prepare to run from the state `start`; nothing happens yet.

        Args:
            program: made by `lower`.
            num_workers: of the shared pool; 0 for the consumer's own thread, which runs one task after the other.
            memory_bytes: for the batches that are in flight.
            start: the token to resume behind.
            allocate: gives the memory of batches.
            listeners: called with every event, from the thread where it happens.
            watch: looks at the workers while a consumer waits; by default none does.
        """
        self.stopping = False
        self.is_torn = False  # stopped, as an interrupt in the consumer's thread left a change half done
        self.occupied = False  # by a consumer that runs a task itself
        self.breaker = Breaker()
        self.scheduler = Scheduler(program, num_workers, memory_bytes, start)
        self._tuning_cache = TuningCache()
        self._listeners = listeners
        self.watch = watch or Watch(None)
        self._mutex = threading.Lock()
        self._delivered = 0
        self._took: tuple[int, int] | None = None  # when the consumer took how many items
        self.grow: Callable[[], None] | None = None  # of the executor: starts the workers that `pools` has more
        self._consumers = ParkingLot()
        self._waiters = {pool: ParkingLot() for pool in self.scheduler.pools}
        self._idle = [ParkingLot() for _ in range(max(1, num_workers, program.most_workers))]  # for a shared worker that is not to work
        last = self.scheduler.segments[-1]
        self._opener = self._waiters[pool_of(last, 0)]  # where those wait who need a slot
        self._slots = SlotPool(allocate, self._opener.bell)
        self._plain_memory = allocate is anonymous_memory  # other memory is pinned, or shared with the processes of one feed
        self._inner_slots = SlotPool(allocate)
        self._waits = ParkingLot()  # for those who wait before they try an element again
        self._turns = Turns(program)
        self.gate = Gate(lambda: not self.stopping) if program.policies.verify else None
        self._unknown: frozenset[str] = frozenset()
        self.draws = Draws(lambda: self._delivered == 0 or self.occupied or self.scheduler.waiting > 0)
        self._errands = Errands(self._waiters.get(IN_PROGRAM.pool), lambda: not self.stopping)
        pause = partial(self._waits.park, lambda: not self.stopping)
        self.error_handler = ErrorHandler(policies=program.policies, pause=pause, retrying=partial(tell_retry, self.announce))
        self._lost = LossAnnouncer(self.scheduler.lost, self.announce, self.broke)

    def learn(self, tuning_cache: TuningCache) -> None:
        """Begin with what earlier runs of the same dataset found out, and add to it at the end. Before the first task."""
        self._tuning_cache = tuning_cache
        tuning_cache.begin(self.scheduler)
        if self._plain_memory:
            self._slots.adopt(tuning_cache.take_spare())
        active = self.scheduler.active
        if active.notice:
            self.announce(noted(active.subject, active.notice))

    @property
    def awaited(self) -> dict[str, AwaitedOp]:
        """The async function of each pool that has one: its tasks are begun with `begun` and booked with `book_awaited`."""
        return {pool: stage.awaited for pool, stage in stages_of(self.scheduler.segments) if stage.awaited is not None}

    def awaited_by(self, task: Claim) -> AwaitedOp | None:
        """Return the async function that a task is for, or None."""
        return None if task.read else self.scheduler.segments[task.segment].plan.stages[task.stage].awaited

    @property
    def pools(self) -> dict[str, int]:
        """The worker pools by name, each with the number of workers that it should have."""
        return {pool: self.scheduler.size_of(pool) for pool in self.scheduler.pools}

    @property
    def executors(self) -> dict[str, str]:
        """The executor of each pool whose stage names one."""
        stages = stages_of(self.scheduler.segments)
        found = {pool: stage.workers.executor for pool, stage in stages if stage.workers is not None and stage.workers.executor is not None}
        return {**found, IN_PROGRAM.pool: "threads"}

    @property
    def plans(self) -> list[SegmentPlan]:
        """What is run, from the source to the consumer."""
        return [segment.plan for segment in self.scheduler.segments]

    @property
    def concurrency(self) -> dict[str, int]:
        """The `concurrency=` of the stages that have one, by name."""
        return {stage.name: stage.concurrency for _, stage in stages_of(self.scheduler.segments) if stage.concurrency}

    @property
    def in_program(self) -> set[str]:
        """The stages that one thread of the program runs, because they call functions of the user's, by name."""
        names = {stage.name for plan in self.plans for stage in plan.stages if stage.workers == IN_PROGRAM}
        finishing = {plan.finishing for plan in self.plans if plan.finisher}
        return names | finishing | {"read" for plan in self.plans if plan.reader}

    # -- workers ------------------------------------------------------------------------------------------------------------------

    def claim(self, pool: str, worker: int) -> Claim | None:
        """Return the next task for a worker of `pool`; block while there is none; None when the engine stops."""
        scheduler = self.scheduler
        while True:
            if pool == IN_PROGRAM.pool:
                self._errands.run(self._turns)
            with self._mutex:
                before = self._mark()  # before looking: a consumer takes and waits without the mutex, and rings only who is parked
                task = self._next_task(pool, worker)
                seen = before[0], self._slots.num_returned, *before[2:]
            if task is not None or scheduler.version != before[0]:
                # Committing made work, perhaps for another pool, perhaps in a segment that was looked at before.
                self._unpark_workers()
                if task is not None:
                    return task
                continue
            if self.stopping:  # each one that leaves wakes the next: a ring of `stop` may have been silenced with those of slots
                self._unpark_workers()
                return None
            waiters = self._waiters[pool]
            if pool == SHARED and worker >= scheduler.active.limit:
                waiters.ring()  # the ring that woke this worker was for one who may work
                waiters = self._idle[worker]  # its own: in a common one, those who may not work would take the rings of those who may
            waiters.park(partial(self._unchanged, seen, pool))

    def try_claim(self) -> Claim | None:
        """Return the next task of any pool, or None; never block. For the inline executor."""
        scheduler, version = self.scheduler, self.scheduler.version
        try:
            with self._mutex:
                if scheduler.poisoned:  # by an interrupt that reached the consumer: its last state still holds
                    self.is_torn = True
                    self.stop()
                scheduler.waiting += 1  # the consumer itself asks, so it may have one more batch even when it keeps all others
                try:
                    for pool in reversed(scheduler.pools):
                        task = self._next_task(pool, 0)
                        if task is not None:
                            return task
                finally:
                    scheduler.waiting -= 1
        except BaseException:
            if scheduler.version != version or scheduler.is_reading:  # a task may have been claimed, and be lost
                self.is_torn = True
                self.stop()
            raise
        return None

    def run(self, task: Claim, worker: WorkerContext, computer: Computer = HERE) -> None:
        """Run a claimed task, whose messages `computer` computes, and book its outcome."""
        if worker.errand is None:  # this thread makes the calls of the user's functions, or whoever runs them may
            with self._turns.of_task(task.segment, task.stage, reads=bool(task.read), wanted=lambda: not self.stopping) as held:
                if held:
                    self._run(task, worker, computer)
        else:
            self._run(task, worker, computer)

    def errand(self, call: Callable[[], Any]) -> Any:
        """Have the thread of the user's functions make a call, and wait for its result. From another worker.

        Raises:
            Stopped: the engine was stopped meanwhile.
            BaseException: what the call raised.
        """
        return self._errands.do(call)

    def _run(self, task: Claim, worker: WorkerContext, computer: Computer) -> None:
        begin_ns, begin_cpu = time.perf_counter_ns(), time.thread_time_ns()
        worker.began = self.watch.clock.tick(begin_ns), begin_cpu
        if task.read:
            self._read(task, begin_ns, begin_cpu)
            return
        segment, chunk = self.scheduler.segments[task.segment], task.chunk
        worker.cpu_ns, worker.busy_ns = 0, None
        made = [self._compute(segment, chunk, task, worker, computer)]
        _raise_signal(made[0].failure)
        end_ns, cpu_ns = time.perf_counter_ns(), time.thread_time_ns() - begin_cpu + worker.cpu_ns
        if made[0].unknown:
            self._tell_unknown(made[0].unknown)
        stage = segment.plan.stages[task.stage].name or "batch"
        made_of, keys = chunk.made_of, (chunk.key_of(task.begin), chunk.key_of(max(task.begin, made[0].end - 1)))
        chunk_id, count = (task.segment, chunk.seq), task.end - task.begin
        event = BlockDone(stage, worker.index, begin_ns, end_ns, cpu_ns, count, chunk_id, made_of, *keys, made[0].kept_bytes)
        # 64 processes on 2 CPUs wait for each other 40 ms a task: tasks sized by elapsed time would shrink to one row.
        self._book(task, made, end_ns - begin_ns if worker.busy_ns is None else worker.busy_ns, event, worker, computer)
        worker.beside_ns = time.perf_counter_ns() - end_ns

    def _tell_unknown(self, types: frozenset[str]) -> None:
        """Say once which objects cannot be compared."""
        fresh, self._unknown = types - self._unknown, self._unknown | types
        if fresh:
            text = f"verify= leaves out objects that cannot be copied or pickled, and so not be compared: {', '.join(sorted(fresh))}"
            self.announce(noted("verify", text))

    def _compute(self, segment: Segment, chunk: Chunk, task: Claim, worker: WorkerContext, computer: Computer) -> Outcome:
        """Compute the rows of a task, unless they are there already or no longer wanted."""
        if task.begin == task.end:
            return Outcome(task.end)  # all rows are there: only batches are to be made
        last = task.stage == len(segment.plan.stages) - 1
        if last and chunk.rows is None:
            self._open_rows(segment, chunk)
        # Before looking at `finishing`: the worker that finishes the chunk takes its rows and given elements away.
        slot, item = chunk.rows if last else None, task.item
        if chunk.finishing:
            return Outcome(task.begin)  # a row before these failed, and the chunk was finished without them
        return computer.compute(segment.plan, item, slot, worker, self.error_handler)

    def book_awaited(self, task: Claim, block: Block | None, outcomes: Sequence[CallResult], busy_ns: int, worker: WorkerContext) -> None:
        """Book the task of an async stage.

        Args:
            task: what was claimed.
            block: its elements, as `begun` gave them; None when they were no longer wanted.
            outcomes: as `ended` takes them.
            busy_ns: the time of all calls together.
            worker: of this thread.
        """
        op, segment = self.awaited_by(task), self.scheduler.segments[task.segment]
        assert op is not None
        made = [Outcome(task.begin) if block is None else ended(task, block, outcomes, op.name)]
        failed = failed_call(op, outcomes)
        if failed is not None and self.error_handler.cares(failed):
            made = [HERE.compute(segment.plan, task.item, None, worker, self.error_handler)]  # one element after the other fails or not
        failure = made[0].failure
        _raise_signal(failure)
        cost_ns = awaited_ns(busy_ns, task.end - task.begin, op.concurrency, batched=segment.plan.batch is not None)
        self._book(task, made, cost_ns, None, worker, HERE)  # each call was announced when it ended

    def _book(
        self,
        task: Claim,
        made: list[Outcome],
        wall_ns: int,
        event: BlockDone | None,
        worker: WorkerContext,
        computer: Computer,
    ) -> None:
        """Book the outcome in `made`, and take it out: its elements may then be delivered before this thread runs again."""
        segment, chunk = self.scheduler.segments[task.segment], task.chunk
        failure = made[0].failure
        if failure is not None:
            made[0] = made[0]._replace(failure=prepare(failure, *segment.where(chunk, failure.row)))
        worker.rest()
        active = self.scheduler.active
        with self._mutex:
            notice = active.notice
            complete = self.scheduler.complete(segment, task, made.pop(), wall_ns, 0 if event is None else event.cpu_ns, worker.beside_ns)
        if active.notice != notice:
            if self.grow is not None:
                self.grow()
            for waiters in self._idle[: active.limit]:
                waiters.ring()
            self.announce(noted(active.subject, active.notice))
        self.draws.add("kernels", slow_twins())
        for kind, text in self.draws.take():
            self.announce(noted(kind, text))
        if event is not None:
            self.announce(event)
            used, places = worker.take_packed()
            if places:
                self.announce(RowsPacked(event.end_ns, used, places))
        if complete:
            self._finish(segment, chunk, worker, computer)
        self._unpark_workers()

    def announce(self, event: Event) -> None:
        """Tell the listeners what a worker did, or one call of an async stage."""
        for listener in self._listeners:
            listener(event)

    def broke(self, error: BaseException) -> None:
        """Report that a worker itself failed, not a user's function: the consumer gets the error and everything stops."""
        with self._mutex:
            self.scheduler.ended = True
            self.scheduler.ready.append(Ready([], [], False, Failure(0, error, "engine", 0)))
        self._consumers.ring()

    def put_back(self, task: Claim) -> None:
        """Undo a claim whose run was interrupted; when that is not possible any more, stop: the last state still holds."""
        with self._mutex:
            self.is_torn = not self.scheduler.put_back(task)
        if self.is_torn:
            self.stop()

    # -- consumers ----------------------------------------------------------------------------------------------------------------

    def poll(self, keep: Callable[[Ready], Any] = lambda ready: None) -> Ready | None:
        """Take the next finished items if there are any; never block. `keep` is as that of `Scheduler.take`."""
        if self._took is not None:
            self.scheduler.active.steps.append((time.perf_counter_ns() - self._took[0], self._took[1]))
            self._took = None
        if not self.scheduler.ready:
            return None
        while self.scheduler.notices:
            self.announce(noted(*self.scheduler.notices.pop(0)))
        if self._lost.waiting:
            self._lost.tell()  # before it is delivered: who saves a state behind it finds everything written
        if self._lost.broken is not None:  # in the place of what was next, which may be the end
            keep(ready := Ready([], [], False, Failure(0, self._lost.broken, "engine", 0)))
            return ready
        ready = self.scheduler.take(keep)
        self._delivered += 1
        self._unpark_workers()
        if ready.items:
            self._took = time.perf_counter_ns(), len(ready.items)
        return ready

    def wait(self) -> None:
        """Block until there may be something to take; look at the workers from time to time, and report what stalls."""
        self.scheduler.waiting += 1
        self._unpark_workers()
        self.watch.begin(self._delivered)
        try:
            if self.watch.slice_s is None:
                self._consumers.park(self._nothing_ready)
            else:
                self._wait_and_look(self.watch.slice_s)
        finally:
            self.scheduler.waiting -= 1

    def _wait_and_look(self, slice_s: float) -> None:
        glances, due_s = Glances(self.watch.monitors, self.scheduler), time.monotonic() + slice_s
        while not self._consumers.park(self._nothing_ready, glances.pause_s(due_s - time.monotonic())):
            for slow in glances.look():
                self.announce(slow)
            if time.monotonic() < due_s:
                continue
            due_s = time.monotonic() + slice_s
            kind = self.watch.look(self.scheduler.reader.num_read if self.scheduler.reader is not None else 0)
            if kind is not None and self._nothing_ready():
                self._report_stall(kind)
        for slow in glances.end():
            self.announce(slow)

    def _report_stall(self, kind: Kind) -> None:
        """Let an error take the place of the next hand-over, or give a warning and let the wait go on.

        Slow progress is only warned about: a job must not die of a cold disk, or of a resume that reads a generator forward.
        """
        situation = self.watch.situation(kind, self.scheduler)
        if kind == "stuck" and not any(facts.stuck for facts in situation.busy):
            return  # it has gone on meanwhile
        error = report(situation)
        self.announce(noted("stall", error.what))
        if kind == "stuck" and self.watch.on_stall == "skip" and self.watch.give_up(error):
            return
        if kind != "slow" and self.watch.on_stall != "warn":
            self.broke(error)
        else:
            warn(str(error))  # the line of the loop that asked for the next element

    def room(self) -> tuple[int, int]:
        """Return how many hand-overs the consumer keeps beside the two last ones, and how many may exist at once. Without the mutex."""
        return max(0, self.scheduler.kept - self._slots.num_returned - _IN_HAND), self.scheduler.limit

    def memory(self, step: int) -> FeedMemory:
        """Return where the memory is, of a consumer that has taken `step` items; 20 us. Without the mutex, from any thread."""
        scheduler, kept = self.scheduler, self.scheduler.handed_over.kept(step)
        monitors = [(monitor.task, monitor.worker.kept) for monitor in list(self.watch.monitors)]
        held = scheduler.held([(task, made) for task, made in monitors if task is not None])
        held["training loop"] += kept.beside_bytes
        return FeedMemory(
            slots_bytes=self._slots.num_bytes + self._inner_slots.num_bytes,
            held=tuple((stage, num_bytes) for stage, num_bytes in held.items() if num_bytes > 0),
            num_kept=kept.num,
            kept_bytes=kept.num_bytes,
            kept=kept.oldest,
            filled_by=scheduler.filled_by,
            budget_bytes=scheduler.memory_bytes,
        )

    # -- the end ------------------------------------------------------------------------------------------------------------------

    def stop(self) -> None:
        """Let all workers run out. Safe from any thread, in finalisers and signal handlers."""
        self.stopping = True
        self.breaker.break_off()
        for waiters in (*self._waiters.values(), *self._idle, self._consumers, self._waits):
            waiters.ring_all()
        self._turns.wake()
        self._errands.wake()
        if self.gate is not None:
            self.gate.wake()

    def dispose(self) -> None:
        """Drop what is queued and free buffers, after the workers have ended. Batches that are still held stay valid."""
        self._tuning_cache.keep(self.scheduler)
        self.scheduler.ready.clear()
        if not (self.occupied or self.breaker.is_attached or self.scheduler.waiting):  # a function that closes its own feed goes on
            self.scheduler.drop()
            self.watch.monitors.clear()
        free = self._slots.close()
        if self._plain_memory:
            self._tuning_cache.keep_spare(free)
        self._inner_slots.close()
        if self.scheduler.reader is not None:
            self.scheduler.reader.close()

    # -- inside -------------------------------------------------------------------------------------------------------------------

    def _next_task(self, pool: str, worker: int) -> Claim | None:
        if self.stopping:
            return None
        returned = self._slots.take_returned()
        self._opener.silence(returned)
        self._inner_slots.take_returned()
        self.scheduler.reclaim(returned)
        task = self.scheduler.next_task(pool, worker)
        self._unpark_consumer()
        return task

    def _finish(self, segment: Segment, chunk: Chunk, worker: WorkerContext, computer: Computer) -> None:
        """Make the items of a complete chunk without the mutex, then commit it."""
        if chunk.rows is not None:
            segment.expected_spec = chunk.rows.spec
        users = segment.plan.finisher  # otherwise it is no work to speak of, and 0.3 us for each of these clocks is
        begin_ns, begin_cpu = time.perf_counter_ns(), time.thread_time_ns() if users else 0
        chunk.result, tail = finish_chunk(segment.plan, chunk, worker, self.error_handler, computer)
        _raise_signal(tail)
        end_ns = time.perf_counter_ns()
        chunk.cost_ns += end_ns - begin_ns
        if users:
            times, where = (begin_ns, end_ns, time.thread_time_ns() - begin_cpu), ((segment.number, chunk.seq), chunk.made_of)
            self.announce(BlockDone(segment.plan.finishing, worker.index, *times, chunk.num_items, *where))
        worker.rest()  # of what it has just made
        if tail is not None and chunk.failure is None:
            tail = prepare(tail, *segment.where(chunk, chunk.first_row(tail.row)))
        with self._mutex:
            before = self.scheduler.oversize
            self.scheduler.finish(segment, chunk, tail)
            self._unpark_consumer()
        if self.scheduler.oversize > before == 0:
            sizes = f"{self.scheduler.oversize / 1e6:.1f} MB, more than memory_bytes ({self.scheduler.memory_bytes / 1e6:.1f} MB)"
            self.announce(noted("memory", f"a batch takes {sizes}: one is made at a time"))
        self._lost.tell()

    def _read(self, task: Claim, begin_ns: int, begin_cpu: int) -> None:
        reader = self.scheduler.reader
        assert reader is not None
        chunk, failure = reader.read(task.read, task.room)
        end_ns = time.perf_counter_ns()
        _raise_signal(failure)
        if failure is not None:
            failure = prepare(failure, reader.describe(failure.at), (chunk.pass_number, failure.at))
        with self._mutex:
            self.scheduler.book_read(task, chunk, failure, end_ns - begin_ns)
        if self._listeners and chunk.num_items:
            cpu_ns, count, num_bytes = time.thread_time_ns() - begin_cpu, chunk.num_items, chunk.given_bytes
            keys = chunk.key_of(0), chunk.key_of(count - 1)
            self.announce(BlockDone("read", 0, begin_ns, end_ns, cpu_ns, count, chunk.made_of, None, *keys, num_bytes))
        self._unpark_workers()

    def _open_rows(self, segment: Segment, chunk: Chunk) -> None:
        with self._mutex:
            if chunk.rows is not None or chunk.finishing:
                return
            batches, is_last = segment.batches_of(chunk), segment.plan.delivers
            if batches is None:
                return

            def allocate(leaves: Any) -> Any:
                num_bytes = sum(dtype.itemsize * math.prod(shape) for shape, dtype in leaves)
                with self._mutex:
                    if not self.scheduler.may_open(segment, chunk, num_bytes):
                        return None
                lease = (self._slots if is_last else self._inner_slots).lease(leaves)
                lease.first, chunk.lease = chunk.key_of(0), weakref.ref(lease)
                with self._mutex:
                    chunk.kept_bytes += len(lease)
                    self.scheduler.held_bytes += chunk.charge()
                return lease.arrays(leaves)

            names, lock = partial(segment.name_of, chunk), threading.Lock()
            chunk.rows = self.scheduler.program.make_rows(
                batches[0], segment.expected_spec, allocate, names, batches[1], lock, segment.chunk_size.most_bytes
            )

    def _unchanged(self, seen: Mark, pool: str) -> bool:
        return not self.stopping and self._mark() == seen and not (pool == IN_PROGRAM.pool and self._errands.waiting)

    def _nothing_ready(self) -> bool:
        return not self.scheduler.ready and not self.stopping

    def _mark(self) -> Mark:
        return self.scheduler.version, self._slots.num_returned, self._delivered, self.scheduler.waiting

    def _unpark_workers(self) -> None:
        for waiters in self._waiters.values():
            waiters.ring()

    def _unpark_consumer(self) -> None:
        if self.scheduler.ready:
            self._consumers.ring()


def _raise_signal(failure: Failure | None) -> None:
    """Raise what a signal handler raised in the middle of a function: the element did not fail, and is computed again."""
    found = None if failure is None else signal_in(failure.error)
    if found is not None:
        raise found
