"""Where threads stand: the line of the user's code, whatever Python or this library does inside it."""

from __future__ import annotations

import queue
import sys
import threading

import pytest
from queues.hands import LIMIT_S, ended, hands, until

from penstock._system.frames import call_and_place, warn, where_stand, words_of_threads
from penstock.queues import FIFOQueue, QueueRunner


def test_the_line_of_the_user_is_named_and_not_pythons_inside_it() -> None:
    go: queue.Queue[int] = queue.Queue()

    def wait_for_it() -> int:
        return go.get(timeout=LIMIT_S)

    with hands("worker") as (worker,):
        worker.begin(wait_for_it)
        until(lambda: "wait_for_it" in words_of_threads([worker.thread]))
        words = words_of_threads([worker.thread])
        go.put(1)
        assert worker.result() == 1
    line = wait_for_it.__code__.co_firstlineno + 1
    assert words.startswith(f"worker (test_standing.py:{line} in test_the_line_of_the_user_")
    assert words.endswith(".<locals>.wait_for_it: return go.get(timeout=LIMIT_S))")


def test_a_thread_that_is_in_no_code_of_a_user_is_told_by_the_call_of_this_library() -> None:
    full = FIFOQueue(1)
    runner = QueueRunner(full, [iter(range(9)).__next__])
    (thread,) = runner.create_threads(start=True)
    until(lambda: "enqueue" in where_stand([thread])[thread])
    assert ".enqueue" in where_stand([thread])[thread]
    full.close(cancel_pending_enqueues=True)
    assert ended([thread])


def test_threads_that_do_not_run_are_said_to() -> None:
    new, done = threading.Thread(name="new"), threading.Thread(name="done")
    done.start()
    done.join()
    assert words_of_threads([new, done]) == "new (not started); done (ended)"
    assert words_of_threads([]) == ""


def test_a_thread_in_pythons_code_alone_is_in_no_code_of_a_user() -> None:
    go = threading.Event()
    thread = threading.Thread(target=go.wait)
    thread.start()
    assert where_stand([thread])[thread] == "in no code of a user"
    go.set()
    thread.join()


def test_the_line_of_a_caller_is_the_innermost_outside_of_python_and_this_library() -> None:
    first = sys._getframe().f_lineno
    with pytest.warns(RuntimeWarning, match="a text") as caught:
        warn("a text")  # this function is outside
    assert (caught[0].filename, caught[0].lineno) == (__file__, first + 2)
    assert call_and_place() == ("", f"test_standing.py:{first + 4}")
    assert FIFOQueue(1)._made == f"test_standing.py:{first + 5}"
