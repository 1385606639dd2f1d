from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from _engine.engines import engine_of

import penstock as ps
from penstock._engine.engine import Engine
from penstock._engine.segment import SHARED
from penstock._ops.worker import WorkerContext

LIMIT_S = 30.0


def numbers(count: int = 20) -> ps.Dataset:
    return ps.from_source(list(range(count)))


def joined(thread: threading.Thread) -> None:
    thread.join(LIMIT_S)
    assert not thread.is_alive()


def begin_to_wait(engine: Engine) -> None:
    engine.scheduler.waiting += 1
    engine._unpark_workers()


def take(engine: Engine) -> None:
    engine._delivered += 1
    engine._unpark_workers()


@pytest.mark.parametrize("consumer", [begin_to_wait, take])
def test_what_a_consumer_does_while_a_worker_looks_for_work_makes_it_look_again(
    consumer: Callable[[Engine], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker is not parked yet, so the ring reaches nobody."""
    engine = engine_of(numbers(), num_workers=2, memory_bytes=1 << 28)
    look, looks, claimed = engine._next_task, itertools.count(), []

    def look_in_vain_once(pool: str, worker: int) -> Any:
        if next(looks):
            return look(pool, worker)
        consumer(engine)
        return None

    monkeypatch.setattr(engine, "_next_task", look_in_vain_once)
    worker = threading.Thread(target=lambda: claimed.append(engine.claim(SHARED, 0)), daemon=True)
    worker.start()
    joined(worker)
    assert claimed[0] is not None
    engine.stop()
    engine.dispose()


def test_a_ring_that_wakes_a_worker_that_may_not_work_is_passed_on() -> None:
    for _ in range(10):  # which of the two is woken is not known
        engine = engine_of(ps.from_source(range(10**9)), num_workers=2, memory_bytes=1 << 28)
        while (task := engine.try_claim()) is not None:  # until enough is ready
            engine.run(task, WorkerContext(0))
        claims: dict[int, Any] = {}

        def claim(worker: int, engine: Engine = engine, claims: dict[int, Any] = claims) -> None:
            claims[worker] = engine.claim(SHARED, worker)

        threads = [threading.Thread(target=claim, args=(worker,)) for worker in (1, 0)]
        for number, thread in enumerate(threads, 1):
            thread.start()
            while len(engine._waiters[SHARED]) < number:
                threading.Event().wait(0)
        engine.scheduler.active.limit = 1
        assert engine.poll() is not None
        joined(threads[1])
        assert claims[0] is not None
        engine.stop()
        joined(threads[0])
        assert claims[1] is None


def test_for_what_waits_more_threads_work_than_there_are_cpus_and_the_next_run_begins_with_them() -> None:
    def waits(number: int) -> int:
        time.sleep(0.002)
        return number

    dataset = ps.from_source(range(1 << 30)).map(waits).batch(4)
    with dataset.feed(executor="threads") as feed:
        next(feed)
        assert feed._run._engine is not None
        at_first = feed._run._engine.scheduler.active.limit
        while feed._run._engine.scheduler.active.limit <= at_first:
            next(feed)
        while sum(thread.name.startswith("penstock-workers-") for thread in threading.enumerate()) <= at_first:
            next(feed)
        assert any("active worker threads" in notice for notice in feed.stats().notices)
    with dataset.feed(executor="threads") as feed:
        next(feed)
        assert feed._run._engine is not None
        assert feed._run._engine.scheduler.active.limit > at_first
        assert any("active worker threads" in notice for notice in feed.stats().notices)
