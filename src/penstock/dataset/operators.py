"""The methods of a dataset that add an operator: on elements, on their order, and on groups of them."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from types import FunctionType
from typing import TYPE_CHECKING, Any, Literal, Self, cast

import numpy as np

from penstock._contracts.arguments import listed, real_number, whole_number
from penstock._contracts.element import is_masked, parts_of
from penstock._contracts.options import Options
from penstock._contracts.policy import Policy, checked_policy
from penstock._contracts.storage import RecordStore
from penstock._plan import check
from penstock._plan import node as plan
from penstock._plan.base import function_name, groups_of, is_async, walk, wants_rng
from penstock._plan.facts import declared, identity_with_files, is_indexable, length_of, unnamed
from penstock.dataset.foreign import checked_keywords
from penstock.errors import PlanError

if TYPE_CHECKING:
    from penstock.dataset.builder import Dataset


LATER = (
    "put it before the filter, flat_map or generator (the elements that are left are the same), or feed the result and batch it yourself"
)
_HAS_KEYWORDS = 0x08  # inspect.CO_VARKEYWORDS: a method that takes any keyword looks at them itself


class Chaining:
    """Holds a plan; each builder method returns a new holder."""

    __slots__ = ("_num_iterated", "_options", "_peek", "_root", "_tuning_cache")

    def __init__(self, root: plan.Node, options: Options | None = None) -> None:
        """Wrap a plan. Use the functions `ps.from_...` and `ps.read_...` instead."""
        self._root = root
        self._options = options or Options()
        self._peek: Any = None
        self._tuning_cache: Any = None  # what its feeds found out about sizes
        self._num_iterated = 0

    def __init_subclass__(cls) -> None:
        """Have the public methods refuse keywords that they do not have in words of Penstock."""
        for name, method in list(vars(cls).items()):
            if isinstance(method, FunctionType) and not name.startswith("_") and not method.__code__.co_flags & _HAS_KEYWORDS:
                setattr(cls, name, checked_keywords(method))

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the plan and the options.

        Raises:
            PlanError: it has a cache.
        """
        if not all(node.can_pickle for node in walk(self._root)):
            raise PlanError(
                "what a cache keeps is counted and locked in this process, so it cannot be pickled or copied",
                where="pickle of a Dataset with cache()",
                fix="pickle the dataset before cache(), and call cache() on it in the other process; with the same folder both share it",
            )
        return type(self), (self._root, self._options)

    def __copy__(self) -> Self:
        """Return itself: a dataset does not change."""
        return self

    def _with(self, root: plan.Node) -> Dataset:
        check.bounded(root)
        return cast("Dataset", type(self)(root, self._options))


def branches(parts: Iterable[Any], operator: str) -> tuple[plan.Node, ...]:
    """Return the plans of several datasets that an operator takes elements of by position.

    Raises:
        PlanError: one is no dataset, has no positions, or has workers of its own.
    """
    roots = []
    for part in parts:
        if not isinstance(part, Chaining):
            raise PlanError(f"{part!r} is not a Dataset", where=f"{operator}()", fix="wrap it with ps.from_source or ps.from_arrays")
        check.indexable(part._root, operator, LATER)
        check.shared_workers(part._root, operator)
        roots.append(part._root)
    return tuple(roots)


