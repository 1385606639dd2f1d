"""The estimate of which operators hold the GIL."""

from __future__ import annotations

import threading
import time

import pytest

from penstock.doctor.probes import Probe, ProbeRecorder
from penstock.doctor.profile import GilSampler, holding_shares
from penstock.observe.stats import gil_wait_ns


def test_what_runs_alone_decides_for_what_runs_beside_it() -> None:
    samples = {("a",): (100, 0), ("b",): (100, 100), ("a", "b"): (100, 100)}
    assert holding_shares(samples, {"a": 1.0, "b": 1.0}) == pytest.approx({"a": 0.0, "b": 1.0}, abs=0.05)


def test_two_threads_in_one_operator_hold_it_half_of_their_time_each() -> None:
    assert holding_shares({("a", "a"): (50, 50)}, {"a": 1.0}) == pytest.approx({"a": 0.5})


def test_where_samples_do_not_tell_what_was_on_a_cpu_held_it() -> None:
    found = holding_shares({("sleeps", "works"): (200, 180)}, {"sleeps": 0.02, "works": 0.98})
    assert found["works"] == pytest.approx(0.9, abs=0.03)
    assert found["sleeps"] < 0.03


def test_a_few_samples_that_went_wrong_decide_nothing() -> None:
    samples = {("sleeps", "works", "others"): (127, 120), ("sleeps", "others"): (1, 1)}
    found = holding_shares(samples, {"sleeps": 0.002, "works": 0.55, "others": 0.02})
    assert found["works"] > 0.7
    assert found["sleeps"] < 0.1


def test_few_samples_say_nothing_and_free_ones_say_zero() -> None:
    assert holding_shares({("a",): (19, 19)}, {"a": 1.0}) == {}
    assert holding_shares({("a",): (20, 0)}, {"a": 1.0}) == {"a": 0.0}


@pytest.mark.skipif(
    gil_wait_ns(0.0) is None and gil_wait_ns(0.01) is None, reason="this system does not tell how long a thread waits for a CPU"
)
def test_python_code_is_told_from_sleeping() -> None:
    recorder = ProbeRecorder()
    python, sleeping = Probe(recorder, 1, "map", "python"), Probe(recorder, 1, "map", "sleeping")
    sampler = GilSampler(recorder)
    ended = threading.Event()

    def work() -> None:
        count = python.around(lambda: sum(range(200_000)))
        while not ended.is_set():
            count()

    def sleep() -> None:
        rest = sleeping.around(lambda: time.sleep(0.02))
        while not ended.is_set():
            rest()

    threads = [threading.Thread(target=body) for body in (work, sleep)]
    sampler.start()
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + 60
    while sum(count for count, _ in sampler.samples.values()) < 100 and time.monotonic() < deadline:
        time.sleep(0.05)
    ended.set()
    for thread in threads:
        thread.join()
    sampler.stop()
    tallies = {probe: recorder.total(probe) for probe in (python, sleeping)}
    found = sampler.shares({probe: tally.cpu_ns / tally.running_ns for probe, tally in tallies.items()}, 0.02)
    assert found[python] > 2 * found.get(sleeping, 0.0)
