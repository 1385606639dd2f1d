"""The watch looks at real threads; what they run is a task of a real program."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from _engine.engines import engine_of

import penstock as ps
from penstock._engine.chunk import Token
from penstock._engine.compute import HERE
from penstock._engine.lowering import lower
from penstock._engine.program import IN_PROGRAM
from penstock._engine.scheduler import Scheduler
from penstock._engine.segment import READER, SHARED
from penstock._engine.watchdog import Watch, WorkerMonitor, element_of, pool_words
from penstock._ops.worker import WorkerContext
from penstock._workers.threads import work
from penstock.errors import FeedStalled

LIMIT_S = 30.0


class Stuck:
    """Functions that stop at an element until they are released, and say when they are there."""

    def __init__(self) -> None:
        self.there, self.go = threading.Event(), threading.Event()

    def at(self, wanted: Any) -> Callable[[Any], Any]:
        def function(value: Any) -> Any:
            if value == wanted:
                self.there.set()
                self.go.wait()
            return value

        return function


@pytest.fixture
def stuck() -> Iterator[Stuck]:
    stuck = Stuck()
    yield stuck
    stuck.go.set()


class Running:
    """An engine with one worker in each pool, and no consumer."""

    def __init__(self, dataset: ps.Dataset, watch: Watch, listeners: list[Any] | None = None) -> None:
        self.watch = watch
        self.engine = engine_of(dataset, listeners=listeners or [], watch=watch)
        self.threads = [threading.Thread(target=work, args=(self.engine, pool, 0), name=f"w-{pool}") for pool in self.engine.pools]

    @property
    def scheduler(self) -> Scheduler:
        return self.engine.scheduler

    def __enter__(self) -> Running:
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.engine.stop()

    def end(self) -> None:
        for thread in self.threads:
            thread.join(LIMIT_S)
        assert not [thread for thread in self.threads if thread.is_alive()]


def looked_until(watch: Watch, kind: str | None, num_read: int = 0) -> int:
    """Look until the verdict comes; a look counts a slice at most, so it takes a few."""
    looks = threading.Event()
    for number in range(10_000):
        looks.wait(0.001)
        if watch.look(num_read) == kind:
            return number
    raise AssertionError(f"no {kind}")


@pytest.mark.parametrize(
    ("build", "stage", "element"),
    [
        (lambda f: ps.from_source(range(9)).map(f(4), name="m").batch(9), "m", "element epoch 0 index 4 (element 4 of range)"),
        (lambda f: ps.from_source(range(9)).flat_map(lambda x: [f(4)(x)], name="m"), "m", "element epoch 0 index 4 (element 4 of range)"),
        (
            lambda f: ps.from_source(range(9)).batch(3).map(lambda b: f(3)(b[0]), name="m"),
            "m",
            "element epoch 0 index 3 (element 3 of range)",
        ),
        (
            lambda f: ps.from_source(["abc"]).zip(ps.from_source([1]).map(f(1), name="m")),
            "m",
            "element epoch 0 index 0 (element 0 of list with ",
        ),
        (lambda f: ps.from_generator(lambda: map(f(4), range(9))), "read", "element epoch 0 index 4 (element 4 of generator "),
    ],
    ids=["map into a batch", "flat_map", "map above a batch", "branch", "generator"],
)
def test_the_facts_name_stage_and_element(build: Any, stage: str, element: str, stuck: Stuck) -> None:
    watch = Watch(0.05)
    with Running(build(stuck.at), watch) as running:
        assert stuck.there.wait(LIMIT_S)
        reader = running.scheduler.reader
        looked_until(watch, "stuck", 0 if reader is None else reader.num_read)
        for _ in range(1000):  # on a busy machine it has said that it is there, and does not wait yet
            facts = watch.situation("stuck", running.scheduler)
            (busy,) = [worker for worker in facts.busy if worker.stuck]
            if busy.stack[-2].function == "Event.wait":
                break
            threading.Event().wait(0.01)
        stuck.go.set()
    running.end()
    assert busy.stage == stage
    assert busy.element.startswith(element)
    assert busy.thread == ("w-reader" if busy.reader else "w-workers")
    assert busy.lasted_s >= 0.05
    assert busy.stack[-2].function == "Event.wait"
    assert busy.stack[-3].text == "self.go.wait()"
    assert not any("penstock/_engine" in call.file for call in busy.stack)


class Elsewhere(WorkerContext):
    """A worker whose elements are computed by another process, which is where it says."""

    __slots__ = ("errors",)

    def __init__(self) -> None:
        super().__init__(0)
        self.errors: list[BaseException] = []

    @property
    def pid(self) -> int | None:
        return os.getpid()

    def calls(self) -> list[tuple[str, int, str]] | None:
        return [("a.py", 3, "load"), ("b.py", 7, "decode")]

    def give_up(self, error: BaseException) -> bool:
        self.errors.append(error)
        return True


def test_of_a_worker_process_the_stack_is_its_own_and_it_is_given_up_where_it_is_stuck(stuck: Stuck) -> None:
    watch, worker = Watch(0.05, "skip"), Elsewhere()
    running = Running(ps.from_source(range(9)).map(stuck.at(4), name="m"), watch)
    running.threads = [threading.Thread(target=work, args=(running.engine, SHARED, 0, HERE, worker))]
    with running:
        assert stuck.there.wait(LIMIT_S)
        looked_until(watch, "stuck")
        facts = watch.situation("stuck", running.scheduler)
        running.engine._report_stall("stuck")
        stuck.go.set()
    running.end()
    (busy,) = [facts for facts in facts.busy if facts.stuck]
    assert [(call.file, call.line, call.function) for call in busy.stack] == [("a.py", 3, "load"), ("b.py", 7, "decode")]
    assert [type(error) for error in worker.errors] == [FeedStalled]
    assert not watch.give_up(FeedStalled("", where="", fix="")), "it has gone on"


def test_pools_have_words() -> None:
    scheduler = Scheduler(lower(ps.from_generator(lambda: iter("ab")).map(abs, name="own", concurrency=2)._root), 1, 1 << 20, Token((0, 0)))
    assert [pool_words(scheduler, pool) for pool in (SHARED, READER, IN_PROGRAM.pool, "0.1" if "0.1" in scheduler.pools else "0.0")] == [
        "shared workers",
        "readers of the generator",
        "thread that calls the functions of the program",
        "workers of stage 'own'",
    ]


def test_one_element_is_named_and_several_by_their_first() -> None:
    scheduler = Scheduler(lower(ps.from_source(range(9)).map(abs).batch(9)._root), 1, 1 << 20, Token((0, 0)))
    task = scheduler.next_task(SHARED, 0)
    assert task is not None
    monitor = WorkerMonitor(SHARED, WorkerContext(0))
    found = [element_of(scheduler, monitor, task._replace(begin=0, end=end)) for end in (1, 5)]
    assert found == ["element epoch 0 index 0 (element 0 of range)", "one of 5 elements from epoch 0 index 0 (element 0 of range) on"]


@pytest.mark.parametrize("never", [None, float("inf")])
def test_without_a_limit_nobody_looks(never: float | None) -> None:
    watch = Watch(never)
    assert watch.slice_s is None
    watch.begin(0)


def test_clocks_may_be_read_without_a_task() -> None:
    monitor = WorkerMonitor(SHARED, WorkerContext(0))
    assert monitor.read_clocks() >= 0
    monitor.grow(5_000_000, 0)
    assert monitor.watched_ns == 5_000_000
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
