"""Jobs in real processes and in threads: balance, errors, deaths, silence. FAULTS A1, A2, A5 to A8, A11, A14, A15, A23, B24, B25, B28."""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import threading
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from jobs import acting

import penstock as ps
from penstock._contracts.event import ElementRetried, Event
from penstock.errors import PlanError, SpecError, StopRaised, TooManySkipped, WorkerDied, WorkerFailed
from penstock.jobs import JobsProgress, Skipped
from penstock.jobs import run as module

pytestmark = [
    pytest.mark.usefixtures("fork_server"),
    pytest.mark.skipif(sys.platform == "win32", reason="processes and signals of POSIX"),
]


@pytest.fixture
def short_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests in which a job would never end."""
    monkeypatch.setattr(module, "_GRACE_S", 0.05)


def run(fn: Any, jobs: Any, num_workers: int = 2, policy: Any = None, tell: Any = False, **options: Any) -> list[Any]:
    return ps.parallel_jobs(fn, jobs, num_workers, on_error=policy, progress=tell, **options)


def test_large_jobs_and_results_pass_both_ways_at_once() -> None:
    assert run(acting.total, [np.full(3_000_000, job, np.uint8) for job in range(5)]) == [3_000_000 * job for job in range(5)]
    found = run(acting.large, range(5))
    assert [(int(one[0]), len(one)) for one in found] == [(job, 3_000_000) for job in range(5)]


@pytest.mark.parametrize("places", [[0], [9], [4, 5]], ids=str)
def test_no_job_waits_for_a_slow_one(tmp_path: Path, places: list[int]) -> None:
    """Jobs at `places` end only when all others are done: with a part of the list per worker this would last for ever."""
    fifos = [tmp_path / f"fifo {number}" for number in range(len(places))]
    jobs: list[Any] = [("value", number) for number in range(10)]
    for place, fifo in zip(places, fifos, strict=True):
        os.mkfifo(fifo)
        jobs[place] = ("hold", str(fifo))

    writer = threading.Thread(target=lambda: [fifo.write_text("held") for fifo in fifos])

    def release(now: JobsProgress) -> None:
        if now.total - now.done == len(places):
            writer.start()

    found = run(acting.turn, jobs, len(places) + 1, tell=release)
    writer.join()
    assert found == ["held" if number in places else number for number in range(10)]


def test_an_error_comes_as_itself_with_job_worker_and_traceback_and_stops_the_rest() -> None:
    jobs = [("value", number) for number in range(5000)]
    jobs[7] = ("fail", "seven")
    with pytest.raises(ValueError) as caught:
        run(acting.turn, jobs)
    assert str(caught.value) == "bad seven"
    (note,) = caught.value.__notes__
    assert note.startswith("penstock: job 7 of 5000 (('fail', 'seven')), worker ")
    assert 'raise ValueError(f"bad {value}")' in note


def test_an_error_that_cannot_travel_is_told_in_full() -> None:
    with pytest.raises(WorkerFailed) as caught:
        run(acting.turn, [("odd", 1)])
    assert caught.value.what == "jobs.acting.Odd: odd 1 1"
    assert "job 0 of 1 (('odd', 1)), worker " in caught.value.where


@pytest.mark.parametrize(("word", "kind"), [("stop", StopIteration), ("exit", SystemExit), ("interrupt", KeyboardInterrupt)])
def test_an_error_that_would_be_taken_for_something_else_is_a_stop_raised(word: str, kind: type[BaseException]) -> None:
    with pytest.raises(StopRaised) as caught:
        run(acting.turn, [("value", 1), (word, 3)], policy=ps.Skip())
    assert f"{kind.__name__} was raised" in caught.value.what
    assert caught.value.where.startswith("job 1 of 2 (('" + word)


@pytest.mark.parametrize(
    ("word", "kind", "words"), [("lock", SpecError, "a value of type _thread.lock"), ("unreadable", RuntimeError, "cannot be read")]
)
def test_a_result_that_cannot_be_sent_or_read_is_the_jobs_error(word: str, kind: type[BaseException], words: str) -> None:
    with pytest.raises(kind) as caught:
        run(acting.turn, [("value", 1), (word, 3)])
    assert words in str(caught.value)
    assert any("job 1 of 2" in note for note in caught.value.__notes__)
    found = run(acting.turn, [("value", 1), (word, 3), ("value", 2)], policy=ps.Skip())
    assert [found[0], type(found[1]), found[2]] == [1, Skipped, 2]


def test_a_job_that_cannot_be_sent_is_an_error_that_names_it() -> None:
    jobs = [1, 2, {"a": [threading.Lock()]}]
    with pytest.raises(SpecError) as caught:
        run(acting.square, jobs)
    assert "a value of type _thread.lock cannot be sent to another process (at ['a'][0])" in caught.value.what
    assert caught.value.where.startswith("job 2 of 3 ({'a': [<unlocked _thread.lock")
    assert 'executor="threads"' in caught.value.fix


DEATHS: list[tuple[str, Any, str]] = [
    ("kill", signal.SIGKILL, "was killed by SIGKILL"),
    ("kill", signal.SIGSEGV, "was killed by SIGSEGV"),
    ("leave", 3, "ended with exit code 3 before its work was done"),
    ("leave", 0, "ended with exit code 0 before its work was done"),
    ("doomed", signal.SIGKILL, "was killed by SIGKILL"),
]


@pytest.mark.parametrize(("word", "value", "words"), DEATHS, ids=str)
def test_a_dead_worker_is_reported_with_the_job_that_it_was_at(word: str, value: Any, words: str) -> None:
    for place in (0, 19):
        jobs: list[Any] = [("value", number) for number in range(20)]
        jobs[place] = (word, value)
        with pytest.raises(WorkerDied) as caught:
            run(acting.turn, jobs)
        assert words in caught.value.what
        assert f"; it was at job {place} of 20 (('{word}', " in caught.value.what
        assert caught.value.where in ("worker 0", "worker 1")
        assert caught.value.__context__ is None


def test_a_dead_worker_may_be_a_job_left_out_and_another_goes_on() -> None:
    jobs: list[Any] = [("value", number) for number in range(30)]
    for place, death in ((0, ("kill", signal.SIGKILL)), (11, ("leave", 0)), (29, ("doomed", signal.SIGSEGV))):
        jobs[place] = death
    found = run(acting.turn, jobs, policy=ps.Skip(limit=3))
    assert [place for place, result in enumerate(found) if isinstance(result, Skipped)] == [0, 11, 29]
    assert all(isinstance(found[place].error, WorkerDied) for place in (0, 11, 29))
    assert [result for result in found if not isinstance(result, Skipped)] == [number for number in range(30) if number not in (0, 11, 29)]
    with pytest.raises(TooManySkipped):
        run(acting.turn, jobs, policy=ps.Skip(limit=2))
    with pytest.raises(WorkerDied):
        run(acting.turn, jobs, policy=ps.Skip(errors=ValueError))


def test_a_failing_job_and_one_whose_worker_dies_are_tried_again(tmp_path: Path) -> None:
    jobs = [("only once", str(tmp_path / "fail-2")), ("value", 1), ("only once", str(tmp_path / "die-1")), ("value", 3)]
    policy = ps.Retry(2, backoff_s=0.001, errors=(OSError, WorkerDied))
    assert run(acting.turn, jobs, policy=policy) == ["done at try 3", 1, "done at try 2", 3]


@pytest.mark.parametrize("is_replaced", [False, True])
def test_a_worker_that_is_killed_while_it_waits_is_an_error_without_a_job(is_replaced: bool, tmp_path: Path) -> None:
    path = tmp_path / "pid"

    def fail_once(job: int) -> int:
        if not path.exists():
            path.write_text(str(os.getpid()))
            raise OSError("busy")
        return job

    def kill(event: Event) -> None:
        if isinstance(event, ElementRetried):
            os.kill(int(path.read_text()), signal.SIGKILL)

    def retried() -> list[int]:
        return run(fail_once, [5], policy=ps.Retry(2, backoff_s=0.3, errors=(OSError, WorkerDied) if is_replaced else OSError), trace=kill)

    if is_replaced:
        assert retried() == [5]
        return
    with pytest.raises(WorkerDied, match="was killed by SIGKILL") as caught:
        retried()
    assert "it was at" not in caught.value.what


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_workers_that_are_killed_at_random_times_cost_no_job(seed: int, tmp_path: Path) -> None:
    """A killer sends SIGKILL to a worker now and then, wherever it is."""
    chance = random.Random(seed)
    killed: list[str] = []

    def square(job: int) -> int:
        (tmp_path / str(os.getpid())).touch()
        return job * job

    def kill(now: JobsProgress) -> None:
        alive = sorted(set(os.listdir(tmp_path)) - set(killed))
        if alive and chance.random() < 0.1 and len(killed) < 40:
            killed.append(chance.choice(alive))
            os.kill(int(killed[-1]), signal.SIGKILL)

    found = run(square, range(5000), 3, policy=ps.Retry(100, errors=WorkerDied), tell=kill)
    assert found == [job * job for job in range(5000)]
    assert killed


@pytest.mark.parametrize("policy", [None, ps.Skip(), ps.Retry(100, errors=OSError)], ids=str)
def test_a_worker_that_dies_before_its_first_job_is_an_error_if_the_policy_does_not_retry(policy: Any, tmp_path: Path) -> None:
    with pytest.raises(WorkerDied) as caught:
        run(acting.DeadlyAtFirst(tmp_path / "starts", 1), range(10), 1, policy=policy)
    assert "was killed by SIGKILL" in caught.value.what
    assert "it was at" not in caught.value.what
    assert (tmp_path / "starts").read_text() == "x"


@pytest.mark.parametrize("num_workers", [1, 3])
@pytest.mark.parametrize("num_deaths", [1, 3])
def test_a_worker_that_is_killed_while_it_starts_is_replaced_within_the_number_of_retries(
    num_deaths: int, num_workers: int, tmp_path: Path
) -> None:
    function = acting.DeadlyAtFirst(tmp_path / "starts", num_deaths)
    assert run(function, range(20), num_workers, policy=ps.Retry(3)) == [job * job for job in range(20)]


@pytest.mark.parametrize(("times", "num_starts"), [(1, 2), (3, 4), (100, 11)])
def test_when_every_start_dies_the_number_of_starts_is_bounded(times: int, num_starts: int, tmp_path: Path) -> None:
    with pytest.raises(WorkerDied) as caught:
        run(acting.DeadlyAtFirst(tmp_path / "starts", 10**6), range(10), 1, policy=ps.Retry(times))
    assert "was killed by SIGKILL" in caught.value.what
    assert caught.value.__notes__ == [f"penstock: {num_starts} workers died before their first job"]
    assert len((tmp_path / "starts").read_text()) == num_starts


def test_a_function_that_cannot_be_read_in_a_worker_is_an_error() -> None:
    with pytest.raises(PlanError, match="the function cannot be found in a worker process: this cannot be read"):
        run(acting.Unreadable(), range(10), policy=ps.Skip())


@pytest.mark.parametrize("executor", ["processes", "threads"])
def test_a_job_in_work_at_an_error_is_booked_when_it_ends_and_its_error_noted(executor: Any, tmp_path: Path) -> None:
    fifos = [tmp_path / "one", tmp_path / "other"]
    for fifo in fifos:
        os.mkfifo(fifo)

    def fail(now: JobsProgress) -> None:
        for fifo, text in zip(fifos, (b"held", b"\xff"), strict=True):
            fifo.write_bytes(text)  # opens when the job is in work
        raise LookupError("enough")

    jobs = [("hold", str(fifos[0])), ("hold", str(fifos[1])), ("value", 2)]
    with pytest.raises(LookupError, match="enough") as caught:
        run(acting.turn, jobs, 3, tell=fail, executor=executor, done=tmp_path / "done")
    _, *lines = map(json.loads, (tmp_path / "done").read_text().splitlines())
    assert [(line["index"], line["result"]) for line in lines] == [(2, 2), (0, "held")]
    (note,) = caught.value.__notes__
    assert note.startswith("penstock: also failed: job 1 of 3 (('hold', ")
    assert "UnicodeDecodeError" in note


@pytest.mark.parametrize("word", ["hold", "sit in C"])
def test_a_job_that_does_not_end_is_ended(word: str, tmp_path: Path, short_grace: None) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)

    def fail(now: JobsProgress) -> None:
        raise LookupError("enough")

    with pytest.raises(LookupError):
        run(acting.turn, [("value", 1), (word, str(fifo))], tell=fail)


def test_jobs_may_be_run_from_another_thread_and_outlive_nobody() -> None:
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(run(acting.square, range(50))))
    thread.start()
    thread.join()
    assert found == [[job * job for job in range(50)]]


def test_a_job_that_does_not_end_is_named_with_its_worker_and_the_callers_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, short_grace: None
) -> None:
    """The warning is an error here, so it ends the call; the jobs behind the one that hangs are done all the same."""
    monkeypatch.setattr(module, "_PATIENCE_S", 3.0)
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    jobs: list[Any] = [("value", 1), ("hold", str(fifo)), ("value", 2), ("value", 3)]
    left: list[int] = []
    with pytest.raises(RuntimeWarning) as caught:
        run(acting.turn, jobs, 1, tell=lambda now: left.append(now.total - now.done))
    words = str(caught.value)
    place = f"test_pool.py:{run.__code__.co_firstlineno + 1}"
    assert words.startswith(f"no job of parallel_jobs() at {place} has ended for 3 s; in work: job 1 of 4 (('hold', '")
    assert " in worker 0 (process " in words
    assert 'find its line with executor="threads"' in words
    assert left == [3]


def test_a_job_in_a_thread_that_does_not_end_is_named_with_its_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_PATIENCE_S", 0.3)
    go = threading.Event()

    def hold(job: int) -> int:
        if job == 2:
            go.wait()
        return job

    def take(message: Any, *_: object) -> None:
        said.append(str(message))
        go.set()

    said: list[str] = []
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = take
        assert run(hold, range(4), executor="threads") == [0, 1, 2, 3]
    (words,) = said
    place = f"test_pool.py:{hold.__code__.co_firstlineno + 2} in {hold.__qualname__}: go.wait()"
    assert "in work: job 2 of 4 (2) in worker " in words
    assert f" at {place}: give what the job waits for a time limit, or look at that line" in words


def test_a_thread_that_does_not_end_is_named(short_grace: None) -> None:
    begun, end = threading.Event(), threading.Event()

    def work(job: int) -> None:
        if job == 0:
            begun.set()
            end.wait(60)
        else:
            begun.wait(60)
            raise LookupError("no")

    with pytest.raises(LookupError) as caught:
        run(work, range(2), executor="threads")
    end.set()
    assert any(note.startswith("penstock: still at work after 0.05 s: penstock-jobs-") for note in caught.value.__notes__)


def test_ctrl_c_in_line_is_the_users_and_that_of_a_thread_an_error() -> None:
    def interrupt(job: int) -> int:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(interrupt, range(3), executor="inline", policy=ps.Skip())
    with pytest.raises(StopRaised):
        run(interrupt, range(3), executor="threads", policy=ps.Skip())
