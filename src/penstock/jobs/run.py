"""`parallel_jobs`: a list of jobs as one call, done by threads, in this process or each with a worker process to which it sends jobs.

A worker takes the next job when it is through with one. A process has one job at a time, so that a death is that of a job, and takes no
other job along.
"""

from __future__ import annotations

import heapq
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, Literal, TypeVar

from penstock._contracts.event import Listener, clocks, times_since
from penstock._contracts.policy import Policy, Raise, Replace, checked_policy, final
from penstock._engine.error_policy import is_interrupt
from penstock._plan.base import function_name
from penstock._plan.check import callable_argument, count_argument, no_async
from penstock._system.failing import add_note
from penstock._system.frames import call_and_place, warn, where_stand
from penstock._system.lazy import dataclass
from penstock._system.memory import available_cpus
from penstock._system.process import refuse_on_windows, refuse_while_imported
from penstock._workers.child import Child, stop_all
from penstock._workers.failure import fit_to_raise
from penstock.errors import PlanError, WorkerDied
from penstock.jobs.digest import Untold, digest_of
from penstock.jobs.donelist import DoneList
from penstock.jobs.processes import do_in, packed_function, started
from penstock.jobs.results import JobOutcome, Results, words_of_job
from penstock.observe.progress import Progress
from penstock.observe.ticker import Guarded
from penstock.observe.trace import Trace

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


def run_jobs(results: Results, function: Any, num_workers: int, method: str = "") -> None:
    """Do the jobs that are left in threads; return when all is settled.

    Args:
        results: have the jobs, and take what became of them.
        function: of a job; its pickle for processes.
        num_workers: how many threads.
        method: how the process of each thread is started; none when the threads do the jobs themselves.

    Raises:
        BaseException: of the first job that fails, as the policy of `results` has it; `WorkerDied`; KeyboardInterrupt. A thread whose job
            does not end within two seconds then is named in a note, and ends with its job; a process is ended. No process is left.
    """
    pool = _Pool(results, function, method)
    try:
        pool.begin(num_workers)
        pool.settle()
        pool.end()
    except BaseException as error:
        pool.wind_up(error)
        raise
    finally:
        stop_all(list(pool.children.values()), _GRACE_S)


class _Pool:
    def __init__(self, results: Results, function: Any, method: str) -> None:
        self._results, self._function, self._method = results, function, method
        self.children: dict[int, Child] = {}
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
        for number in range(num_workers if self._method else 0):
            self.children[number] = started(number, self._method)
        for number in range(num_workers):
            self._start(number)

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
            if death is not None and self.children:
                self._results.notice("worker replaced", f"worker {outcome.worker}: {death.what}")
                self.children[outcome.worker].stop(0.0)
                self.children[outcome.worker] = started(outcome.worker, self._method)
                self._start(outcome.worker)

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
            if self.children:
                for number in alive:
                    self.children[number].ask()
                    self.children[number].signal(signal.SIGTERM)
                for thread in alive.values():
                    thread.join()
            elif alive:
                names = ", ".join(thread.name for thread in alive.values())
                add_note(first, f"penstock: still at work after {_GRACE_S:g} s: {names}; a thread ends with its job")

    def _stop(self) -> None:
        self._stopped = True
        for _ in self._threads:
            self._todo.put(None)

    def _start(self, number: int) -> None:
        thread = threading.Thread(target=self._work, args=(number, self.children.get(number)), name=f"penstock-jobs-{number}", daemon=True)
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
        remedy = "look at that line" if not self.children else 'find its line with executor="threads", where this warning names it'
        call, place = call_and_place()
        warn(
            f"no job of {call}() at {place} has ended for {lasted_s:.0f} s; in work: {'; '.join(words[:_MOST_NAMED])}{more}: "
            f"give what the job waits for a time limit, or {remedy}"
        )

    def _place(self, number: int) -> str:
        if self.children:
            return f"worker {number} (process {self.children[number].pid})"
        thread = self._threads[number]
        return f"worker {number} at {where_stand([thread])[thread]}"


_WHERE = "parallel_jobs"
_METHODS = ("forkserver", "spawn")
_EXECUTORS = ("processes", "threads", "inline")

