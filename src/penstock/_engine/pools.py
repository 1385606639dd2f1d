"""The worker pools of a run: the shared one, one for each stage with a concurrency of its own, one that reads a generator. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from penstock._engine.program import Program
from penstock._engine.segment import Segment
from penstock._ops.awaited import AwaitedOp

__all__ = ["READER", "SHARED", "awaited_in", "pool_of", "pools_of"]

SHARED, READER = "workers", "reader"


def pool_of(segment: Segment, stage: int) -> str:
    """Name the pool of workers that runs a stage."""
    concurrency = segment.plan.stages[stage].concurrency
    return SHARED if concurrency is None else f"{segment.number}.{stage}"


def pools_of(program: Program) -> dict[str, int]:
    """Name the worker pools: 0 stands for the shared number of workers. One worker claims for an async stage, whatever is in flight."""
    pools = {SHARED: 0}
    for number, segment in enumerate(program.segments):
        for stage, plan in enumerate(segment.stages):
            if plan.concurrency is not None:
                pools[f"{number}.{stage}"] = 1 if plan.awaited else plan.concurrency
    if program.segments[0].stream is not None:
        pools[READER] = 1
    return pools


def awaited_in(segments: Sequence[Segment]) -> dict[str, AwaitedOp]:
    """Return the async function of each pool that has one."""
    stages = {pool_of(segment, number): stage for segment in segments for number, stage in enumerate(segment.plan.stages)}
    return {pool: stage.awaited for pool, stage in stages.items() if stage.awaited is not None}
