"""The state of a run and every decision about it: what is claimed, what fits, what is committed. Pure: no lock, no clock, no waiting.

The engine calls it under its mutex.
"""

from __future__ import annotations

import weakref
from collections import Counter, deque
from collections.abc import Callable, Sequence
from functools import reduce, wraps
from typing import Any, Concatenate, NamedTuple, ParamSpec, TypeVar

from penstock._contracts.element import bytes_of_all
from penstock._contracts.event import Fill
from penstock._engine.chunk import (
    IN_ORDER,
    NO_CHUNK,
    Chunk,
    Claim,
    Failure,
    LossCounts,
    LostElement,
    Outcome,
    Token,
    merged,
)
from penstock._engine.committing import CompletionOrder, ReadCount, chunks_of, empty_pass, left_out_of
from penstock._engine.error_policy import LossLedger
from penstock._engine.folding import FoldRunner, Sequenced, bytes_in, fold_runners_of, records_of
from penstock._engine.program import IN_PROGRAM, SHARED, Program
from penstock._engine.segment import READER, Segment, finisher_of, last_with, pool_of, pools_of, result_bytes
from penstock._engine.slots import HandedOver, Lease, bytes_beside
from penstock._engine.stream_reader import Reader
from penstock._engine.tuning import ActiveWorkers, followed, go_on
from penstock._ops.block import UNLIMITED

P = ParamSpec("P")
R = TypeVar("R")


def poison_on_interrupt(change: Callable[Concatenate[Scheduler, P], R]) -> Callable[Concatenate[Scheduler, P], R]:
    """Let a method that changes the run, called under its mutex, end the run for everybody when it does not come to its own end.

    The scheduler is `poisoned` during a change, and for ever after one that did not end.

    An exception may come from outside between any two instructions: Ctrl-C in the main thread, MemoryError, one that a debugger or a
    library raises in a worker. Without this, a worker that comes before the error is booked would go on with half a change, and might
    reach the end of the data with elements missing.
    """

    @wraps(change)
    def changed(self: Scheduler, /, *arguments: P.args, **options: P.kwargs) -> Any:
        before = self.poisoned
        if before:
            self.ended = True
        self.poisoned = True
        out = change(self, *arguments, **options)
        self.poisoned = before
        return out

    return changed


_FEWEST_CHUNKS = 3  # one that is trained on, one that is ready, one in work
_INBOX = 4
_WINDOW_CHUNKS = 1 << 16  # a set has so many numbers; runs in a saved state are far fewer: those between chunks in work
_WINDOW_ROWS = 1024  # elements that may be finished behind a slow one, if the byte budget allows it
_CHUNKS_OF_ELEMENTS = 8  # so many chunks of single elements are to fit the byte budget
_MANY_KEPT = 4  # batches that a loop keeps for no reason of its own: the next one may be on its way to the device
_MOST_HELD = 0.75  # of the byte budget, where more workers are tried
_LEAST_ROOM = 1 << 18  # of a task that has to run although the budget is spent, if that is little of it: a task costs 0.17 ms


class Ready(NamedTuple):
    """What the consumer takes: items in reverse order, with the token after each; or the end; or an error."""

    items: list[Any]
    tokens: Sequence[Token]
    """The place behind each item, in the order of delivery."""
    end: bool
    error: Failure | None
    num_bytes: int = 0
    chunk_id: tuple[int, int] | None = None
    """What events call the chunk: (segment, seq), of the last segment in which something was done to it."""
    lease: weakref.ref[Lease] | None = None
    """Of the buffer that the items lie in."""


NOTHING_READY = Ready([], (), end=False, error=None)


