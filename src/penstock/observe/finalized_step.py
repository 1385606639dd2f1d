"""Watches a compiled training step: a compilation after its first calls is reported with the batch and what changed in it."""

from __future__ import annotations

import functools
import sys
import threading
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Generic, Literal, NamedTuple, ParamSpec, TypeVar

from penstock._contracts.element import parts_of
from penstock._system.frames import warn
from penstock.errors import PlanError, SpecError
from penstock.observe.stats import running_feeds
from penstock.observe.ticker import guarded

P = ParamSpec("P")
R = TypeVar("R")

_MOST_CHANGES = 5
"""So many fields are named in a message."""

_MOST_KNOWN = 64
"""So many earlier calls are compared with one that compiles."""


class _Fields(NamedTuple):
    """What the arrays, and the other values, of a call's arguments looked like: words by their paths, such as `batch['image']`."""

    arrays: dict[str, str]
    values: dict[str, str]


class FinalizedStep(Generic[P, R]):
    """A training step that reports when it is compiled again; made by `finalize_step`. Other attributes are those of the step itself.

    Attributes:
        num_recompilations: how many calls after the warm-up compiled.
    """

    def __init__(self, step: Callable[P, R], warmup: int, *, raises: bool) -> None:
        functools.update_wrapper(self, step, updated=())
        self.__wrapped__ = step
        self.num_recompilations = 0
        self._num_calls = self._num_warm = 0
        self._is_off = False
        self._warmup = warmup
        self._raises = raises
        self._known: deque[_Fields] = deque(maxlen=_MOST_KNOWN)  # of the calls that compiled
        self._before: dict[str, int] = {}
        self._compilations: Callable[[], int] | None = None
        self._last: Any = None
        self._seen: set[Any] = set()  # the shapes and dtypes of all calls, where no framework counts compilations

    def __getattr__(self, name: str) -> Any:
        if name == "__wrapped__":  # not there yet: in a copy
            raise AttributeError(name)
        return getattr(self.__wrapped__, name)

    def __repr__(self) -> str:
        return f"finalize_step({self.__wrapped__!r})"

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the step; what it returns and raises is passed on.

        Raises:
            SpecError: it was compiled again, and `on_recompile` is "raise". The step has run; its result is lost.
        """
        self._num_calls += 1
        if self._is_off:
            return self.__wrapped__(*args, **kwargs)
        if self._num_warm < self._warmup:
            if not self._num_warm:
                self._before = {name: count() for name, count in _counters_of(self.__wrapped__).items()}
            result = self.__wrapped__(*args, **kwargs)
            self._num_warm += 1  # a call that raises is none of them
            self._look(self._learn, args, kwargs)
            return result
        count = self._compilations
        if count is None:
            result = self.__wrapped__(*args, **kwargs)
            if self._look(self._is_new, args, kwargs):
                self._report(args, kwargs)
            return result
        before = count()
        result = self.__wrapped__(*args, **kwargs)
        if count() != before:
            self._report(args, kwargs)
        return result

    def _look(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Look at arguments, which may be anything; where that fails, there is one warning, and nothing is looked at any more."""
        whole, found = guarded("finalize_step() reports nothing any more", function, args, kwargs)
        self._is_off = not whole
        return found

    def _learn(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._known.append(self._fields(args, kwargs))
        self._seen.add(_shapes((args, kwargs)))
        if self._num_warm == self._warmup:
            self._compilations = _counter_that_moved(self._before, _counters_of(self.__wrapped__))

    def _is_new(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Tell whether no earlier call had arguments of this form."""
        shapes = _shapes((args, kwargs))
        if shapes == self._last:  # comparing is quicker than hashing
            return False
        self._last = shapes
        new = shapes not in self._seen
        self._seen.add(shapes)
        return new

    def _report(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.num_recompilations += 1
        found = self._look(self._changed, args, kwargs)
        if found is None:
            return
        changes, in_arrays = found
        verb = "got arguments of a new form" if self._compilations is None else "was compiled again"
        what = f"the training step {verb} in its call {self._num_calls}"
        what += f": {'; '.join(changes)}" if changes else ", and no argument changed its shape or dtype"
        if in_arrays:
            fix = "use drop_remainder=True for batches of one size, and resize, crop or pad to one shape; "
            fix += f"where several shapes are expected, have them all among the first calls, with warmup= above {self._warmup}"
        elif changes:
            fix = "give numbers that change as arrays: some compilers make a program for each value of a Python number"
        else:
            fix = "look for a flag, device, sharding or global that changed; TORCH_LOGS=recompiles and JAX_EXPLAIN_CACHE_MISSES=1 name it"
        error = SpecError(what, where=_batch() or "finalize_step()", fix=fix)
        if self._raises:
            raise error
        warn(str(error))

    def _changed(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[list[str], bool]:
        """Say what is new in arguments, compared with the most similar earlier ones; values only if no array is new."""
        fields = self._fields(args, kwargs)
        arrays, values = (min([_differing(known, fields, kind) for known in self._known], key=len) for kind in (0, 1))
        changes = arrays or values
        self._known.append(fields)
        more = [f"and {len(changes) - _MOST_CHANGES} more"] if len(changes) > _MOST_CHANGES else []
        return changes[:_MOST_CHANGES] + more, bool(arrays)

    def _fields(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> _Fields:
        import inspect

        try:
            named = inspect.signature(self.__wrapped__).bind(*args, **kwargs).arguments
        except (TypeError, ValueError):  # it does not tell its parameters
            named = {f"argument {number}": value for number, value in enumerate(args)} | kwargs
        fields = _Fields({}, {})
        for name, value in named.items():
            _walk(name, value, fields)
        return fields


def finalize_step(step: Callable[P, R], *, warmup: int = 2, on_recompile: Literal["warn", "raise"] = "warn") -> FinalizedStep[P, R]:
    """Wrap a compiled training step, so that a call that compiles it again after the first ones is reported.

    A report names the batch, and what changed: `batch['image'] float32[128, 224, 224, 3] -> float32[37, 224, 224, 3]`. The usual causes are
    a smaller last batch, and a field that is int64 in one place and int32 in another.

    The step may be a function of `jax.jit`, `torch.compile` or `tf.function`, a method such as `model.train_on_batch` of Keras, or a Python
    function that calls one of these. Compilations are counted by the frameworks themselves, so a shape for which nothing is compiled is no
    recompilation. Of JAX those in the calling thread count, of a `tf.function` its own, else all in this process. Where none of the
    frameworks is loaded, arguments of a form that no earlier call had are reported instead; each form once.

    A call costs about 1 us more, and nothing of its arguments is kept; without a framework 0.5 us more for each array.

    Args:
        step: is called with what the wrapper is called with.
        warmup: how many first calls may compile. Two by default: many programs are compiled a second time once the optimizer has its state.
        on_recompile: "warn" makes it a RuntimeWarning; "raise" a SpecError, after the step has run.

    Returns:
        A callable with the attributes of `step`, `step.lower` for example, and `num_recompilations`.

    Raises:
        PlanError: an argument is wrong.
    """
    if not callable(step):
        raise PlanError(f"step is {step!r}, which cannot be called", where="finalize_step()", fix="give the compiled function")
    if isinstance(warmup, bool) or not isinstance(warmup, int) or warmup < 1:
        raise PlanError(f"warmup is {warmup!r}", where="finalize_step()", fix="give a whole number of calls from 1")
    if on_recompile not in ("warn", "raise"):
        raise PlanError(f"on_recompile is {on_recompile!r}", where="finalize_step()", fix='give "warn" or "raise"')
    return FinalizedStep(step, warmup, raises=on_recompile == "raise")


def _batch() -> str:
    """Name the batch that a feed delivered last, of each feed that runs now."""
    running = [feed for feed in running_feeds() if feed.fills()]
    return " or ".join(f"batch {feed.step - 1} of the feed (epoch {feed.epoch})" for feed in running)


# -- what the frameworks count --------------------------------------------------------------------------------------------------------


def _counters_of(step: Any) -> dict[str, Callable[[], int]]:
    """Return what counts compilations in the frameworks that are loaded; of a tf.function its own counter alone."""
    own = getattr(step, "experimental_get_tracing_count", None)
    if own is not None:
        return {"function": own}
    found = {"jax": _count_of_jax(), "torch": _count_of_torch(), "tensorflow": _count_of_tensorflow()}
    return {name: count for name, count in found.items() if count is not None}


def _counter_that_moved(before: dict[str, int], counters: dict[str, Callable[[], int]]) -> Callable[[], int] | None:
    """Return the counter of the framework that compiled something in the warm-up, of all where none did; None where there is none."""
    found = [count for name, count in counters.items() if count() != before.get(name, 0)] or list(counters.values())
    if len(found) <= 1:
        return found[0] if found else None
    return lambda: sum([count() for count in found])


class _JaxCompilations(threading.local):
    """How many programs JAX compiled in each thread, since the first finalized step."""

    count = 0

    def __call__(self, event: str, duration_s: float, **_: Any) -> None:
        if event.endswith("/backend_compile_duration"):
            self.count += 1


def _count_of_jax() -> Callable[[], int] | None:
    # Not `_cache_size` of a jitted function: it grows without a compilation when a NumPy argument becomes a JAX array.
    listen = getattr(sys.modules.get("jax.monitoring"), "register_event_duration_secs_listener", None)
    return None if listen is None else _listening(listen)


@functools.cache
def _listening(listen: Callable[[Any], object]) -> Callable[[], int]:
    compilations = _JaxCompilations()
    listen(compilations)
    return lambda: compilations.count


def _count_of_torch() -> Callable[[], int] | None:
    counters = getattr(sys.modules.get("torch._dynamo.utils"), "counters", None)
    return None if counters is None else lambda: counters["stats"]["unique_graphs"]


def _count_of_tensorflow() -> Callable[[], int] | None:
    # Microseconds spent on tracing; the functions themselves cannot be reached where Keras or a class holds them.
    tracing = sys.modules.get("tensorflow.python.eager.polymorphic_function.tracing_compilation")
    timer = getattr(tracing, "_graph_building_time_counter", None)
    return None if timer is None else timer.get_cell().value


# -- what the arguments look like -----------------------------------------------------------------------------------------------------


def _shapes(value: Any) -> Any:
    """Return the nesting, shapes and dtypes of arguments, to be compared."""
    if isinstance(value, (dict, list, tuple)):
        return tuple([(key, _shapes(part)) for key, part in parts_of(value) or ()])
    shape = getattr(value, "shape", None)
    if shape is None:
        return type(value)
    return tuple(shape) if isinstance(shape, list) else shape, getattr(value, "dtype", None)


def _walk(path: str, value: Any, out: _Fields) -> None:
    """Note the arrays and values in an argument."""
    shape, dtype = getattr(value, "shape", None), getattr(value, "dtype", None)
    if shape is not None and dtype is not None:
        name = getattr(dtype, "name", None) or str(dtype).removeprefix("torch.")
        out.arrays[path] = f"{name}{list(shape)}{' of weak type' if getattr(value, 'weak_type', False) else ''}"
    elif isinstance(value, (Mapping, list, tuple)):
        for key, part in parts_of(value) or ():
            _walk(f"{path}[{key!r}]", part, out)
    elif hasattr(value, "__dataclass_fields__"):
        for name in value.__dataclass_fields__:
            _walk(f"{path}.{name}", getattr(value, name, None), out)
    elif isinstance(value, (int, float, type(None))):
        out.values[path] = repr(value)[:40]
    else:  # a text may be anything, a path with a password too
        out.values[path] = f"str of {len(value)} characters" if isinstance(value, str) else type(value).__qualname__


def _differing(before: _Fields, now: _Fields, kind: int) -> list[str]:
    then, new = ({**fields.values, **fields.arrays} for fields in (before, now))
    paths = (path for path in {**before[kind], **now[kind]} if before[kind].get(path) != now[kind].get(path))
    return [f"{path} {then.get(path, 'nothing')} -> {new.get(path, 'nothing')}" for path in paths]
