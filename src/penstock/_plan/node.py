"""The nodes of a plan, one per operator. Frozen values: they hold arguments and children, and do nothing.

Compared by identity: what two plans have in common is asked of their lines (`describe`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from penstock._contracts.policy import Policy
from penstock._contracts.source import IndexedSource, StreamSource
from penstock._contracts.store import RecordStore
from penstock._order.mixing import History

__all__ = [
    "AnyBatch",
    "Batch",
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
    "PackSequences",
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
    "children_of",
    "with_children",
]

Function = Callable[..., Any]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Read:
    """Elements 0..len-1 of an indexed source."""

    source: IndexedSource


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ReadStream:
    """Elements of a source that is read from its beginning."""

    source: StreamSource


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Map:
    """`fn(element)`, or `fn(element, rng=generator)` when `random`; awaited when `fn` is `async def`.

    `output_spec` is the tree of `ArraySpec` that its results are declared to have, or None.
    """

    child: Node
    fn: Function
    name: str
    seed: int = 0
    random: bool = False
    concurrency: int | None = None
    asynchronous: bool = False
    on_error: Policy | None = None
    output_spec: Any = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Filter:
    """Only the elements for which `fn` is true."""

    child: Node
    fn: Function
    name: str
    on_error: Policy | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FlatMap:
    """All elements of `fn(element)`, one after the other."""

    child: Node
    fn: Function
    name: str
    on_error: Policy | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Unbatch:
    """The rows of each element."""

    child: Node


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Shuffle:
    """A keyed permutation of positions: global without `buffer_size`, inside a window with one.

    Behind a filter or generator, where there are no positions, a buffer of elements, of at most `buffer_bytes`. With `window_groups`,
    groups of the source in another order, and their elements inside windows of so many groups.
    """

    child: Node
    buffer_size: int | None
    seed: int
    reshuffle_each_epoch: bool
    buffer_bytes: int = 0
    window_groups: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Shard:
    """Positions index, index + num_shards, index + 2 * num_shards, ...

    With `equal_steps`, a policy that skips an element replaces it by another one of the shard: all shards make as many steps. With `even`,
    all shards have as many elements: of a last round of fewer than num_shards positions "drop" gives none, "pad" gives the first of the
    round again to the shards that have none, and "error" is an error. The rounds begin at position `first`. `found` tells that the
    numbers are those of the process, not given.
    """

    child: Node
    num_shards: int
    index: int
    equal_steps: bool = True
    even: Literal["drop", "pad", "error"] | None = None
    first: int = 0
    found: bool = False


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Take:
    """The first `count` elements."""

    child: Node
    count: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Skip:
    """All but the first `count` elements. `lead`: count * num_shards less the place that all shards had reached (after a resume)."""

    child: Node
    count: int
    lead: int = 0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Repeat:
    """`count` passes, or endless ones. After a resume with other shards: the passes from number `first` on, of `whole` in all."""

    child: Node
    count: int | None
    first: int = 0
    whole: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Enumerate:
    """Pairs (number, element)."""

    child: Node
    start: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Concatenate:
    """All elements of the first child, then of the next. Children that are parts of one dataset (after a resume) share its keys."""

    children: tuple[Node, ...]
    parts_of_one: bool = False


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Zip:
    """Tuples of one element of each child; as long as the shortest."""

    children: tuple[Node, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Mix:
    """Elements of all children in proportion to the last weights of `history`; earlier ones hold for what was delivered (after a resume).

    With `restart` a child that has ended starts over, until each was seen whole; without, the first child that has ended ends it.
    """

    children: tuple[Node, ...]
    history: History
    restart: bool


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Interleave:
    """Elements of `cycle_length` children in turn, `block_length` of each; one that has ended gives its turn to the next child."""

    children: tuple[Node, ...]
    name: str
    cycle_length: int
    block_length: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Batch:
    """`batch_size` elements stacked along a new first dimension, or what `collate_fn` makes of a list of them."""

    child: Node
    batch_size: int
    drop_remainder: bool
    collate_fn: Function | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PaddedBatch:
    """Like Batch, each leaf padded to the longest of the batch or to `padded_shapes`."""

    child: Node
    batch_size: int
    drop_remainder: bool
    padded_shapes: Any = None
    padding_values: Any = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BucketByLength:
    """Padded batches of elements of like lengths: `fn(element)` says the length."""

    child: Node
    fn: Function
    name: str
    boundaries: tuple[int, ...]
    batch_sizes: tuple[int, ...]
    drop_remainder: bool
    padded_shapes: Any = None
    padding_values: Any = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PackSequences:
    """Rows of `length` tokens of several sequences: whole ones in up to `num_bins` open rows; with None, cut where a row is full."""

    child: Node
    length: int
    num_bins: int | None
    padding_value: Any


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RejectionResample:
    """Only so many elements of each class that their shares become `target`. `initial`: the shares below, or None to count them."""

    child: Node
    fn: Function
    name: str
    target: tuple[float, ...]
    initial: tuple[float, ...] | None
    seed: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RaggedBatch:
    """Like Batch, the leaves of the fields `ragged` joined along their first dimension; None stands for all that have one."""

    child: Node
    batch_size: int
    drop_remainder: bool
    ragged: tuple[str | int, ...] | None = None


AnyBatch = Batch | PaddedBatch | RaggedBatch
"""The nodes that differ only in how rows become a batch."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Window:
    """Elements i * shift, i * shift + stride, ..., `size` of them, stacked along a new first dimension."""

    child: Node
    size: int
    shift: int
    stride: int
    drop_remainder: bool


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Pick:
    """The elements at some (pass, position), whatever the pass that they are asked for in: those of a quarantine file."""

    child: Node
    places: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Prefetch:
    """At least `buffer_size` finished batches ahead of the consumer, memory permitting."""

    child: Node
    buffer_size: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Cache:
    """Elements computed once, as of epoch 0, and kept in `store`: in memory, or in the folder `path`."""

    child: Node
    store: RecordStore
    path: str | None
    max_bytes: int | None
    version: str


Node = (
    Read
    | ReadStream
    | Map
    | Filter
    | FlatMap
    | Unbatch
    | Shuffle
    | Shard
    | Take
    | Skip
    | Repeat
    | Enumerate
    | Concatenate
    | Zip
    | Mix
    | Interleave
    | Batch
    | PaddedBatch
    | BucketByLength
    | PackSequences
    | RejectionResample
    | RaggedBatch
    | Window
    | Pick
    | Prefetch
    | Cache
)


def children_of(node: Node) -> tuple[Node, ...]:
    """Return the nodes that `node` reads from."""
    if isinstance(node, (Read, ReadStream)):
        return ()
    if isinstance(node, (Concatenate, Zip, Mix, Interleave)):
        return node.children
    return (node.child,)


def with_children(node: Node, children: Sequence[Node]) -> Node:
    """Return a node that reads from other nodes; itself where they are the same."""
    if tuple(children) == children_of(node):
        return node
    return replace(node, **({"children": tuple(children)} if hasattr(node, "children") else {"child": children[0]}))