class Scheduler:
    """Chunks on their way through the segments of a program.

    Attributes:
        version: changes with every change that may give a worker something to do.
        ready: what the consumer has not taken yet; it may pop at any time.
        memory_bytes: for the batches that are in flight.
        waiting: how many consumers wait (the engine's counter).
        failures: all errors so far.
        lost: what was skipped and replaced, and not announced yet.
        held_bytes: of all chunks, of what folds hold, of what is ready and of what was taken last; with what running tasks were granted.
        oversize: the bytes of the largest batch above the budget, or 0.
        handed_over: what was delivered and may still be referred to.
        num_ahead: how many batches the feed takes before its consumer does.
        notices: kind and text of what is to be announced: that the consumer keeps many batches, that a round of ranks was padded.
    """

    def __init__(
        self,
        program: Program,
        num_workers: int,
        memory_bytes: int,
        start: Token,
    ) -> None:
        """Begin at the state `start` of the program's epoch."""
        self.program = program
        self.num_workers = max(1, num_workers)
        self.version = 0
        self.ready: deque[Ready] = deque()
        self.waiting = 0
        self.ended = self.poisoned = False
        self.failures: list[Failure] = []
        self.active = ActiveWorkers(self.num_workers, program.most_workers)
        self.memory_bytes = memory_bytes
        self._num_beside = sum(stage.concurrency or 0 for segment in program.segments for stage in segment.stages)
        self._make_wide(self.num_workers)
        self.segments = [Segment(program, number, start, at_once=not num_workers) for number in range(len(program.segments))]
        self.pools = pools_of(self.segments)
        for segment in self.segments:
            segment.chunk_size.bound(memory_bytes // self._wanted_chunks())
        self._completion: CompletionOrder | None = None
        done = start.done._replace(until=None)
        known = done.runs and any(hasattr(fold, "held") for fold in program.segments[0].folds)  # to its fold runner
        if program.segments[0].unordered or done._replace(runs=() if known else done.runs) != IN_ORDER:
            self._completion = CompletionOrder(start)
            start = self._completion.start
        self.lost: deque[LostElement] = deque()
        self._ledgers = [LossLedger(() if segment.number else start.loss_counts, self.lost) for segment in self.segments]
        self._read = ReadCount(start)
        self._left_out = left_out_of(program)
        self._fold_runners = fold_runners_of(program, start, self._ledgers)
        for segment, record in zip(self.segments, records_of(program, start), strict=True):
            segment.read_again(record)
        self._told_short = any(entry.action == "skipped" for entry in start.loss_counts)  # by an epoch before
        stream = program.segments[0].stream
        self.reader = None if stream is None else Reader(stream, start, program.end_pass)
        self._reads = program.segments[0].reader or READER
        # The pool whose rows are claimed in the order of their positions.
        self._in_order = "" if program.segments[0].unordered else IN_PROGRAM.pool
        self._last_of_users = last_with(self.segments, IN_PROGRAM.pool)
        self._live = 0
        self._chunk_bytes = 0
        self.held_bytes = 0
        self.oversize = 0
        self.handed_over = HandedOver()
        self.num_ahead = 0
        self.notices: list[tuple[str, str]] = []
        self._kept_notice_at = memory_bytes // 4
        self._taken: deque[int] = deque()
        self._booked = True  # the task that was claimed last: of interest where one runs at a time
        self._source_pass = start.source[0]  # that the first segment's folds take

    @property
    def shape(self) -> Any:
        """What another run must have in common with it to begin with what this one has found out."""
        bounds = ((one.plan.name, *(block.bounds for block in one.blocks)) for one in self.segments)
        return self.num_workers, self.active.ceiling, self.memory_bytes, *bounds

    @property
    def found(self) -> Any:
        """The sizes of its tasks and chunks, the specs of its batches, and the number of active workers."""
        return [((*one.blocks, one.chunk_size), one.expected_spec) for one in self.segments], self.active

    def begin(self, found: Any) -> None:
        """Begin with what an earlier run has found out."""
        known, active = found
        for segment, (sizes, spec) in zip(self.segments, known, strict=True):
            segment.expected_spec = spec
            for mine, other in zip((*segment.blocks, segment.chunk_size), sizes, strict=True):
                go_on(mine, other)
        self.active.begin(active)
        self._make_wide(max(self.num_workers, self.active.limit))

    @property
    def loss_counts(self) -> LossCounts:
        """What was skipped and replaced up to now, in this run and before."""
        return reduce(merged, (ledger.loss_counts for ledger in self._ledgers), ())

    def drop(self) -> None:
        """Let go of all that is on its way, after the end: cycles keep an engine itself alive until a garbage collection."""
        for segment in self.segments:
            segment.drop()
        self.segments, self._fold_runners, self.failures = [], [], []

    def size_of(self, pool: str) -> int:
        """Return how many workers a pool should have."""
        return self.pools[pool] or self._num_wide

    def _num_working(self, pool: str) -> int:
        return self.size_of(pool) if pool != SHARED else self.active.limit

    def _make_wide(self, num_workers: int) -> None:
        """Have work for so many shared workers."""
        self._num_wide = num_workers
        self._share = self.memory_bytes // (4 * (num_workers + self._num_beside + 1))  # of one task; most is left to what is finished

    @poison_on_interrupt
    def next_task(self, pool: str, worker: int) -> Claim | None:
        """Claim the next task for worker number `worker` of `pool`, or return None."""
        if self.ended:
            return None
        self._booked = False
        while len(self._taken) > 1:  # the last one is in the consumer's hands
            self.held_bytes -= self._taken.popleft()
        if pool == READER:
            return self._next_read()
        if pool == SHARED and worker >= self.active.limit:
            return None
        self._pump()
        for segment in reversed(self.segments):
            task = self._segment_task(segment, pool)
            if task is not None:
                self.version += 1
                return task
        return self._next_read() if pool == self._reads and self._may_read() else None

    @property
    def is_reading(self) -> bool:
        """Whether a read of the stream is claimed."""
        return self.reader is not None and self.reader.busy

    def _may_read(self) -> bool:
        """Tell whether the thread that reads the stream has nothing else to do with what it has read: it may wait long for the next."""
        behind = self.segments[: self._last_of_users + 1]
        return all(one.is_empty and (one is behind[-1] or not one.finished) for one in behind) or behind[0].reads_in_another_order

    def _segment_task(self, segment: Segment, pool: str) -> Claim | None:
        task = self._later_task(segment, pool)
        if task is not None or pool_of(segment, 0) != pool:
            return task
        blocked = self._blocked_by_next_stage(segment)
        while not blocked and not segment.has_rows() and segment.can_open() and self._room(segment) and self._has_bytes(segment):
            if self._open(segment):
                self._pump()
        return self._next_rows(segment, self._num_working(pool), blocked=blocked)

    def _later_task(self, segment: Segment, pool: str) -> Claim | None:
        """Claim what brings a chunk on that is begun: a batch to be made, or a block of a later stage."""
        if segment.unfinished and finisher_of(segment) == pool:
            task = segment.first_unfinished(in_order=pool == self._in_order)
            if task is not None and self._may_finish(segment, task.chunk):
                segment.unfinished.remove(task)
                return task
        for stage in range(len(segment.plan.stages) - 1, 0, -1):
            block = self._next_block(segment, stage) if pool_of(segment, stage) == pool else None
            if block is not None:
                return block
        return None

    def _next_rows(self, segment: Segment, num_workers: int, *, blocked: bool) -> Claim | None:
        """Claim rows of a chunk for the first stage, as many as there is room for."""
        for chunk in segment.unclaimed():
            room = self._grant(segment, chunk.seq, max(segment.row_bytes))
            if room is not None and (not blocked or self._is_due(segment, chunk.seq)):
                task = segment.next_rows(num_workers, chunk, self._most_rows(segment, room), room)
                self.held_bytes += chunk.grant(room)
                return task
        return None

    def _most_rows(self, segment: Segment, room: int) -> int:
        """Return how many rows a task may have to need half of its room; the other stages take them as they are."""
        row_bytes = max(segment.row_bytes)
        return max(1, int(room / (2 * row_bytes))) if row_bytes >= 1 else UNLIMITED

    def _next_block(self, segment: Segment, stage: int) -> Claim | None:
        """Claim the next block of a later stage."""
        task = segment.first_block(stage, in_order=self._in_order == pool_of(segment, stage))
        if task is None:
            return None
        room = self._grant(segment, task.chunk.seq, segment.row_bytes[stage] * (task.end - task.begin))
        if room is None:
            return None
        segment.queues[stage].remove(task)
        task.chunk.begun[stage] = task.end
        self.held_bytes += task.chunk.grant(room)
        return task._replace(room=room)

    def _grant(self, segment: Segment, seq: int, num_bytes: float) -> int | None:
        """Return how many bytes a task of chunk number `seq` may hold that may need `num_bytes`; None when it has to wait.

        Where there is no room the chunk that the consumer needs next goes on all the same, little by little.
        """
        room = self.memory_bytes - self.held_bytes
        if room > num_bytes:
            return min(room, max(self._share, int(num_bytes)))
        if self._is_due(segment, seq):
            return max(min(room, self._share), min(self._share // 2, _LEAST_ROOM))
        return None

    def _is_due(self, segment: Segment, seq: int) -> bool:
        """Tell whether nothing can be delivered before a chunk is finished."""
        if self.ready or (seq != segment.lowest and not segment.reads_in_another_order):
            return False
        return not any(later.chunks or later.inbox for later in self.segments[segment.number + 1 :])

    def _has_bytes(self, segment: Segment) -> bool:
        """Tell whether there is memory for the next chunk, or it must be opened anyway."""
        if segment.inbox and segment.inbox[0].result is not None:
            return True  # its memory is in use already
        return self.held_bytes + segment.next_bytes() < self.memory_bytes or self._is_due(segment, segment.opened)

    def _may_finish(self, segment: Segment, chunk: Chunk) -> bool:
        """Tell whether the batch of a complete chunk may be made now; count what it will take."""
        rows = chunk.rows
        if rows is None or not rows.beside:
            return True
        expected = max(chunk.expected_bytes, chunk.kept_bytes + rows.batch_bytes)
        more = expected - max(chunk.expected_bytes, chunk.kept_bytes)
        if not self._may_hold(segment, chunk, more):
            return False
        chunk.expected_bytes = expected
        self.held_bytes += chunk.charge()
        return True

    def take(self, keep: Callable[[Ready], Any] = lambda ready: None) -> Ready:
        """Take what is ready; IndexError when nothing is. By the consumer, without the mutex.

        `keep` puts it where the consumer finds it, before it is taken out here. So a signal handler that raises between two instructions
        finds it in one place or in both. Then `keep` gets it once more.
        """
        ready = self.ready[0]
        keep(ready)
        self.ready.popleft()
        self._taken.append(ready.num_bytes)
        batches = self.program.segments[-1].batch is not None
        step = self.handed_over.step
        if self.handed_over.add(ready.items, ready.num_bytes, ready.lease, batches=batches):
            self._look_at_kept(step - self.num_ahead)
        return ready

    def _look_at_kept(self, step: int) -> None:
        kept = self.handed_over.kept(step)
        if kept.num >= _MANY_KEPT and kept.num_bytes >= self._kept_notice_at:
            self._kept_notice_at = 2 * kept.num_bytes
            text = (
                f"the training loop keeps {kept.num} batches beside the last one, {kept.num_bytes / 1e6:,.0f} MB; the oldest is "
                f"{kept.oldest}: drop batches that are done with, and copy what must be kept of them"
            )
            self.notices.append(("kept", text))

    def _open(self, segment: Segment) -> bool:
        """Open the next chunk; if nothing is to be done in it, close it again and return True."""
        expected = segment.next_bytes()
        chunk = segment.open(self._most_rows(segment, max(0, min(self._share, self.memory_bytes - self.held_bytes))))
        if segment.inbox:
            self.held_bytes += segment.inbox[0].charge()
            self.held_bytes += chunk.charge()
        if segment is self.segments[-1]:
            self._live += 1
        if not chunk.num_rows or chunk.result is not None:
            self._close_chunk(segment, chunk)
            return True
        chunk.expected_bytes = expected
        self.held_bytes += chunk.charge()
        return False

    def _blocked_by_next_stage(self, segment: Segment) -> bool:
        """Back-pressure between the stages of a segment: a bounded number of blocks waits for the second one."""
        queues = segment.queues
        return any(len(queue) > self._most_waiting(segment, stage) for stage, queue in enumerate(queues) if stage)

    def _most_waiting(self, segment: Segment, stage: int) -> int:
        """Return how many blocks may wait for a stage; where it takes them in order, those of all who may be before the next one."""
        pool = pool_of(segment, stage)
        return 2 * max(self.size_of(pool), self._num_wide if pool == self._in_order else 0) + 2

    def _room(self, segment: Segment) -> bool:
        """Tell whether the engine may hold one more chunk of this segment."""
        if segment.plan.unordered and segment.opened - segment.lowest >= _WINDOW_CHUNKS:
            return False
        if segment.reads_in_another_order:
            return True
        last = self.segments[-1]
        if segment is not last:
            return self._room_within(segment)
        in_flight = len(last.chunks) + len(self.ready)
        most = self.limit
        if in_flight >= most:
            return False
        if self._live < most:
            return True
        # The consumer keeps batches. They are its own; it still gets the next ones, in fresh buffers.
        return bool(self.waiting) and not self.ready and in_flight < most - 1

    def _room_within(self, segment: Segment) -> bool:
        """Bound the chunks of an inner segment, and how far they may run ahead of a slow one."""
        few = len(segment.chunks) < max(2 * self._num_wide + 2, segment.wanted_chunks())
        return few or segment.rows_open < min(_WINDOW_ROWS, segment.known_rows)

    def fills(self) -> list[Fill]:
        """Return how full its buffers are, in hand-overs and in blocks. Without the mutex."""
        out = [Fill("ready", len(self.ready), self._wanted_chunks())]
        for segment in self.segments:
            for number, stage in enumerate(segment.plan.stages):
                if number:
                    capacity = self._most_waiting(segment, number) + 1
                    out.append(Fill(f"before_{stage.name or number}", len(segment.queues[number]), capacity))
        return out

    def held(self, running: Sequence[tuple[Claim, int]]) -> Counter[str]:
        """Return the bytes of elements outside of batch buffers, by the stage that made them. Without the mutex, so about.

        Args:
            running: the tasks in work, with the bytes that each has made so far.
        """
        held: Counter[str] = Counter()
        maker = "read"
        for segment in self.segments:
            names, before = [stage.name or "batch" for stage in segment.plan.stages], maker
            maker = names[-1]
            for chunk in (*list(segment.inbox), *list(segment.chunks)):
                held[before] += chunk.given_bytes
                held[maker] += bytes_beside(chunk.lease, chunk.kept_bytes)
            held[maker] += segment.folded_bytes
            here = [(task, made) for task, made in running if task.segment == segment.number and not task.read]
            for task, made in here:
                held[names[task.stage]] += made
            for task in (*(task for queue in segment.queues for task in list(queue)), *(task for task, _ in here)):
                if task.stage:
                    held[names[task.stage - 1]] += task.num_bytes
                    held[maker] -= task.num_bytes
        for ready in list(self.ready):
            held[maker] += bytes_beside(ready.lease, ready.num_bytes)
        return held

    @property
    def filled_by(self) -> str:
        """The stage that writes into the buffers that are delivered; "" behind the end."""
        plan = self.segments[-1].plan if self.segments else None
        return "" if plan is None else plan.stages[-1].name or "batch"

    @property
    def kept(self) -> int:
        """How many batches the consumer keeps: delivered, with buffers that did not come back."""
        return max(0, self._live - len(self.segments[-1].chunks) - len(self.ready))

    def reclaim(self, num_slots: int) -> None:
        """Book buffers that came back."""
        if num_slots:
            self._live -= num_slots
            self.version += 1

    @property
    def limit(self) -> int:
        """How many chunks of the last segment may exist: finished, in work, or held by the consumer."""
        rounds = 4 if self._chunk_bytes else 1
        in_flight = [one.wanted_chunks(rounds) for one in self.segments if one.plan.delivers and one.max_stage_concurrency]
        if self._chunk_bytes == 0:
            return max([_FEWEST_CHUNKS, *in_flight])  # of unknown size, but what is in flight was asked for
        wanted = max([self._wanted_chunks(), *in_flight])
        return max(_FEWEST_CHUNKS, min(wanted, self.memory_bytes // self._chunk_bytes))

    def _wanted_chunks(self) -> int:
        return max(2 * self._num_wide + 2, self.program.prefetch + 2, 4)

    @poison_on_interrupt
    def complete(self, segment: Segment, task: Claim, outcome: Outcome, wall_ns: int, cpu_ns: int, beside_ns: int = 0) -> bool:
        """Book a finished task; return whether its chunk is ready to be finished by this worker.

        Args:
            segment: of the task.
            task: as it was claimed.
            outcome: what became of it.
            wall_ns: how long it took.
            cpu_ns: of that on a CPU.
            beside_ns: how long the worker took for the booking of the task before.
        """
        self.version += 1
        self._booked, chunk = True, task.chunk
        if not chunk.finishing:
            chunk.take(outcome)
        if task.room < UNLIMITED:
            chunk.granted_bytes -= task.room
        chunk.kept_bytes += outcome.kept_bytes - task.num_bytes
        chunk.cost_ns += wall_ns
        if outcome.end > task.begin:
            self._learn(segment, task, outcome, wall_ns, cpu_ns, beside_ns)
        if outcome.failure is not None:
            self.failures.append(outcome.failure)
            chunk.fail(outcome.failure)
            segment.fail(chunk)
        if outcome.failure is None and outcome.end < task.end and not chunk.finishing:
            self._take_rest(segment, task, outcome)  # before its rows go on: it may give the last of them to another chunk
        segment.pass_on(task, outcome)
        self.held_bytes += chunk.charge()
        if chunk.finishing or not chunk.rows_complete():
            return False
        here = task.begin == task.end or finisher_of(segment) == pool_of(segment, task.stage)
        if not (here and self._may_finish(segment, chunk)):
            segment.unfinished.append(Claim(segment.number, len(segment.plan.stages) - 1, chunk, chunk.num_rows, chunk.num_rows, None))
            return False
        chunk.finishing = True
        return True

    def _learn(self, segment: Segment, task: Claim, outcome: Outcome, wall_ns: int, cpu_ns: int, beside_ns: int) -> None:
        """Learn what rows of a stage cost."""
        count, stage = outcome.end - task.begin, task.stage
        segment.row_bytes[stage] = followed(segment.row_bytes[stage], outcome.most_bytes / count)
        pool, self.active.has_room = pool_of(segment, stage), self.held_bytes < _MOST_HELD * self.memory_bytes
        num_workers = self._num_working(pool)
        segment.blocks[stage].observe(count, wall_ns, num_workers)
        self.active.num_rows[pool] += count
        if segment.blocks[stage].growing or segment.chunk_size.growing:
            return
        self.active.observe(pool, num_workers, count, (wall_ns + beside_ns, cpu_ns))
        self._make_wide(max(self.num_workers, self.active.limit))

    def _take_rest(self, segment: Segment, task: Claim, outcome: Outcome) -> None:
        """Let the rows of a task wait that there was no room for."""
        chunk, queue = task.chunk, segment.queues[task.stage]
        tail = segment.give_back(task, outcome.end)
        if tail is not None:
            self._live += segment is self.segments[-1]
            chunk.kept_bytes = min(chunk.kept_bytes, outcome.kept_bytes)
            tail.kept_bytes = sum(one.num_bytes for one in queue if one.chunk is tail)
            self.held_bytes += tail.charge()
        elif task.block is not None:
            chunk.kept_bytes += queue[-1].num_bytes

    def may_open(self, segment: Segment, chunk: Chunk, num_bytes: int) -> bool:
        """Tell whether a chunk may have a buffer for all its rows now."""
        more = num_bytes - max(0, chunk.expected_bytes - chunk.kept_bytes)
        return self._may_hold(segment, chunk, more)

    def _may_hold(self, segment: Segment, chunk: Chunk, more: int) -> bool:
        return more <= 0 or self.held_bytes + more <= self.memory_bytes or self._is_due(segment, chunk.seq)

    @poison_on_interrupt
    def finish(self, segment: Segment, chunk: Chunk, tail: Failure | None) -> None:
        """Book a chunk whose items are made, up to the failure `tail`, and commit what can be committed."""
        if tail is not None:
            if chunk.failure is None:
                self.failures.append(tail)
            chunk.tail = tail
            segment.fail(chunk)
        batches = segment.plan.batch is not None and chunk.num_items > 0
        num_bytes = self._learn_batches(segment, chunk) if batches else self._learn_elements(segment, chunk)
        chunk.kept_bytes, chunk.given_bytes, chunk.expected_bytes = num_bytes, 0, 0
        self._close_chunk(segment, chunk)
        self.held_bytes += chunk.charge()
        self._pump()

    def _learn_batches(self, segment: Segment, chunk: Chunk) -> int:
        """Learn what batches take; return the bytes of those of a chunk."""
        num_bytes, num_items = result_bytes(segment, chunk), chunk.num_items
        segment.chunk_size.observe(num_items, chunk.cost_ns, num_bytes, segment.blocks[0].num_workers)
        segment.item_bytes = followed(segment.item_bytes, num_bytes / chunk.num_rows)
        if segment is self.segments[-1]:
            self._chunk_bytes = max(1, num_bytes)
        if num_bytes > max(self.oversize, self.memory_bytes) and num_items == 1:
            self.oversize = num_bytes
        return num_bytes

    def _learn_elements(self, segment: Segment, chunk: Chunk) -> int:
        """Learn what single elements take; return the bytes of those of a chunk."""
        num_bytes = chunk.kept_bytes or chunk.given_bytes
        if chunk.result is not None and chunk.result.items:
            count = len(chunk.result.items)
            segment.most_rows = max(1, self.memory_bytes * count // (_CHUNKS_OF_ELEMENTS * max(1, num_bytes)))
            if segment is self.segments[-1]:
                self._chunk_bytes = max(1, num_bytes)
        return num_bytes

    def _close_chunk(self, segment: Segment, chunk: Chunk) -> None:
        self.version += 1
        if chunk.failure is None:  # else a worker may still come with another failed row, and its key is asked for
            chunk.given = None
        segment.finished[chunk] = None

    def _pump(self) -> None:
        """Commit finished chunks in order, as far as there is room behind them; the last segment first."""
        moved = True
        while moved:
            moved = False
            for segment in reversed(self.segments):
                while not self.ended:
                    chunk = segment.next_finished()
                    if chunk is None or not self._room_behind(segment):
                        break
                    segment.commit(chunk)
                    self.version += 1
                    self._commit(segment, chunk)
                    chunk.lost.clear()  # their errors lead to frames that hold the chunk: neither would end before a collection
                    moved = True

    def _room_behind(self, segment: Segment) -> bool:
        if segment is not self.segments[-1]:
            return len(self.segments[segment.number + 1].inbox) < _INBOX
        return len(self.ready) < max(_FEWEST_CHUNKS, self.limit)

    def _commit(self, segment: Segment, chunk: Chunk) -> None:
        if self._completion is not None and not segment.number:
            self._completion.put(chunk)
        self._count(segment, chunk)
        if segment is self.segments[-1] and chunk.lease is None:
            self._live -= 1
        if segment.plan.batch is not None and chunk.lost and not self._told_short and chunk.left_out_rows():
            self._told_short = True
            text = "Skip left an element out of its batch, which is that much shorter, also with drop_remainder=True"
            self.notices.append(("policy", f"{text}; Replace() keeps batches at their size, with another element"))
        self._fold(segment, chunk, self._fold_runners[segment.number])

    def _count(self, segment: Segment, chunk: Chunk) -> None:
        """Count what a chunk brings; fail it where that cannot be right."""
        error, left_out = None, self._left_out[segment.number]
        if segment.number:
            segment.ends_coming -= chunk.ends_pass
        elif segment.plan.leaf is not None:
            error = self._read.add(chunk, segment.plan, cut=segment.cut_pass >= chunk.pass_number)
        if left_out is not None:
            error = error or left_out.add(chunk)
        if error is not None and chunk.tail is None:
            chunk.tail = Failure(chunk.num_items, error, segment.plan.name, 0)
            self.failures.append(chunk.tail)

    def _fold(self, segment: Segment, chunk: Chunk, fold_runner: FoldRunner) -> None:
        """Let a chunk through the folds of its segment, and on."""
        last = segment is self.segments[-1]
        num_bytes, chunk.charged_bytes = chunk.charged_bytes, 0
        out = fold_runner.take(chunk)
        if out.notices:
            self.notices += [("shard", text) for text in out.notices]
        end_later = out.tail is not None and chunk.ends_pass and self.program.may_cut
        if not segment.number:
            self._source_pass = chunk.pass_number + (chunk.ends_pass and not end_later)
        segment.folded_bytes += num_bytes
        if out.cut:
            self._cut(segment.number)
        tail = out.tail
        if tail is not None and tail is not chunk.tail:
            self.failures.append(tail)
            segment.fail(chunk)
        elif tail is None and out.empty_pass:
            tail = Failure(0, empty_pass(), segment.plan.name, 0)
        if last:
            self._deliver_folded(segment, chunk, out, tail, num_bytes)
        else:
            self._pass_on(segment, chunk, fold_runner, out, tail)
        if segment.folded_bytes:
            self._weigh_folds(segment, fold_runner, chunk.num_items)
        if end_later and not self.ended:
            self._fold(segment, chunk.end_alone(), fold_runner)

    def _weigh_folds(self, segment: Segment, fold_runner: FoldRunner, num_items: int) -> None:
        """See now and then what the folds hold: not all that enters them comes out again."""
        segment.num_folded += num_items
        often = self.held_bytes > self.memory_bytes
        if segment.folded_bytes > 0 and segment.num_folded * (8 if often else 1) < segment.num_held:
            return
        waiting = fold_runner.waiting()
        held = bytes_in(waiting)
        self.held_bytes += held - segment.folded_bytes
        segment.folded_bytes, segment.num_folded, segment.num_held = held, 0, 4 * len(waiting)

    def _deliver_folded(self, segment: Segment, chunk: Chunk, out: Sequenced, tail: Failure | None, num_bytes: int) -> None:
        if not out.items and not out.ends_pass and tail is None:
            return
        values = out.items if out.unchanged else [item.value for item in out.items]
        passed = bytes_of_all(values) if segment.plan.folds and not out.unchanged else num_bytes
        segment.folded_bytes -= passed
        ends, chunk_id = out.ends_pass and tail is None, (segment.number, chunk.seq) if chunk.claimed else chunk.made_of
        lease = chunk.lease if out.unchanged else None
        self.ended |= ends or tail is not None
        self.active.num_items += len(values)
        self.ready.append(Ready(values[::-1], out.tokens, ends, tail, passed, chunk_id, lease))

    def _pass_on(self, segment: Segment, chunk: Chunk, fold_runner: FoldRunner, out: Sequenced, tail: Failure | None) -> None:
        if not out.items and not out.ends_pass and tail is None:
            return
        following = self.segments[segment.number + 1]
        num_bytes = chunk.kept_bytes
        chunks = chunks_of(chunk, out, batched=following.plan.batch is not None, one_batch_per_chunk=following.one_batch_per_chunk)
        for one in chunks:
            if one.given is not None:
                one.given_bytes = num_bytes if out.unchanged and len(chunks) == 1 else bytes_of_all(one.given.rows())
            segment.folded_bytes -= one.num_bytes
            self.held_bytes -= one.num_bytes  # it is counted again as what it is now
            self.held_bytes += one.charge()
            one.made_of = segment.number, chunk.seq
        last = chunks[-1]
        last.ends_pass = out.ends_pass
        following.ends_coming += out.ends_pass
        last.pass_token = fold_runner.start_of_next_pass(chunk) if out.ends_pass else None
        if tail is not None:
            last.tail = tail._replace(at=last.num_items)
        following.inbox.extend(chunks)
        while following.can_open() and following.inbox[0].result is not None:
            self._open(following)  # the next claim need not do it

    def _cut(self, number: int) -> None:
        """Ask below segment `number` for the end of the pass that comes to its folds, unless that is on its way already."""
        while number and self.program.may_cut:
            if self.segments[number].ends_coming:
                return
            number -= 1
            self._fold_runners[number].drop_pass()
        first = self.segments[0]
        first.cut_pass = max(first.cut_pass, self._source_pass)
        if self.reader is not None:
            self.reader.cut(self._source_pass)

    def _next_read(self) -> Claim | None:
        reader, first = self.reader, self.segments[0]
        if reader is None or reader.busy or reader.done or first.failed_seq is not None:
            return None
        if len(first.inbox) >= 2 * self._num_wide + 2 or (first is self.segments[-1] and not self._room(first)):
            return None
        room = self._grant(first, first.opened + len(first.inbox), reader.row_bytes)
        if room is None:
            return None
        most_rows = max(1, int(room / reader.row_bytes)) if reader.row_bytes >= 1 else first.most_rows
        reader.busy, place = True, reader.num_read
        self.held_bytes += room
        return Claim(0, 0, NO_CHUNK, place, place, None, read=min(reader.blocks.size, first.most_rows, most_rows), room=room)

    @poison_on_interrupt
    def book_read(self, task: Claim, chunk: Chunk, failure: Failure | None, wall_ns: int) -> None:
        """Book what the reader read."""
        reader = self.reader
        assert reader is not None
        self._booked = True
        self.version += 1
        reader.num_blocks += 1
        if chunk.num_items:
            reader.blocks.observe(chunk.num_items, wall_ns)
        chunk.made_of = -1, reader.num_blocks
        if failure is not None:
            self.failures.append(failure)
            chunk.tail = failure._replace(at=chunk.num_items)
        reader.busy = False
        self.held_bytes += chunk.charge() - task.room
        if chunk.num_items or chunk.ends_pass or failure is not None:
            self.segments[0].inbox.append(chunk)

    def put_back(self, task: Claim) -> bool:
        """Undo a claim whose run was interrupted; return False when it cannot be undone: it was booked, or what was read is gone."""
        reader = self.reader
        if self.poisoned or self._booked:
            return False
        if task.read:
            if reader is None or reader.done or reader.num_read != task.begin:
                return False
            reader.busy = False
            self.held_bytes -= task.room
            return True
        self.segments[task.segment].put_back(task)
        if task.room < UNLIMITED:
            self.held_bytes += task.chunk.grant(-task.room)
        return True
