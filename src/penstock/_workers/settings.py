"""What the program has set in modules that worker processes import again: globals and class attributes that the user's functions read.

Only plain values: numbers, texts, and dicts, lists, tuples and namespaces of them. They are set in the objects that are there, as other
modules may hold these.
"""

from __future__ import annotations

import sys
from argparse import Namespace
from types import FunctionType, ModuleType, SimpleNamespace
from typing import Any

from penstock._workers.parts import LONGEST, HeldBy, is_users, search, steps_of

Settings = dict[tuple[str, str], dict[str, Any]]
"""By module and class, "" for the module itself: values by name."""

_LEAVES = (bool, int, float, complex, str, bytes, type(None))


def settings_of(value: object) -> Settings:
    """Return the settings that the functions and classes of the user's in an object, or in what it holds, may read."""
    found: Settings = {}
    for _, holder in search([value], _parts_of):
        owner = _owner(holder)
        if owner is not None and owner[0] not in ("__main__", "__mp_main__"):
            kind = "global" if isinstance(holder, FunctionType) else "attribute"
            plain = {part.key: _content(part.part) for part in _parts_of(holder) if part.kind == kind and _is_plain(part.part)}
            found.setdefault(owner, {}).update(plain)
    return {owner: values for owner, values in found.items() if values}


def _parts_of(holder: Any) -> list[HeldBy]:
    """Return the parts of an object; of a module of the user's plain values, functions and classes."""
    if not isinstance(holder, ModuleType):
        return steps_of(holder)
    named = [(name, part) for name, part in vars(holder).items() if not name.startswith("__")] if is_users(holder) else []
    return [HeldBy(holder, "attribute", name, part) for name, part in named if _is_plain(part) or isinstance(part, (FunctionType, type))]


def _owner(holder: Any) -> tuple[str, str] | None:
    """Return whose names those of a module, function or class are."""
    if isinstance(holder, ModuleType):
        return holder.__name__, ""
    if isinstance(holder, FunctionType):
        return holder.__globals__.get("__name__", ""), ""
    return (holder.__module__, holder.__qualname__) if isinstance(holder, type) and is_users(holder) else None


def _is_plain(value: Any, depth: int = 0) -> bool:
    if type(value) in _LEAVES:
        return True
    if depth > 8 or not isinstance(value, (dict, list, tuple, Namespace, SimpleNamespace)):
        return False
    parts = vars(value) if isinstance(value, (Namespace, SimpleNamespace)) else value
    inner = [*parts, *parts.values()] if isinstance(parts, dict) else parts
    return len(inner) <= LONGEST and all(_is_plain(one, depth + 1) for one in inner)


def _content(value: Any) -> Any:
    """Return a plain value without the class of a dict, list or namespace, which stays there."""
    if isinstance(value, (Namespace, SimpleNamespace)):
        return SimpleNamespace(**{name: _content(one) for name, one in vars(value).items()})
    if isinstance(value, dict):
        return {key: _content(one) for key, one in value.items()}
    return [_content(one) for one in value] if isinstance(value, list) else value


def set_here(settings: Settings) -> None:
    """Set what another process has set, in modules that this one has imported."""
    for (module_name, kind), values in settings.items():
        owner: Any = sys.modules.get(module_name)
        for name in filter(None, kind.split(".")):
            owner = getattr(owner, name, None)
        for name, value in values.items() if owner is not None else ():
            current = vars(owner).get(name)
            if not _put_into(current, value) and _differ(current, value):
                setattr(owner, name, value)


def _differ(one: Any, other: Any) -> bool:
    return type(one) is not type(other) or bool(one != other)


def _put_into(current: Any, value: Any) -> bool:
    """Make a dict, list or namespace hold what another holds; tell whether it can."""
    if isinstance(current, (Namespace, SimpleNamespace)) and isinstance(value, SimpleNamespace):
        return _put_into(vars(current), vars(value))
    if isinstance(current, list) and isinstance(value, list):
        if current != value:
            current[:] = value
        return True
    if not isinstance(current, dict) or not isinstance(value, dict):
        return False
    for key in [key for key in current if key not in value]:
        dict.__delitem__(current, key)
    for key, one in value.items():
        if key not in current or (not _put_into(current[key], one) and _differ(current[key], one)):
            dict.__setitem__(current, key, one)  # whatever a subclass, such as one that was frozen, says
    return True
