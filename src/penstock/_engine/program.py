"""What the engine runs: segments of stages, as values. Made by `lower`, read by everything else in this room."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple, Protocol, cast

from penstock._contracts.policy import Policy, Raise, Replace, Retry, final
from penstock._contracts.source import StreamSource
from penstock._ops.block import Block, ElementFailed, Ints
from penstock._ops.collation import Collate, Collation
from penstock._ops.map import AwaitedOp
from penstock._ops.operator import Leaf, Operator
from penstock._ops.rows import Rows
from penstock._order.arithmetic import INFINITE, Length
from penstock._order.folds import Fold, RepeatFold, TakeFold
from penstock._system.lazy import dataclass


class FilterStep(Protocol):
    """A step that keeps, drops or multiplies elements."""

    @property
    def name(self) -> str:
        """The stage name."""

    def filter_step(self, block: Block, origins: Ints) -> tuple[Block, Ints]:
        """Return what is left and the input offset of each."""


class Workers(NamedTuple):
    """Workers of a stage of its own, or those that several stages share.

    Attributes:
        num: how many, 0 for as many as the feed has; of an async function how many calls may be in flight.
        executor: "threads" or "processes"; None for those of the feed.
        pool: the name of workers that several stages share; empty for those of one stage.
    """

    num: int
    executor: str | None = None
    pool: str = ""


SHARED = "workers"
"""The pool of the shared workers."""
IN_PROGRAM = Workers(1, "threads", "program")
"""One thread of the program, which makes all calls of the user's functions of a feed where he has not asked for more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StagePlan:
    """Operators that one worker runs on one block. `workers` None means the shared ones.

    An async function is the only operator of its stage.
    """

    name: str
    operators: tuple[Operator, ...] = ()
    filter_steps: tuple[FilterStep | Operator, ...] = ()
    workers: Workers | None = None

    @property
    def concurrency(self) -> int | None:
        """How many workers of its own it has, or calls in flight; None for workers that it shares."""
        return None if self.workers is None or self.workers.pool else self.workers.num

    @property
    def awaited(self) -> AwaitedOp | None:
        """The async function of this stage, or None."""
        steps = (*self.operators, *self.filter_steps)
        return steps[0] if len(steps) == 1 and isinstance(steps[0], AwaitedOp) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchPlan:
    """How rows become batches. `length` is that of the elements below, for the last batch of a pass.

    Batch i has the elements i * shift + j * stride of a pass, for j below `batch_size`.
    """

    batch_size: int
    length: Length
    collation: Collation
    shift: int
    stride: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentPlan:
    """Chunks of rows through stages, into batches, through the operators above these, then to a fold runner or to the consumer.

    Attributes:
        leaf: computes rows at positions; None when the rows come from the segment before or from `stream`.
        stream: the generator that this segment reads, or None.
        length: items of one pass, for a segment with a leaf.
        period: of an endless length, the elements of one pass below an endless `repeat`; 0 where there is none.
        stages: of the rows.
        batch: None when the rows are delivered as they are.
        batch_ops: operators above the batch; filters and flat_maps only at their end.
        folds: what its items go through at the end, in their order.
        unordered: whether its items go on as they are finished, because `as_completed` stands behind it.
        delivers: whether it is the last one: what comes of it needs no keys.
        reader: the pool of the thread that reads `stream`; empty for one of its own.
        finisher: the pool whose worker makes the batches of a chunk when its rows are done; empty for the worker that ends them.
    """

    leaf: Leaf | None = None
    stream: StreamSource | None = None
    length: Length = None
    period: int = 0
    stages: tuple[StagePlan, ...] = ()
    batch: BatchPlan | None = None
    batch_ops: tuple[Operator | FilterStep, ...] = ()
    folds: tuple[Fold, ...] = ()
    unordered: bool = False
    delivers: bool = False
    reader: str = ""
    finisher: str = ""

    def steps_before(self, stage: int) -> int:
        """Count the filters, flat_maps and maps among them of the stages before one."""
        return sum(len(earlier.filter_steps) for earlier in self.stages[:stage])

    @property
    def batch_steps(self) -> tuple[Sequence[Operator], Sequence[FilterStep | Operator]]:
        """Its operators above the batch: those below the first filter or flat_map, and the others."""
        first = next((place for place, step in enumerate(self.batch_ops) if hasattr(step, "filter_step")), len(self.batch_ops))
        return cast(Sequence[Operator], self.batch_ops[:first]), self.batch_ops[first:]

    @property
    def one_to_one(self) -> bool:
        """Tell whether each item gives one, unless it is left out."""
        return not any(
            hasattr(step, "filter_step")
            for step in (*self.batch_ops, *(filter_step for stage in self.stages for filter_step in stage.filter_steps))
        )

    @property
    def transparent(self) -> bool:
        """Tell whether what comes out is what went in, one to one, with nothing folded: the saved state does not mention it."""
        return not self.folds and self.one_to_one

    @property
    def finishing(self) -> str:
        """Name what makes its batches, as stages are named, where functions of the user's do."""
        collates = self.batch is not None and isinstance(self.batch.collation, Collate)
        return "+".join(filter(None, ("collate_fn" if collates else "", *(step.name for step in self.batch_ops))))

    @property
    def name(self) -> str:
        """Name the segment by its stages."""
        return "+".join(stage.name for stage in self.stages if stage.name) or "batch"


