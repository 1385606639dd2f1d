"""Posts of real threads."""

from __future__ import annotations

import threading

from penstock._engine.chunk import Claim
from penstock._engine.segment import SHARED
from penstock._engine.watchdog import WorkerMonitor
from penstock._ops.worker import WorkerContext

MS = 1_000_000


def test_an_ended_thread_has_no_cpu_time_and_is_no_danger() -> None:
    monitors: list[WorkerMonitor] = []
    thread = threading.Thread(target=lambda: monitors.append(WorkerMonitor(SHARED, WorkerContext(0))))
    thread.start()
    thread.join()
    for _ in range(1000):  # the kernel may need a moment to forget it
        assert (monitors[0]._cpu_now() or 0) >= 0
        assert monitors[0]._queued_now() >= 0


def test_time_counts_as_long_as_the_thread_does_not_move_on() -> None:
    monitor = WorkerMonitor(SHARED, WorkerContext(0))
    monitor.begin(Claim(0, 0, None, 0, 9, None))
    monitor.sample()
    assert monitor.observe(0, 10 * MS, 0, 0)
    monitor.sample()
    assert not monitor.observe(0, 10 * MS, 0, 0)
    assert 0 < monitor.age_ns <= 10 * MS == monitor.watched_ns
    monitor.begin(Claim(0, 0, None, 9, 18, None))
    assert monitor.observe(0, 10 * MS, 0, 0)
    assert monitor.age_ns == monitor.watched_ns == 0
    monitor.end()
    assert not monitor.observe(0, 10 * MS, 0, 0)
    assert monitor.sample() == 0


def test_clocks_may_be_read_without_a_task() -> None:
    monitor = WorkerMonitor(SHARED, WorkerContext(0))
    assert monitor.read_clocks() >= 0
    monitor.grow(5 * MS, 0)
    assert monitor.watched_ns == 5 * MS
    monitor.restart()
    assert monitor.watched_ns == 0
    assert monitor.cpu_share is None


def test_the_clock_of_a_worker_on_another_machine_is_not_read() -> None:
    class FarAway(WorkerContext):
        pid = 0

    monitor = WorkerMonitor("workers", FarAway(0))
    monitor.read_clocks()
    assert monitor._cpu_now() is None
    assert WorkerMonitor("workers", WorkerContext(0))._cpu_now() is not None
