"""Waits and their ends, with real threads. What each kind gives in which order is in test_kinds.py and laws/test_queues.py."""

from __future__ import annotations

import copy
import math
import pickle
import threading
import time
from typing import Any

import numpy as np
import pytest
from queues.crowd import LIMIT_S, Crowd, lined_up

from penstock._contracts.event import BatchDelivered, BatchEnqueued, Event
from penstock._system.memory import free_memory
from penstock.errors import EnqueueCancelled, PlanError, QueueClosed, QueueTimeout, SpecError
from penstock.queues import FIFOQueue, PaddingFIFOQueue, PriorityQueue, RandomShuffleQueue
from penstock.queues.base import Queue, living_queues

KINDS: list[Any] = [
    pytest.param(FIFOQueue, id="fifo"),
    pytest.param(PaddingFIFOQueue, id="padding"),
    pytest.param(lambda capacity, **options: RandomShuffleQueue(capacity, 0, **options), id="random"),
    pytest.param(PriorityQueue, id="priority"),
]


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> Any:
    """Return what makes a queue of a capacity. Elements are (number, array)."""
    return request.param


def element(number: int) -> tuple[int, Any]:
    return number, np.full(2, number)


def numbers_of(batch: Any) -> list[int]:
    assert np.array_equal(batch[1], np.stack([np.full(2, number) for number in batch[0]]))
    return sorted(batch[0].tolist())


def fill(queue: Queue, *numbers: int) -> None:
    for number in numbers:
        queue.enqueue(element(number))


# -- waits ------------------------------------------------------------------------------------------------------------------------


def test_who_waits_is_served_in_the_order_of_coming(kind: Any) -> None:
    queue, served = kind(4), []
    with Crowd() as crowd:
        for number in range(6):
            crowd.start(lambda number=number: served.append((number, queue.dequeue()[0])))
            lined_up(queue, readers=number + 1)
        for number in range(6):
            fill(queue, number)
            crowd.threads[number].join(LIMIT_S)
    assert served == [(number, number) for number in range(6)]


def test_nobody_takes_what_the_first_in_line_waits_for(kind: Any) -> None:
    queue = kind(4)
    fill(queue, 1)
    with Crowd() as crowd:
        many: list[Any] = []
        crowd.start(lambda: many.append(numbers_of(queue.dequeue_many(2))))
        lined_up(queue, readers=1)
        with pytest.raises(QueueTimeout):
            queue.dequeue(timeout_s=0)
        fill(queue, 2)
    assert many == [[1, 2]]


def test_a_wait_costs_no_cpu(kind: Any) -> None:
    queue, used = kind(2), []

    def wait() -> None:
        before = time.thread_time()
        queue.dequeue()
        used.append(time.thread_time() - before)

    with Crowd() as crowd:
        crowd.start(wait)
        lined_up(queue, readers=1)
        before = time.thread_time()
        with pytest.raises(QueueTimeout):
            queue.dequeue_many(2, timeout_s=1.0)  # behind the other
        used.append(time.thread_time() - before)
        fill(queue, 1)
    assert all(seconds < 0.2 for seconds in used)


# -- time limits ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("timeout_s", [0, 0.0, 0.001, np.float32(0.001), 0.05])
def test_a_call_whose_time_is_over_says_so_and_leaves_everything_as_it_was(kind: Any, timeout_s: float) -> None:
    queue = kind(3)
    with pytest.raises(QueueTimeout) as caught:
        queue.dequeue(timeout_s=timeout_s)
    assert caught.value.what.startswith("1 element did not come within 0")
    assert "0 of 3 elements in it" in caught.value.where
    fill(queue, 1, 2)
    for call in (queue.dequeue_many, queue.dequeue_up_to):
        with pytest.raises(QueueTimeout, match="3 elements did not come"):
            call(3, timeout_s=timeout_s)
        with pytest.raises(QueueTimeout):
            call(7, timeout_s=timeout_s)
    fill(queue, 3)
    with pytest.raises(QueueTimeout):
        queue.dequeue_many(7, timeout_s=timeout_s)  # more than the capacity: it had gathered all three
    with pytest.raises(QueueTimeout, match=r"^there was no room within 0"):
        queue.enqueue(element(4), timeout_s=timeout_s)
    assert numbers_of(queue.dequeue_many(3, timeout_s=0)) == [1, 2, 3]


def test_a_write_of_many_whose_time_is_over_says_how_many_are_in(kind: Any) -> None:
    queue = kind(3)
    with pytest.raises(QueueTimeout) as caught:
        queue.enqueue_many((list(range(5)), np.repeat(np.arange(5), 2).reshape(5, 2)), timeout_s=0.01)
    assert caught.value.num_done == 3
    assert "3 of 5 elements are in" in caught.value.what
    assert pickle.loads(pickle.dumps(caught.value)).num_done == 3
    assert numbers_of(queue.dequeue_many(3)) == [0, 1, 2]


