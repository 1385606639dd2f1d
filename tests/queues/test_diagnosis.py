"""Waits that do not end: what is said, in which grade, alone and beside the threads of a notebook; and what is healthy gets no error."""

from __future__ import annotations

import _thread
import asyncio
import contextvars
import functools
import queue as standard
import signal
import socket
import socketserver
import subprocess
import sys
import textwrap
import threading
import types
import warnings
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from multiprocessing.pool import ThreadPool
from pathlib import Path
from typing import Any

import pytest
from queues.crowd import LIMIT_S, lined_up

import penstock as ps
from penstock.errors import CoordinationError, QueueClosed, QueueStarved, QueueTimeout
from penstock.queues import Coordinator, FIFOQueue, QueueRunner, RandomShuffleQueue, add_queue_runner, diagnosis, start_queue_runners
from penstock.queues.base import Queue

FILE = "test_diagnosis.py"
Slip = tuple[Callable[[], object], str]
"""What waits, and the first sentence of what is said of it."""


def line() -> str:
    """Return the line of the caller, as a diagnosis names it."""
    return f"{FILE}:{sys._getframe(1).f_lineno}"


@contextmanager
def bystanders(number: int) -> Iterator[None]:
    """Let threads run that know no queue: a heartbeat, an event loop, an idle worker of a pool, a loop of the user."""
    leave, loop = threading.Event(), asyncio.new_event_loop()
    ready = [threading.Event() for _ in range(4)]

    def refresh() -> None:
        ready[3].set()
        leave.wait(LIMIT_S)

    with ExitStack() as stack:
        if number:
            pool = stack.enter_context(ThreadPoolExecutor(1))
            pool.submit(ready[0].set)
            loop.call_soon(ready[1].set)
            threads = [threading.Thread(target=target, daemon=True) for target in (leave.wait, loop.run_forever, refresh)]
            for thread in threads:
                stack.callback(thread.join)
                thread.start()
            stack.callback(loop.call_soon_threadsafe, loop.stop)
            stack.callback(leave.set)
            for place in (0, 1, 3):
                assert ready[place].wait(LIMIT_S)
        yield
    loop.close()


BESIDE = pytest.param(4, id="beside four threads", marks=pytest.mark.slow)  # 50 s in all
with_and_without_bystanders = pytest.mark.parametrize("number", [pytest.param(0, id="alone"), BESIDE])


@contextmanager
def warned() -> Iterator[Warnings]:
    """Collect the warnings, of all threads; what is given is set at the first."""
    given = Warnings()
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = given.take
        yield given


class Warnings(threading.Event):
    """The warnings that came."""

    def __init__(self) -> None:
        super().__init__()
        self.said: list[tuple[str, str, int]] = []

    def take(self, message: Any, category: Any, filename: str, lineno: int, *_: object) -> None:
        assert category is RuntimeWarning
        self.said.append((str(message), filename, lineno))
        self.set()


def run(target: Callable[[], object]) -> None:
    """Run something in a thread, to its end."""
    thread = threading.Thread(target=target, name="loader")
    thread.start()
    thread.join()


# -- certain: an error at once -------------------------------------------------------------------------------------------------------------


def nothing_was_ever_added(stack: ExitStack) -> Slip:
    queue, made = FIFOQueue(3, name="images"), line()
    wait, here = (lambda: [queue.dequeue()]), line()
    return wait, (
        f"nothing was ever added to FIFOQueue 'images' (made at {made}), and no thread that could do it was started, so dequeue() "
        f"at {here} "
        "would wait for ever: enqueue() before, or in a thread of its own"
    )


def a_runner_was_made_and_not_started(stack: ExitStack) -> Slip:
    queue = FIFOQueue(3, name="images")
    _, made = QueueRunner(queue, [lambda: 1]), line()
    wait, here = (lambda: queue.dequeue_many(2)), line()
    return wait, (
        f"QueueRunner 'images' (made at {made}) was never started, so dequeue_many() at {here} would wait for ever: "
        "call create_threads(start=True) of the runner before"
    )


