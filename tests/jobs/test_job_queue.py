from __future__ import annotations

import random
from collections import deque
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.jobs.job_queue import JobQueue, parts_of


def small(job: int) -> int:
    return 10


@given(st.integers(0, 200), st.integers(1, 20))
def test_parts_are_equal_but_for_the_first_ones_that_have_one_more(count: int, num_parts: int) -> None:
    sizes = [end - begin for begin, end in parts_of(count, num_parts)]
    assert sizes == [count // num_parts + 1] * (count % num_parts) + [count // num_parts] * (num_parts - count % num_parts)
    assert [place for begin, end in parts_of(count, num_parts) for place in range(begin, end)] == list(range(count))


class Crew:
    """Workers as they are, with tickets that they have not begun, and what they have done and not told."""

    def __init__(self, queue: JobQueue, num_workers: int) -> None:
        self.queue = queue
        self.tickets: list[deque[int]] = [deque() for _ in range(num_workers)]
        self.taken: list[list[int]] = [[] for _ in range(num_workers)]
        self.done: list[int] = []

    def deal(self, size_of: Any = small) -> None:
        for worker, tickets in enumerate(self.tickets):
            if not self.queue.has(worker):
                any(self.take_back(*victim) for victim in self.queue.victims())
            tickets.extend(self.queue.next_of(worker, size_of))

    def take_back(self, worker: int, most: int) -> bool:
        tickets = self.tickets[worker]
        jobs = [tickets.popleft() for _ in range(min(most, len(tickets)))]
        self.queue.taken_back(worker, jobs)
        return bool(jobs)

    def begin(self, worker: int) -> None:
        self.taken[worker].append(self.tickets[worker].popleft())

    def tell(self, worker: int, seconds: float) -> None:
        jobs, self.taken[worker] = self.taken[worker], []
        self.queue.reported(worker, jobs, seconds * len(jobs))
        self.done += jobs

    def die(self, worker: int) -> int | None:
        self.take_back(worker, len(self.tickets[worker]))
        taken, self.taken[worker] = self.taken[worker], []
        culprit = self.queue.lost(worker)
        assert culprit == (taken[-1] if taken else None)
        return culprit


@given(st.integers(0, 80), st.integers(1, 6), st.randoms(use_true_random=False), st.sampled_from([1e-7, 1e-4, 1e-3, 0.1, 10.0]))
def test_each_job_is_done_once_and_nobody_idles_while_there_is_one_that_nobody_has_begun(
    count: int, num_workers: int, chance: random.Random, seconds: float
) -> None:
    todo = [2 * number for number in range(count)]
    pool = Crew(JobQueue(todo, num_workers), num_workers)
    blamed: list[int] = []
    while len(pool.done) + len(blamed) < count:
        pool.deal()
        idle = [worker for worker in range(num_workers) if not pool.tickets[worker] and not pool.taken[worker]]
        assert not idle or not any(tickets and taken for tickets, taken in zip(pool.tickets, pool.taken, strict=True))
        worker = chance.randrange(num_workers)
        what = chance.random()
        if what < 0.5 and pool.tickets[worker]:
            pool.begin(worker)
        elif what < 0.9 and pool.taken[worker]:
            pool.tell(worker, seconds)
        elif what > 0.99 and (job := pool.die(worker)) is not None:
            if chance.random() < 0.5:
                blamed.append(job)
            else:
                pool.queue.again(job)
    assert sorted(pool.done + blamed) == todo
    assert not any(pool.queue.has(worker) for worker in range(num_workers))


def test_a_worker_begins_with_its_part_and_then_takes_the_back_half_of_the_longest() -> None:
    queue = JobQueue(list(range(11)), 2)
    assert (queue.next_of(0, small), queue.next_of(1, small)) == ([0, 1], [6, 7])
    given_to_1 = []
    for jobs in ([6, 7], [8, 9], [10, 4], [5, 3]):
        queue.reported(1, jobs, 2.0)
        given_to_1.append(queue.next_of(1, small))
    assert given_to_1 == [[8, 9], [10, 4], [5, 3], [2]]
    assert queue.victims() == [(0, 1)]


def test_quick_jobs_are_given_many_at_a_time_and_slow_ones_two() -> None:
    for seconds, count in ((1e-9, 1024), (1e-3, 10), (0.004, 2), (5.0, 2)):
        queue = JobQueue(list(range(10_000)), 1)
        assert queue.next_of(0, small) == [0, 1]
        assert queue.next_of(0, small) == []
        queue.reported(0, [0, 1], 2 * seconds)
        given = queue.next_of(0, lambda job: 1)
        assert len(given) == count
        assert given == list(range(2, 2 + count))


def test_jobs_of_many_bytes_are_given_one_at_a_time_to_a_worker_that_has_none() -> None:
    queue = JobQueue(list(range(5)), 1)
    sizes = {0: 60_000, 1: 5_000, 2: 5_000, 3: 1 << 20, 4: 1}
    assert queue.next_of(0, sizes.__getitem__) == [0, 1]
    queue.reported(0, [0], 1.0)
    assert queue.next_of(0, sizes.__getitem__) == [2]
    queue.reported(0, [1], 1.0)
    assert queue.next_of(0, sizes.__getitem__) == []
    queue.reported(0, [2], 1.0)
    assert queue.next_of(0, sizes.__getitem__) == [3]
    queue.reported(0, [3], 1.0)
    assert queue.next_of(0, sizes.__getitem__) == [4]


def test_what_is_to_be_done_again_comes_first_and_what_a_dead_worker_had_done_before_the_last_too() -> None:
    queue = JobQueue(list(range(8)), 2)
    queue.next_of(0, small)
    queue.next_of(1, small)
    queue.reported(1, [4], 10.0)
    assert queue.next_of(1, small) == [6]
    queue.again(4)
    assert queue.victims() == []
    assert queue.lost(0) == 1
    assert queue.next_of(0, small) == [0, 4]
    assert queue.lost(0) == 4
    assert queue.next_of(0, small) == [0, 2]


@pytest.mark.parametrize("had", [0, 1])
def test_there_is_nothing_to_take_back_from_who_has_only_the_job_in_work(had: int) -> None:
    queue = JobQueue(list(range(had)), 2)
    queue.next_of(0, small)
    assert queue.victims() == []
    assert queue.lost(1) is None
