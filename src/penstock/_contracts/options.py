"""How a feed runs. Nothing in here changes what it delivers, and only `ordered` changes its order."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Literal

from penstock._contracts.policy import Policy, Raise, checked_policy
from penstock.errors import PlanError

__all__ = ["Options"]

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
        grace_period_s: how long `close()` waits for running user functions before it raises StillRunning.
    """

    num_workers: int | Literal["auto"] = "auto"
    executor: Literal["auto", "inline", "threads"] = "auto"
    memory_bytes: int | Literal["auto"] = "auto"
    grace_period_s: float = 2.0
    ordered: bool = True
    on_error: Policy = Raise()  # noqa: RUF009 - a frozen value without fields
    on_read_error: Policy | None = None
    quarantine: str | None = None

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
