"""What worker processes or threads would give a loop that waits for functions in the program: from given figures, and in real feeds."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

import pytest
from core import core

import penstock as ps
from penstock._workers import choice
from penstock.observe.advice import Advice, Stretch, advice
from penstock.observe.stats import ConsumerStats, Snapshot, StageStats


def stage(name: str, busy_s: float, cpu_s: float, *, in_program: bool = True, **more: Any) -> StageStats:
    return StageStats(name=name, num_elements=1_000, num_blocks=10, busy_s=busy_s, cpu_s=cpu_s, workers=(0,), in_program=in_program, **more)


def window(*stages: StageStats, wait_s: float = 8.0, num_cpus: int = 16, is_stream: bool = False, sent_bytes: float = 0.0) -> Stretch:
    """Ten seconds."""
    return Stretch(span_s=10.0, wait_s=wait_s, loop_cpu_s=0.1, sent_bytes=sent_bytes, num_cpus=num_cpus, stages=stages, is_stream=is_stream)


def test_a_function_that_computes_is_worth_as_many_processes_as_cpus_and_is_said_to_leave_its_changes_there() -> None:
    assert advice(window(stage("augment", 9.3, 9.2), wait_s=8.1), None) == (
        "'augment' takes 93 % of the time, one call at a time in this program, and the loop waits 81 % of it: feed(num_workers=8) runs it "
        "in 8 worker processes and would give about 5.3 times as many batches a second; what it changes in this program (globals, "
        "counters, open files) then stays in the workers"
    )
    assert "feed(num_workers=2) runs it in 2 worker processes and would give about 2.0 times" in advice(
        window(stage("augment", 9.3, 9.2), wait_s=8.1, num_cpus=2), None
    )


def test_a_function_that_lets_go_of_the_lock_is_worth_threads_too() -> None:
    text = advice(window(stage("sort", 9.5, 9.4), wait_s=9.9, num_cpus=4), 0.0)
    assert "feed(num_workers=4) runs it in 4 worker processes and would give about 4.0 times as many batches" in text
    assert text.endswith(
        ' it lets go of the interpreter lock, so feed(executor="threads") would give about 4.0 times as many in this program, where it '
        "has to be safe to call in several threads at a time"
    )
    assert "threads" not in advice(window(stage("sort", 9.5, 9.4), wait_s=9.9), 0.25)
    assert "threads" not in advice(window(stage("sort", 9.5, 9.4), wait_s=9.9), None)


def test_a_function_that_waits_is_worth_more_workers_than_cpus() -> None:
    text = advice(window(stage("fetch", 9.7, 0.3), wait_s=9.9, num_cpus=2), 0.0)
    assert "feed(num_workers=8) runs it in 8 worker processes and would give about 7.9 times" in text
    assert 'feed(executor="threads", num_workers=8) would give about 7.9 times as many' in text


@pytest.mark.parametrize("lock_share", [None, 0.0])
def test_worker_processes_that_cannot_be_are_not_offered_and_threads_come_first(lock_share: float | None) -> None:
    text = advice(window(stage("sort", 9.5, 9.4), wait_s=9.9, num_cpus=4)._replace(no_processes="a lock cannot be sent"), lock_share)
    threads = (
        ' it lets go of the interpreter lock, so feed(executor="threads") would give about 4.0 times as many in this program, where it has'
        " to be safe to call in several threads at a time"
    )
    processes = "worker processes would give about 4.0 times as many batches a second, but cannot run it: a lock cannot be sent"
    assert text.partition("waits 99 % of it:")[2] == (f" {processes}" if lock_share is None else f"{threads}; {processes}")


def test_a_function_that_waits_for_a_cpu_computes() -> None:
    crowded = window(stage("augment", 9.5, 3.0, queued_s=6.0), wait_s=9.9, num_cpus=2)
    assert crowded.num_workers() == 2
    assert crowded.is_computing
    assert "feed(num_workers=2)" in advice(crowded, None)


@pytest.mark.parametrize(
    ("of", "num_workers", "gain"),
    [
        (window(stage("f", 8.0, 8.0), wait_s=6.0), 8, 2.5),  # the step takes 4 s
        (window(stage("f", 9.9, 0.1), stage("g", 6.0, 0.1, in_program=False, concurrency=2), wait_s=9.9), 8, 10 / 3),  # workers of its own
        (window(stage("read", 5.0, 0.1), stage("f", 5.0, 0.1), wait_s=9.9, is_stream=True), 8, 2.0),  # a generator stays
        (window(stage("f", 9.5, 9.5), stage("decode", 5.0, 5.0, in_program=False), wait_s=9.9, num_cpus=2), 2, 10 / 7.66),  # it moves too
        (window(stage("f", 9.0, 9.0), wait_s=9.9, num_cpus=2, sent_bytes=16e9), 2, 10 / 6.7),  # what they write takes as long again
        (window(stage("f", 9.0, 4.0, queued_s=5.0), wait_s=9.9, num_cpus=2), 2, 2.0),  # never more than workers
    ],
)
def test_what_takes_longest_sets_the_pace(of: Stretch, num_workers: int, gain: float) -> None:
    assert of.gain(num_workers) == pytest.approx(gain, rel=0.02)


@pytest.mark.parametrize(
    "of",
    [
        window(stage("f", 9.5, 9.5), wait_s=0.9),  # the loop does not wait
        window(stage("f", 6.9, 6.9), stage("decode", 9.0, 9.0, in_program=False)),  # something else is slow
        window(stage("f", 9.5, 9.5), wait_s=9.9, num_cpus=1),
        window(stage("f", 9.5, 9.5), wait_s=1.5),  # the step takes nearly all of the time
        window(stage("read", 9.5, 0.1), wait_s=9.9, is_stream=True),
    ],
)
def test_where_little_is_gained_nothing_is_said(of: Stretch) -> None:
    assert advice(of, 0.0) == ""


def snapshot(until_s: float, *stages: StageStats) -> Snapshot:
    consumer = ConsumerStats(num_batches=int(10 * until_s), first_wait_s=0.1, wait_s=0.9 * until_s, span_s=until_s, mean_ready=0.0)
    return Snapshot(elapsed_s=until_s, num_cpus=4, stages=stages, consumer=consumer, notices=())


def test_windows_begin_with_the_first_delivery_and_double_until_there_is_something_to_say_once() -> None:
    looking = Advice(wanted=True)
    assert looking.text(0, snapshot(0.0, stage("f", 5.0, 5.0)), b"") == ""  # 5 s of a start that took long
    assert looking.due_ns == 2e9
    assert looking.text(2 * 10**9, snapshot(2.0, stage("f", 6.0, 6.0)), b"") == ""
    assert looking.due_ns == 6e9
    assert "'f' takes 95 % of the time" in looking.text(6 * 10**9, snapshot(6.0, stage("f", 9.8, 9.8)), b"")
    assert looking.due_ns == math.inf


def test_a_feed_that_runs_no_function_in_the_program_is_not_looked_at_again() -> None:
    looking = Advice(wanted=True)
    assert looking.text(0, snapshot(0.0, stage("decode", 0.1, 0.1, in_program=False)), b"") == ""
    assert looking.due_ns == math.inf
    assert Advice(wanted=False).due_ns == math.inf


def nap(number: int) -> int:
    time.sleep(0.002)
    return number


def advice_of(feed: Any, enough: Callable[[list[str]], bool], step_s: float = 0.0) -> list[str]:
    """Run a feed, epoch after epoch, for 20 s at most, or until the advice that it gave is enough."""

    def given() -> list[str]:
        return [text for text in feed.stats().notices if "one call at a time in this program, and the loop waits " in text]

    end_s = time.monotonic() + 20
    with feed:
        while time.monotonic() < end_s:
            for _ in feed:
                time.sleep(step_s)
                if enough(given()) or time.monotonic() > end_s:
                    return given()
    return given()


def test_a_loop_that_waits_for_a_function_is_told_once_also_over_short_epochs() -> None:
    feed = ps.from_source(range(160)).map(nap).batch(2).feed()
    found = advice_of(feed, bool)
    assert len(found) == 1
    assert found[0].startswith("'read+nap' takes ")
    assert "feed(num_workers=8) runs it in 8 worker processes" in found[0]
    assert found[0] in feed.report()


def test_where_no_process_can_be_started_neither_advice_nor_report_offers_worker_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choice, "why_no_processes", lambda: "this is Windows")
    feed = ps.from_source(range(160)).map(nap).batch(2).feed()
    found = advice_of(feed, bool)
    assert found[0].endswith("but cannot run it: this is Windows")
    assert 'feed(executor="threads", num_workers=8)' in found[0]
    assert "runs it in" not in feed.report()
    assert feed.stats().no_processes == "this is Windows"


def test_a_collate_fn_that_takes_the_time_is_named() -> None:
    def collate(elements: list[int]) -> int:
        time.sleep(0.01)
        return sum(elements)

    feed = ps.from_source(range(100_000)).batch(4, collate_fn=collate).feed()
    found = advice_of(feed, bool)
    assert found[0].startswith("'collate_fn' takes ")
    assert {stage.name: stage.in_program for stage in feed.stats().stages} == {"read": False, "collate_fn": True}


@pytest.mark.parametrize(("options", "step_s"), core([({}, 0.05), ({"num_workers": 1}, 0.0), ({"executor": "threads"}, 0.0)]))
def test_who_has_asked_for_workers_or_has_a_slower_loop_is_told_nothing(options: dict[str, Any], step_s: float) -> None:
    begin_s = time.monotonic()
    feed = ps.from_source(range(100_000)).map(nap).batch(2).feed(**options)
    assert advice_of(feed, lambda _: time.monotonic() > begin_s + 2.5, step_s) == []