# -- elements ---------------------------------------------------------------------------------------------------------------------

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
        executor: Literal["threads", "processes"] | None = None,
        on_error: Policy | None = None,
        output_spec: Any = None,
    ) -> Dataset:
        """Replace each element by `fn(element)`.

        One thread calls `fn`. `feed(num_workers=N)` calls it in N worker processes. Counters, lists and globals that it changes stay there.

        Args:
            fn: any callable. One with a parameter named `rng` gets a `numpy.random.Generator` for it that depends only on the seed, this
                operator's place, the epoch and the element: the same for any number of workers, other in every epoch. An `async def`
                function is awaited, on an event loop that the feed runs in a thread of its own.
            seed: of `rng`.
            name: of the stage in errors and figures; the function's name by default.
            concurrency: calls at a time, in workers of its own: threads, unless `executor` says "processes". Of an `async def` function
                calls in flight, by default 32.
            executor: of these workers: "threads" for what waits, "processes" for code that keeps the interpreter lock.
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
        concurrency = check.workers_argument(concurrency, executor, asynchronous=asynchronous)
        stage = name or getattr(fn, "name", None) or function_name(fn)
        node = plan.Map(
            child=self._root,
            fn=fn,
            name=stage if isinstance(stage, str) else function_name(fn),
            seed=check.seed_argument(seed, "map"),
            random=wants_rng(fn),
            concurrency=_IN_FLIGHT if asynchronous and concurrency is None else concurrency,
            executor=executor,
            asynchronous=asynchronous,
            on_error=_policy(on_error, "map"),
            output_spec=None if output_spec is None else declared(output_spec),
        )
        return self._with(node)

    def enumerate(self, start: int = 0) -> Dataset:
        """Make each element a tuple (number, element), counted from `start` in each pass."""
        return self._with(plan.Enumerate(child=self._root, start=check.count_argument(start, "start", "enumerate")))

    def filter(
        self, fn: Callable[[Any], Any] | None = None, *, by: str | None = None, name: str | None = None, on_error: Policy | None = None
    ) -> Dataset:
        """Keep the elements for which `fn(element)` is true, or whose known number `by` is not 0.

        With `by`, what is left has positions: `len`, `ds[i]`, `shuffle` and `shard` work behind it, and nothing is computed of the others.

        Args:
            fn: any callable.
            by: the name of a number that `measure` has found below.
            name: as for `map`.
            on_error: as for `map`.

        Raises:
            PlanError: neither or both are given; no such number is known, or the elements have another order in each pass.
        """
        if by is not None:
            from penstock._order.planned import FilteredOrder
            from penstock.dataset.known import ByNumber

            for argument, given in (("fn", fn), ("name", name), ("on_error", on_error)):
                check.instead_of_by(given, argument, "filter")
            return self._with(ByNumber(by, "filter", FilteredOrder, f"filter(by={by!r})")(self._root))
        check_function(fn, "filter")
        assert fn is not None
        return self._with(plan.Filter(child=self._root, fn=fn, name=name or function_name(fn), on_error=_policy(on_error, "filter")))

    def flat_map(self, fn: Callable[[Any], Any], *, name: str | None = None, on_error: Policy | None = None) -> Dataset:
        """Replace each element by all elements of `fn(element)`: a list or other iterable. `name` and `on_error` as for `map`."""
        check_function(fn, "flat_map")
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
        check_function(class_fn, "rejection_resample")
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
        below it, with functions by name and module, by the fingerprints of the data, and by size, times and inode of each input file. For
        a change of a function's code, or of data that shows in none of these, give another `version`. Several processes may use one
        folder. Records that are damaged are computed again; when the folder cannot be written, the run warns once and does not store.

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


def check_function(fn: Any, operator: str) -> None:
    """Refuse what cannot be called, or has to be awaited or given a generator."""
    check.callable_argument(fn, operator)
    check.no_async(fn, operator)
    check.no_rng(fn, operator)


def _policy(on_error: Any, operator: str) -> Policy | None:
    return None if on_error is None else checked_policy(on_error, f"{operator}()")


_CACHE_BELOW = (
    "put cache() before the filter, flat_map or unbatch; what a generator gives can be cached when from_source reads it by number"
)
_MEMORY_BYTES = 1 << 30


def _store(root: plan.Node, folder: str | None, max_bytes: int | None, version: str) -> RecordStore:
    if folder is None:
        from penstock.formats.cache_stores import MemoryStore

        return MemoryStore(_MEMORY_BYTES if max_bytes is None else max_bytes)
    from penstock.formats.cache_stores import DiskStore

    return DiskStore(folder, partial(identity_with_files, root, version), max_bytes)


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
            where=f"cache() after map({nameless[1]})",
            fix="use a plain function with a name, or give version=, and another one after each change",
        )


# -- order ------------------------------------------------------------------------------------------------------------------------

_BUFFER_BYTES = 256 << 20
_ROUNDING = 1e-9
"""What decimal fractions that add up to 1 may miss it by as floats."""


class OrderMethods(Chaining):
    """Shuffle, shard, repeat and their kin."""

    __slots__ = ()

    def shuffle(
        self,
        buffer_size: int | None = None,
        seed: int = 0,
        reshuffle_each_epoch: bool = True,
        *,
        buffer_bytes: int | None = None,
        window_groups: int | None = None,
    ) -> Dataset:
        """Put the elements in a random order that the seed determines: of all of them, or inside a window.

        Behind a filter, flat_map or generator, where the elements have no positions, a buffer of `buffer_size` elements is kept and a
        random one of them comes next, as in tf.data; a saved state then holds the numbers of those in the buffer, and a resume reads them
        again.

        Args:
            buffer_size: None for a global permutation. A number k moves each element less than k places; no data are buffered, and
                k >= len is the global permutation.
            seed: equal seeds give equal permutations of equal lengths.
            reshuffle_each_epoch: whether each pass of a `repeat` above has an order of its own.
            buffer_bytes: bound on the elements in the buffer, where there is one; 256 MB by default. It depends on the data alone, so
                the order does too.
            window_groups: for a source that lies in groups (row groups of Parquet, files of records): the groups come in a random order,
                and their elements in a random one inside windows of so many groups. So a window's groups are read once, while it lasts;
                the more groups, the closer to a global permutation, which it is from their number on.

        Raises:
            PlanError: without `buffer_size` behind a filter, flat_map or generator, and on endless datasets; `window_groups` without
                groups, or with `buffer_size`.
        """
        reshuffle = check.flag_argument(reshuffle_each_epoch, "reshuffle_each_epoch", "shuffle")
        groups = None if window_groups is None else check.count_argument(window_groups, "window_groups", "shuffle", least=1)
        if groups is not None and buffer_size is not None:
            raise PlanError(
                f"a window is of {groups} groups or of {buffer_size} elements, not both", where="shuffle()", fix="give one of the two"
            )
        size = None if buffer_size is None else check.count_argument(buffer_size, "buffer_size", "shuffle", least=1)
        seed = check.seed_argument(seed, "shuffle")
        num_bytes = 0
        if size is not None and not is_indexable(self._root):
            num_bytes = check.count_argument(_BUFFER_BYTES if buffer_bytes is None else buffer_bytes, "buffer_bytes", "shuffle", least=1)
        else:
            check.indexable(self._root, "shuffle", f"give it a buffer_size={'' if groups is None else ' instead'}, or {LATER}")
            check.finite(self._root, "shuffle", "shuffle() first, then repeat(): each epoch gets an order of its own")
            if groups is not None:
                groups_of(self._root)
        sizes: dict[str, Any] = {"buffer_size": size, "buffer_bytes": num_bytes, "window_groups": groups}
        return self._with(plan.Shuffle(child=self._root, seed=seed, reshuffle_each_epoch=reshuffle, **sizes))

    def shard(self, num_shards: int, index: int) -> Dataset:
        """Keep elements index, index + num_shards, ...: one rank's part. All shards together are the whole, in its order."""
        check.not_as_completed(self._root, "shard")
        index, num_shards = check.part_arguments(index, num_shards, ("index", "num_shards"), "shard")
        return self._with(plan.Shard(child=self._root, num_shards=num_shards, index=index))

    def shard_by_rank(
        self, even: Literal["drop", "pad", "mask", "error"] = "drop", *, rank: int | None = None, num_ranks: int | None = None
    ) -> Dataset:
        """Keep this rank's part: of each round of `num_ranks` elements the one number `rank`. All ranks have equally many, in any pipeline.

        Put it above what leaves elements out or makes several of one (filter, flat_map, buckets, packs): each rank computes those for all
        elements, and all come to the same end without a word between them. Behind an endless `repeat()` they may stand above it: each rank
        then computes its own elements only, and `take(n)` on top ends all ranks after as many steps. Where `torch.distributed` or JAX runs
        with several processes, a feed compares the plans, seeds and states of all ranks before its first batch.

        A state that was saved on all ranks after the same step goes on with another number of ranks, where nothing but map, batch, prefetch
        and repeat stands above: no element of a round is lost or repeated. With anything else above, a state is that of its rank alone.

        Args:
            even: what becomes of a last round that is not complete, in each pass: "drop" leaves it out, "pad" gives its first elements to
                the ranks that would have none, "mask" does so too and adds a field `valid` to each element, which is False for these
                copies alone, and "error" raises: here where the length is known, else at the end.
            rank: this process's number, from 0. By default it is that of torch.distributed or JAX where one of them is initialized, else
                that of the environment: torchrun, SLURM (srun), Open MPI, MPICH. Where none of these tells, there is one rank.
            num_ranks: how many there are; with `rank`. Nothing is compared then: give the numbers where only some processes take batches,
                or where several need the same ones, as with tensor parallelism.

        Raises:
            PlanError: a `rank` without `num_ranks` or beyond it; a shard below already; with "error", a length that is no multiple;
                with "mask", elements that are no dicts or have a field `valid`, or a `drop_remainder=True`.
        """
        from penstock.adapters.ranks import current_rank

        check.not_as_completed(self._root, "shard_by_rank")
        given = rank is not None or num_ranks is not None
        own, count = (rank, num_ranks) if given else current_rank()
        if own is None or count is None:
            raise PlanError("one of rank= and num_ranks= is missing", where="shard_by_rank()", fix="give both, or none of them")
        own, count = check.part_arguments(own, count, ("rank", "num_ranks"), "shard_by_rank")
        shard = plan.Shard(child=self._root, num_shards=count, index=own, even=even, found=not given)
        return self._with(check.rank_shard(shard))

    def take(self, count: int) -> Dataset:
        """Keep the first `count` elements of each pass."""
        return self._with(plan.Take(child=self._root, count=check.count_argument(count, "count", "take")))

    def skip(self, count: int) -> Dataset:
        """Leave out the first `count` elements of each pass."""
        return self._with(plan.Skip(child=self._root, count=check.count_argument(count, "count", "skip")))

    def split(self, *fractions: float, seed: int = 0) -> tuple[Dataset, ...]:
        """Divide the elements at random into disjoint parts: `train, val = ds.split(0.9, seed=7)`.

        It is `shuffle(seed=seed, reshuffle_each_epoch=False)` with `skip` and `take`: arithmetic that holds no indices. Equal seeds give
        equal parts of datasets of equal lengths. The elements of a part come in a random order that is the same in every epoch; a
        `shuffle` above gives each epoch another one.

        Args:
            *fractions: the share of each part. What they leave of 1 is one more part, the last; none if they add up to 1. A part ends at
                the number of elements times the sum of the fractions up to its own, rounded to the nearest whole number, half up.
            seed: of the assignment.

        Returns:
            One dataset for each part.

        Raises:
            PlanError: behind a filter, flat_map or generator, and on endless datasets; above a `shuffle` that reshuffles or a `repeat`,
                which would put an element in several parts; fractions that are no shares, or a part without an element.
        """
        check.indexable(self._root, "split", "split() before the filter, flat_map or generator, and call that on each part")
        check.finite(self._root, "split", "split() first, and repeat() the part to train on")
        check.one_order(self._root, "split")
        shuffled = plan.Shuffle(child=self._root, buffer_size=None, seed=check.seed_argument(seed, "split"), reshuffle_each_epoch=False)
        parts, begin = [], 0
        for end in _ends(fractions, int(length_of(self._root) or 0)):
            parts.append(self._with(shuffled).skip(begin).take(end - begin))
            begin = end
        return tuple(parts)

    def repeat(self, count: int | None = None) -> Dataset:
        """Go through everything below `count` times, or endlessly: epochs. What is shuffled or random below differs in each."""
        no_end = ", or leave it out to repeat without end"
        number = None if count is None else check.count_argument(count, "count", "repeat", least=1, otherwise=no_end)
        return self._with(plan.Repeat(child=self._root, count=number))

    def concatenate(self, other: Chaining, *more: Chaining) -> Dataset:
        """Deliver all elements of this dataset, then all of the others."""
        roots = branches((self, other, *more), "concatenate")
        for root in roots[:-1]:
            check.finite(root, "concatenate", "put the endless dataset last")
        return self._with(plan.Concatenate(children=roots))

    def zip(self, other: Chaining, *more: Chaining) -> Dataset:
        """Pair the elements of several datasets in tuples, as many as the shortest has."""
        return self._with(plan.Zip(children=branches((self, other, *more), "zip")))

    def mix(
        self,
        other: Chaining,
        *more: Chaining,
        weights: Sequence[float] | Mapping[int, Sequence[float]] | None = None,
        stop: Literal["first_exhausted", "all_exhausted"] = "first_exhausted",
        by: str | None = None,
    ) -> Dataset:
        """Take elements of this dataset and the others in turn, in proportion to `weights`.

        No random number is used: which dataset gives element t is arithmetic, and before any t each has given its share of t, less or more
        a few elements (3/4 of the binary logarithm of the number of datasets). A state may be loaded with other weights, or with more
        datasets behind the others, if every operator above is a map, take, skip, shard, enumerate, zip, batch or prefetch. They hold for
        what follows, and a schedule from the position on that was reached.

        Args:
            other: a second dataset.
            *more: further ones.
            weights: one positive number per dataset, this one first; equal by default. Their sum does not matter. A schedule is a dict
                of the position from which each list holds: `{0: [0.7, 0.3], 100_000: [0.5, 0.5]}`. Positions count the elements of one
                pass of the mix. A weight may be 0 for a while.
            stop: "first_exhausted" ends before the first element that a dataset does not have. With "all_exhausted" a dataset that has
                ended starts over, as its next epoch, until each was seen whole at least once.
            by: the name of a number that `measure` has found in each dataset, such as its tokens. Weights are then shares of that number,
                over whole passes of the datasets, and not of elements.

        Raises:
            PlanError: for other weights; for a number that is not known of each dataset, or is 0 in all elements of one; for a dataset
                behind a filter, flat_map or generator; and with "all_exhausted" for one that is endless or empty.
        """
        roots = branches((self, other, *more), "mix")
        if stop not in ("first_exhausted", "all_exhausted"):
            raise PlanError(f"stop={stop!r} is no way to stop", where="mix()", fix="give 'first_exhausted' or 'all_exhausted'")
        history = check.weights_argument(weights, len(roots), "mix")
        if by is not None:
            from penstock.dataset.known import weighed

            history = weighed(roots, history, by)
        for number, root in enumerate(roots if stop == "all_exhausted" else ()):
            check.finite(root, "mix(stop='all_exhausted')", "take(n) of the endless dataset, or stop='first_exhausted'")
            if length_of(root) == 0:
                raise PlanError(f"dataset {number} is empty and cannot start over", where="mix(stop='all_exhausted')", fix="leave it out")
            if not history[-1][1][number]:
                raise PlanError(
                    f"dataset {number} has the weight 0 at the end, and 'all_exhausted' waits until it was seen whole",
                    where="mix(stop='all_exhausted')",
                    fix="give it a last weight above 0, or stop='first_exhausted'",
                )
        return self._with(plan.Mix(children=roots, history=history, restart=stop == "all_exhausted"))

    def interleave(self, fn: Callable[[Any], Chaining], cycle_length: int | None = None, block_length: int = 1) -> Dataset:
        """Make a dataset of each element, and take elements of `cycle_length` of them in turn, `block_length` from each.

        The order is tf.data's: a dataset keeps its place in the cycle until it gives less than `block_length` (or nothing) at its turn;
        when that place comes round again, the next dataset begins there. `fn` is called now, once per element, in this thread.

        Args:
            fn: takes one element and returns a Dataset whose length and positions are known.
            cycle_length: how many are open at a time; all of them by default.
            block_length: how many elements one turn gives.

        Raises:
            PlanError: when this dataset, or one that `fn` returns, is endless or stands behind a filter, flat_map or generator; when this
                one would be another in another epoch, as after a `shuffle` that reshuffles.
        """
        check.callable_argument(fn, "interleave")
        check.indexable(self._root, "interleave", LATER)
        check.finite(self._root, "interleave", "take(n) first: the datasets are made when the pipeline is")
        for node in walk(self._root):
            if node.varies:
                raise PlanError(
                    f"interleave makes its datasets once, so {node.line()} before it would be the same in each epoch",
                    where="interleave()",
                    fix="put it behind interleave(), or give a shuffle before it reshuffle_each_epoch=False",
                )
        cycle = None if cycle_length is None else check.count_argument(cycle_length, "cycle_length", "interleave", least=1)
        block = check.count_argument(block_length, "block_length", "interleave", least=1)
        from penstock._engine.lowering import Evaluator

        roots = branches(map(fn, map(Evaluator(self._root).element, range(int(length_of(self._root) or 0)))), "interleave")
        for root in roots:
            check.finite(root, "interleave", "take(n) of each dataset")
        if not roots:
            return self._with(self._root)  # which is as empty, and has a source
        return self._with(plan.Interleave(children=roots, name=function_name(fn), cycle_length=cycle or len(roots), block_length=block))

    def as_completed(self) -> Dataset:
        """Go on with the elements in the order in which they are finished: a slow one does not hold up those behind it.

        For elements that wait: simulations, requests to a slow server. Give `feed(executor="threads", num_workers=...)` or an async
        function, for otherwise one call is made at a time. What follows takes them as an ordinary stream, so a batch is full
        as soon as enough of them are finished. Each element comes exactly once, and a saved state resumes exactly; which elements stand
        together in a batch differs from run to run. The end of a pass waits for all of its elements.

        Raises:
            PlanError: after a batch, after an operator that counts elements behind a filter, flat_map or generator, in a branch, or twice.
        """
        check.as_completed(self._root)
        return self._with(plan.AsCompleted(child=self._root))

    def prefetch(self, buffer_size: int) -> Dataset:
        """Keep at least `buffer_size` finished batches ahead of the consumer, if the byte budget allows it."""
        if isinstance(buffer_size, int) and buffer_size == -1:
            raise PlanError(
                "buffer_size=-1 is not a whole number >= 0",
                where="prefetch()",
                fix="leave prefetch() out where tf.data has AUTOTUNE: a feed reads ahead by itself; or give buffer_size a number",
            )
        size = check.count_argument(buffer_size, "buffer_size", "prefetch")
        return self._with(plan.Prefetch(child=self._root, buffer_size=size))


