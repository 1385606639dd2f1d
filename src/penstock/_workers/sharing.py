"""What threads must not share: objects of other libraries in functions of the user's; found, and copied for each worker."""

from __future__ import annotations

import copy
import dis
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import fields, is_dataclass, replace
from functools import partial
from types import BuiltinMethodType, CellType, FunctionType, MethodType
from typing import Any, NamedTuple

from penstock._contracts.element import with_parts
from penstock._engine.compute import HERE, Computer
from penstock._engine.engine import Engine
from penstock._engine.program import SHARED, SegmentPlan, Workers
from penstock._ops.reading import ReadLeaf
from penstock._system.failing import attempt
from penstock._system.ownership import users_of
from penstock._workers.parts import HeldBy, codes_in, steps_of, words_of


def _reseed(compose: Any, index: int) -> None:
    """Let each copy draw other numbers."""
    seed = getattr(compose, "seed", None)
    if hasattr(compose, "set_random_seed"):
        compose.set_random_seed(None if seed is None else seed + index)


class UnsafeClass(NamedTuple):
    """Classes that several threads may not use at once.

    Attributes:
        module: the package, or the module, that they come from.
        names: of the classes, or of classes that they are made of.
        copies: whether each thread can have a copy.
        after: called with a copy and the number of its worker.
    """

    module: str
    names: frozenset[str]
    copies: bool
    after: Callable[[Any, int], object] = lambda made, index: None


UNSAFE = (
    UnsafeClass("transformers", frozenset({"PreTrainedTokenizerBase", "ProcessorMixin"}), copies=True),  # calls set truncation and padding
    UnsafeClass(
        "albumentations", frozenset({"BaseCompose", "BasicTransform"}), copies=True, after=_reseed
    ),  # a call leaves its draws in it
    UnsafeClass("h5py", frozenset({"HLObject"}), copies=False),
    UnsafeClass("sqlite3", frozenset({"Connection", "Cursor"}), copies=False),
    UnsafeClass("_io", frozenset({"BufferedReader", "BufferedRandom", "FileIO", "TextIOWrapper"}), copies=False),  # one position for all
)

_MOST_STEPS, _MOST_OBJECTS, _MOST_ITEMS = 5, 2000, 64
_OTHERS = ("logging", "threading", "_thread", "zipfile")
"""Modules whose objects are meant for several threads."""


def _known(thing: Any) -> UnsafeClass | None:
    for kind in type(thing).__mro__:
        module = str(kind.__module__).partition(".")[0]
        found = next((known for known in UNSAFE if known.module == module and kind.__name__ in known.names), None)
        if found is not None:
            return found if module != "_io" or attempt(thing.readable) else None  # a file that is closed raises
    return None


class Unsafe(NamedTuple):
    """A known object; `words` say who holds it, and how."""

    thing: Any
    known: UnsafeClass
    words: str


class Survey:
    """What functions and objects hold: in closures, attributes, arguments, defaults and globals that their code names.

    Attributes:
        held: the known objects, by `id`.
        parts: what each object holds, by `id`.
    """

    def __init__(self, roots: Iterable[Any]) -> None:
        """Look into `roots`, the nearest first."""
        self.held: dict[int, Unsafe] = {}
        self.parts: dict[int, list[Any]] = {}
        waiting: deque[tuple[Any, int, str]] = deque((root, 0, "") for root in roots)
        while waiting and len(self.parts) < _MOST_OBJECTS:
            thing, num_steps, words = waiting.popleft()
            if id(thing) in self.parts or id(thing) in self.held or num_steps > _MOST_STEPS:
                continue
            known = _known(thing)
            if known is not None:
                self.held[id(thing)] = Unsafe(thing, known, words)
                continue
            steps = _steps_of(thing)
            self.parts[id(thing)] = [thing, *(step.part for step in steps)]
            waiting.extend((step.part, num_steps + 1, words_of([step]) or words) for step in steps)

    def holders(self, wanted: Iterable[int]) -> set[int]:
        """Return the `id` of each object that holds one of those `wanted`, itself or through others, and of these."""
        above: dict[int, list[int]] = {}
        for holder, parts in self.parts.items():
            for part in parts[1:]:
                above.setdefault(id(part), []).append(holder)
        found, waiting = set[int](), list(wanted)
        while waiting:
            one = waiting.pop()
            if one not in found:
                found.add(one)
                waiting += above.get(one, [])
        return found


def _steps_of(thing: Any) -> list[HeldBy]:
    """Return the parts of an object, without those of long containers and of objects that are meant for several threads."""
    if isinstance(thing, (list, tuple, dict, set, frozenset)):
        return steps_of(thing) if len(thing) <= _MOST_ITEMS else []
    return [] if str(type(thing).__module__).partition(".")[0] in _OTHERS else steps_of(thing)


# -- copies -----------------------------------------------------------------------------------------------------------------------


