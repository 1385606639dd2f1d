"""How workers start: when there are jobs, or before it is known what they are to do."""

from __future__ import annotations

import pickle
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import Any

from penstock._contracts.event import Listener
from penstock._contracts.policy import Raise
from penstock._contracts.process import refuse_while_imported
from penstock._plan.base import function_name
from penstock._processes.child import Child, stop_all, wait_any
from penstock._processes.pipe import pickled
from penstock._processes.sending import dumps_to_worker
from penstock.errors import PlanError, SpecError
from penstock.jobs.results import Results
from penstock.jobs.worker import work
from penstock.jobs.worker_pool import run_in_processes

__all__ = ["Early", "packed_function", "starter"]


class Early:
    """Processes that start, and do what can be done before, while their parent finds out what they are to do.

        with Early(2) as early:
            ...
            first, second = early.ahead(pickle.dumps(prepare))      # prepare(0), prepare(1)
            results = early.jobs(fn, jobs)

    Used from one thread. Leaves no process.
    """

    def __init__(self, num_workers: int) -> None:
        """Start them.

        Raises:
            PlanError: this process is being started itself.
        """
        refuse_while_imported("parallel_jobs")
        self._start = starter("forkserver")
        self._num_workers = num_workers
        self._waiting: deque[Child] = deque()
        self._asked: deque[Child] = deque()
        try:
            for number in range(num_workers):
                self._waiting.append(self._start(f"worker {number}"))
        except BaseException:
            self.close()
            raise

    def ahead(self, function: bytes) -> list[Any]:
        """Have each of them call a function with its number, and return what they made, in order.

        Blocks until all have answered, or the first whose function failed, or made what cannot be sent or takes more than 64 MB: its result
        is None, and so is that of those who have not answered yet. To be called once, before `jobs`.

        Args:
            function: its pickle.

        Raises:
            WorkerDied: one of them was killed, or crashed.
            StopRaised: one of them was ended by SystemExit or the like.
        """
        for number, child in enumerate(self._waiting):
            child.offer((number, function))
        self._asked = deque(self._waiting)
        made: dict[Child, Any] = {}
        while self._asked and all(one is not None for one in made.values()):
            for child in wait_any(self._asked):
                self._asked.remove(child)
                made[child] = _made_by(child)
        return [made.get(child) for child in self._waiting]

    def jobs(self, fn: Callable[[Any], Any], jobs: Iterable[Any], listener: Listener | None = None) -> list[Any]:
        """Return `fn(job)` for each job, as `penstock.parallel_jobs` does; `listener` is given its events.

        Raises:
            BaseException: as that does.
        """
        results = Results(list(jobs), Raise(), None, lambda results, count: None, listener, function_name(fn))
        if not results.todo:
            return []
        count = min(self._num_workers, len(results.todo))
        stop_all([self._waiting.pop() for _ in range(len(self._waiting) - count)], 0.0)
        for child in self._asked:  # they still owe what they were asked for, which is not needed any more
            if child in self._waiting:
                child.receive()
        run_in_processes(results, packed_function(fn), count, self._next)
        return results.values

    def close(self) -> None:
        """End those that were never given anything to do; may be called again."""
        stop_all([self._waiting.popleft() for _ in range(len(self._waiting))], 0.0)

    def __enter__(self) -> Early:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _next(self, name: str) -> Child:
        return self._waiting.popleft() if self._waiting else self._start(name)


def _made_by(child: Child) -> Any:
    made = child.receive()
    with suppress(Exception):  # of its pickle: what cannot be read here was not sent
        return None if made is None else pickle.loads(made)
    return None


def starter(method: str) -> Callable[[str], Child]:
    """Return what starts a worker of a name."""
    return partial(_started, method)


def _started(method: str, name: str) -> Child:
    return Child.start(work, name=name, method=method)


def packed_function(fn: Any) -> bytes:
    """Return the pickle of a function for workers.

    Raises:
        PlanError: it has none.
    """
    try:
        return pickled(fn, "fn", dumps_to_worker)
    except SpecError as error:
        raise PlanError(
            f"{function_name(fn)} cannot be sent to a worker process: {error.what}",
            where="parallel_jobs(fn, ...)",
            fix='open files, locks and clients inside it, give its values with the jobs, or use executor="threads"',
        ) from error
