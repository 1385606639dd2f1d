"""What became of each job, and what is done about one that fails. Used from the caller's thread, but for `Results.ran`."""

from __future__ import annotations

import reprlib
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

from penstock._contracts.element import bytes_of
from penstock._contracts.event import BlockDone, ElementLost, ElementRetried, Listener, Notice, Times
from penstock._contracts.failing import add_note, attempt, words_of
from penstock._contracts.policy import Policy, Raise, Retry, Skip, decide
from penstock._processes.failure import fit_to_raise
from penstock.errors import StopRaised, TooManySkipped
from penstock.jobs.donelist import DoneList
from penstock.queues.diagnosis import PATIENCE_S
from penstock.queues.standing import call_and_place, level_of_caller

__all__ = ["Reported", "Results", "Silence", "Skipped", "words_of_job"]

_PATIENCE_S = PATIENCE_S

_MOST_NAMED = 4
_SIGNALS_S = 0.5

_FEWEST = 100
"""A limit that is a share counts at least so many jobs as read, as that of a feed."""


@dataclass(frozen=True, slots=True)
class Skipped:
    """Stands in the place of the result of a job that was left out by `on_error=ps.Skip(...)`.

    Attributes:
        index: of the job.
        error: what it raised last.
    """

    index: int
    error: BaseException


class Reported(NamedTuple):
    """What a function may return in place of its result: what is announced of the run stands beside it.

    Attributes:
        result: the result.
        about: fields of the `BlockDone` of this run.
        events: what happened in it; each has a `Failure` in the place of its error, for the way from another process.
    """

    result: Any
    about: Mapping[str, Any]
    events: Sequence[Any]


