"""What an object is made of, by name: to say where something hangs, and to find random generators."""

from __future__ import annotations

import dis
import functools
import random
import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import fields, is_dataclass
from types import BuiltinMethodType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any, NamedTuple

import numpy as np

from penstock._system.frames import warn

_MOST_OBJECTS, LONGEST, _DEPTH = 20_000, 1_000, 24
"""Limits of a search: 20 ms; a container with more entries is data."""
_SAMPLED, _SIZE_DEPTH = 8, 8
_PLAIN = (str, bytes, bytearray, int, float, complex, np.ndarray, np.generic, type(None))


class HeldBy(NamedTuple):
    """A part of an object.

    Attributes:
        holder: the object.
        kind: how it holds the part: "item", "attribute", "variable" of a closure, "global", "default" or "class".
        key: of the item, or the name of the attribute, variable, global or parameter.
        part: the part.
    """

    holder: object
    kind: str
    key: Any
    part: Any

    @property
    def name(self) -> str:
        """What leads to the part: `.name`, `[key]`, "global `NAME`" or "variable `name`"; empty for the class of an object."""
        if self.kind == "item":
            return f"[{self.key!r}]"
        if self.kind == "attribute":
            return f".{self.key}"
        return "" if self.kind == "class" else f"{self.kind} `{self.key}`"


def steps_of(value: object) -> list[HeldBy]:
    """Return the parts of containers, plain objects, functions and classes; of a function of a library not the globals."""
    return [] if isinstance(value, (*_PLAIN, ModuleType)) else [HeldBy(value, *found) for found in _parts(value)]


def _parts(value: Any) -> Iterator[tuple[str, Any, Any]]:
    if isinstance(value, dict):
        yield from (("item", key, part) for key, part in value.items())
    elif isinstance(value, (tuple, list, set, frozenset)):
        yield from (("item", index, part) for index, part in enumerate(value))
    elif isinstance(value, FunctionType):
        yield from _held_by_function(value)
    elif isinstance(value, (staticmethod, classmethod)):
        yield "class", None, value.__func__
    elif isinstance(value, property):
        yield from (("class", None, function) for function in (value.fget, value.fset) if function is not None)
    elif isinstance(value, type):
        yield from (("attribute", name, part) for name, part in vars(value).items() if not name.startswith("__") or callable(part))
    else:
        for kind, names in _ATTRIBUTES.items():
            if isinstance(value, kind):
                yield from (("attribute", name, getattr(value, name)) for name in names)
                return
        yield from _attributes(value)
        if is_users(type(value)):
            yield "class", None, type(value)


_ATTRIBUTES: dict[type, tuple[str, ...]] = {
    MethodType: ("__self__", "__func__"),
    BuiltinMethodType: ("__self__",),
    functools.partial: ("func", "args", "keywords"),
}


def _attributes(value: object) -> Iterator[tuple[str, str, Any]]:
    names: list[str] = []
    if is_dataclass(value):
        names = [field.name for field in fields(value)]
    elif isinstance(getattr(value, "__dict__", None), dict):
        names = list(vars(value))
    for kind in type(value).__mro__:
        slots = vars(kind).get("__slots__", ())
        names += [name for name in ((slots,) if isinstance(slots, str) else slots) if name not in names]
    for name in names:
        with suppress(Exception):  # a slot that is empty, or what a property of the user's raises
            yield "attribute", name, getattr(value, name)


def _held_by_function(function: FunctionType) -> Iterator[tuple[str, Any, Any]]:
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        with suppress(ValueError):  # it is empty
            yield "variable", name, cell.cell_contents
    if is_users(function):
        own = function.__globals__
        yield from (("global", name, own[name]) for name in dict.fromkeys(_globals_in(function.__code__)) if name in own)
    code, defaults = function.__code__, function.__defaults__ or ()
    positional = zip(code.co_varnames[code.co_argcount - len(defaults) : code.co_argcount], defaults, strict=True)
    yield from (("default", name, part) for name, part in (*positional, *(function.__kwdefaults__ or {}).items()))
    yield from (("attribute", name, part) for name, part in vars(function).items())


def codes_in(code: CodeType) -> Iterator[CodeType]:
    """Yield the code of a function and of those in it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from codes_in(constant)


def _globals_in(code: CodeType) -> Iterator[str]:
    yield from (step.argval for one in codes_in(code) for step in dis.get_instructions(one) if step.opname == "LOAD_GLOBAL")


def words_of(steps: list[HeldBy]) -> str:
    """Say where the last of some steps leads, from the innermost object or function of the user's; empty where there is none."""
    at = next((number for number in range(len(steps) - 1, -1, -1) if _has_a_name(steps[number].holder)), None)
    while at is not None and not steps[at].name and at:  # the class of an object, or what a property stands for
        at -= 1
    if at is None or not _has_a_name(steps[at].holder) or not steps[at].name:
        return ""
    holder, path = steps[at].holder, "".join(step.name for step in steps[at:])
    if isinstance(holder, FunctionType):
        return f"{path} of function `{holder.__qualname__}`"
    owner = holder.__qualname__ if isinstance(holder, type) else type(holder).__qualname__
    return f"`self{path}` of {owner}" if path.startswith(".") else f"{path} of {owner}"


