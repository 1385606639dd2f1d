"""What counts as a stall and what is said about it: figures and facts in, words out; nothing runs here."""

from __future__ import annotations

from typing import Any

import pytest

from penstock._engine.stall_report import Frame, Kind, RunClock, Situation, WorkerFacts, counted_ns, report, slice_of

MS = 1_000_000


def frame(text: str, file: str = "train.py", function: str = "decode", line: int = 33) -> Frame:
    return Frame(file, line, function, text)


def worker(text: str = "step()", **changed: Any) -> WorkerFacts:
    facts: dict[str, Any] = {
        "index": 1, "thread": "penstock-workers-1", "stage": "decode", "element": "element epoch 0 index 412 (a.jpg)",
        "lasted_s": 60.04, "cpu_share": 0.0, "stack": (frame(text),), "stuck": True,
    }  # fmt: skip
    return WorkerFacts(**{**facts, **changed})


def situation(*busy: WorkerFacts, kind: Kind = "stuck", **changed: Any) -> Situation:
    facts: dict[str, Any] = {
        "kind": kind, "waited_s": 61.0, "timeout_s": 60.0, "busy": busy, "idle": ("3 of 4 shared workers: nothing to do",),
        "kept": 0, "limit": 6, "state": "state: 0 ready, segments []",
    }  # fmt: skip
    return Situation(**{**facts, **changed})


def test_the_whole_report_of_one_stuck_worker() -> None:
    other = worker(index=0, thread="penstock-workers-0", stage="augment", lasted_s=0.25, stuck=False, stack=(frame("turn(x)", line=9),))
    found = report(situation(worker("with lock:"), other, kept=2))
    assert found.what == (
        "worker 1 has been with one element of stage 'decode' for 60.0 s; likely cause: a lock or event that nobody releases, in "
        "train.py:33 in decode"
    )
    assert found.where.replace("\n         ", "\n").splitlines() == [
        "stage 'decode', worker 1 (penstock-workers-1), element epoch 0 index 412 (a.jpg)",
        "it used 0 % of a CPU: it waits; its stack, innermost call last:",
        "  train.py:33 in decode: with lock:",
        "the consumer has waited 61.0 s in next() (stall_timeout_s=60)",
        "meanwhile:",
        f"  worker 0 (penstock-workers-0): stage 'augment' for 0.2 s, {other.element}, at train.py:9 in decode: turn(x)",
        "  3 of 4 shared workers: nothing to do",
        "  batches that the consumer keeps: 2 (so many may be in flight: 6)",
    ]
    assert found.fix == "check who holds it: the thread that calls next() must not hold what a worker needs; give the wait a timeout"


@pytest.mark.parametrize(
    ("stuck", "cause", "fix"),
    [
        (worker("row = results.get()"), "an empty source: it waits for a queue", "who fills the queue"),
        (worker("return sock.recv(9)"), "a blocked read (file, FIFO, network disk or socket) in train.py:33", "give it a timeout"),
        (worker("x = f()", stage="read"), "a blocked read (file, FIFO, network disk or socket) in train.py:33", "give it a timeout"),
        (worker("time.sleep(1e6)"), "a sleep in train.py:33 in decode", "a longer stall_timeout_s"),
        (worker("lib.call()", cpu_share=None), "a call that does not return: train.py:33 in decode", "a longer stall_timeout_s"),
        (worker(stack=()), "a call that does not return: code without a Python frame", "a longer stall_timeout_s"),
    ],
)
def test_the_likely_cause_is_told_from_the_stack_and_the_cpu_time(stuck: WorkerFacts, cause: str, fix: str) -> None:
    found = report(situation(stuck))
    assert f"; likely cause: {cause}" in found.what
    assert fix in found.fix


def test_with_nothing_to_do_the_fault_is_ours_unless_the_consumer_holds_every_slot() -> None:
    ours = report(situation(kind="idle"))
    assert ours.what == (
        "nothing has arrived for 61.0 s, and no worker has anything to do; likely cause: a fault of penstock: with nothing to do, "
        "everything should be delivered"
    )
    assert ours.fix == "please report this text; a new feed with load_state_dict() of the last state goes on"
    assert "\n           state: 0 ready, segments []" in ours.where
    held = report(situation(kind="idle", kept=6))
    assert "likely cause: a consumer that holds every slot: 6 batches are kept" in held.what
    assert held.fix == "drop batches that are done with, copy what must be kept, or give a larger memory_bytes"