def _ends(fractions: tuple[Any, ...], length: int) -> list[int]:
    """Return where each part of a split ends."""
    shares = [share for share in map(real_number, fractions) if share is not None and share > 0]
    total = math.fsum(shares)
    if not shares or len(shares) != len(fractions) or total > 1 + _ROUNDING:
        raise PlanError(
            f"the fractions {', '.join(map(repr, fractions)) or '()'} are no shares of 1",
            where="split()",
            fix="give positive numbers that add up to 1 or less, such as split(0.9) or split(0.8, 0.1)",
        )
    sums = [math.fsum(shares[: number + 1]) for number in range(len(shares))]
    ends = [min(length, int(length * share + 0.5)) for share in sums]
    if total > 1 - _ROUNDING:
        ends[-1] = length
    else:
        ends.append(length)
    sizes = [end - begin for begin, end in zip([0, *ends], ends, strict=False)]
    if 0 in sizes:
        raise PlanError(
            f"{length} elements in parts of {', '.join(map(str, sizes))}: a part would be empty",
            where="split()",
            fix="give other fractions, or more elements",
        )
    return ends

    # -- groups -----------------------------------------------------------------------------------------------------------------------


class GroupMethods(Chaining):
    """Batches and their kin."""

    __slots__ = ()

    def batch(self, batch_size: int, drop_remainder: bool = False, collate_fn: Callable[[list[Any]], Any] | None = None) -> Dataset:
        """Stack `batch_size` elements along a new first dimension.

        Each field becomes an array (batch_size, *shape); Python numbers become int64, float64 or bool; str and bytes become object arrays.
        A list of numbers is an array.
        The arrays lie over recycled memory: they stay valid and unchanged as long as you, or any view or tensor over them, hold them.

        Args:
            batch_size: elements per batch.
            drop_remainder: whether to leave out the last batch of a pass when it is not full.
            collate_fn: makes a batch of a list of elements, in a worker, instead of stacking them, as DataLoader's does. Where it only
                pads or joins, `padded_batch` and `ragged_batch` cost less.
        """
        size = check.count_argument(batch_size, "batch_size", "batch", least=1)
        if collate_fn is not None:
            check.callable_argument(collate_fn, "batch")
        drops = check.drop_remainder_argument(drop_remainder, "batch", self._root)
        return self._with(plan.Batch(child=self._root, batch_size=size, drop_remainder=drops, collate_fn=collate_fn))

    def padded_batch(self, batch_size: int, padded_shapes: Any = None, padding_values: Any = None, drop_remainder: bool = False) -> Dataset:
        """Like `batch`, for elements whose arrays differ in length: each dimension is padded to the longest of the batch.

        Args:
            batch_size: elements per batch.
            padded_shapes: a shape, or a tree of shapes like the element, to pad to; None or -1 in a shape stands for the longest, and so
                does a field that is left out.
            padding_values: a number, or a tree like the element with a value for each field; 0 by default. A value that a field's dtype
                does not hold as it is is an error at the first batch; only a float may be rounded.
            drop_remainder: as in `batch`.

        Raises:
            PlanError: when a shape is no tuple of whole numbers, or a padding value no single value.
        """
        size = check.count_argument(batch_size, "batch_size", "padded_batch", least=1)
        check_padding("padded_batch", padded_shapes, padding_values)
        node = plan.PaddedBatch(
            child=self._root,
            batch_size=size,
            drop_remainder=check.drop_remainder_argument(drop_remainder, "padded_batch", self._root),
            padded_shapes=padded_shapes,
            padding_values=padding_values,
        )
        return self._with(node)

    def ragged_batch(self, batch_size: int, drop_remainder: bool = False, ragged: Sequence[str | int] | None = None) -> Dataset:
        """Like `batch`, for elements whose arrays differ in length: they are joined one after the other, with nothing between them.

        A joined field becomes {"values": array, "row_splits": int64 array of batch_size + 1 borders}: row i is
        values[row_splits[i]:row_splits[i + 1]], as in tf.RaggedTensor, Arrow lists and torch nested tensors. Only the first dimension may
        differ. Which fields are joined does not depend on the elements of a batch, so all batches have one structure.

        Args:
            batch_size: elements per batch.
            drop_remainder: as in `batch`.
            ragged: the fields to join: keys of the elements' dict or places in their tuple, with all that is below them; the others are
                stacked, and must be equal in shape. By default every array that has a dimension is joined.

        Raises:
            PlanError: when `ragged` is no list of names and places.
        """
        size = check.count_argument(batch_size, "batch_size", "ragged_batch", least=1)
        fields = None if ragged is None else _fields(ragged)
        drops = check.drop_remainder_argument(drop_remainder, "ragged_batch", self._root)
        return self._with(plan.RaggedBatch(child=self._root, batch_size=size, drop_remainder=drops, ragged=fields))

    def window(self, size: int, shift: int | None = None, stride: int = 1, drop_remainder: bool = False) -> Dataset:
        """Make each element a window over neighbours: elements i * shift + stride * j for j below `size`, stacked as `batch` stacks them.

        tf.data makes a small dataset of each window; here a window is one element with a new first dimension. Where positions are known,
        window i is arithmetic: `ds[i]`, `len`, `shuffle` and `shard` above it work, it has no state, and an element that stands in several
        windows is computed for each of them. Behind a filter, flat_map or generator each element is computed once, and a saved state holds
        the numbers of those in the open window.

        Args:
            size: elements per window.
            shift: how far each window lies behind the one before; `size` by default, so that windows do not overlap.
            stride: the distance of neighbours inside a window.
            drop_remainder: whether to leave out windows that are not full. Otherwise one begins at every `shift` as long as there is an
                element, and those at the end of a pass are short.
        """
        size = check.count_argument(size, "size", "window", least=1)
        node = plan.Window(
            child=self._root,
            size=size,
            shift=size if shift is None else check.count_argument(shift, "shift", "window", least=1),
            stride=check.count_argument(stride, "stride", "window", least=1),
            drop_remainder=check.drop_remainder_argument(drop_remainder, "window", self._root),
        )
        return self._with(node)


