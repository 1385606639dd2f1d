"""From the plan to the program: which operators run together, where blocks change hands, where folds stand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

from penstock._contracts.element import bytes_of
from penstock._engine.chunk import LateFailure, Piece
from penstock._engine.completion import refused
from penstock._engine.folding import bare, weight_of
from penstock._engine.operators import (
    BATCHES,
    Counter,
    Fusible,
    Item,
    Placed,
    batch_plan,
    chain_of,
    fuse,
    items_of,
    map_item,
    operators_of,
    stages_of,
)
from penstock._engine.program import BatchPlan, Program, SegmentPlan, Sift, StagePlan
from penstock._ops.awaited import AwaitedOp
from penstock._ops.cached import CacheLeaf
from penstock._ops.collation import Pad
from penstock._ops.map import MapOp
from penstock._ops.operator import Operator
from penstock._ops.packing import pack_rows, places_in_use, sequence_length, whole_sequence_length
from penstock._ops.positions import EnumerateOp
from penstock._ops.stack import stack_rows
from penstock._ops.streams import FilterOp, FlatMapOp, UnbatchOp
from penstock._ops.weigh import GatherOp, WeighOp, whole_number
from penstock._order.arithmetic import INFINITE
from penstock._order.folds import Batching, Fold, Numbering, Passes, RankFold, Sharding, Skipping, Taking
from penstock._order.holding import Bucketing, Buffering, Concatenating, FirstFit, Windowing
from penstock._order.resampling import Resampling
from penstock._plan import node as plan
from penstock._plan.length import STREAMS, is_indexable, length_of, walk
from penstock.errors import PlanError

__all__ = ["check_completion", "counted_node", "lower"]

_NUMBERING = (plan.Take, plan.Skip, plan.Shard, plan.Repeat)


def lower(root: plan.Node, *, folded: bool = False, skips: bool = False) -> Program:
    """Split a plan into segments.

    With `folded`, batches are folds over what the first segment gives, also where their rows are known before reading: for elements that
    come in the order in which they are finished, or that may be left out. With `skips`, for the latter, what counts elements stays above
    the maps that it stands above, and each segment ends at a sequencer.

    Raises:
        PlanError: when an enumerate stands above a map with `concurrency=` above the batch, or a take could not begin again.
    """
    chain = chain_of(root)
    prefetch = max((node.buffer_size for node in chain if isinstance(node, plan.Prefetch)), default=0)
    chain = [node for node in chain if not isinstance(node, plan.Prefetch)]
    first = _num_indexed(chain, folded=folded)
    builder = _Builder(counter=Counter(), folded=folded, skips=skips)
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
        for fold in segment.folds or ():
            if isinstance(fold, Taking) and fold.repeated and endless_below:
                raise PlanError(
                    f"take({fold.count}) cannot begin again for the repeat() above it: below it is an endless repeat(), and between the "
                    "two elements may be left out",
                    where=f"take({fold.count}) between two repeats",
                    fix="give the lower repeat() a count that is enough for the take, or put take() right above it",
                )
            if isinstance(fold, Taking):
                endless_below = endless_here = False
            endless_here = endless_here or (isinstance(fold, Passes) and fold.count is None)
        endless_below = endless_below or endless_here


def _num_indexed(chain: Sequence[plan.Node], *, folded: bool) -> int:
    """Count the nodes of the first segment whose positions are arithmetic."""
    cut = (*STREAMS, *BATCHES) if folded else STREAMS
    cached = max((place for place, node in enumerate(chain) if isinstance(node, plan.Cache)), default=0)  # what it keeps is made at once
    return next((place for place, node in enumerate(chain) if isinstance(node, cut) and place >= cached), len(chain))


def counted_node(root: plan.Node, *, folded: bool) -> plan.Node:
    """Return the node whose elements the positions of a state count: the top of the first segment, or the stream itself."""
    chain = [node for node in chain_of(root) if not isinstance(node, plan.Prefetch)]
    return chain[max(0, _num_indexed(chain, folded=folded) - 1)]


def check_completion(root: plan.Node, *, recorded: bool) -> None:
    """Refuse a plan that cannot run in the order in which elements are finished, or `recorded` in that order.

    Raises:
        PlanError: it has an operator that counts elements in their order, or one that holds elements of several passes.
    """
    if recorded and lower(root, folded=True).segments[0].stream is not None:
        raise PlanError(
            "record= and replay= need positions that can be read in any order, but a generator is the source",
            where="feed options",
            fix="use from_source with __getitem__, or leave them out",
        )
    folding = [segment for segment in lower(root, folded=True).segments if segment.folds is not None and not segment.transparent]
    fold = refused(folding[0].folds or ()) if folding else None
    if fold is None and len(folding) > 1:
        fold = (folding[1].folds or (None,))[0]
    if fold is not None or len(folding) > 1:
        name = _FOLD_NAMES.get(type(fold), "filter, flat_map or unbatch above another fold")
        raise PlanError(
            f"ordered=False cannot run this plan: {name} needs its elements in order there",
            where="feed(ordered=False)",
            fix="put it below the filter, flat_map or batch, where positions are known before reading; or use ordered=True",
        )


_FOLD_NAMES: dict[Any, str] = {
    Taking: "take",
    Skipping: "skip",
    Sharding: "shard",
    RankFold: "shard_by_rank",
    Numbering: "enumerate",
    Passes: "repeat below a batch or pack",
    Concatenating: "pack_sequences(split=True)",
    Windowing: "window",
    Batching: "a second batch",
    Bucketing: "bucket_by_length above another fold",
    FirstFit: "pack_sequences above another fold",
    Buffering: "shuffle above another fold",
    Resampling: "rejection_resample above another fold",
}


@dataclass(slots=True)
class _Builder:
    """Segments under construction, from the source up."""

    counter: Counter
    folded: bool = False
    skips: bool = False
    done: list[SegmentPlan] = field(default_factory=list)
    segment: SegmentPlan = field(default_factory=SegmentPlan)
    folds: list[Fold] = field(default_factory=list)
    steps: list[tuple[int | None, Sift | Operator]] = field(default_factory=list)

    def index(self, chain: list[plan.Node]) -> None:
        """Take the indexable part: its last batch is the one that workers write into, unless a cache keeps whole batches."""
        place = max((place for place, node in enumerate(chain) if isinstance(node, (*BATCHES, plan.Cache))), default=None)
        if place is not None and isinstance(chain[place], plan.Cache):
            place = None
        leaf, items = operators_of(chain if place is None else chain[:place], self.counter)
        batch, top = None, []
        if place is not None:
            node = chain[place]
            assert isinstance(node, BATCHES)
            batch = batch_plan(node, length_of(node.child))
            top = [item for above in chain[place + 1 :] for item in items_of(above, self.counter)]
        stages = stages_of(items, self.counter)
        stages[0] = replace(stages[0], name="+".join(filter(None, ("cache" if isinstance(leaf, CacheLeaf) else "read", stages[0].name))))
        self.segment = SegmentPlan(leaf=leaf, length=length_of(chain[-1]), period=_period(chain[-1]), stages=tuple(stages), batch=batch)
        plain = [item for item in top if getattr(item, "concurrency", None) is None]
        if len(plain) == len(top):
            self.segment = replace(self.segment, top=tuple(fuse(top, self.counter)))
            return
        self._place_top(top)

    def _place_top(self, top: list[Item]) -> None:
        """Give maps above the batch that have a concurrency of their own a segment each; arithmetic on positions goes below them."""
        cut = next(place for place, item in enumerate(top) if getattr(item, "concurrency", None) is not None)
        if any(isinstance(item, EnumerateOp) for item in top[cut:]):
            raise PlanError(
                "enumerate above a map with concurrency= above batch() is not possible",
                where="map(concurrency=...) above batch()",
                fix="put enumerate() below the batch or below this map",
            )
        maps = [item for item in top[cut:] if isinstance(item, (Fusible, Placed, MapOp))]
        moves = [item for item in top[cut:] if not isinstance(item, (Fusible, Placed, MapOp))]
        self.segment = replace(self.segment, top=tuple(fuse([*top[:cut], *moves], self.counter)))
        for item in maps:
            self._place(fuse([item], self.counter)[0], getattr(item, "concurrency", None))

    def stream(self, chain: list[plan.Node]) -> None:
        """Take everything from the first filter, flat_map or generator up."""
        for place, node in enumerate(chain):
            match node:
                case plan.Map():
                    item = map_item(node, self.counter)
                    wanted = getattr(item, "concurrency", None)
                    self._place(fuse([item], self.counter)[0], wanted)
                case plan.Filter():
                    self._sift(FilterOp(node.fn, node.name, node.on_error))
                case plan.FlatMap():
                    self._sift(FlatMapOp(node.fn, node.name, node.on_error))
                case plan.Unbatch():
                    self._sift(UnbatchOp())
                case _ if isinstance(node, plan.AnyBatch):
                    self._batch(node)
                case plan.Enumerate():
                    self._fold(Numbering(node.start, _numbered))
                case plan.Shuffle():
                    self._shuffle(node)
                case plan.BucketByLength():
                    self._bucket(node)
                case plan.Window():
                    self._window(node)
                case plan.PackSequences():
                    self._pack(node)
                case plan.RejectionResample():
                    self._place(WeighOp(_checked_class(node), node.name), None)
                    self._fold(Resampling(node.target, node.initial, node.seed, weight_of, bare))
                case _ if isinstance(node, _NUMBERING):
                    self._number(_fold_of(node, chain[place + 1 :]))

    def finish(self) -> list[SegmentPlan]:
        """Close the last segment: it delivers."""
        folds = tuple(self.folds) if self.folds or self._sifts() or self.skips or (self.folded and not self.done) else None
        self._close(folds)
        return self.done

    def _sifts(self) -> bool:
        return any(not hasattr(step, "up") for _, step in self.steps)

    def _only_maps(self) -> bool:
        """Tell whether the open segment is nothing but maps on the shared workers."""
        alone = self.segment == SegmentPlan() and not self.folds and not self._sifts()
        return alone and bool(self.steps) and all(wanted is None for wanted, _ in self.steps)

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
        """Add the steps to the last stage, and cut where the concurrency changes and around each async function."""
        out = list(stages)
        for wanted, step in self.steps:
            if not out or out[-1].concurrency != wanted or out[-1].awaited or isinstance(step, AwaitedOp):
                out.append(StagePlan(name="", concurrency=wanted))
            last = out[-1]
            name = "+".join(filter(None, (last.name, step.name)))
            out[-1] = replace(last, name=name, sifts=(*last.sifts, step))
        if out[-1].awaited:  # writing rows and finishing batches would hold up the event loop
            out.append(StagePlan(name=""))
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

    def _hold(self, fn: Callable[[Any], Any], name: str, fold: Fold) -> None:
        """Add a fold that holds elements, weighed by the workers: one in each sequencer."""
        self._place(WeighOp(fn, name), None)
        self._fold(fold)

    def _shuffle(self, node: plan.Shuffle) -> None:
        if not node.buffer_bytes:
            raise PlanError(
                "shuffle() above batch() cannot be combined with ordered=False or Skip: which batches there are is only known on the way",
                where="shuffle()",
                fix="shuffle below the batch",
            )
        fold = Buffering(node.buffer_size or 1, node.buffer_bytes, node.seed, node.reshuffle_each_epoch, weight_of)
        self._hold(bytes_of, "shuffle", fold)

    def _bucket(self, node: plan.BucketByLength) -> None:
        self._hold(_checked_length(node), node.name, Bucketing(node.boundaries, node.batch_sizes, node.drop_remainder, weight_of))
        self._close(tuple(self.folds))
        collation = Pad(node.padded_shapes, node.padding_values)
        size = max(node.batch_sizes)
        self.segment = SegmentPlan(batch=BatchPlan(batch_size=size, length=None, collation=collation, shift=size))

    def _window(self, node: plan.Window) -> None:
        if self.folds:
            self._close(tuple(self.folds))
        self._fold(Windowing(node.size, node.shift, node.stride, node.drop_remainder))
        self._place(GatherOp(_stacked, "window"), None)

    def _pack(self, node: plan.PackSequences) -> None:
        if node.num_bins is None:
            self._hold(sequence_length, "pack_sequences", Concatenating(node.length, weight_of))
        else:
            fold = FirstFit(node.length, node.num_bins, weight_of)
            self._hold(whole_sequence_length(node.length), "pack_sequences", fold)
        self._place(GatherOp(pack_rows(node.length, node.padding_value), "pack_sequences", places_in_use), None)

    def _batch(self, node: plan.AnyBatch) -> None:
        fold = Batching(node.batch_size, node.drop_remainder)
        batch = batch_plan(node, None)
        if self._only_maps() and self.done and not self.skips:
            # Batching commutes with maps: done in the sequencer before them, it lets their results be written straight into the batch.
            before = self.done[-1]
            assert before.folds is not None
            self.done[-1] = replace(before, folds=(*before.folds, fold))
            operators = tuple(cast(Operator, step) for _, step in self.steps)
            name = "+".join(step.name for step in operators)
            self.segment, self.steps = SegmentPlan(stages=(StagePlan(name=name, operators=operators),), batch=batch), []
            return
        self.folds.append(fold)
        self._close(tuple(self.folds))
        self.segment = SegmentPlan(batch=batch)

    def _number(self, fold: Fold) -> None:
        """Add a numbering fold; below maps it moves into the sequencer before them, because it commutes with them."""
        # Where elements may be left out, what counts them stays, and so does an endless repeat, which must see whether any came.
        stays = self.skips and bool(self.steps) and not (isinstance(fold, Passes) and fold.count is not None)
        if not self.folds and self.done and not self._sifts() and not stays:
            place = len(self.done) - 1
            while place and self.done[place].transparent:
                place -= 1
            before = self.done[place]
            assert before.folds is not None
            if not (isinstance(fold, RankFold) and _holds(before.folds)):
                self.done[place] = replace(before, folds=(*before.folds, fold))
                return
            if self.segment.batch is None:
                self.done.append(SegmentPlan(stages=(StagePlan(name=""),), folds=(fold,)))
                return
        if isinstance(fold, RankFold) and _holds(self.folds):
            self._close(tuple(self.folds))
        self.folds.append(fold)


def _holds(folds: Sequence[Fold]) -> bool:
    """Tell whether a fold holds elements. What came out of it since its last checkpoint is then counted at the top of its sequencer.

    So the fold of a rank needs a sequencer of its own: on another number of ranks another number comes out.
    """
    return any(hasattr(fold, "held") for fold in folds)


def _period(root: plan.Node) -> int:
    """Return the elements of one pass below an endless repeat, the longest of all such passes; 0 for a plan that ends."""
    if length_of(root) != INFINITE:
        return 0
    passes = [length_of(node.child) for node in walk(root) if isinstance(node, plan.Repeat) and node.count is None]
    return max((int(length) for length in passes if length and length != INFINITE), default=0)


def _checked_length(node: plan.BucketByLength) -> Callable[[Any], int]:
    return lambda element: whole_number(node.fn(element), "a length", None, f"bucket_by_length({node.name})")


def _checked_class(node: plan.RejectionResample) -> Callable[[Any], int]:
    return lambda element: whole_number(node.fn(element), "a class", len(node.target), f"rejection_resample({node.name})")


def _stacked(values: tuple[Any, ...], layout: None) -> Any:
    """Make one element of a window behind a filter."""
    return stack_rows(list(values), lambda row: f"number {row} of the window")


def _numbered(number: int, piece: Piece) -> Piece:
    """Pair an element with its number; it keeps its key."""
    return piece if isinstance(piece.value, LateFailure) else Piece((number, piece.value), piece.key)


def _fold_of(node: plan.Node, above: list[plan.Node]) -> Fold:
    match node:
        case plan.Take():
            return Taking(node.count, any(isinstance(other, plan.Repeat) for other in above))
        case plan.Skip():
            return Skipping(node.count)
        case plan.Shard():
            return Sharding(node.num_shards, node.index) if node.even is None else RankFold(node.num_shards, node.index, node.even)
    assert isinstance(node, plan.Repeat), node
    empty = is_indexable(node.child) and length_of(node.child) == 0  # stays empty however often it is repeated
    return Passes(1 if empty else node.count)
