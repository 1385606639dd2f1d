"""The timeline of enqueuers and jobs: a row for each worker, in threads and in processes; what fails, and what a kill leaves."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from enqueuer import feeding
from jobs import acting
from observe.timelines import Record, check_arrows, check_names, check_nesting, loaded, marks_of, rows_of

import penstock as ps
from penstock._contracts.event import BlockDone, Event
from penstock.errors import PlanError, WorkerDied
from penstock.observe import trace

pytestmark = [
    pytest.mark.usefixtures("fork_server"),
    pytest.mark.skipif(sys.platform == "win32", reason="processes of POSIX"),
]


def checked(path: Path) -> list[Record]:
    """Read a timeline of this process, and check what holds for each."""
    records = loaded(path)
    check_names(records, os.getpid())
    check_nesting(records)
    check_arrows(records)
    return records


def wait_for(path: Path, text: str) -> None:
    """Wait until a text stands in a file."""
    deadline = time.monotonic() + 120
    while not (path.exists() and text in path.read_text()):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def spans(records: list[Record], name: str) -> list[Record]:
    return [record for record in records if record["ph"] == "X" and record["name"] == name]


# -- GeneratorEnqueuer

WAYS: dict[str, tuple[dict[str, Any], int]] = {
    "threads": ({}, 2),
    "threads without a guard": ({"thread_safe": True}, 2),
    "processes": ({"use_multiprocessing": True, "share": True}, 2),
    "in line": ({}, 0),
}


class Numbers:
    """An iterator that several threads may call."""

    def __init__(self) -> None:
        self._numbers = iter(range(20))

    def __iter__(self) -> Numbers:
        return self

    def __next__(self) -> int:
        return next(self._numbers)


@pytest.mark.parametrize("way", WAYS)
def test_an_enqueuer_has_a_span_for_each_item_and_an_arrow_to_the_step_that_got_it(tmp_path: Path, way: str) -> None:
    options, workers = WAYS[way]
    generator = Numbers if way == "threads without a guard" else feeding.twenty
    before_ns = time.perf_counter_ns()
    with ps.GeneratorEnqueuer(generator, **options) as enqueuer, trace(tmp_path / "t.json", enqueuer) as timeline:
        enqueuer.start(workers, max_queue_size=3)
        assert sorted(enqueuer.get()) == [*range(20)]
        assert timeline.is_alive
    after_ns = time.perf_counter_ns()
    records = checked(tmp_path / "t.json")
    name = f"GeneratorEnqueuer({generator.__name__})"
    made = {row: found for row, found in rows_of(records).items() if row.startswith(f"{name}: worker ")}
    assert sorted(span["args"]["number"] for row in made.values() for span in row) == [*range(20)]
    assert all(span["name"] == generator.__name__ for row in made.values() for span in row)
    assert made.keys() <= {f"{name}: worker {number}" for number in range(max(1, workers))}
    if way == "processes":  # they take turns
        assert [len(row) for row in made.values()] == [10, 10]
    steps = spans(records, "step")
    assert [step["args"]["number"] for step in steps] == [*range(1, 21)]
    assert len(spans(records, "wait")) == 21  # the last one for the end
    ends = {(end["tid"], end["ts"]) for _, end in check_arrows(records).values()}
    assert {(step["tid"], step["ts"]) for step in steps} <= ends
    times = [record["ts"] for record in records if record["ph"] in "Xi"]
    assert before_ns / 1000 <= min(times)
    assert max(times) <= after_ns / 1000


def test_a_timeline_of_an_enqueuer_ends_with_it_and_follows_a_second_start(tmp_path: Path) -> None:
    enqueuer = ps.GeneratorEnqueuer(feeding.batches)
    timeline = trace(tmp_path / "t.json", enqueuer)
    assert not enqueuer.is_closed()
    assert enqueuer.fills() == []
    for _ in range(2):
        enqueuer.start(1)
        assert [fill.name for fill in enqueuer.fills()] == ["items"]
        wait_for(tmp_path / "t.json", '"name":"GeneratorEnqueuer(batches)/items"')
        assert len(list(enqueuer.get())) == 6
    enqueuer.stop()
    assert enqueuer.is_closed()
    timeline._ticker.join(60)
    assert not timeline.is_alive
    records = checked(tmp_path / "t.json")
    made = spans(records, "batches")
    assert [span["args"]["number"] for span in made] == [*range(12)]
    assert all(span["args"]["bytes"] > 8 * 32 * 32 * 3 * 4 for span in made)
    assert "GeneratorEnqueuer(batches)/items" in {record["name"] for record in records if record["ph"] == "C"}


@pytest.mark.parametrize(
    ("generator", "options", "workers", "row", "error"),
    [
        (feeding.bad_at_five, {}, 1, 0, "LookupError: no sixth"),
        (feeding.bad_at_five, {}, 0, 0, "LookupError: no sixth"),
        (feeding.fails_in_worker_one, {"use_multiprocessing": True}, 2, 1, "ValueError: of worker 1"),
        (feeding.KillsItself(3), {"use_multiprocessing": True}, 2, 0, "WorkerDied: worker 0 of GeneratorEnqueuer(KillsItself)"),
    ],
    ids=["a thread", "in line", "a process", "a killed process"],
)
def test_the_error_of_an_enqueuer_stands_in_the_row_of_its_worker(
    tmp_path: Path, generator: Any, options: dict[str, Any], workers: int, row: int, error: str
) -> None:
    with ps.GeneratorEnqueuer(generator, **options) as enqueuer, trace(tmp_path / "t.json", enqueuer):
        enqueuer.start(workers)
        with pytest.raises((LookupError, ValueError, WorkerDied)):
            list(enqueuer.get())
    found = rows_of(checked(tmp_path / "t.json"))
    ((name, text),) = [(name, mark["args"]["error"]) for name, row in found.items() for mark in row if mark["name"] == "raised"]
    assert name == f"{enqueuer.name}: worker {row}"
    assert text.startswith(error)


# -- jobs


def hold(job: tuple[str, Any]) -> Any:
    """Make what the job says take its time: a tiny job may be shorter than the clock's last digit."""
    time.sleep(0.002)
    if job[0] == "meet":  # until another worker has such a job too: one alone may do all before the other has started
        Path(job[1], f"{os.getpid()} {threading.get_ident()}").touch()
        deadline = time.monotonic() + 60
        while len(os.listdir(job[1])) < 2:
            assert time.monotonic() < deadline
            time.sleep(0.002)
    return acting.turn(job)


