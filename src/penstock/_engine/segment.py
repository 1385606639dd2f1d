"""One segment's decisions: which chunk opens, which rows are claimed, which chunks are committed. Pure; the engine's mutex guards it."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from penstock._contracts.element import bytes_of_all, flatten
from penstock._engine.chunk import (
    Chunk,
    Claim,
    Counted,
    FoldState,
    KnownLoss,
    Outcome,
    PositionsPerOp,
    Replayed,
    Token,
)
from penstock._engine.program import IN_PROGRAM, SHARED, Program, SegmentPlan, StagePlan
from penstock._engine.tuning import ELSEWHERE, BlockSize, ChunkSize, largest_block
from penstock._ops.block import part_of
from penstock._ops.collation import Collation
from penstock._ops.operator import ChainOp, key_of
from penstock._ops.reading import BranchesLeaf, rows_at_once
from penstock._ops.stack import BatchSpec
from penstock._order.arithmetic import batch_rows
from penstock._order.runs import Runs


def block_sizes(plan: SegmentPlan, *, at_once: bool = False, elsewhere: bool = False) -> tuple[list[BlockSize], int]:
    """Return how many rows a task of each stage has, and how many are asked of the leaf at least.

    Args:
        plan: of the segment.
        at_once: whether one block is awaited after the other, so that all calls that may be in flight have to be in one.
        elsewhere: whether the shared workers compute elsewhere.
    """
    branches = len(plan.leaf.branches) if isinstance(plan.leaf, BranchesLeaf) else 1
    awaited = [stage.concurrency or 1 for stage in plan.stages if stage.awaited]
    # Rows of one block are handed on together: no more of them than are awaited together.
    most_rows = min(awaited, default=largest_block(branches))
    least_rows = 1 if plan.leaf is None else rows_at_once(plan.leaf)
    if awaited and at_once:
        return [BlockSize(most_rows, most_rows) for _ in plan.stages], most_rows
    default = "processes" if elsewhere else "threads"
    executors = [(stage.workers and stage.workers.executor) or default for stage in plan.stages]
    scales = [1 if stage.awaited or name == "threads" else ELSEWHERE for stage, name in zip(plan.stages, executors, strict=True)]
    return [BlockSize(most_rows, 1 if n else least_rows, one_thread=at_once, scale=scale) for n, scale in enumerate(scales)], least_rows


_UNKNOWN = 1 << 40
_MEASURED = 32  # texts of a batch


class Segment:
    """Chunks between their opening and their commit, in order.

    In an unordered one they are committed as they are finished. The end of a pass still waits for all of it, and what a saved state has in
    an order comes first, in that order.

    Attributes:
        plan: what it runs.
        one_batch_per_chunk: whether elements are awaited: a batch is a chunk then.
        inbox: chunks that the fold runner before has made, waiting to be opened.
        queues: blocks waiting for each stage after the first.
        opened: how many chunks.
        chunks: those that are not committed, in their order; `finished` are those of them that can be, as they were finished.
        expected_spec: the spec of the last finished batch.
        most_rows: of a chunk without a batch, for the byte budget.
        reads_in_another_order: whether a generator is read in its order, and goes on in that of a saved state: what follows there has to
            wait here.
        ends_coming: how many ends of passes the fold runner before has let through that this segment has not committed.
        rows_open: of the chunks that are not committed.
        max_stage_concurrency: the most workers of its own, or calls in flight, that a stage has; or 0.
        failed_seq: the lowest chunk that failed, or None; nothing behind it is claimed.
        row_bytes: what a row takes of a worker's memory while a task of each stage runs; estimated.
        item_bytes: what a row of a finished chunk takes; estimated.
        unfinished: tasks without rows, of chunks that are complete and have to wait for room to make their batches.
        folded_bytes: of what the folds behind this segment hold, at most; `num_folded` inputs ago it was measured: `num_held` elements.
    """

    def __init__(self, program: Program, number: int, start: Token, *, at_once: bool) -> None:
        """Start at (pass, position) `start.source`, without what `start.done` names."""
        self._program, self.number = program, number
        self.plan = plan = program.segments[number]
        self.inbox: deque[Chunk] = deque()
        self.queues: list[list[Claim]] = [[] for _ in plan.stages]
        self.max_stage_concurrency = max((stage.concurrency or 0 for stage in plan.stages), default=0)
        # What is awaited may never come: nothing that is ready stands in one chunk with it but the rest of its batch.
        self.one_batch_per_chunk = not at_once and any(stage.awaited for stage in plan.stages)
        self.blocks, least_rows = block_sizes(plan, at_once=at_once, elsewhere=program.elsewhere)
        single = plan.batch is None
        least_items = least_rows if single and not self.one_batch_per_chunk else 1
        scale = max((block.scale for block in self.blocks), default=1)
        self.chunk_size = ChunkSize(least_items, one_thread=at_once and single, scale=scale)
        self.opened = 0
        self.chunks: list[Chunk] = []
        self.finished: dict[Chunk, None] = {}
        self.expected_spec: BatchSpec | None = None
        self.failed_seq: int | None = None
        self.exhausted = False
        self.most_rows = _UNKNOWN
        self.rows_open = 0
        self._ends: deque[Chunk] = deque()
        self.cut_pass = -1
        self.ends_coming = 0
        self._pass_number, self._next_item = start.source
        self._again = deque(start.done.taken)  # still to be opened
        self._due = deque(start.done.taken)  # still to be committed
        self._taken = self._taken_of_pass([(0, start.source[1]), *start.done.runs] if start.done.runs or self._again else [])
        self.reads_in_another_order = plan.stream is not None and bool(self._due)
        self._known: dict[tuple[int, int], list[KnownLoss]] = {}
        self._replay = 0, 0
        self._opened_in = start.source[0], 0
        self._num_rows = 0
        self._unclaimed: list[Chunk] = []
        self._rests: list[Claim] = []
        self.unfinished: list[Claim] = []
        self.row_bytes = [0.0] * len(plan.stages)
        self.item_bytes = 0.0
        self.folded_bytes = self.num_folded = self.num_held = 0
        self._positions = ChainOp(plan.leaf, tuple(op for stage in plan.stages for op in stage.operators)) if plan.leaf else None

    def read_again(self, record: FoldState | None) -> None:
        """Treat as before what the fold runner behind this segment had taken before the state was saved."""
        if record is None:
            return
        self._replay = record.replay
        for one in record.known:
            self._known.setdefault((one.pass_number, one.number), []).append(one)

    @property
    def lowest(self) -> int:
        """The number of the first chunk that is not committed."""
        return self.chunks[0].seq if self.chunks else self.opened

    # -- opening ------------------------------------------------------------------------------------------------------------------

    def can_open(self) -> bool:
        """Tell whether there is a next chunk at all (the engine decides whether there is room for it)."""
        if self.failed_seq is not None:
            return False
        if self.plan.leaf is None:
            return bool(self.inbox)
        return not self.exhausted

    def open(self, most_rows: int = _UNKNOWN) -> Chunk:
        """Open the next chunk: one batch, or as many batches or elements as make one task, of at most so many rows."""
        chunk = self._open_leaf(most_rows) if self.plan.leaf is not None else self._open_given(most_rows)
        self.rows_open += chunk.num_rows
        self.chunks.append(chunk)
        if self.reads_in_another_order or self._replay > self._opened_in:
            self._note_replayed(chunk)
        if chunk.ends_pass:
            self._ends.append(chunk)
        if chunk.num_rows and chunk.result is None:
            self._unclaimed.append(chunk)
        self._num_rows += chunk.num_rows
        return chunk

    def _note_replayed(self, chunk: Chunk) -> None:
        """Tell the chunk which of its items were read before, and what became of them."""
        pass_number, num_opened = self._opened_in
        first = num_opened if pass_number == chunk.pass_number else 0
        self._opened_in = chunk.pass_number, first + chunk.num_items
        if self.reads_in_another_order:  # numbers are those of the saved order
            runs = [run for run in self._again if run[0] == chunk.pass_number]
            place = next((place for place, (_, begin, end) in enumerate(runs) if begin <= chunk.first < end), None)
            before = sum(end - begin for _, begin, end in runs[:place])
            first = self._replay[1] if place is None else before + chunk.first - runs[place][1]
        border = (0, chunk.num_items)[chunk.pass_number < self._replay[0]]
        if chunk.pass_number == self._replay[0]:
            border = min(chunk.num_items, max(0, self._replay[1] - first))
        known: dict[int, list[KnownLoss]] = {}
        known_items: dict[int, list[KnownLoss]] = {}
        for item in range(border if self._known else 0):
            for one in self._known.get((chunk.pass_number, first + item), ()):
                if one.row >= 0 or chunk.sizes is None:
                    known.setdefault(chunk.first_row(item) + max(one.row, 0), []).append(one)
                else:
                    known_items.setdefault(item, []).append(one)
        chunk.replayed = Replayed(border, known, known_items)

    def next_bytes(self) -> int:
        """Guess what the next chunk will take, if it is one batch; what several or single elements take is granted with their tasks."""
        if self.plan.leaf is None:
            chunk = self.inbox[0] if self.inbox else None
            return 0 if chunk is None or chunk.sizes is None else int(self.item_bytes * chunk.num_rows)
        batch = self.plan.batch
        return 0 if batch is None else int(self.item_bytes * batch.batch_size * self.chunk_size.items)

    def wanted_chunks(self, rounds: int = 4) -> int:
        """Return how many chunks may be open for the sake of stages with a concurrency of their own, by the mean size of those so far.

        Their rows are four times what is in work at once: in flight, next in turn, done but behind a slow one, and on their way out.
        """
        return rounds * self.max_stage_concurrency * self.opened // max(1, self._num_rows) + 2 if self.max_stage_concurrency else 0

    def _open_given(self, most_rows: int) -> Chunk:
        chunk = self.inbox.popleft()
        most_rows = min(most_rows, self._task_rows())
        if chunk.num_rows > most_rows and chunk.result is None:
            count, border = chunk.whole_items(most_rows, up=True)  # not less than a task may have: it would never learn that more is better
            if border < chunk.num_rows:
                self.inbox.appendleft(chunk.cut(count))
        chunk.seq = self.opened
        self.opened += 1
        return chunk

    def _open_leaf(self, most_rows: int) -> Chunk:
        length = self.plan.length
        assert length is not None
        border = self._next_run(length)
        batch = self.plan.batch
        num_batches = 1 if self.one_batch_per_chunk or batch is None else max(1, min(self.chunk_size.items, most_rows // batch.batch_size))
        wanted: float = num_batches if batch is not None else min(most_rows, self.most_rows, self._task_rows())
        count = 0 if self.cut_pass >= self._pass_number else int(min(wanted, border - self._next_item))
        first, pass_number = self._next_item, self._pass_number
        self._next_item += count
        if self._again and self._again[0][0] == pass_number:
            self._again[0] = (pass_number, self._next_item, self._again[0][2])
        self._next_run(length)
        ends = count == 0 or (self._next_item == length and not self.plan.unordered)  # what waits for all of a pass is an empty chunk then
        if ends:
            while self._again and self._again[0][0] <= pass_number:
                self._again.popleft()
            self._pass_number, self._next_item = pass_number + 1, 0
            self._taken = self._taken_of_pass()
            self.exhausted = self._pass_number >= self._program.end_pass
        chunk = self._leaf_chunk(pass_number, first, count, ends)
        self.opened += 1
        return chunk

    def _taken_of_pass(self, delivered: Sequence[tuple[int, int]] = ()) -> Runs | None:
        """Return what of the pass is not opened in its turn: what was delivered, and what comes before all others; None for nothing."""
        taken = [*delivered, *((begin, end) for number, begin, end in self._again if number == self._pass_number)]
        return Runs(taken) if taken else None

    def _next_run(self, length: float) -> float:
        """Go to the next position that is to be computed; return where the run of such positions ends."""
        while self._again and self._again[0][0] == self._pass_number:
            _, self._next_item, border = self._again[0]
            if self._next_item < border:
                return border
            self._again.popleft()
            self._next_item = 0
        if self._taken is None:
            return length
        self._next_item, end = self._taken.gap(self._next_item, length)
        return end

    def _leaf_chunk(self, pass_number: int, first: int, count: int, ends: bool) -> Chunk:
        plan = self.plan
        epochs = np.full(count, pass_number, np.int64)
        positions = np.arange(first, first + count, dtype=np.int64)
        batch_positions: PositionsPerOp = []
        sizes = None
        if plan.batch is not None:
            batch_positions = [(epochs, positions)]
            for step in reversed([step for step in plan.batch_ops if hasattr(step, "source_positions")]):
                epochs, positions = step.source_positions(epochs, positions)
                batch_positions.append((epochs, positions))
            batch_positions.reverse()
            batch = plan.batch
            epochs, positions, sizes = batch_rows(epochs, positions, batch.length, batch.batch_size, batch.shift, batch.stride)
        assert self._positions is not None
        return Chunk(
            seq=self.opened,
            pass_number=pass_number,
            first=first,
            sizes=sizes,
            num_rows=len(positions),
            positions=self._positions.positions_per_op(epochs, positions) if len(positions) else [],
            batch_positions=batch_positions,
            tokens=Counted(Token((pass_number, first)), count),
            ends_pass=ends,
            pass_token=Token((pass_number + 1, 0)),
        )

    # -- claiming -----------------------------------------------------------------------------------------------------------------

    def _task_rows(self) -> int:
        return min(block.size for block in self.blocks)

    def next_rows(self, num_workers: int, chunk: Chunk, most_rows: int, room: int) -> Claim:
        """Claim the next rows of a chunk for the first stage; they may hold `room` bytes.

        A chunk that is more than one batch or element is one task, so that it can be cut where its elements turn out large.
        """
        for place, rest in enumerate(self._rests):
            if rest.chunk is chunk:
                del self._rests[place]
                end = min(rest.end, rest.begin + most_rows)
                if end < rest.end:
                    self._rests.insert(place, rest._replace(begin=end))
                return rest._replace(end=end, room=room)
        begin, limit = chunk.claimed, chunk.limit
        split = num_workers if self.plan.batch is not None and chunk.seq == 0 else 1
        rows = min(most_rows, *(block.rows(limit - begin, split) for block in self.blocks))  # what later stages take as it comes
        if chunk.num_items > 1:
            rows = limit
        end = chunk.claimed = begin + rows
        if end >= limit:
            self._unclaimed.remove(chunk)
        return Claim(self.number, 0, chunk, begin, end, None, room=room)

    def _cut(self, chunk: Chunk, count: int) -> Chunk:
        """Leave `count` items with a chunk; the others are the chunk behind it, and wait to be claimed."""
        tail = chunk.cut(count)
        tail.seq = chunk.seq + 1
        place = self.chunks.index(chunk) + 1
        for other in self.chunks[place:]:
            other.seq += 1
        self.chunks.insert(place, tail)
        self._ends = deque(tail if one is chunk and tail.ends_pass else one for one in self._ends)
        if self.failed_seq is not None and self.failed_seq > chunk.seq:
            self.failed_seq += 1
        self.opened += 1
        self._unclaimed.append(tail)
        return tail

    def give_back(self, task: Claim, end: int) -> Chunk | None:
        """Take back the rows of a task that were not done, for want of room; return the chunk that they belong to now, if it is new."""
        chunk = task.chunk
        count, border = chunk.whole_items(end, up=False)
        tail = None
        if (task.begin, task.end) == (0, chunk.num_rows) and not (border < end and chunk.lost):
            if not count:
                count, border = chunk.whole_items(1, up=True)
            if border < chunk.num_rows:
                tail = self._cut(chunk, count)
        border = task.end if tail is None else chunk.num_rows
        if end < border:
            self._wait(task, chunk, end, border, 0)
        if tail is not None and task.block is not None:
            self._unclaimed.remove(tail)
            tail.claimed = tail.num_rows
            self._wait(task, tail, border, task.end, border)
        return tail

    def _wait(self, task: Claim, chunk: Chunk, begin: int, end: int, shift: int) -> None:
        rest = task._replace(chunk=chunk, begin=begin - shift, end=end - shift)
        if task.block is None:
            self._rests.append(rest)
            return
        part = part_of(task.block, begin - task.begin, end - task.begin)
        num_bytes = task.num_bytes * len(part) // max(1, len(task.block))
        self.queues[task.stage].append(rest._replace(block=part, num_bytes=num_bytes))

    def has_rows(self) -> bool:
        """Tell whether there are chunks with rows to claim."""
        return next(iter(self.unclaimed()), None) is not None

    def unclaimed(self) -> Iterator[Chunk]:
        """Yield the chunks with rows to claim for the first stage: given back or not claimed yet."""
        waiting = self._unclaimed
        if self._rests or len(waiting) > 1:
            self._rests = [task for task in self._rests if task.begin < task.chunk.limit]
            waiting = sorted([*(task.chunk for task in self._rests), *waiting], key=lambda chunk: chunk.seq)
        for chunk in waiting:
            if not self._is_behind_failure(chunk):
                yield chunk

    def _is_behind_failure(self, chunk: Chunk) -> bool:
        return self.failed_seq is not None and chunk.seq > self.failed_seq

    def pass_on(self, task: Claim, outcome: Outcome) -> None:
        """Queue what a task made for the next stage, or count the rows that it has ended."""
        chunk, begin = task.chunk, task.begin
        end = min(outcome.end, chunk.num_rows)  # rows behind it are computed again in the chunk that was cut off
        if outcome.block is not None:
            block = part_of(outcome.block, 0, end - begin) if end < outcome.end else outcome.block
            following = Claim(task.segment, task.stage + 1, chunk, begin, end, block, num_bytes=outcome.kept_bytes)
            self.queues[task.stage + 1].append(following)
        elif end > begin and task.stage == len(self.plan.stages) - 1:
            chunk.done.append((begin, end))
            chunk.num_done += end - begin

    def first_unfinished(self, *, in_order: bool) -> Claim | None:
        """Return the first task, by its chunk, that waits to make a batch of complete rows: for room, or for the worker that makes it.

        With `in_order` it is None as long as a chunk before its own is still to be finished.
        """
        task = min(self.unfinished, key=lambda task: task.chunk.seq, default=None)
        return None if task is None or (in_order and self._waits(task.chunk, None)) else task

    def first_block(self, stage: int, *, in_order: bool) -> Claim | None:
        """Return the block that waits for a later stage and is wanted first; those behind a failure are dropped.

        With `in_order`, for a stage that takes rows in the order of their positions, it is None while the next one is on its way.
        """
        queue = [task for task in self.queues[stage] if task.begin < task.chunk.limit and not self._is_behind_failure(task.chunk)]
        self.queues[stage] = queue
        task = min(queue, key=lambda task: (task.chunk.seq, task.begin), default=None)
        if task is None or not in_order:
            return task
        return None if task.begin > task.chunk.begun.get(stage, 0) or self._waits(task.chunk, stage) else task

    def _waits(self, chunk: Chunk, stage: int | None) -> bool:
        """Tell whether a chunk before this one has rows for a stage, or is to be finished."""
        return any(one.seq < chunk.seq and not _has_passed(one, stage) for one in self.chunks)

    @property
    def is_empty(self) -> bool:
        """Whether nothing is on its way through it."""
        return not self.inbox and all(map(_is_ending, self.chunks))

    def put_back(self, task: Claim) -> None:
        """Undo a claim: the consumer's thread was interrupted in the middle of it."""
        if task.begin == task.end:
            self.unfinished.append(task)
        elif task.stage == 0 and task.block is None:
            self._rests.append(task)
        else:
            self.queues[task.stage].append(task)

    def fail(self, chunk: Chunk) -> None:
        """Note that a chunk failed: nothing behind it is of use, unless it may stand behind the end of its pass."""
        if chunk in self._unclaimed and chunk.claimed >= chunk.limit:
            self._unclaimed.remove(chunk)
        if not self._program.may_cut and (self.failed_seq is None or chunk.seq < self.failed_seq):
            self.failed_seq = chunk.seq

    @property
    def known_rows(self) -> int:
        """How many elements fit the byte budget of a chunk, or 0 as long as their size is not known."""
        return self.most_rows if self.most_rows < _UNKNOWN else 0

    def next_finished(self) -> Chunk | None:
        """Return the next chunk to commit if it is finished, without taking it."""
        first = self.chunks[0] if self.chunks else None
        if first is None or not self.plan.unordered:
            return first if first in self.finished else None
        border = self._ends[0].seq if self._ends else self.opened
        wanted = self._due[0][:2] if self._due else None
        for chunk in self.finished:
            in_turn = wanted is None or wanted[0] > chunk.pass_number or wanted == (chunk.pass_number, chunk.first)
            if in_turn and (chunk.seq < border or chunk is first):
                return chunk
        return None

    def commit(self, chunk: Chunk) -> None:
        """Take a finished chunk out."""
        self.chunks.remove(chunk)
        del self.finished[chunk]
        self.rows_open -= chunk.num_rows
        if self._due and self._due[0][:2] == (chunk.pass_number, chunk.first):
            begin = chunk.first + chunk.num_items
            if begin < self._due[0][2]:
                self._due[0] = (chunk.pass_number, begin, self._due[0][2])
            else:
                self._due.popleft()
                self.reads_in_another_order = self.plan.stream is not None and bool(self._due)
        if chunk.ends_pass:
            self._ends.remove(chunk)
            while self._due and self._due[0][0] <= chunk.pass_number:
                self._due.popleft()

    def batches_of(self, chunk: Chunk) -> tuple[list[int], Collation] | None:
        """Return the sizes and the collation of the batches that the last stage writes the chunk's rows into; None when it keeps them."""
        if self.plan.batch is None:
            return None
        assert chunk.sizes is not None
        return chunk.sizes, self.plan.batch.collation

    def where(self, chunk: Chunk, row: int) -> tuple[str, tuple[int, int]]:
        """Return where a row comes from, in words, and its key (epoch, index)."""
        if chunk.given is not None:
            key = int(chunk.given.epochs[row]), int(chunk.given.indices[row])
            return "", key
        leaf = self.plan.leaf
        assert leaf is not None
        epochs, positions = chunk.positions[0]
        spot = int(epochs[row]), int(positions[row])
        return leaf.where(*spot), key_of(leaf, *spot)

    def name_of(self, chunk: Chunk, row: int) -> str:
        """Name a row in words for an error: its key, and where it comes from."""
        words, key = self.where(chunk, row)
        return f"epoch {key[0]} index {key[1]}" + (f" ({words})" if words else "")

    def drop(self) -> None:
        """Let go of what refers to its chunk, after the end, rows and errors: all would live until a collection."""
        waiting = (task.chunk for queue in self.queues for task in queue)
        for chunk in (*self._unclaimed, *self.inbox, *self.finished, *waiting):
            chunk.rows = None
            chunk.lost.clear()

    def position(self) -> dict[str, Any]:
        """Say how far the segment is, for tests and reports."""
        return {"opened": self.opened, "committed": self.opened - len(self.chunks), "waiting": sum(map(len, self.queues))}


