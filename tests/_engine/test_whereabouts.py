from __future__ import annotations

import numpy as np

import penstock as ps
from penstock._engine.chunk import NO_POSITIONS, Claim, Token
from penstock._engine.lowering import lower
from penstock._engine.scheduler import Scheduler
from penstock._engine.segment import READER, SHARED
from penstock._engine.watchdog import WorkerMonitor, call_of, element_of, place_of, pool_words, stage_of
from penstock._ops.block import Block
from penstock._ops.worker import WorkerContext


def block_of(count: int) -> Block:
    numbers = np.arange(count)
    return Block(0 * numbers, numbers, numbers.astype(np.uint64), rows=numbers.tolist())


def claimed() -> tuple[Scheduler, Claim]:
    scheduler = Scheduler(lower(ps.from_source(range(9)).map(abs, name="m").batch(9)._root), 1, 1 << 20, Token((0, 0)))
    task = scheduler.next_task(SHARED, 0)
    assert task is not None
    return scheduler, task


def test_a_worker_is_with_an_element_or_among_several() -> None:
    scheduler, task = claimed()
    task = task._replace(begin=0, end=1)
    assert task.chunk is not None
    monitor = WorkerMonitor(SHARED, WorkerContext(0))
    assert stage_of(scheduler, monitor, task) == "read+m"
    assert element_of(scheduler, monitor, task) == "element epoch 0 index 0 (element 0 of range)"
    assert element_of(scheduler, monitor, task._replace(end=5)) == "one of 5 elements from epoch 0 index 0 (element 0 of range) on"
    task.chunk.positions = NO_POSITIONS
    assert element_of(scheduler, monitor, task) == "element an element that is not wanted any more"


def test_a_chunk_that_is_finished_or_cut_meanwhile_names_no_element() -> None:
    scheduler, task = claimed()
    assert place_of(scheduler.segments[0], task, 3) == ("element 3 of range", (0, 3))
    assert place_of(scheduler.segments[0], task, 9) is None
    given = Scheduler(lower(ps.from_generator(lambda: iter("ab")).map(abs)._root), 1, 1 << 20, Token((0, 0)))
    chunk, failure = given.reader.read(2) if given.reader is not None else (None, None)
    assert failure is None
    assert chunk is not None
    task = task._replace(chunk=chunk)
    assert place_of(given.segments[0], task, 0) == ("", (0, 0))  # on a busy machine the reader may hand over one element
    chunk.given = None
    assert place_of(given.segments[0], task, 0) is None
    assert element_of(given, WorkerMonitor(SHARED, WorkerContext(0)), task) == "element an element that is not wanted any more"


def test_the_element_of_a_call_is_that_of_its_input() -> None:
    scheduler, task = claimed()
    block = block_of(4)
    assert call_of(scheduler, task, block, 3) == "element epoch 0 index 3 (element 3 of range)"
    block.origins = np.array([0, 2, 2, 5])
    assert call_of(scheduler, task, block, 2) == "element epoch 0 index 2 (element 2 of range)"
    assert call_of(scheduler, None, block, 2) == "an element"


def test_pools_have_words() -> None:
    scheduler = Scheduler(lower(ps.from_generator(lambda: iter("ab")).map(abs, name="own", concurrency=2)._root), 1, 1 << 20, Token((0, 0)))
    words = [pool_words(scheduler, pool) for pool in (SHARED, READER, "0.1" if "0.1" in scheduler.pools else "0.0")]
    assert words == ["shared workers", "readers of the generator", "workers of stage 'own'"]
