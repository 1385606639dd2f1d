from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

from queues.crowd import LIMIT_S, Crowd, lined_up

import penstock as ps
from penstock.queues import FIFOQueue
from penstock.queues.starving import Users, alone, level_of_caller


class Runner:
    """What a QueueRunner shows of itself."""

    def __init__(self, name: str, *threads: threading.Thread) -> None:
        self.name, self._threads = name, threads

    def threads(self) -> Sequence[threading.Thread]:
        return self._threads


def test_alone_means_that_no_other_thread_is_alive() -> None:
    leave, started = threading.Event(), threading.Event()
    assert alone()
    with Crowd() as crowd:
        crowd.start(lambda: (started.set(), leave.wait(LIMIT_S)))
        assert started.wait(LIMIT_S)
        assert not alone()
        leave.set()
    assert alone()


def test_a_thread_that_waits_when_the_main_thread_has_ended_does_not_hold_up_the_exit() -> None:
    program = (
        "import threading, penstock as ps\n"
        "queue = ps.queues.FIFOQueue(3)\n"
        "queue.patience_s = 0.1\n"
        "threading.Thread(target=queue.dequeue).start()\n"
    )
    source = Path(ps.__file__).parents[1]
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False, env={"PYTHONPATH": str(source)}
    )
    assert "QueueStarved: this wait for 1 element would never end: no other thread is alive" in done.stderr


def test_nobody_is_known_before_somebody_was_seen() -> None:
    users = Users()
    assert users.words() == "none is known"
    users.note()
    assert users.words() == "none is known"  # it is the one who asks


def test_a_thread_that_was_seen_is_named_with_its_place_until_it_ends() -> None:
    users, leave, started = Users(), threading.Event(), threading.Event()

    def load_images() -> None:
        users.note()
        users.note()
        started.set()
        leave.wait(LIMIT_S)

    with Crowd() as crowd:
        [thread] = crowd.start(load_images)
        assert started.wait(LIMIT_S)
        assert users.words().startswith(f"thread {thread.name!r} is at ")
        assert f"{__file__}:" in users.words()
        assert "load_images: leave.wait(LIMIT_S)" in users.words()
        leave.set()
    assert users.words() == f"thread {thread.name!r} has ended"


def test_a_thread_that_waits_for_another_queue_is_named_with_the_call() -> None:
    users, queue = Users(), FIFOQueue(1)
    with Crowd() as crowd:
        crowd.start(lambda: (users.note(), queue.dequeue()))
        lined_up(queue, readers=1)
        assert users.words().endswith(" (in dequeue of a queue)")
        queue.enqueue(1)


def test_registered_producers_are_named_whether_they_run_or_not() -> None:
    users, leave, started = Users(), threading.Event(), threading.Event()
    users.registered.append(Runner("decode"))
    assert users.words() == "'decode' has not been started"

    def run() -> None:
        users.note()
        started.set()
        leave.wait(LIMIT_S)

    with Crowd() as crowd:
        [thread] = crowd.start(run)
        assert started.wait(LIMIT_S)
        users.registered.append(Runner("read", thread))
        words = users.words().split("; ")
        assert words[0] == "'decode' has not been started"
        assert words[1].startswith(f"'read', thread {thread.name!r}, is at ")
        assert len(words) == 2  # the thread is named once
        leave.set()
    assert users.words().split("; ")[1] == "'read' has ended"


def test_of_many_only_some_are_named() -> None:
    users = Users()
    users.registered += [Runner(f"runner {number}") for number in range(11)]
    assert users.words().endswith("'runner 7' has not been started; and 3 more")


def test_the_level_of_a_warning_is_that_of_the_callers_line() -> None:
    assert level_of_caller() == 1  # this function is outside
