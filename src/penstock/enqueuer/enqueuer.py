"""GeneratorEnqueuer: a generator's items, made ahead by threads or processes."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator
from numbers import Real
from types import TracebackType
from typing import Any, Self

from penstock._contracts.event import Fill, Listener
from penstock._contracts.process import refuse_on_windows
from penstock._plan.check import count_argument
from penstock.enqueuer.given import Given
from penstock.enqueuer.handing import END, EnqueuerRun, Events, ItemQueue
from penstock.errors import FeedClosed, PlanError
from penstock.observe.ticker import Guarded
from penstock.queues.diagnosis import PATIENCE_S

__all__ = ["GeneratorEnqueuer"]


_MOST_SENT = 64  # items on their way from all processes: each may hold a descriptor
_METHODS = ("forkserver", "spawn", "fork")
_LONGEST_S = 1e6  # what waits takes no more; 11 days


class GeneratorEnqueuer:
    """Make the items of a generator ahead of the loop, in threads or processes, with the calls of Keras's class of that name.

        enqueuer = ps.GeneratorEnqueuer(batches, use_multiprocessing=True, random_seed=7)
        enqueuer.start(workers=2)
        for batch in enqueuer.get():
            train(batch)
        enqueuer.stop()

    Threads share one generator, one at a time, and its order is kept. Each process runs a generator of its own; items are taken from the
    processes in turn, so the same seed and the same workers give the same order. Arrays of processes arrive in shared memory, writable and
    64-byte aligned; keep them as long as you like. What differs from Keras is listed in `docs/enqueuer.md`. All methods may be called from
    any thread; several threads may each take a `get()`, and every item goes to one of them.

    Args:
        generator: a generator or another iterator; or a callable without arguments that returns one, or an iterable: of these each
            process (or all threads together) makes one of its own. A callable with parameters `worker` and `num_workers` gets both. A
            process gets a generator object by fork only; a callable or iterable is pickled instead, so it stands at the top of a module.
        use_multiprocessing: processes instead of threads.
        wait_time: accepted and not used: nothing polls.
        random_seed: process i seeds `np.random` and `random` with `random_seed + i`. None: each with a seed of the system, never the same.
        share: with processes: process i gives items i, i + n, i + 2n, ... of its generator, so that together they give each item once
            and in order, instead of one full copy each. A callable with `worker` and `num_workers` makes that share itself and saves
            the rest.
        thread_safe: `next()` of the iterator may be called by several threads at once: they then work side by side, and without an order.
        start_method: "forkserver", "spawn" or "fork"; None takes "fork" for a generator object and "forkserver" for all else.

    Attributes:
        patience_s: seconds without an item after which a waiting `get()` says what the generator does, and again after twice as long.

    Raises:
        PlanError: an argument is not what it should be.
    """

    patience_s: float = PATIENCE_S

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
        self._given = Given(generator)
        self._use_multiprocessing = bool(use_multiprocessing)
        self._random_seed = None if random_seed is None else count_argument(random_seed, "random_seed", "GeneratorEnqueuer")
        self._share = bool(share)
        self._thread_safe = bool(thread_safe)
        if start_method is not None and start_method not in _METHODS:
            raise PlanError(
                f"start_method={start_method!r} is not known",
                where="GeneratorEnqueuer()",
                fix=f"give one of {', '.join(_METHODS)}, or None",
            )
        self._start_method = start_method
        self._name = f"GeneratorEnqueuer({self._given.name})"
        self._events = Events(self._given.name)
        self._closed = False
        self._run: EnqueuerRun | None = None
        self._finaliser: weakref.finalize[Any, Any] | None = None

    def start(self, workers: int = 1, max_queue_size: int = 10) -> None:
        """Start the workers and return; they begin at once.

        Args:
            workers: threads or processes; 0 makes each item in the thread that asks for it.
            max_queue_size: items that may wait. Each worker has one more in hand.

        Raises:
            PlanError: it is running, a number is not what it should be, or what was given cannot be sent to a process.
            SourceError: the generator was read to its end before.
        """
        workers = count_argument(workers, "workers", "start")
        max_queue_size = count_argument(max_queue_size, "max_queue_size", "start", least=1)
        if self._run is not None:
            if not self._run.over:
                raise PlanError(f"{self._name} is running", where="start()", fix="stop() it first, or make another one")
            self._stop(None)
        if workers == 0:
            self._run = _inline(self._given, self._name, self._events)
        elif self._use_multiprocessing:
            self._run = self._processes(workers, max_queue_size)
        else:
            self._run = _threads(self._given, workers, max_queue_size, self._name, self._thread_safe, self.patience_s, self._events)
        self._closed = False
        self._finaliser = weakref.finalize(self, self._run.abandon)

    def is_running(self) -> bool:
        """Return whether it was started and more may come: until `stop()`, the end of all generators, or an error."""
        return self._run is not None and not self._run.over

    def is_closed(self) -> bool:
        """Return whether it was stopped, and not started again."""
        return self._closed

    @property
    def name(self) -> str:
        """The name that errors and timelines call it by."""
        return self._name

    def fills(self) -> list[Fill]:
        """Return how full its queue is; nothing while it is not started, or makes each item in the thread that asks for it."""
        return [] if self._run is None else self._run.fills()

    def add_listener(self, listener: Listener) -> None:
        """Announce to one more listener when each item was made and taken, and the error of a worker; see `penstock.observe.trace`.

        It is called in any thread. One that raises is switched off, with one warning.
        """
        self._events.listeners.append(Guarded(listener))

    @property
    def queue(self) -> ItemQueue | None:
        """The items that wait, with `empty()`, `get()` and `qsize()`, for loops written for Keras; None while it is not started."""
        return None if self._run is None else ItemQueue(self._run, self._name)

    def get(self) -> Iterator[Any]:
        """Give the items, but no None; block while none is ready.

        Yields:
            What the generator yields. The end comes when all generators are at theirs, and after `stop()`.

        Raises:
            FeedClosed: it was not started, was stopped before, or has failed before.
            WorkerDied: a process was killed or crashed; the signal is named.
            SpecError: an item of a process cannot be pickled.
            BaseException: what the generator raised, once, behind the items before it, with the worker's traceback.
        """
        run = self._run
        if run is None:
            raise FeedClosed(f"{self._name} is not running", where="get()", fix="call start() first")
        while True:
            holder = [run.take()]  # not in a name, which would keep an item until the next one is there
            if holder[0] is END:
                return
            yield holder.pop()

    def stop(self, timeout: float | None = None) -> None:
        """End all workers and drop what waits; nothing happens when it was not started or is stopped.

        Args:
            timeout: seconds for the workers to finish what they are at. Processes are killed then; None gives them 2 s. Threads cannot be
                killed; None waits 30 s for them.

        Raises:
            PlanError: `timeout` is no time.
            StillRunning: a thread did not stop; it is named, and ends when the generator returns.
        """
        number = isinstance(timeout, Real) and not isinstance(timeout, bool)
        if timeout is not None and not (number and timeout >= 0):
            raise PlanError(f"timeout={timeout!r} is not a time", where="stop()", fix="give seconds, 0 or more, or None")
        self._closed = True
        self._stop(None if timeout is None else float(min(timeout, _LONGEST_S)))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self.stop()

    def _stop(self, timeout_s: float | None) -> None:
        run, self._run = self._run, None
        if run is not None:
            if self._finaliser is not None:
                self._finaliser.detach()
            run.stop(timeout_s)

    def _processes(self, workers: int, max_queue_size: int) -> EnqueuerRun:
        from penstock.enqueuer.in_processes import InProcesses
        from penstock.enqueuer.serving import Duty

        refuse_on_windows("use_multiprocessing=True", "leave it out")
        self._given.check_fresh()
        method = self._start_method or ("fork" if self._given.is_iterator else "forkserver")
        duties = [
            Duty(
                given=self._given,
                worker=index,
                num_workers=workers,
                seed=None if self._random_seed is None else self._random_seed + index,
                share=self._share,
                credit=max(1, min(max_queue_size, _MOST_SENT) // (2 * workers)),
                where=f"worker {index} of {self._name}",
            )
            for index in range(workers)
        ]
        return InProcesses(duties, method, max_queue_size, self._name, self.patience_s, self._events)


def _inline(given: Given, name: str, events: Events) -> EnqueuerRun:
    from penstock.enqueuer.in_threads import Inline

    return Inline(given, name, events)


def _threads(
    given: Given, workers: int, max_queue_size: int, name: str, thread_safe: bool, patience_s: float, events: Events
) -> EnqueuerRun:
    from penstock.enqueuer.in_threads import InThreads

    return InThreads(given, workers, max_queue_size, name, thread_safe, patience_s, events)