@pytest.mark.parametrize("executor", ["processes", "threads", "inline"])
def test_jobs_have_a_span_for_each_run_and_marks_for_what_failed(tmp_path: Path, executor: Any) -> None:
    jobs: list[Any] = [("value", number) for number in range(24)]
    if executor != "inline":
        (tmp_path / "meet").mkdir()
        jobs[:2] = [("meet", str(tmp_path / "meet"))] * 2
    jobs[7] = ("only once", str(tmp_path / "fail-2"))
    jobs[9] = ("fail", "https://user:password@host/x?X-Amz-Signature=0123abcd")
    before_ns = time.perf_counter_ns()
    results = ps.parallel_jobs(hold, jobs, 2, executor=executor, on_error=ps.Retry(2, then=ps.Skip()), trace=tmp_path / "t.json")
    after_ns = time.perf_counter_ns()
    assert results[7] == "done at try 3"
    records = checked(tmp_path / "t.json")
    rows = {name: row for name, row in rows_of(records).items() if row}
    num_workers = 1 if executor == "inline" else 2
    assert rows.keys() == {f"hold: worker {number}" for number in range(num_workers)}
    runs = spans(records, "hold")
    assert Counter(run["args"]["number"] for run in runs) == {number: 3 if number in (7, 9) else 1 for number in range(24)}
    assert all(run["dur"] >= 2000 for run in runs)
    assert before_ns / 1000 <= min(run["ts"] for run in runs)
    assert max(run["ts"] + run["dur"] for run in runs) <= after_ns / 1000
    marks = [(mark["name"], mark["args"].get("key") or mark["args"]["keys"][0]) for mark in marks_of(records)]
    assert sorted(marks) == sorted(
        [("retry 1", [0, 7, 0]), ("retry 2", [0, 7, 0]), ("retry 1", [0, 9, 0]), ("retry 2", [0, 9, 0]), ("skipped", [0, 9, 0])]
    )
    for mark in marks_of(records):  # at the end of the run that failed, in the row of its worker
        assert any(abs(run["ts"] + run["dur"] - mark["ts"]) < 0.01 and run["tid"] == mark["tid"] for run in runs)
    tries = [(begin["tid"], end["tid"]) for begin, end in check_arrows(records).values()]
    assert len(tries) == 4
    text = (tmp_path / "t.json").read_text()
    assert "password" not in text
    assert "0123abcd" not in text


