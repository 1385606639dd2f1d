"""Whole programs: how they exit, and what signals do to them: FAULTS B3, B9, B11, B12, B14.

Each script runs in a process group of its own; what it prints and its exit status are all that counts.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from core import core
from faults.ways import drained, engine_threads
from forked import Program, forks

import penstock as ps

EXIT_S = 20.0  # a limit for what takes 0.1 s on a quiet machine and would last for ever if it hung
SOURCE = str(Path(ps.__file__).parents[1])
ENVIRONMENT = {"PYTHONWARNINGS": "error", "PYTHONUNBUFFERED": "1"}

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals and process groups of POSIX")

BEGIN = """
import asyncio, atexit, json, os, signal, sys, threading, time
import numpy as np
import penstock as ps

def work(x):
    return np.full(1000, x)

def numbers(count=10**9):
    return ps.from_source(range(count)).map(work).batch(4)

def tokens(x):
    return np.full(x % 5 + 1, x, np.int32)

def packed():
    return ps.from_source(range(10**7)).mix(ps.from_source(range(10**7))).map(tokens).pack_sequences(16)

async def fetch(x):
    await asyncio.sleep(0)
    return x

def import_all():
    # Modules are imported when they are first needed. Ctrl-C inside an import makes Python itself warn of the source file it left open.
    for way in ({"executor": "inline"}, {"executor": "threads", "num_workers": 1}):
        for ds in (numbers(8), packed().take(3), ps.from_source(range(9)).map(fetch, concurrency=9).batch(4)):
            list(ds.feed(**way))
