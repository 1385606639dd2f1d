"""What a function's code says without calling it: whether it wants a random generator, whether it must be awaited.

And whether anything in a plan depends on the number of the pass.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import CodeType
from typing import Any

from penstock._contracts.transform import Transform
from penstock._plan.length import walk
from penstock._plan.node import Map, Node, RejectionResample, Shuffle

__all__ = ["is_async", "is_async_generator", "is_random", "wants_rng"]

_COROUTINE, _ASYNC_GENERATOR = 0x80, 0x200  # inspect.CO_COROUTINE and CO_ASYNC_GENERATOR: `inspect` costs 10 ms to import


def wants_rng(fn: Callable[..., Any]) -> bool:
    """Tell whether `fn` has a parameter named `rng` that is not given yet."""
    if isinstance(fn, Transform):
        return fn.num_draws > 0
    code, given = _code_of(fn)
    return code is not None and "rng" not in given and "rng" in code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]


def is_random(root: Node) -> bool:
    """Tell whether a plan gives other elements, or another order, in another pass."""
    return any(
        (isinstance(node, Shuffle) and node.reshuffle_each_epoch)
        or isinstance(node, RejectionResample)
        or (isinstance(node, Map) and wants_rng(node.fn))
        for node in walk(root)
    )


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
