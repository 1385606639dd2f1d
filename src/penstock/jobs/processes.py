"""Processes that do jobs: what runs in them, and their parent's side."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from penstock._contracts.event import Times, clocks, times_since
from penstock._plan.base import function_name
from penstock._system.failing import add_note
from penstock._workers.child import Child
from penstock._workers.failure import Failure
from penstock._workers.pipe import Pipe, pickled
from penstock._workers.sending import dumps_to_program, dumps_to_worker
from penstock.errors import PlanError, SpecError, WorkerDied
from penstock.jobs.results import JobOutcome, words_of_job

_PICKLING = threading.Lock()
"""cloudpickle has one list of the modules that are sent by value, for all threads."""


def work(pipe: Pipe) -> None:
    """Do jobs until the parent asks for the end.

    A message is the pickle of a function, which is answered when it is read, or (number, pickle of a job) for the function that came last.
    The answer to a job is (done or not, pickle of the result or of a Failure, when).

    Raises:
        PlanError: a function cannot be found here.
    """
    function: Any = None
    while True:
        message = pipe.receive()
        if isinstance(message, bytes):
            function = _function(message)
            pipe.send(None)
        else:
            pipe.send(_answer(function, *message))


def _function(data: bytes) -> Any:
    try:
        return pickle.loads(data)
    except Exception as error:
        raise PlanError(
            f"the function cannot be found in a worker process: {error}",
            where="parallel_jobs(fn, ...)",
            fix='import what it needs inside it, put its modules where other processes find them, or use executor="threads"',
        ) from error


def _answer(function: Any, number: int, data: bytes) -> tuple[bool, bytes, Times]:
    begin = clocks()
    try:
        result = function(pickle.loads(data))
        times = times_since(begin)
        return True, _sendable(result, lambda: f"the result of job {number}", dumps_to_program), times
    except BaseException as error:
        return False, pickle.dumps(Failure.of(error), protocol=5), times_since(begin)


def _sendable(value: Any, words: Callable[[], str], dumps: Callable[[object], bytes]) -> bytes:
    try:
        return pickled(value, "", dumps)
    except SpecError as error:
        fix = f'{error.fix}; or use executor="threads", where nothing is sent'
        raise SpecError(error.what, where=words(), fix=fix) from error.__cause__


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


def started(number: int, method: str) -> Child:
    """Start a worker process.

    Raises:
        PlanError: this process is a worker process itself.
        OSError: no process can be started.
    """
    return Child.start(work, name=f"worker {number}", method=method)


def do_in(child: Child, jobs: Sequence[Any], job: int, worker: int) -> JobOutcome:
    """Have a process do one of the jobs.

    Raises:
        WorkerDied: it was gone before it was given the job.
    """
    words = partial(words_of_job, job, jobs)
    try:
        with _PICKLING:
            data = _sendable(jobs[job], words, dumps_to_worker)
    except SpecError as error:
        return JobOutcome(worker, job, error=error)
    child.send((job, data))
    try:
        done, answer, times = child.receive()
    except WorkerDied as died:
        return JobOutcome(worker, job, error=WorkerDied(f"{died.what}; it was at {words()}", where=died.where, fix=died.fix))
    try:
        value = pickle.loads(answer)
    except Exception as error:
        add_note(error, f"penstock: reading the result of {words()}")
        return JobOutcome(worker, job, times, error=error)
    if done:
        return JobOutcome(worker, job, times, value, num_bytes=len(answer))
    return JobOutcome(worker, job, times, error=value.error(f"{words()}, {child.name}, process {child.pid}"))