def result_bytes(segment: Segment, chunk: Chunk) -> int:
    """Return what the batches of a finished chunk take: by their spec where all rows were written in place, texts about."""
    result = chunk.result
    items = result.items if result is not None else []
    if result is not None and result.as_written and segment.expected_spec is not None:
        return segment.expected_spec.row_bytes * chunk.num_rows + _texts_in(items, segment.expected_spec)
    return bytes_of_all(items) if items else chunk.kept_bytes


def _texts_in(items: list[Any], spec: BatchSpec) -> int:
    """Return about how much the texts take that the arrays of batches refer to, going by a few of them: 50 ns for each of these."""
    if not items or not any(leaf.dtype.hasobject for leaf in spec.leaves):
        return 0
    total = 0
    for array in flatten(items[0]):
        if array.dtype.hasobject and array.size:
            some = array.ravel()[:: -(-array.size // _MEASURED)].tolist()
            total += bytes_of_all(some) * array.size // len(some)
    return total * len(items)


READER, RETRY_WORKER = "reader", "retry"
"""The last is no pool of the scheduler: it runs async functions again that failed."""


def _is_ending(chunk: Chunk) -> bool:
    """Tell whether nothing of a chunk is still to be claimed: a worker makes its items, or has made them, or there are none."""
    return chunk.finishing or chunk.result is not None or not chunk.num_rows


def _has_passed(chunk: Chunk, stage: int | None) -> bool:
    """Tell whether all rows of a chunk were claimed for a stage that takes them in order, or are not wanted; for None, if it is ending."""
    return _is_ending(chunk) or (stage is not None and chunk.begun.get(stage, 0) >= chunk.limit)


def pool_of(segment: Segment, stage: int) -> str:
    """Name the pool of workers that runs a stage."""
    workers = segment.plan.stages[stage].workers
    return SHARED if workers is None else workers.pool or f"{segment.number}.{stage}"


def stages_of(segments: Sequence[Segment]) -> list[tuple[str, StagePlan]]:
    """Return all stages, each with the name of its pool."""
    return [(pool_of(segment, number), stage) for segment in segments for number, stage in enumerate(segment.plan.stages)]


def finisher_of(segment: Segment) -> str:
    """Name the pool of workers that makes the batches of a complete chunk."""
    return segment.plan.finisher or pool_of(segment, len(segment.plan.stages) - 1)


def last_with(segments: Sequence[Segment], pool: str) -> int:
    """Return the number of the last segment in which a pool has something to do, -1 for none."""
    pools = [{finisher_of(one), *(pool_of(one, stage) for stage in range(len(one.plan.stages)))} for one in segments]
    return max((number for number, some in enumerate(pools) if pool in some), default=-1)


def pools_of(segments: Sequence[Segment]) -> dict[str, int]:
    """Name the worker pools: 0 stands for the shared number of workers. One worker claims for an async stage, whatever is in flight."""
    pools = {pool: 1 if stage.awaited else stage.workers.num if stage.workers is not None else 0 for pool, stage in stages_of(segments)}
    first = segments[0].plan
    if first.stream is not None:
        pools[first.reader or READER] = 1
    for finisher in {segment.plan.finisher for segment in segments} - {""}:
        pools.setdefault(finisher, 0 if finisher == SHARED else IN_PROGRAM.num)
    return pools
