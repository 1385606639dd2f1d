from __future__ import annotations

import threading
import warnings
from collections.abc import Iterator

import pytest
from _engine.engines import engine_of
from faults.ways import engine_threads

import penstock as ps
from penstock._engine.engine import Engine
from penstock._workers.inline import abandon
from penstock._workers.threads import ThreadsExecutor


def test_the_workers_end_and_the_generator_is_closed_before_it_returns() -> None:
    closed: list[str] = []

    def rows() -> Iterator[int]:
        try:
            yield from range(100_000)
        finally:
            closed.append("closed")

    engine = engine_of(ps.from_generator(rows).batch(3), num_workers=2)
    executor = ThreadsExecutor(engine)
    executor.start()
    engine.wait()
    abandon(engine, executor, 30.0)
    assert engine_threads() == []
    assert closed == ["closed"]


@pytest.mark.parametrize("asynchronous", [False, True], ids=["map", "async map"])
def test_a_worker_in_which_the_collector_finds_the_feed_does_not_wait_for_the_others(asynchronous: bool) -> None:
    """They may wait for what it holds: here a lock of the user's, most often that of the engine."""
    held, holding, waiting, abandoned = threading.Lock(), threading.Event(), threading.Event(), threading.Event()
    here: list[tuple[Engine, ThreadsExecutor]] = []

    def waits(x: int) -> int:
        if x > 0:
            assert holding.wait(30)
            waiting.set()
            with held:
                assert abandoned.is_set()
        return x

    def collects(x: int) -> int:
        with held:
            holding.set()
            assert waiting.wait(30)
            abandon(*here[0], 60.0)  # as the collector does
            abandoned.set()
        return x

    async def collects_in_the_loop(x: int) -> int:
        return collects(x)

    first = ps.from_source(range(10)).map(waits, concurrency=1)
    engine = engine_of(first.map(collects_in_the_loop if asynchronous else collects, concurrency=2 - asynchronous))
    here.append((engine, ThreadsExecutor(engine)))
    failures = engine.scheduler.failures  # the end lets go of the list
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        here[0][1].start()
        assert abandoned.wait(30), "it waits for one that waits for it"
        for thread in threading.enumerate():
            if thread.name in engine_threads():
                thread.join(30)
        assert engine_threads() == []
    assert caught == []
    assert failures == []