def a_runner_was_added_and_not_started(stack: ExitStack) -> Slip:
    queue = FIFOQueue(3, name="images")
    runner, made = QueueRunner(queue, [lambda: 1]), line()
    context = contextvars.copy_context()
    context.run(add_queue_runner, runner)
    wait, here = (lambda: context.run(lambda: queue.dequeue_up_to(2))), line()
    return wait, (
        f"QueueRunner 'images' (made at {made}) was never started, so dequeue_up_to() at {here} would wait for ever: "
        "call start_queue_runners() before"
    )


def the_threads_of_a_runner_were_not_started(stack: ExitStack) -> Slip:
    queue = FIFOQueue(3, name="images")
    runner, made = QueueRunner(queue, [lambda: 1]), line()
    _, created = runner.create_threads(), line()
    wait, here = (lambda: [queue.dequeue()]), line()
    return wait, (
        f"the threads of QueueRunner 'images' (made at {made}), created at {created}, were never started, so dequeue() at {here} "
        f"would wait "
        "for ever: call start() of the runner, or of each thread, before"
    )


def threads_were_created_and_not_started(stack: ExitStack) -> Slip:
    queue = FIFOQueue(3, name="images")

    def load() -> None:
        queue.enqueue(1)

    thread = threading.Thread(target=load, name="loader")
    stack.callback(thread.join)
    stack.callback(thread.start)
    wait, here = (lambda: [queue.dequeue()]), line()
    return wait, (
        f"thread 'loader', which would run load ({FILE}:{load.__code__.co_firstlineno}), was created and never started, so "
        f"dequeue() at {here} "
        "would wait for ever: call its start() before"
    )


def the_runner_of_another_queue_was_started(stack: ExitStack) -> Slip:
    images, labels = FIFOQueue(3, name="images"), FIFOQueue(3, name="labels")
    more = threading.Event()  # the runner does not fill its queue, for then it might find first that nothing reads that
    runner, made = QueueRunner(images, [more.wait]), line()
    stop_behind(stack, runner)
    stack.callback(more.set)
    wait, here = (lambda: [labels.dequeue()]), line()
    return wait, (
        f"nothing was ever added to FIFOQueue 'labels' (made at {FILE}:{int(made.split(':')[1]) - 2}); the runner that was "
        f"started, QueueRunner "
        f"'images' (made at {made}), fills FIFOQueue 'images', so dequeue() at {here} would wait for ever: make a QueueRunner for "
        f"FIFOQueue "
        "'labels' too, or read FIFOQueue 'images'"
    )


def the_producers_ended_without_close(stack: ExitStack) -> Slip:
    queue, made = FIFOQueue(3, name="images"), line()
    run(lambda: queue.enqueue_many([1, 2]))
    queue.dequeue()
    wait, here = (lambda: queue.dequeue_many(2)), line()
    return wait, (
        f"the threads that filled FIFOQueue 'images' (made at {made}), such as 'loader', have ended without close(), with 1 "
        f"element left in it, "
        f"so dequeue_many() at {here} would wait for ever: call close() when the last of them has added everything"
    )


def the_producers_ended_and_the_main_thread_joins_the_consumer(stack: ExitStack) -> Slip:
    queue, made = FIFOQueue(3, name="images"), line()
    run(lambda: queue.enqueue(1))
    errors: list[BaseException] = []

    def train() -> None:
        try:
            while True:
                queue.dequeue()
        except QueueStarved as error:
            errors.append(error)

    def wait() -> None:
        run(train)
        raise errors[0]

    return wait, (
        f"the threads that filled FIFOQueue 'images' (made at {made}), such as 'loader', have ended without close(), so dequeue() at "
        f"{FILE}:{train.__code__.co_firstlineno + 3} would wait for ever: call close() when the last of them has added everything"
    )


def only_the_reader_has_added(stack: ExitStack) -> Slip:
    queue, made = FIFOQueue(3, name="images"), line()
    queue.enqueue_many([1, 2])
    wait, here = (lambda: [queue.dequeue() for _ in range(3)]), line()
    return wait, (
        f"only the thread that reads FIFOQueue 'images' (made at {made}) has ever added to it, and nothing more can come, so "
        f"dequeue() at {here} "
        "would wait for ever: add from another thread, or close() it before the last read"
    )


