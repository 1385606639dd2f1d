"""How a feed runs. Nothing in here changes what elements it delivers, and only `ordered` changes their order."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

from penstock._contracts.arguments import flag, real_number, whole_number
from penstock._contracts.policy import Policy, Raise, checked_policy
from penstock._system.lazy import dataclass
from penstock._system.process import refuse_on_windows
from penstock.errors import PlanError

if TYPE_CHECKING:  # the reference takes the parameters of the library's own
    from dataclasses import dataclass

_ON_STALL = ("raise", "warn", "skip")
_LONGEST_S = 2.0**31
"""68 years: clocks and locks of the system count little further."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ray:
    """The executor "ray": workers are actors of a cluster.

    Attributes:
        address: of the cluster, as `ray.init` takes it; None is the one that this program is connected to, or that runs here.
        num_cpus: CPUs of the cluster that a worker reserves, as Ray counts them.
        resources: other resources that it reserves, by name, such as {"decoder": 1}.
        runtime_env: the environment of the workers, as Ray takes it, such as {"working_dir": "."}.

    Raises:
        PlanError: an amount is neither a whole number >= 0 nor a part of 1, or something is of another type.
    """

    address: str | None = None
    num_cpus: float = 1
    resources: Mapping[str, float] = field(default_factory=dict)
    runtime_env: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        for name, kind, words in (("address", str, "a text"), ("resources", Mapping, "a dict"), ("runtime_env", Mapping, "a dict")):
            value = getattr(self, name)
            if not isinstance(value, kind) and (value is not None or name == "resources"):
                raise _refused(name, value, "is of another type", f"give {words}", where="Ray")
        for name, amount in {"num_cpus": self.num_cpus, **self.resources}.items():
            number = real_number(amount)
            if number is None or number < 0 or (number > 1 and number % 1):
                raise _refused(name, amount, "is no amount", "give a whole number, or a part of 1", where="Ray")


@dataclass(frozen=True, slots=True, kw_only=True)
class _OfThisMachine:
    """What `Threads` and `Processes` have in common."""

    verify: float = 0.0
    isolate: bool = False

    def __post_init__(self) -> None:
        share, isolate = real_number(self.verify), flag(self.isolate)
        if share is None or not 0 <= share <= 1:
            raise _refused("verify", self.verify, "is no share", "give a number from 0 to 1, such as 0.01", where=type(self).__name__)
        if isolate is None:
            raise _refused("isolate", self.isolate, "is neither True nor False", "give True or False", where=type(self).__name__)
        object.__setattr__(self, "isolate", isolate)


@dataclass(frozen=True, slots=True, kw_only=True)
class Threads(_OfThisMachine):
    """The executor "threads": your functions are called several at a time, and must be thread-safe.

    Attributes:
        verify: the share of elements, from 0 to 1, that are computed a second time, while no other function of yours runs in the feed, and
            compared; the same elements in each run. Where the two differ, the feed raises `errors.NotRepeatable`, which names the function,
            the element and the field. Async functions are left out, and so are the elements of a generator themselves.
        isolate: whether the feed runs in a process of its own, the engine process, and its threads there: the training loop has its
            interpreter lock for itself, and a crash of native code ends no program. Your functions have a copy of what they hold there, as
            with `Processes`. It changes nothing where a part of the plan has threads of its own: a generator, an iterator, `concurrency=`.

    Raises:
        PlanError: `verify` is no share, or `isolate` is neither True nor False.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Processes(_OfThisMachine):
    """The executor "processes": each worker process has a copy of your functions.

    Attributes:
        verify: as that of `Threads`; the second time is in the same process, which makes one call at a time.
        isolate: as that of `Threads`: what deals elements to the worker processes, and collects them, runs in a process of its own. The
            program does that where something cannot be sent there.

    Raises:
        PlanError: `verify` is no share, or `isolate` is neither True nor False.
    """

    isolate: bool = True


class OwnExecutor(Protocol):
    """An executor of your own, as a value. What an engine has is no public interface: see "Add an executor" in the documentation."""

    def executor(self, engine: Any) -> Any:
        """Return what runs the tasks of an engine: an object with `start`, `wait` and `join`. Called once for each epoch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Framework:
    """What `Torch` and `Jax` have in common."""

    device: Any = None
    depth: int = 2
    transform: Callable[[Any], Any] | None = None

    def __post_init__(self) -> None:
        where = type(self).__name__
        depth = whole_number(self.depth)
        if depth is None or depth < 1:
            raise _refused("depth", self.depth, "is not a number of batches", "give a whole number >= 1", where=where)
        if self.transform is not None and not callable(self.transform):
            raise _refused("transform", self.transform, "is no function", "give a function of a batch that returns one", where=where)
        object.__setattr__(self, "depth", depth)


