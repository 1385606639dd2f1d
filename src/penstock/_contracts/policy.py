"""What is done about an element that fails: values, given per operator and per feed."""

from __future__ import annotations

import math
import os
from dataclasses import KW_ONLY, field
from typing import TYPE_CHECKING, Any

from penstock._contracts.arguments import path_name, real_number, whole_number
from penstock._system.failing import ReadBrokenOff
from penstock._system.lazy import dataclass
from penstock.errors import PlanError

if TYPE_CHECKING:  # the reference takes the parameters of the library's own
    from dataclasses import dataclass

Errors = type[Exception] | tuple[type[Exception], ...]
_NEVER = (StopIteration, StopAsyncIteration, ReadBrokenOff)
"""What a loop would take for its end, and what ends a worker: no policy hides them."""


def _checked_errors(errors: Any, policy: str) -> tuple[type[Exception], ...]:
    kinds = errors if isinstance(errors, tuple) else (errors,)
    if not kinds or not all(isinstance(kind, type) and issubclass(kind, Exception) for kind in kinds):
        raise PlanError(
            f"errors={errors!r} are not types of errors",
            where=f"{policy}()",
            fix="give a class that is an Exception, or a tuple of them; KeyboardInterrupt, SystemExit and GeneratorExit are none",
        )
    return kinds


def _checked_limit(limit: Any, policy: str) -> int | float | None:
    count, rate = whole_number(limit), real_number(limit)
    if limit is None or (count is not None and count >= 0):
        return count
    if count is None and rate is not None and 0.0 <= rate <= 1.0:
        return rate
    raise PlanError(
        f"limit={limit!r} is neither a count nor a rate",
        where=f"{policy}()",
        fix="give a whole number >= 0, or a share of what is read as a float in 0.0..1.0, such as 0.01",
    )


def _checked_file(file: Any, policy: str) -> str:
    """Return an absolute path: a function of the user's may change the working folder before the file is opened."""
    path = path_name(file)
    if path is None or os.path.isdir(path) or not os.path.isdir(os.path.dirname(path)):
        what = f"quarantine={file!r} is not a file in an existing folder"
        raise PlanError(what, where=f"{policy}()", fix="give the path of a file, and make its folder")
    return path


@dataclass(frozen=True, slots=True)
class Raise:
    """The feed stops at the element's error, behind everything before it: the default."""


@dataclass(frozen=True, slots=True)
class _Limited:
    """A policy that lets elements fail, up to a limit."""

    limit: int | float | None = None
    _: KW_ONLY
    errors: Errors = Exception
    quarantine: str | os.PathLike[str] | None = field(default=None, repr=False)  # changes no element: the manifest of a pack has the rest

    def __post_init__(self) -> None:
        object.__setattr__(self, "limit", _checked_limit(self.limit, type(self).__name__))
        object.__setattr__(self, "errors", _checked_errors(self.errors, type(self).__name__))
        if self.quarantine is not None:
            object.__setattr__(self, "quarantine", _checked_file(self.quarantine, type(self).__name__))

    def most(self, num_read: int, fewest: int = 100) -> float:
        """Return how many may be bad of so many that were read; for a rate `fewest` count as read, as one of the first few says little."""
        limit = math.inf if self.limit is None else self.limit
        return limit * max(num_read, fewest) if isinstance(self.limit, float) else limit


@dataclass(frozen=True, slots=True)
class Skip(_Limited):
    """Leave a failing element out.

    Where positions are known before reading, its batch is shorter, and one with nothing left is left out; beside `shard()` that is
    `TooManySkipped`. Behind a filter, flat_map or generator it is left out as by a filter: batches stay full.

    Attributes:
        limit: how many elements may be left out: a count over the whole run, also across resumes, or a rate (a float) of what was read so
            far in the pass, where the first hundred count as read. One more is `TooManySkipped`. None: any number.
        errors: types of the errors that this is for; others are raised.
        quarantine: a file that gets a line of JSON for each element that is left out, in an existing folder; see `ps.read_quarantine`.
            Several policies may name the same one.

    Raises:
        PlanError: a value is of another type, out of bounds, or no file.
    """


