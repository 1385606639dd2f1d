"""The ticker: when it calls, and how it ends."""

from __future__ import annotations

import os
import threading

from penstock.observe.ticker import Ticker


def test_it_calls_until_it_is_stopped_and_then_ends_once() -> None:
    calls: list[str] = []
    twice = threading.Event()

    def tick() -> None:
        calls.append("tick")
        if len(calls) > 1:
            twice.set()

    ticker = Ticker("penstock-test", 0.001, tick, lambda: calls.append("end"))
    assert twice.wait(10)
    ticker.stop()
    ticker.stop()
    assert not ticker.is_alive
    assert calls.count("end") == 1
    assert calls[-1] == "end"


def test_it_ends_when_there_is_nothing_more_to_do() -> None:
    ended = threading.Event()
    ticker = Ticker("penstock-test", 0.001, lambda: True, ended.set)
    ticker.join(10)
    assert ended.is_set()
    assert not ticker.is_alive


def test_it_may_stop_itself() -> None:
    stopped: list[Ticker] = []
    ended = threading.Event()

    def tick() -> None:
        if stopped:
            stopped[0].stop()

    stopped.append(Ticker("penstock-test", 0.001, tick, ended.set))
    assert ended.wait(10)
    stopped[0].join(10)
    assert not stopped[0].is_alive


def test_in_a_forked_process_stop_does_nothing() -> None:
    ended: list[int] = []
    ticker = Ticker("penstock-test", 0.001, lambda: False, lambda: ended.append(os.getpid()))
    child = os.fork()
    if child == 0:
        ticker.stop()
        os._exit(len(ended))
    assert os.waitpid(child, 0)[1] == 0
    ticker.stop()
    assert ended == [os.getpid()]