@dataclass(frozen=True, slots=True, kw_only=True)
class Torch(_Framework):
    """The output "torch": tensors of the shapes and dtypes of the arrays, on the CPU over the same memory. Texts and objects stay.

    Attributes:
        device: that batches are copied to, ahead of the loop, as `torch.device` takes it; None leaves them on the CPU.
        pin_memory: whether batches lie in memory that a device reads by itself, those of worker processes too; "auto": for a CUDA device.
        depth: how many batches are copied ahead of the one that the loop takes, beyond memory_bytes, at least 1. Not on a CPU.
        transform: called with each batch of tensors when the loop takes it, such as to make float32 of uint8; the loop gets the result.

    Raises:
        PlanError: a value is of another type, or out of bounds.
    """

    pin_memory: bool | Literal["auto"] = "auto"

    def __post_init__(self) -> None:
        _Framework.__post_init__(self)
        pins = flag(self.pin_memory)
        if pins is None and not _is_one_of(self.pin_memory, ("auto",)):
            raise _refused("pin_memory", self.pin_memory, "is not known", 'give "auto", True or False', where="Torch")
        object.__setattr__(self, "pin_memory", "auto" if pins is None else pins)


@dataclass(frozen=True, slots=True, kw_only=True)
class Jax(_Framework):
    """The output "jax": JAX arrays of the shapes of the arrays, copied; dtypes are as JAX has them. Texts and objects stay.

    Attributes:
        device: that batches are copied to, ahead of the loop: a device of JAX, or a platform such as "gpu". None is where JAX puts arrays.
        depth: how many batches are copied ahead of the one that the loop takes, beyond memory_bytes, at least 1.
        transform: called with each batch of JAX arrays when the loop takes it; the loop gets the result.
        sharding: the `jax.sharding.Sharding` of each array, or a dict of them by field; each process gives its part.

    Raises:
        PlanError: a value is of another type or out of bounds, or device= and sharding= are both given.
    """

    sharding: Any = None

    def __post_init__(self) -> None:
        _Framework.__post_init__(self)
        if self.device is not None and self.sharding is not None:
            raise _refused("sharding", self.sharding, "names the devices already", "leave device= out", where="Jax")