def _has_a_name(value: object) -> bool:
    if isinstance(value, (dict, tuple, list, functools.partial, MethodType, staticmethod, classmethod, property)):
        return False
    kind = value if isinstance(value, (type, FunctionType)) else type(value)
    return str(getattr(kind, "__module__", "")).partition(".")[0] != "penstock"


def path_of(steps: list[HeldBy]) -> str:
    """Return the way from the outermost object, such as `.fn[0]`."""
    return "".join(f" {step.name}" if step.name[:1] not in ".[" else step.name for step in steps if step.name).strip()


def culprit(value: object, is_good: Callable[[object], bool], *, into_code: bool) -> list[HeldBy]:
    """Return the way to the innermost part that is not good by itself, also of functions and classes; nothing where all parts are."""
    steps: list[HeldBy] = []
    seen = {id(value)}
    while len(steps) < _DEPTH:
        steps_on = steps_of(value) if into_code or not isinstance(value, (type, FunctionType)) else []
        found = next((step for step in steps_on if id(step.part) not in seen and not is_good(step.part)), None)
        if found is None:
            break
        steps.append(found)
        value = found.part
        seen.add(id(value))
    return steps[: len(steps) - next((n for n, step in enumerate(reversed(steps)) if step.name), 0)]


def search(holders: Sequence[object], parts_of: Callable[[Any], Sequence[HeldBy]]) -> Iterator[tuple[list[HeldBy], Any]]:
    """Yield objects and what they hold, as `parts_of` says, each once with the way to it, the nearest first."""
    seen: dict[int, object] = {}  # kept: the numbers of objects that are gone are used again
    waiting: deque[tuple[list[HeldBy], Any]] = deque(([], holder) for holder in holders)
    while waiting and len(seen) < _MOST_OBJECTS:
        steps, value = waiting.popleft()
        if id(value) in seen or isinstance(value, _PLAIN):
            continue
        seen[id(value)] = value
        yield steps, value
        is_data = isinstance(value, (dict, list, tuple, set, frozenset)) and len(value) > LONGEST
        if len(steps) < _DEPTH and not is_data:
            waiting.extend(([*steps, part], part.part) for part in parts_of(value))


def generators_in(*holders: object) -> list[tuple[list[HeldBy], Any]]:
    """Return the random generators that objects of the user's, or what they hold, have, each with the way to it, the nearest first.

    Not those that everybody in the process shares, nor those of an object that seeds them itself, which says so with `seeds_generators`.
    """

    def parts_of(value: Any) -> list[HeldBy]:
        return [] if _is_generator(value) or getattr(type(value), "seeds_generators", False) else steps_of(value)

    return [(steps, value) for steps, value in search(holders, parts_of) if _is_generator(value)]


def _is_generator(value: object) -> bool:
    if isinstance(value, random.Random):
        return not isinstance(value, random.SystemRandom) and value is not vars(random)["_inst"]
    if isinstance(value, np.random.RandomState):
        return value is not getattr(np.random.rand, "__self__", None)
    torch = sys.modules.get("torch")
    of_torch = getattr(torch, "Generator", np.random.Generator)
    return isinstance(value, (np.random.Generator, of_torch)) and value is not getattr(torch, "default_generator", None)


def is_users(value: object) -> bool:
    """Tell whether a module, function or class is none of a library; all other objects may be the user's."""
    if not isinstance(value, (type, FunctionType, ModuleType)):
        return True
    name = (value.__name__ if isinstance(value, ModuleType) else value.__module__) or ""
    file = str(getattr(sys.modules.get(name), "__file__", None) or "")
    top = name.partition(".")[0]
    return top == "__main__" or (top not in sys.stdlib_module_names and top != "penstock" and "-packages" not in file)


def largest_part(value: object) -> list[HeldBy]:
    """Return the way to the part that holds the most bytes, as far as a look at some elements tells."""
    steps: list[HeldBy] = []
    while len(steps) < _DEPTH:
        sizes = [(_size_of(step.part, _SIZE_DEPTH), step) for step in steps_of(value)[:1000] if step.name]
        size, step = max(sizes, key=lambda one: one[0], default=(0, None))
        if step is None or 2 * size < sum(one for one, _ in sizes):
            break
        steps.append(step)
        value = step.part
    return steps


def _size_of(value: object, depth: int) -> int:
    num_bytes = getattr(value, "nbytes", None)
    if isinstance(num_bytes, int):
        return num_bytes
    if isinstance(value, (str, bytes, bytearray)):
        return len(value)
    if depth == 0 or not is_users(value):
        return 64
    if isinstance(value, (list, tuple, dict)) and len(value) > _SAMPLED:
        some = list(value.items() if isinstance(value, dict) else value)[:: max(1, len(value) // _SAMPLED)][:_SAMPLED]
        return len(value) * sum(_size_of(one, depth - 1) for one in some) // len(some)
    return 64 + sum(_size_of(step.part, depth - 1) for step in steps_of(value) if step.name)


def warn_of_generators(value: object) -> None:
    """Warn of the first random generator that worker processes would each have a copy of, in the same state."""
    found = generators_in(value)
    if not found:
        return
    steps, generator = found[0]
    warn(
        f"{words_of(steps) or path_of(steps)} is a {type(generator).__name__}: it draws the same numbers in each worker process; take "
        "them from a parameter `rng` of the function that map() gets, which is a generator keyed by the element",
        UserWarning,
    )
