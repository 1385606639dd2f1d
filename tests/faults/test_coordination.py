"""Exits, the signals of the host program, full pipes and dead lock holders: FAULTS B10, B11, B12, B13, B22, B23, E16."""

from __future__ import annotations

import ctypes
import json
import os
import random
import signal
import sys
import threading
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import pytest
from faults.test_processes import LOOPS, finished, interrupted, program
from faults.ways import SETTLED_S, UNORDERED, WAYS, drained, engine_threads, every_way_and_order
from laws.epochs import rest
from laws.plans import plain

import penstock as ps

pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform == "win32", reason="signals and process groups of POSIX")]

# -- exits (B10) ---------------------------------------------------------------------------------------------------------------------------

OPTIONS: dict[str, str] = {
    "ordered": "executor='threads', num_workers=2",
    "unordered": "executor='threads', num_workers=2, ordered=False",
    "inline": "executor='inline'",
}
EXITS: dict[str, tuple[str, int]] = {
    "os._exit in the loop": (
        """
        for batch in numbers().feed(OPTIONS):
            print("leaving")
            os._exit(5)
        """,
        5,
    ),
    "os._exit in a function": (
        """
        def leave(x):
            if x == 40:
                print("leaving")
                os._exit(5)
            return x
        for item in ps.from_source(range(10**9)).map(leave).feed(OPTIONS):
            pass
        """,
        5,
    ),
    "sys.exit in the loop": (
        """
        with numbers().feed(OPTIONS) as feed:
            for batch in feed:
                print("leaving")
                sys.exit(5)
        """,
        5,
    ),
    "sys.exit with an async map in flight": (
        """
        import asyncio
        async def fetch(x):
            await asyncio.sleep(3600 if x % 7 == 6 else 0)
            return x
        for item in ps.from_source(range(10**9)).map(fetch, concurrency=5).feed(OPTIONS):
            print("leaving")
            sys.exit(5)
        """,
        5,
    ),
    "the end of a thread with a running feed": (
        """
        def train():
            kept.append(iter(numbers().feed(OPTIONS)))
            next(kept[0])
        kept = []
        thread = threading.Thread(target=train); thread.start(); thread.join()
        print("leaving")
        """,
        0,
    ),
}


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("place", EXITS)
def test_a_program_that_exits_with_a_running_feed_is_gone_at_once_with_its_own_status(place: str, options: str) -> None:
    if options == "inline" and place == "sys.exit with an async map in flight":
        return  # inline has nothing in flight when the loop has its turn, and would wait for the hour
    body, status = EXITS[place]
    assert finished(body.replace("OPTIONS", OPTIONS[options])) == (status, ["leaving"], "")


@pytest.mark.parametrize("options", OPTIONS)
def test_an_uncaught_error_in_another_thread_ends_its_feed_and_not_that_of_the_main_thread(options: str) -> None:
    status, lines, errors = finished(
        """
        def train():
            for step, batch in enumerate(numbers().feed(OPTIONS)):
                if step == 3:
                    raise ArithmeticError("loss is nan")
        thread = threading.Thread(target=train, name="trainer")
        with numbers(4000).feed(OPTIONS) as feed:
            first = next(feed)
            thread.start(); thread.join()
            print(1 + sum(1 for _ in feed))
        print("leaving")
        """.replace("OPTIONS", OPTIONS[options])
    )
    assert (status, lines) == (0, ["1000", "leaving"])
    assert errors.count("Traceback") == 1
    assert "Exception in thread trainer" in errors
    assert errors.strip().endswith("ArithmeticError: loss is nan")


# -- Ctrl-C and SIGTERM, in completion order (B11, B12) -----------------------------------------------------------------------------------

UNORDERED_LOOPS = {
    name: body.replace("num_workers=2", "num_workers=2, ordered=False").replace('executor="inline"', 'executor="inline", ordered=False')
    for name, body in LOOPS.items()
    if name != "a plain loop"
}
UNORDERED_LOOPS["an async map"] = """
        print("ready")
        with ps.from_source(range(10**7)).map(fetch, concurrency=9).batch(4).feed(executor="threads", num_workers=2, ordered=False) as feed:
            for batch in feed:
                batch.sum()
"""
UNORDERED_LOOPS["mix and pack"] = """
        print("ready")
        with packed().feed(executor="threads", num_workers=2, ordered=False) as feed:
            for row in feed:
                row["tokens"].sum()
"""