def min_after_dequeue_is_above_what_will_ever_come(stack: ExitStack) -> Slip:
    queue, made = RandomShuffleQueue(100, 50, name="images"), line()
    run(lambda: queue.enqueue_many(range(20)))
    wait, here = (lambda: [queue.dequeue()]), line()
    return wait, (
        f"RandomShuffleQueue 'images' (made at {made}) keeps min_after_dequeue=50 elements in and has only 20, and no thread adds "
        f"more, so "
        f"dequeue() at {here} would wait for ever: close() it when everything is in, which lets all of them out, or lower "
        f"min_after_dequeue"
    )


def a_full_queue_without_a_reader(stack: ExitStack) -> Slip:
    queue, made = FIFOQueue(3, name="images"), line()
    wait, here = (lambda: queue.enqueue_many([1, 2, 3, 4])), line()
    return wait, (
        f"FIFOQueue 'images' (made at {made}) is full (capacity 3) and no thread reads it, so enqueue_many() at {here} would wait "
        f"for ever: "
        "start a thread that calls dequeue() before, or make it with a larger capacity"
    )


def a_full_queue_whose_readers_have_ended(stack: ExitStack) -> Slip:
    queue, made = FIFOQueue(1, name="images"), line()
    reader = threading.Thread(target=queue.dequeue, name="loader")
    reader.start()
    lined_up(queue, readers=1)
    queue.enqueue(1)
    reader.join()
    wait, here = (lambda: [queue.enqueue(number) for number in range(2)]), line()
    return wait, (
        f"FIFOQueue 'images' (made at {made}) is full (capacity 1) and the threads that read it, such as 'loader', have ended, so "
        f"enqueue() at "
        f"{here} would wait for ever: call close(cancel_pending_enqueues=True) when the last of them ends"
    )


def a_join_without_a_stop(stack: ExitStack) -> Slip:
    queue, coord = FIFOQueue(3, name="images"), Coordinator()
    QueueRunner(queue, [lambda: 1] * 2).create_threads(coord, start=True)
    queue.dequeue_many(10)
    wait, here = (lambda: [coord.join()]), line()
    return wait, f"no stop was requested, so join() at {here} would wait for ever: call request_stop() before it, or use `with coord:`"


def a_join_of_threads_that_wait_already(stack: ExitStack) -> Slip:
    queue, coord = FIFOQueue(3, name="images"), Coordinator()
    QueueRunner(queue, [lambda: 1] * 2).create_threads(coord, start=True)
    queue.dequeue_many(10)
    lined_up(queue, writers=2)
    wait, here = (lambda: [coord.join()]), line()
    return wait, f"no stop was requested, so join() at {here} would wait for ever: call request_stop() before it, or use `with coord:`"


def a_join_of_a_thread_that_reads_what_no_thread_adds(stack: ExitStack) -> Slip:
    queue, coord = FIFOQueue(3, name="images"), Coordinator()
    made = f"{FILE}:{sys._getframe().f_lineno - 1}"

    def train() -> None:
        with coord.stop_on_exception():
            queue.dequeue()

    thread = threading.Thread(target=train)
    coord.register_thread(thread)
    thread.start()
    return coord.join, (
        f"nothing was ever added to FIFOQueue 'images' (made at {made}), and no thread that could do it was started, so dequeue() at "
        f"{FILE}:{train.__code__.co_firstlineno + 2} would wait for ever: enqueue() before, or in a thread of its own"
    )


