"""The sizes of blocks and chunks and the number of working threads, from made-up costs: no clock runs here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock._engine import tuning
from penstock._engine.program import SHARED
from penstock._engine.tuning import ActiveWorkers, BlockSize, ChunkSize, awaited_ns

MS = 1_000_000
TARGET_NS, STEADY_NS = tuning._TARGET_NS, tuning._STEADY_TARGET_NS


def grown(cost_ns: int, tasks: int = 130) -> BlockSize:
    """Let a stage of elements that cost `cost_ns` run alone for a while."""
    blocks = BlockSize()
    for _ in range(tasks):
        rows = blocks.rows(1 << 40, 1)
        blocks.observe(rows, rows * cost_ns)
    return blocks


@pytest.mark.parametrize("scale", [1, 4])
@pytest.mark.parametrize(
    ("num_workers", "block_ns", "chunk_ns"),
    [(1, STEADY_NS, 4 * MS), (2, STEADY_NS, 6_800_000), (16, 54_400_000, 54_400_000), (64, 217_600_000, 217_600_000)],
)
def test_with_more_workers_tasks_are_longer_so_that_their_booking_takes_the_same_share_of_the_lock(
    num_workers: int, block_ns: int, chunk_ns: int, scale: int
) -> None:
    blocks, chunks, cost_ns = BlockSize(scale=scale), ChunkSize(scale=scale), 4 * MS
    for _ in range(130):
        blocks.observe(blocks.size, blocks.size * cost_ns, num_workers)
        chunks.observe(chunks.items, chunks.items * cost_ns, 0, blocks.num_workers)
    assert blocks.size == scale * block_ns // cost_ns
    assert chunks.items == scale * chunk_ns // cost_ns


@given(st.lists(st.tuples(st.integers(1, 5000), st.integers(0, 10**10)), max_size=60))
def test_a_block_has_one_to_16384_rows_whatever_was_measured(tasks: list[tuple[int, int]]) -> None:
    blocks = BlockSize()
    for rows, wall_ns in tasks:
        before = blocks.rows(1 << 40, 1)
        blocks.observe(rows, wall_ns)
        assert 1 <= blocks.rows(1 << 40, 1) <= min(16384, 4 * before)


@given(st.integers(1300, 10**9))
def test_blocks_come_to_cost_what_is_aimed_at_or_are_single_rows(cost_ns: int) -> None:
    rows = grown(cost_ns).rows(1 << 40, 1)
    assert rows * cost_ns <= max(cost_ns, STEADY_NS)
    assert rows == 16384 or (rows + 1) * cost_ns >= STEADY_NS


def test_near_the_end_of_a_chunk_the_workers_share_what_is_left() -> None:
    blocks = grown(30_000)
    full = blocks.rows(1 << 40, 4)
    assert blocks.rows(10 * full, 4) == full
    assert blocks.rows(2 * full, 4) == -(-2 * full // 4)
    assert blocks.rows(full, 4) == full  # one more hand-over would cost more than it gives


@given(st.lists(st.tuples(st.integers(0, 500), st.integers(0, 10**10), st.integers(0, 10**10)), max_size=60))
def test_a_chunk_has_one_to_256_items_whatever_was_measured(chunks: list[tuple[int, int, int]]) -> None:
    size = ChunkSize()
    assert size.items == 1
    for items, wall_ns, num_bytes in chunks:
        before = size.items
        size.observe(items, wall_ns, num_bytes)
        assert 1 <= size.items <= min(256, 4 * before)


@dataclass
class Loop:
    """A training loop in which a number of threads works; times in milliseconds for an item of 10 rows.

    Attributes:
        thread: what one of so many threads takes for an item.
        step: what the loop itself takes, beside so many threads.
        share: of a task's time that it is on a CPU.
        others: what a stage with a worker of its own takes.
    """

    workers: ActiveWorkers
    thread: Callable[[int], float]
    step: Callable[[int], float] = lambda number: 0.0
    share: float = 0.3
    others: float = 0.0

    def run(self, num_items: int) -> ActiveWorkers:
        for _ in range(num_items):
            wall_ns = int(self.thread(self.workers.limit) * MS)
            if self.others:
                self.workers.num_rows["program"] += 10
                self.workers.observe("program", 1, 10, (int(self.others * MS), 0))
            self.workers.num_items += 1
            self.workers.num_rows[SHARED] += 10
            self.workers.steps.append((int(self.step(self.workers.limit) * MS), 1))
            self.workers.observe(SHARED, self.workers.limit, 10, (wall_ns, int(wall_ns * self.share)))
        return self.workers


LONG = 4000


def scales(number: int) -> float:
    return 20.0


def takes_turns(number: int) -> float:
    """Hold the interpreter lock all the time."""
    return 20.0 * number


def peaks_at_8(number: int) -> float:
    """Take the lock for a tenth of the time, and lose more than is won beyond eight."""
    return 20.0 + max(0, number - 8) * 5


@pytest.mark.parametrize(
    ("most", "ceiling", "loop", "found"),
    [
        (16, 16, {"thread": scales}, 16),
        (16, 16, {"thread": scales, "share": 0.95}, 16),
        (16, 16, {"thread": takes_turns}, 1),
        (16, 16, {"thread": peaks_at_8}, 8),
        (12, 12, {"thread": peaks_at_8}, 6),
        (2, 64, {"thread": scales, "share": 0.01}, 64),
        (2, 64, {"thread": scales, "share": 0.9}, 2),
        (2, 64, {"thread": scales, "share": 0.01, "step": lambda number: 2.0}, 16),
        (16, 16, {"thread": scales, "step": lambda number: 2.0 + 0.5 * number}, 4),
        (16, 16, {"thread": scales, "step": lambda number: 50.0}, 16),
        (16, 16, {"thread": scales, "others": 5.0}, 16),
        (1, 1, {"thread": scales, "share": 0.1}, 1),
        (4, 0, {"thread": takes_turns}, 4),
    ],
)  # fmt: skip
def test_as_many_threads_work_as_make_the_loop_fastest(most: int, ceiling: int, loop: dict[str, Any], found: int) -> None:
    workers = ActiveWorkers(most, ceiling)
    limits = Counter[int]()
    loop_ = Loop(workers, **loop)
    for _ in range(LONG):
        limits[loop_.run(1).limit] += 1
    assert limits.most_common(1)[0][0] == found


def test_every_number_that_is_tried_or_held_is_told_with_what_it_takes() -> None:
    loop, told = Loop(ActiveWorkers(4, 4), takes_turns), [""]
    while "1 of 4" not in loop.run(1).notice:
        told += [loop.workers.notice] if loop.workers.notice != told[-1] else []
    assert told[1:] == [
        "trying 2 active worker threads; with 4 an item takes 20.00 ms",
        "trying 1 active worker threads; with 2 an item takes 20.00 ms",
    ]
    assert loop.workers.notice == "active worker threads: 1 of 4; an item takes 20.00 ms, with 2 20.00 ms, with 4 20.00 ms"
    assert loop.workers.subject == "alone"


def test_the_number_is_looked_for_again_when_the_step_takes_longer() -> None:
    loop = Loop(ActiveWorkers(16, 16), scales)
    assert loop.run(LONG).limit == 16
    loop.step = lambda number: 5.0 + number
    limits = Counter(loop.run(1).limit for _ in range(LONG))
    assert limits.most_common(1)[0][0] == 4


def test_slow_calls_go_on_one_by_one_and_quick_ones_or_those_of_a_batch_together() -> None:
    slow = awaited_ns(10 * 20_000_000, 10, 64, batched=False)
    assert slow == 10 * 20_000_000
    assert awaited_ns(10 * 20_000_000, 10, 64, batched=True) == slow // 64
    assert awaited_ns(10 * 1_000_000, 10, 64, batched=False) == 10_000_000 // 64
    size = BlockSize(64)
    for _ in range(5):
        size.observe(1, slow // 10)
    assert size.rows(64, 1) == 1


def test_a_source_far_away_is_asked_for_its_least_number_of_rows_however_long_they_take() -> None:
    blocks, chunks = BlockSize(4096, least_rows=128), ChunkSize(128)
    assert blocks.rows(10_000, 2) == 128
    for _ in range(20):
        blocks.observe(128, 10**9)
        chunks.observe(128, 10**9, 10**8)
    assert blocks.rows(10_000, 2) == 128
    assert chunks.items == 128
    assert BlockSize(16, least_rows=128).rows(10_000, 2) == 16
