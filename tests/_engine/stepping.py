"""Runs a program without threads: a scheduler claims, computes, books and takes in any order that a seed asks for.

A real run is one of these schedules. Because computing a task and booking it are steps of their own, tasks complete in every order.
"""

from __future__ import annotations

import pickle
import random
import weakref
from dataclasses import replace
from typing import Any, cast

import numpy as np

import penstock as ps
from penstock._engine.chunk import Chunk, Claim, Failure, Outcome, Token
from penstock._engine.compute import compute
from penstock._engine.error_policy import RAISING, ErrorHandler
from penstock._engine.folding import finish_chunk
from penstock._engine.lowering import lower
from penstock._engine.program import Policies, in_completion_order
from penstock._engine.scheduler import Ready, Scheduler
from penstock._engine.segment import READER, Segment
from penstock._engine.slots import Lease
from penstock._ops.rows import Rows
from penstock._ops.worker import WorkerContext

START = Token((0, 0))
MOST_IN_INBOX = 4


class WatchedScheduler(Scheduler):
    """A scheduler that tells what a commit added to the next segment's inbox."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.added = [0] * len(self.segments)  # by the last commit

    def _pass_on(self, segment: Segment, *rest: Any) -> None:
        following = self.segments[segment.number + 1]
        before, opened = len(following.inbox), following.opened
        assert before < MOST_IN_INBOX
        super()._pass_on(segment, *rest)
        self.added[following.number] = len(following.inbox) - before + following.opened - opened


class Stepper:
    """A scheduler and everything around it, one step at a time.

    Attributes:
        items: what the consumer took, in order.
        tokens: the token after each of them.
        error: the failure that ended the run, or None.
        claims: (segment, chunk, stage, row) of every row that was claimed, to see that each was claimed once.
    """

    def __init__(
        self,
        dataset: ps.Dataset,
        seed: int,
        *,
        num_workers: int = 3,
        memory_bytes: int = 1 << 28,
        start: Token = START,
        keep: int = 0,
        ordered: bool = True,
        policies: Policies = RAISING.policies,
    ) -> None:
        program = replace(lower(dataset._root), policies=policies)
        program = program if ordered else in_completion_order(program) or program
        self.scheduler = WatchedScheduler(program, num_workers, memory_bytes, start)
        self.error_handler = ErrorHandler(policies=policies, pause=RAISING.pause, retrying=RAISING.retrying)
        self.items: list[Any] = []
        self.tokens: list[Token] = []
        self.error: Failure | None = None
        self.claims: list[tuple[int, int, int, int]] = []
        self.num_workers = num_workers
        self.most_in_flight = 0
        self._chance = random.Random(seed)
        self._free = {pool: list(range(self.scheduler.size_of(pool))) for pool in self.scheduler.pools}
        self._claimed: list[tuple[str, int, Claim]] = []
        self._computed: list[tuple[str, int, Claim, Any]] = []
        self._to_finish: list[tuple[str, int, Segment, Chunk]] = []
        self._keep = keep
        self._held: list[int] = []
        self._leased: list[Chunk] = []
        self._taken = 0
        self._room = 0
        self._workers = {(pool, worker): WorkerContext(worker) for pool in self._free for worker in self._free[pool]}
        self.ended = False

    def run(self, most_items: int | None = None) -> Stepper:
        """Step until the end, the error or `most_items`."""
        while not self.ended and (most_items is None or len(self.items) < most_items):
            self.step()
            self.check_bounds()
        return self

    def fill(self) -> None:
        """Do all that can be done while the consumer takes nothing."""
        moved = True
        while moved:
            kinds = [kind for kind, there in self._possible().items() if there and kind != "_take"]
            self._chance.shuffle(kinds)
            self.scheduler.waiting = 0
            moved = any(getattr(self, kind)() for kind in kinds)
            self.check_bounds()

    def step(self) -> None:
        """Do one thing that a thread could do now."""
        kinds = [kind for kind, there in self._possible().items() if there]
        self._chance.shuffle(kinds)
        before = self.scheduler.version
        self.scheduler.waiting = 0 if self.scheduler.ready else 1
        for kind in kinds:
            if getattr(self, kind)():
                return
        if self.scheduler.version != before:
            return  # looking for a task committed something
        raise AssertionError(f"stuck: {[segment.position() for segment in self.scheduler.segments]}, ready {len(self.scheduler.ready)}")

    def _possible(self) -> dict[str, bool]:
        return {
            "_claim": any(self._free.values()),
            "_compute": bool(self._claimed),
            "_book": bool(self._computed),
            "_finish": bool(self._to_finish),
            "_take": bool(self.scheduler.ready),
        }

    def _claim(self) -> bool:
        pools = [pool for pool, free in self._free.items() if free]
        self._chance.shuffle(pools)
        for pool in pools:
            for worker in sorted(self._free[pool], key=lambda _: self._chance.random()):
                task = self.scheduler.next_task(pool, worker)
                if task is not None:
                    self._free[pool].remove(worker)
                    self._claimed.append((pool, worker, task))
                    if task.chunk is not None:
                        self.claims.extend((task.segment, task.chunk.seq, task.stage, row) for row in range(task.begin, task.end))
                    return True
        return False

    def _compute(self) -> bool:
        pool, worker, task = self._pick(self._claimed)
        if task.read:
            assert self.scheduler.reader is not None
            self._computed.append((pool, worker, task, self.scheduler.reader.read(task.read, task.room)))
            return True
        segment, chunk = self.scheduler.segments[task.segment], task.chunk
        assert chunk is not None
        if not chunk.finishing and chunk.rows is None and task.stage == len(segment.plan.stages) - 1:
            self._open_rows(segment, chunk)
        self._computed.append((pool, worker, task, self._outcome(segment, chunk, task, self._workers[pool, worker])))
        return True

    def _outcome(self, segment: Segment, chunk: Chunk, task: Claim, worker: WorkerContext) -> Outcome:
        """Compute a task as `Engine._compute` does, but from and to copies of the messages, as between two processes."""
        if chunk.finishing:
            return Outcome(task.begin)
        item = pickle.loads(pickle.dumps(task.item))
        outcome = compute(
            segment.plan, item, chunk.rows if task.stage == len(segment.plan.stages) - 1 else None, worker, self.error_handler
        )
        return cast(Outcome, pickle.loads(pickle.dumps(outcome)))

    def _book(self) -> bool:
        pool, worker, task, outcome = self._pick(self._computed)
        wall_ns = self._chance.choice([100, 10_000, 1_000_000, 50_000_000]) * max(1, task.end - task.begin)
        if task.read:
            chunk, failure = outcome
            self.scheduler.book_read(task, chunk, failure, wall_ns)
            self._free[READER].append(worker)
            return True
        segment = self.scheduler.segments[task.segment]
        complete = self.scheduler.complete(segment, task, outcome, wall_ns, wall_ns)
        if complete:
            assert task.chunk is not None
            self._to_finish.append((pool, worker, segment, task.chunk))
        else:
            self._free[pool].append(worker)
        return True

    def _finish(self) -> bool:
        pool, worker, segment, chunk = self._pick(self._to_finish)
        if chunk.rows is not None:
            segment.expected_spec = chunk.rows.spec
        chunk.result, tail = finish_chunk(segment.plan, chunk, self._workers[pool, worker], self.error_handler)
        self.scheduler.finish(segment, chunk, tail)
        self._free[pool].append(worker)
        return True

    def close(self) -> None:
        """End the reading, as `Engine.dispose` does: a stream with states has one reader at a time."""
        if self.scheduler.reader is not None:
            self.scheduler.reader.close()

    def _take(self) -> bool:
        ready: Ready = self.scheduler.take()
        self.items.extend(reversed(ready.items))
        self.tokens.extend(ready.tokens[: len(ready.items)])
        self._held.append(self._taken)
        self._taken += 1
        while len(self._held) > self._keep:
            self.scheduler.reclaim(self._give_back(self._held.pop(0)))
        self.ended, self.error = ready.end or ready.error is not None, ready.error
        return True

    def _open_rows(self, segment: Segment, chunk: Chunk) -> None:
        """Give a chunk its rows as the engine does, over memory of its own."""

        def allocate(leaves: Any) -> list[Any]:
            if segment is self.scheduler.segments[-1]:
                chunk.lease = weakref.ref(Lease(bytearray(1)))
                self._leased.append(chunk)
            return [np.empty(shape, dtype) for shape, dtype in leaves]

        batches = segment.batches_of(chunk)
        if batches is not None:
            chunk.rows = Rows(batches[0], segment.expected_spec, allocate, str, batches[1])

    def _give_back(self, seq: int) -> int:
        """Take the buffer of a chunk back; return how many there were. Chunks are numbered again where one is cut."""
        there = [chunk for chunk in self._leased if chunk.seq == seq]
        self._leased = [chunk for chunk in self._leased if chunk.seq != seq]
        return len(there)

    def _pick(self, things: list[Any]) -> Any:
        return things.pop(self._chance.randrange(len(things)))

    def check_bounds(self) -> None:
        """Nothing queues up without a limit, whoever is slow."""
        # Async stages have room for more, by the mean size of their chunks, which changes.
        most = max(
            2 * self.num_workers + 2,
            self.scheduler.program.prefetch + 2,
            4,
            self._room,
            *(s.wanted_chunks() for s in self.scheduler.segments),
        )
        self._room = most
        for segment in self.scheduler.segments[:-1]:
            in_work = len(segment.chunks)
            assert in_work <= most or segment.rows_open < 2048
        for segment in self.scheduler.segments[1:]:
            # Awaited elements come as a chunk each, all those of one commit together: they are in memory anyway.
            added = self.scheduler.added[segment.number]
            assert added <= 1 or segment.one_batch_per_chunk
            assert len(segment.inbox) <= MOST_IN_INBOX - 1 + max(1, added)
        last = self.scheduler.segments[-1]
        in_flight = len(last.chunks) + len(self.scheduler.ready)
        self.most_in_flight = max(self.most_in_flight, in_flight)
        # Sequencers may make several hand-overs wait, but never more than there may be chunks.
        assert len(self.scheduler.ready) <= most
        assert in_flight <= most
