"""GeneratorEnqueuer: a generator's items, made ahead by threads or by processes, each with a generator of its own."""

from __future__ import annotations

import atexit
import math
import os
import random
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import count
from typing import Any, NamedTuple, Self

import numpy as np

from penstock._contracts.element import bytes_of
from penstock._contracts.event import BatchDelivered, BlockDone, ElementLost, Event, Fill, Listener, Times, clocks, times_since
from penstock._engine.error_policy import is_interrupt
from penstock._plan.check import count_argument
from penstock._system.failing import attempt
from penstock._system.frames import call_and_place, warn, words_of_threads
from penstock._system.process import refuse_on_windows
from penstock._workers.child import Child, stop_all, wait_any
from penstock._workers.failure import Failure, fit_to_raise
from penstock._workers.inbox import Inbox
from penstock._workers.outbox import Outbox
from penstock._workers.pipe import Pipe, PipeEnded
from penstock.errors import EnqueueCancelled, FeedClosed, PlanError, QueueClosed, QueueTimeout, SourceError, StillRunning
from penstock.observe.ticker import Guarded
from penstock.queues import FIFOQueue

_END = object()
_LONGEST_S = 1e6  # what waits takes no more; 11 days
_EXIT_GRACE_S = 0.5
_KILL_S = 12.0  # SIGTERM and SIGKILL take no longer
_MOST_SENT = 64  # items on their way from all processes: each may hold a descriptor


