"""Runners over real queues and threads: every way to end, and every order of starting and stopping."""

from __future__ import annotations

import gc
import itertools
import random
import threading
from typing import Any

import pytest
from queues.hands import LIMIT_S, ended, hands

from penstock.errors import CoordinationError, EnqueueCancelled, PlanError, QueueClosed, StopRaised
from penstock.queues import Coordinator, FIFOQueue, QueueRunner


def rest_of(queue: FIFOQueue) -> list[int]:
    """Take elements until the end."""
    found = []
    while True:
        try:
            found.append(int(queue.dequeue(timeout_s=LIMIT_S)))
        except QueueClosed:
            return found


def started(queue: FIFOQueue, ops: list[Any], coord: Coordinator | None = None, **options: Any) -> QueueRunner:
    runner = QueueRunner(queue, ops, **options)
    runner.create_threads(coord, start=True)
    return runner


class Numbers:
    """Count up to a number, for any number of threads; then raise `end`."""

    def __init__(self, count: int, end: BaseException | None = None) -> None:
        self._numbers = iter(range(count))
        self._end = end or QueueClosed("no more", where="here", fix="none")

    def __call__(self) -> int:
        for number in self._numbers:  # one step of a range is one instruction
            return number
        raise self._end


# -- what is enqueued ----------------------------------------------------------------------------------------------------------------------


def test_what_operations_return_is_enqueued_and_their_end_closes_the_queue() -> None:
    queue = FIFOQueue(3)
    runner = started(queue, [Numbers(200)] * 4)
    assert sorted(rest_of(queue)) == list(range(200))
    assert ended(runner.threads())
    assert runner.exceptions_raised == []
    assert queue.is_closed()
    assert runner.has_ended()


def test_an_operation_that_returns_none_has_enqueued_by_itself() -> None:
    queue, numbers = FIFOQueue(3), Numbers(10)

    def twice() -> None:
        number = numbers()
        queue.enqueue(number)
        queue.enqueue(number)

    runner = started(queue, [twice])
    assert rest_of(queue) == [number for number in range(10) for _ in range(2)]
    assert ended(runner.threads())


def rows(count: int) -> Any:
    yield from range(count)


def test_no_thread_enters_a_generator_while_another_is_in_it() -> None:
    pause = threading.Event()

    def slow() -> Any:
        for number in range(50):
            pause.wait(0.001)  # gives the others every chance to come in
            yield number

    queue, coord = FIFOQueue(50), Coordinator()
    started(queue, [slow()] * 4, coord)
    coord.join()
    assert sorted(rest_of(queue)) == list(range(50))


def test_the_queue_closes_behind_the_last_of_all_its_runners() -> None:
    queue, go = FIFOQueue(100), threading.Event()

    def late() -> Any:
        assert go.wait(LIMIT_S)
        yield 7

    slow, quick = QueueRunner(queue, [late()], name="slow"), QueueRunner(queue, [rows(3)], name="quick")
    slow.create_threads(start=True)
    quick.create_threads(start=True)
    assert ended(quick.threads())
    assert not queue.is_closed()
    go.set()
    assert rest_of(queue) == [0, 1, 2, 7]
    assert ended(slow.threads())


# -- errors --------------------------------------------------------------------------------------------------------------------------------


def failing() -> Any:
    yield from range(3)
    raise OSError("disk")


def test_an_error_stops_all_and_is_raised_by_join_with_a_note_of_its_thread() -> None:
    queue, other, coord = FIFOQueue(10), FIFOQueue(1, name="other"), Coordinator()
    started(other, [lambda: 1] * 3, coord)
    started(queue, [failing()], coord, name="reader")
    with pytest.raises(OSError) as caught:
        coord.join()
    assert caught.value.__notes__ == ["penstock: runner 'reader', thread 'penstock-reader-0'"]
    assert "failing" in [entry.name for entry in caught.traceback]
    assert queue.is_closed()
    assert other.is_closed()