@pytest.mark.parametrize("loop", UNORDERED_LOOPS)
def test_ctrl_c_in_completion_order_is_one_keyboard_interrupt_and_one_traceback(loop: str) -> None:
    delays = random.Random(loop)
    interrupted(UNORDERED_LOOPS[loop], [delays.random() * 0.08 for _ in range(2)])


# -- the host's own signals (B13) ----------


@every_way_and_order
def test_a_program_that_reaps_all_children_and_handles_its_own_signals_gets_every_element(way: dict[str, Any]) -> None:
    status, lines, errors = finished(
        """
        import subprocess
        way = json.loads(sys.argv[1])
        reaped, heard = [], []
        def reap(number, frame):
            try:
                while True:
                    pid, status = os.waitpid(-1, os.WNOHANG)
                    if pid == 0:
                        break
                    reaped.append(status)
            except ChildProcessError:
                pass
        signal.signal(signal.SIGCHLD, reap)
        signal.signal(signal.SIGPIPE, lambda number, frame: heard.append(number))
        signal.signal(signal.SIGHUP, lambda number, frame: heard.append(number))
        seen = []
        with ps.from_source(range(3000)).map(abs).batch(3).feed(**way) as feed:
            for step, batch in enumerate(feed):
                seen += batch.tolist()
                if step % 100 == 0:
                    pid = os.posix_spawn("/bin/true", ["true"], {})
                    os.kill(os.getpid(), signal.SIGHUP)
                    os.kill(os.getpid(), signal.SIGPIPE)
        while len(reaped) < 10:
            time.sleep(0.001)  # no pause(): the last signal may come just before it
        print(sorted(seen) == list(range(3000)), seen == sorted(seen) or not way.get("ordered", True), len(reaped), len(heard))
        print("leaving")
        """,
        json.dumps(way),
    )
    assert (status, lines, errors) == (0, ["True True 10 20", "leaving"], "")


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # in Hypothesis's callback of the collector it is lost
@every_way_and_order
def test_a_handler_that_raises_reaches_the_loop_once_and_the_feed_goes_on_exactly(way: dict[str, Any]) -> None:
    class Timer(Exception):
        pass

    def ring(number: int, frame: Any) -> None:
        raise Timer

    before = signal.signal(signal.SIGUSR1, ring)
    done = threading.Event()
    main = threading.main_thread().ident
    assert main is not None
    rounds = threading.Semaphore(0)

    def annoy() -> None:
        while rounds.acquire(timeout=60) and not done.is_set():
            signal.pthread_kill(main, signal.SIGUSR1)

    thread = threading.Thread(target=annoy)
    thread.start()
    ds = ps.from_source(range(4000)).map(lambda x: x).batch(4)
    got: list[Any] = []
    raised, ended = 0, False
    state = ds.feed().state_dict()
    try:
        while not ended:
            feed = ds.feed(**way)
            feed.load_state_dict(state)
            batches: list[Any] = []
            try:
                if raised < 40:
                    rounds.release()
                batches.extend(plain(batch) for batch in rest(feed))
                ended = True
            except Timer:
                raised += 1
            feed.close()
            now = feed.state_dict()
            assert 0 <= now["step"] - len(got) - len(batches) <= 1
            if now["step"] == len(got) + len(batches):  # else it came when a batch was handed over and not yet appended: once more
                got += batches
                state = now
    finally:
        done.set()
        rounds.release()
        thread.join(60)
        signal.signal(signal.SIGUSR1, before)
    assert raised
    assert sorted(x for batch in got for x in batch) == list(range(4000))


# -- states from signal handlers at a high rate (E16) ----------


