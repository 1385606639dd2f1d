"""`parallel_jobs`: a list of jobs, done in processes, as one call."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

from penstock._contracts.event import Listener
from penstock._contracts.policy import Policy, Raise, Replace, checked_policy, final
from penstock._plan.base import function_name
from penstock._plan.check import callable_argument, count_argument, no_async
from penstock._system.memory import available_cpus
from penstock._system.process import refuse_on_windows, refuse_while_imported
from penstock.errors import PlanError
from penstock.jobs.digest import Untold, digest_of
from penstock.jobs.donelist import DoneList
from penstock.jobs.pool import run_inline, run_jobs
from penstock.jobs.processes import JobProcesses, packed_function
from penstock.jobs.results import Results
from penstock.observe.progress import Progress
from penstock.observe.ticker import Guarded
from penstock.observe.trace import Trace

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
            run_jobs(results, function, count, stack.enter_context(JobProcesses(count, method)))
    return results.values


def _checked(fn: Any, executor: Any, method: Any, on_error: Any, progress: Any) -> Policy:
    callable_argument(fn, _WHERE)
    no_async(fn, _WHERE)
    for name, value, known in (("executor", executor, _EXECUTORS), ("method", method, _METHODS)):
        if value not in known:
            raise PlanError(f"{name}={value!r} is not known", where=f"{_WHERE}()", fix=f"give one of {', '.join(known)}")
    if not (isinstance(progress, bool) or progress == "always" or callable(progress)):
        raise PlanError(f"progress={progress!r} is not known", where=f"{_WHERE}()", fix='give True, False, "always" or a function')
    policy = Raise() if on_error is None else checked_policy(on_error, "on_error", f"{_WHERE}()", of_feed=False)
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
