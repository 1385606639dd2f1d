from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any

import penstock as ps
from penstock._engine.engine import Engine
from penstock._engine.lower import lower
from penstock._engine.rescue import Policies
from penstock._engine.slots import anonymous_memory
from penstock._engine.unit import Token
from penstock._engine.watch import Watch
from penstock._executors.threads import ThreadsExecutor


def engine_of(dataset: ps.Dataset, num_workers: int = 2) -> Engine:
    return Engine(
        lower(dataset._root), num_workers=num_workers, memory_bytes=1 << 20, start=Token((0, 0)), allocate=anonymous_memory, listeners=[]
    )


def ours() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("penstock-")]


def test_each_pool_gets_its_threads_with_names_and_join_ends_them() -> None:
    engine = engine_of(ps.from_generator(lambda: iter(range(1000))).map(str, concurrency=3).repeat())
    executor = ThreadsExecutor(engine)
    assert ours() == []
    executor.start()
    names = sorted(thread.name for thread in ours())
    assert len(names) == 2 + 1 + 3
    assert {"penstock-workers-0", "penstock-workers-1", "penstock-reader-0"} <= set(names)
    assert all(thread.daemon for thread in ours())
    engine.stop()
    assert executor.join(30.0) == []
    assert ours() == []
    engine.dispose()


def test_wait_returns_when_there_is_something_to_take() -> None:
    engine = engine_of(ps.from_source([1, 2, 3]).batch(3))
    executor = ThreadsExecutor(engine)
    executor.start()
    while (ready := engine.poll()) is None:
        executor.wait()
    assert ready.items[0].tolist() == [1, 2, 3]
    engine.stop()
    assert executor.join(30.0) == []
    engine.dispose()


def test_threads_that_do_not_end_in_time_are_named_and_share_one_deadline() -> None:
    gate, busy = threading.Event(), threading.Barrier(3)

    def stuck(x: int) -> int:
        busy.wait(30)
        gate.wait(30)
        return x

    engine = engine_of(ps.from_source(list(range(8))).map(stuck).batch(2))
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

    engine = engine_of(ps.from_source([1]).map(close), num_workers=1)
    executor = ThreadsExecutor(engine)
    executor.start()
    for thread in ours():
        thread.join(30.0)
    assert answers == [[]]
    engine.dispose()


def test_workers_that_are_stuck_are_replaced_and_end_when_they_come_to() -> None:
    gate = threading.Event()

    def stuck(x: int) -> int:
        if x in (3, 4):
            gate.wait(30)
        return x

    ds = ps.from_source(list(range(40))).map(stuck)
    program = replace(lower(ds._root, folded=True, skips=True), policies=Policies(on_error=ps.Skip(), skips=True))
    engine = Engine(
        program, num_workers=1, memory_bytes=1 << 20, start=Token((0, 0)), allocate=anonymous_memory, listeners=[], watch=Watch(0.1, "skip")
    )
    executor = ThreadsExecutor(engine)
    executor.start()
    items: list[int] = []
    while True:
        ready = engine.poll()
        if ready is None:
            executor.wait()
            continue
        items += ready.items[::-1]
        if ready.end:
            break
    assert items == [value for value in range(40) if value not in (3, 4)]
    assert {"penstock-workers-0", "penstock-workers-0+1", "penstock-workers-0+2"} == {thread.name for thread in ours()}
    engine.stop()
    assert executor.join(0.01) == ["penstock-workers-0", "penstock-workers-0+1"]
    gate.set()
    assert executor.join(30.0) == []
    engine.dispose()