def _fields(ragged: Any) -> tuple[str | int, ...]:
    """Return the keys and places of fields."""
    items = listed(ragged)
    fields = [field if isinstance(field, str) else whole_number(field) for field in items or ()]
    if items is None or None in fields:
        raise PlanError(
            f"ragged={ragged!r} is no list of fields",
            where="ragged_batch()",
            fix='give the keys of the fields to join, such as ragged=("tokens",), or leave it out to join every array',
        )
    return tuple(field for field in fields if field is not None)


# -- declarations of padding ------------------------------------------------------------------------------------------------------

_NESTS = (dict, list, tuple)


def check_padding(operator: str, shapes: Any, values: Any) -> None:
    """Let pass a tree of shapes and a tree of single values, or None.

    Raises:
        PlanError: a shape is no tuple of sizes, a size no whole number, or a value an array.
    """
    if shapes is not None:
        _check_shapes(shapes, operator, "padded_shapes")
    _check_values(values, operator, "padding_values")


def check_padding_value(operator: str, value: Any) -> None:
    """Let pass one single value, or a dict of such values.

    Raises:
        PlanError: one is an array, dict, tuple or list.
    """
    for name, one in value.items() if isinstance(value, dict) else [("", value)]:
        _check_value(one, operator, f"padding_value[{name!r}]" if isinstance(value, dict) else "padding_value")


