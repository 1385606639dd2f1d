"""Ctrl-C in a call that waits: the traceback has the user's line and one of this library, in whole programs that get a real signal."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

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
    "for batch in feed": (
        """
        with ds.feed(executor="threads", num_workers=1, grace_period_s=0) as feed:
            for batch in feed:  # here
                pass
        """,
        "__next__",
    ),
    "for batch in ds": (
        """
        ds = ds.with_options(executor="threads", num_workers=1, grace_period_s=0)
        for batch in ds:  # here
            pass
        """,
        "__next__",
    ),
    "next(feed)": (
        """
        feed = ds.feed(executor="threads", num_workers=1, grace_period_s=0)
        next(feed)  # here
        """,
        "__next__",
    ),
    "close": (
        """
        feed = ps.from_source(range(9)).map(lambda x: x and slow(x)).feed(executor="threads", num_workers=1, grace_period_s=60)
        next(feed)
        feed.close()  # here
        """,
        "close",
    ),
    "dequeue": (
        """
        queue = FIFOQueue(2)
        beside(queue)
        queue.dequeue()  # here
        """,
        "dequeue",
    ),
    "dequeue_many": (
        """
        queue = FIFOQueue(2)
        beside(queue)
        queue.dequeue_many(2)  # here
        """,
        "dequeue_many",
    ),
    "enqueue_many": (
        """
        queue = FIFOQueue(2)
        beside(queue)
        queue.enqueue_many([1, 2, 3])  # here
        """,
        "enqueue_many",
    ),
    "join": (
        """
        coord = Coordinator()
        thread = threading.Thread(target=slow, args=(1,), daemon=True)
        thread.start()
        coord.join([thread])  # here
        """,
        "join",
    ),
    "wait_for_stop": (
        """
        coord = Coordinator()
        threading.Thread(target=slow, args=(1,), daemon=True).start()
        coord.wait_for_stop()  # here
        """,
        "wait_for_stop",
    ),
    "enqueuer": (
        """
        enqueuer = ps.GeneratorEnqueuer(rows)
        enqueuer.start()
        for item in enqueuer.get():  # here
            pass
        """,
        "get",
    ),
    "parallel_jobs": (
        """
        ps.parallel_jobs(slow, [1, 2], num_workers=2, executor="threads")  # here
        """,
        "parallel_jobs",
    ),
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


def frames(traceback: list[str]) -> list[tuple[str, str, str]]:
    """Return file, function and line of each frame of a traceback."""
    at = [place for place, line in enumerate(traceback) if line.startswith('  File "')]
    return [(traceback[n].split('"')[1], traceback[n].rpartition(" in ")[2], traceback[n + 1].strip()) for n in at]


@pytest.mark.parametrize("name", WAITS)
def test_ctrl_c_shows_the_line_of_the_user_and_one_of_ours(name: str, tmp_path: Path) -> None:
    body, function = WAITS[name]
    traceback = interrupted(body, tmp_path)
    found = frames(traceback)
    assert len(found) == 2, "\n".join(traceback)
    assert os.path.basename(found[0][0]) == "program.py"
    assert found[0][2].endswith("# here")
    assert found[1][0].startswith(SOURCE)
    assert found[1][1] == function
    assert "\n".join(traceback).count("Traceback") == 1
    assert any(line.startswith("KeyboardInterrupt") for line in traceback)


@pytest.mark.parametrize(
    "call", ["next(ds.feed(num_workers=0))", "ps.parallel_jobs(slow, [1], num_workers=0)", 'ps.pack(ds, "packed", executor="threads")']
)
def test_ctrl_c_in_a_function_of_the_user_in_this_thread_shows_its_line_too(call: str, tmp_path: Path) -> None:
    found = frames(interrupted(f"{call}  # here\n", tmp_path))
    ours = [file for file, *_ in found if file.startswith(SOURCE)]
    assert len(ours) == 1
    assert [line for file, _, line in found if os.path.basename(file) == "program.py"] == [f"{call}  # here", "gate.wait()  # in work"]


def test_other_errors_keep_all_their_frames() -> None:
    def fails(x: int) -> int:
        raise ValueError("bad")

    with ps.from_source([1]).map(fails).feed(num_workers=0) as feed, pytest.raises(ValueError, match="bad") as caught:
        next(feed)
    assert len([one for one in caught.traceback if str(one.path).startswith(SOURCE)]) > 2