class GeneratorEnqueuer:
    """Make the items of a generator ahead of the loop, in threads or processes, with the calls of Keras's class of that name.

        enqueuer = ps.GeneratorEnqueuer(batches, use_multiprocessing=True, random_seed=7)
        enqueuer.start(workers=2)
        for batch in enqueuer.get():
            train(batch)
        enqueuer.stop()

    One thread runs the generator, and its order is kept. Each process runs a generator of its own; items are taken from the processes in
    turn, so the same seed and the same workers give the same order. Arrays of processes arrive in shared memory, writable and 64-byte
    aligned; keep them as long as you like. What differs from Keras is listed in `docs/enqueuer.md`. All methods may be called from any
    thread; several threads may each take a `get()`, and every item goes to one of them.

    Args:
        generator: a generator or another iterator; or a callable without arguments that returns one, or an iterable: of these each
            process makes one of its own. A callable with parameters `worker` and `num_workers` gets both. A
            process gets a generator object by fork only; a callable or iterable is pickled instead, so it stands at the top of a module.
        use_multiprocessing: processes instead of threads.
        wait_time: accepted and not used: nothing polls.
        random_seed: process i seeds `np.random` and `random` with `random_seed + i`. None: each with a seed of the system, never the same.
        share: with processes: process i gives items i, i + n, i + 2n, ... of its generator, so that together they give each item once
            and in order, instead of one full copy each. A callable with `worker` and `num_workers` makes that share itself and saves
            the rest.
        thread_safe: `next()` of the iterator may be called by several threads at once: `workers` threads do, and there is no order.
        start_method: "forkserver", "spawn" or "fork"; None takes "fork" for a generator object and "forkserver" for all else.

    Attributes:
        patience_s: seconds without an item after which a waiting `get()` says what the generator does, and again after twice as long.

    Raises:
        PlanError: an argument is not what it should be.
    """

    patience_s: float = 60.0

    def __init__(
        self,
        generator: Callable[..., Iterable[Any]] | Iterable[Any],
        use_multiprocessing: bool = False,
        wait_time: float = 0.05,
        random_seed: int | None = None,
        *,
        share: bool = False,
        thread_safe: bool = False,
        start_method: str | None = None,
    ) -> None:
        name = str(getattr(generator, "__qualname__", type(generator).__qualname__))
        self._generator, self._name, self._events = generator, f"GeneratorEnqueuer({name})", _Events(name)
        self._use_multiprocessing, self._share, self._thread_safe = use_multiprocessing, share, thread_safe
        self._random_seed = None if random_seed is None else count_argument(random_seed, "random_seed", "GeneratorEnqueuer")
        self._start_method = start_method or ("fork" if is_iterator(generator) else "forkserver")
        self._closed = False
        self._queue: ItemQueue | None = None

    def start(self, workers: int = 1, max_queue_size: int = 10) -> None:
        """Start the workers and return; they begin at once.

        Args:
            workers: processes, or threads with `thread_safe`; one thread else. 0 makes each item in the thread that asks for it.
            max_queue_size: items that may wait. Each worker has one more in hand.

        Raises:
            PlanError: it is running, a number is not what it should be, or what was given cannot be sent to a process.
            SourceError: what was given cannot be iterated.
        """
        workers = count_argument(workers, "workers", "start")
        capacity = count_argument(max_queue_size, "max_queue_size", "start", least=1)
        if self.is_running():
            raise PlanError(f"{self._name} is running", where="start()", fix="stop() it first, or make another one")
        if self._queue is not None:
            self._queue.stop()
            self._queue = None
        processes, num_threads, generator = None, workers if self._thread_safe else min(workers, 1), self._generator
        if workers and self._use_multiprocessing:
            refuse_on_windows("use_multiprocessing=True", "leave it out")
            credit = max(1, min(capacity, _MOST_SENT) // (2 * workers))
            num_threads, capacity = 1, max(1, capacity - workers * credit)
            processes = ItemProcesses(generator, self._name, workers, credit, self._random_seed, self._share, self._start_method)
        items = iterator_of(generator, self._name) if processes is None else processes.items()
        self._queue = ItemQueue(self, items, processes, num_threads, capacity)
        self._closed = False

    def is_running(self) -> bool:
        """Return whether it was started and more may come: until `stop()`, the end of all generators, or an error."""
        return self._queue is not None and not self._queue.over

    def is_closed(self) -> bool:
        """Return whether it was stopped, and not started again."""
        return self._closed

    @property
    def name(self) -> str:
        """The name that errors and timelines call it by."""
        return self._name

    def fills(self) -> list[Fill]:
        """Return how full its queue is; nothing while it is not started."""
        return [] if self._queue is None else [self._queue.fill()]

    def add_listener(self, listener: Listener) -> None:
        """Announce to one more listener when each item was made and taken, and the error of a worker; see `penstock.observe.trace`.

        It is called in any thread. One that raises is switched off, with one warning.
        """
        self._events.listeners.append(Guarded(listener))

    @property
    def queue(self) -> ItemQueue | None:
        """The items that wait, with `empty()`, `get()` and `qsize()`, for loops written for Keras; None while it is not started."""
        return self._queue

    def get(self) -> Iterator[Any]:
        """Give the items, but no None; block while none is ready.

        Yields:
            What the generator yields. The end comes when all generators are at theirs, and after `stop()`.

        Raises:
            FeedClosed: it was not started, was stopped before, or has failed before.
            WorkerDied: a process was killed or crashed; the signal is named.
            SpecError: an item of a process cannot be pickled.
            SourceError: the generator was read to its end before.
            BaseException: what the generator raised, once, behind the items before it, with the worker's traceback.
        """
        queue = self._queue
        if queue is None:
            raise FeedClosed(f"{self._name} is not running", where="get()", fix="call start() first")
        yield from queue  # in no name, which would keep an item until the next one is there

    def stop(self, timeout: float | None = None) -> None:
        """End all workers and drop what waits; nothing happens when it was not started or is stopped.

        Args:
            timeout: seconds for the workers to finish what they are at. Processes are killed then; None gives them 2 s. Threads cannot be
                killed; None waits 30 s for them.

        Raises:
            StillRunning: a thread did not stop; it is named, and ends when the generator returns.
        """
        self._closed = True
        queue, self._queue = self._queue, None
        if queue is not None:
            queue.stop(timeout)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.stop()


class ItemQueue(Iterator[Any]):
    """The items of one `start()` that wait, and the threads that add them. It refers to no enqueuer, so one that is dropped can end it.

    Loops written for Keras use it:

        while enqueuer.is_running():
            if not enqueuer.queue.empty():
                batch = enqueuer.queue.get()
    """

    def __init__(
        self, owner: GeneratorEnqueuer, items: Iterator[Any], processes: ItemProcesses | None, num_threads: int, capacity: int
    ) -> None:
        self._name, self._events, self._patience_s = owner._name, owner._events, owner.patience_s
        self._items, self._processes = items, processes
        self._may_be_spent = is_iterator(owner._generator) and num_threads < 2
        self._grace_s = 30.0 if processes is None else 2.0
        self._queue = FIFOQueue(capacity, name=owner._name)
        self._queue.patience_s = math.inf  # its words would advise calls of a queue that the user has not got
        self._taking = threading.RLock()
        self._failed = False
        self._pid = os.getpid()
        self._dropped = weakref.finalize(owner, self.abandon)
        self._left: list[int] = []
        self._threads = [
            threading.Thread(target=self._work, args=(index,), name=f"penstock-enqueuer-{index}", daemon=True)
            for index in range(num_threads)
        ]
        for thread in self._threads:
            thread.start()
        if processes is not None:
            atexit.register(self.stop, _EXIT_GRACE_S)

    def empty(self) -> bool:
        """Return whether `get` would have to wait; False also where it would raise the error of the generator."""
        return self.qsize() == 0

    def qsize(self) -> int:
        """Return how many items wait. Without workers one is made now."""
        with suppress(EnqueueCancelled):
            self._make_without_threads()
        return self._queue.size()

    def get(self) -> Any:
        """Return the next item; block while none is ready.

        Raises:
            FeedClosed: all generators are at their ends, or it was stopped, or it has failed before.
            BaseException: as `GeneratorEnqueuer.get`.
        """
        item = next(self, _END)
        if item is _END:
            raise FeedClosed("there is no further item", where=f"{self._name}.queue.get()", fix="ask is_running() and queue.empty() before")
        return item

    @property
    def over(self) -> bool:
        """Whether nothing more can be taken."""
        return self._queue.is_closed() and not self._queue.size()

    def fill(self) -> Fill:
        """Return how full it is."""
        return self._queue.fill()._replace(name="items")

    def __next__(self) -> Any:
        """Return the next item; block until there is one. Raise the error that ended the workers, once."""
        begin_ns, made = time.perf_counter_ns(), None
        with suppress(QueueClosed), self._taking:
            self._make_without_threads()
            made = self._next()
        self._events.taken(begin_ns, self._queue.size(), made)
        if made is None:
            if self._failed:
                raise FeedClosed("its workers have failed; the error was raised before", where=self._name, fix="stop() and start() again")
            raise StopIteration
        if made.error is None:
            return made.item
        self._failed = True
        self.abandon()
        try:
            raise made.error
        finally:
            del made  # or the error, its traceback and this frame would be a cycle

    def abandon(self) -> None:
        """Drop what waits and tell the workers to end, without waiting for them."""
        if os.getpid() != self._pid:  # in a fork the threads are gone, and their locks may be held for ever
            return
        self._queue.close(cancel_pending_enqueues=True)
        with suppress(QueueClosed):
            while True:
                self._queue.dequeue(timeout_s=0)
        if self._processes is not None:
            self._processes.wake()

    def stop(self, timeout_s: float | None = None) -> None:
        """End the workers.

        Raises:
            StillRunning: a thread has not ended in time.
        """
        if timeout_s is not None:
            self._grace_s = min(float(timeout_s), _LONGEST_S)
        self._dropped.detach()
        self.abandon()
        if not self._threads:
            self._end()
        deadline = time.monotonic() + self._grace_s + (0.0 if self._processes is None else _KILL_S)
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        names = [thread.name for thread in self._threads if thread.is_alive()]
        if names:
            raise StillRunning(
                f"{len(names)} thread(s) did not stop inside {self._grace_s:g} s: {', '.join(names)}",
                where=f"{self._name}.stop()",
                fix="the generator is still at an item; give it timeouts, or a longer timeout= to stop()",
            )

    def _work(self, index: int) -> None:
        try:
            while self._make(index):
                pass
        except EnqueueCancelled:  # stopped
            pass
        except BaseException as error:  # of the queue: a thread that ended without a word would look like the end of the items
            self._fail(index, error)
        finally:
            self._left.append(index)
            if len(self._left) == len(self._threads):
                self._end()

    def _end(self) -> None:
        """End the processes. A generator that was made here closes as nothing refers to it any more; the user's own goes on."""
        self._items = iter(())
        if self._processes is not None:
            self._processes.stop(self._grace_s)
        atexit.unregister(self.stop)
        self._queue.close()

    def _make(self, worker: int) -> bool:
        """Make an item and put it in; return whether there may be more."""
        if self._queue.is_closed():
            return False
        begin = clocks()
        try:
            item = next(self._items, _END)
            if item is _END and self._may_be_spent:
                raise SourceError(
                    "its generator gives no item: it was read to its end before, and can be read only once, or is empty",
                    where=self._name,
                    fix="give a function that makes a new generator, such as `def rows(): yield ...`, and pass `rows`, not `rows()`",
                )
        except BaseException as error:
            if self._processes is not None:  # frames of this thread tell nothing, and hold memory of the process
                worker, error = self._processes.at, BaseException.with_traceback(error, None)
            self._fail(worker, error)
            return False
        self._may_be_spent = False
        if item is _END:
            return False
        made = item if isinstance(item, Made) else Made(worker, times_since(begin), item)
        if made.item is not None:
            self._put(made)
        return True

    def _fail(self, worker: int, error: BaseException) -> None:
        """Put an error in, behind the items before it; one after a stop is no news."""
        if not self._queue.is_closed():
            self._put(Made(worker, error=error if is_interrupt(error) else fit_to_raise(error, f"{self._name}, worker {worker}")))
            self._queue.close()

    def _put(self, made: Made) -> None:
        self._queue.enqueue(self._events.made(made), timeout_s=_LONGEST_S)

    def _make_without_threads(self) -> None:
        if not self._threads:
            with self._taking:
                while not self._queue.size() and not self._queue.is_closed():
                    if not self._make(0):
                        self._queue.close()

    def _next(self) -> Made:
        """Take the next entry; warn when none comes for long, and again after twice as long."""
        waited_s, limit_s = 0.0, self._patience_s
        while True:
            try:
                return self._queue.dequeue(timeout_s=limit_s)  # type: ignore[no-any-return]
            except QueueTimeout:
                waited_s += limit_s
                limit_s = waited_s
            doing = words_of_threads(self._threads)
            if self._processes is not None:
                pids = ", ".join(map(str, self._processes.pids))
                doing = f"its generator in process {pids} has sent nothing; start(workers=0) makes the items here, where a stack shows it"
            warn(
                f"{self._name} has given nothing for {waited_s:.0f} s to get() at {call_and_place()[1]}: {doing}; "
                "stop() from another thread ends the wait"
            )


class Made(NamedTuple):
    """What a worker has made: an item, or the error that ended it.

    Attributes:
        worker: its number.
        times: when it was made.
        item: the item.
        error: the error.
        key: what events call the item.
    """

    worker: int
    times: Times = (0, 0, 0)
    item: Any = None
    error: BaseException | None = None
    key: tuple[int, int] | None = None


def iterator_of(thing: Any, name: str, worker: int = 0, num_workers: int = 1) -> Iterator[Any]:
    """Return an iterator of what the user gave, as one worker reads it.

    Raises:
        SourceError: it cannot be iterated, or is a callable that returned something else than an iterable.
    """
    made = thing
    if callable(thing) and not is_iterator(thing):
        made = thing(worker=worker, num_workers=num_workers) if takes_share(thing) else thing()
    if not hasattr(made, "__iter__"):
        raise SourceError(
            f"a {type(made).__name__} cannot be iterated", where=name, fix="give a generator, an iterable, or a function that returns one"
        )
    return iter(made)


def is_iterator(thing: Any) -> bool:
    """Tell whether a thing is a generator or another iterator, and no class of them."""
    return hasattr(thing, "__next__") and not isinstance(thing, type)


def takes_share(thing: Any) -> bool:
    """Tell whether a thing is a callable with parameters `worker` and `num_workers`, which makes the share of one worker itself."""
    import inspect

    try:
        return {"worker", "num_workers"} <= inspect.signature(thing).parameters.keys()
    except (TypeError, ValueError):  # it cannot be called, or is in C
        return False


class _Events:
    """Announces each item, when a worker made it and when it was taken, and the error of a worker. One for all runs of an enqueuer."""

    def __init__(self, name: str) -> None:
        self.listeners: list[Listener] = []
        self._name = name
        self._numbers = count()

    def made(self, made: Made) -> Made:
        """Announce an item, or the error of a worker, in the order in which they are put in; return it with its key."""
        if made.error is not None:
            self._announce(ElementLost(time.perf_counter_ns(), "raised", self._name, made.worker, "", (), None, made.error, 0))
            return made
        key = 0, next(self._numbers)
        if self.listeners:
            num_bytes = attempt(bytes_of, made.item) or 0
            self._announce(BlockDone(self._name, made.worker, *made.times, 1, key, num_bytes=num_bytes))
        return made._replace(key=key)

    def taken(self, begin_ns: int, num_left: int, made: Made | None) -> None:
        """Announce what the loop got after a wait since `begin_ns`: an item, an error, or with None the end."""
        key = None if made is None else made.key
        now_ns = time.perf_counter_ns()
        self._announce(BatchDelivered(now_ns, now_ns - begin_ns, num_left, int(key is not None), key))

    def _announce(self, event: Event) -> None:
        for listener in self.listeners:
            listener(event)


_MOST_LEASED = 256  # items in shared memory, each with a descriptor; those beyond are copied out


class ItemProcesses:
    """The processes of one `start()`. One thread takes items; others may `wake` it.

    Args:
        thing: what the user gave.
        name: of the enqueuer.
        num_workers: how many processes.
        credit: items that each may send ahead of the one that is taken.
        random_seed: process i gets `random_seed + i`; None: each one of the system.
        share: whether process i gives items i, i + n, i + 2n, ... alone.
        method: how to start them, as `Child.start` has it.

    Attributes:
        at: the number of the process that the last item or error is of.
    """

    def __init__(self, thing: Any, name: str, num_workers: int, credit: int, random_seed: int | None, share: bool, method: str) -> None:
        self.at = 0
        self._woken = False
        self._workers: dict[Child, tuple[int, Inbox]] = {}
        try:
            for worker in range(num_workers):
                seed = None if random_seed is None else random_seed + worker
                args = thing, name, worker, num_workers, credit, seed, share
                child = Child.start(_serve, args, name=f"worker {worker} of {name}", method=method)
                self._workers[child] = worker, Inbox(_MOST_LEASED // num_workers)
        except BaseException:
            self.stop(0.0)
            raise

    def items(self) -> Iterator[Made]:
        """Take an item of each process in turn.

        Raises:
            WorkerDied: a process has ended before its generator; at once, also in the turn of another.
            BaseException: what a generator raised, at its turn.
        """
        turn = deque(self._workers)
        while turn:
            child = turn[0]
            ready = wait_any([child], alive=[other for other in turn if other is not child])
            if self._woken:
                return
            child = child if child in ready else ready[0]
            self.at, inbox = self._workers[child]
            while child is not turn[0]:  # it has died: up to its last word, which is raised
                child.receive()
            message = child.receive()
            if isinstance(message, Failure):
                raise message.error(f"{child.name}, process {child.pid}")
            if message is None:
                turn.popleft()
                continue
            turn.rotate(-1)
            yield Made(self.at, message.about, inbox.open(message, child.take_fd))
            child.offer(inbox.take_returned())

    @property
    def pids(self) -> list[int]:
        """The processes."""
        return [child.pid for child in self._workers]

    def wake(self) -> None:
        """Ask the processes to end, which ends `items`. From any thread."""
        self._woken = True
        for child in self._workers:
            child.ask()

    def stop(self, grace_s: float) -> None:
        """End the processes: one that does not end within `grace_s` is killed."""
        stop_all(list(self._workers), grace_s)


def _serve(pipe: Pipe, thing: Any, name: str, worker: int, num_workers: int, credit: int, seed: int | None, share: bool) -> None:
    """Send the items of one process, as many ahead as there is credit, and what ended them: an error, or None."""
    # Without a seed of its own, each copy of a forked process would draw the same random numbers.
    np.random.seed(None if seed is None else seed % 2**32)
    random.seed(seed)
    outbox = Outbox(pipe, where=f"worker {worker} of {name}")
    step = num_workers if share and not takes_share(thing) else 1
    end = None
    try:
        begin = clocks()
        for number, item in enumerate(iterator_of(thing, name, worker, num_workers)):
            times = times_since(begin)
            if number % step == worker % step:
                if credit:
                    credit -= 1
                else:
                    outbox.given_back(pipe.receive())
                outbox.send(item, times)
            begin = clocks()
    except PipeEnded:
        raise
    except BaseException as error:
        end = Failure.of(error)
    pipe.send(end)
    while True:  # until the parent asks for the end: one that ended by itself would look dead before its turn
        pipe.receive()
