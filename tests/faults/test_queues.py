"""Queues under signals, asynchronous exceptions and finalisers: nothing is lost, nothing comes twice, nobody hangs."""

from __future__ import annotations

import ctypes
import gc
import itertools
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from queues.crowd import LIMIT_S, Crowd, lined_up, together

from penstock.errors import QueueClosed, QueueTimeout
from penstock.queues import FIFOQueue, PriorityQueue, RandomShuffleQueue
from penstock.queues.base import Queue

MAKERS: list[Any] = [
    pytest.param(FIFOQueue, id="fifo"),
    pytest.param(lambda capacity: RandomShuffleQueue(capacity, 0, seed=1), id="random"),
    pytest.param(PriorityQueue, id="priority"),
]


class Interrupted(BaseException):
    """What a signal handler raises."""


class Storm:
    """Sends a signal to the main thread all the time; each raises once in what runs between `aim` and the end of that call."""

    def __init__(self) -> None:
        self.armed, self.hits = False, 0
        self._over = threading.Event()

    def _handle(self, number: int, frame: Any) -> None:
        if self.armed:
            self.armed = False
            self.hits += 1
            raise Interrupted

    def _send(self) -> None:
        while not self._over.wait(0.0001):
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)

    @contextmanager
    def blowing(self) -> Iterator[None]:
        before = signal.signal(signal.SIGUSR1, self._handle)
        gc.disable()  # an exception in somebody's callback of the collector would be swallowed there
        thread = threading.Thread(target=self._send, daemon=True)
        thread.start()
        try:
            yield
        finally:
            self.armed = False
            self._over.set()
            thread.join(LIMIT_S)
            gc.enable()
            signal.signal(signal.SIGUSR1, before)

    def run(self, call: Callable[[], Any]) -> bool:
        """Call, aimed at; return whether it came to its end."""
        try:
            self.armed = True
            call()
            self.armed = False
        except Interrupted:
            return False
        return True


@pytest.mark.parametrize("make", MAKERS)
def test_a_reader_that_is_interrupted_anywhere_loses_nothing(nervous: None, make: Any) -> None:
    queue, storm, got = make(3), Storm(), []
    held: list[Any] = []  # appending to it is the first thing that happens to a result, and cannot be interrupted
    calls = [
        lambda: held.append(queue.dequeue(timeout_s=5.0)),
        lambda: held.append(queue.dequeue_many(2, timeout_s=5.0)),
        lambda: held.append(queue.dequeue_up_to(5, timeout_s=5.0)),
        lambda: held.append(queue.dequeue(timeout_s=0)),
    ]

    def write(first: int) -> None:
        for number in range(first, first + 3000):
            queue.enqueue((0, number))

    with Crowd() as crowd, storm.blowing():
        crowd.start(lambda: write(0), lambda: write(10_000))
        for number in itertools.count():
            call = calls[number % 4] if len(got) < 5980 else calls[0]
            try:
                storm.run(call)
            except QueueTimeout:
                storm.armed = False
                if call is not calls[3]:
                    break
            while held:
                got += np.atleast_1d(held.pop()[1]).tolist()
            if len(got) >= 6000:
                break
    assert sorted(got) == [*range(3000), *range(10_000, 13_000)]
    assert storm.hits > 20


@pytest.mark.parametrize("make", MAKERS)
def test_a_writer_that_is_interrupted_anywhere_puts_each_element_in_once_at_most(nervous: None, make: Any) -> None:
    queue, storm = make(3), Storm()
    got: list[list[int]] = [[], []]
    certain: list[int] = []

    def read(mine: list[int]) -> None:
        try:
            while True:
                mine.append(queue.dequeue()[1])
        except QueueClosed:
            return

    def write(numbers: list[int]) -> None:
        if storm.run(lambda: queue.enqueue_many(([0] * len(numbers), numbers)) if numbers[1:] else queue.enqueue((0, numbers[0]))):
            certain.extend(numbers)

    with Crowd() as crowd, storm.blowing():
        crowd.start(*[lambda mine=mine: read(mine) for mine in got])
        for first in range(0, 6000, 5):
            write([first])
            write(list(range(first + 1, first + 5)))
        queue.close()
    counts = Counter(got[0] + got[1])
    assert set(counts.values()) == {1}
    assert set(certain) <= set(counts) <= set(range(6000))
    assert storm.hits > 20
    if make is FIFOQueue:
        assert all(mine == sorted(mine) for mine in got)


