"""Lists of jobs, done by threads: in this process, or each with a worker process to which it sends jobs.

A worker takes the next job when it is through with one. A process has one job at a time, so that a death is that of a job, and takes no
other job along.
"""

from __future__ import annotations

import heapq
import signal
import threading
import time
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any

from penstock._contracts.event import clocks, times_since
from penstock._engine.error_policy import is_interrupt
from penstock._system.failing import add_note
from penstock._system.frames import call_and_place, warn, where_stand
from penstock._workers.child import Child
from penstock._workers.failure import fit_to_raise
from penstock.errors import WorkerDied
from penstock.jobs.processes import JobProcesses, do_in
from penstock.jobs.results import JobOutcome, Results, words_of_job

_GRACE_S = 2.0
_PATIENCE_S = 60.0
_SIGNALS_S = 0.5
"""The main thread waits no longer at once: a signal that comes right before a wait is served behind it."""
_MOST_FAILED_STARTS = 10
_MOST_NAMED = 4


def run_inline(results: Results, function: Callable[[Any], Any]) -> None:
    """Do the jobs that are left, one after the other, in the caller's thread.

    Raises:
        BaseException: of the first job that fails, as the policy of `results` has it; KeyboardInterrupt.
    """
    for job in results.todo:
        while (wait_s := results.take(job, _done_here(function, results, job))) is not None:
            time.sleep(wait_s)


def _done_here(function: Any, results: Results, job: int, worker: int = 0, place: str = "in the caller's thread") -> JobOutcome:
    begin = clocks()
    try:
        value = function(results.jobs[job])
    except BaseException as error:
        times = times_since(begin)
        if is_interrupt(error):
            raise
        return JobOutcome(worker, job, times, error=fit_to_raise(error, f"{words_of_job(job, results.jobs)}, {place}"))
    return JobOutcome(worker, job, times_since(begin), value)


def run_jobs(results: Results, function: Any, num_workers: int, processes: JobProcesses | None = None) -> None:
    """Do the jobs that are left in threads; return when all is settled.

    Args:
        results: have the jobs, and take what became of them.
        function: of a job; its pickle for processes.
        num_workers: how many threads.
        processes: one for each thread; None when the threads do the jobs themselves.

    Raises:
        BaseException: of the first job that fails, as the policy of `results` has it; `WorkerDied`; KeyboardInterrupt. A thread whose job
            does not end within two seconds then is named in a note, and ends with its job; a process is ended.
    """
    pool = _Pool(results, function, processes)
    try:
        pool.begin(num_workers)
        pool.settle()
        pool.end()
    except BaseException as error:
        pool.wind_up(error)
        raise


