"""Jobs in processes: tickets out, answers in, and what is done when a worker dies."""

from __future__ import annotations

import heapq
import os
import pickle
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from penstock._contracts.event import Times
from penstock._contracts.failing import add_note, words_of
from penstock._processes.child import Child, wait_any
from penstock._processes.pipe import pickled
from penstock._processes.sending import dumps_to_worker
from penstock.errors import PenstockError, SpecError, WorkerDied
from penstock.jobs.job_queue import JobQueue
from penstock.jobs.results import Results, Silence, words_of_job
from penstock.jobs.worker import TICKET

__all__ = ["run_in_processes"]

_Answers = list[tuple[int, bool, bytes, Times]]

_GRACE_S = 2.0
_MOST_FAILED_STARTS = 10
_AT_ONCE_BYTES = 4096
"""A pipe takes so many bytes in one piece."""


def run_in_processes(results: Results, function: bytes, num_workers: int, start: Callable[[str], Child]) -> None:
    """Do the jobs that are left; return when all is settled. Leaves no process, whatever ends it.

    Args:
        results: have the jobs, and take what became of them.
        function: its pickle.
        num_workers: how many processes.
        start: starts a process of a name that runs `penstock.jobs.worker.work`.

    Raises:
        BaseException: of the first job that fails, as the policy of `results` has it; `WorkerDied`; KeyboardInterrupt.
    """
    pool = _WorkerPool(results, num_workers, partial(_Worker, function, start))
    try:
        pool.run()
    except BaseException as error:
        pool.wind_up(error)
        raise
    pool.stop(_GRACE_S)


class _Worker:
    """A process and its tickets. `useful` tells that it has done a job."""

    def __init__(self, function: bytes, start: Callable[[str], Child], name: str) -> None:
        self.useful = False
        self._out, self._in = os.pipe()
        try:
            os.set_blocking(self._out, False)
            self.child = start(name)
        except BaseException:
            self._close()
            raise
        self._function = function

    def begin(self) -> None:
        """Send it its function; blocks until it reads one of more than 200 kB. A dead worker is found when its answers are received."""
        self.child.offer(self._function, fds=[self._out])

    def give(self, jobs: list[tuple[int, bytes]]) -> None:
        """Give tickets, then the jobs: who has a ticket reads its pipe for the job, so that a large one can be sent."""
        data = b"".join(TICKET.pack(number) for number, _ in jobs)
        for start in range(0, len(data), _AT_ONCE_BYTES):
            os.write(self._in, data[start : start + _AT_ONCE_BYTES])
        self.child.offer(jobs)  # should it have died, what it did before is received first, and then its death

    def take_back(self, most: int) -> list[int]:
        """Take the oldest tickets that the worker has not taken."""
        try:
            data = os.read(self._out, most * TICKET.size)
        except BlockingIOError:
            return []
        return [number for (number,) in TICKET.iter_unpack(data)]

    def no_more(self) -> None:
        """Have the worker end when it has done what it has taken and may still take."""
        if self._in >= 0:
            os.close(self._in)
            self._in = -1

    def stop(self, grace_s: float) -> None:
        """End the process, and close everything."""
        self.no_more()
        self.child.stop(grace_s)
        self._close()

    def _close(self) -> None:
        self.no_more()
        if self._out >= 0:
            os.close(self._out)
            self._out = -1


