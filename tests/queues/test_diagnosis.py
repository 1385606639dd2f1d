"""Waits that do not end: what is an error, what a warning, and that nothing is said of what is healthy."""

from __future__ import annotations

import _thread
import json
import sys
import textwrap
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from programs import output_of, python
from queues import slips
from queues.crowd import LIMIT_S, Crowd, lined_up

from penstock.errors import CoordinationError, QueueClosed
from penstock.queues import Coordinator, FIFOQueue, QueueRunner, diagnosis
from penstock.queues.base import Queue

FILE = "test_diagnosis.py"


def line() -> str:
    """Return the line of the caller, as a diagnosis names it."""
    return f"{FILE}:{sys._getframe(1).f_lineno}"


# -- the error: all threads wait. In programs of their own, for pytest-xdist has threads too -----------------------------------------------


@pytest.fixture(scope="module")
def told() -> dict[str, list[str]]:
    found: dict[str, list[str]] = json.loads(output_of(slips.__file__))
    return found


@pytest.mark.parametrize("slip", [slip.__name__ for slip in slips.SLIPS])
def test_a_wait_that_no_thread_can_end_is_an_error_that_names_the_slip_its_line_and_a_remedy(told: Any, slip: str) -> None:
    what, sentence = told[slip]
    assert what == sentence


def test_an_error_of_a_wait_loses_nothing_and_says_how_many_are_in() -> None:
    done = python(
        "-c",
        textwrap.dedent("""
        import penstock as ps
        for queue in ps.queues.FIFOQueue(2), ps.queues.RandomShuffleQueue(2, 0):
            try:
                queue.enqueue_many([1, 2, 3])
            except ps.errors.QueueStarved as error:
                print(error.num_done, queue.size(), error.where)
            try:
                queue.dequeue_many(3)
            except ps.errors.QueueStarved as error:
                print(sorted(queue.dequeue_many(2).tolist()))
        """),
    )
    states = [f"2 2 {kind} '{kind}', 2 of 2 elements in it" for kind in ("FIFOQueue", "RandomShuffleQueue")]
    assert done.stdout.splitlines() == [states[0], "[1, 2]", states[1], "[1, 2]"], done.stderr


def test_a_thread_that_waits_when_the_main_thread_has_ended_does_not_hold_up_the_exit() -> None:
    done = python("-c", "import threading, penstock as ps\nthreading.Thread(target=ps.queues.FIFOQueue(3).dequeue).start()")
    assert "QueueStarved: nothing was ever added to FIFOQueue 'FIFOQueue'" in done.stderr


def test_the_main_thread_of_a_notebook_may_go_on_between_two_cells() -> None:
    """Its runners wait at full queues for the next cell, which is not written yet."""
    done = python(
        "-c",
        textwrap.dedent("""
        import threading, warnings, penstock as ps
        said = threading.Event()
        warnings.simplefilter("always")
        warnings.showwarning = lambda *what: said.set()
        queue = ps.queues.FIFOQueue(2)
        queue.patience_s = 0.05
        threads = ps.queues.QueueRunner(queue, [lambda: 1]).create_threads(start=True)
        said.wait(60)
        print(queue.dequeue_many(5).tolist())
        """),
    )
    assert "[1, 1, 1, 1, 1]" in done.stdout, done.stderr


def closure(queue: Queue, word: Callable[[], object]) -> None:
    threading.Thread(target=lambda: (word(), queue.enqueue(1))).start()


def thread_that_threading_does_not_know(queue: Queue, word: Callable[[], object]) -> None:
    _thread.start_new_thread(lambda: (word(), queue.enqueue(1)), ())


def runner_that_another_thread_starts(queue: Queue, word: Callable[[], object]) -> None:
    runner = QueueRunner(queue, [iter([1])])
    threading.Thread(target=lambda: (word(), runner.create_threads(start=True))).start()


def chain_of_queues(queue: Queue, word: Callable[[], object]) -> None:
    first = FIFOQueue(3)
    QueueRunner(queue, [first.dequeue]).create_threads(start=True)

    def late() -> Iterator[int]:
        word()
        yield 1

    QueueRunner(first, [late()]).create_threads(start=True)


def consumer_that_waits_for_this_thread(queue: Queue, word: Callable[[], object]) -> None:
    taken = FIFOQueue(1)
    threading.Thread(target=lambda: taken.enqueue(queue.dequeue())).start()
    word()
    queue.enqueue(0)
    assert taken.dequeue() == 0
    queue.enqueue(1)


@pytest.mark.parametrize(
    "late",
    [
        closure,
        thread_that_threading_does_not_know,
        runner_that_another_thread_starts,
        chain_of_queues,
        consumer_that_waits_for_this_thread,
    ],
)
def test_a_healthy_program_whose_first_element_comes_late_gets_no_error(late: Any) -> None:
    queue = FIFOQueue(3, name="images")
    queue.patience_s = 0.1
    with warned() as given:
        late(queue, lambda: given.wait(LIMIT_S))  # a warning after the patience: the wait has been looked into
        assert queue.dequeue() == 1
        queue.close(cancel_pending_enqueues=True)


# -- the warning ---------------------------------------------------------------------------------------------------------------------------


class Warnings(threading.Event):
    """The warnings that came."""

    def __init__(self) -> None:
        super().__init__()
        self.said: list[tuple[str, str, int]] = []

    def take(self, message: Any, category: Any, filename: str, lineno: int, *_: object) -> None:
        assert category is RuntimeWarning
        self.said.append((str(message), filename, lineno))
        self.set()


@contextmanager
def warned() -> Iterator[Warnings]:
    """Collect the warnings, of all threads; what is given is set at the first."""
    given = Warnings()
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = given.take
        yield given