def test_without_a_coordinator_the_reader_gets_the_error_once_behind_what_was_enqueued() -> None:
    queue = FIFOQueue(10)
    runner = started(queue, [failing()])
    assert ended(runner.threads())
    assert [int(queue.dequeue()) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(OSError) as caught:
        queue.dequeue()
    assert runner.exceptions_raised == [caught.value]
    with pytest.raises(QueueClosed):
        queue.dequeue()


def test_without_a_coordinator_a_second_error_is_a_note_of_the_first() -> None:
    queue, both = FIFOQueue(10), threading.Barrier(2)

    def fail() -> None:
        both.wait(LIMIT_S)
        raise OSError("disk")

    runner = started(queue, [fail] * 2)
    assert ended(runner.threads())
    with pytest.raises(OSError) as caught:
        queue.dequeue()
    assert len(runner.exceptions_raised) == 2
    assert caught.value.__notes__[-1] == "penstock: also failed: OSError: disk"


def test_without_a_coordinator_an_error_that_no_reader_took_is_told_when_the_queue_goes() -> None:
    queue = FIFOQueue(10)
    runner = started(queue, [failing()])
    assert ended(runner.threads())
    runner.exceptions_raised[0].__traceback__ = None  # it holds the frames of the thread
    with pytest.warns(RuntimeWarning) as caught:  # noqa: PT031
        del queue, runner
        gc.collect()
    assert "FIFOQueue 'FIFOQueue' was dropped with an error that nobody has raised: OSError: disk; read it to its end" in str(
        caught[0].message
    )


@pytest.mark.parametrize("end", [StopIteration(), SystemExit(0), KeyboardInterrupt(), GeneratorExit()])
def test_an_operation_that_raises_what_would_pass_for_an_end_is_an_error(end: BaseException) -> None:
    queue, coord = FIFOQueue(10), Coordinator()
    started(queue, [Numbers(3, end)], coord)
    with pytest.raises(StopRaised) as caught:
        coord.join()
    assert caught.value.__cause__ is end


def test_a_type_that_is_named_as_the_end_is_one() -> None:
    for types in (StopIteration, [StopIteration, LookupError]):
        queue = FIFOQueue(10)
        runner = started(queue, [Numbers(3, StopIteration())], queue_closed_exception_types=types)
        assert rest_of(queue) == [0, 1, 2]
        assert ended(runner.threads())


def test_too_few_elements_for_an_operations_read_are_an_error_unless_the_type_is_named() -> None:
    for types in (None, [QueueClosed]):
        first, second, coord = FIFOQueue(10), FIFOQueue(10), Coordinator()
        started(first, [rows(7)], coord)
        started(second, [lambda first=first: first.dequeue_many(5).sum()], coord, queue_closed_exception_types=types)
        if types:
            coord.join()
            assert rest_of(second) == [10]
        else:
            with pytest.raises(QueueClosed) as caught:
                coord.join()
            assert caught.value.num_left == 2


# -- stops ---------------------------------------------------------------------------------------------------------------------------------


def test_consumers_that_are_blocked_at_a_stop_end_too() -> None:
    queue, coord, held = FIFOQueue(3), Coordinator(), threading.Event()

    def wait() -> None:
        assert held.wait(LIMIT_S)

    started(queue, [wait], coord)
    with hands("one", "two") as readers:
        for reader in readers:
            reader.begin(queue.dequeue)
        coord.request_stop()
        for reader in readers:
            with pytest.raises(QueueClosed):
                reader.result()
    held.set()
    coord.join()


def test_a_read_that_a_stop_cuts_short_is_no_error_of_the_runner() -> None:
    first, second, coord = FIFOQueue(10), FIFOQueue(10), Coordinator(clean_stop_exception_types=[LookupError])
    for number in range(3):
        first.enqueue(number)
    started(second, [lambda: first.dequeue_many(5)], coord)
    coord.on_stop(first.close)
    coord.request_stop()
    coord.join()


def test_an_operation_that_joins_is_an_error_and_no_deadlock() -> None:
    queue, coord = FIFOQueue(1), Coordinator()
    started(queue, [coord.join, lambda: 1], coord)
    with pytest.raises(CoordinationError) as caught:
        coord.join()
    assert caught.value.what == "thread 'penstock-FIFOQueue-0' would wait for itself"


STEPS = ("create", "start", "stop", "stop again", "clear", "join")
ORDERS = [
    pytest.param(order, id=" ".join(order), marks=[pytest.mark.slow] * (number % 7 > 0))
    for number, order in enumerate(itertools.permutations(STEPS))
    if order.index("create") < order.index("start")
]


@pytest.mark.parametrize("order", ORDERS)
def test_every_order_of_starting_and_stopping_has_a_defined_end(order: tuple[str, ...]) -> None:
    """A model of two flags tells what each step does; whatever the order, nothing waits for ever and no thread is left."""
    coord, queue = Coordinator(), FIFOQueue(2)
    runner = QueueRunner(queue, [Numbers(10**9)] * 2)
    stopped = closed = made = begun = False
    waited_for = False  # the threads belong to the run that is on
    for step in order:
        if step == "create":
            runner.create_threads(coord)
            made, waited_for, closed = True, True, closed or stopped
        elif step == "start":
            runner.start()
            begun = True
        elif step.startswith("stop"):
            coord.request_stop()
            stopped, closed = True, closed or waited_for
        elif step == "clear":
            coord.clear_stop()
            waited_for = waited_for and not stopped
            stopped = False
        elif waited_for and not begun and not stopped:
            with pytest.raises(CoordinationError):
                coord.join()
        elif waited_for and begun and not stopped:
            with hands("joiner") as (joiner,):  # it waits until somebody stops
                joiner.begin(coord.join)
                coord.request_stop()
                stopped = closed = True
                joiner.result()
        else:
            coord.join()
        assert coord.should_stop() is stopped
        assert queue.is_closed() is closed
    assert made
    if closed:  # also when the stop was cleared: nobody is called back to work
        assert ended(runner.threads())
    coord.request_stop()
    coord.join()
    assert ended(runner.threads())
    assert queue.is_closed()


def test_a_runner_whose_queue_a_stop_closed_needs_a_new_queue_to_run_again() -> None:
    coord, queue = Coordinator(), FIFOQueue(2)
    runner = started(queue, [lambda: 1], coord)
    coord.request_stop()
    coord.join()
    coord.clear_stop()
    with pytest.raises(CoordinationError, match="queue 'FIFOQueue' is closed: "):
        runner.create_threads(coord)
    again = FIFOQueue(2)
    started(again, [rows(5)], coord)
    assert rest_of(again) == list(range(5))
    coord.join()


@pytest.mark.parametrize("seed", range(60))
def test_runs_that_end_or_are_stopped_anywhere_give_each_element_once_and_leave_no_thread(nervous: None, seed: int) -> None:
    """Two queues in a row, several runners and readers; the run ends by itself, by a stop after so many reads, or by an error."""
    dice = random.Random(seed)
    count, way = 400, ("end", "stop", "error")[seed % 3]
    coord, first, second = Coordinator(), FIFOQueue(dice.randint(1, 4)), FIFOQueue(dice.randint(1, 4))
    numbers, taken, stop_after = Numbers(count), [], dice.randrange(count)
    for _ in range(2):
        started(first, [numbers] * dice.randint(1, 3), coord)
    started(second, [first.dequeue] * dice.randint(1, 3), coord)

    def read() -> None:
        with coord.stop_on_exception():
            while not coord.should_stop():
                taken.append(int(second.dequeue()))
                if way != "end" and len(taken) >= stop_after:
                    coord.request_stop(OSError("enough") if way == "error" else None)

    names = [f"reader-{number}" for number in range(dice.randint(1, 3))]
    with hands(*names) as readers:
        for reader in readers:
            reader.begin(read)
        for reader in readers:
            reader.result()
        if way == "error":
            with pytest.raises(OSError):
                coord.join()
        else:
            coord.join()
    assert len(set(taken)) == len(taken)
    assert set(taken) <= set(range(count))
    if way == "end":
        assert len(taken) == count


# -- threads -------------------------------------------------------------------------------------------------------------------------------


def test_threads_are_made_once_while_the_first_ones_run() -> None:
    coord, queue = Coordinator(), FIFOQueue(2)
    runner = QueueRunner(queue, [lambda: 1] * 3, name="reader")
    threads = runner.create_threads(coord)
    assert [thread.name for thread in threads] == ["penstock-reader-0", "penstock-reader-1", "penstock-reader-2"]
    assert all(thread.daemon and thread.ident is None for thread in threads)
    assert runner.create_threads(coord, start=True) == []
    with pytest.raises(CoordinationError) as caught:
        runner.create_threads(Coordinator())
    assert caught.value.what == "the threads of runner 'reader' run under another coordinator"
    for thread in threads:
        thread.start()
    coord.request_stop()
    coord.join()


def test_threads_that_the_system_refuses_stop_the_others() -> None:
    for coord in (None, Coordinator()):
        queue = FIFOQueue(2)
        runner = QueueRunner(queue, [lambda: 1] * 3)
        threads = runner.create_threads(coord)
        threads[0].start()
        before = threading.stack_size(2**46)  # more than there are addresses
        try:
            with pytest.raises(RuntimeError):
                runner.start()
        finally:
            threading.stack_size(before)
        assert ended(threads[:1])
        assert queue.is_closed()
        assert runner.has_ended()
        if coord is not None:
            coord.join()


def test_a_runner_says_who_fills_its_queue() -> None:
    queue = FIFOQueue(2, name="images")
    runner = QueueRunner(queue, [rows(1)])
    assert (runner.queue, runner.name, runner.threads(), runner.has_ended()) == (queue, "images", (), False)
    threads = runner.create_threads(start=True)
    assert queue.runners == [runner]
    assert runner.threads() == tuple(threads)
    assert ended(threads)


# -- bad arguments -------------------------------------------------------------------------------------------------------------------------


async def later() -> int:
    return 1


async def later_and_later() -> Any:
    yield 1


@pytest.mark.parametrize(
    ("ops", "words"),
    [
        ([], "there is no operation"),
        (print, "enqueue_ops is <built-in function print>, which is no list of operations"),
        (7, "enqueue_ops is 7, which is no list of operations"),
        ("op", "enqueue_ops is 'op', which is no list of operations"),
        (rows(3), "give a list: [op] for one thread, [op] * 4 for four"),
        ([3], "3 can be neither called nor iterated"),
        (None, "enqueue() and enqueue_many() add at once and return None, so nothing is left to run"),
        ([FIFOQueue(3).enqueue_many([1, 2])] * 4, "enqueue() and enqueue_many() add at once and return None, so nothing is left to run"),
        ([[1, 2]], "[1, 2] can be neither called nor iterated"),
        ([rows], "only makes a generator each time it is called"),
        ([later], "only makes something to await each time it is called"),
        ([later_and_later], "only makes something to await each time it is called"),
    ],
)
def test_operations_that_cannot_be_run_are_refused(ops: Any, words: str) -> None:
    with pytest.raises(PlanError) as caught:
        QueueRunner(FIFOQueue(1), ops)
    assert words in str(caught.value)


def test_what_is_no_queue_and_no_coordinator_is_refused() -> None:
    with pytest.raises(PlanError) as caught:
        QueueRunner([], [print])  # type: ignore[arg-type]
    assert caught.value.what == "[] is no queue"
    with pytest.raises(PlanError) as caught:
        QueueRunner(FIFOQueue(1), [print]).create_threads("session")  # type: ignore[arg-type]
    assert caught.value.what == "'session' is no coordinator"


def test_an_enqueue_into_another_queue_that_is_closed_is_an_end() -> None:
    queue, other = FIFOQueue(1), FIFOQueue(1)
    other.close()
    runner = started(queue, [lambda: other.enqueue(1)], queue_closed_exception_types=[LookupError])
    assert ended(runner.threads())
    assert runner.exceptions_raised == []
    with pytest.raises(EnqueueCancelled):
        other.enqueue(1)