@every_way_and_order
def test_states_taken_by_a_signal_handler_at_a_high_rate_are_all_consistent(way: dict[str, Any]) -> None:
    states: list[dict[str, Any]] = []
    ds = ps.from_source(range(1500)).shuffle(seed=1).filter(lambda x: x % 3 != 0).map(lambda x: x).batch(3)
    done = threading.Event()
    main = threading.main_thread().ident
    assert main is not None
    got: list[Any] = []
    with ds.feed(**way) as feed:
        before = signal.signal(signal.SIGUSR1, lambda number, frame: states.append(feed.state_dict()))

        def ring() -> None:
            while not done.is_set():
                signal.pthread_kill(main, signal.SIGUSR1)
                heard.acquire(timeout=0.01)

        heard = threading.Semaphore(0)
        thread = threading.Thread(target=ring)
        thread.start()
        try:
            for batch in feed:
                got.append(plain(batch))
                heard.release()
        finally:
            done.set()
            thread.join(60)
            signal.signal(signal.SIGUSR1, before)
    assert states
    steps = [state["step"] for state in states]
    assert steps == sorted(steps)
    for state in random.Random(2).sample(states, min(5, len(states))):
        again = ds.feed(**way)
        again.load_state_dict(state)
        items, error = drained(again)
        assert error is None
        whole = [x for item in got[: state["step"]] + items for x in item]
        assert sorted(whole) == [x for x in range(1500) if x % 3]
        assert items == got[state["step"] :] or not way.get("ordered", True)


@pytest.mark.slow
@pytest.mark.parametrize("way", [WAYS[2], UNORDERED[2]], ids=["ordered", "unordered"])
def test_a_state_at_each_of_100000_steps_is_of_constant_size(way: dict[str, Any]) -> None:
    count = 100_000
    sizes = []
    with ps.from_source(range(count)).shuffle(seed=1).filter(lambda x: True).map(lambda x: x).feed(**way) as feed:
        for number, _ in enumerate(feed, 1):
            state = feed.state_dict()
            assert state["step"] == number
            if number % 100 == 0:
                sizes.append(len(json.dumps(state)))
    assert len(sizes) == count // 100
    assert max(sizes) <= (sizes[0] + 30 if way.get("ordered", True) else 64 << 10)
    assert sorted(sizes[-200:])[100] <= sorted(sizes[:200])[100] + 200


# -- full pipes and late threads (B22) ----------


@pytest.mark.parametrize("way", [*WAYS[1:], *UNORDERED[1:]], ids=str)
def test_100000_tiny_elements_through_a_consumer_that_stops_and_goes_come_whole(way: dict[str, Any]) -> None:
    count = 100_000
    pauses = random.Random(1)
    got: list[int] = []
    with ps.from_source(range(count)).map(lambda x: x).feed(**way, memory_bytes=4096) as feed:
        for item in feed:
            got.append(item)
            if pauses.random() < 0.0005:
                threading.Event().wait(0.001)  # long enough for the workers to fill everything and park
    assert (got if way.get("ordered", True) else sorted(got)) == list(range(count))


@pytest.mark.parametrize("ordered", [True, False])
def test_an_event_loop_that_does_not_read_its_wake_up_pipe_holds_up_nobody_for_ever(ordered: bool) -> None:
    """A socket pair takes about 280 wake-ups of one byte; the loop is blocked while many more tasks are handed to it."""
    blocked, go_on = threading.Event(), threading.Event()
    reads: list[int] = []

    async def fetch(x: int) -> int:
        if x == 0:
            blocked.set()
            go_on.wait(60)  # a blocking call in the loop's thread: a user's mistake
        return x

    def read(x: int) -> int:
        reads.append(x)
        return x

    ds = ps.from_source(range(5000)).map(read).filter(lambda x: True).map(fetch, concurrency=4000)
    got: list[int] = []
    with ds.feed(executor="threads", num_workers=2, ordered=ordered) as feed:
        consumer = threading.Thread(target=lambda: got.extend(feed))
        consumer.start()
        try:
            assert blocked.wait(60)
            quiet = 0
            while quiet != len(reads):
                quiet = len(reads)
                threading.Event().wait(SETTLED_S)
        finally:
            go_on.set()
            consumer.join(60)
    assert (got if ordered else sorted(got)) == list(range(5000))


