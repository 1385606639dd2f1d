"""Builder methods that make other elements of elements."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

from penstock._plan import check
from penstock._plan import node as plan
from penstock._plan.describe import function_name
from penstock._plan.random import is_async, wants_rng
from penstock.dataset.chaining import Chaining

__all__ = ["ElementMethods"]

_IN_FLIGHT = 32
"""Calls of an async function at once, unless `concurrency=` says how many: what HTTP clients allow themselves is 10 to 100."""


class ElementMethods(Chaining):
    """Map, filter and their kin."""

    __slots__ = ()

    def map(self, fn: Callable[..., Any], *, seed: int = 0, name: str | None = None, concurrency: int | None = None) -> Self:
        """Replace each element by `fn(element)`.

        Args:
            fn: any callable. One with a parameter named `rng` gets a `numpy.random.Generator` for it that depends only on the seed, this
                operator's place, the epoch and the element: the same for any number of workers, other in every epoch. An `async def`
                function is awaited, on an event loop that the feed runs in a thread of its own.
            seed: of `rng`.
            name: of the stage in errors and figures; the function's name by default.
            concurrency: threads of its own for this function; by default it shares the feed's workers. Of an `async def` function: how
                many calls may be in flight at once, by default 32.

        Raises:
            PlanError: when fn cannot be called, or is an async generator.
        """
        check.callable_argument(fn, "map")
        check.no_async_generator(fn, "map")
        asynchronous = is_async(fn)
        if concurrency is not None:
            concurrency = check.count_argument(concurrency, "concurrency", "map", least=1)
        stage = name or getattr(fn, "name", None) or function_name(fn)
        node = plan.Map(
            child=self._root,
            fn=fn,
            name=stage if isinstance(stage, str) else function_name(fn),
            seed=check.seed_argument(seed, "map"),
            random=wants_rng(fn),
            concurrency=_IN_FLIGHT if asynchronous and concurrency is None else concurrency,
            asynchronous=asynchronous,
        )
        return self._with(node)

    def enumerate(self, start: int = 0) -> Self:
        """Make each element a tuple (number, element), counted from `start` in each pass."""
        return self._with(plan.Enumerate(child=self._root, start=check.count_argument(start, "start", "enumerate")))

    def filter(self, fn: Callable[[Any], Any], *, name: str | None = None) -> Self:
        """Keep the elements for which `fn(element)` is true."""
        check.callable_argument(fn, "filter")
        check.no_async(fn, "filter")
        check.no_rng(fn, "filter")
        return self._with(plan.Filter(child=self._root, fn=fn, name=name or function_name(fn)))

    def flat_map(self, fn: Callable[[Any], Any], *, name: str | None = None) -> Self:
        """Replace each element by all elements of `fn(element)`: a list, or anything that can be iterated."""
        check.callable_argument(fn, "flat_map")
        check.no_async(fn, "flat_map")
        check.no_rng(fn, "flat_map")
        return self._with(plan.FlatMap(child=self._root, fn=fn, name=name or function_name(fn)))

    def unbatch(self) -> Self:
        """Split each element along the first dimension of its arrays."""
        return self._with(plan.Unbatch(child=self._root))
