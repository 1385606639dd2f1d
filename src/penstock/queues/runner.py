"""Threads that fill a queue, each with an operation of its own, and the runners that are started together."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from contextvars import ContextVar
from functools import partial
from typing import Any, Never

from penstock._system.failing import add_note
from penstock._system.frames import call_and_place
from penstock.errors import CoordinationError, EnqueueCancelled, PlanError
from penstock.queues.base import Queue
from penstock.queues.coordinator import Coordinator
from penstock.queues.stopping import attach_others, exception_types, is_clean, told_as_error
from penstock.queues.trees import no_such_keywords

_COLLECTION = "queue_runners"

# One collection for each context, such as a thread or an asyncio task. Never changed in place: the copy of a context would share it.
_runners: ContextVar[Mapping[str, tuple[QueueRunner, ...]]] = ContextVar("penstock_queue_runners")

_END = object()
"""What an iterator gives at its end. Not a StopIteration: that of an operation which only happens to call next() somewhere is an error."""


class _Round:
    """What belongs to one `create_threads`: the threads, those that have not ended, and who stops them."""

    def __init__(self, coord: Coordinator | None) -> None:
        self.coord = coord
        self.threads: tuple[threading.Thread, ...] = ()
        self.live: set[threading.Thread] = set()
        self.place = call_and_place()[1]

    def stopped(self) -> bool:
        return self.coord is not None and self.coord.should_stop()


class QueueRunner:
    """Fill a queue from threads, one for each operation, until they end, fail or are stopped.

    An operation is called again and again. What it returns is enqueued; when it returns None it has enqueued something itself. An iterator
    may stand in place of a callable: its elements are enqueued. Threads that share one iterator take turns at it, so a generator is safe.

    How a thread ends:

    - Its iterator ends, or its operation raises a type that means the end (`queue_closed_exception_types`), also because the queue was
      closed. When the last thread of all runners of the queue has ended, the queue is closed; what is in it can be taken.
    - It fails. With a coordinator that is a stop for all, and `join` raises the error. Without one the queue is closed, and the reader who
      has taken what was left gets the error itself, once; it stays in `exceptions_raised`.
    - The coordinator stops. The stop closes the queue and ends every `enqueue` and `dequeue` that waits.

    All methods may be called from any thread; none blocks.

    Args:
        queue: the queue to fill.
        enqueue_ops: callables and iterators, one for each thread: `[op] * 4` for four threads.
        name: in the names of the threads, in warnings and errors; by default the queue's.
        queue_closed_exception_types: what an operation raises at its end. By default `QueueClosed`, such as from a queue that it reads, but
            not when that has elements left, too few for the read: they would be lost without a word.
        others: none; the keywords of TensorFlow are refused with the words for them here.

    Raises:
        PlanError: no queue; no operation, or one that is neither callable nor an iterator, or that only makes a generator or coroutine;
            something among the types that is no exception type.
    """

    def __init__(
        self,
        queue: Queue,
        enqueue_ops: Iterable[Callable[[], Any] | Iterator[Any]],
        *,
        name: str | None = None,
        queue_closed_exception_types: Iterable[type[BaseException]] | None = None,
        **others: Never,
    ) -> None:
        no_such_keywords("QueueRunner()", others)
        if not isinstance(queue, Queue):
            raise PlanError(
                f"{queue!r} is no queue", where="QueueRunner(queue)", fix="give a queue of penstock.queues, such as a FIFOQueue"
            )
        self._queue = queue
        self._name = queue.name if name is None else name
        self._ends = exception_types(queue_closed_exception_types, where="QueueRunner(queue_closed_exception_types)")
        self._steps = _steps(enqueue_ops)
        self._mutex = threading.RLock()
        self._round = _Round(None)
        self._errors: list[BaseException] = []
        self._made = call_and_place()[1]
        queue.runners.append(self)

    @property
    def queue(self) -> Queue:
        """The queue that it fills."""
        return self._queue

    @property
    def name(self) -> str:
        """The name, by default the queue's."""
        return self._name

    @property
    def exceptions_raised(self) -> list[BaseException]:
        """The errors of threads that ran without a coordinator, the oldest first; those with one are the coordinator's."""
        return list(self._errors)

    def threads(self) -> tuple[threading.Thread, ...]:
        """Return the threads that were made last, those that have ended included."""
        return self._round.threads

    def _words(self) -> str:
        """Return what errors and warnings call it: its name, and the line that made it."""
        return f"QueueRunner {self._name!r} (made at {self._made})" if self._made else f"QueueRunner {self._name!r}"

    def unstarted(self) -> tuple[str, str] | None:
        """Return what was made and not started, and the call that starts it; None when it runs or has ended."""
        made = self._round
        waiting = [thread for thread in made.threads if thread.ident is None]
        if not made.threads:
            return f"{self._words()} was never started", "call start_queue_runners(), or create_threads(start=True) of the runner, before"
        if len(waiting) < len(made.threads):
            return None
        return (
            f"the threads of {self._words()}, created at {made.place or 'some place'}, were never started",
            "call start() of the runner, or of each thread, before",
        )

    def has_ended(self) -> bool:
        """Tell whether threads were made, and all have ended."""
        return bool(self._round.threads) and not self._round.live

    def create_threads(
        self, coord: Coordinator | None = None, daemon: bool = True, start: bool = False, **others: Never
    ) -> list[threading.Thread]:
        """Make a thread for each operation, registered with the coordinator, and return them.

        When those made before have not all ended, nothing is made and the list is empty. When a stop was requested before, the queue is
        closed at once, and the threads end as soon as they are started.

        Args:
            coord: stops the threads and gets their errors.
            daemon: whether a program may exit while they run.
            start: whether to start them.
            others: none; the keywords of TensorFlow are refused with the words for them here.

        Raises:
            CoordinationError: the threads made before run under another coordinator; or the queue is closed, and no stop was requested.
            PlanError: `coord` is no coordinator.
            RuntimeError: the system has no thread to give; those that were started are stopped.
        """
        no_such_keywords("QueueRunner.create_threads()", others)
        self.check(coord)
        with self._mutex:
            if self._round.live:
                return []
            made = _Round(coord)
            made.threads = tuple(
                threading.Thread(target=self._work, args=(made, step), name=f"penstock-{self._name}-{number}", daemon=daemon)
                for number, step in enumerate(self._steps)
            )
            made.live = set(made.threads)
            self._round = made
        if coord is not None:
            for thread in made.threads:
                coord.register_thread(thread)
            coord.on_stop(partial(self._queue.close, cancel_pending_enqueues=True))
        if start:
            self.start()
        return list(made.threads)

    def check(self, coord: Coordinator | None) -> None:
        """Refuse what `create_threads(coord)` would refuse."""
        if coord is not None and not isinstance(coord, Coordinator):
            raise PlanError(f"{coord!r} is no coordinator", where=f"runner {self._name!r}", fix="give coord=Coordinator(), or nothing")
        if self._round.live:
            if self._round.coord is not coord:
                raise CoordinationError(
                    f"the threads of runner {self._name!r} run under another coordinator",
                    where="QueueRunner.create_threads(coord)",
                    fix="join that one first, or make a queue and a runner of their own for this one",
                )
        elif self._queue.is_closed() and not (coord is not None and coord.should_stop()):
            raise CoordinationError(
                f"queue {self._queue.name!r} is closed: {self._words()} could fill nothing",
                where="QueueRunner.create_threads()",
                fix="make a new queue and a new runner for each run; where the end of another runner has closed it, create the threads of "
                "both before any is started, as start_queue_runners() does",
            )

    def start(self) -> None:
        """Start the threads that were made and not started."""
        with self._mutex:
            made = self._round
            waiting = [thread for thread in made.threads if thread.ident is None]
            try:
                while waiting:
                    waiting[0].start()
                    del waiting[0]
            except BaseException:
                for thread in waiting:
                    self._end(made, thread)  # one that is started all the same finds the stop
                if made.coord is None:
                    self._queue.close(cancel_pending_enqueues=True)
                else:
                    made.coord.request_stop()
                raise

    def _work(self, made: _Round, step: Callable[[], Any]) -> None:
        """Be a thread of this runner."""
        try:
            self._queue._writing.note()  # before it adds anything, which may take long
            while not made.stopped() and (element := step()) is not _END:
                if element is not None:
                    self._queue.enqueue(element)
        except BaseException as error:
            self._report(made, error)
        finally:
            self._end(made, threading.current_thread())

    def _end(self, made: _Round, thread: threading.Thread) -> None:
        """Count a thread out; the last one of all runners of the queue closes it."""
        made.live.discard(thread)
        if not any(other._round.live for other in list(self._queue.runners)):
            self._queue.close()

    def _report(self, made: _Round, error: BaseException) -> None:
        """Tell what a thread raised to whom it concerns."""
        if isinstance(error, EnqueueCancelled) or is_clean(error, self._ends, stopped=made.stopped()):
            return
        error = told_as_error(error)
        add_note(error, f"penstock: runner {self._name!r}, thread {threading.current_thread().name!r}")
        if made.coord is not None:
            made.coord.request_stop(error)
            return
        with self._mutex:
            self._errors.append(error)
            first = self._errors[0]
        if first is error:
            self._queue.fail(error)
        else:
            attach_others(first, [error])


