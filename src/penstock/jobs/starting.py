"""Processes that start before it is known what they are to do."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from penstock._contracts.event import Listener
from penstock._contracts.policy import Raise, Skip
from penstock._contracts.process import refuse_while_imported
from penstock._plan.base import function_name
from penstock.errors import WorkerDied
from penstock.jobs.pool import run_jobs
from penstock.jobs.processes import JobProcesses, packed_function
from penstock.jobs.results import Results, Skipped

__all__ = ["Early"]


class Early(JobProcesses):
    """Processes that start, and do what can be done before, while their parent finds out what they are to do.

        with Early(2) as early:
            ...
            first, second = early.ahead(packed_function(prepare))      # prepare(0), prepare(1)
            results = early.jobs(fn, jobs)

    Used from one thread.
    """

    def __init__(self, count: int) -> None:
        """Start them.

        Raises:
            PlanError: this process is being started itself.
        """
        refuse_while_imported("parallel_jobs")
        super().__init__(count, "forkserver")

    def ahead(self, function: bytes) -> list[Any]:
        """Return what a function makes of each number of a process, in order; None where it fails or makes what cannot be sent.

        Args:
            function: its pickle.

        Raises:
            WorkerDied: one of them was killed, or crashed.
        """
        results = Results(range(len(self.children)), Skip())
        run_jobs(results, function, len(self.children), self)
        for value in results.values:
            if isinstance(value, Skipped) and isinstance(value.error, WorkerDied):
                raise value.error
        return [None if isinstance(value, Skipped) else value for value in results.values]

    def jobs(self, fn: Callable[[Any], Any], jobs: Iterable[Any], listener: Listener | None = None) -> list[Any]:
        """Return `fn(job)` for each job, as `penstock.parallel_jobs` does; `listener` is given its events.

        Raises:
            BaseException: as that does.
        """
        results = Results(list(jobs), Raise(), listener=listener, name=function_name(fn))
        count = min(len(self.children), len(results.todo))
        self.keep(count)
        run_jobs(results, packed_function(fn), count, self)
        return results.values
