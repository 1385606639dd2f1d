"""The four queues against plain lists, and by many threads: nothing is lost, nothing comes twice, nobody waits for ever."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from queues.crowd import LIMIT_S, together

from penstock.errors import EnqueueCancelled, QueueClosed, QueueTimeout
from penstock.queues import FIFOQueue, PaddingFIFOQueue, PriorityQueue, RandomShuffleQueue
from penstock.queues.base import Queue

KINDS: dict[str, Callable[[int], Queue]] = {
    "fifo": FIFOQueue,
    "padding": PaddingFIFOQueue,
    "random": lambda capacity: RandomShuffleQueue(capacity, capacity // 4, seed=1),
    "priority": PriorityQueue,
}


class OfList(RuleBasedStateMachine):
    """A FIFOQueue of tuples (priority, serial number and what fills it up) does what a list does."""

    kind = "fifo"
    capacity = 5
    margin = 0

    def __init__(self) -> None:
        super().__init__()
        self.queue = KINDS[self.kind](self.capacity)
        self.items: list[tuple[int, list[int]]] = []
        self.serial = 0
        self.closed = False

    def element(self, priority: int, length: int) -> tuple[int, list[int]]:
        self.serial += 1
        return priority, [self.serial] * length

    def next_of(self, _: int) -> int:
        """Return the place of what comes next, given the serial number that the queue gave."""
        return 0

    def expect(self, serials: list[int]) -> list[tuple[int, list[int]]]:
        return [self.items.pop(self.next_of(serial)) for serial in serials]

    def available(self) -> int:
        return len(self.items) - (0 if self.closed else self.margin)

    @rule(priority=st.integers(-2, 2), length=st.integers(1, 3))
    def enqueue(self, priority: int, length: int) -> None:
        item = self.element(priority, length)
        if self.closed or len(self.items) >= self.capacity:
            with pytest.raises(EnqueueCancelled if self.closed else QueueTimeout):
                self.queue.enqueue((item[0], np.array(item[1])), timeout_s=0)
        else:
            self.queue.enqueue((item[0], np.array(item[1])), timeout_s=0)
            self.items.append(item)

    @rule(priorities=st.lists(st.integers(-2, 2), max_size=8), length=st.integers(1, 3))
    def enqueue_many(self, priorities: list[int], length: int) -> None:
        items = [self.element(priority, length) for priority in priorities]
        batch = priorities, np.array([item[1] for item in items]).reshape(len(items), length)
        room = 0 if self.closed else max(0, self.capacity - len(self.items))
        if self.closed or len(items) > room:
            with pytest.raises(EnqueueCancelled if self.closed else QueueTimeout) as caught:
                self.queue.enqueue_many(batch, timeout_s=0)
            assert caught.value.num_done == room
        else:
            self.queue.enqueue_many(batch, timeout_s=0)
        self.items += items[:room]

    @rule()
    def dequeue(self) -> None:
        if self.available() < 1:
            with pytest.raises(QueueClosed if self.closed else QueueTimeout):
                self.queue.dequeue(timeout_s=0)
            return
        priority, array = self.queue.dequeue(timeout_s=0)
        assert [(priority, array.tolist())] == self.expect([array[0]])

    @rule(n=st.integers(1, 8), whole=st.booleans())
    def dequeue_some(self, n: int, whole: bool) -> None:
        call = self.queue.dequeue_many if whole else self.queue.dequeue_up_to
        available = max(0, self.available())
        if available < n and (whole or not self.closed or available == 0):
            with pytest.raises(QueueClosed if self.closed else QueueTimeout) as caught:
                call(n, timeout_s=0)
            assert not self.closed or available == 0 or f"only {available} element" in caught.value.what
            return
        fits = len({len(item[1]) for item in self.items}) == 1
        if self.kind != "padding" and not fits:
            return  # which would be refused or not, as the lengths fall
        priorities, arrays = call(n, timeout_s=0)
        items = self.expect(arrays[:, 0].tolist())
        assert len(items) == min(n, available)
        width = max(len(item[1]) for item in items)
        assert priorities.tolist() == [item[0] for item in items]
        assert arrays.tolist() == [item[1] + [0] * (width - len(item[1])) for item in items]

    @precondition(lambda self: self.serial > 12)
    @rule(cancel=st.booleans())
    def close(self, cancel: bool) -> None:
        self.queue.close(cancel_pending_enqueues=cancel)
        self.closed = True

    @invariant()
    def the_size_is_that_of_the_list(self) -> None:
        assert self.queue.size() == len(self.items)
        assert self.queue.is_closed() == self.closed


class PaddingOfList(OfList):
    kind = "padding"


class RandomOfList(OfList):
    """Any may come next, each once, and one is left in until the end."""

    kind = "random"
    margin = 1

    def next_of(self, serial: int) -> int:
        return [item[1][0] for item in self.items].index(serial)


class PriorityOfList(OfList):
    kind = "priority"

    def next_of(self, _: int) -> int:
        return min(range(len(self.items)), key=lambda place: (self.items[place][0], self.items[place][1][0]))


def _case(machine: type[RuleBasedStateMachine]) -> Any:
    case = machine.TestCase
    case.settings = settings(stateful_step_count=30)
    return case


TestFIFOQueueOfList = _case(OfList)
TestPaddingFIFOQueueOfList = _case(PaddingOfList)
TestRandomShuffleQueueOfList = _case(RandomOfList)
TestPriorityQueueOfList = _case(PriorityOfList)


class Visitor:
    """One thread's random calls, and what they moved. Elements are (priority, thread and serial number in one)."""

    def __init__(self, queue: Queue, number: int, calls: int) -> None:
        self.queue, self.number, self.calls = queue, number, calls
        self.random = random.Random(number)
        self.put: list[int] = []
        self.got: list[int] = []
        self.serial = number * 10_000_000

    def fresh(self, count: int) -> list[int]:
        self.serial += count
        return list(range(self.serial - count, self.serial))

    def run(self) -> None:
        for _ in range(self.calls):
            try:
                self.call(self.random.random(), self.random.choice((0, 0, 0, 0.0005)))
            except QueueTimeout:
                continue

    def call(self, which: float, timeout_s: float) -> None:
        if which < 0.4:
            [number] = self.fresh(1)
            self.queue.enqueue((self.random.randrange(3), number), timeout_s)
            self.put.append(number)
        elif which < 0.5:
            numbers = self.fresh(self.random.randrange(6))
            try:
                self.queue.enqueue_many(([0] * len(numbers), numbers), timeout_s)
            except QueueTimeout as error:
                numbers = numbers[: error.num_done]
                raise
            finally:
                self.put += numbers
        elif which < 0.8:
            self.got.append(self.queue.dequeue(timeout_s)[1])
        else:
            call = self.queue.dequeue_many if which < 0.9 else self.queue.dequeue_up_to
            self.got += call(self.random.randrange(1, 12), timeout_s)[1].tolist()


