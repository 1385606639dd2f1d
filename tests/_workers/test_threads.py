from __future__ import annotations

import threading
import time
from typing import Any

from _engine.engines import engine_of

import penstock as ps
from penstock._workers.threads import ThreadsExecutor


def ours() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("penstock-")]


def test_threads_that_do_not_end_in_time_are_named_and_share_one_deadline() -> None:
    gate, busy = threading.Event(), threading.Barrier(3)

    def stuck(x: int) -> int:
        busy.wait(30)
        gate.wait(30)
        return x

    engine = engine_of(ps.from_source(list(range(8))).map(stuck).batch(2), num_workers=2)
    executor = ThreadsExecutor(engine)
    executor.start()
    busy.wait(30)
    engine.stop()
    assert executor.join(0.01) == ["penstock-workers-0", "penstock-workers-1"]
    gate.set()
    assert executor.join(30.0) == []
    engine.dispose()


def test_a_worker_that_joins_does_not_wait_for_itself() -> None:
    answers: list[Any] = []

    def close(x: int) -> int:
        engine.stop()
        answers.append(executor.join(30.0))
        return x

    engine = engine_of(ps.from_source([1]).map(close))
    executor = ThreadsExecutor(engine)
    executor.start()
    for thread in ours():
        thread.join(30.0)
    assert answers == [[]]
    engine.dispose()


def test_all_threads_that_are_to_work_do_so_after_fewer_were_tried() -> None:
    """In one parking lot for all, those who may not work took the rings of those who may: four of eight slept on."""
    lock, now, most = threading.Lock(), 0, 0

    def waits(number: int) -> int:
        nonlocal now, most
        with lock:
            now += 1
            most = max(most, now)
        time.sleep(0.002)
        with lock:
            now -= 1
        return number

    with ps.from_source(range(1 << 30)).map(waits).batch(4).feed(executor="threads", num_workers=32) as feed:
        next(feed)
        assert feed._run._engine is not None
        active = feed._run._engine.scheduler.active
        active.ceiling = active._most = 8
        for limit in (2, 8):  # the first is said, the second found
            active.limit = min(limit, active.limit)
            while feed._run._engine.scheduler.active.limit != limit:
                next(feed)
        most = 0
        while most < 8:
            next(feed)
