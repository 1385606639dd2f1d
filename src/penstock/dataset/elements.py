"""Builder methods that make other elements of elements."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Self

from penstock._plan import check
from penstock._plan import node as plan
from penstock._plan.describe import function_name
from penstock._plan.random import wants_rng
from penstock.dataset.chaining import Chaining

__all__ = ["ElementMethods"]


class ElementMethods(Chaining):
    """Map, filter and their kin."""

    __slots__ = ()

    def map(self, fn: Callable[..., Any], *, seed: int = 0, name: str | None = None, concurrency: int | None = None) -> Self:
        """Replace each element by `fn(element)`.

        Args:
            fn: any callable. One with a parameter named `rng` gets a `numpy.random.Generator` for it that depends only on the seed, this
                operator's place, the epoch and the element: the same for any number of workers, other in every epoch.
            seed: of `rng`.
            name: of the stage in errors and figures; the function's name by default.
            concurrency: threads of its own for this function; by default it shares the feed's workers.

        Raises:
            PlanError: when fn cannot be called.
        """
        check.callable_argument(fn, "map")
        if concurrency is not None:
            concurrency = check.count_argument(concurrency, "concurrency", "map", least=1)
        stage = name or getattr(fn, "name", None) or function_name(fn)
        node = plan.Map(
            child=self._root,
            fn=fn,
            name=stage if isinstance(stage, str) else function_name(fn),
            seed=check.seed_argument(seed, "map"),
            random=wants_rng(fn),
            concurrency=concurrency,
        )
        return self._with(node)

    def enumerate(self, start: int = 0) -> Self:
        """Make each element a tuple (number, element), counted from `start` in each pass."""
        return self._with(plan.Enumerate(child=self._root, start=check.count_argument(start, "start", "enumerate")))

    def filter(self, fn: Callable[[Any], Any], *, name: str | None = None) -> Self:
        """Keep the elements for which `fn(element)` is true."""
        check.callable_argument(fn, "filter")
        check.no_rng(fn, "filter")
        return self._with(plan.Filter(child=self._root, fn=fn, name=name or function_name(fn)))

    def flat_map(self, fn: Callable[[Any], Any], *, name: str | None = None) -> Self:
        """Replace each element by all elements of `fn(element)`: a list, or anything that can be iterated."""
        check.callable_argument(fn, "flat_map")
        check.no_rng(fn, "flat_map")
        return self._with(plan.FlatMap(child=self._root, fn=fn, name=name or function_name(fn)))

    def rejection_resample(
        self,
        class_fn: Callable[[Any], int],
        target_dist: Sequence[float],
        initial_dist: Sequence[float] | None = None,
        seed: int = 0,
        *,
        name: str | None = None,
    ) -> Self:
        """Leave out elements of frequent classes so that the shares of the classes become `target_dist`.

        Elements are kept or left out whole, none is repeated; as many are kept as the target allows. tf.data's operator of this name
        gives (class, element) pairs; this one gives the elements.

        Args:
            class_fn: returns an element's class, 0..len(target_dist)-1.
            target_dist: the wanted share of each class; any positive scale, zero leaves a class out.
            initial_dist: the shares below; None counts them on the way, so the first hundred elements are only roughly balanced.
            seed: of the draws; each depends on the seed, the pass and the number of the element.
            name: of the stage in errors and figures; the function's name by default.
        """
        check.callable_argument(class_fn, "rejection_resample")
        check.no_rng(class_fn, "rejection_resample")
        target = check.shares_argument(target_dist, "target_dist", "rejection_resample")
        initial = None if initial_dist is None else check.shares_argument(initial_dist, "initial_dist", "rejection_resample", len(target))
        node = plan.RejectionResample(
            child=self._root,
            fn=class_fn,
            name=name or function_name(class_fn),
            target=target,
            initial=initial,
            seed=check.seed_argument(seed, "rejection_resample"),
        )
        return self._with(node)

    def unbatch(self) -> Self:
        """Split each element along the first dimension of its arrays."""
        return self._with(plan.Unbatch(child=self._root))