def test_ctrl_c_ends_a_call_that_waits_and_everything_stays_as_it_was() -> None:
    queue = FIFOQueue(2)
    queue.enqueue_many([1, 2])
    waits: list[tuple[Callable[[], object], dict[str, int]]] = [
        (lambda: queue.enqueue(3), {"writers": 1}),
        (lambda: queue.enqueue_many([3, 4]), {"writers": 1}),
        (lambda: queue.dequeue_many(5), {"readers": 1}),
        (lambda: queue.dequeue_up_to(5, timeout_s=LIMIT_S), {"readers": 1}),
    ]
    for call, lines in waits:
        caught = threading.Event()

        def press(lines: dict[str, int] = lines, caught: threading.Event = caught) -> None:
            lined_up(queue, **lines)
            while not caught.is_set():  # CPython forgets to look at a signal that comes right before the thread sleeps
                signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
                caught.wait(1.0)

        with Crowd() as crowd:
            crowd.start(press)
            with pytest.raises(KeyboardInterrupt):
                call()
            caught.set()
        assert queue.size() == 2
        lined_up(queue)
    assert queue.dequeue_many(2).tolist() == [1, 2]


@pytest.mark.usefixtures("nervous", "no_collections")  # an exception that hits a callback of the collector is lost
def test_an_exception_thrown_into_a_thread_anywhere_leaves_the_queue_to_the_others() -> None:
    queue, over = FIFOQueue(2), threading.Event()
    moved = [0]

    def move() -> None:
        while not over.is_set():
            try:
                queue.enqueue(1, timeout_s=0.01)
                queue.dequeue(timeout_s=0.01)
                moved[0] += 1
            except QueueTimeout:
                continue

    def victim() -> None:
        while not over.is_set():
            try:
                move()
            except Interrupted:
                hits.append(1)

    def other() -> None:
        while not over.is_set():
            try:
                queue.enqueue(2, timeout_s=0.001)
                queue.dequeue(timeout_s=0.001)
            except QueueTimeout:
                continue

    hits: list[int] = []
    with Crowd() as crowd:
        [thread] = crowd.start(victim)
        crowd.start(other)
        for _ in range(200):
            seen, before = len(hits), moved[0]
            pause = threading.Event()
            while moved[0] == before and thread.is_alive():  # so it is inside of `move`
                try:  # the victim may have left its last element in: make room
                    queue.dequeue(timeout_s=0.0005)
                except QueueTimeout:
                    continue
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident or 0), ctypes.py_object(Interrupted))
            while len(hits) == seen and thread.is_alive():
                pause.wait(0.0002)
        over.set()
    assert len(hits) == 200


def test_a_signal_handler_may_look_at_a_queue_fill_it_and_close_it(nervous: None) -> None:
    queue, sent, over = FIFOQueue(10**6), [0], threading.Event()

    def handle(number: int, frame: Any) -> None:
        if sent[0] >= 300:
            return
        queue.size()
        queue.enqueue(-1)
        sent[0] += 1
        if sent[0] == 300:
            queue.close(cancel_pending_enqueues=True)

    def send() -> None:
        while not over.wait(0.0001):
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)
            if sent[0] >= 300:
                return

    before = signal.signal(signal.SIGUSR1, handle)
    got, put = Counter[int](), 0
    try:
        with Crowd() as crowd:
            crowd.start(send)
            try:
                while True:
                    queue.enqueue(put)
                    put += 1
                    got[queue.dequeue()] += 1
            except QueueClosed:
                over.set()
    finally:
        signal.signal(signal.SIGUSR1, before)
    while queue.size():
        got[queue.dequeue()] += 1
    assert got.pop(-1) == sent[0] == 300
    assert set(got) - {put} == set(range(put))  # the last one was in, or was cancelled
    assert set(got.values()) == {1}


class PutsWhenGone:
    """Puts a number into a queue in its finaliser."""

    def __init__(self, queue: Queue, number: int) -> None:
        self.queue, self.number, self.itself = queue, number, self

    def __del__(self) -> None:
        self.queue.enqueue(self.number)


def test_finalisers_that_run_inside_a_queue_may_fill_it(nervous: None) -> None:
    queue, got = FIFOQueue(10**6), []
    thresholds = gc.get_threshold()

    def drop() -> None:
        for number in range(1500):
            PutsWhenGone(queue, number)  # a cycle: only the collector ends it, in whatever the thread does then
            queue.enqueue(-1)
        gc.collect()

    def take() -> None:
        while len(got) < 3000:
            got.append(queue.dequeue(timeout_s=LIMIT_S))
            garbage: list[Any] = [[] for _ in range(10)]
            del garbage

    gc.set_threshold(5, 2, 2)
    try:
        together(drop, take)
    finally:
        gc.set_threshold(*thresholds)
    assert sorted(number for number in got if number >= 0) == list(range(1500))


def test_100000_tiny_elements_through_a_reader_that_stops_and_goes_come_whole() -> None:
    queue, got = FIFOQueue(64), []

    def read() -> None:
        for number in range(100):
            got.extend(queue.dequeue() for _ in range(700))
            lined_up(queue, writers=1 if number < 99 else 0) if number % 10 == 0 else None
            got.extend(queue.dequeue_many(300).tolist())

    together(read, lambda: [queue.enqueue(number) for number in range(100_000)])
    assert got == list(range(100_000))