Job = TypeVar("Job")
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True, kw_only=True)
class JobsProgress:
    """How far the jobs are.

    Attributes:
        done: how many are settled, those of an earlier run and those that were skipped included.
        total: of how many.
        skipped: how many were left out by the policy.
        elapsed_s: since the call began.
        left_s: how long the rest will take at the rate so far; None when nothing is known yet.
    """

    done: int
    total: int
    skipped: int
    elapsed_s: float
    left_s: float | None


def parallel_jobs(
    fn: Callable[[Job], Result],
    jobs: Iterable[Job],
    num_workers: int | Literal["auto"] = "auto",
    *,
    executor: Literal["processes", "threads", "inline"] = "processes",
    method: Literal["forkserver", "spawn"] = "forkserver",
    on_error: Policy | None = None,
    done: str | os.PathLike[str] | None = None,
    version: str | int = "",
    progress: bool | Literal["always"] | Callable[[JobsProgress], object] = False,
    trace: str | os.PathLike[str] | Listener | None = None,
) -> list[Result]:
    """Do `fn(job)` for each job, several at a time, and return the results in the order of the jobs.

    A worker takes the next job of the list when it is through with one. So no job waits for a slow one, and no worker idles as long as
    there is a job that no worker has begun.

    Blocks until all is done. May be called from any thread, and several times at once. Workers do not import the program.

    Args:
        fn: a function of one job. For processes it is pickled: by value where the program defines it, else by its name. It runs in the
            main thread of a worker. A job is done again only by `ps.Retry(...)`.
        jobs: any iterable; read whole before the first begins. For processes jobs and results are pickled.
        num_workers: how many at once, never more than jobs; "auto" is one per available CPU, 0 is `executor="inline"`.
        executor: "processes"; "threads", for functions that wait, or that let other threads run while they compute; "inline", in the
            caller's thread.
        method: how processes start, "forkserver" or "spawn". Never by fork: a lock that another thread holds stays locked in the copy.
        on_error: what is done about a job that raises, or whose worker dies. By default (`ps.Raise()`) the first error ends the call: no
            other job is begun, those in work have two seconds to end, and the error is raised. `ps.Retry(...)` has it done again,
            `ps.Skip(...)` puts a `penstock.jobs.Skipped` in its place. An exception that cannot be pickled counts as `WorkerFailed`.
        done: a file that gets a line of JSON for each job that is done. A call with the same jobs and function that finds it leaves out
            what it names: after a kill only the jobs in work are done again. Results made of numbers, texts, bytes and arrays are kept up
            to 16 kB and come back; for others `penstock.jobs.NOT_KEPT` stands in the list. Skipped jobs are not noted. The function is
            identified by its name, its source text, and by what it carries: defaults, values of a closure, arguments of a `partial`,
            `self`, attributes.
        version: for `done`: takes the place of source text and carried values, so that only another version makes another function.
        progress: True draws rate and time left on stderr if that is a terminal; "always" writes elsewhere too, a line every 10 s; a
            callable is given a `JobsProgress`, in the caller's thread, whenever jobs are settled.
        trace: a file for a timeline, as `ps.observe.trace` writes it: a row for each worker with a span for each run of a job, and marks
            for retries, skipped jobs and errors. A function is given the events, such as a `BlockDone` for each run, in any thread.

    Returns:
        One result per job.

    Raises:
        PlanError: fn, jobs or an option cannot be used; another run is writing the done-list, or it could not tell fn or a job from others.
        OSError: the done-list or the timeline cannot be made.
        SpecError: a job or a result cannot be pickled; it is named.
        StateMismatch: the done-list is of other jobs or another function, or the file is none.
        StateDamaged: a line of it, other than the last, cannot be read.
        WorkerDied: a worker was killed or crashed; the text names it, how, and the job that it was at.
        TooManySkipped: more jobs failed than `ps.Skip(limit)` allows.
        BaseException: what fn raised, with a note that names the job and has the worker's traceback; KeyboardInterrupt. No process is left.
    """
    policy = _checked(fn, executor, method, on_error, progress)
    if not (trace is None or callable(trace) or isinstance(trace, (str, os.PathLike))):
        raise PlanError(f"trace={trace!r} is not known", where=f"{_WHERE}()", fix="give the path of a file, or a function")
    listed = _listed(jobs)
    function = b""
    if executor == "processes" and num_workers != 0 and listed:
        refuse_on_windows('parallel_jobs(executor="processes")', 'give executor="threads"')
        refuse_while_imported("parallel_jobs")
        function = packed_function(fn)
    count = available_cpus() if num_workers == "auto" else count_argument(num_workers, "num_workers", _WHERE)
    with ExitStack() as stack:
        notes = _done_list(done, fn, listed, str(version))
        if notes is not None:
            stack.callback(notes.close)
        name = function_name(fn)
        results = Results(listed, policy, notes, _teller(progress, name, stack), _listener(trace, name, stack), name)
        count = min(count, len(results.todo))
        if not results.todo:
            pass
        elif count == 0 or executor == "inline":
            run_inline(results, fn)
        elif executor == "threads":
            run_jobs(results, fn, count)
        else:
            run_jobs(results, function, count, method)
    return results.values


