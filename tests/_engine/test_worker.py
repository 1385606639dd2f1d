from __future__ import annotations

import time
from typing import Any

import pytest

import penstock as ps
from penstock._contracts.event import Event
from penstock._engine.chunk import Outcome, Token
from penstock._engine.compute import HERE, Computer
from penstock._engine.engine import Engine
from penstock._engine.lowering import lower
from penstock._engine.segment import SHARED
from penstock._engine.slots import anonymous_memory
from penstock._executors.threads import work
from penstock._ops.worker import WorkerContext


def engine_of(dataset: ps.Dataset, listeners: list[Any]) -> Engine:
    return Engine(
        lower(dataset._root), num_workers=1, memory_bytes=1 << 20, start=Token((0, 0)), allocate=anonymous_memory, listeners=listeners
    )


def test_an_exit_asked_for_in_a_worker_reaches_the_consumer_and_ends_the_thread() -> None:
    def listen(event: Event) -> None:
        raise SystemExit(3)

    engine = engine_of(ps.from_source([1, 2, 3]), [listen])
    with pytest.raises(SystemExit):
        work(engine, SHARED, 0)
    ready = engine.poll()
    while ready is not None and ready.error is None:
        ready = engine.poll()
    assert ready is not None
    assert ready.error is not None
    assert isinstance(ready.error.error, SystemExit)


def test_a_task_grows_by_what_its_rows_cost_where_they_are_computed() -> None:
    num_tasks = 0

    def far_away(*args: Any) -> Outcome:
        nonlocal num_tasks
        num_tasks += 1
        time.sleep(0.005)  # the way there
        worker.busy_ns = 1000
        return HERE.compute(*args)

    engine = engine_of(ps.from_source(range(4000)).map(lambda x: x).batch(4000), [])
    worker = WorkerContext(0)
    while engine.poll() is None:
        task = engine.claim(SHARED, 0)
        assert task is not None
        engine.run(task, worker, Computer(far_away, HERE.compute_batches))
    engine.stop()
    engine.dispose()
    assert num_tasks < 20  # four times as large each time
