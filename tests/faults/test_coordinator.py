"""Runs of queues, runners and a coordinator that end in every way: FAULTS B3, B9, B11, B24, B25, B26, B27."""

from __future__ import annotations

import itertools
import os
import random
import signal
import sys
import textwrap
import threading
from collections.abc import Callable
from typing import Any

import pytest
from core import core
from faults.test_processes import EXIT_S, finished, interrupted, program
from queues.hands import LIMIT_S, ended, hands

from penstock.errors import QueueClosed, StillRunning, StopRaised
from penstock.queues import Coordinator, FIFOQueue, QueueRunner

POSIX = pytest.mark.skipif(sys.platform == "win32", reason="signals and process groups of POSIX")

QUEUES = """
from penstock.queues import Coordinator, FIFOQueue, QueueRunner, add_queue_runner, start_queue_runners

def runners(num=2, threads=2):
    queues = [FIFOQueue(3, name=f"queue {n}") for n in range(num)]
    for queue in queues:
        add_queue_runner(QueueRunner(queue, [lambda: work(1)] * threads))
    return queues
"""


def endless(queue: FIFOQueue, coord: Coordinator, threads: int = 2) -> QueueRunner:
    runner = QueueRunner(queue, [lambda: 1] * threads)
    runner.create_threads(coord, start=True)
    return runner


# -- two errors at once, an error while stopping (B24) -------------------------------------------------------------------------------------


def test_of_two_errors_of_runners_one_is_raised_once_and_the_other_is_its_note() -> None:
    queue, coord, both = FIFOQueue(3), Coordinator(), threading.Barrier(2)

    def fail(words: str) -> Callable[[], None]:
        def op() -> None:
            both.wait(LIMIT_S)
            raise OSError(words)

        return op

    QueueRunner(queue, [fail("one"), fail("two")]).create_threads(coord, start=True)
    with pytest.raises(OSError) as caught:
        coord.join()
    other = {"one": "two", "two": "one"}[str(caught.value)]
    assert caught.value.__notes__[-1] == f"penstock: also failed: OSError: {other}"
    coord.join()
    with pytest.raises(OSError) as again:  # who asks for it gets it again
        coord.raise_requested_exception()
    assert again.value is caught.value


def test_an_error_while_a_stop_ends_things_is_a_note_of_the_one_that_asked_for_it() -> None:
    queue, coord = FIFOQueue(3), Coordinator()

    def unhook() -> None:
        raise RuntimeError("no hook")

    coord.on_stop(unhook)
    runner = endless(queue, coord)
    coord.request_stop(OSError("disk"))
    with pytest.raises(OSError) as caught:
        coord.join()
    assert caught.value.__notes__ == ["penstock: also failed: RuntimeError: no hook"]
    assert ended(runner.threads())


# -- a grace period that is over (B25) -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [None, OSError("disk")], ids=["stop", "error"])
def test_a_runner_that_ignores_the_stop_is_named_with_its_line_and_the_main_thread_goes_on(error: OSError | None) -> None:
    queue, coord, go, inside = FIFOQueue(3), Coordinator(), threading.Event(), threading.Event()

    def read_slowly() -> int:
        inside.set()
        go.wait(LIMIT_S)
        return 1

    runner = QueueRunner(queue, [read_slowly], name="disk")
    runner.create_threads(coord, start=True)
    endless(FIFOQueue(3), coord)
    assert inside.wait(LIMIT_S)
    coord.request_stop(error)
    place = f"penstock-disk-0 (test_coordinator.py:{read_slowly.__code__.co_firstlineno + 2} in test_a_runner_that_ignores_the_stop"
    with pytest.raises((StillRunning, OSError)) as caught:
        coord.join(stop_grace_period_s=0.2)
    if error is None:
        assert str(caught.value).startswith(f"1 thread(s) did not stop inside 0.2 s: {place}")
        assert caught.value.what.endswith(": go.wait(LIMIT_S))")
    else:
        assert caught.value is error
        assert error.__notes__[0].startswith(f"penstock: still running after 0.2 s: {place}")
    coord.join(stop_grace_period_s=0, ignore_live_threads=True)
    go.set()
    assert ended(runner.threads())
    coord.join()


# -- stops in any order, and the next run (B26) --------------------------------------------------------------------------------------------


def stop_before_start(coord: Coordinator, queue: FIFOQueue) -> None:
    coord.request_stop()
    endless(queue, coord)


def stop_between_making_and_starting(coord: Coordinator, queue: FIFOQueue) -> None:
    runner = QueueRunner(queue, [lambda: 1] * 2)
    threads = runner.create_threads(coord)
    coord.request_stop()
    for thread in threads:
        thread.start()