def _checked(fn: Any, executor: Any, method: Any, on_error: Any, progress: Any) -> Policy:
    callable_argument(fn, _WHERE)
    no_async(fn, _WHERE)
    for name, value, known in (("executor", executor, _EXECUTORS), ("method", method, _METHODS)):
        if value not in known:
            raise PlanError(f"{name}={value!r} is not known", where=f"{_WHERE}()", fix=f"give one of {', '.join(known)}")
    if not (isinstance(progress, bool) or progress == "always" or callable(progress)):
        raise PlanError(f"progress={progress!r} is not known", where=f"{_WHERE}()", fix='give True, False, "always" or a function')
    policy = Raise() if on_error is None else checked_policy(on_error, f"{_WHERE}()", of_feed=False)
    if isinstance(final(policy), Replace):
        raise PlanError(
            "Replace() has no other job to put in its place", where=f"{_WHERE}(on_error=...)", fix="use ps.Skip() or ps.Retry()"
        )
    return policy


def _listener(trace: Any, name: str, stack: ExitStack) -> Listener | None:
    if trace is None or callable(trace):
        return trace and Guarded(trace)
    return stack.enter_context(Trace(Path(trace))).listener(name, by_worker=True)


def _listed(jobs: Any) -> list[Any]:
    if not hasattr(type(jobs), "__iter__") and not hasattr(type(jobs), "__getitem__"):
        raise PlanError(f"jobs={jobs!r} is not a list of jobs", where=f"{_WHERE}()", fix="give a list or another iterable")
    return list(jobs)


def _done_list(done: str | os.PathLike[str] | None, fn: Any, jobs: list[Any], version: str) -> DoneList | None:
    if done is not None:
        name = f"{getattr(fn, '__module__', '')}.{function_name(fn)}"  # a program is __main__ whether or not it has been renamed since
        return DoneList(os.path.abspath(os.fsdecode(done)), name, jobs, _told_by(fn, version))
    if version:
        raise PlanError(f"version={version!r} without done=: nothing is compared", where=f"{_WHERE}()", fix="give done=, or leave it out")
    return None


def _told_by(fn: Any, version: str) -> dict[str, str]:
    """Return what tells a function from others of its name."""
    if version:
        return {"version": version}
    try:
        return {"source": digest_of(fn, sources=True)}
    except Untold as error:
        raise PlanError(
            f"nothing tells in another run whether {function_name(fn)} is the same function: {error}",
            where=f"{_WHERE}(done=...)",
            fix="give version=, and another one after each change of the function",
        ) from error


def _teller(progress: Any, name: str, stack: ExitStack) -> Callable[[Results], None] | None:
    """Return what is told when a job is settled."""
    begun_s = time.perf_counter()
    if callable(progress):

        def tell(results: Results) -> None:
            elapsed_s = time.perf_counter() - begun_s
            settled = len(results.todo) - results.num_left
            progress(
                JobsProgress(
                    done=len(results.jobs) - results.num_left,
                    total=len(results.jobs),
                    skipped=results.num_skipped,
                    elapsed_s=elapsed_s,
                    left_s=elapsed_s / settled * results.num_left if settled else None,
                )
            )

        return tell
    if not progress or (progress is True and not (sys.stderr and sys.stderr.isatty())):
        return None
    lines: list[Progress] = []

    def draw(results: Results) -> None:
        if not lines:
            lines.append(stack.enter_context(Progress(name, len(results.todo), unit="jobs")))
        lines[0].advance(1)

    return draw
