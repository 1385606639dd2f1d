"""Ctrl-C in a call that waits: the program ends there at once with one KeyboardInterrupt; whole programs that get a real signal."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from core import core

import penstock as ps

EXIT_S = 20.0
SOURCE = str(Path(ps.__file__).parents[1])

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals and process groups of POSIX")

BEGIN = """
import os, sys, threading, time
import penstock as ps
from penstock.queues import Coordinator, FIFOQueue

gate = threading.Event()

def stack():
    frame, found = sys._current_frames()[threading.main_thread().ident], []
    while frame is not None:
        found.append((frame.f_code.co_filename, frame.f_lasti))
        frame = frame.f_back
    return found

def say_when_main_waits():
    # It stands in the library, and at the same place as 0.1 s before.
    last = None
    while (now := stack()) != last or not any("penstock" in file for file, _ in now):
        last = now
        time.sleep(0.1)
    os.write(1, b"ready\\n")

def ready():
    threading.Thread(target=say_when_main_waits, daemon=True).start()

def slow(x):
    ready()
    gate.wait()  # in work
    return x

def rows():
    yield 1
    ready()
    gate.wait()  # in work

def beside(queue):
    # A thread that could serve the queue: the wait is no error.
    def serve():
        ready()
        gate.wait()
        queue.enqueue(1)
        queue.dequeue()
    threading.Thread(target=serve, daemon=True).start()

ds = ps.from_source(range(9)).map(slow)
"""

WAITS = {
    "for batch in feed": """
        with ds.feed(executor="threads", num_workers=1, grace_period_s=0) as feed:
            for batch in feed:  # here
                pass
    """,
    "for batch in ds": """
        ds = ds.with_options(executor="threads", num_workers=1, grace_period_s=0)
        for batch in ds:  # here
            pass
    """,
    "next(feed)": """
        feed = ds.feed(executor="threads", num_workers=1, grace_period_s=0)
        next(feed)  # here
    """,
    "close": """
        feed = ps.from_source(range(9)).map(lambda x: x and slow(x)).feed(executor="threads", num_workers=1, grace_period_s=60)
        next(feed)
        feed.close()  # here
    """,
    "dequeue": """
        queue = FIFOQueue(2)
        beside(queue)
        queue.dequeue()  # here
    """,
    "dequeue_many": """
        queue = FIFOQueue(2)
        beside(queue)
        queue.dequeue_many(2)  # here
    """,
    "enqueue_many": """
        queue = FIFOQueue(2)
        beside(queue)
        queue.enqueue_many([1, 2, 3])  # here
    """,
    "join": """
        coord = Coordinator()
        thread = threading.Thread(target=slow, args=(1,), daemon=True)
        thread.start()
        coord.join([thread])  # here
    """,
    "wait_for_stop": """
        coord = Coordinator()
        threading.Thread(target=slow, args=(1,), daemon=True).start()
        coord.wait_for_stop()  # here
    """,
    "enqueuer": """
        enqueuer = ps.GeneratorEnqueuer(rows)
        enqueuer.start()
        for item in enqueuer.get():  # here
            pass
    """,
    "parallel_jobs": """
        ps.parallel_jobs(slow, [1, 2], num_workers=2, executor="threads")  # here
    """,
    "next(feed) in this thread": """
        next(ds.feed(num_workers=0))  # here
    """,
    "parallel_jobs in this thread": """
        ps.parallel_jobs(slow, [1], num_workers=0)  # here
    """,
    "pack": """
        ps.pack(ds, "packed", executor="threads")  # here
    """,
}


def interrupted(body: str, tmp_path: Path) -> list[str]:
    """Run a program, send Ctrl-C while it waits, and return its traceback: the lines of what it wrote to stderr."""
    (tmp_path / "program.py").write_text(BEGIN + textwrap.dedent(body))
    environment = {**os.environ, "PYTHONPATH": SOURCE, "PYTHONUNBUFFERED": "1"}
    child = subprocess.Popen(
        [sys.executable, "program.py"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        start_new_session=True,
    )
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        os.killpg(child.pid, signal.SIGINT)
        _, errors = child.communicate(timeout=EXIT_S)
    finally:
        if child.poll() is None:
            os.killpg(child.pid, signal.SIGKILL)
        child.communicate()
    assert child.returncode == -signal.SIGINT, errors
    return errors.splitlines()


CORE = ("for batch in feed", "close", "dequeue", "join", "enqueuer", "parallel_jobs", "next(feed) in this thread", "pack")


@pytest.mark.parametrize("name", core(WAITS, CORE))
def test_ctrl_c_in_a_call_that_waits_is_one_keyboard_interrupt_at_the_line_of_the_user(name: str, tmp_path: Path) -> None:
    traceback = interrupted(WAITS[name], tmp_path)
    assert any(line.endswith("# here") for line in traceback)
    assert "\n".join(traceback).count("Traceback") == 1
    assert sum(line.startswith("KeyboardInterrupt") for line in traceback) == 1
