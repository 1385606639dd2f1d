"""From the plan to the program: which operators run together, where blocks change hands, where folds stand."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from penstock._contracts.source import ColumnSource, IndexedSource, TransientSource
from penstock._contracts.transform import BlockTransform, Transform
from penstock._engine.program import BatchPlan, Program, SegmentPlan, Sift, StagePlan
from penstock._engine.unit import Piece
from penstock._ops.leaves import BatchLeaf, ConcatenateLeaf, ReadLeaf, ZipLeaf
from penstock._ops.map import MapOp
from penstock._ops.operator import ChainOp, Leaf, Operator
from penstock._ops.positions import EnumerateOp, RepeatOp, ShardOp, ShuffleOp, SkipOp
from penstock._ops.streams import FilterOp, FlatMapOp, UnbatchOp
from penstock._ops.transforms import Step, TransformsOp
from penstock._order.arithmetic import INFINITE
from penstock._order.folds import Batching, Fold, Numbering, Passes, Sharding, Skipping, Taking
from penstock._plan import node as plan
from penstock._plan.length import length_of
from penstock.errors import PlanError

__all__ = ["evaluator", "lower"]

_STREAM = (plan.Filter, plan.FlatMap, plan.Unbatch, plan.ReadStream)
_BATCH = (plan.Batch, plan.PaddedBatch)
_NUMBERING = (plan.Take, plan.Skip, plan.Shard, plan.Repeat)


def lower(root: plan.Node) -> Program:
    """Split a plan into segments.

    Raises:
        PlanError: when an enumerate stands above a map with `concurrency=` above the batch.
    """
    chain = _chain(root)
    prefetch = max((node.buffer_size for node in chain if isinstance(node, plan.Prefetch)), default=0)
    chain = [node for node in chain if not isinstance(node, plan.Prefetch)]
    first = next((place for place, node in enumerate(chain) if isinstance(node, _STREAM)), len(chain))
    builder = _Builder(counter=_Counter())
    if isinstance(chain[0], plan.ReadStream):
        builder.segment = SegmentPlan(stream=chain[0].source)
        first = 1
    else:
        builder.index(chain[:first])
    builder.stream(chain[first:])
    return Program(segments=tuple(builder.finish()), prefetch=prefetch)


def evaluator(root: plan.Node) -> ChainOp:
    """Return the whole of an indexable plan as one function of positions, for `ds[i]` and branches."""
    counter = _Counter()
    leaf, operators = _operators(_chain(root), counter)
    return ChainOp(leaf, tuple(_fuse(operators, counter)))


def _chain(root: plan.Node) -> list[plan.Node]:
    """List the nodes from the last branching (or the source) up to the root."""
    out = [root]
    while True:
        below = plan.children_of(out[-1])
        if len(below) != 1:
            return out[::-1]
        out.append(below[0])


@dataclass(slots=True)
class _Counter:
    """Numbers the random operators of a plan from the source up: part of their key."""

    random: int = 0
    fused: int = 0

    def stage(self) -> int:
        self.random += 1
        return self.random


@dataclass(frozen=True, slots=True)
class _Fusible:
    """A transform that waits for its neighbours."""

    step: Step
    concurrency: int | None


@dataclass(frozen=True, slots=True)
class _Placed:
    """An operator with a concurrency of its own."""

    operator: Operator
    concurrency: int


_Item = Operator | _Fusible | _Placed


def _leaf(node: plan.Node, counter: _Counter) -> Leaf:
    match node:
        case plan.Read():
            return _read_leaf(node.source)
        case plan.Zip():
            return ZipLeaf(tuple(_branch(child, counter) for child in node.children))
    assert isinstance(node, plan.Concatenate), node
    lengths = tuple(2**63 - 1 if length == INFINITE else int(length or 0) for length in map(length_of, node.children))
    return ConcatenateLeaf(_branches(node, counter), lengths, node.parts_of_one)


def _read_leaf(source: IndexedSource) -> ReadLeaf:
    columns = source if isinstance(source, ColumnSource) else None
    return ReadLeaf(source, columns, source if isinstance(source, TransientSource) else None)


def _branches(node: plan.Concatenate, counter: _Counter) -> tuple[Leaf, ...]:
    out: list[Leaf] = []
    start = counter.random
    for child in node.children:
        if node.parts_of_one:
            counter.random = start
        out.append(_branch(child, counter))
    return tuple(out)


def _branch(root: plan.Node, counter: _Counter) -> ChainOp:
    leaf, operators = _operators(_chain(root), counter)
    return ChainOp(leaf, tuple(_fuse(operators, counter)))


def _operators(chain: list[plan.Node], counter: _Counter) -> tuple[Leaf, list[_Item]]:
    """Turn an indexable chain into a leaf and operators; a batch inside becomes part of the leaf."""
    leaf: Leaf = _leaf(chain[0], counter)
    items: list[_Item] = []
    for node in chain[1:]:
        if isinstance(node, _BATCH):
            inner = ChainOp(leaf, tuple(_fuse(items, counter)))
            leaf, items = BatchLeaf(inner, length_of(node.child), node.batch_size, _padding(node)), []
        else:
            items.extend(_item(node, counter))
    return leaf, items


def _item(node: plan.Node, counter: _Counter) -> list[_Item]:
    below = length_of(plan.children_of(node)[0])
    match node:
        case plan.Map():
            return [_map_item(node, counter)]
        case plan.Shuffle():
            return [ShuffleOp(int(below or 0), node.buffer_size, node.seed, node.reshuffle_each_epoch)]
        case plan.Shard():
            return [ShardOp(node.num_shards, node.index)]
        case plan.Skip():
            return [SkipOp(node.count)]
        case plan.Repeat():
            return [] if below in (INFINITE, 0) else [RepeatOp(int(below or 0), node.count, node.first)]
        case plan.Enumerate():
            return [EnumerateOp(node.start)]
    return []


def _map_item(node: plan.Map, counter: _Counter) -> _Item:
    if isinstance(node.fn, Transform):
        random = node.fn.num_draws > 0
        step = Step(node.fn, node.name, node.seed, counter.stage() if random else 0, last=True)
        return _Fusible(step, node.concurrency)
    operator = MapOp(node.fn, node.name, node.seed, counter.stage() if node.random else 0, node.random)
    return operator if node.concurrency is None else _Placed(operator, node.concurrency)


def _fuse(items: list[_Item], counter: _Counter) -> list[Operator]:
    """Join neighbouring transforms; position arithmetic between them stays where it is."""
    out: list[Operator] = []
    run: list[Step] = []
    for item in items:
        if isinstance(item, _Fusible):
            run.append(item.step)
            continue
        if run:
            out.append(_transforms(run, counter))
            run = []
        out.append(item.operator if isinstance(item, _Placed) else item)
    if run:
        out.append(_transforms(run, counter))
    return out


def _transforms(run: list[Step], counter: _Counter) -> TransformsOp:
    counter.fused += 1
    steps = [
        replace(step, last=not any(later.transform.out_field == step.transform.out_field for later in run[place + 1 :]))
        for place, step in enumerate(run)
    ]
    return TransformsOp(tuple(steps), counter.fused, all(isinstance(step.transform, BlockTransform) for step in steps))


def _stages(items: list[_Item], counter: _Counter) -> list[StagePlan]:
    """Cut operators into stages where the concurrency changes."""
    groups: list[tuple[int | None, list[_Item]]] = [(None, [])]
    for item in items:
        wanted = item.concurrency if isinstance(item, (_Placed, _Fusible)) else None
        moves_only = not isinstance(item, (_Placed, _Fusible)) and not item.name
        if wanted != groups[-1][0] and not moves_only:
            groups.append((wanted, []))
        groups[-1][1].append(item)
    out = []
    for wanted, group in groups:
        operators = tuple(_fuse(group, counter))
        out.append(StagePlan(name="+".join(op.name for op in operators if op.name), operators=operators, concurrency=wanted))
    return out


def _padding(node: plan.Batch | plan.PaddedBatch) -> tuple[Any, Any] | None:
    return (node.padded_shapes, node.padding_values) if isinstance(node, plan.PaddedBatch) else None


@dataclass(slots=True)
class _Builder:
    """Segments under construction, from the source up."""

    counter: _Counter
    done: list[SegmentPlan] = field(default_factory=list)
    segment: SegmentPlan = field(default_factory=SegmentPlan)
    folds: list[Fold] = field(default_factory=list)
    steps: list[tuple[int | None, Sift | Operator]] = field(default_factory=list)

    def index(self, chain: list[plan.Node]) -> None:
        """Take the indexable part: its last batch is the one that workers write into."""
        place = max((place for place, node in enumerate(chain) if isinstance(node, _BATCH)), default=None)
        leaf, items = _operators(chain if place is None else chain[:place], self.counter)
        batch, top = None, []
        if place is not None:
            node = chain[place]
            assert isinstance(node, _BATCH)
            batch = BatchPlan(batch_size=node.batch_size, length=length_of(node.child), padding=_padding(node))
            top = [item for above in chain[place + 1 :] for item in _item(above, self.counter)]
        stages = _stages(items, self.counter)
        stages[0] = replace(stages[0], name="+".join(filter(None, ("read", stages[0].name))))
        self.segment = SegmentPlan(leaf=leaf, length=length_of(chain[-1]), stages=tuple(stages), batch=batch)
        plain = [item for item in top if getattr(item, "concurrency", None) is None]
        if len(plain) == len(top):
            self.segment = replace(self.segment, top=tuple(_fuse(top, self.counter)))
            return
        self._place_top(top)

    def _place_top(self, top: list[_Item]) -> None:
        """Give maps above the batch that have a concurrency of their own a segment each; arithmetic on positions goes below them."""
        cut = next(place for place, item in enumerate(top) if getattr(item, "concurrency", None) is not None)
        if any(isinstance(item, EnumerateOp) for item in top[cut:]):
            raise PlanError(
                "enumerate above a map with concurrency= above batch() is not possible",
                where="map(concurrency=...) above batch()",
                fix="put enumerate() below the batch or below this map",
            )
        maps = [item for item in top[cut:] if isinstance(item, (_Fusible, _Placed, MapOp))]
        moves = [item for item in top[cut:] if not isinstance(item, (_Fusible, _Placed, MapOp))]
        self.segment = replace(self.segment, top=tuple(_fuse([*top[:cut], *moves], self.counter)))
        for item in maps:
            self._place(_fuse([item], self.counter)[0], getattr(item, "concurrency", None))

    def stream(self, chain: list[plan.Node]) -> None:
        """Take everything from the first filter, flat_map or generator up."""
        for place, node in enumerate(chain):
            match node:
                case plan.Map():
                    item = _map_item(node, self.counter)
                    wanted = getattr(item, "concurrency", None)
                    self._place(_fuse([item], self.counter)[0], wanted)
                case plan.Filter():
                    self._sift(FilterOp(node.fn, node.name))
                case plan.FlatMap():
                    self._sift(FlatMapOp(node.fn, node.name))
                case plan.Unbatch():
                    self._sift(UnbatchOp())
                case plan.Batch() | plan.PaddedBatch():
                    self._batch(node)
                case plan.Enumerate():
                    self._fold(Numbering(node.start, _numbered))
                case _ if isinstance(node, _NUMBERING):
                    self._number(_fold_of(node, chain[place + 1 :]))

    def finish(self) -> list[SegmentPlan]:
        """Close the last segment: it delivers."""
        folds = tuple(self.folds) if self.folds or self._sifts() else None
        self._close(folds)
        return self.done

    def _sifts(self) -> bool:
        return any(not hasattr(step, "up") for _, step in self.steps)

    def _close(self, folds: tuple[Fold, ...] | None) -> None:
        segment = self.segment
        if self.steps and segment.batch is not None:
            segment = replace(segment, top=(*segment.top, *(step for _, step in self.steps)))
        elif self.steps:
            segment = replace(segment, stages=self._with_steps(segment.stages))
        if not segment.stages:
            segment = replace(segment, stages=(StagePlan(name=""),))
        self.done.append(replace(segment, folds=folds))
        self.segment, self.folds, self.steps = SegmentPlan(), [], []

    def _with_steps(self, stages: tuple[StagePlan, ...]) -> tuple[StagePlan, ...]:
        """Add the steps to the last stage, and cut where the concurrency changes."""
        out = list(stages)
        for wanted, step in self.steps:
            if not out or out[-1].concurrency != wanted:
                out.append(StagePlan(name="", concurrency=wanted))
            last = out[-1]
            name = "+".join(filter(None, (last.name, step.name)))
            out[-1] = replace(last, name=name, sifts=(*last.sifts, step))
        return tuple(out)

    def _place(self, operator: Operator, concurrency: int | None) -> None:
        in_batch = self.segment.batch is not None
        if self.folds or (in_batch and concurrency is not None):
            self._close(tuple(self.folds))
        self.steps.append((concurrency, operator))

    def _sift(self, sift: Sift) -> None:
        if self.folds:
            self._close(tuple(self.folds))
        self.steps.append((None, sift))

    def _fold(self, fold: Fold) -> None:
        self.folds.append(fold)

    def _batch(self, node: plan.Batch | plan.PaddedBatch) -> None:
        self.folds.append(Batching(node.batch_size, node.drop_remainder))
        self._close(tuple(self.folds))
        self.segment = SegmentPlan(batch=BatchPlan(batch_size=node.batch_size, length=None, padding=_padding(node)))

    def _number(self, fold: Fold) -> None:
        """Add a numbering fold; below maps it moves into the sequencer before them, because it commutes with them."""
        if not self.folds and self.done and not self._sifts():
            before = self.done[-1]
            assert before.folds is not None
            self.done[-1] = replace(before, folds=(*before.folds, fold))
            return
        self.folds.append(fold)


def _numbered(number: int, piece: Piece) -> Piece:
    """Pair an element with its number; it keeps its key."""
    return Piece((number, piece.value), piece.key)


def _fold_of(node: plan.Node, above: list[plan.Node]) -> Fold:
    match node:
        case plan.Take():
            return Taking(node.count, any(isinstance(other, plan.Repeat) for other in above))
        case plan.Skip():
            return Skipping(node.count)
        case plan.Shard():
            return Sharding(node.num_shards, node.index)
    assert isinstance(node, plan.Repeat), node
    return Passes(node.count)