"""


@contextmanager
def program(body: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Run a script in its own process group; kill it when the block is left."""
    child = subprocess.Popen(
        [sys.executable, "-c", BEGIN + textwrap.dedent(body), *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": SOURCE, **ENVIRONMENT},
        start_new_session=True,
    )
    try:
        yield child
    finally:
        if child.poll() is None:
            os.killpg(child.pid, signal.SIGKILL)
        child.communicate()


def finished(body: str, *arguments: str) -> tuple[int, list[str], str]:
    """Run a script; return exit status, lines of output and stderr. It must exit soon after it said 'leaving'."""
    with program(body, *arguments) as child:
        assert child.stdout is not None
        lines: list[str] = []
        for line in child.stdout:
            lines.append(line.strip())
            if lines[-1] == "leaving":
                break
        _, errors = child.communicate(timeout=EXIT_S)
        return child.returncode, lines, errors


EXITS = {
    "at top level": """
        feed = iter(numbers())
        print(int(next(feed)[0, 0])); print("leaving")
    """,
    "in main()": """
        def main():
            feed = numbers().feed(executor="threads", num_workers=3)
            print(int(next(feed)[0, 0])); print("leaving")
            return feed
        kept = main()
    """,
    "in a loop left by sys.exit": """
        for batch in numbers():
            print(int(batch[0, 0])); print("leaving")
            sys.exit(0)
    """,
    "in an atexit handler": """
        feed = iter(numbers())
        next(feed)
        def last():
            print(int(next(feed)[0, 0]) - 4); print("leaving")
        atexit.register(last)
    """,
    "started by an atexit handler": """
        def last():
            print(int(next(iter(numbers()))[0, 0])); print("leaving")
        atexit.register(last)
    """,
    "in a daemon thread": """
        running = threading.Event()
        def train():
            for batch in numbers():
                running.set()
        threading.Thread(target=train, daemon=True).start()
        running.wait()
        print(0); print("leaving")
    """,
    "with the consumer of a daemon thread waiting": """
        inside = threading.Event()
        def stuck(x):
            inside.set()
            threading.Event().wait(0.5)
            return x
        def train():
            next(iter(ps.from_source(range(10)).map(stuck)))
        threading.Thread(target=train, daemon=True).start()
        inside.wait()
        print(0); print("leaving")
    """,
    "inline": """
        feed = numbers().feed(executor="inline")
        print(int(next(feed)[0, 0])); print("leaving")
    """,
    "with a generator source": """
        def rows():
            try:
                n = 0
                while True:
                    yield n
                    n += 1
            finally:
                sys.stdout.write("")
        feed = iter(ps.from_generator(rows).batch(4))
        print(int(next(feed)[0])); print("leaving")
    """,
    "in a reference cycle": """
        class Trainer: pass
        trainer = Trainer(); trainer.me = trainer; trainer.feed = iter(numbers())
        print(int(next(trainer.feed)[0, 0])); print("leaving")
        del trainer
    """,
}


@pytest.mark.parametrize("place", core(EXITS, ["at top level", "in an atexit handler", "in a daemon thread", "in a reference cycle"]))
def test_a_program_with_a_running_feed_exits_at_once_with_its_own_status_and_nothing_on_stderr(place: str) -> None:
    assert finished(EXITS[place]) == (0, ["0", "leaving"], "")


def test_an_error_of_the_training_loop_exits_with_1_and_one_traceback_without_the_librarys_frames() -> None:
    status, lines, errors = finished("""
        big = ps.from_source(range(64)).map(lambda x: np.full(4 << 20, x, np.uint8)).batch(1).prefetch(8)
        with big.feed(executor="threads", num_workers=2) as feed:
            for step, batch in enumerate(feed):
                assert (batch == step).all()
                if step == 3:
                    print("leaving")
                    1 / 0
    """)
    assert (status, lines) == (1, ["leaving"])
    assert errors.count("Traceback") == 1
    assert errors.strip().endswith("ZeroDivisionError: division by zero")
    assert "penstock/" not in errors


def test_an_uncaught_error_of_a_users_function_prints_its_stage_and_element() -> None:
    status, _, errors = finished("""
        def decode(x):
            if x == 9:
                raise ValueError("bad marker")
            return x
        for item in ps.from_source(range(20)).map(decode).feed(executor="threads", num_workers=2):
            pass
    """)
    assert status == 1
    assert "ValueError: bad marker" in errors
    assert "penstock: stage 'decode', worker " in errors
    assert "element epoch 0 index 9 (element 9 of range)" in errors
    assert "Exception ignored" not in errors
    assert "Exception in thread" not in errors


# -- Ctrl-C -----------------------------------------------------------------------------------------------------------------------

LOOPS = {
    "threads": """
        print("ready")
        with numbers().feed(executor="threads", num_workers=2) as feed:
            for batch in feed:
                batch.sum()
    """,
    "a plain loop": """
        list(numbers(8).feed(num_workers=1)); print("ready")  # with worker processes
        for batch in numbers():
            batch.sum()
    """,
    "inline": """
        print("ready")
        with numbers().feed(executor="inline") as feed:
            for batch in feed:
                batch.sum()
    """,
    "waiting for a slow source": """
        def slow(x):
            threading.Event().wait(0.2)
            return x
        print("ready")
        with ps.from_source(range(10**6)).map(slow).feed(executor="threads", num_workers=2) as feed:
            for item in feed:
                pass
    """,
    "starting and closing": """
        print("ready")
        while True:
            with numbers().feed(executor="threads", num_workers=2) as feed:
                next(feed)
    """,
}


def interrupted(body: str, delays_s: Iterable[float]) -> None:
    """Send Ctrl-C to a script so long after it printed 'ready', once for each delay, and check how it ends."""
    with forks(f"{BEGIN}\nimport_all()", **ENVIRONMENT) as warm:
        for delay_s in delays_s:
            with warm.program(textwrap.dedent(body)) as child:
                _interrupt(child, delay_s)


def _interrupt(child: Program, delay_s: float) -> None:
    assert child.stdout.readline() == "ready\n"
    threading.Event().wait(delay_s)
    os.killpg(child.pid, signal.SIGINT)
    try:
        status, errors = child.wait(EXIT_S), child.errors()
    except subprocess.TimeoutExpired as late:
        # Python loses an interrupt that comes in a callback of its own, here that of the set in which threading keeps its threads.
        if b"_weakrefset.py" in (late.stderr or b""):
            return
        raise
    assert status == -signal.SIGINT, errors
    # One exception, with the one that was being handled when it came: `os.environ.get` raises a KeyError inside, say.
    links = errors.count("\nDuring handling of the above exception, another exception occurred:\n")
    assert errors.count("Traceback (most recent call last)") == 1 + links, errors
    assert sum(line.startswith("KeyboardInterrupt") for line in errors.splitlines()) == 1, errors
    assert errors.strip().endswith("KeyboardInterrupt"), errors
    assert "Exception ignored" not in errors, errors


@pytest.mark.parametrize("loop", core(LOOPS, ["threads", "inline", "waiting for a slow source"]))
def test_ctrl_c_at_any_time_is_one_keyboard_interrupt_and_one_traceback(loop: str) -> None:
    delays = random.Random(loop)
    interrupted(LOOPS[loop], [delays.random() * 0.08])


@pytest.mark.slow
@pytest.mark.parametrize("loop", LOOPS)
def test_ctrl_c_at_200_random_times_is_always_one_keyboard_interrupt(loop: str) -> None:
    delays = random.Random(f"{loop}, many")
    interrupted(LOOPS[loop], [delays.random() ** 2 * 0.2 for _ in range(200 // len(LOOPS))])


def test_a_second_ctrl_c_does_not_wait_for_the_grace_period() -> None:
    with program("""
        started, inside = threading.Event(), threading.Event()
        def deaf(x):
            if x:
                started.wait()
                inside.set()
                threading.Event().wait(60)
            return x
        with ps.from_source(range(9)).map(deaf).feed(executor="threads", num_workers=1, grace_period_s=60) as feed:
            threading.Thread(target=lambda: (inside.wait(), print("ready")), daemon=True).start()
            try:
                next(feed)  # an interrupt of the start itself would wait for the grace period
                started.set()
                next(feed)
            finally:
                print("closing")
    """) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        os.killpg(child.pid, signal.SIGINT)
        assert child.stdout.readline() == "closing\n"
        begin = time.monotonic()
        while child.poll() is None and time.monotonic() - begin < EXIT_S:  # the first press after `closing` may come before join()
            os.killpg(child.pid, signal.SIGINT)
            threading.Event().wait(0.1)
        assert child.poll() == -signal.SIGINT


# -- SIGTERM ----------------------------------------------------------------------------------------------------------------------


def test_sigterm_ends_a_program_at_once() -> None:
    with program(LOOPS["threads"]) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        child.send_signal(signal.SIGTERM)
        assert child.wait(EXIT_S) == -signal.SIGTERM
        assert child.communicate()[1] == ""


SAVING = """
    with ps.from_source(range(10**7)).shuffle(seed=3).map(abs).batch(3).feed(**json.loads(sys.argv[1])) as feed:
        left = []
        signal.signal(signal.SIGTERM, lambda number, frame: left.append(feed.state_dict()))
        seen = []
        for batch in feed:
            seen.append(batch.tolist())
            if len(seen) == 50:
                print("ready")
            if left:
                print(json.dumps([len(seen), seen, left[0]]))
                break
"""


@pytest.mark.parametrize("way", [{"executor": "inline"}, {"executor": "threads", "num_workers": 2}], ids=["inline", "threads"])
def test_the_state_saved_in_a_sigterm_handler_goes_on_right_behind_what_the_loop_got(way: dict[str, Any]) -> None:
    ds = ps.from_source(range(10**7)).shuffle(seed=3).map(abs).batch(3)
    for delay_s in (0.0, 0.003, 0.01):
        with program(SAVING, json.dumps(way)) as child:
            assert child.stdout is not None
            assert child.stdout.readline() == "ready\n"
            threading.Event().wait(delay_s)
            child.send_signal(signal.SIGTERM)
            output, errors = child.communicate(timeout=EXIT_S)
        assert (child.returncode, errors) == (0, "")
        count, seen, state = json.loads(output)
        assert count - 1 <= state["step"] <= count  # the handler ran in this step, or in the hand-over of its batch
        with ds.feed(executor="threads", num_workers=2) as feed:
            feed.load_state_dict(state)
            rest = [next(feed).tolist() for _ in range(20)]
        step = state["step"]
        assert seen[:step] + rest == [ds[i].tolist() for i in range(step + 20)]


def test_a_handler_that_saves_and_exits_leaves_a_state_that_continues_the_log() -> None:
    ds = ps.from_source(range(10**7)).shuffle(seed=3).map(abs).batch(3)
    leaving = SAVING.replace("left.append(feed.state_dict())", "(print(json.dumps(feed.state_dict())), sys.exit(7))")
    assert leaving != SAVING
    with program(leaving, "{}") as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        child.send_signal(signal.SIGTERM)
        output, errors = child.communicate(timeout=EXIT_S)
    assert (child.returncode, errors) == (7, "")
    state = json.loads(output)
    with ds.feed() as feed:
        feed.load_state_dict(state)
        assert next(feed).tolist() == ds[state["step"]].tolist()


# -- threads ----------------------------------------------------------------------------------------------------------------------


def test_a_pipeline_built_and_run_outside_the_main_thread_works() -> None:
    outcome: list[Any] = []

    def train() -> None:
        ds = ps.from_source(range(300)).shuffle(seed=1).map(lambda x: x).batch(7)
        ways: list[dict[str, Any]] = [
            {"executor": "inline"},
            {"executor": "threads", "num_workers": 1},
            {"executor": "threads", "num_workers": 4},
        ]
        outcome.extend(drained(ds.feed(**way)) for way in ways)
        feed = ds.feed(executor="threads", num_workers=2)
        outcome.append(next(feed).tolist())
        feed.close()

    thread = threading.Thread(target=train)
    thread.start()
    thread.join(60)
    assert outcome[0] == outcome[1] == outcome[2]
    assert outcome[0][1] is None
    assert sorted(x for batch in outcome[0][0] for x in batch) == list(range(300))
    assert outcome[3] == outcome[0][0][0]
    assert engine_threads() == []


def test_a_feed_outlives_the_thread_that_started_it() -> None:
    feed = ps.from_source(range(300)).map(lambda x: x).feed(executor="threads", num_workers=2)
    first: list[int] = []
    thread = threading.Thread(target=lambda: first.append(next(feed)))
    thread.start()
    thread.join(30)
    assert [*first, *drained(feed)[0]] == list(range(300))
