"""The fluent builder: what to read and what to do with it. Nothing runs until it is fed.

The engine and the sources are imported where they are first needed: `import penstock` costs half as much without them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from penstock._contracts.element import map_leaves, spec_of
from penstock._contracts.event import Listener
from penstock._contracts.options import Options
from penstock._contracts.source import IndexedSource, StreamSource
from penstock._order.arithmetic import INFINITE
from penstock._plan import check
from penstock._plan import node as plan
from penstock._plan.describe import function_name, lines
from penstock._plan.length import is_indexable, length_of
from penstock._plan.random import wants_rng
from penstock.errors import LengthUnknown, OutOfRange, PlanError

if TYPE_CHECKING:
    from penstock.feed import Feed

__all__ = ["Dataset", "from_arrays", "from_generator", "from_source", "read_files", "read_images", "read_list"]

_LATER = (
    "put it below the filter, flat_map or generator (the elements that are left are the same), or feed the result and batch it yourself"
)


class Dataset:
    """A description of elements in an order: a source and operators on it. Immutable and cheap; each method returns a new one.

    `for batch in ds` and `ds.feed()` run it. `len(ds)`, `ds[i]`, `ds.spec()`, `print(ds)` and `ds.explain()` look at it.
    The order is a function of the description alone: it does not depend on workers, blocks or timing.
    """

    __slots__ = ("_options", "_peek", "_root")

    def __init__(self, root: plan.Node, options: Options | None = None) -> None:
        """Wrap a plan. Use the functions `ps.from_...` and `ps.read_...` instead."""
        self._root = root
        self._options = options or Options()
        self._peek: Any = None

    def _with(self, root: plan.Node) -> Dataset:
        return Dataset(root, self._options)

    # -- one to one ---------------------------------------------------------------------------------------------------------------

    def map(self, fn: Callable[..., Any], *, seed: int = 0, name: str | None = None, concurrency: int | None = None) -> Dataset:
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

    def enumerate(self, start: int = 0) -> Dataset:
        """Make each element a tuple (number, element), counted from `start` in each pass."""
        return self._with(plan.Enumerate(child=self._root, start=check.count_argument(start, "start", "enumerate")))

    # -- order --------------------------------------------------------------------------------------------------------------------

    def shuffle(self, buffer_size: int | None = None, seed: int = 0, reshuffle_each_epoch: bool = True) -> Dataset:
        """Put the elements in a random order that the seed determines: of all of them, or inside a window.

        Args:
            buffer_size: None for a global permutation. A number k moves each element less than k places; no data are buffered, and
                k >= len is the global permutation.
            seed: equal seeds give equal permutations of equal lengths.
            reshuffle_each_epoch: whether each pass of a `repeat` above has an order of its own.

        Raises:
            PlanError: behind a filter, flat_map or generator, and on endless datasets.
        """
        check.indexable(self._root, "shuffle", _LATER)
        check.finite(self._root, "shuffle", "shuffle() first, then repeat(): each epoch gets an order of its own")
        size = None if buffer_size is None else check.count_argument(buffer_size, "buffer_size", "shuffle", least=1)
        seed = check.seed_argument(seed, "shuffle")
        return self._with(plan.Shuffle(child=self._root, buffer_size=size, seed=seed, reshuffle_each_epoch=bool(reshuffle_each_epoch)))

    def shard(self, num_shards: int, index: int) -> Dataset:
        """Keep elements index, index + num_shards, ...: one rank's part. All shards together are the whole, in its order."""
        num_shards = check.count_argument(num_shards, "num_shards", "shard", least=1)
        index = check.count_argument(index, "index", "shard")
        if index >= num_shards:
            raise PlanError(f"index={index} of num_shards={num_shards}", where="shard()", fix=f"give an index in 0..{num_shards - 1}")
        return self._with(plan.Shard(child=self._root, num_shards=num_shards, index=index))

    def take(self, count: int) -> Dataset:
        """Keep the first `count` elements of each pass."""
        return self._with(plan.Take(child=self._root, count=check.count_argument(count, "count", "take")))

    def skip(self, count: int) -> Dataset:
        """Leave out the first `count` elements of each pass."""
        return self._with(plan.Skip(child=self._root, count=check.count_argument(count, "count", "skip")))

    def repeat(self, count: int | None = None) -> Dataset:
        """Go through everything below `count` times, or endlessly: epochs. What is shuffled or random below differs in each."""
        number = None if count is None else check.count_argument(count, "count", "repeat", least=1)
        node = plan.Repeat(child=self._root, count=number)
        check.bounded(node, "repeat")
        return self._with(node)

    def concatenate(self, other: Dataset, *more: Dataset) -> Dataset:
        """Deliver all elements of this dataset, then all of the others."""
        parts = (self, other, *more)
        for number, part in enumerate(parts):
            check.indexable(_root_of(part, "concatenate"), "concatenate", _LATER)
            check.shared_workers(part._root, "concatenate")
            if number < len(parts) - 1:
                check.finite(part._root, "concatenate", "put the endless dataset last")
        return self._with(plan.Concatenate(children=tuple(part._root for part in parts)))

    def zip(self, other: Dataset, *more: Dataset) -> Dataset:
        """Pair the elements of several datasets in tuples, as many as the shortest has."""
        parts = (self, other, *more)
        for part in parts:
            check.indexable(_root_of(part, "zip"), "zip", _LATER)
            check.shared_workers(part._root, "zip")
        return self._with(plan.Zip(children=tuple(part._root for part in parts)))

    # -- folds --------------------------------------------------------------------------------------------------------------------

    def filter(self, fn: Callable[[Any], Any], *, name: str | None = None) -> Dataset:
        """Keep the elements for which `fn(element)` is true."""
        check.callable_argument(fn, "filter")
        check.no_rng(fn, "filter")
        return self._with(plan.Filter(child=self._root, fn=fn, name=name or function_name(fn)))

    def flat_map(self, fn: Callable[[Any], Any], *, name: str | None = None) -> Dataset:
        """Replace each element by all elements of `fn(element)`: a list, or anything that can be iterated."""
        check.callable_argument(fn, "flat_map")
        check.no_rng(fn, "flat_map")
        return self._with(plan.FlatMap(child=self._root, fn=fn, name=name or function_name(fn)))

    def unbatch(self) -> Dataset:
        """Split each element along the first dimension of its arrays."""
        return self._with(plan.Unbatch(child=self._root))

    # -- batches ------------------------------------------------------------------------------------------------------------------

    def batch(self, batch_size: int, drop_remainder: bool = False) -> Dataset:
        """Stack `batch_size` elements along a new first dimension.

        Each leaf becomes an array (batch_size, *shape); Python numbers become int64, float64 or bool; str and bytes become object arrays.
        The arrays lie over recycled memory: they stay valid and unchanged as long as you, or any view or tensor over them, hold them.

        Args:
            batch_size: elements per batch.
            drop_remainder: whether to leave out the last batch of a pass when it is not full.
        """
        size = check.count_argument(batch_size, "batch_size", "batch", least=1)
        return self._with(plan.Batch(child=self._root, batch_size=size, drop_remainder=bool(drop_remainder)))

    def padded_batch(self, batch_size: int, padded_shapes: Any = None, padding_values: Any = None, drop_remainder: bool = False) -> Dataset:
        """Like `batch`, for elements whose arrays differ in length: each dimension is padded to the longest of the batch.

        Args:
            batch_size: elements per batch.
            padded_shapes: a shape, or a tree of shapes like the element, to pad to; None or -1 in a shape stands for the longest.
            padding_values: a number, or a tree like the element; 0 by default.
            drop_remainder: as in `batch`.
        """
        size = check.count_argument(batch_size, "batch_size", "padded_batch", least=1)
        node = plan.PaddedBatch(
            child=self._root,
            batch_size=size,
            drop_remainder=bool(drop_remainder),
            padded_shapes=padded_shapes,
            padding_values=padding_values,
        )
        return self._with(node)

    # -- running ------------------------------------------------------------------------------------------------------------------

    def prefetch(self, buffer_size: int) -> Dataset:
        """Keep at least `buffer_size` finished batches ahead of the consumer, if the byte budget allows it."""
        size = check.count_argument(buffer_size, "buffer_size", "prefetch")
        return self._with(plan.Prefetch(child=self._root, buffer_size=size))

    def with_options(self, **options: Any) -> Dataset:
        """Return the same dataset with other defaults for `feed`; the names are those of `ps.Options`."""
        return Dataset(self._root, _options(self._options, options))

    def feed(self, *, listeners: Sequence[Listener] = (), **options: Any) -> Feed:
        """Return a new feed. Options as in `ps.Options`: num_workers, executor, memory_bytes, grace_period_s.

        Args:
            listeners: callables that are given every event of the engine, from its threads; they must be quick.
            **options: override those of `with_options`.
        """
        from penstock.feed import Feed

        return Feed(self._root, _options(self._options, options), listeners)

    def __iter__(self) -> Iterator[Any]:
        """Return a new feed with default options."""
        return self.feed()

    # -- looking ------------------------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        """Return the number of elements.

        Raises:
            TypeError: when it is endless, or only known after reading.
        """
        length = length_of(self._root)
        if length is None or length == INFINITE:
            what = "endless" if length == INFINITE else "only known after reading (a filter, flat_map, unbatch or generator)"
            raise LengthUnknown(f"the length of this dataset is {what}", where="len(ds)", fix="count while you iterate, or use take(n)")
        return int(length)

    def __bool__(self) -> bool:
        """Return True: a dataset is a description, whatever it will give; `if ds:` does not count it."""
        return True

    def __getitem__(self, index: int) -> Any:
        """Compute element `index` in the caller's thread: what the feed delivers at that place.

        Raises:
            IndexError: when it is out of range. Negative indices count from the end.
            PlanError: behind a filter, flat_map, unbatch or generator.
        """
        check.indexable(self._root, "ds[i]", "iterate, or index the dataset below the filter")
        length = length_of(self._root)
        place = check.count_argument(index, "index", "ds[i]", least=-(2**63))
        if place < 0 and length not in (None, INFINITE):
            place += int(length or 0)
        if place < 0 or (length is not None and place >= length):
            raise OutOfRange(f"index {index} of {length} elements", where="ds[i]", fix="use 0..len(ds)-1")
        from penstock._engine.peek import Peek

        if self._peek is None:
            self._peek = Peek(self._root)
        return self._peek.element(place)

    def spec(self) -> Any:
        """Push one element through and return the tree of `ArraySpec` (shape, dtype) of its leaves.

        A generator is started for it, and closed again.
        """
        if is_indexable(self._root):
            return map_leaves(spec_of, self[0])
        with self.feed(executor="inline") as feed:
            for element in feed:
                return map_leaves(spec_of, element)
        raise PlanError("the dataset gave no element to take a spec from", where="ds.spec()", fix="check the source and the filters")

    def explain(self) -> str:
        """Show how the plan will run: segments, stages, what is fused, what is written straight into the batch."""
        from penstock._engine.explain import explain

        return explain(self._root)

    def __repr__(self) -> str:
        """Show the plan, from the source up."""
        length = length_of(self._root)
        count = "unknown length" if length is None else "endless" if length == INFINITE else f"{length} elements"
        return "\n".join([f"Dataset ({count})", *("  " + line for line in lines(self._root))])


def _options(base: Options, changes: dict[str, Any]) -> Options:
    known = Options.__dataclass_fields__
    for name in changes:
        if name not in known:
            raise PlanError(f"there is no option {name!r}", where="feed options", fix=f"the options are {', '.join(sorted(known))}")
    return replace(base, **changes)


def _root_of(part: Any, operator: str) -> plan.Node:
    if not isinstance(part, Dataset):
        raise PlanError(f"{part!r} is not a Dataset", where=f"{operator}()", fix="wrap it with ps.from_source or ps.from_arrays")
    return part._root


def _read(source: IndexedSource) -> Dataset:
    return Dataset(plan.Read(source=source))


def from_arrays(tree: Any) -> Dataset:
    """Read elements from arrays: a tree of arrays whose first dimensions are equal; element i is the tree of their rows i.

    Memory-mapped arrays are read as they are used. Whole blocks are gathered at once.

    Raises:
        PlanError: when lengths differ or a leaf is no array.
    """
    from penstock.sources import ArraySource

    return _read(ArraySource(tree))


def from_source(source: Any) -> Dataset:
    """Read elements from anything with `__len__` and `__getitem__`: a list, a torch map-style dataset, a Hugging Face dataset.

    It is read from several threads at once. One with `__getitems__(indices) -> list` is asked for whole blocks.
    An object that satisfies `IndexedSource` is used as it is.
    """
    from penstock.sources import IndexableSource

    return _read(source if isinstance(source, IndexedSource) else IndexableSource(source))


def from_generator(fn: Callable[[], Any], *, fast_forward: bool = False, length: int | None = None) -> Dataset:
    """Read elements from `fn()`, a new iterator for each pass. One thread reads it, ahead of the consumer.

    Args:
        fn: a callable without arguments.
        fast_forward: allow a resume to read and drop what was already delivered; without it the feed has no state.
        length: how many elements a pass has, if known: then another number is an error.
    """
    from penstock.sources import GeneratorSource

    source: StreamSource = GeneratorSource(fn, fast_forward=fast_forward, length=length)
    return Dataset(plan.ReadStream(source=source))


def read_list(
    list_file: str | os.PathLike[str],
    root: str | os.PathLike[str] | None = None,
    *,
    label: bool = True,
    num_classes: int | None = None,
    duplicates: str = "keep",
) -> Dataset:
    """Read the files of a list: lines `path label` give elements {"path": str, "data": bytes, "label": int}.

    Args:
        list_file: text, UTF-8; blank lines and lines that begin with # are skipped.
        root: the folder that relative paths start from; the list's own folder by default.
        label: False for lines that are only paths.
        num_classes: refuse labels outside 0..num_classes-1 here, rather than in an assertion on the accelerator.
        duplicates: "keep" (they are counted in `print(ds)`), "drop" or "error".

    Raises:
        ListFileError: with the number of the first bad line.
    """
    from penstock.sources import ListSource

    return _read(ListSource(list_file, root, label=label, num_classes=num_classes, duplicates=duplicates))


def read_images(folder: str | os.PathLike[str]) -> Dataset:
    """Read a folder with one sub-folder of images per class: {"path": str, "data": bytes, "label": int}, classes in sorted order."""
    from penstock.sources import ImageFolderSource

    return _read(ImageFolderSource(folder))


def read_files(pattern: Any) -> Dataset:
    """Read whole files that match a glob pattern (`**` for any depth) or a list of patterns: {"path": str, "data": bytes}, sorted."""
    from penstock.sources import FilesSource

    return _read(FilesSource(pattern))