class _Pool:
    def __init__(self, results: Results, function: Any, processes: JobProcesses | None) -> None:
        self._results, self._function, self._processes = results, function, processes
        self._todo: SimpleQueue[int | None] = SimpleQueue()
        self._outcomes: SimpleQueue[JobOutcome] = SimpleQueue()
        self._threads: dict[int, threading.Thread] = {}
        self._at: dict[int, int] = {}  # jobs in work, by worker
        self._later: list[tuple[float, int]] = []  # (time, job) of those that are to be tried again
        self._failed_starts = 0
        self._stopped = False
        self._heard_s = time.monotonic()
        self._patience_s = _PATIENCE_S

    def begin(self, num_workers: int) -> None:
        for job in self._results.todo:
            self._todo.put(job)
        for number in range(num_workers):
            self._start(number, None if self._processes is None else self._processes.children[number])

    def settle(self) -> None:
        while self._results.num_left:
            while self._later and self._later[0][0] <= time.monotonic():
                self._todo.put(heapq.heappop(self._later)[1])
            try:
                outcome = self._outcomes.get(timeout=self._left_s())
            except Empty:
                self._warn_of_silence()
                continue
            self._heard_s, self._patience_s = time.monotonic(), _PATIENCE_S
            death = outcome.death
            if outcome.job is None:
                self._check_start(outcome)
            else:
                wait_s = self._results.take(outcome.job, outcome)
                if wait_s is not None:
                    heapq.heappush(self._later, (time.monotonic() + wait_s, outcome.job))
                if death is None:
                    self._failed_starts = 0
            if death is not None and self._processes is not None:
                self._results.notice("worker replaced", f"worker {outcome.worker}: {death.what}")
                self._start(outcome.worker, self._processes.replace(outcome.worker))

    def end(self) -> None:
        """Wait for the threads, which have nothing to do any more."""
        self._stop()
        for thread in self._threads.values():
            thread.join()

    def wind_up(self, first: BaseException) -> None:
        """Give the jobs in work a moment to end, take what became of them, and end the processes of the others."""
        self._stop()
        deadline_s = time.monotonic() + _GRACE_S
        try:
            for thread in self._threads.values():
                thread.join(max(0.0, deadline_s - time.monotonic()))
            while not self._outcomes.empty():
                outcome = self._outcomes.get()
                if outcome.job is not None:
                    self._results.take_late(outcome.job, outcome, first)
        finally:
            alive = {number: thread for number, thread in self._threads.items() if thread.is_alive()}
            if self._processes is not None:
                for number in alive:
                    self._processes.children[number].ask()
                    self._processes.children[number].signal(signal.SIGTERM)
                for thread in alive.values():
                    thread.join()
            elif alive:
                names = ", ".join(thread.name for thread in alive.values())
                add_note(first, f"penstock: still at work after {_GRACE_S:g} s: {names}; a thread ends with its job")

    def _stop(self) -> None:
        self._stopped = True
        for _ in self._threads:
            self._todo.put(None)

    def _start(self, number: int, child: Child | None) -> None:
        thread = threading.Thread(target=self._work, args=(number, child), name=f"penstock-jobs-{number}", daemon=True)
        thread.start()
        self._threads[number] = thread

    def _work(self, number: int, child: Child | None) -> None:
        job = None
        try:
            if child is not None:
                child.send(self._function)
                child.receive()
            while (job := self._todo.get()) is not None and not self._stopped:
                self._at[number] = job
                outcome = self._outcome(job, number, child)
                self._at.pop(number)
                self._outcomes.put(outcome)
                if outcome.death is not None:
                    return
        except BaseException as error:
            if job is not None:  # not begun
                self._at.pop(number)
                self._todo.put(job)
            self._outcomes.put(JobOutcome(number, error=error))

    def _outcome(self, job: int, number: int, child: Child | None) -> JobOutcome:
        if child is None:
            return _done_here(self._function, self._results, job, number, f"worker {number}")
        return do_in(child, self._results.jobs, job, number)

    def _check_start(self, outcome: JobOutcome) -> None:
        """Raise what ended a worker at no job, unless the policy tries again: as when every start dies, no number of them helps."""
        error = outcome.error
        assert error is not None
        if (
            not isinstance(error, WorkerDied)
            or self._failed_starts >= _MOST_FAILED_STARTS
            or not self._results.retries(error, self._failed_starts)
        ):
            if self._failed_starts:
                add_note(error, f"penstock: {self._failed_starts + 1} workers died before their first job")
            raise error
        self._failed_starts += 1

    def _left_s(self) -> float:
        """Return how long to wait for an outcome until there is something else to do."""
        ends_s = [self._heard_s + self._patience_s, *(time_s for time_s, _ in self._later[:1])]
        return min(_SIGNALS_S, max(0.0, min(ends_s) - time.monotonic()))

    def _warn_of_silence(self) -> None:
        """Warn when no job has ended for long, and again after twice as long."""
        lasted_s = time.monotonic() - self._heard_s
        if lasted_s < self._patience_s:
            return
        self._patience_s = 2 * lasted_s
        words = [f"{words_of_job(job, self._results.jobs)} in {self._place(number)}" for number, job in sorted(self._at.copy().items())]
        more = f" and {len(words) - _MOST_NAMED} more" if len(words) > _MOST_NAMED else ""
        remedy = "look at that line" if self._processes is None else 'find its line with executor="threads", where this warning names it'
        call, place = call_and_place()
        warn(
            f"no job of {call}() at {place} has ended for {lasted_s:.0f} s; in work: {'; '.join(words[:_MOST_NAMED])}{more}: "
            f"give what the job waits for a time limit, or {remedy}"
        )

    def _place(self, number: int) -> str:
        if self._processes is not None:
            return f"worker {number} (process {self._processes.children[number].pid})"
        thread = self._threads[number]
        return f"worker {number} at {where_stand([thread])[thread]}"