ExecutorOption: TypeAlias = Literal["auto", "inline", "threads", "processes", "ray"] | Threads | Processes | Ray | OwnExecutor
OutputOption: TypeAlias = Literal["numpy", "torch", "jax"] | Torch | Jax
_EXECUTORS = {"auto": None, "inline": None, "threads": Threads, "processes": Processes, "ray": Ray}
_OUTPUTS = {"numpy": None, "torch": Torch, "jax": Jax}
"""What a short form stands for; None where it has no options."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Options of `Dataset.feed`; the elements are the same for all of them, and so is their order but for `ordered=False`.

    Attributes:
        num_workers: threads, processes or actors of the stages without a `concurrency=` of their own; "auto" is one per available CPU, of
            the cluster with executor="ray"; 0 means inline.
        executor: "threads", where your functions are called several at a time; "processes"; "ray", for a cluster; "inline" (everything in
            the consumer's thread); or "auto", which follows `num_workers`: a number runs your functions in so many worker processes, 0
            inline, and "auto" in one thread of the program, one call at a time, beside the shared workers. "threads", "processes" and
            "ray" are short for `ps.Threads()`, `ps.Processes()` and `ps.Ray()`. One of your own is an object with `executor(engine)`.
        memory_bytes: bound on what the feed holds: elements that are read or computed ahead, finished batches, and the one delivered
            last; "auto" is 256 MB. Where the batch delivered, the one being built and what a stateful operator has to hold (buckets, packs,
            a shuffle buffer, windows) need more, it is these and nothing else; then batches are made one at a time, and a Notice says so.
            To this come at most two of the largest elements for each worker, or call in flight. Arrays, bytes and texts are counted, other
            objects as 8 bytes, and a view as what it shows. Batches that the consumer keeps are its own.
        ordered: True delivers in order. False delivers the same batches, or elements where nothing makes batches, as they are finished:
            each once, and exactly resumable. Where a stateful operator counts elements in their order it changes nothing, and a notice
            names `as_completed()`.
        on_error: what to do about an element that fails in a stage without an `on_error=` of its own, reading included: `Raise()`,
            `Retry(...)`, `Skip(...)` or `Replace(...)`. `Skip` shortens the batch of its element; where there is nothing to put in its
            place, `Replace` raises.
        output: what batches are given as: "numpy" arrays; "torch" tensors or "jax" arrays, short for `ps.Torch()` and `ps.Jax()`, which
            name a device. `ds[i]` and `ds.spec()` are NumPy's.
        stall_timeout_s: how long one element may run, or nothing may happen, while the consumer waits, before FeedStalled is raised;
            None never looks, nor does infinity. Time in which the process is suspended does not count. The inline executor cannot look.
        on_stall: "raise"; "warn": a RuntimeWarning with the same text, again after twice the time, and the wait goes on; or, with worker
            processes, "skip": the process is killed, and the element counts as one that failed with FeedStalled and is not tried again.
        grace_period_s: how long `close()` waits for running user functions before it raises StillRunning.

    Raises:
        PlanError: a value is of another type or out of bounds, or on_stall="skip" is given without worker processes.
    """

    num_workers: int | Literal["auto"] = "auto"
    executor: ExecutorOption = "auto"
    memory_bytes: int | Literal["auto"] = "auto"
    ordered: bool = True
    on_error: Policy = Raise()  # noqa: RUF009 - a frozen value without fields
    output: OutputOption = "numpy"
    stall_timeout_s: float | None = 60.0
    on_stall: Literal["raise", "warn", "skip"] = "raise"
    grace_period_s: float = 2.0

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
        output = _written_out("output", self.output, _OUTPUTS, (Torch, Jax))
        executor = self.executor
        if isinstance(executor, type) or not callable(getattr(executor, "executor", None)):
            executor = _written_out("executor", executor, _EXECUTORS, (Threads, Processes, Ray))
        if not _is_one_of(self.on_stall, _ON_STALL):
            raise _refused("on_stall", self.on_stall, "is not known", f"give one of {', '.join(_ON_STALL)}")
        if self.on_stall == "skip" and not isinstance(executor, (Processes, Ray)):
            refuse_on_windows('on_stall="skip"', 'give "raise" or "warn"')
            words = "needs workers that can be killed, and a thread cannot be"
            raise _refused("on_stall", self.on_stall, words, 'give executor="processes" too, or "raise" or "warn"')
        checked_policy(self.on_error, "feed options")
        times = {"grace_period_s": grace_s, "stall_timeout_s": stall_s}
        values = {"num_workers": workers, "executor": executor, "memory_bytes": size, "ordered": ordered, "output": output, **times}
        for name, value in values.items():
            object.__setattr__(self, name, value)

    @property
    def executor_name(self) -> str:
        """The executor by its short form; one of your own by its type."""
        kind = type(self.executor)
        if isinstance(self.executor, str):
            return self.executor
        return kind.__name__.lower() if kind in _EXECUTORS.values() else f"{kind.__module__}.{kind.__qualname__}"

    @property
    def own_executor(self) -> OwnExecutor | None:
        """An executor of your own; None for those that are named here."""
        return None if isinstance(self.executor, (str, Threads, Processes, Ray)) else self.executor

    @property
    def verify(self) -> float:
        """The share of elements that are computed a second time."""
        return float(self.executor.verify) if isinstance(self.executor, _OfThisMachine) else 0.0

    @property
    def output_name(self) -> str:
        """The output by its short form."""
        return self.output if isinstance(self.output, str) else type(self.output).__name__.lower()


def _is_one_of(value: object, names: Iterable[str]) -> bool:
    return isinstance(value, str) and value in names  # an array would compare each of its numbers


def _written_out(name: str, value: Any, short: Mapping[str, type | None], kinds: tuple[type, ...]) -> Any:
    """Return an option that is a value, given as one or by its short form; this itself where it stands for none."""
    if isinstance(value, kinds):
        return value
    if not _is_one_of(value, short):
        long = ", ".join(f"ps.{kind.__name__}(...)" for kind in kinds)
        raise _refused(name, value, "is not known", f"give one of {', '.join(short)}, or {long}")
    kind = short[value]
    return value if kind is None else kind()


def _count(value: Any, least: int, name: str, words: str, fix: str) -> int | Literal["auto"]:
    number = whole_number(value)
    if isinstance(value, str) and value == "auto":
        return "auto"
    if number == -1:
        fix += '; -1, the AUTOTUNE of tf.data, is "auto" here'
    if number is None or number < least:
        raise _refused(name, value, words, fix)
    return number


def _refused(name: str, value: object, words: str, fix: str, *, where: str = "feed options") -> PlanError:
    return PlanError(f"{name}={value!r} {words}", where=where, fix=fix)
