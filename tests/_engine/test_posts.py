"""Posts of real threads."""

from __future__ import annotations

import threading

from penstock._engine.chunk import Claim
from penstock._engine.segment import SHARED
from penstock._engine.watchdog import WorkerMonitor
from penstock._ops.worker import WorkerContext

MS = 1_000_000


def test_an_ended_thread_has_no_cpu_time_and_is_no_danger() -> None:
    posts: list[WorkerMonitor] = []
    thread = threading.Thread(target=lambda: posts.append(WorkerMonitor(SHARED, WorkerContext(0))))
    thread.start()
    thread.join()
    for _ in range(1000):  # the kernel may need a moment to forget it
        assert (posts[0]._cpu_now() or 0) >= 0
        assert posts[0]._queued_now() >= 0


def test_time_counts_as_long_as_the_thread_does_not_move_on() -> None:
    post = WorkerMonitor(SHARED, WorkerContext(0))
    post.begin(Claim(0, 0, None, 0, 9, None))
    post.sample()
    assert post.observe(0, 10 * MS, 0, 0)
    post.sample()
    assert not post.observe(0, 10 * MS, 0, 0)
    assert 0 < post.age_ns <= 10 * MS == post.watched_ns
    post.begin(Claim(0, 0, None, 9, 18, None))
    assert post.observe(0, 10 * MS, 0, 0)
    assert post.age_ns == post.watched_ns == 0
    post.end()
    assert not post.observe(0, 10 * MS, 0, 0)
    assert post.sample() == 0


def test_clocks_may_be_read_without_a_task() -> None:
    post = WorkerMonitor(SHARED, WorkerContext(0))
    assert post.read_clocks() >= 0
    post.grow(5 * MS, 0)
    assert post.watched_ns == 5 * MS
    post.restart()
    assert post.watched_ns == 0
    assert post.cpu_share is None