def two_threads_that_wait_for_one_another(stack: ExitStack) -> Slip:
    requests, answers = FIFOQueue(1, name="requests"), FIFOQueue(1, name="answers")
    made = f"{FILE}:{sys._getframe().f_lineno - 1}"

    def serve() -> None:
        try:
            while True:
                requests.dequeue()
                answers.enqueue(1)
        except QueueClosed:
            return

    requests.patience_s = 0.05
    server = threading.Thread(target=serve, name="server")
    said = stack.enter_context(warned())
    server.start()
    requests.enqueue(1)
    answers.dequeue()
    assert said.wait(LIMIT_S)  # the server has looked into its wait: the next to look is this thread
    stack.callback(server.join)
    stack.callback(requests.close)
    wait, here = (lambda: [answers.dequeue()]), line()
    return wait, (
        f"the threads that filled FIFOQueue 'answers' (made at {made}), such as 'server', wait themselves, so dequeue() at {here} "
        f"would wait "
        "for ever: let one of them go on without this one"
    )


def stop_behind(stack: ExitStack, runner: QueueRunner) -> None:
    """Start a runner, and end it with the test."""
    threads = runner.create_threads(start=True)
    for thread in threads:
        stack.callback(thread.join)
    stack.callback(runner.queue.close, cancel_pending_enqueues=True)


CERTAIN = [
    nothing_was_ever_added,
    a_runner_was_made_and_not_started,
    a_runner_was_added_and_not_started,
    the_threads_of_a_runner_were_not_started,
    threads_were_created_and_not_started,
    the_runner_of_another_queue_was_started,
    the_producers_ended_without_close,
    the_producers_ended_and_the_main_thread_joins_the_consumer,
    only_the_reader_has_added,
    min_after_dequeue_is_above_what_will_ever_come,
    a_full_queue_without_a_reader,
    a_full_queue_whose_readers_have_ended,
    a_join_without_a_stop,
    a_join_of_threads_that_wait_already,
    a_join_of_a_thread_that_reads_what_no_thread_adds,
    two_threads_that_wait_for_one_another,
]


@with_and_without_bystanders
@pytest.mark.parametrize("slip", CERTAIN)
def test_a_wait_that_no_thread_can_end_is_an_error_at_once_that_names_the_slip_its_line_and_a_remedy(
    slip: Callable[[ExitStack], Slip], number: int
) -> None:
    with bystanders(number), ExitStack() as stack:
        wait, sentence = slip(stack)
        with pytest.raises((QueueStarved, CoordinationError)) as caught:
            wait()
        assert caught.value.what == sentence
        assert len(str(caught.value)) < 700


# -- likely: one warning, and the wait goes on ---------------------------------------------------------------------------------------------


def likely_runner(queue: Queue) -> str:
    _, made = QueueRunner(queue, [lambda: 1]), line()
    return f"QueueRunner 'images' (made at {made}) was never started, and HERE: call create_threads(start=True) of the runner before"


def likely_thread(queue: Queue) -> str:
    thread = threading.Thread(target=functools.partial(queue.enqueue, 1), name="loader")
    unstarted.append(thread)
    return "thread 'loader' was created and never started, and HERE: call its start() before"


def likely_end(queue: Queue) -> str:
    run(lambda: queue.enqueue(1))
    queue.dequeue()
    unstarted.clear()
    return (
        f"the threads that filled {queue._made_label()}, such as 'loader', have ended without close(), and HERE: call close() "
        f"when the last of "
        "them has added everything"
    )


unstarted: list[threading.Thread] = []


@with_and_without_bystanders
@pytest.mark.parametrize("slip", [likely_runner, likely_thread, likely_end])
def test_a_likely_slip_is_one_warning_and_the_wait_goes_on(slip: Callable[[Queue], str], number: int) -> None:
    queue, got = FIFOQueue(3, name="images"), []
    sentence = slip(queue)
    queue.patience_s = 0.05

    def train() -> None:
        got.append(queue.dequeue())

    with bystanders(number), warned() as given:
        thread = threading.Thread(target=train)
        thread.start()
        assert given.wait(LIMIT_S)
        assert not warned_again(given, 0.5)
        for never in unstarted:
            never.start()
        if not unstarted:
            queue.enqueue(1)
        thread.join(LIMIT_S)
        for never in unstarted:
            never.join(LIMIT_S)
        unstarted.clear()
    assert got == [1]
    here = f"{FILE}:{train.__code__.co_firstlineno + 1}"
    assert [said[0].partition("\n")[0] for said in given.said] == [sentence.replace("HERE", f"dequeue() at {here} waits for 1 element")]
    assert given.said[0][1:] == (__file__, train.__code__.co_firstlineno + 1)