class _Globals(dict[str, Any]):
    """The globals of a function, with its own objects under some names; all others are those of the module, as they are now."""

    def __init__(self, of: dict[str, Any]) -> None:
        super().__init__({name: of[name] for name in ("__name__", "__package__", "__spec__", "__builtins__") if name in of})
        self._of = of

    def __missing__(self, name: str) -> Any:
        return self._of[name]


class _NoCopyError(Exception):
    """The function would lose what it holds."""


class OwnCopies:
    """The copies of one worker thread. Of a known object there is one for the whole feed; of those who hold it one in each epoch."""

    def __init__(self, index: int) -> None:
        """Copy nothing yet."""
        self._index = index
        self._copies: dict[int, tuple[Any, Any]] = {}  # with the object, so that its `id` stays its own
        self._holders: dict[int, Any] = {}
        self._wanted: set[int] = set()

    def begin(self, wanted: set[int]) -> None:
        """Begin an epoch, in which the objects with these `id`s are to be copies."""
        self._holders, self._wanted = {}, wanted

    def copy(self, held: Unsafe) -> None:
        """Copy a known object, unless there is a copy already.

        Raises:
            Exception: it cannot be copied.
        """
        if id(held.thing) not in self._copies:
            made = copy.deepcopy(held.thing)
            held.known.after(made, self._index)
            self._copies[id(held.thing)] = held.thing, made

    def own(self, thing: Any) -> Any:
        """Return a function or object with copies in it.

        Raises:
            Exception: of the copying of an object that holds one.
        """
        if id(thing) not in self._wanted:
            return thing
        if id(thing) in self._copies:
            return self._copies[id(thing)][1]
        if id(thing) not in self._holders:
            self._make(thing)
        return self._holders[id(thing)]

    def _make(self, thing: Any) -> None:
        changed = [step for step in _steps_of(thing) if id(step.part) in self._wanted]
        if isinstance(thing, FunctionType):
            made, fill = _function_like(thing, changed)
            self._holders[id(thing)] = made  # before what it holds, which may hold it
            for step in changed:
                fill(step, self.own(step.part))
        elif isinstance(thing, (partial, MethodType, BuiltinMethodType, tuple)):
            self._holders[id(thing)] = _changed(thing, {step.key: self.own(step.part) for step in changed})
        elif isinstance(thing, (type, set, frozenset)) or any(step.kind == "class" for step in changed):
            raise _NoCopyError
        else:
            made = self._holders[id(thing)] = copy.copy(thing)
            for step in changed:
                if isinstance(made, (list, dict)):
                    made[step.key] = self.own(step.part)
                else:
                    object.__setattr__(made, step.key, self.own(step.part))  # also of a frozen dataclass


def _changed(thing: Any, own: dict[Any, Any]) -> Any:
    """Return a method, partial or tuple with other parts."""
    if isinstance(thing, tuple):
        return with_parts(thing, [own.get(number, value) for number, value in enumerate(thing)])
    if isinstance(thing, BuiltinMethodType):
        return getattr(own["__self__"], thing.__name__)
    if isinstance(thing, MethodType):
        return MethodType(own.get("__func__", thing.__func__), own.get("__self__", thing.__self__))
    return partial(own.get("func", thing.func), *own.get("args", thing.args), **own.get("keywords", thing.keywords))


def _function_like(function: FunctionType, steps: list[HeldBy]) -> tuple[FunctionType, Callable[[HeldBy, Any], None]]:
    """Return a function that will have other parts, and shares the rest; and what puts them there.

    Raises:
        _NoCopyError: it sets globals, and would set its own.
    """
    cells, own = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)), function.__globals__
    if any(step.kind == "global" for step in steps):
        instructions = [one for code in codes_in(function.__code__) for one in dis.get_instructions(code)]
        if any(one.opname in ("STORE_GLOBAL", "DELETE_GLOBAL") for one in instructions):
            raise _NoCopyError
        own = _Globals(own)
    cells |= {step.key: CellType() for step in steps if step.kind == "variable"}
    made = FunctionType(function.__code__, own, function.__name__, function.__defaults__, tuple(cells.values()))
    made.__kwdefaults__ = function.__kwdefaults__ and dict(function.__kwdefaults__)
    made.__dict__.update(function.__dict__)
    made.__qualname__, made.__module__ = function.__qualname__, function.__module__

    def fill(step: HeldBy, value: Any) -> None:
        if step.kind == "variable":
            cells[step.key].cell_contents = value
        elif step.kind == "global":
            own[step.key] = value
        elif step.kind == "attribute":
            made.__dict__[step.key] = value
        elif step.key in (made.__kwdefaults__ or {}):
            made.__kwdefaults__ = {**(made.__kwdefaults__ or {}), step.key: value}
        else:
            defaults, number = [*(made.__defaults__ or ())], made.__code__.co_varnames.index(step.key) - made.__code__.co_argcount
            defaults[number] = value
            made.__defaults__ = tuple(defaults)

    return made, fill


# -- in a feed --------------------------------------------------------------------------------------------------------------------