@pytest.mark.parametrize("timeout_s", [-1, -0.001, float("nan"), True, "1", [1]])
def test_a_time_limit_that_is_none_is_refused_by_every_call_and_moves_nothing(kind: Any, timeout_s: Any) -> None:
    queue = kind(3)
    fill(queue, 1)
    calls = [
        lambda: queue.enqueue(element(2), timeout_s=timeout_s),
        lambda: queue.enqueue_many(([2], [[2, 2]]), timeout_s=timeout_s),
        lambda: queue.dequeue(timeout_s=timeout_s),
        lambda: queue.dequeue_many(1, timeout_s=timeout_s),
        lambda: queue.dequeue_up_to(1, timeout_s=timeout_s),
    ]
    for call in calls:
        with pytest.raises(PlanError, match="timeout_s is"):
            call()
    assert queue.size() == 1


# -- the end ----------------------------------------------------------------------------------------------------------------------


def test_after_the_end_what_is_left_can_be_taken_and_then_every_read_says_so(kind: Any) -> None:
    queue = kind(4)
    fill(queue, 1, 2, 3)
    queue.close()
    queue.close()
    assert queue.is_closed()
    with pytest.raises(QueueClosed) as caught:
        queue.dequeue_many(4)
    assert caught.value.what == "the queue is closed, and only 3 elements are left of the 4 asked for"
    assert "dequeue_up_to" in caught.value.fix
    assert queue.size() == 3
    assert sorted(numbers_of(queue.dequeue_up_to(2)) + numbers_of(queue.dequeue_up_to(5))) == [1, 2, 3]
    for _ in range(3):
        for call in (queue.dequeue, lambda: queue.dequeue_many(1), lambda: queue.dequeue_up_to(1)):
            with pytest.raises(QueueClosed) as caught:
                call()
            assert caught.value.what == "the queue is closed, and no element is left of the 1 asked for"
            assert not isinstance(caught.value, EnqueueCancelled)
    with pytest.raises(EnqueueCancelled, match="the queue is closed and takes nothing more"):
        fill(queue, 4)


def test_the_end_wakes_everybody_who_waits_for_what_will_not_come(kind: Any) -> None:
    queue, ends = kind(4), []
    queue.patience_s = math.inf  # on a busy machine it takes long until all have started

    def wait(number: int) -> None:
        call = [queue.dequeue, lambda: queue.dequeue_many(3), lambda: queue.dequeue_up_to(2), lambda: queue.dequeue(timeout_s=LIMIT_S)]
        with pytest.raises(QueueClosed):
            call[number % 4]()
        ends.append(number)

    with Crowd() as crowd:
        crowd.start(*[lambda number=number: wait(number) for number in range(1000)])
        lined_up(queue, readers=1000)
        queue.close()
    assert sorted(ends) == list(range(1000))


def test_the_end_with_a_cancel_ends_writers_who_say_how_many_are_in(kind: Any) -> None:
    queue, errors = kind(2), []

    def write() -> None:
        with pytest.raises(EnqueueCancelled) as caught:
            queue.enqueue_many(([1, 2, 3], [[1, 1], [2, 2], [3, 3]]))
        errors.append(caught.value)

    with Crowd() as crowd:
        crowd.start(write)
        lined_up(queue, writers=1)
        queue.close()
        queue.close(cancel_pending_enqueues=True)
    assert errors[0].num_done == 2
    assert "2 of 3 elements are in" in errors[0].what
    assert numbers_of(queue.dequeue_many(2)) == [1, 2]


def test_leaving_a_with_block_closes_and_cancels(kind: Any) -> None:
    ends = []

    def write() -> None:
        with pytest.raises(EnqueueCancelled):
            fill(queue, 2)
        ends.append("cancelled")

    with Crowd() as crowd:
        with kind(1) as queue:
            fill(queue, 1)
            crowd.start(write)
            lined_up(queue, writers=1)
        assert queue.is_closed()
    assert ends == ["cancelled"]


# -- long waits -------------------------------------------------------------------------------------------------------------------


def test_a_long_wait_whose_warning_is_an_error_loses_nothing(kind: Any) -> None:
    queue, leave = kind(2, name="images"), threading.Event()
    queue.patience_s = 0.03
    with Crowd() as crowd:
        crowd.start(lambda: (queue.enqueue_many(([1, 2], [[1, 1], [2, 2]])), leave.wait(LIMIT_S)))
        with pytest.raises(RuntimeWarning, match="has waited 0 s for 7 elements"):
            queue.dequeue_many(7)
        with pytest.raises(RuntimeWarning, match="has waited 0 s for room for 2 elements") as caught:
            queue.enqueue_many(([3, 4], [[3, 3], [4, 4]]))
        assert caught.value.__notes__ == [f"0 of 2 elements are in {queue._label}"]
        leave.set()
    assert numbers_of(queue.dequeue_many(2)) == [1, 2]


# -- events -----------------------------------------------------------------------------------------------------------------------