def warned_again(given: Warnings, seconds: float) -> bool:
    """Return whether a further warning comes within some seconds: ten times the patience."""
    given.clear()
    return given.wait(seconds)


# -- otherwise: a warning after the patience ----------------------------------------------------------------------------------------------


@with_and_without_bystanders
def test_a_runner_that_is_stuck_in_a_call_is_named_with_its_line_after_the_patience(number: int) -> None:
    go: standard.SimpleQueue[int] = standard.SimpleQueue()

    def receive() -> int:
        return go.get()

    queue, made = FIFOQueue(3, name="images"), line()
    queue.patience_s = 0.05
    runner = QueueRunner(queue, [receive])
    with bystanders(number), warned() as given, ExitStack() as stack:
        stop_behind(stack, runner)
        stack.callback(go.put, 2)
        opener = threading.Thread(target=lambda: (given.wait(LIMIT_S), go.put(1)))
        opener.start()
        got, here = queue.dequeue(), line()
        assert got == 1
        opener.join()
    assert given.said[0][0].partition("\n")[0] == (
        f"dequeue() at {here} has waited 0 s for 1 element in FIFOQueue 'images' (made at {made}), and thread 'penstock-images-0' is at "
        f"{FILE}:{receive.__code__.co_firstlineno + 1} in {receive.__qualname__}: return go.get(): look at what it does, or call "
        "dequeue(timeout_s=...), which makes an error of the wait"
    )
    assert given.said[0][1] == __file__


@with_and_without_bystanders
def test_a_limit_alone_makes_an_error_of_a_wait(number: int) -> None:
    queue = FIFOQueue(3, name="images")
    with bystanders(number), pytest.raises(QueueTimeout):
        queue.dequeue(timeout_s=0.1)


@with_and_without_bystanders
def test_a_join_of_threads_that_work_says_after_the_patience_that_no_stop_was_requested(number: int) -> None:
    coord = Coordinator()
    coord.patience_s = 0.05

    def work() -> None:
        coord.wait_for_stop()

    with bystanders(number), warned() as given:
        thread = threading.Thread(target=work)
        coord.register_thread(thread)
        thread.start()
        stopper = threading.Thread(target=lambda: (given.wait(LIMIT_S), coord.request_stop()))
        stopper.start()
        _, here = coord.join(), line()
        stopper.join()
    assert given.said[0][0].partition("\n")[0] == (
        f"no stop was requested, and join() at {here} has waited 0 s: call request_stop() before it if the threads do not end by themselves"
    )


@with_and_without_bystanders
def test_a_runner_that_is_started_behind_the_end_of_another_one_is_refused_with_the_way(number: int) -> None:
    queue = FIFOQueue(9, name="images")
    first, made = QueueRunner(queue, [iter([1, 2])], name="first"), line()
    second, other = QueueRunner(queue, [iter([3])], name="second"), line()
    with bystanders(number):
        for thread in first.create_threads(start=True):
            thread.join()
        with pytest.raises(CoordinationError) as caught:
            second.create_threads(start=True)
    assert caught.value.what == (
        f"queue 'images' was closed by the end of QueueRunner 'first' (made at {made}), so QueueRunner 'second' (made at {other}) "
        f"can add nothing "
        "more: create the threads of both before any is started"
    )


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


# -- healthy: the first element comes late, and there is no error --------------------------------------------------------------------------

Late = Callable[[ExitStack, Queue, Callable[[], object]], object]
"""Starts something that adds an element when a function that waits for the word has returned."""

shelf = types.SimpleNamespace()
variable: contextvars.ContextVar[Any] = contextvars.ContextVar("variable")
own = threading.local()


def spawned(stack: ExitStack, *arguments: Any, **options: Any) -> None:
    thread = threading.Thread(*arguments, **options)
    thread.start()
    stack.callback(thread.join, LIMIT_S)