def test_a_wake_up_pipe_that_is_full_loses_no_call() -> None:
    """The same one level down: 100,000 calls from another thread into a loop that is blocked all the time."""
    from penstock._engine.watchdog import Watch
    from penstock._system.process import Breaker
    from penstock._workers.event_loop import EventLoop

    class Nobody:
        awaited: ClassVar[dict[str, Any]] = {}
        breaker = Breaker()
        watch = Watch(None)

        @staticmethod
        def broke(error: BaseException) -> None:
            raise error

    loop = EventLoop(Nobody())  # type: ignore[arg-type]
    thread = threading.Thread(target=loop.serve)
    thread.start()
    loop._opened.wait(60)
    blocked, go_on, last = threading.Event(), threading.Event(), threading.Event()
    heard: list[int] = []

    def block() -> None:
        blocked.set()
        go_on.wait(60)

    loop._call(block)
    assert blocked.wait(60)
    for number in range(100_000):
        loop._call(heard.append, number)
    loop._call(last.set)
    go_on.set()
    assert last.wait(60)
    loop.stop()
    thread.join(60)
    assert heard == list(range(100_000))


# -- a thread that dies with a lock (B23) ----------


class Killed(Exception):
    """Raised inside a thread from outside, between any two of its instructions."""


def kill(thread: threading.Thread) -> None:
    """Raise Killed in a thread: as near as a thread comes to SIGKILL."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident or 0), ctypes.py_object(Killed))


PLANS: dict[str, Callable[[], ps.Dataset]] = {
    "batches": lambda: ps.from_source(range(3000)).map(lambda x: np.full(50, x)).batch(4),
    "filter and batches": lambda: ps.from_source(range(3000)).filter(lambda x: True).map(lambda x: np.full(50, x)).batch(4),
    "cache": lambda: ps.from_source(range(3000)).map(lambda x: np.full(50, x)).cache(max_bytes=1 << 20).batch(4),
}


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # in a callback of Python's own it is lost
@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("ordered", [True, False])
def test_a_worker_that_dies_anywhere_holds_no_lock_and_loses_nothing(ordered: bool, plan: str) -> None:
    chance = random.Random(f"{plan} {ordered}")
    killed = 0
    for number in range(100):
        if number >= 15 and killed > 3:  # on a busy machine many are parked until the end when they are killed
            break
        ds = PLANS[plan]()
        feed = ds.feed(executor="threads", num_workers=2, ordered=ordered, stall_timeout_s=0.5)
        got: list[int] = []
        victim_at = chance.randrange(600)
        error: BaseException | None = None
        try:
            for step, batch in enumerate(feed):
                got += batch[:, 0].tolist()
                if step == victim_at:
                    workers = [thread for thread in threading.enumerate() if thread.name.startswith("penstock-workers-")]
                    kill(chance.choice(workers))
        except (Killed, ps.errors.FeedStalled) as died:
            error = died
        feed.close()
        assert engine_threads() == []
        killed += error is not None
        if error is None:
            assert sorted(got) == list(range(3000))  # it was parked until the end, or had done its work
            continue
        again = PLANS[plan]().feed(executor="inline", ordered=ordered)
        again.load_state_dict(feed.state_dict(), strict=False)
        behind = [x for batch in rest(again) for x in batch[:, 0].tolist()]
        assert sorted(got + behind) == list(range(3000))
    assert killed > 3


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes that share a lock file")
def test_a_process_killed_while_it_writes_a_shared_cache_holds_up_no_other(tmp_path: Any) -> None:
    body = """
        def work(x):
            return np.full(1000, x)
        ds = ps.from_source(range(100000)).map(work).cache(sys.argv[1], version="1").batch(4)
        list(ds.take(8).feed(executor="threads", num_workers=2))
        print("ready")
        for batch in ds.feed(executor="threads", num_workers=2):
            pass
    """
    for delay_s in (0.0, 0.01, 0.05):
        with program(body, str(tmp_path / "cache")) as child:
            assert child.stdout is not None
            assert child.stdout.readline() == "ready\n"
            threading.Event().wait(delay_s)
            child.kill()
            child.wait(30)
    status, lines, errors = finished(
        """
        def work(x):
            return np.full(1000, x)
        ds = ps.from_source(range(100000)).map(work).cache(sys.argv[1], version="1").batch(4).take(500)
        print(all((batch[:, 5] == np.arange(4 * n, 4 * n + 4)).all() for n, batch in enumerate(ds.feed(executor="threads", num_workers=2))))
        print("leaving")
        """,
        str(tmp_path / "cache"),
    )
    assert (status, lines, errors) == (0, ["True", "leaving"], "")
