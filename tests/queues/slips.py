"""A program whose only other threads are its own: each wait that no thread can end, what is said of it, and what is to be said, as JSON."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable

from queues.crowd import lined_up

from penstock.errors import CoordinationError, QueueClosed, QueueStarved
from penstock.queues import Coordinator, FIFOQueue, QueueRunner, RandomShuffleQueue

FILE = "slips.py"
Slip = tuple[Callable[[], object], str]
"""What waits, and the first sentence of what is said of it."""


def line() -> str:
    """Return the line of the caller, as a diagnosis names it."""
    return f"{FILE}:{sys._getframe(1).f_lineno}"


def run(target: Callable[[], object]) -> None:
    """Run something in a thread, to its end."""
    thread = threading.Thread(target=target, name="loader")
    thread.start()
    thread.join()


def nothing_was_ever_added() -> Slip:
    queue, made = FIFOQueue(3, name="images"), line()
    wait, here = (lambda: [queue.dequeue()]), line()
    return wait, (
        f"nothing was ever added to FIFOQueue 'images' (made at {made}), so dequeue() at {here} would wait for ever: enqueue() before, or "
        "in a thread of its own"
    )


def a_runner_was_made_and_not_started() -> Slip:
    queue = FIFOQueue(3, name="images")
    _, made = QueueRunner(queue, [lambda: 1]), line()
    wait, here = (lambda: queue.dequeue_many(2)), line()
    return wait, (
        f"QueueRunner 'images' (made at {made}) was never started, so dequeue_many() at {here} would wait for ever: "
        "call start_queue_runners(), or create_threads(start=True) of the runner, before"
    )


def the_threads_of_a_runner_were_not_started() -> Slip:
    queue = FIFOQueue(3, name="images")
    runner, made = QueueRunner(queue, [lambda: 1]), line()
    _, created = runner.create_threads(), line()
    wait, here = (lambda: queue.dequeue_up_to(2)), line()
    return wait, (
        f"the threads of QueueRunner 'images' (made at {made}), created at {created}, were never started, so dequeue_up_to() at {here} "
        "would wait for ever: call start() of the runner, or of each thread, before"
    )


def the_producers_ended_without_close() -> Slip:
    queue, made = FIFOQueue(3, name="images"), line()
    run(lambda: queue.enqueue_many([1, 2]))
    queue.dequeue()
    wait, here = (lambda: queue.dequeue_many(2)), line()
    return wait, (
        f"the threads that filled FIFOQueue 'images' (made at {made}), such as 'loader', have ended without close(), with 1 element left "
        f"in it, so dequeue_many() at {here} would wait for ever: call close() when the last of them has added everything"
    )


def only_the_reader_has_added() -> Slip:
    queue, made = FIFOQueue(3, name="images"), line()
    queue.enqueue_many([1, 2])
    wait, here = (lambda: [queue.dequeue() for _ in range(3)]), line()
    return wait, (
        f"only the thread that reads FIFOQueue 'images' (made at {made}) has ever added to it, so dequeue() at {here} would wait for ever: "
        "add from another thread, or close() it before the last read"
    )


def min_after_dequeue_is_above_what_will_ever_come() -> Slip:
    queue, made = RandomShuffleQueue(100, 50, name="images"), line()
    run(lambda: queue.enqueue_many(range(20)))
    wait, here = (lambda: [queue.dequeue()]), line()
    return wait, (
        f"RandomShuffleQueue 'images' (made at {made}) keeps min_after_dequeue=50 elements in and has only 20, and no thread adds more, so "
        f"dequeue() at {here} would wait for ever: close() it when everything is in, which lets all of them out, or lower min_after_dequeue"
    )


def a_full_queue_without_a_reader() -> Slip:
    queue, made = FIFOQueue(3, name="images"), line()
    wait, here = (lambda: queue.enqueue_many([1, 2, 3, 4])), line()
    return wait, (
        f"FIFOQueue 'images' (made at {made}) is full (capacity 3) and no thread reads it, so enqueue_many() at {here} would wait for "
        "ever: start a thread that calls dequeue() before, or make it with a larger capacity"
    )


def a_full_queue_whose_readers_have_ended() -> Slip:
    queue, made = FIFOQueue(1, name="images"), line()
    reader = threading.Thread(target=queue.dequeue, name="loader")
    reader.start()
    lined_up(queue, readers=1)
    queue.enqueue(1)
    reader.join()
    wait, here = (lambda: [queue.enqueue(number) for number in range(2)]), line()
    return wait, (
        f"FIFOQueue 'images' (made at {made}) is full (capacity 1) and the threads that read it, such as 'loader', have ended, so "
        f"enqueue() at {here} would wait for ever: call close(cancel_pending_enqueues=True) when the last of them ends"
    )


def two_threads_that_wait_for_one_another() -> Slip:
    requests, answers = FIFOQueue(1, name="requests"), FIFOQueue(1, name="answers")
    made = f"{FILE}:{sys._getframe().f_lineno - 1}"

    def serve() -> None:
        try:
            while True:
                requests.dequeue()
                answers.enqueue(1)
        except QueueClosed:
            return

    server = threading.Thread(target=serve, name="server")
    server.start()
    requests.enqueue(1)
    answers.dequeue()

    def wait() -> None:
        try:
            answers.dequeue()
        finally:
            requests.close()
            server.join()

    return wait, (
        f"the threads that filled FIFOQueue 'answers' (made at {made}), such as 'server', wait themselves, so dequeue() at "
        f"{FILE}:{wait.__code__.co_firstlineno + 2} would wait for ever: let one of them go on without this one"
    )


def a_join_without_a_stop() -> Slip:
    queue, coord = FIFOQueue(3, name="images"), Coordinator()
    QueueRunner(queue, [lambda: 1] * 2).create_threads(coord, start=True)
    queue.dequeue_many(10)
    wait, here = (lambda: [coord.join()]), line()
    return wait, f"no stop was requested, so join() at {here} would wait for ever: call request_stop() before it, or use `with coord:`"


def a_join_of_a_thread_that_reads_what_no_thread_adds() -> Slip:
    queue, coord = FIFOQueue(3, name="images"), Coordinator()
    made = f"{FILE}:{sys._getframe().f_lineno - 1}"

    def train() -> None:
        with coord.stop_on_exception():
            queue.dequeue()

    thread = threading.Thread(target=train)
    coord.register_thread(thread)
    coord.on_stop(queue.close)
    thread.start()
    return coord.join, (
        f"nothing was ever added to FIFOQueue 'images' (made at {made}), so dequeue() at {FILE}:{train.__code__.co_firstlineno + 2} would "
        "wait for ever: enqueue() before, or in a thread of its own"
    )


SLIPS = [
    nothing_was_ever_added,
    a_runner_was_made_and_not_started,
    the_threads_of_a_runner_were_not_started,
    the_producers_ended_without_close,
    only_the_reader_has_added,
    min_after_dequeue_is_above_what_will_ever_come,
    a_full_queue_without_a_reader,
    a_full_queue_whose_readers_have_ended,
    two_threads_that_wait_for_one_another,
    a_join_without_a_stop,
    a_join_of_a_thread_that_reads_what_no_thread_adds,
]


def main() -> None:
    """Make all the slips."""
    told = {}
    for slip in SLIPS:
        wait, sentence = slip()
        try:
            wait()
        except (QueueStarved, CoordinationError) as error:
            told[slip.__name__] = error.what, sentence
    json.dump(told, sys.stdout)


if __name__ == "__main__":
    main()
