"""A function's name, and what its code says without a call: whether it wants a random generator, whether it must be awaited."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import CodeType, FunctionType, MethodType
from typing import Any

from penstock._contracts.transform import Transform
from penstock._storage.urls import redacted

__all__ = ["function_name", "has_name", "is_async", "is_async_generator", "wants_rng"]

_COROUTINE, _ASYNC_GENERATOR = 0x80, 0x200  # inspect.CO_COROUTINE and CO_ASYNC_GENERATOR: `inspect` costs 10 ms to import


def function_name(fn: Callable[..., Any]) -> str:
    """Name a function without its address: its qualified name, or the repr of a frozen operator without passwords and the like."""
    name = getattr(fn, "__qualname__", None)
    if isinstance(name, str):
        return name.replace("<locals>.", "")
    if isinstance(fn, partial):
        return f"partial({function_name(fn.func)})"
    text = repr(fn)
    return type(fn).__qualname__ if " at 0x" in text else redacted(text)


def has_name(fn: Any) -> bool:
    """Tell whether a function's name says which one it is.

    Two lambdas have one name; so have `partial(crop, 32)` and `partial(crop, 64)`, a function that its maker gave other values, and the
    method of another object.
    """
    if isinstance(fn, Transform):
        return True
    if isinstance(fn, FunctionType):
        return fn.__closure__ is None and fn.__name__ != "<lambda>"
    if isinstance(fn, MethodType):
        return isinstance(fn.__self__, type)
    if isinstance(fn, partial):
        return False
    return isinstance(getattr(fn, "__qualname__", None), str) or " at 0x" not in repr(fn)


def wants_rng(fn: Callable[..., Any]) -> bool:
    """Tell whether `fn` has a parameter named `rng` that is not given yet."""
    if isinstance(fn, Transform):
        return fn.num_draws > 0
    code, given = _code_of(fn)
    return code is not None and "rng" not in given and "rng" in code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]


def is_async(fn: Any) -> bool:
    """Tell whether `fn` is an `async def` function, an object whose `__call__` is one, or a partial of one."""
    code, _ = _code_of(fn)
    return code is not None and bool(code.co_flags & _COROUTINE)


def is_async_generator(fn: Any) -> bool:
    """Tell whether `fn` is an `async def` function with a `yield`, or holds one as `is_async` says."""
    code, _ = _code_of(fn)
    return code is not None and bool(code.co_flags & _ASYNC_GENERATOR)


def _code_of(fn: Any) -> tuple[CodeType | None, set[str]]:
    """Return the code that a call runs, where Python shows it, and the keywords that partials give."""
    given: set[str] = set()
    while not hasattr(fn, "__code__"):
        if isinstance(fn, partial):
            given.update(fn.keywords)
            fn = fn.func
        elif hasattr(fn, "__func__"):
            fn = fn.__func__
        elif not isinstance(fn, type) and hasattr(type(fn).__call__, "__code__"):
            fn = type(fn).__call__
        else:
            return None, given
    return fn.__code__, given