def a_closure(stack: ExitStack, queue: Queue, word: Callable[[], object]) -> None:
    def load() -> None:
        word()
        queue.enqueue(1)

    spawned(stack, target=load)


def a_bound_method_in_a_chain(stack: ExitStack, queue: Queue, word: Callable[[], object]) -> None:
    def call(functions: list[Callable[[], object]]) -> None:
        for function in functions:
            function()

    spawned(stack, target=call, args=([word, functools.partial(queue.enqueue, 1)],))


def add_to_the_shelf() -> None:
    shelf.queue.enqueue(1)


def a_global(stack: ExitStack, queue: Queue, word: Callable[[], object]) -> None:
    shelf.queue = queue

    def load() -> None:
        word()
        add_to_the_shelf()

    spawned(stack, target=load)


def a_timer(stack: ExitStack, queue: Queue, word: Callable[[], object]) -> None:
    timer = threading.Timer(0.3, queue.enqueue, (1,))
    timer.start()
    stack.callback(timer.join, LIMIT_S)


def a_task_of_a_pool(stack: ExitStack, queue: Queue, word: Callable[[], object]) -> None:
    pool = stack.enter_context(ThreadPoolExecutor(1))
    pool.submit(word)
    pool.submit(queue.enqueue, 1)


def a_callback_of_a_pool(stack: ExitStack, queue: Queue, word: Callable[[], object]) -> None:
    pool = stack.enter_context(ThreadPool(1))
    pool.apply_async(word, callback=queue.enqueue)


def a_callback_of_a_future(stack: ExitStack, queue: Queue, word: Callable[[], object]) -> None:
    future: Future[int] = Future()
    future.add_done_callback(lambda done: queue.enqueue(done.result()))
    spawned(stack, target=lambda: (word(), future.set_result(1)))


def a_coroutine(stack: ExitStack, queue: Queue, word: Callable[[], object]) -> None:
    async def load() -> None:
        await asyncio.get_running_loop().run_in_executor(None, word)
        queue.enqueue(1)

    spawned(stack, target=lambda: asyncio.run(load()))


def a_runner_with_a_slow_operation(stack: ExitStack, queue: Queue, word: Callable[[], object]) -> None:
    stop_behind(stack, QueueRunner(queue, [lambda: word() and 1]))


def a_runner_that_another_thread_starts(stack: ExitStack, queue: Queue, word: Callable[[], object]) -> None:
    runner = QueueRunner(queue, [iter([1])])
    spawned(stack, target=lambda: (word(), [thread.join() for thread in runner.create_threads(start=True)]))


def runners_that_another_thread_starts(stack: ExitStack, queue: Queue, word: Callable[[], object]) -> None:
    context = contextvars.copy_context()
    context.run(add_queue_runner, QueueRunner(queue, [iter([1])]))
    pool = stack.enter_context(ThreadPoolExecutor(1))
    pool.submit(lambda: (word(), [thread.join() for thread in context.run(start_queue_runners)]))


def a_thread_of_a_class(stack: ExitStack, queue: Queue, word: Callable[[], object]) -> None:
    class Loader(threading.Thread):
        def run(self) -> None:
            word()
            queue.enqueue(1)

    loader = Loader()
    loader.start()
    stack.callback(loader.join, LIMIT_S)


def a_thread_that_threading_does_not_know(stack: ExitStack, queue: Queue, word: Callable[[], object]) -> None:
    ended = threading.Event()
    _thread.start_new_thread(lambda: (word(), queue.enqueue(1), ended.set()), ())
    stack.callback(ended.wait, LIMIT_S)


def a_thread_of_a_thread(stack: ExitStack, queue: Queue, word: Callable[[], object]) -> None:
    loader = threading.Thread(target=queue.enqueue, args=(1,))
    spawned(stack, target=lambda: (word(), loader.start(), loader.join()))


def a_weak_reference(stack: ExitStack, queue: Queue, word: Callable[[], object]) -> None:
    add = weakref.WeakMethod(queue.enqueue)
    spawned(stack, target=lambda: (word(), add()(1)))  # type: ignore[misc]


