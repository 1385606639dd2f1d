from __future__ import annotations

import threading
import time
import warnings
from collections.abc import Callable
from typing import Any

import pytest

import penstock as ps
from penstock.errors import StopRaised
from penstock.jobs import local
from penstock.jobs import results as ledgers
from penstock.jobs.local import run_in_threads, run_inline
from penstock.jobs.results import Results, Skipped

Run = Callable[[Results, Any], None]

WAYS: dict[str, Run] = {
    "inline": run_inline,
    "one thread": lambda results, fn: run_in_threads(results, fn, 1),
    "four threads": lambda results, fn: run_in_threads(results, fn, 4),
}


@pytest.fixture(params=WAYS)
def run(request: pytest.FixtureRequest) -> Run:
    return WAYS[request.param]


def results(jobs: Any, policy: Any = None, tell: Any = None) -> Results:
    return Results(list(jobs), policy or ps.Raise(), None, tell or (lambda results, count: None))


@pytest.mark.parametrize("count", [0, 1, 3, 100])
def test_results_come_in_the_order_of_the_jobs(run: Run, count: int) -> None:
    book = results(range(count))
    run(book, lambda job: job * 2)
    assert book.values == [job * 2 for job in range(count)]


def fails_at_7(job: int) -> int:
    if job == 7:
        raise LookupError("no seven")
    return job


def test_the_first_error_ends_it_and_names_the_job(run: Run) -> None:
    done: list[int] = []
    book = results(range(1000))
    with pytest.raises(LookupError) as caught:
        run(book, lambda job: done.append(fails_at_7(job)))
    assert any("job 7 of 1000 (7), " in note for note in caught.value.__notes__)
    assert len(done) < 1000


def test_an_end_that_a_function_raises_is_an_error(run: Run) -> None:
    with pytest.raises(StopRaised):
        run(results(range(3)), lambda job: next(iter(())))


def test_a_failing_job_is_tried_again_or_left_out(run: Run) -> None:
    tries: list[int] = []

    def flaky(job: int) -> int:
        tries.append(job)
        return fails_at_7(7 if tries.count(job) <= job else job)

    book = results(range(4), ps.Retry(2, backoff_s=0.001, then=ps.Skip()))
    run(book, flaky)
    assert book.values[:3] == [0, 1, 2]
    assert isinstance(book.values[3], Skipped)
    assert sorted(tries) == [0, 1, 1, 2, 2, 2, 3, 3, 3]


def test_ctrl_c_in_line_is_the_users_and_that_of_a_thread_an_error() -> None:
    def interrupt(job: int) -> int:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_inline(results(range(3), ps.Skip()), interrupt)
    with pytest.raises(StopRaised):
        run_in_threads(results(range(3), ps.Skip()), interrupt, 2)


def test_a_job_in_work_at_an_error_is_booked_when_it_ends_and_its_error_noted() -> None:
    both = threading.Barrier(3)

    def work(job: int) -> int:
        both.wait(60)
        if job:
            raise LookupError(f"job {job}")
        return 7

    book = results(range(3))
    with pytest.raises(LookupError) as caught:
        run_in_threads(book, work, 3)
    first = str(caught.value)
    other = "job 1" if first == "job 2" else "job 2"
    assert f"penstock: also failed: {other} of 3 ({other[-1]}): LookupError: {other}" in caught.value.__notes__
    assert book.values[0] == 7


def test_a_thread_that_does_not_end_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "_GRACE_S", 0.01)
    begun, end = threading.Event(), threading.Event()

    def work(job: int) -> None:
        if job == 0:
            begun.set()
            end.wait(60)
        else:
            begun.wait(60)
            raise LookupError("no")

    with pytest.raises(LookupError) as caught:
        run_in_threads(results(range(2)), work, 2)
    end.set()
    assert "penstock: still at work after 0.01 s: penstock-jobs-0; a thread ends with its job" in caught.value.__notes__


def test_what_the_caller_is_told_runs_in_its_thread_and_ends_it_when_it_fails(run: Run) -> None:
    threads: set[str] = set()

    def tell(book: Results, count: int) -> None:
        threads.add(threading.current_thread().name)
        if book.num_left < 5:
            raise LookupError("enough")

    with pytest.raises(LookupError) as caught:
        run(results(range(20), tell=tell), lambda job: time.sleep(0))
    assert str(caught.value) == "enough"
    assert threads == {threading.main_thread().name}


def test_a_job_in_a_thread_that_does_not_end_is_named_with_its_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledgers, "_PATIENCE_S", 0.3)
    go = threading.Event()

    def hold(job: int) -> int:
        if job == 2:
            go.wait()
        return job

    def take(message: Any, *_: object) -> None:
        said.append(str(message))
        go.set()

    said: list[str] = []
    book = results(range(4))
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = take
        run_in_threads(book, hold, 2)
    assert book.values == [0, 1, 2, 3]
    first = hold.__code__.co_firstlineno
    assert len(said) == 1
    assert said[0].startswith(
        f"no job of run_in_threads() at test_local.py:{first + 14} has ended for 0 s; in work: job 2 of 4 (2) in worker "
    )
    assert (
        f" at test_local.py:{first + 2} in {hold.__qualname__}: go.wait(): give what the job waits for a time limit, or look at that line"
        in said[0]
    )
