"""How a feed runs. Nothing in here changes what elements it delivers, and only `ordered` changes their order."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from penstock._contracts.arguments import flag, path_name, real_number, whole_number
from penstock._contracts.policy import Policy, Raise, checked_policy
from penstock._contracts.process import refuse_on_windows
from penstock.errors import PlanError

__all__ = ["Options", "Processes", "RayOptions", "Threads"]

_ON_STALL = ("raise", "warn", "skip")
_OUTPUTS = ("numpy", "torch", "jax")
_EXECUTORS = ("auto", "inline", "threads", "processes", "ray")
_KILLABLE = ("processes", "ray")
_LONGEST_S = 2.0**31
"""68 years: clocks and locks of the system count little further."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RayOptions:
    """The cluster of `executor="ray"`, and what a worker takes of it.

    Attributes:
        address: of the cluster, as `ray.init` takes it; None is the one that this program is connected to, or that runs here.
        num_cpus: CPUs of the cluster that a worker reserves, as Ray counts them.
        resources: other resources that it reserves, by name, such as {"decoder": 1}.
        runtime_env: the environment of the workers, as Ray takes it, such as {"working_dir": "."}.
    """

    address: str | None = None
    num_cpus: float = 1
    resources: Mapping[str, float] = field(default_factory=dict)
    runtime_env: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        amounts = {"num_cpus": self.num_cpus, **self.resources}
        for name, amount in amounts.items():
            number = real_number(amount)
            if number is None or number < 0 or (number > 1 and number % 1):
                raise PlanError(f"{name}={amount!r} is no amount", where="RayOptions", fix="give a whole number, or a part of 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Verified:
    """What `Threads` and `Processes` have in common."""

    verify: float = 0.0

    def __post_init__(self) -> None:
        share = real_number(self.verify)
        if share is None or not 0 <= share <= 1:
            raise PlanError(f"verify={self.verify!r} is no share", where=type(self).__name__, fix="give a number from 0 to 1, such as 0.01")


@dataclass(frozen=True, slots=True, kw_only=True)
class Threads(_Verified):
    """The executor "threads": your functions are called several at a time, and must be thread-safe.

    Attributes:
        verify: the share of elements that are computed a second time, while no other function of yours runs in the feed, and compared; the
            same elements in each run. Where the two differ, the feed raises `errors.NotRepeatable`, which names the function, the element
            and the field. The other threads wait
            meanwhile. Async functions are left out, and so are the elements of a generator themselves.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Processes(_Verified):
    """The executor "processes": each worker process has a copy of your functions.

    Attributes:
        verify: as that of `Threads`; the second time is in the same process, which makes one call at a time.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Options of `Dataset.feed`; the elements are the same for all of them, and so is their order but for `ordered=False`.

    Attributes:
        num_workers: threads, processes or actors of the stages without a `concurrency=` of their own; "auto" is one per available CPU, of
            the cluster with executor="ray"; 0 means inline.
        executor: "threads", where your functions are called several at a time; "processes"; "ray", for a cluster; "inline" (everything in
            the consumer's thread); or "auto", which follows `num_workers`: a number runs your functions in so many worker processes, 0
            inline, and "auto" in one thread of the program, one call at a time, beside the shared workers. `ps.Threads(verify=0.01)` and
            `ps.Processes(...)` stand for "threads" and "processes" with options of their own.
        ray_options: with executor="ray", the cluster and what a worker takes of it.
        memory_bytes: bound on what the feed holds: elements that are read or computed ahead, finished batches, and the one delivered
            last; "auto" is 256 MB. Where the batch delivered, the one being built and what a stateful operator has to hold (buckets, packs,
            a shuffle buffer, windows) need more, it is these and nothing else; then batches are made one at a time, and a Notice says so.
            To this come at most two of the largest elements for each worker, or call in flight. Arrays, bytes and texts are counted, other
            objects as 8 bytes, and a view as what it shows. Batches that the consumer keeps are its own.
        ordered: True delivers the elements in their order. False delivers whatever is finished first, so that a slow element holds up
            none: exactly once all the same, and exactly resumable. The passes of a `repeat` above a batch or a stateful operator stay
            apart.
        on_error: what to do about an element that fails in a stage without an `on_error=` of its own, reading included: `Raise()`,
            `Retry(...)`, `Skip(...)` or `Replace(...)`. Where there is nothing to put in its place, `Replace` raises.
        on_read_error: the same for reading alone; None is `on_error`.
        quarantine: a file that gets a line of JSON for each element that was skipped or replaced; see `ps.read_quarantine`.
        record: with ordered=False, a file that the order is written to as it comes; a resumed run goes on in it.
        replay: a file that `record` wrote: the elements come again in the order of that run.
        grace_period_s: how long `close()` waits for running user functions before it raises StillRunning.
        stall_timeout_s: how long one element may run, or nothing may happen, while the consumer waits, before FeedStalled is raised;
            None never looks, nor does infinity. Time in which the process is suspended does not count. The inline executor cannot look.
        on_stall: "raise"; "warn": a RuntimeWarning with the same text, again after twice the time, and the wait goes on; or, with worker
            processes, "skip": the process is killed, and the element counts as one that failed with FeedStalled and is not tried again.
        output: what batches are given as: "numpy" arrays; "torch" tensors, on the CPU over the same memory; "jax" arrays, copied. Texts and
            objects stay as they are. `ds[i]` and `ds.spec()` are NumPy's.
        device: with output="torch" or "jax", the device that batches are copied to, ahead of the loop. None leaves tensors on the CPU, and
            JAX arrays where JAX puts them.
        pin_memory: with output="torch", whether batches lie in memory that a device reads by itself, those of worker processes too;
            "auto" does so for a CUDA device.
        depth: how many batches are copied ahead of the one that the loop takes, beyond memory_bytes. Not on a CPU with "torch".
        device_transform: called with each batch of tensors or JAX arrays when the loop takes it, for example to make float32 of uint8 on
            the device; the loop gets what it returns.
        sharding: with output="jax", the `jax.sharding.Sharding` of each array, or a dict of them by field; each process gives its part.
    """

    num_workers: int | Literal["auto"] = "auto"
    executor: Literal["auto", "inline", "threads", "processes", "ray"] | Threads | Processes = "auto"
    ray_options: RayOptions = RayOptions()
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
    output: Literal["numpy", "torch", "jax"] = "numpy"
    device: Any = None
    pin_memory: bool | Literal["auto"] = "auto"
    depth: int = 2
    device_transform: Callable[[Any], Any] | None = None
    sharding: Any = None

    def __post_init__(self) -> None:
        workers = _count(self.num_workers, 0, "num_workers", "is not a number of workers", 'give "auto", 0 (inline) or a positive number')
        size = _count(self.memory_bytes, 1, "memory_bytes", "is not a size", 'give "auto" or a number of bytes')
        grace_s = real_number(self.grace_period_s)
        if grace_s is None or not 0 <= grace_s <= _LONGEST_S:
            raise _refused("grace_period_s", self.grace_period_s, "is not a time", "give a number of seconds >= 0, at most 2**31")
        stall_s = None if self.stall_timeout_s is None else real_number(self.stall_timeout_s)
        if self.stall_timeout_s is not None and (stall_s is None or not (0 < stall_s <= _LONGEST_S or stall_s == math.inf)):
            raise _refused("stall_timeout_s", self.stall_timeout_s, "is not a time", "give a number of seconds > 0, or None; at most 2**31")
        ordered = flag(self.ordered)
        if ordered is None:
            raise _refused("ordered", self.ordered, "is neither True nor False", "give True or False")
        for name, given, known in (
            ("executor", self.executor_name, _EXECUTORS),
            ("on_stall", self.on_stall, _ON_STALL),
            ("output", self.output, _OUTPUTS),
        ):
            if given not in known:
                raise _refused(name, given, "is not known", f"give one of {', '.join(known)}")
        self._check_executor_and_output()
        checked_policy(self.on_error, "on_error", "feed options")
        if self.on_read_error is not None:
            checked_policy(self.on_read_error, "on_read_error", "feed options")
        numbers = {"num_workers": workers, "memory_bytes": size, "grace_period_s": grace_s, "stall_timeout_s": stall_s, "ordered": ordered}
        for name, value in {**numbers, **self._paths(ordered)}.items():
            object.__setattr__(self, name, value)

    @property
    def executor_name(self) -> str:
        """The executor by its short form."""
        return type(self.executor).__name__.lower() if isinstance(self.executor, _Verified) else self.executor

    @property
    def verify(self) -> float:
        """The share of elements that are computed a second time."""
        return float(self.executor.verify) if isinstance(self.executor, _Verified) else 0.0

    def _check_executor_and_output(self) -> None:
        if self.on_stall == "skip" and self.executor_name not in _KILLABLE:
            refuse_on_windows('on_stall="skip"', 'give "raise" or "warn"')
            words = "needs workers that can be killed, and a thread cannot be"
            raise _refused("on_stall", self.on_stall, words, 'give executor="processes" too, or "raise" or "warn"')
        if whole_number(self.depth) is None or self.depth < 1:
            raise _refused("depth", self.depth, "is not a number of batches", "give a whole number >= 1")
        for name, is_known, words, fix in (
            ("ray_options", isinstance(self.ray_options, RayOptions), "is not known", "give ps.RayOptions(num_cpus=..., resources={...})"),
            ("pin_memory", self.pin_memory == "auto" or flag(self.pin_memory) is not None, "is not known", 'give "auto", True or False'),
            (
                "device_transform",
                self.device_transform is None or callable(self.device_transform),
                "is no function",
                "give a function of a batch that returns one",
            ),
        ):
            if not is_known:
                raise _refused(name, getattr(self, name), words, fix)
        for name, value, outputs in (
            ("device", self.device, ("torch", "jax")),
            ("device_transform", self.device_transform, ("torch", "jax")),
            ("pin_memory", self.pin_memory is True or None, ("torch",)),
            ("sharding", self.sharding, ("jax",)),
        ):
            if value is not None and self.output not in outputs:
                raise _refused(name, getattr(self, name), f"has no meaning with output={self.output!r}", f"give output={outputs[0]!r} too")
        if self.device is not None and self.sharding is not None:
            raise _refused("sharding", self.sharding, "names the devices already", "leave device= out")

    def _paths(self, ordered: bool) -> dict[str, str | None]:
        """Return the options that are files, as absolute paths: a user's function may change the working folder before one is opened."""
        paths: dict[str, str | None] = {}
        for option in ("quarantine", "record", "replay"):
            given = getattr(self, option)
            paths[option] = None if given is None else path_name(given)
            if given is not None and paths[option] is None:
                raise _refused(option, given, "is no path", "give the path of a file")
        path = paths["quarantine"]
        if path is not None and (os.path.isdir(path) or not os.path.isdir(os.path.dirname(path))):
            words = "is not a file in an existing folder"
            raise _refused("quarantine", self.quarantine, words, "give the path of a file, and make its folder")
        if self.record is not None and (ordered or self.replay is not None):
            raise PlanError(
                "record= has nothing to write: the order is that of the plan" if self.replay is None else "record= of a replay",
                where="feed options",
                fix="record with ordered=False, and replay without record=",
            )
        return paths


def _count(value: Any, least: int, name: str, words: str, fix: str) -> int | Literal["auto"]:
    number = whole_number(value)
    if isinstance(value, str) and value == "auto":
        return "auto"
    if number == -1:
        fix += '; -1, the AUTOTUNE of tf.data, is "auto" here'
    if number is None or number < least:
        raise _refused(name, value, words, fix)
    return number


def _refused(name: str, value: object, words: str, fix: str) -> PlanError:
    return PlanError(f"{name}={value!r} {words}", where="feed options", fix=fix)