def a_module_that_is_not_imported_yet(stack: ExitStack, queue: Queue, word: Callable[[], object]) -> None:
    def load() -> None:
        word()
        module = types.ModuleType("loads_images")
        module.queue = sys.modules["where_the_queue_is"].queue  # type: ignore[attr-defined]
        sys.modules["loads_images"] = module
        import loads_images  # type: ignore[import-not-found]

        loads_images.queue.enqueue(1)

    sys.modules["where_the_queue_is"] = types.ModuleType("where_the_queue_is")
    sys.modules["where_the_queue_is"].queue = queue  # type: ignore[attr-defined]
    stack.callback(sys.modules.pop, "where_the_queue_is")
    stack.callback(sys.modules.pop, "loads_images")
    spawned(stack, target=load)


def a_context_variable(stack: ExitStack, queue: Queue, word: Callable[[], object]) -> None:
    def load() -> None:
        word()
        variable.get().enqueue(1)

    context = contextvars.copy_context()
    context.run(variable.set, queue)
    spawned(stack, target=context.run, args=(load,))


def what_is_local_to_a_thread(stack: ExitStack, queue: Queue, word: Callable[[], object]) -> None:
    def load(queue: Any) -> None:
        own.queue = queue
        del queue
        word()
        own.queue.enqueue(1)

    spawned(stack, target=load, args=(queue,))


def work_that_is_handed_over(stack: ExitStack, queue: Queue, word: Callable[[], object]) -> None:
    work: standard.SimpleQueue[Callable[[], object]] = standard.SimpleQueue()
    spawned(stack, target=lambda: [work.get()()])
    spawned(stack, target=lambda: (word(), work.put(lambda: queue.enqueue(1))))


def another_queue_that_hands_over(stack: ExitStack, queue: Queue, word: Callable[[], object]) -> None:
    requests = FIFOQueue(1, name="requests")

    def answer() -> None:
        requests.dequeue().enqueue(1)

    def ask() -> None:
        word()
        requests.enqueue(queue)

    spawned(stack, target=answer)
    spawned(stack, target=ask)


def the_handler_of_a_signal(stack: ExitStack, queue: Queue, word: Callable[[], object]) -> None:
    stack.callback(signal.signal, signal.SIGALRM, signal.signal(signal.SIGALRM, lambda number, frame: queue.enqueue(1)))
    spawned(stack, target=lambda: (word(), signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGALRM)))


def an_attribute_of_a_class(stack: ExitStack, queue: Queue, word: Callable[[], object]) -> None:
    class Settings:
        target = queue

        def load(self) -> None:
            word()
            self.target.enqueue(1)

    spawned(stack, target=Settings().load)


def a_server_whose_handler_is_a_class(stack: ExitStack, queue: Queue, word: Callable[[], object]) -> None:
    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            queue.enqueue(1)

    server = stack.enter_context(socketserver.TCPServer(("127.0.0.1", 0), Handler))
    spawned(stack, target=server.serve_forever)
    spawned(stack, target=functools.partial(ask, server.server_address[1], word))
    stack.callback(server.shutdown)


def ask(port: int, word: Callable[[], object]) -> None:
    word()
    socket.create_connection(("127.0.0.1", port)).close()


HEALTHY: list[Late] = [
    a_server_whose_handler_is_a_class,
    a_closure,
    a_bound_method_in_a_chain,
    a_global,
    a_timer,
    a_task_of_a_pool,
    a_callback_of_a_pool,
    a_callback_of_a_future,
    a_coroutine,
    a_runner_with_a_slow_operation,
    a_runner_that_another_thread_starts,
    runners_that_another_thread_starts,
    a_thread_of_a_class,
    a_thread_that_threading_does_not_know,
    a_thread_of_a_thread,
    a_weak_reference,
    a_module_that_is_not_imported_yet,
    a_context_variable,
    what_is_local_to_a_thread,
    work_that_is_handed_over,
    another_queue_that_hands_over,
    the_handler_of_a_signal,
    an_attribute_of_a_class,
]


