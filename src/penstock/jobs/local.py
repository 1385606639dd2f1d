"""Jobs in the caller's process: in its own thread, or in several."""

from __future__ import annotations

import heapq
import threading
import time
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, NamedTuple

from penstock._contracts.event import clocks, times_since
from penstock._contracts.failing import add_note
from penstock._engine.error_policy import is_interrupt
from penstock.jobs.results import Results, Silence, words_of_job
from penstock.queues.standing import where_stand
from penstock.queues.stopping import ParkingLot

__all__ = ["run_in_threads", "run_inline"]

_GRACE_S = 2.0


class _Outcome(NamedTuple):
    """What became of one job."""

    job: int
    value: Any
    error: BaseException | None
    worker: str


def _outcome(function: Callable[[Any], Any], results: Results, job: int, number: int, worker: str) -> _Outcome:
    begin = clocks()
    try:
        value = function(results.jobs[job])
    except BaseException as error:
        results.ran(job, number, times_since(begin))
        return _Outcome(job, None, error, worker)
    return _Outcome(job, results.ran(job, number, times_since(begin), 0, value), None, worker)


def run_inline(results: Results, function: Callable[[Any], Any]) -> None:
    """Do the jobs that are left, one after the other, in the caller's thread.

    Raises:
        BaseException: of the first job that fails, as the policy of `results` has it; KeyboardInterrupt.
    """
    for job in results.todo:
        while True:
            outcome = _outcome(function, results, job, 0, "in the caller's thread")
            if outcome.error is None:
                results.finished([(job, outcome.value)])
                break
            if is_interrupt(outcome.error):
                raise outcome.error
            wait_s = results.failed(job, outcome.error, outcome.worker)
            if wait_s is None:
                break
            ParkingLot().park(lambda: True, wait_s)


def run_in_threads(results: Results, function: Callable[[Any], Any], num_workers: int) -> None:
    """Do the jobs that are left in threads; return when all is settled.

    Raises:
        BaseException: of the first job that fails, as the policy of `results` has it; KeyboardInterrupt. A thread whose job does not end
            within two seconds then is named in a note; it ends with its job.
    """
    pool = _Threads(results, function, num_workers)
    try:
        pool.run()
    except BaseException as error:
        pool.wind_up(error)
        raise
    pool.stop(None)


class _Threads:
    def __init__(self, results: Results, function: Callable[[Any], Any], num_workers: int) -> None:
        self._results = results
        self._function = function
        self._todo: SimpleQueue[int | None] = SimpleQueue()
        self._outcomes: SimpleQueue[_Outcome] = SimpleQueue()
        self._lot = ParkingLot()
        self._stopped = False
        self._later: list[tuple[float, int]] = []
        self._silence = Silence("look at that line")
        self._at: dict[str, int] = {}
        self._threads = [
            threading.Thread(target=self._work, args=(number, f"worker {number}"), name=f"penstock-jobs-{number}", daemon=True)
            for number in range(num_workers)
        ]

    def run(self) -> None:
        for job in self._results.todo:
            self._todo.put(job)
        for thread in self._threads:
            thread.start()
        while self._results.num_left:
            while self._later and self._later[0][0] <= time.monotonic():
                self._todo.put(heapq.heappop(self._later)[1])
            limit_s = self._silence.left_s()
            if self._later:
                limit_s = min(limit_s, max(0.0, self._later[0][0] - time.monotonic()))
            self._lot.park(self._outcomes.empty, limit_s)
            if self._outcomes.empty():
                self._silence.look(self._at_work)
            else:
                self._silence.ends()
            for wait_s, job in self._results.failed_together(self._taken()):
                heapq.heappush(self._later, (time.monotonic() + wait_s, job))

    def wind_up(self, first: BaseException) -> None:
        """Begin no job any more, and take results that arrive within the grace period; other errors become notes of the first."""
        self._results.wind_up()
        alive = self.stop(_GRACE_S)
        for job, error, _ in self._taken():
            self._results.note(first, job, error)
        if alive:
            add_note(first, f"penstock: still at work after {_GRACE_S:g} s: {', '.join(alive)}; a thread ends with its job")

    def stop(self, grace_s: float | None) -> list[str]:
        """Have the threads end with their job; return the names of those still alive after `grace_s`."""
        self._stopped = True
        for _ in self._threads:
            self._todo.put(None)
        deadline_s = None if grace_s is None else time.monotonic() + grace_s
        for thread in self._threads:
            if thread.ident is not None:
                thread.join(None if deadline_s is None else max(0.0, deadline_s - time.monotonic()))
        return [thread.name for thread in self._threads if thread.is_alive()]

    def _work(self, number: int, name: str) -> None:
        while (job := self._todo.get()) is not None and not self._stopped:
            self._at[name] = job
            self._outcomes.put(_outcome(self._function, self._results, job, number, name))
            del self._at[name]
            self._lot.ring()

    def _at_work(self) -> list[str]:
        """Say of each worker at which job, and where in the user's code, it is."""
        places = list(where_stand(self._threads).values())
        return [
            f"{words_of_job(job, self._results.jobs)} in {name} at {places[int(name.removeprefix('worker '))]}"
            for name, job in sorted(self._at.copy().items())
        ]

    def _taken(self) -> list[tuple[int, BaseException, str]]:
        """Take what has arrived, without waiting; return what failed."""
        arrived = [self._outcomes.get() for _ in range(self._outcomes.qsize())]
        self._results.finished((outcome.job, outcome.value) for outcome in arrived if outcome.error is None)
        return [(outcome.job, outcome.error, outcome.worker) for outcome in arrived if outcome.error is not None]
