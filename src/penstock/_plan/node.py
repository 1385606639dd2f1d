"""The kinds of nodes of a plan, one per operator: what each holds, and what it means.

`Node` has what holds for most. Nodes do nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

import numpy as np

from penstock._contracts.element import ArraySpec, unflatten
from penstock._contracts.policy import Policy
from penstock._contracts.source import ChunkedSource, ColumnSource, GroupedSource, IndexedSource, StreamSource
from penstock._contracts.storage import RecordStore
from penstock._contracts.transform import BlockFunction, Transform
from penstock._order.arithmetic import INFINITE, Length, batch_length, rank_length, repeat_length, shard_length, window_length
from penstock._order.folds import Even, marked
from penstock._order.mixing import History, MixFold, in_words, mixing
from penstock._plan.base import (
    BranchingNode,
    Descent,
    GroupNode,
    Ints,
    Node,
    OnlyByComputing,
    SelectingNode,
    SourceNode,
    UnaryNode,
    batch_leaf,
    function_name,
    group_mark,
    has_name,
    joined_groups,
    length_of,
    source_groups,
    sources,
    walk,
    wants_rng,
)
from penstock._system.ownership import users_of

__all__ = [
    "AsCompleted",
    "Batch",
    "BatchNode",
    "BucketByLength",
    "Cache",
    "Concatenate",
    "Enumerate",
    "Filter",
    "FlatMap",
    "Interleave",
    "Map",
    "Mix",
    "Node",
    "PaddedBatch",
    "Pick",
    "Prefetch",
    "RaggedBatch",
    "Read",
    "ReadStream",
    "RejectionResample",
    "Repeat",
    "Shard",
    "Shuffle",
    "Skip",
    "Take",
    "Unbatch",
    "Window",
    "Zip",
    "mixes_of",
    "shards_of",
]

Function = Callable[..., Any]


# -- sources ----------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Read(SourceNode):
    """Elements 0..len-1 of an indexed source."""

    source: IndexedSource

    def num_elements(self, below: Sequence[Length]) -> Length:
        return len(self.source)

    def group_starts(self) -> Ints | None:
        return source_groups(self.source) if isinstance(self.source, GroupedSource) else None

    def spec(self, of: Callable[[Node], Any]) -> Any:
        if not isinstance(self.source, ColumnSource):
            raise OnlyByComputing
        return unflatten(self.source.structure(), (batch_leaf(ArraySpec(shape, dtype)) for shape, dtype in self.source.leaves()))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ReadStream(SourceNode):
    """Elements of a source that is read from its beginning."""

    streams: ClassVar[bool] = True

    source: StreamSource

    def num_elements(self, below: Sequence[Length]) -> Length:
        return self.source.declared_length()


# -- what is done to each element ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Map(UnaryNode):
    """`fn(element)`, or `fn(element, rng=generator)` when `random`; awaited when `fn` is `async def`.

    `output_spec` is the tree of `ArraySpec` that its results are declared to have, or None.
    """

    aligned: ClassVar[bool] = True
    per_element: ClassVar[bool] = True
    moves_as: ClassVar[str] = "same"

    fn: Function
    name: str
    seed: int = 0
    random: bool = False
    concurrency: int | None = None
    executor: str | None = None
    asynchronous: bool = False
    on_error: Policy | None = None
    output_spec: Any = None

    @property
    def transform(self) -> tuple[Transform, int] | None:
        return (self.fn, self.seed) if isinstance(self.fn, Transform) else None

    def line(self, *, saved: bool = False) -> str:
        fn = function_name(self.fn)
        if saved and fn != self.name and not isinstance(self.fn, (Transform, BlockFunction)):
            is_own = next(users_of(self.fn), None) is None  # an operator, whose arguments say what it does
            fn = f"{self.name}: {fn}" if is_own else self.name
        seed = f", seed={self.seed}" if self.random else ""
        return f"map({fn}{seed}{'' if self.output_spec is None else f', output_spec={self.output_spec!r}'})"

    def identity(self) -> str:
        return f"{self.line()} of {getattr(self.fn, '__module__', '')} {getattr(self.fn, 'made_by', '')}"

    @property
    def nameless(self) -> tuple[Function, str] | None:
        return None if has_name(self.fn) else (self.fn, self.name)

    @property
    def varies(self) -> bool:
        return wants_rng(self.fn)

    def spec(self, of: Callable[[Node], Any]) -> Any:
        if self.output_spec is None:
            raise OnlyByComputing
        return self.output_spec


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Filter(SelectingNode):
    """Only the elements for which `fn` is true."""

    streams: ClassVar[bool] = True
    per_element: ClassVar[bool] = True

    fn: Function
    name: str
    on_error: Policy | None = None

    def line(self, *, saved: bool = False) -> str:
        return f"filter({self.name if saved else function_name(self.fn)})"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AsCompleted(SelectingNode):
    """The elements in the order in which they are finished."""

    streams: ClassVar[bool] = True

    def num_elements(self, below: Sequence[Length]) -> Length:
        return below[0]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FlatMap(UnaryNode):
    """All elements of `fn(element)`, one after the other."""

    streams: ClassVar[bool] = True
    per_element: ClassVar[bool] = True

    fn: Function
    name: str
    on_error: Policy | None = None

    def line(self, *, saved: bool = False) -> str:
        return f"flat_map({self.name if saved else function_name(self.fn)})"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Unbatch(UnaryNode):
    """The rows of each element."""

    streams: ClassVar[bool] = True
    per_element: ClassVar[bool] = True


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Enumerate(UnaryNode):
    """Pairs (number, element)."""

    aligned: ClassVar[bool] = True

    start: int

    def line(self, *, saved: bool = False) -> str:
        return f"enumerate({self.start or ''})"

    def spec(self, of: Callable[[Node], Any]) -> Any:
        return ArraySpec((), np.dtype(np.int64)), of(self.child)


# -- which elements, in which order -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Shuffle(SelectingNode):
    """A keyed permutation of positions: global without `buffer_size`, inside a window with one.

    Behind a filter or generator, where there are no positions, a buffer of elements, of at most `buffer_bytes`. With `window_groups`,
    groups of the source in another order, and their elements inside windows of so many groups.
    """

    buffer_size: int | None
    seed: int
    reshuffle_each_epoch: bool
    buffer_bytes: int = 0
    window_groups: int | None = None

    def line(self, *, saved: bool = False) -> str:
        size = "" if self.buffer_size is None else f"buffer_size={self.buffer_size}, "
        size += f"buffer_bytes={self.buffer_bytes}, " if self.buffer_bytes else ""
        if self.window_groups is not None:
            size += f"window_groups={self.window_groups}{f' of {group_mark(self.child)}' if saved else ''}, "
        return f"shuffle({size}seed={self.seed}{'' if self.reshuffle_each_epoch else ', reshuffle_each_epoch=False'})"

    def reading_notes(self) -> list[str]:
        out = []
        for source in [node.source for node in sources(self) if isinstance(node.source, ChunkedSource)]:
            kept, count = source.groups_kept(), len(source_groups(source)) - 1
            needed = count if self.window_groups is None else min(self.window_groups, count)
            if kept < needed:
                call = "this shuffle" if self.window_groups is None else f"shuffle(window_groups={self.window_groups})"
                out.append(
                    f"{call} reads {needed} groups of {source.label()} at a time, and about {kept} are kept decoded: groups are decoded "
                    f"again and again; shuffle(window_groups={max(1, kept // 2)}) reads each once, or raise cache_bytes"
                )
        return out

    @property
    def changes_order(self) -> bool:
        return self.reshuffle_each_epoch

    @property
    def varies(self) -> bool:
        return self.reshuffle_each_epoch


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Shard(SelectingNode):
    """Positions index, index + num_shards, index + 2 * num_shards, ...

    With `equal_steps`, a policy that skips an element replaces it by another one of the shard: all shards make as many steps. With `even`,
    all shards have as many elements: of a last round of fewer than num_shards positions "drop" gives none, "pad" gives the first of the
    round again to the shards that have none, "mask" marks these too, and "error" is an error. The rounds begin at position `first`.
    `found` tells that the numbers are those of the process, not given.
    """

    num_shards: int
    index: int
    equal_steps: bool = True
    even: Even | None = None
    first: int = 0
    found: bool = False

    def line(self, *, saved: bool = False) -> str:
        if self.even is not None:
            rank = "" if saved else f", rank={self.index}, num_ranks={self.num_shards}"
            return f"shard_by_rank(even={self.even!r}{rank})"
        return "shard(num_shards, index)" if saved else f"shard({self.num_shards}, {self.index})"

    @property
    def pads(self) -> bool:
        """Whether a shard that would have no element of the last round is given one again."""
        return self.even in ("pad", "mask")

    def spec(self, of: Callable[[Node], Any]) -> Any:
        return marked(of(self.child), ArraySpec((), np.dtype(bool))) if self.even == "mask" else of(self.child)

    def num_elements(self, below: Sequence[Length]) -> Length:
        if self.even is not None:
            return rank_length(below[0], self.num_shards, self.first, padded=self.pads)
        return shard_length(below[0], self.num_shards, self.index)

    def group_starts(self) -> Ints | None:
        below = self.child.group_starts()
        if below is None or self.pads:
            return None
        ends = np.maximum((below - self.first - self.index + self.num_shards - 1) // self.num_shards, 0)
        return np.unique(ends if self.even is None else np.minimum(ends, (int(below[-1]) - self.first) // self.num_shards))

    def given_below(self, position: int) -> Sequence[int | None]:
        return [self.first + position * self.num_shards]

    def descend(self, place: Descent) -> tuple[Node, Descent] | None:
        return None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Take(SelectingNode):
    """The first `count` elements."""

    count: int

    def line(self, *, saved: bool = False) -> str:
        return f"take({self.count})"

    def num_elements(self, below: Sequence[Length]) -> Length:
        return None if below[0] is None else min(below[0], self.count)

    def endless(self, below: Sequence[bool]) -> bool:
        return False

    @property
    def limit(self) -> int | None:
        return self.count

    def group_starts(self) -> Ints | None:
        below = self.child.group_starts()
        return None if below is None else np.unique(np.minimum(below, min(self.count, int(below[-1]))))

    def given_below(self, position: int) -> Sequence[int | None]:
        return [position]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Skip(SelectingNode):
    """All but the first `count` elements. `lead`: count * num_shards less the place that all shards had reached (after a resume)."""

    count: int
    lead: int = 0

    def line(self, *, saved: bool = False) -> str:
        return f"skip({self.count})"

    def num_elements(self, below: Sequence[Length]) -> Length:
        return below[0] if below[0] is None or below[0] == INFINITE else max(0, int(below[0]) - self.count)

    def group_starts(self) -> Ints | None:
        below = self.child.group_starts()
        return None if below is None else np.unique(np.maximum(below - min(self.count, int(below[-1])), 0))

    def given_below(self, position: int) -> Sequence[int | None]:
        return [position + self.count]

    def descend(self, place: Descent) -> tuple[Node, Descent] | None:
        return self.child, place._replace(position=place.position + (0 if place.ended else self.count), lead=self.lead)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Repeat(SelectingNode):
    """`count` passes, or endless ones. After a resume with other shards: the passes from number `first` on, of `whole` in all."""

    moves_as: ClassVar[str] = "repeat"

    count: int | None
    first: int = 0
    whole: int | None = None

    def line(self, *, saved: bool = False) -> str:
        return f"repeat({'' if self.count is None else self.count})"

    def num_elements(self, below: Sequence[Length]) -> Length:
        return repeat_length(below[0], self.count)

    def endless(self, below: Sequence[bool]) -> bool:
        return self.count is None or below[0]

    @property
    def num_passes(self) -> int | None:
        return self.count

    @property
    def changes_order(self) -> bool:
        return self.count != 1

    def given_below(self, position: int) -> Sequence[int | None]:
        return [position if length_of(self.child) == INFINITE else None]

    def descend(self, place: Descent) -> tuple[Node, Descent] | None:
        epoch, position = divmod(place.position, int(length_of(self.child) or 1))
        ended = self.count is not None and epoch >= self.count
        if ended:  # or behind the end: the last batch of a batch above a repeat may be short
            epoch, position = self.count or 0, 0
        return self.child, place._replace(position=position, epoch=epoch + self.first, repeated=True, ended=ended)

    def ascend(self, place: Descent) -> Descent | None:
        return place._replace(position=place.position + place.epoch * int(length_of(self.child) or 0), repeated=True)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RejectionResample(SelectingNode):
    """Only so many elements of each class that their shares become `target`. `initial`: the shares below, or None to count them."""

    streams: ClassVar[bool] = True

    fn: Function
    name: str
    target: tuple[float, ...]
    initial: tuple[float, ...] | None
    seed: int

    def line(self, *, saved: bool = False) -> str:
        fn = self.name if saved else function_name(self.fn)
        initial = "" if self.initial is None else f", initial_dist={list(self.initial)}"
        return f"rejection_resample({fn}, {list(self.target)}{initial}, seed={self.seed})"

    @property
    def varies(self) -> bool:
        return True


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Pick(SelectingNode):
    """The elements at some (pass, position), whatever the pass that they are asked for in: those of a quarantine file."""

    places: tuple[tuple[int, int], ...]

    def line(self, *, saved: bool = False) -> str:
        return f"quarantined({len(self.places)})"

    def num_elements(self, below: Sequence[Length]) -> Length:
        return len(self.places)


# -- how it runs --------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Prefetch(SelectingNode):
    """At least `buffer_size` finished batches ahead of the consumer, memory permitting."""

    aligned: ClassVar[bool] = True
    is_hint: ClassVar[bool] = True
    moves_as: ClassVar[str] = "same"

    buffer_size: int

    def line(self, *, saved: bool = False) -> str:
        return f"prefetch({self.buffer_size})"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Cache(SelectingNode):
    """Elements computed once, as of epoch 0, and kept in `store`: in memory, or in the folder `path`."""

    aligned: ClassVar[bool] = True
    starts_chain: ClassVar[bool] = True
    can_pickle: ClassVar[bool] = False

    store: RecordStore = field()
    path: str | None
    max_bytes: int | None
    version: str

    def line(self, *, saved: bool = False) -> str:
        path = [] if self.path is None else [repr(self.path)]
        limit = [] if self.max_bytes is None else [f"max_bytes={self.max_bytes}"]
        version = [f"version={self.version!r}"] if self.version else []
        return f"cache({'' if saved else ', '.join([*path, *limit, *version])})"

    def identity(self) -> str:
        return f"cache(version={self.version!r})"

    def values(self) -> tuple[Any, ...]:
        return ("Cache", self.version)  # what it holds is what is below it

    def given_below(self, position: int) -> Sequence[int | None]:
        return [None]  # what is below was computed at another time


# -- several datasets ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Concatenate(BranchingNode):
    """All elements of the first child, then of the next. Children that are parts of one dataset (after a resume) share its keys."""

    parts_of_one: bool = False

    def line(self, *, saved: bool = False) -> str:
        return f"concatenate of {len(self.children)}"

    def num_elements(self, below: Sequence[Length]) -> Length:
        return None if None in below else sum(length for length in below if length is not None)

    def group_starts(self) -> Ints | None:
        parts = [child.group_starts() for child in self.children]
        return joined_groups([part for part in parts if part is not None]) if all(part is not None for part in parts) else None

    def descend(self, place: Descent) -> tuple[Node, Descent] | None:
        first, second = self.children
        length = int(length_of(first) or 0)
        return (first, place) if place.position < length else (second, place._replace(position=place.position - length))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Zip(BranchingNode):
    """Tuples of one element of each child; as long as the shortest."""

    def line(self, *, saved: bool = False) -> str:
        return f"zip of {len(self.children)}"

    def num_elements(self, below: Sequence[Length]) -> Length:
        return None if None in below else min(length for length in below if length is not None)

    def spec(self, of: Callable[[Node], Any]) -> Any:
        return tuple(of(child) for child in self.children)

    def given_below(self, position: int) -> Sequence[int | None]:
        return [position] * len(self.children)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Mix(BranchingNode):
    """Elements of all children in proportion to the weights of `history`: a schedule, or those before a resume and since.

    With `restart` a child that has ended starts over, until each was seen whole; without, the first child that has ended ends it.
    """

    history: History = field()
    restart: bool

    def with_history(self, history: History | None, children: Sequence[Node]) -> Self:
        history = history or self.history
        children = tuple(children)[: len(history[-1][1])]
        same = history == self.history and children == self.children
        return self if same else replace(self, children=children, history=history)

    def line(self, *, saved: bool = False) -> str:
        alike = len(self.history) == len(set(self.history[0][1])) == 1
        shares = "" if saved or alike else f" by {in_words(self.history)}"
        return f"mix of {len(self.children)}{shares}{', all_exhausted' if self.restart else ''}"

    def component(self, number: int) -> str:
        return f"component {number + 1} of the mix"

    def mixing(self) -> MixFold:
        """Return the order of the mix."""
        return mixing(self.history, [length_of(child) for child in self.children], restart=self.restart)

    def num_elements(self, below: Sequence[Length]) -> Length:
        return mixing(self.history, below, restart=self.restart).length

    @property
    def changes_order(self) -> bool:
        return self.restart

    def given_below(self, position: int) -> Sequence[int | None]:
        order = self.mixing()
        counts = zip(order.counts(position), order.lengths, strict=True)
        return [count if length is None or count <= length else None for count, length in counts]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Interleave(BranchingNode):
    """Elements of `cycle_length` children in turn, `block_length` of each; one that has ended gives its turn to the next child."""

    name: str
    cycle_length: int
    block_length: int

    def line(self, *, saved: bool = False) -> str:
        how = f"{self.name}, cycle_length={self.cycle_length}, block_length={self.block_length}"
        return f"interleave({how}) of {len(self.children)}"

    def num_elements(self, below: Sequence[Length]) -> Length:
        return sum(int(length or 0) for length in below)


# -- one element of several ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BatchNode(GroupNode):
    """A batch of `batch_size` elements, but for the last one: these differ only in how rows become one."""

    moves_as: ClassVar[str] = "batch"

    batch_size: int
    drop_remainder: bool = field()

    def num_elements(self, below: Sequence[Length]) -> Length:
        return batch_length(below[0], self.batch_size, self.drop_remainder)

    def batch_size_each(self) -> int | None:
        return self.batch_size

    def given_below(self, position: int) -> Sequence[int | None]:
        return [position * self.batch_size]

    def descend(self, place: Descent) -> tuple[Node, Descent] | None:
        return self.child, place._replace(position=place.position * self.batch_size)

    def ascend(self, place: Descent) -> Descent | None:
        number, rest = divmod(place.position, self.batch_size)
        return None if rest else place._replace(position=number)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Batch(BatchNode):
    """`batch_size` elements stacked along a new first dimension, or what `collate_fn` makes of a list of them."""

    collate_fn: Function | None = None

    def line(self, *, saved: bool = False) -> str:
        collate = "" if self.collate_fn is None else f", collate_fn={function_name(self.collate_fn)}"
        return f"batch({self.batch_size}{self._drop_words()}{collate})"

    @property
    def any_shape(self) -> bool:
        return self.collate_fn is not None

    def spec(self, of: Callable[[Node], Any]) -> Any:
        if self.collate_fn is not None:
            raise OnlyByComputing
        return self.stacked_spec(of, self.batch_size, 1)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PaddedBatch(BatchNode):
    """Like Batch, each leaf padded to the longest of the batch or to `padded_shapes`."""

    padded_shapes: Any = None
    padding_values: Any = None

    def line(self, *, saved: bool = False) -> str:
        return f"padded_batch({self.batch_size}{self._padding_words(self.padded_shapes, self.padding_values)})"

    def spec(self, of: Callable[[Node], Any]) -> Any:
        if self.padded_shapes is not None:
            raise OnlyByComputing
        return self.stacked_spec(of, self.batch_size, 1)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RaggedBatch(BatchNode):
    """Like Batch, the leaves of the fields `ragged` joined along their first dimension; None stands for all that have one."""

    ragged: tuple[str | int, ...] | None = None

    def line(self, *, saved: bool = False) -> str:
        return f"ragged_batch({self.batch_size}{self._drop_words()}{'' if self.ragged is None else f', ragged={self.ragged!r}'})"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Window(GroupNode):
    """Elements i * shift, i * shift + stride, ..., `size` of them, stacked along a new first dimension."""

    makes_batches: ClassVar[bool] = False

    size: int
    shift: int
    stride: int
    drop_remainder: bool = field()

    def line(self, *, saved: bool = False) -> str:
        return f"window({self.size}, shift={self.shift}, stride={self.stride}{self._drop_words()})"

    def num_elements(self, below: Sequence[Length]) -> Length:
        return window_length(below[0], self.size, self.shift, self.stride, self.drop_remainder)

    @property
    def any_shape(self) -> bool:
        return False

    def spec(self, of: Callable[[Node], Any]) -> Any:
        return self.stacked_spec(of, self.size, self.stride)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BucketByLength(GroupNode):
    """Padded batches of elements of like lengths: `fn(element)` says the length."""

    streams: ClassVar[bool] = True

    fn: Function
    name: str
    boundaries: tuple[int, ...]
    batch_sizes: tuple[int, ...]
    drop_remainder: bool = field()
    padded_shapes: Any = None
    padding_values: Any = None

    def line(self, *, saved: bool = False) -> str:
        fn = self.name if saved else function_name(self.fn)
        padding = self._padding_words(self.padded_shapes, self.padding_values)
        return f"bucket_by_length({fn}, {list(self.boundaries)}, {list(self.batch_sizes)}{padding})"


def shards_of(root: Node) -> list[Shard]:
    """List the shards of a plan from the sources up."""
    return [node for node in walk(root) if isinstance(node, Shard)]


def mixes_of(root: Node) -> list[Mix]:
    """List the mixes of a plan from the sources up."""
    return [node for node in walk(root) if isinstance(node, Mix)]
