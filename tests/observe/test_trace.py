"""The timeline: what adds up, what nests, where arrows lead, what a kill leaves, and what happens when it cannot be written."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path
from typing import Any

import pytest
from core import core
from observe.timelines import Record, check_arrows, check_names, check_nesting, loaded, spans_of
from programs import output_of

import penstock as ps
from penstock.errors import PlanError
from penstock.observe import trace
from penstock.queues import FIFOQueue, QueueRunner


def slow(x: float) -> float:
    time.sleep(0.0005)
    return x


async def later(x: float) -> float:
    import asyncio

    await asyncio.sleep(0.001)
    return x


def fails_once_in_ten(x: int) -> int:
    if x % 10 == 3:
        raise ValueError(f"bad {x}")
    return x


PLANS: dict[str, tuple[ps.Dataset, dict[str, Any]]] = {
    "threads": (ps.from_source(range(600)).map(slow).batch(8), {"executor": "threads", "num_workers": 3}),
    "inline": (ps.from_source(range(200)).map(slow).batch(8), {"executor": "inline"}),
    "stages": (ps.from_source(range(400)).map(float).map(slow, concurrency=2).batch(8), {"executor": "threads", "num_workers": 2}),
    "async": (ps.from_source(range(200)).map(later, concurrency=8).batch(8), {"executor": "threads", "num_workers": 2}),
    "folds": (
        ps.from_source(range(600)).filter(bool).map(slow).batch(8).map(abs).filter(lambda batch: True),
        {"executor": "threads", "num_workers": 3},
    ),
    "generator": (ps.from_generator(lambda: iter(range(500))).map(slow).batch(8), {"executor": "threads", "num_workers": 2}),
    "written ahead": (
        ps.from_source(range(600)).map(fails_once_in_ten, on_error=ps.Skip()).batch(8),
        {"executor": "threads", "num_workers": 2},
    ),
}


@pytest.fixture(scope="module", params=PLANS)
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, list[Record], Any]:
    dataset, options = PLANS[request.param]
    path = tmp_path_factory.mktemp("trace") / "timeline.json"
    with dataset.feed(**options) as feed:
        feed.trace(path)
        for epoch in range(2):
            for number, _ in enumerate(feed):
                if number % 5 == epoch:
                    time.sleep(0.002)
        stats = feed.stats()
    return request.param, loaded(path), stats


def is_step(record: Record) -> bool:
    """Tell whether a span is what the loop did with one or more batches."""
    return record["ph"] == "X" and "batches" in record["args"] and "number" in record["args"]


def last_step(records: list[Record]) -> int:
    return max(record["args"]["number"] + record["args"]["batches"] - 1 for record in records if is_step(record))


def test_every_row_and_the_process_have_names(run: tuple[str, list[Record], Any]) -> None:
    check_names(run[1], os.getpid())


def test_spans_of_a_row_nest(run: tuple[str, list[Record], Any]) -> None:
    check_nesting(run[1])


def test_waits_and_work_are_those_of_the_figures(run: tuple[str, list[Record], Any]) -> None:
    _, records, stats = run
    spans = [record for record in records if record["ph"] == "X"]
    wait_s = sum(span["dur"] for span in spans if span["name"] == "wait") / 1e6
    assert wait_s == pytest.approx(stats.consumer.first_wait_s + stats.consumer.wait_s, rel=0.01)
    for stage in stats.stages:
        busy_s = sum(span["dur"] for span in spans if span["name"] == stage.name) / 1e6
        assert busy_s == pytest.approx(stage.busy_s, rel=0.02)
        assert sum(span["args"]["elements"] for span in spans if span["name"] == stage.name) == stage.num_elements
    assert sum(span["args"]["batches"] for span in spans if is_step(span)) == stats.consumer.num_batches


def test_no_arrow_leads_back_in_time_and_every_end_lies_in_a_span(run: tuple[str, list[Record], Any]) -> None:
    name, records, _ = run
    arrows = check_arrows(records)
    spans = spans_of(records)
    to_steps = {(span["tid"], span["ts"]) for span in (one for row in spans.values() for one in row) if is_step(span)}
    led = {(end["tid"], end["ts"]) for _, end in arrows.values()} & to_steps
    if name != "async":  # its calls are no blocks
        assert len(led) == len(to_steps)


def test_a_block_says_what_it_is_made_of(run: tuple[str, list[Record], Any]) -> None:
    name, records, _ = run
    if name == "async":
        return
    blocks = [record["args"] for record in records if record["ph"] == "X" and "cpu_ms" in record["args"]]
    assert {block["epoch"] for block in blocks} == {0, 1}
    assert min(block["first"] for block in blocks) == 0
    assert max(block["last"] for block in blocks) == {"inline": 199, "stages": 399, "generator": 499}.get(name, 599)
    assert all(block["first"] <= block["last"] for block in blocks)


def test_counters_follow_the_buffers_and_the_memory(run: tuple[str, list[Record], Any]) -> None:
    counters = {record["name"] for record in run[1] if record["ph"] == "C"}
    assert {"feed/ready", "memory of the process"} <= counters


def test_retries_losses_and_notices_stand_where_they_happened(tmp_path: Path) -> None:
    def check(x: int) -> int:
        if x == 5:
            raise OSError("no such photograph")
        return x

    dataset = ps.from_source(range(20)).map(check, on_error=ps.Retry(2, then=ps.Skip()))
    with dataset.feed(executor="threads", num_workers=1) as feed, warnings.catch_warnings():
        feed.trace(tmp_path / "t.json")
        assert len(list(feed)) == 19
    marks = [record for record in loaded(tmp_path / "t.json") if record["ph"] == "i"]
    assert [mark["name"] for mark in marks if "retry" in mark["name"]] == ["retry 1", "retry 2"]
    (lost,) = [mark for mark in marks if mark["name"] == "skipped"]
    assert lost["args"]["error"] == "OSError: no such photograph"
    assert lost["args"]["keys"] == [[0, 5, 0]]


def test_queue_calls_and_runners_have_rows(tmp_path: Path) -> None:
    queue = FIFOQueue(4, name="numbers")
    with trace(tmp_path / "t.json", queue) as timeline:
        threads = QueueRunner(queue, [iter(range(100)), iter(range(100))]).create_threads(start=True)
        assert sorted(queue.dequeue() for _ in range(200)) == sorted([*range(100)] * 2)
        for thread in threads:
            thread.join()
    assert not timeline.is_alive
    records = loaded(tmp_path / "t.json")
    assert sum(record["args"]["elements"] for record in records if record["name"] == "enqueue numbers") == 200
    assert sum(record["args"]["elements"] for record in records if record["name"] == "dequeue numbers") == 200
    rows = {record["args"]["name"] for record in records if record["name"] == "thread_name"}
    assert len(rows) == 3
    assert threading.current_thread().name in rows


def test_the_last_seconds_are_kept(tmp_path: Path) -> None:
    with ps.from_source(range(300)).map(slow).batch(1).feed(executor="threads", num_workers=1) as feed:
        feed.trace(tmp_path / "t.json", last_s=0.05)
        for _ in feed:
            time.sleep(0.001)
    records = loaded(tmp_path / "t.json")
    assert last_step(records) == 300
    assert min(record["args"]["number"] for record in records if is_step(record)) > 1
    assert {record["tid"] for record in records if record["ph"] == "X"} <= {r["tid"] for r in records if r["name"] == "thread_name"}


def test_a_file_that_is_full_says_what_was_dropped(tmp_path: Path) -> None:
    queue = FIFOQueue(4)
    with trace(tmp_path / "t.json", queue, most_bytes=20_000) as timeline:
        for number in range(2000):
            queue.enqueue(number)
            queue.dequeue()
            if number % 200 == 0:
                time.sleep(0.12)
        time.sleep(0.7)
        queue.enqueue(1)
    records = loaded(tmp_path / "t.json")
    assert timeline.num_dropped > 0
    assert records[-1]["args"]["text"].startswith(f"{timeline.num_dropped} records were dropped")


def test_what_is_no_queue_or_feed_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match=r"observe\.trace\(\)"):
        trace(tmp_path / "t.json", 3)
    with ps.from_source(range(3)).feed() as feed, pytest.raises(FileNotFoundError):
        feed.trace(tmp_path / "no" / "t.json")


PROGRAM = """
import sys, time
import penstock as ps
with ps.from_source(range(10**6)).batch(4).feed(executor="threads", num_workers=2) as feed:
    feed.trace(sys.argv[1])
    print("ready", flush=True)
    for number, batch in enumerate(feed):
        time.sleep(0.001)
        if len(sys.argv) > 2 and number == 300:
            sys.exit()