def stop_twice(coord: Coordinator, queue: FIFOQueue) -> None:
    endless(queue, coord)
    queue.dequeue()
    coord.request_stop()
    coord.request_stop()


def stop_from_two_threads_at_once(coord: Coordinator, queue: FIFOQueue) -> None:
    endless(queue, coord)
    together = threading.Barrier(3)
    with hands("one", "two") as both:
        for hand in both:
            hand.begin(lambda: (together.wait(LIMIT_S), coord.request_stop()))
        together.wait(LIMIT_S)
        for hand in both:
            hand.result()


def stop_from_a_worker(coord: Coordinator, queue: FIFOQueue) -> None:
    endless(queue, coord)
    QueueRunner(queue, [coord.request_stop]).create_threads(coord, start=True)


def end_of_the_data(coord: Coordinator, queue: FIFOQueue) -> None:
    QueueRunner(queue, [iter(range(5))]).create_threads(coord, start=True)
    with coord.stop_on_exception():
        while True:
            queue.dequeue()


def error_in_a_worker(coord: Coordinator, queue: FIFOQueue) -> None:
    endless(queue, coord)
    QueueRunner(queue, [lambda: 1 // 0]).create_threads(coord, start=True)


def straggler(coord: Coordinator, queue: FIFOQueue) -> None:
    """Leaves a thread behind that goes on when the next run is on; it ends when it asks should_stop()."""
    inside, go = threading.Event(), threading.Event()

    def slow() -> int:
        inside.set()
        go.wait(LIMIT_S)
        return 1

    runner = QueueRunner(queue, [slow])
    runner.create_threads(coord, start=True)
    assert inside.wait(LIMIT_S)
    coord.request_stop()
    coord.join(stop_grace_period_s=0, ignore_live_threads=True)
    coord.clear_stop()
    go.set()
    assert ended(runner.threads())
    assert not coord.should_stop()
    coord.request_stop()


ENDINGS = (
    stop_before_start, stop_between_making_and_starting, stop_twice, stop_from_two_threads_at_once, stop_from_a_worker, end_of_the_data,
    error_in_a_worker, straggler,
)  # fmt: skip


@pytest.mark.parametrize("first", ENDINGS, ids=lambda ending: ending.__name__)
def test_one_coordinator_serves_runs_that_end_in_every_way_one_after_another(first: Callable[..., None]) -> None:
    coord = Coordinator()
    for ending in (first, *ENDINGS):
        queue = FIFOQueue(2)
        ending(coord, queue)
        if ending is error_in_a_worker:
            with pytest.raises(ZeroDivisionError):
                coord.join()
        else:
            coord.join()
        assert coord.should_stop()
        assert coord.joined
        assert queue.is_closed()
        coord.clear_stop()
        assert not coord.should_stop()
        assert not coord.joined


# -- what counts as a clean end (B27) ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("num_elements", range(10, 16))
def test_the_end_of_a_queue_is_clean_only_if_the_number_fits(num_elements: int) -> None:
    coord, queue, batches = Coordinator(), FIFOQueue(8), []
    QueueRunner(queue, [iter(range(num_elements))]).create_threads(coord, start=True)

    def consume() -> None:
        with coord.stop_on_exception():
            while not coord.should_stop():
                batches.append(queue.dequeue_many(4).tolist())

    with hands("consumer") as (consumer,):
        consumer.do(consume)
        if num_elements % 4 == 0:
            coord.join()
        else:
            with pytest.raises(QueueClosed) as caught:
                coord.join()
            left = num_elements % 4
            assert (
                caught.value.what == f"the queue is closed, and only {left} element{'s are' if left > 1 else ' is'} left of the 4 asked for"
            )
            batches.append(queue.dequeue_up_to(4).tolist())
    assert list(itertools.chain(*batches)) == list(range(num_elements))


@pytest.mark.parametrize("kind", [QueueClosed, StopIteration, LookupError, OSError])
def test_only_what_is_listed_is_a_clean_end_of_a_thread(kind: type[Exception]) -> None:
    end: Any = QueueClosed("over", where="here", fix="none") if kind is QueueClosed else kind("over")
    for listed in (None, [LookupError], [StopIteration]):
        coord = Coordinator(clean_stop_exception_types=listed)
        with hands("worker") as (worker,):
            worker.do(lambda coord=coord: coord.request_stop(end))
        if kind in (listed or [QueueClosed]):
            coord.join()
        else:
            with pytest.raises(StopRaised if kind is StopIteration else kind):
                coord.join()


# -- whole programs (B3, B9, B11) ----------------------------------------------------------------------------------------------------------

EXITS = {
    "while runners are blocked": """
        first, second = runners()
        start_queue_runners(Coordinator())
        first.dequeue(); print("leaving")
    """,
    "without a coordinator": """
        first, second = runners()
        start_queue_runners()
        first.dequeue(); print("leaving")
    """,
    "in with, by sys.exit": """
        first, second = runners()
        with Coordinator() as coord:
            start_queue_runners(coord)
            first.dequeue(); print("leaving")
            sys.exit(0)
    """,
    "behind a join, with threads that are no daemons": """
        first, second = runners()
        coord = Coordinator()
        start_queue_runners(coord, daemon=False)
        first.dequeue(); print("leaving")
        coord.request_stop()
        coord.join()
    """,
}


@POSIX
@pytest.mark.parametrize("way", core(EXITS, 2))
def test_a_program_with_blocked_runners_exits_at_once_with_its_own_status_and_nothing_on_stderr(way: str) -> None:
    status, lines, errors = finished(QUEUES + textwrap.dedent(EXITS[way]))
    assert (status, lines, errors) == (0, ["leaving"], "")


@POSIX
def test_an_error_of_the_loop_with_full_queues_is_the_one_traceback_of_the_program() -> None:
    status, lines, errors = finished(
        QUEUES
        + textwrap.dedent("""
        first, second = runners()
        with Coordinator() as coord:
            start_queue_runners(coord)
            first.dequeue(); print("leaving")
            raise ValueError("loop")
        """)
    )
    assert (status, lines) == (1, ["leaving"])
    assert errors.count("Traceback (most recent call last)") == 1, errors
    assert errors.strip().endswith("ValueError: loop"), errors


@POSIX
def test_a_program_that_never_joins_is_told_of_the_error_when_it_exits() -> None:
    status, lines, errors = finished(
        QUEUES
        + textwrap.dedent("""
        import warnings
        warnings.simplefilter("default")
        def broken():
            raise OSError("disk")
        coord = Coordinator()
        QueueRunner(FIFOQueue(3), [broken]).create_threads(coord, start=True)
        coord.wait_for_stop(); print("leaving")
        """)
    )
    assert (status, lines) == (0, ["leaving"])
    assert "RuntimeWarning: a coordinator was dropped with an error that nobody has raised: OSError: disk; call join()" in errors, errors


LOOPS = {
    "with": """
        first, second = runners()
        with Coordinator() as coord:
            start_queue_runners(coord)
            first.dequeue(); second.dequeue(); print("ready")
            while True:
                first.dequeue(); second.dequeue()
    """,
    "join": """
        first, second = runners()
        coord = Coordinator()
        start_queue_runners(coord)
        def consume():
            with coord.stop_on_exception():
                while not coord.should_stop():
                    first.dequeue()
        reader = threading.Thread(target=consume, daemon=True)  # Ctrl-C may come before join: nobody would stop it
        coord.register_thread(reader)
        first.dequeue(); second.dequeue()
        reader.start(); print("ready")
        coord.join()
    """,
    "wait_for_stop": """
        first, second = runners()
        coord = Coordinator()
        start_queue_runners(coord)
        first.dequeue(); second.dequeue(); print("ready")
        coord.wait_for_stop()
    """,
}


@POSIX
@pytest.mark.parametrize("loop", core(LOOPS))
def test_ctrl_c_with_queues_and_a_coordinator_is_one_keyboard_interrupt_and_one_traceback(loop: str) -> None:
    delays = random.Random(loop)
    interrupted(QUEUES + textwrap.dedent(LOOPS[loop]), [delays.random() * 0.08 for _ in range(2)])


@POSIX
@pytest.mark.slow
@pytest.mark.parametrize("loop", LOOPS)
def test_ctrl_c_at_100_random_times_with_queues_is_always_one_keyboard_interrupt(loop: str) -> None:
    delays = random.Random(f"{loop}, many")
    interrupted(QUEUES + textwrap.dedent(LOOPS[loop]), [delays.random() ** 2 * 0.2 for _ in range(100 // len(LOOPS))])


@POSIX
def test_ctrl_c_in_join_does_not_wait_for_a_thread_that_ignores_the_stop() -> None:
    with program(
        QUEUES
        + textwrap.dedent("""
        coord, inside = Coordinator(), threading.Event()
        def deaf():
            inside.set()
            threading.Event().wait(60)
        QueueRunner(FIFOQueue(3), [deaf]).create_threads(coord, start=True)
        inside.wait(); print("ready")
        coord.request_stop()
        coord.join()
        """)
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        os.killpg(child.pid, signal.SIGINT)
        _, errors = child.communicate(timeout=EXIT_S)
    assert child.returncode == -signal.SIGINT, errors
    assert errors.count("Traceback (most recent call last)") == 1, errors
