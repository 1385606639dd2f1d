"""The collection of runners belongs to the context; each test has a context of its own."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import warnings
from collections.abc import Callable
from typing import Any

import pytest
from queues.hands import LIMIT_S, ended, hands

from penstock.errors import CoordinationError, PlanError, QueueClosed
from penstock.queues import Coordinator, FIFOQueue, QueueRunner, add_queue_runner, start_queue_runners


def in_a_context_of_its_own(test: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(test)
    def run(*arguments: Any, **options: Any) -> None:
        contextvars.Context().run(test, *arguments, **options)

    return run


def numbers(count: int, capacity: int = 3, name: str = "numbers") -> QueueRunner:
    return QueueRunner(FIFOQueue(capacity, name=name), [iter(range(count))])


def taken(runner: QueueRunner) -> list[int]:
    found = []
    while True:
        try:
            found.append(int(runner.queue.dequeue(timeout_s=LIMIT_S)))
        except QueueClosed:
            return found


@in_a_context_of_its_own
def test_all_runners_of_the_collection_are_started_and_their_threads_returned() -> None:
    coord, runners = Coordinator(), [numbers(5), numbers(7)]
    for runner in runners:
        add_queue_runner(runner)
    threads = start_queue_runners(coord)
    assert threads == [thread for runner in runners for thread in runner.threads()]
    assert [taken(runner) for runner in runners] == [list(range(5)), list(range(7))]
    coord.join(threads)


@in_a_context_of_its_own
def test_without_start_the_threads_are_only_made() -> None:
    runner = numbers(5)
    add_queue_runner(runner)
    (thread,) = start_queue_runners(start=False, daemon=False)
    assert thread.ident is None
    assert not thread.daemon
    thread.start()
    assert taken(runner) == list(range(5))
    assert ended([thread])


@in_a_context_of_its_own
def test_a_second_start_starts_only_what_was_added_meanwhile() -> None:
    coord, first, second = Coordinator(), numbers(10**9), numbers(4)
    add_queue_runner(first)
    add_queue_runner(first)
    assert len(start_queue_runners(coord)) == 1
    assert start_queue_runners(coord) == []
    add_queue_runner(second)
    assert start_queue_runners(coord) == list(second.threads())
    coord.request_stop()
    coord.join()


@in_a_context_of_its_own
def test_a_runner_that_has_ended_leaves_the_collection() -> None:
    for _ in range(3):  # as a cell of a notebook that is run again
        coord, runner = Coordinator(), numbers(4)
        add_queue_runner(runner)
        assert len(start_queue_runners(coord)) == 1
        assert taken(runner) == list(range(4))
        coord.join()
    assert start_queue_runners(Coordinator()) == []


@in_a_context_of_its_own
def test_a_closed_queue_is_refused_before_any_thread_is_made() -> None:
    first, second = numbers(4), numbers(4, name="second")
    second.queue.close()
    for runner in (first, second):
        add_queue_runner(runner)
    with pytest.raises(CoordinationError, match="queue 'second' is closed: "):
        start_queue_runners()
    assert first.threads() == ()


@in_a_context_of_its_own
def test_collections_of_other_names_are_apart() -> None:
    coord, train, test = Coordinator(), numbers(2), numbers(3)
    add_queue_runner(train)
    add_queue_runner(test, collection="test")
    assert start_queue_runners(coord, collection="test") == list(test.threads())
    assert train.threads() == ()
    assert taken(test) == [0, 1, 2]
    coord.join()


@in_a_context_of_its_own
def test_what_another_thread_adds_is_not_seen_here_and_a_start_without_any_runner_warns() -> None:
    with hands("other") as (other,):
        other.do(lambda: add_queue_runner(numbers(2)))
        with pytest.warns(RuntimeWarning) as caught:
            assert start_queue_runners() == []
        assert "no runner was added to 'queue_runners' in this context (thread 'MainThread')" in str(caught[0].message)
        assert caught[0].filename == __file__
        runner = numbers(2)
        add_queue_runner(runner)
        (thread,) = start_queue_runners()
        assert thread is runner.threads()[0]
        assert taken(runner) == [0, 1]
        assert ended([thread])


@in_a_context_of_its_own
def test_a_task_sees_what_its_creator_added_and_keeps_what_it_adds_to_itself() -> None:
    before, inside = numbers(2), numbers(3)

    async def task() -> list[Any]:
        add_queue_runner(inside)
        return start_queue_runners()

    async def main() -> list[Any]:
        return await asyncio.create_task(task())

    add_queue_runner(before)
    threads = asyncio.run(main())
    assert threads == [*before.threads(), *inside.threads()]
    assert taken(before) == [0, 1]
    assert taken(inside) == [0, 1, 2]
    assert ended(threads)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert start_queue_runners() == []


@in_a_context_of_its_own
def test_what_is_no_runner_and_no_coordinator_is_refused() -> None:
    with pytest.raises(PlanError) as caught:
        add_queue_runner(FIFOQueue(1))  # type: ignore[arg-type]
    assert caught.value.what.endswith("is no runner")
    add_queue_runner(numbers(1))
    with pytest.raises(PlanError) as caught:
        start_queue_runners("session")  # type: ignore[arg-type]
    assert caught.value.what == "'session' is no coordinator"