"""


@pytest.mark.parametrize("after_s", core([0.0, 0.3, 0.8], [0.3]))
def test_a_killed_program_leaves_strict_json(tmp_path: Path, after_s: float) -> None:
    path = tmp_path / "t.json"
    with subprocess.Popen([sys.executable, "-c", PROGRAM, str(path)], stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        program.stdout.readline()
        deadline = time.monotonic() + 60
        while '"batches":' not in path.read_text() and time.monotonic() < deadline:  # it may be in the middle of a write
            time.sleep(0.02)
        time.sleep(after_s)
        program.kill()
    assert any(is_step(record) for record in loaded(path))


def test_a_program_that_ends_without_close_leaves_all_of_it(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    output_of("-c", PROGRAM, path, "end")
    assert last_step(loaded(path)) >= 301


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


def test_errors_without_a_text_and_secrets_in_texts_do_no_harm(tmp_path: Path) -> None:
    def check(x: int) -> int:
        if x == 3:
            raise Unprintable
        if x == 5:
            raise OSError("GET https://user:password@host/x?X-Amz-Signature=0123abcd")
        return x

    with ps.from_source(range(20)).map(check).feed(executor="threads", num_workers=1, on_error=ps.Skip()) as feed:
        feed.trace(tmp_path / "t.json")
        assert len(list(feed)) == 18
    text = (tmp_path / "t.json").read_text()
    assert text.count('"name":"skipped"') == 2
    assert "password" not in text
    assert "0123abcd" not in text


def test_a_forked_process_keeps_no_events(tmp_path: Path) -> None:
    queue = FIFOQueue(4)
    with trace(tmp_path / "t.json", queue) as timeline:
        child = os.fork()
        if child == 0:
            queue.enqueue(1)
            queue.dequeue()
            timeline.close()
            os._exit(len(timeline._seen))
        assert os.waitpid(child, 0)[1] == 0
        queue.enqueue(1)
    assert [record["name"] for record in loaded(tmp_path / "t.json") if record["ph"] == "X"] == ["enqueue FIFOQueue"]


def test_a_time_that_is_no_time_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="last_s is -1"):
        trace(tmp_path / "t.json", FIFOQueue(1), last_s=-1)