@dataclass(frozen=True, slots=True, kw_only=True)
class Policies:
    """The policies of a feed: what holds where an operator has none of its own.

    Attributes:
        on_error: of all stages.
        equal_steps: whether shards must make equal numbers of steps: no item of the first segment may be left out.
        skips: whether an element may be left out by these policies or those of operators.
        verify: the share of elements that are computed a second time and compared.
        quarantines: whether one of them writes down what it leaves out or replaces.
    """

    on_error: Policy = Raise()
    equal_steps: bool = False
    skips: bool = False
    verify: float = 0.0
    quarantines: bool = False

    def of(self, failed: ElementFailed) -> tuple[Policy, str]:
        """Return the policy for a failure, and the name that its limit is counted under."""
        if failed.final:
            return Raise(), ""
        policy, site = self._given(failed)
        return final(policy) if failed.fatal else policy, site

    def _given(self, failed: ElementFailed) -> tuple[Policy, str]:
        if failed.policy is not None:
            return failed.policy, f"stage {failed.stage!r}"
        return _without_replace(self.on_error) if failed.of_batch else self.on_error, "on_error"


def _without_replace(policy: Policy) -> Policy:
    """Return what holds of a feed's policy above a batch: it replaces elements, and no whole batches."""
    if isinstance(policy, Retry) and isinstance(policy.then, Replace):
        return replace(policy, then=Raise())
    return Raise() if isinstance(policy, Replace) else policy


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """All segments, from the source to the consumer."""

    segments: tuple[SegmentPlan, ...]
    prefetch: int
    policies: Policies = Policies()
    epoch: int = 0
    """Which one is run: the run ends with it."""
    random: bool = False
    """Whether a function draws random numbers: then an element may be another one in each pass."""
    make_rows: Callable[..., Rows] = Rows
    """Makes the rows of batches under construction; a profiler replaces it."""
    elsewhere: bool = False
    """Whether the shared workers compute in processes or on other machines."""
    most_workers: int = 0
    """Up to which the number of shared workers that work is searched; 0 where all of them work."""
    unsafe: tuple[object, ...] = ()
    """What the functions of the user's hold that no two threads may use at once."""

    @property
    def num_passes(self) -> float:
        """How many passes of the source may be needed: the product of the repeats that stand behind folds."""
        passes: float = 1
        for segment in self.segments:
            for fold in segment.folds:
                if isinstance(fold, RepeatFold):
                    passes *= INFINITE if fold.count is None else fold.count
        return passes

    @property
    def passes_per_epoch(self) -> int:
        """How many passes of the source an epoch of a feed counts up; one where only what was delivered ends it."""
        return 1 if self.num_passes == INFINITE else int(self.num_passes)

    @property
    def first_pass(self) -> int:
        """The number of the pass of the source that the epoch begins with."""
        return self.epoch * self.passes_per_epoch

    @property
    def end_pass(self) -> float:
        """The number behind that of the last pass of the source in the epoch."""
        return INFINITE if self.num_passes == INFINITE else self.first_pass + self.num_passes

    @property
    def may_cut(self) -> bool:
        """Tell whether a full `take` may end a pass early and ask for the next: an error behind it is then not raised."""
        return any(isinstance(fold, TakeFold) and fold.repeated for segment in self.segments for fold in segment.folds)


def in_completion_order(program: Program) -> Program | None:
    """Let what the first segment gives go on as it is finished; None where a fold needs it in its order."""
    first, *others = program.segments
    if first.unordered:
        return program
    if any(segment.folds for segment in program.segments):
        return None
    return replace(program, segments=(replace(first, unordered=True), *others))