def test_every_call_that_moves_elements_is_announced_with_its_wait_and_what_is_left(kind: Any) -> None:
    heard: list[Event] = []
    queue = kind(4, listeners=[heard.append])
    queue.enqueue_many(([1, 2, 3], [[1, 1], [2, 2], [3, 3]]))
    queue.enqueue_many(([], np.zeros((0, 2))))
    fill(queue, 4)
    queue.dequeue()
    queue.dequeue_many(2)
    assert [(type(event), event[2:4]) for event in heard] == [
        (BatchEnqueued, (3, 3)),
        (BatchEnqueued, (4, 1)),
        (BatchDelivered, (3, 1)),
        (BatchDelivered, (1, 2)),
    ]
    with pytest.raises(QueueTimeout):
        queue.dequeue_many(2, timeout_s=0)
    assert len(heard) == 4
    with Crowd() as crowd:
        crowd.start(lambda: (lined_up(queue, readers=1), fill(queue, 5)))
        queue.dequeue_many(2)
    assert [event.wait_ns > 0 for event in heard[-2:] if isinstance(event, BatchDelivered)] == [True]


def test_a_listener_that_fails_loses_nothing(kind: Any) -> None:
    def fail(event: Event) -> None:
        if isinstance(event, BatchDelivered):
            raise OSError("the disk is full")

    queue = kind(4, listeners=[fail])
    fill(queue, 1, 2, 3)
    for call in (queue.dequeue, lambda: queue.dequeue_many(2)):
        with pytest.raises(OSError, match="the disk is full"):
            call()
    queue._listeners.clear()
    assert numbers_of(queue.dequeue_many(3)) == [1, 2, 3]


# -- what it is -------------------------------------------------------------------------------------------------------------------


def test_it_tells_its_name_capacity_and_state(kind: Any) -> None:
    queue = kind(4, name="images")
    fill(queue, 1)
    queue.close()
    assert (queue.name, queue.capacity, queue.size(), queue.is_closed()) == ("images", 4, 1, True)
    assert repr(queue) == f"<{type(queue).__name__} 'images': 1 of 4, closed>"
    assert kind(4).name == type(queue).__name__


@pytest.mark.parametrize("capacity", [0, -1, True, 2.0, float("inf"), None, "3"])
def test_a_capacity_that_is_none_is_refused(kind: Any, capacity: Any) -> None:
    with pytest.raises(PlanError, match="capacity is"):
        kind(capacity)


@pytest.mark.parametrize("n", [0, -1, True, 2.0, None])
def test_a_number_to_take_that_is_none_is_refused_and_takes_nothing(kind: Any, n: Any) -> None:
    queue = kind(3)
    fill(queue, 1)
    for call in (queue.dequeue_many, queue.dequeue_up_to):
        with pytest.raises(PlanError, match="n is"):
            call(n)
    assert queue.size() == 1


def test_a_name_that_is_none_is_refused(kind: Any) -> None:
    with pytest.raises(PlanError, match="name is 7"):
        kind(3, name=7)


def test_it_cannot_be_copied_or_sent(kind: Any) -> None:
    for call in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(PlanError, match="cannot be copied or sent to another process"):
            call(kind(3))


def test_elements_that_do_not_stack_stay_in_and_can_be_taken_one_by_one(kind: Any) -> None:
    queue = kind(3)
    queue.enqueue((1, np.zeros(2)))
    queue.enqueue((2, np.zeros((2, 2), np.int8)))
    with pytest.raises(SpecError, match="nothing was taken"):
        queue.dequeue_many(2)
    assert sorted(queue.dequeue()[0] for _ in range(2)) == [1, 2]


@pytest.mark.parametrize("way", ["enqueue", "enqueue_many"])
def test_a_queue_that_full_takes_more_than_half_of_the_free_memory_warns_at_the_first_element(way: str) -> None:
    free = free_memory()
    assert free is not None
    element = np.zeros(1 << 20, np.uint8)
    capacity = int(0.6 * free) >> 20
    queue = RandomShuffleQueue(capacity, 10, name="images")
    with pytest.warns(
        RuntimeWarning, match=r"'images' \(made at .*test_base.py:\d+\) has room for .*: full, it takes .* min_after"
    ) as caught:
        queue.enqueue(element) if way == "enqueue" else queue.enqueue_many(element[None])
    assert caught[0].filename == __file__
    queue.enqueue(element)  # no second warning
    smaller = FIFOQueue(capacity // 3, dtypes=[np.uint8], shapes=[(1 << 20,)])
    smaller.enqueue(element)


def test_a_queue_says_about_how_much_memory_its_elements_take(kind: Any) -> None:
    queue = kind(2000)
    assert queue.num_bytes() == 0
    queue.enqueue((1, np.zeros(125)))
    assert queue.num_bytes() == pytest.approx(1000, abs=24)
    for number in range(999):
        queue.enqueue((number, np.zeros(125 * (1 + number % 2))))
    assert queue.num_bytes() == pytest.approx(1_500_000, rel=0.1)
    assert queue in living_queues()


def test_an_element_that_cannot_be_weighed_is_enqueued() -> None:
    class Odd:
        @property
        def nbytes(self) -> int:
            raise ValueError("not known")

    element = Odd()
    queue = FIFOQueue(4)
    queue.enqueue(element)
    assert queue.num_bytes() == 0
    assert queue.dequeue() is element