def _steps(enqueue_ops: Any) -> list[Callable[[], Any]]:
    """Return a callable for each operation."""
    if enqueue_ops is None:
        raise _nothing_to_run()
    if callable(enqueue_ops) or not isinstance(enqueue_ops, Iterable) or isinstance(enqueue_ops, (str, bytes, Iterator)):
        raise _refusal(
            f"enqueue_ops is {enqueue_ops!r}, which is no list of operations", "give a list: [op] for one thread, [op] * 4 for four"
        )
    turns: dict[int, AbstractContextManager[Any]] = {}
    steps = [_step(op, turns) for op in enqueue_ops]
    if not steps:
        raise _refusal("there is no operation", "give one for each thread: [op] * 4 for four")
    return steps


def _step(op: Any, turns: dict[int, AbstractContextManager[Any]]) -> Callable[[], Any]:
    from inspect import isasyncgenfunction, iscoroutinefunction, isgeneratorfunction

    if isgeneratorfunction(op) or iscoroutinefunction(op) or isasyncgenfunction(op):
        makes = "a generator" if isgeneratorfunction(op) else "something to await"
        raise _refusal(
            f"{op!r} only makes {makes} each time it is called", "give the generator itself, as in [rows()], or a plain function"
        )
    if isinstance(op, Iterator):
        return partial(_next, op, turns.setdefault(id(op), threading.Lock()))
    if callable(op):
        return op  # type: ignore[no-any-return]
    if op is None:
        raise _nothing_to_run()
    raise _refusal(f"{op!r} can be neither called nor iterated", "give callables without arguments, or iterators: iter(rows)")


