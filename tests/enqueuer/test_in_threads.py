"""Workers as threads that share one iterator, and no worker: FAULTS B25, B30."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from enqueuer import feeding
from queues.crowd import together

import penstock as ps
from penstock.errors import StillRunning


class NotThreadSafe:
    """An iterator that notices when two threads are inside at once, as a generator does."""

    def __init__(self, num: int) -> None:
        self.num, self.number, self.inside = num, 0, False

    def __iter__(self) -> Iterator[int]:
        return self

    def __next__(self) -> int:
        assert not self.inside, "two threads at once"
        self.inside = True
        threading.Event().wait(0.0005)  # let the others try
        self.inside = False
        self.number += 1
        if self.number > self.num:
            raise StopIteration
        return self.number


def test_a_generator_shared_by_threads_runs_in_one_at_a_time_and_keeps_its_order() -> None:
    enqueuer = ps.GeneratorEnqueuer(NotThreadSafe(200))
    enqueuer.start(workers=5)
    assert list(enqueuer.get()) == list(range(1, 201))
    enqueuer.stop()


class MeetsOthers:
    """A thread-safe iterator whose calls wait for each other: with a guard nobody would ever come."""

    def __init__(self, parties: int) -> None:
        self.barrier, self.lock, self.number = threading.Barrier(parties, timeout=60), threading.Lock(), 0

    def __iter__(self) -> Iterator[int]:
        return self

    def __next__(self) -> int:
        with self.lock:
            number = self.number
            self.number += 1
        if number >= 30:
            raise StopIteration
        self.barrier.wait()
        return number


def test_a_thread_safe_iterator_is_called_by_all_threads_side_by_side() -> None:
    enqueuer = ps.GeneratorEnqueuer(MeetsOthers(3), thread_safe=True)
    enqueuer.start(workers=3)
    assert sorted(enqueuer.get()) == list(range(30))
    enqueuer.stop()


def test_a_thread_that_does_not_stop_is_named_and_the_caller_goes_on() -> None:
    leave, inside = threading.Event(), threading.Event()

    def stuck() -> Iterator[int]:
        yield 0
        inside.set()
        leave.wait()

    enqueuer = ps.GeneratorEnqueuer(stuck())
    enqueuer.start(1)
    assert next(enqueuer.get()) == 0
    assert inside.wait(60)
    with pytest.raises(StillRunning) as caught:
        enqueuer.stop(0.05)
    assert caught.value.what == "1 thread(s) did not stop inside 0.05 s: penstock-enqueuer-0"
    assert caught.value.where.startswith("GeneratorEnqueuer(")
    assert not enqueuer.is_running()
    leave.set()


def test_stop_ends_threads_that_wait_for_room_and_for_their_turn() -> None:
    full = threading.Event()

    def endless() -> Iterator[int]:
        for number in range(10**9):
            if number == 2:  # two stand in the queue, this one is in hand
                full.set()
            yield number

    enqueuer = ps.GeneratorEnqueuer(endless(), False)
    enqueuer.start(8, 2)
    assert full.wait(60)
    enqueuer.stop(60)


def test_a_generator_that_was_made_here_is_closed_and_the_users_own_is_not() -> None:
    closed: list[str] = []

    def rows(name: str) -> Iterator[int]:
        try:
            yield from range(10**9)
        finally:
            closed.append(name)

    own = rows("own")
    for given in (own, lambda: rows("made")):
        for workers in (0, 2):
            enqueuer = ps.GeneratorEnqueuer(given)
            enqueuer.start(workers, 2)
            next(enqueuer.get())
            enqueuer.stop(60)
    assert closed == ["made", "made"]
    own.close()


def test_a_generator_object_goes_on_where_it_was_after_stop_and_start() -> None:
    generator = feeding.twenty()
    enqueuer = ps.GeneratorEnqueuer(generator)
    enqueuer.start(0)
    items = enqueuer.get()
    assert [next(items) for _ in range(5)] == [0, 1, 2, 3, 4]
    enqueuer.stop()
    enqueuer.start(1)
    assert list(enqueuer.get()) == list(range(5, 20))
    enqueuer.stop()


def test_no_worker_and_several_threads_that_take_run_the_generator_one_at_a_time() -> None:
    enqueuer = ps.GeneratorEnqueuer(NotThreadSafe(60))
    enqueuer.start(0)
    got: list[Any] = []
    together(*[lambda: got.extend(enqueuer.get())] * 4)
    enqueuer.stop()
    assert sorted(got) == list(range(1, 61))