def words_of_job(index: int, jobs: Sequence[Any]) -> str:
    """Say which job it is: its number and a short repr."""
    text = f"a {type(jobs[index]).__name__}"
    with suppress(Exception):  # whatever a user's class does here, this is for the text of another error
        text = " ".join(_SHORT.repr(jobs[index]).split())
    return f"job {index} of {len(jobs)} ({text})"


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
        done: DoneList | None,
        tell: Callable[[Results, int], None],
        listener: Listener | None = None,
        name: str = "",
    ) -> None:
        """Begin with what the done-list has.

        Args:
            jobs: all of them.
            policy: what is done about one that fails.
            done: the list of what was done before.
            tell: `tell(results, count)` is called whenever `count` more jobs are settled.
            listener: is given an event for each run of a job, each retry and each failure.
            name: of the function, for these.
        """
        self.jobs = jobs
        self._listener, self._name = listener, name
        self._ran: dict[int, tuple[int, int]] = {}  # (worker, when it ended) of jobs that are not settled; empty without a listener
        self.values: list[Any] = [None] * len(jobs)
        self._policy = policy
        self._done = done
        self._tell = tell
        self._tries: dict[int, int] = {}
        earlier = {} if done is None else done.done
        for index, result in earlier.items():
            self.values[index] = result
        self.todo = [index for index in range(len(jobs)) if index not in earlier]
        self.num_left = len(self.todo)
        self.num_skipped = 0

    def finished(self, items: Iterable[tuple[int, Any]]) -> None:
        """Take results, given as (index, result): into the done-list first, so that what was reported stays done."""
        new = list(items)
        if not new:
            return
        for index, _ in new:
            self._ran.pop(index, None)
        if self._done is not None:
            self._done.add(new)
        for index, result in new:
            self.values[index] = result
        self._settle(len(new))

    def ran(self, index: int, worker: int, times: Times | None = None, num_bytes: int = 0, result: Any = None) -> Any:
        """Announce that a worker has run a job; return its result.

        Args:
            index: of the job.
            worker: its number.
            times: when; None when it died of it.
            num_bytes: of the result as it was sent; 0 where it was not.
            result: what the function returned, or None when it failed.
        """
        about: Mapping[str, Any] = {}
        events: Sequence[Any] = ()
        if isinstance(result, Reported):
            result, about, events = result
        if self._listener is not None:
            self._ran[index] = worker, times[1] if times else time.perf_counter_ns()
            for event in events:
                self._listener(event._replace(worker=worker, error=event.error.error(f"job {index}")))
            if times is not None:
                num_bytes = num_bytes or attempt(bytes_of, result) or 0
                done = BlockDone(self._name, worker, *times, 1, chunk=(0, index), num_bytes=num_bytes)
                self._listener(done._replace(**about))
        return result

    def notice(self, kind: str, text: str) -> None:
        """Announce something that is of no job."""
        if self._listener is not None:
            self._listener(Notice(time.perf_counter_ns(), kind, text))

    def failed(self, index: int, error: BaseException, worker: str = "") -> float | None:
        """Take a failure.

        Args:
            index: of the job.
            error: what it raised, or `WorkerDied`.
            worker: its name, for words; empty when the error has come from a process, and says where it was raised.

        Returns:
            How many seconds to wait before it is tried again, or None: it is left out.

        Raises:
            BaseException: the error, with a note that names the job, or `TooManySkipped`.
        """
        words = words_of_job(index, self.jobs)
        tries = self._tries.get(index, 0)
        raised = error.__cause__ if isinstance(error, StopRaised) and error.__cause__ is not None else error
        policy = decide(self._policy, raised, tries)  # no policy hides what would pass for an end
        if isinstance(policy, Retry):
            self._tries[index] = tries + 1
            wait_s = policy.wait_s(tries)
            if self._listener is not None:
                at, end_ns = self._ran[index]
                self._listener(ElementRetried(end_ns, self._name, at, (0, index, 0), tries + 1, wait_s, raised))
            return wait_s
        if worker:
            error = fit_to_raise(error, f"{words}, {worker}")
        if tries:
            add_note(error, f"penstock: tried {tries + 1} times")
        self._announce_lost("skipped" if isinstance(policy, Skip) else "raised", index, error)
        if not isinstance(policy, Skip):
            raise error
        self.num_skipped += 1
        self._check_limit(policy, error, words)
        self.values[index] = Skipped(index, error)
        self._settle(1)
        return None

    def forgives(self, error: BaseException) -> bool:
        """Tell whether the policy does anything about an error but raise it."""
        return not isinstance(decide(self._policy, error, 0), Raise)

    def retries(self, error: BaseException, tries: int) -> bool:
        """Return whether the policy tries again after an error that no job is to blame for, when it has `tries` times."""
        return isinstance(decide(self._policy, error, tries), Retry)

    def failed_together(self, failures: Sequence[tuple[int, BaseException, str]]) -> list[tuple[float, int]]:
        """Take failures that arrived together, as `failed` does; return (wait, job) of those to try again.

        Raises:
            BaseException: the first that is to be raised; those behind it become its notes.
        """
        out = []
        for place, failure in enumerate(failures):
            try:
                wait_s = self.failed(*failure)
            except BaseException as first:
                for job, error, _ in failures[place + 1 :]:
                    self.note(first, job, error)
                raise
            if wait_s is not None:
                out.append((wait_s, failure[0]))
        return out

    def note(self, first: BaseException, job: int, error: BaseException) -> None:
        """Mention in the error that is raised that another job has failed, too."""
        self._announce_lost("raised", job, error)
        add_note(first, f"penstock: also failed: {words_of_job(job, self.jobs)}: {words_of(error)}")

    def wind_up(self) -> None:
        """Report no progress any more: results from here on only complete the done-list."""
        self._tell = _nothing

    def _announce_lost(self, action: str, index: int, error: BaseException) -> None:
        if self._listener is not None:
            (at, end_ns), retries = self._ran.pop(index), self._tries.get(index, 0)
            words = words_of_job(index, self.jobs)
            self._listener(ElementLost(end_ns, action, self._name, at, words, ((0, index, 0),), None, error, retries))

    def _check_limit(self, policy: Skip, error: BaseException, words: str) -> None:
        limit, read = policy.limit, len(self.jobs) - self.num_left + 1
        most = float("inf") if limit is None else limit if isinstance(limit, int) else limit * max(read, _FEWEST)
        if self.num_skipped > most:
            of = "" if isinstance(limit, int) else f" of {read}"
            raise TooManySkipped(
                f"{self.num_skipped}{of} jobs were skipped, the limit is {limit}",
                where=f"Skip(limit={limit!r}) of parallel_jobs; the last one: {words}",
                fix="look at the errors, mend the jobs or the function, or raise the limit",
            ) from error

    def _settle(self, count: int) -> None:
        self.num_left -= count
        self._tell(self, count)


class Silence:
    """Warns when no job has ended for long, and again after twice as long. Used from the caller's thread."""

    def __init__(self, remedy: str) -> None:
        self._remedy = remedy
        self.ends()

    def ends(self) -> None:
        """Begin again: jobs have ended."""
        self._begun_s = time.monotonic()
        self._limit_s = _PATIENCE_S

    def left_s(self) -> float:
        """Return how long to wait until `look` has something to say; a signal that comes right before a wait is served after it."""
        return min(_SIGNALS_S, max(0.0, self._begun_s + self._limit_s - time.monotonic()))

    def look(self, at_work: Callable[[], list[str]]) -> None:
        """Warn if it is time to; `at_work()` says which jobs are in work, and where."""
        if self.left_s():
            return
        lasted_s = time.monotonic() - self._begun_s
        self._limit_s = 2 * lasted_s
        words = at_work()
        more = f" and {len(words) - _MOST_NAMED} more" if len(words) > _MOST_NAMED else ""
        call, place = call_and_place()
        warnings.warn(
            f"no job of {call}() at {place} has ended for {lasted_s:.0f} s; in work: {'; '.join(words[:_MOST_NAMED])}{more}: "
            f"give what the job waits for a time limit, or {self._remedy}",
            RuntimeWarning,
            stacklevel=level_of_caller(),
        )


def _nothing(results: Results, count: int) -> None:
    """Report nothing."""