# -- clocks -----------------------------------------------------------------------------------------------------------------------


def test_the_run_clock_counts_a_pause_as_its_limit() -> None:
    clock = RunClock(500 * MS)
    start = 10**15
    assert clock.tick(start) == 500 * MS  # what lies before the first look is a pause too
    assert clock.tick(start + 100 * MS) == 600 * MS
    assert clock.tick(start + 3600_000 * MS) == 1100 * MS
    assert clock.tick(start + 3600_001 * MS) == 1101 * MS


@pytest.mark.parametrize(("timeout_s", "expected"), [(None, None), (60.0, 0.5), (0.8, 0.1), (4.0, 0.5)])
def test_a_slice_is_an_eighth_of_the_timeout_and_at_most_half_a_second(timeout_s: float | None, expected: float | None) -> None:
    assert slice_of(timeout_s) == expected


@pytest.mark.parametrize(
    ("elapsed", "cpu", "queued", "wanted", "counted", "why"),
    [
        (500, 0, 0, 0, 500, "it waits, and nobody else runs"),
        (500, 0, 0, 1000, 500, "it waits for no CPU, so what others do is no excuse"),
        (500, 495, 0, 500, 495, "it computes alone"),
        (500, 100, 0, 500, 100, "it gets a fifth of the GIL"),
        (500, 8, 0, 500, 31, "64 workers share the GIL: a sixteenth at least, so no wait is unbounded"),
        (500, 100, 0, 200, 500, "it wakes now and then, and the GIL was free"),
        (500, 8, 450, 10, 50, "another program has the CPUs"),
        (500, 0, 500, 0, 31, "another program has all CPUs"),
        (500, 8, 100, 490, 31, "the holder of the GIL waits for a CPU, the others for the holder"),
        (500, None, 0, 2000, 500, "the system tells nothing"),
    ],
)
def test_a_worker_is_counted_with_the_time_that_it_could_use(
    elapsed: int, cpu: int | None, queued: int, wanted: int, counted: int, why: str
) -> None:
    assert counted_ns(elapsed * MS, None if cpu is None else cpu * MS, queued * MS, wanted * MS) // MS == counted, why


def call(text: str = "await fut", **changed: Any) -> WorkerFacts:
    facts: dict[str, Any] = {"call": True, "thread": "penstock-event-loop", "stage": "fetch", "cpu_share": None, "index": 7}
    return worker(text, **{**facts, **changed})


def test_two_workers_at_locks_are_both_named_even_when_one_came_later() -> None:
    second = worker("with right:", index=2, stage="augment", lasted_s=40.0, stuck=False)
    found = report(situation(worker("with left:"), second))
    assert "likely cause: a lock between two operators: worker 1 of stage 'decode' (at train.py:33 in decode) and worker 2 of" in found.what
    assert found.fix == "take the locks in one order everywhere, or use one lock; elements may be computed by several workers at once"
    alone = report(situation(worker("with left:"), worker("with right:", lasted_s=0.1, stuck=False)))
    assert "a lock or event that nobody releases" in alone.what


@pytest.mark.parametrize(
    ("facts", "cause"),
    [
        (call("await fut", stack=(frame("async with lock:"), frame("await fut", "asyncio/locks.py"))), "a lock or event that nobody"),
        (call("await getter", stack=(frame("await q.get()"), frame("await getter", "asyncio/queues.py"))), "an empty source: it waits for"),
        (call("await self._waiter", stack=(frame("await self._waiter", "asyncio/streams.py"),)), "a blocked read (file, FIFO, network"),
        (call(stack=(frame("await asyncio.sleep(9)"), frame("return await future", "asyncio/tasks.py"))), "a sleep in "),
        (call("time.sleep(9)", blocks=True, cpu_share=0.0), "a blocking call inside an async function, in train.py:33"),
        (call("while True:", blocks=True, cpu_share=0.9), "a computation inside an async function, in train.py:33"),
        (call("x()", blocks=True, stage=""), "a blocking call inside an async function, in train.py:33"),
    ],
)
def test_the_likely_cause_of_a_call(facts: WorkerFacts, cause: str) -> None:
    found = report(situation(facts))
    assert f"likely cause: {cause}" in found.what
    if facts.blocks:
        who = "a call of stage 'fetch'" if facts.stage else "something"
        assert found.what.startswith(f"{who} has held up the event loop of all async functions for 60.0 s; ")
