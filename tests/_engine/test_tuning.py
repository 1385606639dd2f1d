"""The sizes of blocks and chunks and the number of working threads, from made-up costs: no clock runs here."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock._engine import tuning
from penstock._engine.tuning import ActiveWorkers, BlockSize, ChunkSize, awaited_ns, largest_block

MS = 1_000_000
TARGET_NS, STEADY_NS = tuning._TARGET_NS, tuning._STEADY_TARGET_NS


def grown(cost_ns: int, tasks: int = 130) -> BlockSize:
    """Let a stage of elements that cost `cost_ns` run alone for a while."""
    blocks = BlockSize()
    for _ in range(tasks):
        rows = blocks.rows(1 << 40, 1)
        blocks.observe(rows, rows * cost_ns)
    return blocks


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


@pytest.mark.parametrize(("every", "target_ns"), [(5, TARGET_NS), (50, TARGET_NS), (10**9, STEADY_NS)])
def test_tasks_are_short_where_some_rows_are_dear(every: int, target_ns: int) -> None:
    blocks, aimed_at = BlockSize(), []
    for number in range(1, 400):
        rows = blocks.rows(1 << 40, 1)
        blocks.observe(rows, rows * (100_000 if number % every else 4_000_000))
        aimed_at.append(blocks.rows(1 << 40, 1) * blocks.found[0])
    assert 0.5 * target_ns < max(aimed_at[110:]) <= target_ns


def test_blocks_of_rows_that_cost_nothing_stop_at_16384() -> None:
    assert grown(1).rows(1 << 40, 1) == 16384
    assert grown(0).rows(1 << 40, 1) == 16384


@given(st.integers(1, 10**7), st.integers(1, 10**7))
def test_after_a_change_of_cost_the_blocks_follow(before_ns: int, after_ns: int) -> None:
    blocks = grown(before_ns)
    for _ in range(80):
        rows = blocks.rows(1 << 40, 1)
        blocks.observe(rows, rows * after_ns)
    assert blocks.found[0] == pytest.approx(after_ns, rel=0.05)
    assert blocks.rows(1 << 40, 1) * after_ns <= max(after_ns, 1.1 * STEADY_NS)


def test_a_short_task_does_not_let_the_blocks_grow() -> None:
    blocks = grown(100_000)
    before = blocks.rows(1 << 40, 1)
    blocks.observe(3, 3)
    assert blocks.rows(1 << 40, 1) == before


@given(st.integers(1, 10**8), st.integers(1, 10_000), st.integers(0, 64))
def test_a_task_takes_at_least_one_row_and_never_more_than_are_left(cost_ns: int, remaining: int, num_workers: int) -> None:
    assert 1 <= grown(cost_ns, 8).rows(remaining, num_workers) <= remaining


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


def test_dear_batches_are_chunks_of_their_own_and_tiny_ones_go_together() -> None:
    dear, tiny, large = ChunkSize(), ChunkSize(), ChunkSize()
    for _ in range(10):
        dear.observe(dear.items, dear.items * 80 * MS, dear.items << 20)
        tiny.observe(tiny.items, tiny.items * 30_000, tiny.items * 1000)
        large.observe(large.items, large.items * 30_000, large.items << 20)
    assert dear.items == 1
    assert MS <= tiny.items * 30_000 <= TARGET_NS
    assert 1 < large.items <= tuning._UNIT_BYTES >> 20


def test_in_one_thread_nobody_waits_for_a_task_and_it_is_long_from_the_beginning() -> None:
    blocks, chunks = BlockSize(one_thread=True), ChunkSize(one_thread=True)
    for _ in range(5):
        blocks.observe(blocks.size, blocks.size * MS)
        chunks.observe(chunks.items, chunks.items * MS, chunks.items * 1000)
    assert blocks.size == chunks.items == 24
    chunks.observe(24, 24 * MS, 24 << 20)
    assert chunks.items == tuning._UNIT_BYTES >> 20


PROBE = ActiveWorkers._NUM_DROPPED + tuning._Probe._FEW
LONG_PROBE = ActiveWorkers._NUM_DROPPED + tuning._Probe._MANY


def together(workers: ActiveWorkers, count: int, *, cost_ns: int, share: float) -> None:
    """Book `count` tasks of 10 rows."""
    for _ in range(count):
        workers.observe(10, 10 * cost_ns, int(10 * cost_ns * share))


def test_workers_that_compute_without_the_gil_all_stay() -> None:
    workers = ActiveWorkers(4)
    together(workers, 1000, cost_ns=MS, share=0.98)
    assert workers.limit == 4
    assert workers.notice == ""


def test_workers_that_often_wait_all_stay_after_one_alone_was_slower() -> None:
    workers = ActiveWorkers(4)
    together(workers, PROBE, cost_ns=MS, share=0.2)
    assert workers.limit == 1
    assert "one worker alone is tried" in workers.notice
    together(workers, PROBE, cost_ns=MS, share=0.2)
    assert workers.limit == 4
    assert workers.notice == "all 4 workers work: one alone takes 4.0 times as long"
    together(workers, 5000, cost_ns=MS, share=0.2)
    assert workers.limit == 4


def test_workers_that_wait_for_storage_are_all_kept_at_work() -> None:
    workers = ActiveWorkers(16)
    for _ in range(20):
        together(workers, PROBE, cost_ns=MS, share=0.02)
        assert (workers.limit, workers.notice) == (16, "")
    together(workers, PROBE, cost_ns=MS, share=0.06)  # now they begin to wait for each other
    assert workers.limit == 1


def gil_bound(workers: ActiveWorkers, count: int) -> None:
    """Book tasks of a function that never lets the GIL go: together each takes as many times as long as there are workers."""
    for _ in range(count):
        wall_ns = 10 * MS * workers.limit
        workers.observe(10, wall_ns, wall_ns // workers.limit)


def test_workers_that_take_the_gil_from_each_other_leave_it_to_one() -> None:
    workers = ActiveWorkers(4)
    gil_bound(workers, 2 * PROBE)
    assert (workers.limit, workers.notice) == (4, "all workers are tried once more: one alone was not slower")
    gil_bound(workers, PROBE)
    assert workers.limit == 1
    assert workers.notice.startswith("1 of 4 workers works: alone it needs 1000.0 us per element, 4 together 1000.0")
    assert "GIL" in workers.notice


def test_all_workers_are_tried_again_ever_more_rarely() -> None:
    workers = ActiveWorkers(4)
    trials = []
    for task in range(4000):
        before = workers.limit
        gil_bound(workers, 1)
        if workers.limit == 4 and before == 1 and task > 3 * PROBE:
            trials.append(task)
            assert workers.notice == "all workers are tried again"
    gaps = [later - earlier for earlier, later in pairwise(trials)]
    assert len(trials) >= 3
    assert all(later > 1.5 * earlier for earlier, later in pairwise(gaps))
    assert workers.limit == 1 or workers.notice == "all workers are tried again"


def test_when_the_other_program_is_gone_all_workers_come_back_for_good() -> None:
    workers = ActiveWorkers(4)
    gil_bound(workers, 3 * PROBE)
    assert workers.limit == 1
    together(workers, 1000, cost_ns=MS, share=0.98)
    assert workers.limit == 4
    together(workers, 5000, cost_ns=MS, share=0.98)
    assert workers.limit == 4


def test_one_worker_alone_is_never_judged() -> None:
    workers = ActiveWorkers(1)
    together(workers, 100, cost_ns=MS, share=0.1)
    assert (workers.limit, workers.notice) == (1, "")


def test_very_short_tasks_say_nothing() -> None:
    workers = ActiveWorkers(4)
    for _ in range(1000):
        workers.observe(1, 199_999, 0)
    assert (workers.limit, workers.notice) == (4, "")


def test_one_alone_that_is_only_quicker_because_it_is_later_does_not_stay_alone() -> None:
    workers = ActiveWorkers(2)
    for task in range(3 * LONG_PROBE):  # each row costs less than the one before, and twice as much while two work without any GIL
        cost_ns = 100_000_000 // (task + 1) ** 2
        workers.observe(100, 100 * cost_ns, 50 * cost_ns)
    assert workers.limit == 2
    assert "all 2 workers work: one alone takes" in workers.notice


def test_where_one_alone_is_a_little_slower_it_is_tried_again_and_again() -> None:
    workers, notices = ActiveWorkers(2), []
    for _ in range(2000):
        workers.observe(10, 10 * MS if workers.limit == 1 else 16 * MS, 8 * MS)  # together 1.25 times as quick
        if workers.notice not in ("", *notices[-1:]):
            notices.append(workers.notice)
    assert notices[:4] == [
        "one worker alone is tried: together they are off the CPU more than a tenth of the time",
        "all 2 workers work: one alone takes 1.2 times as long",
        "it is measured again whether all workers are wanted",
        notices[0],
    ]


def test_all_workers_are_tried_again_however_short_the_runs_are() -> None:
    workers = ActiveWorkers(4)
    gil_bound(workers, 3 * PROBE)
    for _ in range(40):
        assert workers.limit == 1
        again = ActiveWorkers(4)
        again.begin(workers.found)
        workers = again
        gil_bound(workers, 5)
    assert (workers.limit, workers.notice) == (4, "all workers are tried again")


@pytest.mark.parametrize("tasks", [3, 5, 17, 100])
def test_what_was_found_out_and_a_trial_go_on_in_the_next_run(tasks: int) -> None:
    workers = ActiveWorkers(4)
    for _ in range(6 * PROBE):
        again = ActiveWorkers(4)
        again.begin(workers.found)
        assert (again.limit, again.notice) == (workers.limit, workers.notice)
        workers = again
        gil_bound(workers, tasks)
        if workers.notice.startswith("1 of 4 workers works"):
            break
    assert workers.limit == 1
    assert workers.notice.startswith("1 of 4 workers works")


def test_two_runs_that_begin_with_the_same_do_not_see_each_other() -> None:
    workers, runs = ActiveWorkers(4), [ActiveWorkers(4), ActiveWorkers(4)]
    gil_bound(workers, PROBE - 1)
    found = workers.found
    for run in runs:
        run.begin(found)
        gil_bound(run, ActiveWorkers._FIRST)
        assert run.notice == ""
        gil_bound(run, 1)
        assert "one worker alone is tried" in run.notice


@pytest.mark.parametrize("every", [2, 3, 5])
def test_where_few_tasks_do_the_work_of_many_more_of_them_are_looked_at(every: int) -> None:
    workers = ActiveWorkers(2)
    tasks = 0
    for tasks in range(3 * LONG_PROBE):  # both together are 1.2 times as quick; every so many tasks decode a group for the others
        dear = 10 if tasks % every == 0 else 1
        workers.observe(1000, dear * MS * (6 if workers.limit == 1 else 10) // 6, dear * MS)
        if "all 2 workers work" in workers.notice:
            break
    assert workers.notice == "all 2 workers work: one alone takes 1.2 times as long"
    assert tasks + 1 == 2 * LONG_PROBE


def test_sizes_grow_until_they_are_as_large_as_wanted() -> None:
    size, grown = BlockSize(), []
    for _ in range(6):
        size.observe(size.rows(10**6, 2), size.rows(10**6, 2) * TARGET_NS // 100)
        grown.append((size.size, size.growing))
    assert grown == [(4, True), (16, True), (64, True), (100, False), (100, False), (100, False)]
    chunks, items = ChunkSize(), []
    for _ in range(5):
        chunks.observe(chunks.items, chunks.items * tuning._UNIT_TARGET_NS // 20, 1)
        items.append((chunks.items, chunks.growing))
    assert items == [(4, True), (16, True), (20, False), (20, False), (20, False)]
    size.observe(3, 3)  # a short rest of a chunk, however quick
    assert not size.growing


@given(st.integers(1, 8), st.lists(st.tuples(st.integers(1, 100), st.integers(1, 10**9), st.floats(0, 2)), max_size=300))
def test_at_least_one_worker_and_at_most_all_work(most: int, tasks: list[tuple[int, int, float]]) -> None:
    workers = ActiveWorkers(most)
    for rows, wall_ns, share in tasks:
        workers.observe(rows, wall_ns, int(wall_ns * share))
        assert workers.limit in (1, most)


def test_tasks_that_are_dealt_out_to_many_branches_may_be_larger() -> None:
    def most(num_branches: int) -> int:
        size = BlockSize(largest_block(num_branches))
        for _ in range(12):
            size.observe(size.rows(1 << 40, 1), 1)
        return size.rows(1 << 40, 1)

    assert [most(number) for number in (1, 16, 20, 35, 1000)] == [16384, 16384, 20480, 32768, 32768]


def test_a_block_keeps_to_the_most_rows_that_it_was_given() -> None:
    blocks = BlockSize(16)
    for _ in range(10):
        blocks.observe(blocks.rows(1 << 40, 1), 10)
    assert blocks.rows(1 << 40, 1) == 16


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