@with_and_without_bystanders
@pytest.mark.parametrize("late", HEALTHY)
def test_a_healthy_program_whose_first_element_comes_late_gets_no_error(late: Late, number: int) -> None:
    queue = FIFOQueue(3, name="images")
    queue.patience_s = 0.1
    with bystanders(number), warned() as given, ExitStack() as stack:
        late(stack, queue, lambda: given.wait(LIMIT_S))  # a warning after the patience: the wait has been looked into
        assert queue.dequeue() == 1


@with_and_without_bystanders
def test_a_consumer_in_a_thread_may_wait_for_what_the_main_thread_adds_late(number: int) -> None:
    queue, got = FIFOQueue(3, name="images"), []
    queue.patience_s = 0.1
    with bystanders(number), warned() as given, ExitStack() as stack:
        spawned(stack, target=lambda: got.append(queue.dequeue()))
        assert given.wait(LIMIT_S)
        assert "no thread is known to fill it" in given.said[0][0]
        queue.enqueue(1)
    assert got == [1]


@with_and_without_bystanders
def test_a_chain_of_queues_whose_first_is_filled_late_gets_no_error(number: int) -> None:
    first, second = FIFOQueue(3, name="first"), FIFOQueue(3, name="second")
    first.patience_s = second.patience_s = 0.1
    with bystanders(number), warned() as given, ExitStack() as stack:
        stop_behind(stack, QueueRunner(second, [first.dequeue]))
        stop_behind(stack, QueueRunner(first, [lambda: given.wait(LIMIT_S)]))
        assert second.dequeue()


# -- programs ------------------------------------------------------------------------------------------------------------------------------


def outcome_of(program: str) -> subprocess.CompletedProcess[str]:
    """Run a program of its own."""
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={"PYTHONPATH": str(Path(ps.__file__).parents[1])},
    )


def test_a_thread_that_waits_when_the_main_thread_has_ended_does_not_hold_up_the_exit() -> None:
    done = outcome_of("""\
        import threading, penstock as ps
        queue = ps.queues.FIFOQueue(3)
        def train():
            queue.dequeue()
        threading.Thread(target=train).start()
    """)
    assert "QueueStarved: nothing was ever added to FIFOQueue 'FIFOQueue' (made at <string>:2), and no thread" in done.stderr


def test_the_main_thread_of_a_notebook_is_free_between_two_cells() -> None:
    """Its runners wait at full queues for the next cell, which is not written yet."""
    done = outcome_of("""
        import code, threading, warnings, penstock as ps
        cells = iter([
            "queue = ps.queues.FIFOQueue(2)",
            "queue.patience_s = 0.05",
            "threads = ps.queues.QueueRunner(queue, [lambda: 1]).create_threads(start=True)",
            "wait()",
            "print(queue.dequeue_many(5).tolist())",
            "queue.close(cancel_pending_enqueues=True)",
        ])
        said = threading.Event()
        warnings.simplefilter("always")
        warnings.showwarning = lambda *what: said.set()
        console = code.InteractiveConsole({"ps": ps, "wait": lambda: said.wait(60)})
        def read(prompt):
            for cell in cells:
                return cell
            raise EOFError
        console.raw_input = read
        console.interact("", "")
    """)
    assert "[1, 1, 1, 1, 1]" in done.stdout, done.stderr


def test_the_looks_of_a_crowd_take_a_twentieth_of_the_time_and_a_few_waits_look_when_they_like(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a thousand waits, each of which looks at a thousand threads, let nothing else run."""
    now = [100.0]
    monkeypatch.setattr(diagnosis, "time", types.SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(diagnosis, "_waits", dict.fromkeys(range(1000)))
    looks = diagnosis._Looks()
    assert looks.begin()
    now[0] += 1
    assert not looks.begin()  # one thread at a time
    looks.end()
    now[0] += 19.9
    assert not looks.begin()
    now[0] += 0.2
    assert looks.begin()
    now[0] += diagnosis.LIKELY_S  # a thread that is gone, as in a forked process, stands in nobody's way
    assert looks.begin()
    monkeypatch.setattr(diagnosis, "_waits", {1: None})
    looks.end()
    assert looks.begin()