def _check_shapes(given: Any, operator: str, path: str) -> None:
    parts = parts_of(given)
    if parts is None:
        raise _refusal(f"{path}={given!r:.60} is no shape", operator)
    if not isinstance(given, dict) and not any(isinstance(item, _NESTS) for item in given):
        for size in given:
            if size is not None and (isinstance(size, bool) or not isinstance(size, (int, np.integer)) or size < -1):
                raise _refusal(f"{path}={given!r:.60} has the size {size!r:.60}, which is no whole number >= 0", operator)
        return
    for key, part in parts:
        if part is not None:
            _check_shapes(part, operator, f"{path}[{key!r}]")


def _refusal(what: str, operator: str) -> PlanError:
    return PlanError(
        what,
        where=f"{operator}()",
        fix="give a tuple with one size per dimension, None for the longest of the batch, or a tree like the element of such tuples",
    )


def _check_values(given: Any, operator: str, path: str) -> None:
    parts = parts_of(given)
    if parts is None:
        _check_value(given, operator, path)
    for key, part in parts or ():
        _check_values(part, operator, f"{path}[{key!r}]")


def _check_value(value: Any, operator: str, path: str) -> None:
    if isinstance(value, _NESTS) or is_masked(value) or np.ndim(value):
        raise PlanError(f"{path}={value!r:.60} is no single value", where=f"{operator}()", fix="give one number, or one text for texts")
