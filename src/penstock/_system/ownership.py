"""Whose a function is: Penstock's own may run anywhere, several calls at a time; what a user wrote runs where he says."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from types import BuiltinMethodType, FunctionType, MethodType, ModuleType
from typing import Any

_PACKAGE = __name__.partition(".")[0]


def users_of(thing: Any) -> Iterator[Any]:
    """Yield the objects of the user that a call of `thing`, or a read of it, runs: functions, and the objects whose methods they are.

    Nothing for Penstock's own functions and sources. One of these that holds an object of the user's has an attribute
    `users_object`, a tuple where there are several.
    """
    if isinstance(thing, partial):
        for part in (thing.func, *thing.args, *thing.keywords.values()):
            if callable(part):
                yield from users_of(part)
    elif isinstance(thing, (MethodType, BuiltinMethodType)) and not isinstance(thing.__self__, ModuleType):
        yield from users_of(thing.__self__)
    elif not _is_own(thing):
        yield thing
    elif (wrapped := getattr(thing, "__wrapped__", None)) is not None:
        yield from users_of(wrapped)
    elif (held := getattr(thing, "users_object", None)) is not None:
        yield from held if type(held) is tuple else (held,)


def _is_own(thing: Any) -> bool:
    of = thing if isinstance(thing, (FunctionType, BuiltinMethodType, type)) else type(thing)
    return str(of.__module__).partition(".")[0] == _PACKAGE
