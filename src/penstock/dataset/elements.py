"""Builder methods that make other elements of elements."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from penstock._contracts.policy import Policy, checked_policy
from penstock._contracts.store import RecordStore
from penstock._plan import check
from penstock._plan import node as plan
from penstock._plan.describe import identity, unnamed
from penstock._plan.functions import function_name, is_async, wants_rng
from penstock._plan.specs import declared
from penstock.dataset.chaining import Chaining
from penstock.errors import PlanError

if TYPE_CHECKING:
    from penstock.dataset.builder import Dataset

__all__ = ["ElementMethods"]

_IN_FLIGHT = 32
"""Calls of an async function at once, unless `concurrency=` says how many: what HTTP clients allow themselves is 10 to 100."""


class ElementMethods(Chaining):
    """Map, filter and their kin."""

    __slots__ = ()

    def map(
        self,
        fn: Callable[..., Any],
        *,
        seed: int = 0,
        name: str | None = None,
        concurrency: int | None = None,
        on_error: Policy | None = None,
        output_spec: Any = None,
    ) -> Dataset:
        """Replace each element by `fn(element)`.

        Args:
            fn: any callable. One with a parameter named `rng` gets a `numpy.random.Generator` for it that depends only on the seed, this
                operator's place, the epoch and the element: the same for any number of workers, other in every epoch. An `async def`
                function is awaited, on an event loop that the feed runs in a thread of its own.
            seed: of `rng`.
            name: of the stage in errors and figures; the function's name by default.
            concurrency: threads of its own for this function; by default it shares the feed's workers. Of an `async def` function: how
                many calls may be in flight at once, by default 32.
            on_error: what to do when it fails: `ps.Raise()`, `ps.Retry(...)`, `ps.Skip(...)` or `ps.Replace(...)`; the feed's by default.
            output_spec: declares what fn returns: a tree of dict, tuple and list over `ps.ArraySpec(shape, dtype)`, as `ds.spec()` shows
                it; a size of None stands for any. Every result is compared with it, and one of another structure, dtype or shape is a
                SpecError of its element. `ds.spec()` then does not call fn. The declaration is part of the plan: with another one
                it is another plan, for a state and for a cache in a folder.

        Raises:
            PlanError: when fn cannot be called, or is an async generator; when output_spec is no tree of specs.
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
            on_error=_policy(on_error, "map"),
            output_spec=None if output_spec is None else declared(output_spec),
        )
        return self._with(node)

    def enumerate(self, start: int = 0) -> Dataset:
        """Make each element a tuple (number, element), counted from `start` in each pass."""
        return self._with(plan.Enumerate(child=self._root, start=check.count_argument(start, "start", "enumerate")))

    def filter(self, fn: Callable[[Any], Any], *, name: str | None = None, on_error: Policy | None = None) -> Dataset:
        """Keep the elements for which `fn(element)` is true. `name` and `on_error` as for `map`."""
        check.callable_argument(fn, "filter")
        check.no_async(fn, "filter")
        check.no_rng(fn, "filter")
        return self._with(plan.Filter(child=self._root, fn=fn, name=name or function_name(fn), on_error=_policy(on_error, "filter")))

    def flat_map(self, fn: Callable[[Any], Any], *, name: str | None = None, on_error: Policy | None = None) -> Dataset:
        """Replace each element by all elements of `fn(element)`: a list or other iterable. `name` and `on_error` as for `map`."""
        check.callable_argument(fn, "flat_map")
        check.no_async(fn, "flat_map")
        check.no_rng(fn, "flat_map")
        return self._with(plan.FlatMap(child=self._root, fn=fn, name=name or function_name(fn), on_error=_policy(on_error, "flat_map")))

    def rejection_resample(
        self,
        class_fn: Callable[[Any], int],
        target_dist: Sequence[float],
        initial_dist: Sequence[float] | None = None,
        seed: int = 0,
        *,
        name: str | None = None,
    ) -> Dataset:
        """Leave out elements of frequent classes so that the shares of the classes become `target_dist`.

        Elements are kept or left out whole, none is repeated; as many are kept as the target allows. tf.data's operator of this name
        gives (class, element) pairs; this one gives the elements.

        Args:
            class_fn: returns an element's class, 0..len(target_dist)-1.
            target_dist: the wanted share of each class; any positive scale, zero leaves a class out.
            initial_dist: the shares below; None counts them on the way, again in each pass, so its first hundred elements are only roughly
                balanced.
            seed: of the random numbers; each depends on the seed, the pass and the number of the element.
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

    def unbatch(self) -> Dataset:
        """Split each element along the first dimension of its arrays; tensors and lists of numbers are arrays.

        Raises:
            PlanError: of what `ragged_batch` made.
        """
        check.splittable(self._root)
        return self._with(plan.Unbatch(child=self._root))

    def cache(self, path: str | os.PathLike[str] | None = None, *, max_bytes: int | None = None, version: str | int = "") -> Dataset:
        """Compute each element once and keep it: in memory, or in a folder that survives the process.

        Later passes, feeds and `ds[i]` read what was kept. It is computed as of epoch 0, so what is random or shuffled below a cache is
        the same in every epoch; what stands above still differs. What does not fit `max_bytes` is computed each time: the same elements.
        Workers that miss an element at the same moment each compute it, and one result is kept: none waits for another.
        An element is a tree of dict, tuple and list over arrays, numbers, str and bytes; its arrays come back read-only, so no function
        can change what is kept, and a function that writes into its argument must copy first.

        In memory it belongs to this dataset: all feeds of it share it, and it is freed with it. In a folder it is found again by the plan
        below it, with functions by name and module, and by the fingerprints of the data. The code of a function is not looked at, nor data
        that a fingerprint does not show: after such a change give another `version`. Several processes may use one folder at once. Records
        that are damaged are computed again; when the folder cannot be written, the run goes on without storing, with one warning.

        Args:
            path: the folder; several plans may share it. None for memory.
            max_bytes: of memory, by default 1 GiB; of the whole folder, by default no limit.
            version: names what the plan does not say.

        Raises:
            PlanError: behind a filter, flat_map or generator; above a map with `concurrency=`; with a path above a function that has no
                name of its own (a lambda, a partial, one with values of its own) and without `version`.
        """
        check.indexable(self._root, "cache", _CACHE_BELOW)
        check.shared_workers(self._root, "cache")
        size = None if max_bytes is None else check.count_argument(max_bytes, "max_bytes", "cache", least=1)
        folder = None if path is None else check.path_argument(path, "path", "cache")
        _check_cache(self._root, folder, str(version))
        store = _store(self._root, folder, size, str(version))
        return self._with(plan.Cache(child=self._root, store=store, path=folder, max_bytes=size, version=str(version)))


def _policy(on_error: Any, operator: str) -> Policy | None:
    return None if on_error is None else checked_policy(on_error, "on_error", f"{operator}()")


_CACHE_BELOW = "put cache() below the filter, flat_map or unbatch; what a generator gives can be cached when from_source reads it by number"
_MEMORY_BYTES = 1 << 30


def _store(root: plan.Node, folder: str | None, max_bytes: int | None, version: str) -> RecordStore:
    if folder is None:
        from penstock.formats.cache_stores import MemoryStore

        return MemoryStore(_MEMORY_BYTES if max_bytes is None else max_bytes)
    from penstock.formats.cache_stores import DiskStore

    return DiskStore(folder, partial(identity, root, version), max_bytes)


def _check_cache(root: plan.Node, folder: str | None, version: str) -> None:
    """Refuse what a folder cannot be found again by."""
    if folder is None:
        if version:
            raise PlanError(
                f"version={version!r} without a path: memory is never found again", where="cache()", fix="give a path, or leave version out"
            )
        return
    if os.path.isfile(folder):
        raise PlanError(f"{folder!r} is a file", where="cache()", fix="give the path of a folder; it is made when it is not there")
    nameless = None if version else unnamed(root)
    if nameless is not None:
        raise PlanError(
            f"a folder is found again by the names of functions, and {function_name(nameless[0])} says too little: a lambda, a partial "
            "and a function or method with values of its own look the same whatever they do",
            where=f"cache() above map({nameless[1]})",
            fix="use a plain function with a name, or give version=, and another one after each change",
        )
