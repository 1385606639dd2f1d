from __future__ import annotations

import gc
import random
import signal
import threading
from collections.abc import Iterator

import pytest
from queues.crowd import together

from penstock._system.failing import ReadBrokenOff
from penstock._system.process import Breaker, breakable, uninterrupted


class Woken(Exception):
    pass


def wait(end: threading.Event) -> None:
    """Wait to be ended, as one whose wait then raises."""
    with breakable(end.set, Woken, "s3://bucket/key"):
        end.wait()
        raise Woken


@pytest.fixture
def attached() -> Iterator[Breaker]:
    breaker = Breaker()
    with breaker.attached():
        yield breaker


def test_waits_of_all_attached_threads_end_and_are_named() -> None:
    breaker, waiting, caught = Breaker(), threading.Barrier(4), []

    def work() -> None:
        with breaker.attached():
            waiting.wait()
            try:
                wait(threading.Event())
            except ReadBrokenOff as error:
                caught.append(error)

    together(*[work] * 3, lambda: (waiting.wait(), breaker.break_off()))
    assert [error.what for error in caught] == ["'s3://bucket/key' was being read when its feed was closed"] * 3
    assert all(error.__suppress_context__ for error in caught)


def test_what_ends_otherwise_is_left_alone(attached: Breaker) -> None:
    end = threading.Event()
    end.set()
    with pytest.raises(Woken):  # somebody else has ended it
        wait(end)
    with pytest.raises(KeyError), breakable(end.set, Woken, "key"):
        raise KeyError
    with breakable(end.clear, Woken, "key"):
        pass
    attached.break_off()
    assert end.is_set()  # that wait is over


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="this system has no timers that raise a signal")
def test_no_interrupt_of_pythons_own_handler_is_lost_in_an_uninterrupted_call_and_each_call_is_made_once() -> None:
    """That handler is C and has no frame, as the error of a thread that cannot be started has none: it was taken for that one."""
    chance, before = random.Random(5), signal.signal(signal.SIGALRM, signal.default_int_handler)
    calls: list[None] = []
    num_calls = 0

    def call_often() -> None:  # a function: an interrupt at the end of a `while` escapes the `try` around it in Python 3.13
        nonlocal num_calls
        while num_calls < 1000:
            num_calls += 1
            uninterrupted(lambda: calls.append(None))

    gc.collect()
    gc.disable()  # an interrupt that comes in a callback of Python's own, here for threads of other tests that are collected, is lost
    try:
        for _ in range(500):
            calls.clear()
            num_calls = 0
            try:
                signal.setitimer(signal.ITIMER_REAL, 1e-6 + chance.random() * 3e-4)
                call_often()
            except KeyboardInterrupt:
                assert num_calls - 1 <= len(calls) <= num_calls
            else:
                raise AssertionError("the interrupt was lost")
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        gc.enable()
