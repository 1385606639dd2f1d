"""From a plan to a program: nodes to a leaf and steps, steps to fused operators and stages; one element alone; `ds.explain()`. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from penstock._contracts.element import bytes_of
from penstock._contracts.policy import Raise
from penstock._contracts.source import ColumnSource, TransientSource
from penstock._contracts.transform import BlockTransform, FusingTransform, Transform
from penstock._engine.async_calls import gather_alone
from penstock._engine.chunk import Failure, KeyedElement
from penstock._engine.error_policy import prepare
from penstock._engine.folding import size_of, unmeasured
from penstock._engine.program import BatchPlan, FilterStep, Program, SegmentPlan, StagePlan, Workers
from penstock._ops.block import ElementFailed
from penstock._ops.collation import (
    Collate,
    Collation,
    Pack,
    Pad,
    Ragged,
    Stack,
    pack_rows,
    places_in_use,
    sequence_length,
    whole_sequence_length,
)
from penstock._ops.map import AwaitedOp, Expected, MapOp, Step, TransformsOp
from penstock._ops.operator import ChainOp, Leaf, Operator, key_of
from penstock._ops.reading import (
    BatchLeaf,
    CacheLeaf,
    ChosenOp,
    ConcatenateLeaf,
    EnumerateOp,
    GroupShuffleOp,
    InterleaveLeaf,
    MixLeaf,
    Neighbours,
    PickOp,
    PlannedMembers,
    ReadLeaf,
    RepeatOp,
    ShardOp,
    ShuffleOp,
    SkipOp,
    ValidOp,
    ZipLeaf,
    in_turn,
)
from penstock._ops.stack import stack_rows
from penstock._ops.streams import FilterOp, FlatMapOp, GatherOp, WeighOp, rows_of, whole_number
from penstock._ops.worker import WorkerContext
from penstock._order.arithmetic import INFINITE, GroupOrders, Length
from penstock._order.folds import BatchFold, EnumerateFold, Fold, RankFold, RepeatFold, ResampleFold, ShardFold, SkipFold, TakeFold, marked
from penstock._order.holding import BucketFold, BudgetFold, ConcatenateFold, PackFold, ShuffleBufferFold, WindowFold
from penstock._order.mixing import interleaving
from penstock._plan import known
from penstock._plan import node as plan
from penstock._plan.base import Node, chain_of, groups_of, num_indexed, period_of
from penstock._plan.facts import is_indexable, length_of, passes_of
from penstock._system.lazy import dataclass
from penstock.errors import PlanError


def evaluator(root: plan.Node) -> ChainOp:
    """Return the whole of an indexable plan as one function of positions, for `ds[i]` and branches."""
    return _branch(root, Counter())


@dataclass(slots=True)
class Counter:
    """Numbers the random operators of a plan from the source up: part of their key."""

    random: int = 0
    fused: int = 0

    def stage(self) -> int:
        self.random += 1
        return self.random


class Placed(NamedTuple):
    """The operator of a map, or a transform that waits for its neighbours, and the workers that it has of its own."""

    operator: Operator | Step
    workers: Workers | None


Item = Operator | Placed


def _not_lowered(node: plan.Node) -> PlanError:
    return PlanError(
        f"there is no way to run {type(node).__name__}: {node.line()}",
        where="lowering the plan",
        fix="this is a fault of penstock: please report it, with print(ds)",
    )


def _leaf(node: plan.Node, counter: Counter) -> Leaf:
    match node:
        case plan.Read():
            source = node.source
            columns = source if isinstance(source, ColumnSource) else None
            return ReadLeaf(source, columns, source if isinstance(source, TransientSource) else None)
        case plan.Cache():
            return _cache_leaf(node, counter)
        case known.PackedRows():
            return _planned_leaf(node, Pack(node.length, node.padding_value, node.positions), counter)
        case known.PlannedBatches():
            return _planned_leaf(node, Pad(node.padded_shapes, node.padding_values, node.multiple), counter)
        case plan.Zip():
            return ZipLeaf(_branches(node, counter))
        case plan.Mix():
            mixed = _branches(node, counter)
            return MixLeaf(mixed, node.mixing(), in_turn(mixed))
        case plan.Interleave():
            sizes = [int(length_of(child) or 0) for child in node.children]
            table = interleaving(sizes, node.cycle_length, node.block_length)
            return InterleaveLeaf(_branches(node, counter), table)
    assert isinstance(node, plan.Concatenate), node
    found = [length_of(child) for child in node.children]
    rest = 2**63 - 1 - sum(int(length) for length in found if length and length != INFINITE)  # their ends are added up in 64 bits
    lengths = tuple(0 if not length else rest if length == INFINITE else int(length) for length in found)
    return ConcatenateLeaf(_branches(node, counter), lengths, node.parts_of_one)


def _cache_leaf(node: plan.Cache, counter: Counter) -> CacheLeaf:
    """Count the random operators below a cache from 1 again: what is kept must not depend on where in a plan the cache stands."""
    below = Counter(fused=counter.fused)
    child = _branch(node.child, below)
    counter.fused = below.fused
    counter.random += below.random
    return CacheLeaf(child, node.store, passes_of(node))


def _planned_leaf(node: known.PackedRows | known.PlannedBatches, collation: Collation, counter: Counter) -> BatchLeaf:
    return BatchLeaf(_branch(node.child, counter), length_of(node.child), PlannedMembers(node.order), collation)


def _branches(node: plan.Node, counter: Counter) -> tuple[ChainOp, ...]:
    out: list[ChainOp] = []
    start = counter.random
    for child in node.children:
        if isinstance(node, plan.Concatenate) and node.parts_of_one:
            counter.random = start
        out.append(_branch(child, counter))
    return tuple(out)


def _branch(root: plan.Node, counter: Counter) -> ChainOp:
    return _chain(*operators_of(chain_of(root), counter), counter)


def _chain(leaf: Leaf, items: list[Item], counter: Counter) -> ChainOp:
    return ChainOp(leaf, tuple(fuse(items, counter)), isinstance(leaf, BatchLeaf))


def operators_of(chain: list[plan.Node], counter: Counter) -> tuple[Leaf, list[Item]]:
    """Turn an indexable chain into a leaf and operators; a batch or cache inside becomes part of the leaf."""
    start = max(place for place, node in enumerate(chain) if node.starts_chain)
    leaf: Leaf = _leaf(chain[start], counter)
    items: list[Item] = []
    for node in chain[start + 1 :]:
        if node.groups_elements:
            inner = _chain(leaf, items, counter)
            batch = batch_plan(node, length_of(node.children[0]))
            neighbours = Neighbours(batch.length, batch.batch_size, batch.shift, batch.stride)
            leaf, items = BatchLeaf(inner, batch.length, neighbours, batch.collation), []
        else:
            items.extend(items_of(node, counter))
    return leaf, items


def items_of(node: plan.Node, counter: Counter) -> list[Item]:
    below = length_of(node.children[0])
    match node:
        case plan.Map():
            return [map_item(node, counter)]
        case plan.Shuffle():
            if node.window_groups is None:
                return [ShuffleOp(int(below or 0), node.buffer_size, node.seed, node.reshuffle_each_epoch)]
            return [
                GroupShuffleOp(GroupOrders(groups_of(node.child), node.window_groups, seed=node.seed, reshuffle=node.reshuffle_each_epoch))
            ]
        case plan.Pick():
            places = np.array(node.places, np.int64).reshape(-1, 2)
            return [PickOp(places[:, 0].copy(), places[:, 1].copy())]
        case plan.Shard():
            return _shard_items(node, below)
        case plan.Skip():
            return [SkipOp(node.count)]
        case plan.Repeat() if below not in (INFINITE, 0):
            return [RepeatOp(int(below or 0), node.whole or node.count, node.first)]
        case plan.Enumerate():
            return [EnumerateOp(node.start)]
        case known.Chosen():
            return [ChosenOp(node.order)]
    if node.is_hint or isinstance(node, (plan.Take, plan.Repeat)):  # its positions are those below
        return []
    raise _not_lowered(node)


def _shard_items(node: plan.Shard, below: Length) -> list[Item]:
    length = int(below) if node.pads and below not in (None, INFINITE) else None
    shard = ShardOp(node.num_shards, node.index, node.first, length)
    return [shard, ValidOp(shard), _MARK] if node.even == "mask" else [shard]


def map_item(node: plan.Map, counter: Counter) -> Placed:
    expected = None if node.output_spec is None else Expected(node.output_spec, node.name)
    if isinstance(node.fn, Transform):
        random = node.fn.num_draws > 0
        step = Step(node.fn, node.name, node.seed, counter.stage() if random else 0, True, (), node.on_error, expected)
        return Placed(step, workers_of(node))
    stage = counter.stage() if node.random else 0
    if node.asynchronous:
        assert node.concurrency is not None
        called = node.fn if expected is None else expected.around_async(node.fn)
        awaited = AwaitedOp(called, node.name, node.seed, stage, node.random, node.concurrency, gather_alone, node.on_error)
        return Placed(awaited, Workers(node.concurrency, "threads"))
    fn = node.fn if expected is None else expected.around(node.fn)
    return Placed(MapOp(fn, node.name, node.seed, stage, node.random, node.on_error), workers_of(node))


def workers_of(node: plan.Map) -> Workers | None:
    """Return the workers that a map has of its own, threads unless it says otherwise; None for the shared ones."""
    return None if node.concurrency is None else Workers(node.concurrency, node.executor or "threads")


def fuse(items: list[Item], counter: Counter) -> list[Operator]:
    """Join neighbouring transforms; position arithmetic between them stays where it is."""
    out: list[Operator] = []
    run: list[Step] = []
    for item in items:
        operator = item.operator if isinstance(item, Placed) else item
        if isinstance(operator, Step):
            run.append(operator)
            continue
        if run:
            out.append(_transforms(run, counter))
            run = []
        out.append(operator)
    if run:
        out.append(_transforms(run, counter))
    return out


def _transforms(run: list[Step], counter: Counter) -> TransformsOp:
    counter.fused += 1
    blockwise = all(isinstance(step.transform, BlockTransform) for step in run)
    run = run if blockwise else _joined(run)
    steps = [
        replace(step, last=not any(later.transform.out_field == step.transform.out_field for later in run[place + 1 :]))
        for place, step in enumerate(run)
    ]
    return TransformsOp(tuple(steps), counter.fused, blockwise)


def _joined(run: list[Step]) -> list[Step]:
    """Replace steps by one that does them together, where a transform knows how to."""
    out: list[Step] = []
    place = 0
    while place < len(run):
        transform = run[place].transform
        end = next((end for end, step in enumerate(run[place:], place + 1) if step.expected is not None), len(run))  # where one looks
        following = [step.transform for step in run[place + 1 : end]]
        together = transform.fuse(following) if isinstance(transform, FusingTransform) else None
        parts = tuple(run[place : place + (1 if together is None else len(together.parts))])
        name = "+".join(step.name for step in parts)
        out.append(run[place] if together is None else Step(together, name, 0, 0, last=True, parts=parts, expected=parts[-1].expected))
        place += len(parts)
    return out


def stages_of(items: list[Item], counter: Counter) -> list[StagePlan]:
    """Cut operators into stages where the workers change, and around each async function.

    An async stage is never the last one: writing rows and finishing batches would hold up the event loop.
    """
    groups: list[tuple[Workers | None, list[Item]]] = [(None, [])]
    for item in items:
        wanted = item.workers if isinstance(item, Placed) else None
        if isinstance(item, Placed) and isinstance(item.operator, AwaitedOp):
            if len(groups) > 1 and not groups[-1][1]:
                groups.pop()
            groups += [(wanted, [item]), (None, [])]
            continue
        moves_only = not isinstance(item, Placed) and not item.name
        if wanted != groups[-1][0] and not moves_only:
            groups.append((wanted, []))
        groups[-1][1].append(item)
    out = []
    for wanted, group in groups:
        operators = tuple(fuse(group, counter))
        out.append(StagePlan(name="+".join(op.name for op in operators if op.name), operators=operators, workers=wanted))
    return out


def batch_plan(node: plan.Node, length: Length) -> BatchPlan:
    """Say which rows a batch or window has, and what becomes of them; `length` is that of the elements below."""
    match node:
        case plan.Window():
            return BatchPlan(batch_size=node.size, length=length, collation=Stack(), shift=node.shift, stride=node.stride)
        case plan.PaddedBatch():
            collation: Collation = Pad(node.padded_shapes, node.padding_values)
        case plan.RaggedBatch():
            collation = Ragged(node.ragged)
        case _:
            assert isinstance(node, plan.Batch), node
            collation = Stack() if node.collate_fn is None else Collate(node.collate_fn)
    return BatchPlan(batch_size=node.batch_size, length=length, collation=collation, shift=node.batch_size)


def lower(root: plan.Node) -> Program:
    """Split a plan into segments.

    Where positions are known before reading, batches and the order of elements are arithmetic. From the first operator on whose positions
    are not, what counts or holds elements is a fold, at its place: what a policy leaves out before it is not counted.

    Raises:
        PlanError: when an enumerate stands above a map with `concurrency=` above the batch, or a take could not begin again.
    """
    chain = chain_of(root)
    prefetch = max((node.buffer_size for node in chain if isinstance(node, plan.Prefetch)), default=0)
    chain = [node for node in chain if not node.is_hint]
    first = num_indexed(chain)
    builder = _Builder(counter=Counter())
    if isinstance(chain[0], plan.ReadStream):
        builder.segment = SegmentPlan(stream=chain[0].source)
        first = 1
    else:
        builder.index(chain[:first])
    builder.stream(chain[first:])
    segments = tuple(builder.finish())
    _check_takes(segments)
    return Program(segments=segments, prefetch=prefetch, random=builder.counter.random > 0)


def _check_takes(segments: Sequence[SegmentPlan]) -> None:
    """Refuse a `take` that could not begin again: what it takes from never ends, and other elements of it are on their way already.

    Raises:
        PlanError: a repeat stands above the take, an endless one below it, and a filter, flat_map or Skip between the two.
    """
    endless_below = False
    for segment in segments:
        endless_here = False
        for fold in segment.folds:
            if isinstance(fold, TakeFold) and fold.repeated and endless_below:
                raise PlanError(
                    f"take({fold.count}) cannot begin again for the repeat() after it: before it is an endless repeat(), and between the "
                    "two elements may be left out",
                    where=f"take({fold.count}) between two repeats",
                    fix="give the first repeat() a count that is enough for the take, or put take() right after it",
                )
            if isinstance(fold, TakeFold):
                endless_below = endless_here = False
            endless_here = endless_here or (isinstance(fold, RepeatFold) and fold.count is None)
        endless_below |= endless_here


@dataclass(slots=True)
class _Builder:
    """Segments under construction, from the source up."""

    counter: Counter
    done: list[SegmentPlan] = field(default_factory=list)
    segment: SegmentPlan = field(default_factory=SegmentPlan)
    folds: list[Fold] = field(default_factory=list)
    steps: list[tuple[Workers | None, FilterStep | Operator]] = field(default_factory=list)

    def index(self, chain: list[plan.Node]) -> None:
        """Take the indexable part: its last batch is the one that workers write into, unless a cache keeps whole batches."""
        lowest = max(place for place, node in enumerate(chain) if node.groups_elements or node.starts_chain)
        place = None if chain[lowest].starts_chain else lowest
        leaf, items = operators_of(chain if place is None else chain[:place], self.counter)
        batch, batch_ops = None, []
        if place is not None:
            batch = batch_plan(chain[place], length_of(chain[place - 1]))
            batch_ops = [item for above in chain[place + 1 :] for item in items_of(above, self.counter)]
        stages = stages_of(items, self.counter)
        stages[0] = replace(stages[0], name="+".join(filter(None, ("cache" if isinstance(leaf, CacheLeaf) else "read", stages[0].name))))
        self.segment = SegmentPlan(leaf=leaf, length=length_of(chain[-1]), period=period_of(chain[-1]), stages=tuple(stages), batch=batch)
        plain = [item for item in batch_ops if getattr(item, "workers", None) is None]
        if len(plain) == len(batch_ops):
            self.segment = replace(self.segment, batch_ops=tuple(fuse(batch_ops, self.counter)))
            return
        self._place_batch_ops(batch_ops)

    def _place_batch_ops(self, batch_ops: list[Item]) -> None:
        """Give maps above the batch that have workers of their own a segment each; arithmetic on positions goes below them."""
        cut = next(place for place, item in enumerate(batch_ops) if getattr(item, "workers", None) is not None)
        number = next((item for item in batch_ops[cut:] if isinstance(item, (EnumerateOp, ValidOp))), None)
        if number is not None:
            name = "enumerate" if isinstance(number, EnumerateOp) else "shard_by_rank(even='mask')"
            raise PlanError(
                f"{name} after a map with concurrency= after batch() is not possible",
                where="map(concurrency=...) after batch()",
                fix=f"put {name.partition('(')[0]}() before the batch or before this map",
            )
        maps = [item for item in batch_ops[cut:] if isinstance(item, (Placed, MapOp))]
        moves = [item for item in batch_ops[cut:] if not isinstance(item, (Placed, MapOp))]
        self.segment = replace(self.segment, batch_ops=tuple(fuse([*batch_ops[:cut], *moves], self.counter)))
        for item in maps:
            self._place(fuse([item], self.counter)[0], getattr(item, "workers", None))

    def stream(self, chain: list[plan.Node]) -> None:
        """Take everything from the first filter, flat_map or generator up."""
        for place, node in enumerate(chain):
            match node:
                case plan.Map():
                    item = map_item(node, self.counter)
                    self._place(fuse([item], self.counter)[0], item.workers)
                case plan.Filter() | plan.FlatMap() | plan.Unbatch():
                    self._place(_filter_step_of(node), None)
                case plan.BatchNode():
                    self._batch(node)
                case plan.Enumerate():
                    self.folds.append(EnumerateFold(node.start, _numbered))
                case plan.AsCompleted():
                    self.segment = replace(self.segment, unordered=True)
                case plan.Shuffle():
                    self._shuffle(node)
                case plan.BucketByLength():
                    self._bucket(node)
                case known.BatchByCost():
                    self._batch_by_cost(node)
                case plan.Window():
                    self._window(node)
                case known.PackSequences():
                    self._pack(node)
                case plan.RejectionResample():
                    found = partial(_checked, node.fn, "a class", len(node.target), f"rejection_resample({node.name})")
                    self._place(WeighOp(found, node.name), None)
                    self.folds.append(ResampleFold(node.target, node.initial, node.seed, size_of, unmeasured))
                case _ if node.children and not node.is_hint:
                    self._number(_fold_of(node, chain[place + 1 :]))

    def finish(self) -> list[SegmentPlan]:
        """Close the last segment: it delivers."""
        self._close()
        self.done[-1] = replace(self.done[-1], delivers=True)
        return self.done

    def _close(self) -> None:
        segment = self.segment
        if self.steps and segment.batch is not None:
            segment = replace(segment, batch_ops=(*segment.batch_ops, *(step for _, step in self.steps)))
        elif self.steps:
            segment = replace(segment, stages=self._with_steps(segment.stages))
        if not segment.stages:
            segment = replace(segment, stages=(StagePlan(name=""),))
        self.done.append(replace(segment, folds=tuple(self.folds)))
        self.segment, self.folds, self.steps = SegmentPlan(), [], []

    def _with_steps(self, stages: tuple[StagePlan, ...]) -> tuple[StagePlan, ...]:
        """Add the steps to the last stage, and cut where the workers change and around each async function."""
        out = list(stages)
        for wanted, step in self.steps:
            if not out or out[-1].workers != wanted or out[-1].awaited or isinstance(step, AwaitedOp):
                out.append(StagePlan(name="", workers=wanted))
            last = out[-1]
            name = "+".join(filter(None, (last.name, step.name)))
            out[-1] = replace(last, name=name, filter_steps=(*last.filter_steps, step))
        if out[-1].awaited:  # writing rows and finishing batches would hold up the event loop
            out.append(StagePlan(name=""))
        return tuple(out)

    def _place(self, operator: Operator | FilterStep, workers: Workers | None) -> None:
        in_batch = self.segment.batch is not None
        if self.folds or (in_batch and workers is not None):
            self._close()
        self.steps.append((workers, operator))

    def _hold(self, fn: Callable[[Any], Any], name: str, fold: Fold) -> None:
        """Add a fold that holds elements, weighed by the workers: one in each fold runner."""
        self._place(WeighOp(fn, name), None)
        self.folds.append(fold)

    def _shuffle(self, node: plan.Shuffle) -> None:
        fold = ShuffleBufferFold(node.buffer_size or 1, node.buffer_bytes, node.seed, node.reshuffle_each_epoch, size_of)
        self._hold(bytes_of, "shuffle", fold)

    def _bucket(self, node: plan.BucketByLength) -> None:
        length = partial(_checked, node.fn, "a length", None, f"bucket_by_length({node.name})")
        self._hold(length, node.name, BucketFold(node.boundaries, node.batch_sizes, node.drop_remainder, size_of))
        self._pad(Pad(node.padded_shapes, node.padding_values), max(node.batch_sizes))

    def _batch_by_cost(self, node: known.BatchByCost) -> None:
        most = node.most // node.multiple * node.multiple
        cost = partial(_checked, node.fn, "a cost that fits max_cost", most + 1, f"batch_by_cost({node.name})")
        self._hold(cost, node.name, BudgetFold(node.most, node.pool, node.multiple, size_of))
        self._pad(Pad(node.padded_shapes, node.padding_values, node.multiple), node.pool)

    def _pad(self, collation: Pad, size: int) -> None:
        self._close()
        self.segment = SegmentPlan(batch=BatchPlan(batch_size=size, length=None, collation=collation, shift=size))

    def _window(self, node: plan.Window) -> None:
        if self.folds:
            self._close()
        self.folds.append(WindowFold(node.size, node.shift, node.stride, node.drop_remainder))
        self._place(GatherOp(_stacked, "window"), None)

    def _pack(self, node: known.PackSequences) -> None:
        if node.num_bins is None:
            self._hold(sequence_length, "pack_sequences", ConcatenateFold(node.length, size_of))
        else:
            fold = PackFold(node.length, node.num_bins, size_of)
            self._hold(whole_sequence_length(node.length), "pack_sequences", fold)
        self._place(GatherOp(pack_rows(node.length, node.padding_value, node.positions), "pack_sequences", places_in_use), None)

    def _batch(self, node: plan.BatchNode) -> None:
        self.folds.append(BatchFold(node.batch_size, node.drop_remainder))
        self._close()
        self.segment = SegmentPlan(batch=batch_plan(node, None))

    def _number(self, fold: Fold) -> None:
        """Add a numbering fold. Right behind another segment it moves into the fold runner of that."""
        marks = isinstance(fold, RankFold) and fold.even == "mask"  # it makes pairs, and the step behind it makes elements of them
        if self.done and not self.folds and not self.steps and not marks and not self.segment.batch_ops:
            before = self.done[-1]
            if not (isinstance(fold, RankFold) and _holds(before.folds)):
                self.done[-1] = replace(before, folds=(*before.folds, fold))
                return
            if self.segment.batch is None:
                self.done.append(SegmentPlan(stages=(StagePlan(name=""),), folds=(fold,)))
                return
        if isinstance(fold, RankFold) and _holds(self.folds):
            self._close()
        self.folds.append(fold)
        if marks:
            self._place(_MARK, None)


def _holds(folds: Sequence[Fold]) -> bool:
    """Tell whether a fold holds elements. What came out of it since its last checkpoint is then counted at the top of its fold runner.

    So the fold of a rank needs a fold runner of its own: on another number of ranks another number comes out.
    """
    return any(hasattr(fold, "held") for fold in folds)


def _checked(fn: Callable[[Any], Any], what: str, limit: int | None, where: str, element: Any) -> int:
    return whole_number(fn(element), what, limit, where)


def _stacked(values: tuple[Any, ...], layout: None) -> Any:
    """Make one element of a window behind a filter."""
    return stack_rows(list(values), lambda row: f"number {row} of the window")


def _numbered(number: int, piece: KeyedElement) -> KeyedElement:
    """Pair an element with its number; it keeps its key."""
    return KeyedElement((number, piece.value), piece.key)


def _marked(pair: tuple[bool, Any]) -> Any:
    return marked(pair[1], pair[0])


_MARK = MapOp(_marked, "shard_by_rank", 0, 0, False, Raise())
"""Makes elements of the pairs that `even="mask"` gives."""


def _filter_step_of(node: plan.Filter | plan.FlatMap | plan.Unbatch) -> FilterStep:
    if isinstance(node, plan.Unbatch):
        return FlatMapOp(rows_of, "unbatch")
    return (FilterOp if isinstance(node, plan.Filter) else FlatMapOp)(node.fn, node.name, node.on_error)


def _fold_of(node: plan.Node, above: list[plan.Node]) -> Fold:
    match node:
        case plan.Take():
            return TakeFold(node.count, any(isinstance(other, plan.Repeat) for other in above))
        case plan.Skip():
            return SkipFold(node.count)
        case plan.Shard():
            whole = node.num_shards, node.index
            return ShardFold(*whole) if node.even is None else RankFold(*whole, node.even, _numbered)
    if not isinstance(node, plan.Repeat):
        raise _not_lowered(node)
    empty = is_indexable(node.child) and length_of(node.child) == 0  # stays empty however often it is repeated
    return RepeatFold(1 if empty else node.count)


class Evaluator:
    """The whole of a plan as one function of a position. Safe from several threads."""

    def __init__(self, root: Node) -> None:
        """Lower the plan once."""
        self._chain = evaluator(root)

    def element(self, place: int) -> Any:
        """Compute the element at root position `place`: what the feed delivers there, and the same error if it fails."""
        try:
            return self._chain.run(np.zeros(1, np.int64), np.array([place], np.int64), WorkerContext(0)).rows()[0]
        except ElementFailed as failed:
            if isinstance(failed.error, KeyboardInterrupt):
                raise failed.error from None
            failure = Failure(0, failed.error, failed.stage, 0)
            raise prepare(failure, self._chain.where(0, place), key_of(self._chain, 0, place)).error from None