def _next(iterator: Iterator[Any], turn: AbstractContextManager[Any]) -> Any:
    with turn:
        return next(iterator, _END)


def _nothing_to_run() -> PlanError:
    return _refusal(
        "the operation is None: enqueue() and enqueue_many() add at once and return None, so nothing is left to run",
        "give a function that adds when it is called: [lambda: queue.enqueue_many(values)]",
    )


def _refusal(what: str, fix: str) -> PlanError:
    return PlanError(what, where="QueueRunner(enqueue_ops)", fix=fix)


def add_queue_runner(qr: QueueRunner, collection: str = _COLLECTION) -> None:
    """Add a runner to a collection of the current context, for `start_queue_runners`.

    A context is a thread's, or an asyncio task's, own: a new thread begins with empty collections, a new task with those of its creator,
    and what either adds is not seen elsewhere. A runner whose threads have ended leaves the collection by itself. Never blocks.

    Raises:
        PlanError: it is no runner.
    """
    if not isinstance(qr, QueueRunner):
        raise PlanError(f"{qr!r} is no runner", where="add_queue_runner(qr)", fix="give a QueueRunner")
    _runners.set({**_runners.get({}), collection: (*_collected(collection), qr)})


def start_queue_runners(
    coord: Coordinator | None = None, daemon: bool = True, start: bool = True, collection: str = _COLLECTION, **others: Never
) -> list[threading.Thread]:
    """Start the threads of all runners that were added in this context, and return those that are new.

    Runners that are running already are left alone. All threads are made before the first is started. Warns when none was ever added in
    this context: the runners of another thread are not seen here. Never blocks.

    Args:
        coord: stops the threads and gets their errors; without one each runner keeps its own.
        daemon: whether a program may exit while they run.
        start: whether to start them; else that is up to the caller.
        collection: which runners.
        others: none; the keywords of TensorFlow are refused with the words for them here.

    Raises:
        CoordinationError: as `QueueRunner.create_threads`; then none was started.
        PlanError: `coord` is no coordinator.
        RuntimeError: the system has no thread to give; the coordinator has stopped those that were started.
    """
    no_such_keywords("start_queue_runners()", others)
    collected, runners = _runners.get({}), _collected(collection)
    if collection in collected:
        _runners.set({**collected, collection: runners})
    else:
        warnings.warn(
            f"start_queue_runners(): no runner was added to {collection!r} in this context (thread {threading.current_thread().name!r}); "
            "add_queue_runner() must be called in the same thread or task",
            RuntimeWarning,
            stacklevel=2,
        )
    for runner in runners:
        runner.check(coord)
    threads = [thread for runner in runners for thread in runner.create_threads(coord, daemon)]
    if start:
        for runner in runners:
            runner.start()
    return threads


def _collected(collection: str) -> tuple[QueueRunner, ...]:
    return tuple(runner for runner in _runners.get({}).get(collection, ()) if not runner.has_ended())