@dataclass(frozen=True, slots=True)
class Replace(_Limited):
    """Put the next element of the order in the place of a failing one, after the last the first; when that fails too, the next again.

    Batches keep their sizes. The element that stands in is delivered twice. For elements whose positions are known before reading;
    behind a filter, flat_map or generator use `Skip`.

    Attributes:
        limit: how many elements may be replaced, as for `Skip`.
        errors: types of the errors that this is for; others are raised.
        quarantine: a file that gets a line for each element that is replaced, as for `Skip`. A wrong value is a PlanError as there.
    """


@dataclass(frozen=True, slots=True)
class Retry:
    """Run a failing element again, with the same key and random numbers; what it reads is read again.

    Attributes:
        times: how often at most.
        backoff_s: the wait before the first retry; each further one is twice as long, up to 30 s. `close()` ends a wait at once.
        then: what is done when the last retry fails, or about errors of other types: `Raise()`, `Skip(...)` or `Replace(...)`.
        errors: types of the errors that are worth a retry.
    """

    times: int
    _: KW_ONLY
    backoff_s: float = 0.0
    then: Raise | Skip | Replace = Raise()
    errors: Errors = Exception

    def __post_init__(self) -> None:
        times, backoff_s = whole_number(self.times), real_number(self.backoff_s)
        if times is None or times < 1:
            raise PlanError(f"times={self.times!r} is not a whole number >= 1", where="Retry()", fix="give how often to try again at most")
        if backoff_s is None or not 0 <= backoff_s < math.inf:
            raise PlanError(f"backoff_s={self.backoff_s!r} is not a time", where="Retry()", fix="give a number of seconds >= 0")
        if not isinstance(self.then, (Raise, Skip, Replace)):
            raise PlanError(
                f"then={self.then!r} is not what can follow a retry", where="Retry()", fix="give Raise(), Skip(...) or Replace(...)"
            )
        object.__setattr__(self, "times", times)
        object.__setattr__(self, "backoff_s", backoff_s)
        object.__setattr__(self, "errors", _checked_errors(self.errors, "Retry"))

    def wait_s(self, retry: int) -> float:
        """Return how long to wait before retry number `retry`, from 0."""
        return float(min(self.backoff_s * 2.0 ** min(retry, 64), _LONGEST_S))


_LONGEST_S = 30.0

Policy = Raise | Retry | Skip | Replace


def checked_policy(policy: Any, where: str, *, of_feed: bool = True) -> Policy:
    """Return `policy` if it is one.

    Raises:
        PlanError: it is something else; or it has a quarantine, which only a feed writes.
    """
    if not isinstance(policy, (Raise, Retry, Skip, Replace)):
        raise PlanError(
            f"on_error={policy!r} is no policy", where=where, fix="give ps.Raise(), ps.Retry(...), ps.Skip(...) or ps.Replace(...)"
        )
    if not of_feed and getattr(final(policy), "quarantine", None) is not None:
        raise PlanError("quarantine= is only written by a feed", where=where, fix="leave it out of on_error")
    return policy


def final(policy: Policy) -> Raise | Skip | Replace:
    """Return what a policy ends in."""
    return policy.then if isinstance(policy, Retry) else policy


def decide(policy: Policy, error: BaseException, retries: int) -> Policy:
    """Return what is to be done about an error after so many retries: a Retry means one more."""
    if not isinstance(error, Exception) or isinstance(error, _NEVER):
        return Raise()
    if isinstance(policy, Retry):
        if retries < policy.times and isinstance(error, policy.errors):
            return policy
        policy = policy.then
    if isinstance(policy, Raise) or not isinstance(error, policy.errors):
        return Raise()
    return policy
