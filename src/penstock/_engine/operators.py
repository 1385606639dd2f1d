"""Operators of an indexable chain: nodes to a leaf and steps, steps to fused operators and stages."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from penstock._contracts.source import ColumnSource, IndexedSource, TransientSource
from penstock._contracts.transform import BlockTransform, FusingTransform, Transform
from penstock._engine.async_calls import gather_alone
from penstock._engine.program import BatchPlan, StagePlan
from penstock._ops.awaited import AwaitedOp
from penstock._ops.cached import CacheLeaf
from penstock._ops.collation import Collate, Collation, Pad, Ragged, Stack
from penstock._ops.expected import Expected
from penstock._ops.leaves import BatchLeaf, ConcatenateLeaf, ReadLeaf, ZipLeaf
from penstock._ops.map import MapOp
from penstock._ops.mixing import InterleaveLeaf, MixLeaf, in_turn
from penstock._ops.operator import ChainOp, Leaf, Operator
from penstock._ops.positions import EnumerateOp, GroupShuffleOp, PickOp, RepeatOp, ShardOp, ShuffleOp, SkipOp
from penstock._ops.transforms import Step, TransformsOp
from penstock._order.arithmetic import INFINITE, Length
from penstock._order.grouping import GroupOrders
from penstock._order.interleaving import interleaving
from penstock._plan import node as plan
from penstock._plan.groups import groups_of
from penstock._plan.length import length_of, mixing_of, passes_of

__all__ = [
    "BATCHES",
    "Counter",
    "Fusible",
    "Item",
    "Placed",
    "batch_plan",
    "chain_of",
    "evaluator",
    "fuse",
    "items_of",
    "map_item",
    "operators_of",
    "stages_of",
]

BATCHES = (plan.Batch, plan.PaddedBatch, plan.RaggedBatch, plan.Window)


def evaluator(root: plan.Node) -> ChainOp:
    """Return the whole of an indexable plan as one function of positions, for `ds[i]` and branches."""
    return _branch(root, Counter())


def chain_of(root: plan.Node) -> list[plan.Node]:
    """List the nodes from the last branching (or the source) up to the root."""
    out = [root]
    while True:
        below = plan.children_of(out[-1])
        if len(below) != 1:
            return out[::-1]
        out.append(below[0])


@dataclass(slots=True)
class Counter:
    """Numbers the random operators of a plan from the source up: part of their key."""

    random: int = 0
    fused: int = 0

    def stage(self) -> int:
        self.random += 1
        return self.random


@dataclass(frozen=True, slots=True)
class Fusible:
    """A transform that waits for its neighbours."""

    step: Step
    concurrency: int | None


@dataclass(frozen=True, slots=True)
class Placed:
    """An operator with a concurrency of its own."""

    operator: Operator
    concurrency: int


Item = Operator | Fusible | Placed


def _leaf(node: plan.Node, counter: Counter) -> Leaf:
    match node:
        case plan.Read():
            return _read_leaf(node.source)
        case plan.Cache():
            return _cache_leaf(node, counter)
        case plan.Zip():
            return ZipLeaf(tuple(_branch(child, counter) for child in node.children))
        case plan.Mix():
            mixed = tuple(_branch(child, counter) for child in node.children)
            return MixLeaf(mixed, mixing_of(node), in_turn(mixed))
        case plan.Interleave():
            sizes = [int(length_of(child) or 0) for child in node.children]
            table = interleaving(sizes, node.cycle_length, node.block_length)
            return InterleaveLeaf(tuple(_branch(child, counter) for child in node.children), table)
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


def _read_leaf(source: IndexedSource) -> ReadLeaf:
    columns = source if isinstance(source, ColumnSource) else None
    return ReadLeaf(source, columns, source if isinstance(source, TransientSource) else None)


def _branches(node: plan.Concatenate, counter: Counter) -> tuple[Leaf, ...]:
    out: list[Leaf] = []
    start = counter.random
    for child in node.children:
        if node.parts_of_one:
            counter.random = start
        out.append(_branch(child, counter))
    return tuple(out)


def _branch(root: plan.Node, counter: Counter) -> ChainOp:
    return _chain(*operators_of(chain_of(root), counter), counter)


def _chain(leaf: Leaf, items: list[Item], counter: Counter) -> ChainOp:
    return ChainOp(leaf, tuple(fuse(items, counter)), isinstance(leaf, BatchLeaf))


def operators_of(chain: list[plan.Node], counter: Counter) -> tuple[Leaf, list[Item]]:
    """Turn an indexable chain into a leaf and operators; a batch or cache inside becomes part of the leaf."""
    start = max((place for place, node in enumerate(chain) if isinstance(node, plan.Cache)), default=0)
    leaf: Leaf = _leaf(chain[start], counter)
    items: list[Item] = []
    for node in chain[start + 1 :]:
        if isinstance(node, BATCHES):
            inner = _chain(leaf, items, counter)
            batch = batch_plan(node, length_of(node.child))
            leaf, items = BatchLeaf(inner, batch.length, batch.batch_size, batch.collation, batch.shift, batch.stride), []
        else:
            items.extend(items_of(node, counter))
    return leaf, items


def items_of(node: plan.Node, counter: Counter) -> list[Item]:
    below = length_of(plan.children_of(node)[0])
    match node:
        case plan.Map():
            return [map_item(node, counter)]
        case plan.Shuffle() if node.window_groups is not None:
            orders = GroupOrders(groups_of(node.child), node.window_groups, seed=node.seed, reshuffle=node.reshuffle_each_epoch)
            return [GroupShuffleOp(orders)]
        case plan.Shuffle():
            return [ShuffleOp(int(below or 0), node.buffer_size, node.seed, node.reshuffle_each_epoch)]
        case plan.Pick():
            places = np.array(node.places, np.int64).reshape(-1, 2)
            return [PickOp(places[:, 0].copy(), places[:, 1].copy())]
        case plan.Shard():
            padded_length = int(below) if node.even == "pad" and below not in (None, INFINITE) else None
            return [ShardOp(node.num_shards, node.index, node.first, padded_length)]
        case plan.Skip():
            return [SkipOp(node.count)]
        case plan.Repeat():
            return [] if below in (INFINITE, 0) else [RepeatOp(int(below or 0), node.whole or node.count, node.first)]
        case plan.Enumerate():
            return [EnumerateOp(node.start)]
    return []


def map_item(node: plan.Map, counter: Counter) -> Item:
    expected = None if node.output_spec is None else Expected(node.output_spec, node.name)
    if isinstance(node.fn, Transform):
        random = node.fn.num_draws > 0
        step = Step(node.fn, node.name, node.seed, counter.stage() if random else 0, True, (), node.on_error, expected)
        return Fusible(step, node.concurrency)
    stage = counter.stage() if node.random else 0
    if node.asynchronous:
        assert node.concurrency is not None
        called = node.fn if expected is None else expected.around_async(node.fn)
        awaited = AwaitedOp(called, node.name, node.seed, stage, node.random, node.concurrency, gather_alone, node.on_error)
        return Placed(awaited, node.concurrency)
    fn = node.fn if expected is None else expected.around(node.fn)
    operator = MapOp(fn, node.name, node.seed, stage, node.random, node.on_error)
    return operator if node.concurrency is None else Placed(operator, node.concurrency)


def fuse(items: list[Item], counter: Counter) -> list[Operator]:
    """Join neighbouring transforms; position arithmetic between them stays where it is."""
    out: list[Operator] = []
    run: list[Step] = []
    for item in items:
        if isinstance(item, Fusible):
            run.append(item.step)
            continue
        if run:
            out.append(_transforms(run, counter))
            run = []
        out.append(item.operator if isinstance(item, Placed) else item)
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
    """Cut operators into stages where the concurrency changes, and around each async function.

    An async stage is never the last one: writing rows and finishing batches would hold up the event loop.
    """
    groups: list[tuple[int | None, list[Item]]] = [(None, [])]
    for item in items:
        wanted = item.concurrency if isinstance(item, (Placed, Fusible)) else None
        if isinstance(item, Placed) and isinstance(item.operator, AwaitedOp):
            if len(groups) > 1 and not groups[-1][1]:
                groups.pop()
            groups += [(wanted, [item]), (None, [])]
            continue
        moves_only = not isinstance(item, (Placed, Fusible)) and not item.name
        if wanted != groups[-1][0] and not moves_only:
            groups.append((wanted, []))
        groups[-1][1].append(item)
    out = []
    for wanted, group in groups:
        operators = tuple(fuse(group, counter))
        out.append(StagePlan(name="+".join(op.name for op in operators if op.name), operators=operators, concurrency=wanted))
    return out


def batch_plan(node: plan.AnyBatch | plan.Window, length: Length) -> BatchPlan:
    """Say which rows a batch or window has, and what becomes of them; `length` is that of the elements below."""
    if isinstance(node, plan.Window):
        return BatchPlan(batch_size=node.size, length=length, collation=Stack(), shift=node.shift, stride=node.stride)
    return BatchPlan(batch_size=node.batch_size, length=length, collation=_collation(node), shift=node.batch_size)


def _collation(node: plan.AnyBatch) -> Collation:
    match node:
        case plan.PaddedBatch():
            return Pad(node.padded_shapes, node.padding_values)
        case plan.RaggedBatch():
            return Ragged(node.ragged)
    return Stack() if node.collate_fn is None else Collate(node.collate_fn)