def test_the_error_that_ends_jobs_is_a_mark_and_the_file_is_whole(tmp_path: Path) -> None:
    jobs = [("value", 0), ("fail", 1), ("value", 2)]
    with pytest.raises(ValueError, match="bad 1"):
        ps.parallel_jobs(acting.turn, jobs, 1, trace=str(tmp_path / "t.json"))
    records = checked(tmp_path / "t.json")
    (mark,) = marks_of(records)
    assert (mark["name"], mark["args"]["where"]) == ("raised", "job 1 of 3 (('fail', 1))")
    assert mark["args"]["error"] == "ValueError: bad 1"


def test_a_worker_that_dies_is_a_mark_at_its_job_and_another_goes_on(tmp_path: Path) -> None:
    jobs = [("value", 0), ("only once", str(tmp_path / "die-1")), ("value", 2)]
    assert ps.parallel_jobs(acting.turn, jobs, 1, on_error=ps.Retry(1), trace=tmp_path / "t.json") == [0, "done at try 2", 2]
    records = checked(tmp_path / "t.json")
    (mark,) = [mark for mark in marks_of(records) if mark["name"] == "retry 1"]
    assert mark["args"]["error"].startswith("WorkerDied: worker 0 (process ")
    assert [mark["args"]["key"] for mark in marks_of(records) if "key" in mark["args"]] == [[0, 1, 0]]
    (notice,) = [mark for mark in marks_of(records) if mark["name"] == "worker replaced"]
    assert "SIGKILL" in notice["args"]["text"]


def test_a_function_is_given_the_events_and_one_that_fails_is_switched_off(tmp_path: Path) -> None:
    events: list[Event] = []
    assert ps.parallel_jobs(acting.square, range(6), 2, trace=events.append) == [0, 1, 4, 9, 16, 25]
    assert sorted(event.chunk for event in events if isinstance(event, BlockDone)) == [(0, number) for number in range(6)]  # type: ignore[type-var]

    def fails(event: Event) -> None:
        raise RuntimeError("no ink")

    with pytest.warns(RuntimeWarning, match="is switched off: RuntimeError: no ink") as caught:
        assert ps.parallel_jobs(acting.square, range(6), executor="inline", trace=fails) == [0, 1, 4, 9, 16, 25]
    assert len(caught) == 1


def test_a_trace_that_cannot_be_is_refused_before_a_job_is_done(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="trace=3 is not known"):
        ps.parallel_jobs(acting.square, [1], trace=3)  # type: ignore[arg-type]
    with pytest.raises(FileNotFoundError):
        ps.parallel_jobs(acting.square, [1], executor="inline", trace=tmp_path / "no" / "t.json")
    (tmp_path / "t.json").write_text("")
    with pytest.raises(PlanError, match="it is no queue, feed or enqueuer"):
        trace(tmp_path / "t.json", [0, 1])


# -- a kill


def test_what_watches_a_feed_that_is_closed_ends_by_itself(tmp_path: Path) -> None:
    feed = ps.from_source(range(4)).feed(executor=ps.Threads(isolate=True))
    feed.close()
    for observer in (feed.trace(tmp_path / "t.json"), feed.observe(tensorboard=tmp_path)):
        observer._ticker.join(60)
        assert not observer.is_alive