def never_started(queue: Queue) -> str:
    _, made = QueueRunner(queue, [lambda: 1]), line()
    return (
        f"QueueRunner 'images' (made at {made}) was never started, and HERE: call start_queue_runners(), or create_threads(start=True) of "
        "the runner, before"
    )


def ended_without_close(queue: Queue) -> str:
    slips.run(lambda: queue.enqueue(1))
    queue.dequeue()
    return (
        f"the threads that filled {queue._made_label()}, such as 'loader', have ended without close(), and HERE: call close() when the "
        "last of them has added everything"
    )


@pytest.mark.parametrize("slip", [never_started, ended_without_close])
def test_what_looks_like_a_slip_is_one_warning_long_before_the_patience_is_over(slip: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diagnosis, "LIKELY_S", 0.05)
    queue, got, stay = FIFOQueue(3, name="images"), [], threading.Event()
    sentence = slip(queue)

    def train() -> None:
        got.append(queue.dequeue())

    def work() -> None:
        stay.wait(LIMIT_S)

    with warned() as given, Crowd() as crowd:
        crowd.start(work, train, train)
        assert given.wait(LIMIT_S)
        lined_up(queue, readers=2)
        queue.enqueue_many([1, 1])
        stay.set()
    assert got == [1, 1]
    [(words, file, number)] = given.said
    here = f"{FILE}:{train.__code__.co_firstlineno + 1}"
    assert words.partition("\n")[0] == sentence.replace("HERE", f"dequeue() at {here} has waited 0 s for 1 element")
    assert f"\n  thread 'Thread-{words.split('Thread-')[1][0]}" in words
    assert f"{FILE}:{work.__code__.co_firstlineno + 1} in {work.__qualname__}: stay.wait(LIMIT_S)" in words
    assert (file, number) == (__file__, train.__code__.co_firstlineno + 1)


def test_a_first_element_that_comes_late_is_no_slip(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diagnosis, "LIKELY_S", 0.02)
    queue = FIFOQueue(3)
    with warned() as given, Crowd() as crowd:
        crowd.start(queue.dequeue)
        assert not given.wait(0.3)
        queue.enqueue(1)


def test_threads_that_wait_at_one_end_of_a_queue_warn_once_and_again_after_twice_as_long() -> None:
    queue = FIFOQueue(3)
    queue.patience_s = 0.2
    with warned() as given, Crowd() as crowd:
        crowd.start(*[queue.dequeue] * 20)
        for _ in range(2):
            assert given.wait(LIMIT_S)
            given.clear()
        for number in range(20):
            queue.enqueue(number)
    assert len(given.said) < 5
    assert all("nothing was ever added to FIFOQueue 'FIFOQueue'" in words for words, _, _ in given.said)


def test_a_runner_that_is_stuck_in_a_call_is_named_with_its_line_after_the_patience() -> None:
    go = threading.Event()

    def receive() -> int:
        return int(go.wait(LIMIT_S))

    queue, made = FIFOQueue(3, name="images"), line()
    queue.patience_s = 0.05
    with warned() as given:
        QueueRunner(queue, [receive]).create_threads(start=True)
        threading.Thread(target=lambda: (given.wait(LIMIT_S), go.set())).start()
        got, here = queue.dequeue(), line()
        assert got == 1
        queue.close(cancel_pending_enqueues=True)
    words = given.said[0][0]
    assert words.partition("\n")[0] == (
        f"dequeue() at {here} has waited 0 s for 1 element in FIFOQueue 'images' (made at {made}): look at what fills it, or call "
        "dequeue(timeout_s=...)"
    )
    assert f"thread 'penstock-images-0': {FILE}:{receive.__code__.co_firstlineno + 1} in {receive.__qualname__}: return" in words


def test_a_join_of_threads_that_work_says_after_the_patience_that_no_stop_was_requested() -> None:
    coord = Coordinator()
    coord.patience_s = 0.05
    with warned() as given, Crowd() as crowd:
        [thread] = crowd.start(coord.wait_for_stop)
        coord.register_thread(thread)
        crowd.start(lambda: (given.wait(LIMIT_S), coord.request_stop()))
        _, here = coord.join(), line()
    assert given.said[0][0].partition("\n")[0] == (
        f"no stop was requested, and join() at {here} has waited 0 s: call request_stop() before it if the threads do not end by themselves"
    )


# -- runners that are started too late, or never -------------------------------------------------------------------------------------------


def test_a_runner_that_is_started_behind_the_end_of_another_one_is_refused_with_the_way() -> None:
    queue = FIFOQueue(9, name="images")
    first = QueueRunner(queue, [iter([1, 2])], name="first")
    second, made = QueueRunner(queue, [iter([3])], name="second"), line()
    for thread in first.create_threads(start=True):
        thread.join()
    with pytest.raises(CoordinationError) as caught:
        second.create_threads(start=True)
    assert caught.value.what == f"queue 'images' is closed: QueueRunner 'second' (made at {made}) could fill nothing"
    assert "create the threads of both before any is started" in caught.value.fix


def test_the_end_of_a_queue_says_which_of_its_runners_was_never_started() -> None:
    queue = FIFOQueue(9, name="images")
    first = QueueRunner(queue, [iter([1, 2])], name="first")
    _, made = QueueRunner(queue, [iter([3])], name="second"), line()
    for thread in first.create_threads(start=True):
        thread.join()
    assert queue.dequeue_many(2).tolist() == [1, 2]
    with pytest.raises(QueueClosed) as caught:
        queue.dequeue()
    assert caught.value.__notes__ == [
        f"penstock: QueueRunner 'second' (made at {made}) was never started: what it would have added is missing"
    ]
