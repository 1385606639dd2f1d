"""How a feed runs. Nothing in here changes what it delivers, and only `ordered` changes its order."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Literal

from penstock._contracts.policy import Policy, Raise, checked_policy
from penstock.errors import PlanError

__all__ = ["Options"]

_ON_STALL = ("raise", "warn", "skip")
_EXECUTORS = ("auto", "inline", "threads")


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Options of `Dataset.feed`; the elements are the same for all of them, and so is their order but for `ordered=False`.

    Attributes:
        num_workers: threads of the stages without a `concurrency=` of their own; "auto" is one per available CPU, 0 means inline.
        executor: "threads", "inline" (everything in the consumer's thread) or "auto" (threads, or inline with num_workers=0).
        memory_bytes: bound on the batch buffers and queued elements; "auto" is 256 MB. At least three batches are always
            allowed, because fewer cannot overlap reading with training. Batches that the consumer keeps are its own.
        ordered: True delivers the elements in their order. False delivers whatever is finished first, so that a slow element holds up
            nobody: exactly once all the same, and exactly resumable. The passes of a `repeat` above a batch or a fold stay apart.
        on_error: what to do about an element that fails in a stage without an `on_error=` of its own, reading included: `Raise()`,
            `Retry(...)`, `Skip(...)` or `Replace(...)`. Where there is nothing to put in its place, `Replace` raises.
        on_read_error: the same for reading alone; None is `on_error`.
        quarantine: a file that gets a line of JSON for each element that was skipped or replaced; see `ps.read_quarantine`.
        record: with ordered=False, a file that the order is written to as it comes; a resumed run goes on in it.
        replay: a file that `record` wrote: the elements come again in the order of that run.
        grace_period_s: how long `close()` waits for running user functions before it raises StillRunning.
        stall_timeout_s: how long one element may run, or nothing may happen, while the consumer waits, before FeedStalled is raised;
            None never looks. Time in which the process is suspended does not count. The inline executor cannot look.
        on_stall: "raise"; or "warn": a RuntimeWarning with the same text, again after twice the time, and the wait goes on; or "skip": an
            element that stalls counts as one that failed with FeedStalled, and the failure policy skips or replaces it. Who is stuck
            in it is left to itself, and replaced.
    """

    num_workers: int | Literal["auto"] = "auto"
    executor: Literal["auto", "inline", "threads"] = "auto"
    memory_bytes: int | Literal["auto"] = "auto"
    grace_period_s: float = 2.0
    ordered: bool = True
    on_error: Policy = Raise()  # noqa: RUF009 - a frozen value without fields
    on_read_error: Policy | None = None
    quarantine: str | None = None
    record: str | os.PathLike[str] | None = None
    replay: str | os.PathLike[str] | None = None
    stall_timeout_s: float | None = 60.0
    on_stall: Literal["raise", "warn", "skip"] = "raise"

    def __post_init__(self) -> None:
        if self.num_workers != "auto" and (not _is_int(self.num_workers) or self.num_workers < 0):
            raise PlanError(
                f"num_workers={self.num_workers!r} is not a number of workers",
                where="feed options",
                fix='give "auto", 0 (inline) or a positive number',
            )
        if self.executor not in _EXECUTORS:
            raise PlanError(f"executor={self.executor!r} is not known", where="feed options", fix=f"give one of {', '.join(_EXECUTORS)}")
        if self.memory_bytes != "auto" and (not _is_int(self.memory_bytes) or self.memory_bytes <= 0):
            raise PlanError(
                f"memory_bytes={self.memory_bytes!r} is not a size", where="feed options", fix='give "auto" or a number of bytes'
            )
        if not self.grace_period_s >= 0:
            raise PlanError(
                f"grace_period_s={self.grace_period_s!r} is not a time", where="feed options", fix="give a number of seconds >= 0"
            )
        checked_policy(self.on_error, "on_error", "feed options")
        if self.on_read_error is not None:
            checked_policy(self.on_read_error, "on_read_error", "feed options")
        if self.quarantine is not None:
            object.__setattr__(self, "quarantine", _checked_file(self.quarantine))
        if self.record is not None and (self.ordered or self.replay is not None):
            raise PlanError(
                "record= has nothing to write: the order is that of the plan" if self.replay is None else "record= of a replay",
                where="feed options",
                fix="record with ordered=False, and replay without record=",
            )
        if self.stall_timeout_s is not None and not self.stall_timeout_s > 0:
            raise PlanError(
                f"stall_timeout_s={self.stall_timeout_s!r} is not a time", where="feed options", fix="give a number of seconds > 0, or None"
            )
        if self.on_stall not in _ON_STALL:
            raise PlanError(f"on_stall={self.on_stall!r} is not known", where="feed options", fix=f"give one of {', '.join(_ON_STALL)}")
        for name in ("record", "replay"):  # now: a user's function may change the working folder before the file is opened
            path = getattr(self, name)
            object.__setattr__(self, name, None if path is None else os.path.abspath(path))


def _checked_file(path: object) -> str:
    try:
        name = os.path.abspath(os.fsdecode(path))  # type: ignore[arg-type]
    except TypeError:
        raise PlanError(f"quarantine={path!r} is no path", where="feed options", fix="give the path of a file") from None
    if os.path.isdir(name) or not os.path.isdir(os.path.dirname(name)):
        raise PlanError(
            f"quarantine={path!r} is not a file in an existing folder",
            where="feed options",
            fix="give the path of a file, and make its folder",
        )
    return name


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