def check_order(got: list[int]) -> None:
    """What one reader got of each writer is in the order in which that one put it in."""
    for number in range(8):
        own = [serial for serial in got if serial // 10_000_000 == number]
        assert own == sorted(own)


def many_threads(kind: str, calls: int) -> None:
    queue = KINDS[kind](8)
    visitors = [Visitor(queue, number, calls // 8) for number in range(8)]
    together(*[visitor.run for visitor in visitors])
    queue.close()
    rest = [] if queue.size() == 0 else queue.dequeue_up_to(1000)[1].tolist()
    got = Counter(serial for visitor in visitors for serial in visitor.got) + Counter(rest)
    assert got == Counter(serial for visitor in visitors for serial in visitor.put)
    assert sum(got.values()) > calls / 10
    if kind in ("fifo", "padding"):
        for serials in (rest, *(visitor.got for visitor in visitors)):
            check_order(serials)


@pytest.mark.parametrize("kind", KINDS)
def test_random_calls_of_8_threads_lose_nothing_give_nothing_twice_and_keep_the_order(kind: str) -> None:
    many_threads(kind, 20_000)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_many_random_calls_of_8_threads_lose_nothing_give_nothing_twice_and_keep_the_order(kind: str) -> None:
    many_threads(kind, 300_000)


@pytest.mark.parametrize("kind", KINDS)
def test_4_writers_and_4_readers_without_time_limits_move_everything_until_the_end(kind: str) -> None:
    queue, each = KINDS[kind](4), 2000
    writing = threading.Barrier(4)
    got: list[list[int]] = [[] for _ in range(4)]

    def write(number: int) -> None:
        for serial in range(0, each, 4):
            first = number * 10_000_000 + serial
            if serial % 8:
                queue.enqueue_many(([0] * 4, list(range(first, first + 4))))
            else:
                for one in range(first, first + 4):
                    queue.enqueue((0, one))
        writing.wait(LIMIT_S)
        queue.close()

    def read(mine: list[int], many: bool) -> None:
        try:
            while True:
                mine.extend(queue.dequeue_up_to(7)[1].tolist() if many else [queue.dequeue()[1]])
        except QueueClosed:
            return

    together(
        *[lambda number=number: write(number) for number in range(4)],  # type: ignore[misc]
        *[lambda mine=mine, many=bool(place % 2): read(mine, many) for place, mine in enumerate(got)],  # type: ignore[misc]
    )
    assert sorted(serial for mine in got for serial in mine) == [
        number * 10_000_000 + serial for number in range(4) for serial in range(each)
    ]
    if kind in ("fifo", "padding", "priority"):
        for mine in got:
            check_order(mine)
