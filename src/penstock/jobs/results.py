"""What became of each job, and what is done about one that fails. Used from the caller's thread."""

from __future__ import annotations

import reprlib
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from penstock._contracts.element import bytes_of
from penstock._contracts.event import BlockDone, ElementLost, ElementRetried, Listener, Times, noted
from penstock._contracts.policy import Policy, Retry, Skip, decide
from penstock._system.failing import add_note, attempt, words_of
from penstock._system.lazy import dataclass
from penstock.errors import StopRaised, TooManySkipped, WorkerDied
from penstock.jobs.donelist import DoneList


@dataclass(frozen=True, slots=True)
class Skipped:
    """Stands in the place of the result of a job that was left out by `on_error=ps.Skip(...)`.

    Attributes:
        index: of the job.
        error: what it raised last.
    """

    index: int
    error: BaseException


class JobOutcome(NamedTuple):
    """What became of one run of a job.

    Attributes:
        worker: its number.
        job: the number of the job; None when the worker failed at no job.
        times: when it ran; None when it did not, or its worker died of it.
        value: what the function returned.
        error: what it raised, with a note that says where, or `WorkerDied`.
        num_bytes: of the result as it was sent; 0 where it was not.
    """

    worker: int
    job: int | None = None
    times: Times | None = None
    value: Any = None
    error: BaseException | None = None
    num_bytes: int = 0

    @property
    def death(self) -> WorkerDied | None:
        """How the worker ended, if it did."""
        return self.error if self.times is None and isinstance(self.error, WorkerDied) else None


def words_of_job(index: int, jobs: Sequence[Any]) -> str:
    """Say which job it is: its number and a short repr."""
    text = attempt(_SHORT.repr, jobs[index]) or f"a {type(jobs[index]).__name__}"
    return f"job {index} of {len(jobs)} ({' '.join(text.split())})"


_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = 100


class Results:
    """The results so far.

    Attributes:
        jobs: all of them.
        values: one place for each job: its result, or `Skipped`.
        todo: numbers of those that no earlier run has done.
        num_left: how many are neither done nor left out.
        num_skipped: how many were left out.
    """

    def __init__(
        self,
        jobs: Sequence[Any],
        policy: Policy,
        done: DoneList | None = None,
        tell: Callable[[Results], None] | None = None,
        listener: Listener | None = None,
        name: str = "",
    ) -> None:
        """Begin with what the done-list has.

        Args:
            jobs: all of them.
            policy: what is done about one that fails.
            done: the list of what was done before.
            tell: called whenever a job is settled.
            listener: is given an event for each run of a job, each retry and each failure.
            name: of the function, for these.
        """
        self.jobs = jobs
        self._policy, self._done, self._tell, self._listener, self._name = policy, done, tell, listener, name
        self._tries: dict[int, int] = {}
        earlier = {} if done is None else done.done
        self.values: list[Any] = [earlier.get(index) for index in range(len(jobs))]
        self.todo = [index for index in range(len(jobs)) if index not in earlier]
        self.num_left = len(self.todo)
        self.num_skipped = 0

    def take(self, job: int, outcome: JobOutcome) -> float | None:
        """Take what became of a job.

        Returns:
            How many seconds to wait before it is tried again, or None: it is settled.

        Raises:
            BaseException: the error, or `TooManySkipped`.
        """
        value = self._announce_run(job, outcome)
        if outcome.error is None:
            self._finish(job, value)
        else:
            wait_s = self._failed(job, outcome, outcome.error)
            if wait_s is not None:
                return wait_s
        if self._tell is not None:
            self._tell(self)
        return None

    def take_late(self, job: int, outcome: JobOutcome, first: BaseException) -> None:
        """Take what became of a job that was in work when the first error ended the call: another error becomes a note of the first."""
        value = self._announce_run(job, outcome)
        if outcome.error is None:
            self._finish(job, value)
            return
        self._announce_lost("raised", job, outcome, outcome.error)
        add_note(first, f"penstock: also failed: {words_of_job(job, self.jobs)}: {words_of(outcome.error)}")

    def retries(self, error: BaseException, tries: int) -> bool:
        """Return whether the policy tries again after an error that no job is to blame for, when it has `tries` times."""
        return isinstance(decide(self._policy, error, tries), Retry)

    def notice(self, kind: str, text: str) -> None:
        """Announce something that is of no job."""
        if self._listener is not None:
            self._listener(noted(kind, text))

    def _finish(self, job: int, value: Any) -> None:
        if self._done is not None:
            self._done.add(job, value)  # first, so that what was reported stays done
        self.values[job] = value
        self.num_left -= 1

    def _failed(self, job: int, outcome: JobOutcome, error: BaseException) -> float | None:
        tries = self._tries.get(job, 0)
        raised = error.__cause__ if isinstance(error, StopRaised) and error.__cause__ is not None else error
        policy = decide(self._policy, raised, tries)  # no policy hides what would pass for an end
        if isinstance(policy, Retry):
            self._tries[job] = tries + 1
            wait_s = policy.wait_s(tries)
            if self._listener is not None:
                self._listener(ElementRetried(_end_ns(outcome), self._name, outcome.worker, (0, job, 0), tries + 1, wait_s, raised))
            return wait_s
        if tries:
            add_note(error, f"penstock: tried {tries + 1} times")
        self._announce_lost("skipped" if isinstance(policy, Skip) else "raised", job, outcome, error)
        if not isinstance(policy, Skip):
            raise error
        self.num_skipped += 1
        self._check_limit(policy, job, error)
        self.values[job] = Skipped(job, error)
        self.num_left -= 1
        return None

    def _check_limit(self, policy: Skip, job: int, error: BaseException) -> None:
        limit, read = policy.limit, len(self.jobs) - self.num_left + 1
        if self.num_skipped > policy.most(read):
            of = "" if isinstance(limit, int) else f" of {read}"
            raise TooManySkipped(
                f"{self.num_skipped}{of} jobs were skipped, the limit is {limit}",
                where=f"Skip(limit={limit!r}) of parallel_jobs; the last one: {words_of_job(job, self.jobs)}",
                fix="look at the errors, mend the jobs or the function, or raise the limit",
            ) from error

    def _announce_run(self, job: int, outcome: JobOutcome) -> Any:
        """Announce a run, and return its result."""
        if self._listener is not None and outcome.times is not None:
            num_bytes = outcome.num_bytes or attempt(bytes_of, outcome.value) or 0
            self._listener(BlockDone(self._name, outcome.worker, *outcome.times, 1, chunk=(0, job), num_bytes=num_bytes))
        return outcome.value

    def _announce_lost(self, action: str, job: int, outcome: JobOutcome, error: BaseException) -> None:
        if self._listener is not None:
            words, retries = words_of_job(job, self.jobs), self._tries.get(job, 0)
            key = ((0, job, 0),)
            self._listener(ElementLost(_end_ns(outcome), action, self._name, outcome.worker, words, key, None, error, retries))


def _end_ns(outcome: JobOutcome) -> int:
    return outcome.times[1] if outcome.times else time.perf_counter_ns()