class _WorkerPool:
    def __init__(self, results: Results, num_workers: int, start: Callable[[str], _Worker]) -> None:
        self._results = results
        self._start = start
        self._queue = JobQueue(results.todo, num_workers)
        self._workers: list[_Worker] = []
        self._num_workers = num_workers
        self._packed: dict[int, bytes] = {}
        self._later: list[tuple[float, int]] = []  # (time, job) of those that are to be tried again
        self._silence = Silence('find its line with executor="threads", where this warning names it')
        self._failed_starts: dict[int, int] = {}  # by place; cleared by the first job that is done there

    def run(self) -> None:
        for number in range(self._num_workers):
            self._workers.append(self._start(f"worker {number}"))
        for worker in self._workers:
            worker.begin()
        while self._results.num_left:
            self._deal()
            ready = self._ready()
            if not ready:
                self._silence.look(self._at_work)
            for number in ready:
                answers = self._received(number)
                if isinstance(answers, WorkerDied):
                    self._bury(number, answers)
                    continue
                self._failed(*self._take(number, answers))

    def wind_up(self, first: BaseException) -> None:
        """Begin no job any more, give those in work a moment to end and take their results, then stop everything.

        Other errors that come meanwhile become notes of the first.
        """
        deadline_s = time.monotonic() + _GRACE_S
        self._results.wind_up()
        try:
            for number, worker in enumerate(self._workers):
                self._take_back(number)
                worker.no_more()
            working = [number for number in range(len(self._workers)) if self._queue.has(number)]
            while working and time.monotonic() < deadline_s:
                for number in self._ready(working, max(0.0, deadline_s - time.monotonic())):
                    try:
                        failed = self._take(number, self._workers[number].child.receive())
                    except PenstockError as ended:
                        add_note(first, f"penstock: also failed: {words_of(ended)}")
                        self._queue.lost(number)
                        continue
                    for job, error in failed:
                        self._results.note(first, job, error)
                working = [number for number in working if self._queue.has(number)]
        finally:
            self.stop(0.0)

    def stop(self, grace_s: float) -> None:
        """End all workers, together in `grace_s` those that go by themselves."""
        deadline_s = time.monotonic() + grace_s
        for worker in self._workers:
            worker.no_more()
        while self._workers:
            self._workers.pop().stop(max(0.0, deadline_s - time.monotonic()))

    def _deal(self) -> None:
        while self._later and self._later[0][0] <= time.monotonic():
            self._queue.again(heapq.heappop(self._later)[1])
        for number, worker in enumerate(self._workers):
            if not self._queue.has(number):
                for victim in self._queue.victims():
                    if self._take_back(*victim):
                        break
            jobs = self._queue.next_of(number, self._size_of)
            if jobs:
                worker.give([(job, self._packed.pop(job)) for job in jobs])

    def _size_of(self, job: int) -> int:
        if job not in self._packed:
            try:
                self._packed[job] = pickled(self._results.jobs[job], "a job", dumps_to_worker)
            except SpecError as error:
                words = words_of_job(job, self._results.jobs)
                raise SpecError(error.what, where=words, fix=f'{error.fix}; or use executor="threads", where nothing is sent') from error
        return len(self._packed[job])

    def _take_back(self, number: int, most: int = 1 << 13) -> bool:
        """Take jobs back that a worker has not begun; return whether there were any."""
        jobs = self._workers[number].take_back(most)
        self._queue.taken_back(number, jobs)
        return bool(jobs)

    def _ready(self, numbers: list[int] | None = None, timeout_s: float | None = None) -> list[int]:
        """Return the workers that have something to say; none when a job is to be tried again first."""
        if numbers is None:
            numbers = list(range(len(self._workers)))
            timeout_s = self._silence.left_s()
            if self._later:
                timeout_s = min(timeout_s, max(0.0, self._later[0][0] - time.monotonic()))
        children = [self._workers[number].child for number in numbers]
        ready = wait_any(children, timeout_s=timeout_s)
        return [number for number, child in zip(numbers, children, strict=True) if child in ready]

    def _received(self, number: int) -> _Answers | WorkerDied:
        """Return what a worker says, or how it died: not raised, so that what is raised then has no error behind it."""
        try:
            answers: _Answers = self._workers[number].child.receive()
        except WorkerDied as died:
            return died
        return answers

    def _take(self, number: int, answers: _Answers) -> list[tuple[int, BaseException]]:
        """Take what a worker has done; return what failed."""
        self._workers[number].useful = True
        self._failed_starts.pop(number, None)
        self._silence.ends()
        busy_ns = sum(end_ns - begin_ns for _, _, _, (begin_ns, end_ns, _) in answers)
        self._queue.reported(number, [job for job, _, _, _ in answers], busy_ns / 1e9)
        read = list(self._read(number, answers))
        self._results.finished((job, value) for job, value, error in read if error is None)
        return [(job, error) for job, _, error in read if error is not None]

    def _read(self, number: int, answers: _Answers) -> Iterator[tuple[int, Any, BaseException | None]]:
        """Give (job, result, None) or (job, None, error)."""
        child = self._workers[number].child
        for job, done, data, times in answers:
            try:
                value = self._results.ran(job, number, times, len(data), pickle.loads(data))
            except Exception as error:
                self._results.ran(job, number, times)
                add_note(error, f"penstock: reading the result of {words_of_job(job, self._results.jobs)}")
                yield job, None, error
                continue
            if done:
                yield job, value, None
            else:
                yield job, None, value.error(f"{words_of_job(job, self._results.jobs)}, {child.name}, process {child.pid}")

    def _at_work(self) -> list[str]:
        """Say of each worker at which job it is; what it has not begun is taken back, and dealt out next."""
        words = []
        for number, worker in enumerate(self._workers):
            self._take_back(number)
            job = self._queue.last_of(number)
            if job is not None:
                words.append(f"{words_of_job(job, self._results.jobs)} in {worker.child.name} (process {worker.child.pid})")
        return words

    def _failed(self, *failures: tuple[int, BaseException]) -> None:
        for wait_s, job in self._results.failed_together([(job, error, "") for job, error in failures]):
            heapq.heappush(self._later, (time.monotonic() + wait_s, job))

    def _bury(self, number: int, died: WorkerDied) -> None:
        """Blame the death on the job that the worker was at, if it was at one; raise, or start another worker.

        A worker that dies before its first job is replaced as often as the policy retries, counted over all places, and at most
        `_MOST_FAILED_STARTS` times: when every start dies, no number of them helps.
        """
        worker = self._workers[number]
        self._take_back(number)
        job = self._queue.lost(number)
        if job is not None and worker.child.began:
            self._results.ran(job, number)
            error = WorkerDied(f"{died.what}; it was at {words_of_job(job, self._results.jobs)}", where=died.where, fix=died.fix)
            self._failed((job, error))
        elif not worker.useful:
            failed_starts = sum(self._failed_starts.values())
            if failed_starts >= _MOST_FAILED_STARTS or not self._results.retries(died, failed_starts):
                if failed_starts:
                    add_note(died, f"penstock: {failed_starts + 1} workers died before their first job")
                raise died
            self._failed_starts[number] = self._failed_starts.get(number, 0) + 1
        elif not self._results.forgives(died):
            raise died
        self._results.notice("worker replaced", f"worker {number}: {died.what}")
        self._workers[number] = self._start(f"worker {number}")
        worker.stop(0.0)
        self._workers[number].begin()
