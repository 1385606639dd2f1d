"""The lower end of a program: from positions to elements, read from a source, from several branches or from a cache."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from operator import getitem
from typing import Any, ClassVar, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from penstock._contracts.element import bytes_of_all
from penstock._contracts.source import ColumnSource, DistantSource, IndexedSource, SubscriptedSource, TransientSource
from penstock._contracts.storage import RecordStore
from penstock._ops.block import LEFT_OUT, UNLIMITED, Block, ElementFailed, EmptyBatch, Ints, Keys
from penstock._ops.collation import Collation, Pack, places_in_use, sequence_length
from penstock._ops.operator import ChainOp, Leaf, OneToOne
from penstock._ops.worker import WorkerContext
from penstock._order.arithmetic import (
    INFINITE,
    GroupOrders,
    Length,
    batch_rows,
    concatenate_parts,
    grouped,
    padded_round,
    repeated,
    sharded,
    shuffled,
    window_shuffled,
)
from penstock._order.mixing import InterleaveFold, MixFold, interleaved, mixed_parts, mixed_turns
from penstock._order.planned import PlannedOrder, SampledOrder
from penstock._system.lazy import dataclass
from penstock.formats.cache_stores import pack, unpack

# -- operators on positions -------------------------------------------------------------------------------------------------------


class Moves:
    """An operator without data."""

    __slots__ = ()
    name: ClassVar[str] = ""

    def apply(self, block: Block, epochs: Ints, positions: Ints, worker: WorkerContext) -> Block:
        return block


@dataclass(frozen=True, slots=True)
class ShuffleOp(Moves):
    """Positions through a keyed permutation."""

    num_elements: int
    buffer_size: int | None
    seed: int
    reshuffle: bool

    def source_positions(self, epochs: Ints, positions: Ints) -> tuple[Ints, Ints]:
        if self.buffer_size is None:
            return epochs, shuffled(epochs, positions, self.num_elements, seed=self.seed, reshuffle=self.reshuffle)
        window = window_shuffled(epochs, positions, self.num_elements, self.buffer_size, seed=self.seed, reshuffle=self.reshuffle)
        return epochs, window


@dataclass(frozen=True, slots=True, eq=False)
class GroupShuffleOp(Moves):
    """Groups in another order, and positions inside windows of several groups."""

    orders: GroupOrders

    def source_positions(self, epochs: Ints, positions: Ints) -> tuple[Ints, Ints]:
        return epochs, self.orders.shuffled(epochs, positions)


@dataclass(frozen=True, slots=True)
class ShardOp(Moves):
    """Every num_shards-th position from `first` on; with `padded_length`, those behind it are the first ones of the last round."""

    num_shards: int
    index: int
    first: int = 0
    padded_length: int | None = None

    def source_positions(self, epochs: Ints, positions: Ints) -> tuple[Ints, Ints]:
        below = sharded(positions, self.num_shards, self.index) + self.first
        if self.padded_length is not None:
            below = padded_round(below, self.padded_length, self.num_shards, self.first)
        return epochs, below


@dataclass(frozen=True, slots=True, eq=False)
class PickOp(Moves):
    """Chosen places, each of a pass of its own."""

    epochs: Ints
    places: Ints

    def source_positions(self, epochs: Ints, positions: Ints) -> tuple[Ints, Ints]:
        return self.epochs[positions], self.places[positions]


@dataclass(frozen=True, slots=True, eq=False)
class ChosenOp(Moves):
    """The elements that known numbers choose, in the order that these say."""

    order: PlannedOrder | SampledOrder

    def source_positions(self, epochs: Ints, positions: Ints) -> tuple[Ints, Ints]:
        return epochs, self.order.below(epochs, positions)


@dataclass(frozen=True, slots=True)
class SkipOp(Moves):
    """Positions moved by a count."""

    count: int

    def source_positions(self, epochs: Ints, positions: Ints) -> tuple[Ints, Ints]:
        return epochs, positions + self.count


@dataclass(frozen=True, slots=True)
class RepeatOp(Moves):
    """Positions of several passes, of `count` in all; the first of them is pass `first`."""

    num_elements: int
    count: int | None
    first: int = 0

    def source_positions(self, epochs: Ints, positions: Ints) -> tuple[Ints, Ints]:
        below, inner = repeated(epochs, positions, self.num_elements, self.count)
        return (below + self.first if self.first else below), inner


@dataclass(frozen=True, slots=True)
class EnumerateOp(OneToOne):
    """Pairs (number, element): the number is the position."""

    name: ClassVar[str] = ""

    start: int

    def apply(self, block: Block, epochs: Ints, positions: Ints, worker: WorkerContext) -> Block:
        rows = block.rows()  # perhaps fewer than there are positions
        numbers = (positions[: len(rows)] + self.start).tolist()
        return block.with_rows(list(zip(numbers, rows, strict=True)), block.num_bytes)


@dataclass(frozen=True, slots=True)
class ValidOp(OneToOne):
    """Pairs (valid, element): whether an element is no padding of the shard before it."""

    name: ClassVar[str] = ""

    shard: ShardOp

    def apply(self, block: Block, epochs: Ints, positions: Ints, worker: WorkerContext) -> Block:
        unpadded = replace(self.shard, padded_length=None).source_positions(epochs, positions)[1]
        valid = unpadded < (INFINITE if self.shard.padded_length is None else self.shard.padded_length)
        rows = block.rows()  # perhaps fewer than there are positions
        return block.with_rows(list(zip(valid[: len(rows)].tolist(), rows, strict=True)), block.num_bytes)


# -- several branches -------------------------------------------------------------------------------------------------------------

Part = tuple[int, Ints, Ints, Ints]
"""(branch, offsets into the positions, epochs and positions in the branch)."""


class BranchesLeaf(ABC):
    """A leaf whose elements come from one of several branches each. The lane tells apart equal indices of different branches.

    Attributes:
        branches: each gives some of the elements.
        parts_of_one: whether they are parts of one dataset, and share its keys.
    """

    __slots__ = ()

    branches: tuple[Leaf, ...]
    parts_of_one: bool = False

    @abstractmethod
    def parts(self, epochs: Ints, positions: Ints) -> Sequence[Part]:
        """Return which elements each branch gives."""

    def run(self, epochs: Ints, positions: Ints, worker: WorkerContext) -> Block:
        blocks: list[Block] = []
        places: list[Ints] = []
        numbers: list[int] = []
        failures: list[ElementFailed] = []
        left, end = worker.room, len(positions)  # each branch gives one element at least, and all those before `end`
        for branch, offsets, below_epochs, below in self.parts(epochs, positions):
            count = len(offsets) if end == len(positions) else int(np.searchsorted(offsets, end))
            if not count:
                continue
            try:
                block = read_within(self.branches[branch], below_epochs[:count], below[:count], worker, left)
            except ElementFailed as failure:
                failures.append(failure.moved(int(offsets[failure.offset])))
                continue
            left -= block.num_bytes
            if len(block) < count:
                end = int(offsets[len(block)])
            blocks.append(block)
            places.append(offsets[: len(block)])
            numbers.append(branch)
        if end < len(positions):
            epochs, positions = epochs[:end], positions[:end]
            kept = [int(np.searchsorted(offsets, end)) for offsets in places]
            blocks = [block if len(block) == count else block.select(slice(0, count)) for block, count in zip(blocks, kept, strict=True)]
            places = [offsets[:count] for offsets, count in zip(places, kept, strict=True)]
        if not failures and not _alike(blocks):
            failures = _read(blocks, places)
        if failures:
            raise min(failures, key=lambda failure: failure.offset)
        joined = self._joined(blocks, places, numbers, epochs, positions)
        joined.num_bytes = worker.room - left
        return joined

    def _joined(self, blocks: list[Block], places: list[Ints], numbers: list[int], epochs: Ints, positions: Ints) -> Block:
        """Put the elements of all branches in the order of their offsets."""
        if not blocks:
            return Block(epochs, positions, np.zeros(0, np.uint64), rows=[])
        own = np.zeros(len(blocks), np.uint64) if self.parts_of_one else np.array(numbers, np.uint64)
        scale = np.uint64(1 if self.parts_of_one else len(self.branches))
        lanes = _placed([block.lanes * scale + lane for block, lane in zip(blocks, own, strict=True)], places)
        keys = _placed([block.epochs for block in blocks], places), _placed([block.indices for block in blocks], places), lanes
        if _alike(blocks):
            columns = zip(*(block.columns() for block in blocks), strict=True)
            return Block(*keys, columns=(blocks[0].structure(), [_placed(column, places) for column in columns]))
        # Through an array of references: 20 ns per element, where a loop over indices needs 48.
        rows = _placed([np.fromiter(block.rows(), object, len(block)) for block in blocks], places)
        return Block(*keys, rows=rows.tolist())

    def where(self, epoch: int, position: int) -> str:
        ((branch, _, epochs, below),) = self.parts(np.array([epoch], np.int64), np.array([position], np.int64))
        return self.branches[branch].where(int(epochs[0]), int(below[0]))

    def keys(self, epochs: Ints, positions: Ints) -> Keys:
        out = epochs.copy(), positions.copy(), np.zeros(len(positions), np.uint64)
        for branch, offsets, below_epochs, below in self.parts(epochs, positions):
            out[0][offsets], out[1][offsets], lanes = self.branches[branch].keys(below_epochs, below)
            own = np.uint64(0 if self.parts_of_one else branch)
            out[2][offsets] = lanes * np.uint64(1 if self.parts_of_one else len(self.branches)) + own
        return out


def read_within(leaf: Leaf, epochs: Ints, positions: Ints, worker: WorkerContext, room: int) -> Block:
    """Return the elements of a leaf, read already unless they come in columns; fewer than were asked for where there is no room for all."""
    with worker.given_room(max(0, room) if room < UNLIMITED else room):
        block = leaf.run(epochs, positions, worker)
        block.room = worker.room
    if not block.columnar:
        block.rows()
    return block


def _alike(blocks: list[Block]) -> bool:
    """Tell whether all blocks have columns of one structure, shape and dtype: then no element is made one by one."""
    if not blocks or not all(block.columnar for block in blocks):
        return False
    structure, types = blocks[0].structure(), blocks[0].leaf_types()
    return all(block.structure() == structure and block.leaf_types() == types for block in blocks[1:])


def _read(blocks: list[Block], places: list[Ints]) -> list[ElementFailed]:
    """Make rows of all blocks; return the failures, counted in the offsets of the whole."""
    failures = []
    for block, offsets in zip(blocks, places, strict=True):
        try:
            block.rows()
        except ElementFailed as failure:
            failures.append(failure.moved(int(offsets[failure.offset])))
    return failures


def _placed(parts: Sequence[NDArray[Any]], places: list[Ints]) -> NDArray[Any]:
    """Put the elements of several arrays at their places in one."""
    out = np.empty((sum(map(len, parts)), *parts[0].shape[1:]), parts[0].dtype)
    for part, place in zip(parts, places, strict=True):
        out[place] = part
    return out


# -- leaves -----------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ReadLeaf:
    """Elements of an indexed source."""

    source: IndexedSource
    columns: ColumnSource | None
    transient: TransientSource | None

    def run(self, epochs: Ints, positions: Ints, worker: WorkerContext) -> Block:
        lanes = np.zeros(len(positions), np.uint64)
        return Block(epochs, positions, lanes, source=self.source, column_source=self.columns, transient=self.transient)

    def where(self, epoch: int, position: int) -> str:
        return self.source.describe(position)

    def keys(self, epochs: Ints, positions: Ints) -> Keys:
        return epochs, positions, np.zeros(len(positions), np.uint64)


@dataclass(frozen=True, slots=True)
class ZipLeaf:
    """Tuples of one element of each branch; the first branch gives the key."""

    branches: tuple[Leaf, ...]

    def run(self, epochs: Ints, positions: Ints, worker: WorkerContext) -> Block:
        blocks: list[Block] = []
        left, count = worker.room, len(positions)
        for branch in self.branches:
            blocks.append(read_within(branch, epochs[:count], positions[:count], worker, left))
            left, count = left - blocks[-1].num_bytes, len(blocks[-1])
        rows = list(zip(*(block.rows()[:count] for block in blocks), strict=True))
        return blocks[0].with_rows(cast("list[Any]", rows), sum(block.num_bytes for block in blocks))

    def where(self, epoch: int, position: int) -> str:
        return " with ".join(branch.where(epoch, position) for branch in self.branches)

    def keys(self, epochs: Ints, positions: Ints) -> Keys:
        return self.branches[0].keys(epochs, positions)


@dataclass(frozen=True, slots=True)
class ConcatenateLeaf(BranchesLeaf):
    """Elements of several branches, one after the other."""

    branches: tuple[Leaf, ...]
    lengths: tuple[int, ...]
    parts_of_one: bool

    def parts(self, epochs: Ints, positions: Ints) -> Sequence[Part]:
        found = concatenate_parts(positions, list(self.lengths))
        return [(branch, offsets, epochs[offsets], below) for branch, offsets, below in found]


def rows_at_once(leaf: Leaf) -> int:
    """Return how many elements of a leaf should be asked for at once, at least: more than one only where a source is far away."""
    if isinstance(leaf, ReadLeaf):
        return leaf.source.rows_at_once if isinstance(leaf.source, DistantSource) else 1
    if isinstance(leaf, ChainOp):
        return rows_at_once(leaf.leaf)
    return max(map(rows_at_once, getattr(leaf, "branches", ())), default=1)


class Members(NamedTuple):
    """The elements of some batches: the (epoch, position) of each below, and how many each batch has.

    `parts` says of each element how long it is known to be, and which part of it, (begin, end), is meant: int64 [elements, 3], or None.
    """

    epochs: Ints
    positions: Ints
    sizes: Sequence[int]
    parts: NDArray[np.int64] | None = None

    def with_parts(self, rows: list[Any]) -> list[Any]:
        """Return the elements as (element, *part) where parts are known; LEFT_OUT stays."""
        if self.parts is None:
            return rows
        return [row if row is LEFT_OUT else (row, *part) for row, part in zip(rows, self.parts.tolist(), strict=False)]


@dataclass(frozen=True, slots=True)
class Neighbours:
    """Batches and windows of elements that stand at regular distances: see `batch_rows`."""

    length: Length
    batch_size: int
    shift: int
    stride: int

    def members(self, epochs: Ints, positions: Ints) -> Members:
        return Members(*batch_rows(epochs, positions, self.length, self.batch_size, self.shift, self.stride))

    def first(self, position: int) -> int:
        return position * self.shift


@dataclass(frozen=True, slots=True)
class PlannedMembers:
    """Batches and rows of elements that known numbers put together."""

    order: PlannedOrder

    def members(self, epochs: Ints, positions: Ints) -> Members:
        found = self.order.rows(positions)
        return Members(np.repeat(epochs, found.sizes), *found)

    def first(self, position: int) -> int:
        return int(self.order.rows(np.array([position], np.int64)).positions[0])


@dataclass(frozen=True, slots=True)
class BatchLeaf:
    """Batches, windows and packed rows computed whole: for `ds[i]`, for branches, for batches of batches, and where numbers decide."""

    child: ChainOp
    length: Length
    grouping: Neighbours | PlannedMembers
    collation: Collation

    def run(self, epochs: Ints, positions: Ints, worker: WorkerContext) -> Block:
        members = self.grouping.members(epochs, positions)
        row_epochs, row_positions, sizes, _ = members
        try:
            rows = self._rows(row_epochs, row_positions, worker)
        except ElementFailed as failure:
            moved = failure.moved(int(np.searchsorted(np.cumsum(sizes), failure.offset, side="right")))
            moved.inside_batch, moved.whole = True, False
            raise moved from failure.error
        if len(rows) < len(row_positions):
            count = int(np.searchsorted(np.cumsum(sizes), len(rows), side="right"))
            if not count:
                with worker.given_room(UNLIMITED):
                    return self.run(epochs[:1], positions[:1], worker)
            epochs, positions, sizes = epochs[:count], positions[:count], sizes[:count]
        rows, out, start = members.with_parts(rows), [], 0
        for number, size in enumerate(sizes):

            def names(row: int, start: int = start) -> str:
                return self.child.where(int(row_epochs[start + row]), int(row_positions[start + row]))

            kept = [row for row in rows[start : start + size] if row is not LEFT_OUT]
            if not kept and isinstance(self.collation, Pack):
                kept = self._part_of_none(row_epochs[start : start + 1], int(row_positions[start]), worker)
            if not kept:
                raise ElementFailed(number, "batch", EmptyBatch())
            try:
                out.append(self.collation.collate(kept, names))
            except BaseException as error:
                failed = ElementFailed(number, "batch", error)
                failed.final = True  # its elements are good, they only do not fit each other
                raise failed from error
            start += size
        self._count_places(out, worker)
        block = Block(epochs, positions, np.zeros(len(positions), np.uint64), rows=out)
        block.num_bytes = bytes_of_all(out)
        return block

    def _part_of_none(self, epochs: Ints, position: int, worker: WorkerContext) -> list[Any]:
        """Return a part of no tokens, which makes a row of padding: of a packed row nothing is left, and the other ranks have theirs.

        Fields and dtypes are those of the first element that can be computed, 1, 2, 4, 8 and so on places further on: soon far away, as its
        neighbours may be damaged as well. Then 64 places all over the pass are tried. An empty list says that all of them failed.
        """
        length = int(self.length or 1)
        for place in (*(position + (1 << power) for power in range(length.bit_length())), *range(0, length, -(-length // 64))):
            try:
                with worker.given_room(UNLIMITED):
                    element = self.child.run(epochs, np.array([place % length]), worker).rows()[0]
            except ElementFailed as failed:
                if not isinstance(failed.error, Exception):
                    raise
            else:
                return [(element, sequence_length(element), 0, 0)]
        return []

    def _count_places(self, rows: list[Any], worker: WorkerContext) -> None:
        if isinstance(self.collation, Pack):
            for row in rows:
                worker.packed(*places_in_use(row))

    def _rows(self, epochs: Ints, positions: Ints, worker: WorkerContext) -> list[Any]:
        """Compute the elements of all batches; where the worker can, policies act on those that fail: LEFT_OUT stands for some then."""
        try:
            return read_within(self.child, epochs, positions, worker, worker.room).rows()
        except ElementFailed as failure:
            if worker.mend is None or failure.final:
                raise
            return worker.mend(self.child, self.length, epochs, positions)

    def where(self, epoch: int, position: int) -> str:
        return f"batch {position} (from {self.child.where(epoch, self.grouping.first(position))})"

    def keys(self, epochs: Ints, positions: Ints) -> Keys:
        return epochs, positions, np.zeros(len(positions), np.uint64)


# -- branches in turn -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class InTurn:
    """Sources that only look into objects: elements of all of them can be read in their order, and none has to be put back into it.

    Attributes:
        sources: of the branches.
        objects: what each looks into, as an array of references.
        plain: whether the branches are nothing but these sources: no shuffle, shard or repeat.
    """

    sources: tuple[SubscriptedSource, ...]
    objects: NDArray[Any]
    plain: bool


def in_turn(branches: Sequence[ChainOp]) -> InTurn | None:
    """Return the sources of branches that do nothing but look into objects; None if one does more."""
    sources: list[SubscriptedSource] = []
    for branch in branches:
        source = (
            branch.leaf.source
            if isinstance(branch.leaf, ReadLeaf) and all(isinstance(operator, Moves) for operator in branch.operators)
            else None
        )
        if not isinstance(source, SubscriptedSource) or source.subscripted() is None:
            return None
        sources.append(source)
    plain = not any(branch.operators for branch in branches)
    objects = np.empty(len(sources), object)
    for number, source in enumerate(sources):
        objects[number] = source.subscripted()  # one by one: NumPy would look into them
    return InTurn(tuple(sources), objects, plain)


@dataclass(frozen=True, slots=True)
class MixLeaf(BranchesLeaf):
    """Elements of several branches by their weights."""

    branches: tuple[Leaf, ...]
    mixing: MixFold
    in_turn: InTurn | None = None

    def parts(self, epochs: Ints, positions: Ints) -> Sequence[Part]:
        return mixed_parts(self.mixing, epochs, positions)

    def run(self, epochs: Ints, positions: Ints, worker: WorkerContext) -> Block:
        if self.in_turn is None:
            return BranchesLeaf.run(self, epochs, positions, worker)
        epochs, indices, lanes = self.keys(epochs, positions)
        return Block(epochs, indices, lanes, source=_Turns(self.in_turn, lanes.view(np.int64)))

    def keys(self, epochs: Ints, positions: Ints) -> Keys:
        if self.mixing.restart or self.in_turn is None or not self.in_turn.plain:
            return BranchesLeaf.keys(self, epochs, positions)
        members, places = mixed_turns(self.mixing, positions)
        return epochs, places, members.view(np.uint64)


@dataclass(frozen=True, slots=True)
class _Turns:
    """Reads elements of several sources; `members` says of which each is."""

    of: InTurn
    members: Ints

    def gather(self, indices: Sequence[int], rows: list[Any]) -> None:
        """Append one element per index."""
        objects = self.of.objects.take(self.members).tolist()
        try:
            # As the loop below, which needs 20 ns more per element: also what came before an error stays.
            rows.extend(map(getitem, objects, indices))
            while len(rows) < len(indices):  # a StopIteration of theirs looks like the end there
                rows.append(objects[len(rows)][indices[len(rows)]])
        except Exception as error:
            place = len(rows)
            explained = self.of.sources[self.members[place]].explained(indices[place], error)
            if explained is error:
                raise
            raise explained from error


@dataclass(frozen=True, slots=True)
class InterleaveLeaf(BranchesLeaf):
    """Elements of several branches, some from each in turn."""

    branches: tuple[Leaf, ...]
    table: InterleaveFold

    def parts(self, epochs: Ints, positions: Ints) -> Sequence[Part]:
        members, places = interleaved(self.table, positions)
        return [(member, offsets, epochs[offsets], places[offsets]) for member, offsets in grouped(members)]


# -- cache ------------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CacheLeaf:
    """Elements of `child` as of epoch 0, under keys of the epoch that they are asked for in.

    What is handed on is always read from a record, whether that was found, just stored, or did not fit: so its arrays are read-only, its
    containers plain and nobody else's, and it holds no memory of the child's, in every pass alike. Two workers that miss one element at
    the same time both compute it; the store keeps one.
    """

    child: Leaf
    store: RecordStore
    passes: int

    def run(self, epochs: Ints, positions: Ints, worker: WorkerContext) -> Block:
        places = positions.tolist()
        try:
            records = self.store.get(places)
        except BaseException as error:
            raise ElementFailed(0, "cache", error, whole=True) from error
        absent = [offset for offset, record in enumerate(records) if record is None]
        if absent:
            self._compute(records, places, absent, worker)
        rows = [unpack(record) for record in records if record is not None]
        block = Block(*self.keys(epochs, positions), rows=rows)
        block.num_bytes = bytes_of_all(rows)
        return block

    def _compute(self, records: list[bytes | None], places: list[int], absent: list[int], worker: WorkerContext) -> None:
        """Compute the absent elements, put their records into the store and into `records`."""
        asked = [places[offset] for offset in absent]
        try:
            with worker.given_room(UNLIMITED):
                rows = self.child.run(np.zeros(len(asked), np.int64), np.array(asked, np.int64), worker).rows()
        except ElementFailed as failed:
            raise failed.moved(absent[failed.offset]) from failed.error
        packed = []
        for offset, row in zip(absent, rows, strict=True):
            try:
                packed.append(pack(row))
            except BaseException as error:
                raise ElementFailed(offset, "cache", error) from error
            records[offset] = packed[-1]
        try:
            self.store.put(asked, packed)
        except BaseException as error:
            raise ElementFailed(absent[0], "cache", error, whole=True) from error

    def where(self, epoch: int, position: int) -> str:
        return self.child.where(0, position)

    def keys(self, epochs: Ints, positions: Ints) -> Keys:
        pass_numbers, indices, lanes = self.child.keys(np.zeros(len(positions), np.int64), positions)
        return epochs * self.passes + pass_numbers, indices, lanes