class Sharing:
    """The copies of all worker threads of a feed.

    Attributes:
        notice: what of the known objects there is, once; or empty.
    """

    def __init__(self) -> None:
        """Look at nothing yet."""
        self._copies: dict[tuple[str, int], OwnCopies] = {}
        self._computers: dict[tuple[str, int], Computer] = {}
        self._told = False
        self.notice = ""

    def computer(self, pool: str, index: int) -> Computer:
        """Return what computes for a worker thread."""
        return self._computers.get((pool, index), HERE)

    def begin(self, engine: Engine, default: str) -> None:
        """Prepare for an engine that will run; `default` is the executor of stages that do not name one."""
        self._computers, pools = {}, engine.pools
        functions: list[Any] = []

        def noted(function: Any) -> Any:
            functions.append(function)
            return function

        for plan in engine.plans:
            for part in _beside(plan, default, pools.get(SHARED, 0)):
                _with_functions(part, noted)
        survey = Survey(functions)
        if not survey.held:
            return
        active = engine.scheduler.active
        active.ceiling = min(active.ceiling, engine.scheduler.size_of(SHARED))  # each worker has its copies from the beginning
        everyone = [(pool, index) for pool, size in pools.items() for index in range(size if size > 1 else 0)]
        everyone = [one for one in everyone if engine.executors.get(one[0], default) == "threads"]
        copied = {number for number, held in survey.held.items() if held.known.copies}
        for one in everyone:
            copied = self._copied(one, survey, copied)
        for one in everyone:
            self._copies[one].begin(survey.holders(copied))
            self._computers[one] = _computer(engine.plans, self._copies[one].own)
        if not self._told:
            self._told, self.notice = True, _notice(survey, copied)

    def _copied(self, one: tuple[str, int], survey: Survey, wanted: set[int]) -> set[int]:
        """Copy objects for a worker; return those that can be copied, with all who hold them. What a copy runs may fail."""
        copies = self._copies.setdefault(one, OwnCopies(one[1]))

        def made(number: int) -> bool:
            copies.copy(survey.held[number])
            holders = survey.holders([number])
            copies.begin(holders)
            return all(copies.own(survey.parts[holder][0]) is not None for holder in holders - survey.held.keys())

        return {number for number in wanted if attempt(made, number)}


def _beside(plan: SegmentPlan, default: str, num_shared: int) -> Iterator[Any]:
    """Yield the parts of a segment that several threads compute at once."""
    for number, stage in enumerate(plan.stages):
        workers = stage.workers or Workers(0)
        if (workers.executor or default) != "threads" or (workers.num or num_shared) < 2 or stage.awaited is not None:
            continue
        yield stage
        if number == 0:
            yield plan.leaf
        if number == len(plan.stages) - 1 and not plan.finisher:
            yield plan.batch, plan.batch_ops


def _with_functions(part: Any, change: Callable[[Any], Any]) -> Any:
    """Return a part of a plan with its functions changed, and the sources that read an object of the user's."""
    if type(part) is tuple:
        return tuple(_with_functions(one, change) for one in part)
    if isinstance(part, ReadLeaf):
        source = change(part.source) if next(users_of(part.source), None) is not None else part.source
        return part if source is part.source else replace(part, source=source)
    if not is_dataclass(part) or isinstance(part, type):
        return part
    changed: dict[str, Any] = {}
    for name in [field.name for field in fields(part) if field.init]:
        value = getattr(part, name)
        made = change(value) if name in ("fn", "transform") else _with_functions(value, change)
        if made is not value:
            changed[name] = made
    return replace(part, **changed) if changed else part


def _computer(plans: list[SegmentPlan], own: Callable[[Any], Any]) -> Computer:
    """Return what computes with a worker's own functions."""
    parts = ("leaf", "stages", "batch", "batch_ops")
    mine = {id(plan): replace(plan, **{name: _with_functions(getattr(plan, name), own) for name in parts}) for plan in plans}

    def compute(plan: SegmentPlan, *others: Any) -> Any:
        return HERE.compute(mine[id(plan)], *others)

    def compute_batches(plan: SegmentPlan, *others: Any) -> Any:
        return HERE.compute_batches(mine[id(plan)], *others)

    return Computer(compute, compute_batches)


def _notice(survey: Survey, copied: set[int]) -> str:
    told = {True: list[str](), False: list[str]()}
    for number, one in survey.held.items():
        kind = type(one.thing)
        words = f"{str(kind.__module__).partition('.')[0].lstrip('_')}.{kind.__name__} ({one.words or 'the function itself'})"
        told[number in copied].append(words)
    out = []
    if told[True]:
        out.append(
            f"{', '.join(told[True])}: not safe between threads, so each worker thread has a copy of its own; num_workers=N, without "
            "executor=, gives worker processes a copy each, and neither makes one call at a time"
        )
    if told[False]:
        out.append(
            f"{', '.join(told[False])}: not safe between threads, and threads share it, for it cannot be copied: leave executor= and "
            "concurrency= out, which makes one call at a time, or open it inside the function, once for each thread or process"
        )
    return "; ".join(out)
