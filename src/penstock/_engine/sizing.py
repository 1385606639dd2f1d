"""The sizes that the tasks of a segment begin with."""

from __future__ import annotations

from penstock._engine.program import SegmentPlan
from penstock._engine.tune import BlockSize, largest_block
from penstock._ops.branches import BranchesLeaf
from penstock._ops.leaves import rows_at_once

__all__ = ["block_sizes"]


def block_sizes(plan: SegmentPlan, *, at_once: bool = False) -> tuple[list[BlockSize], int]:
    """Return how many rows a task of each stage has, and how many are asked of the leaf at least.

    Args:
        plan: of the segment.
        at_once: whether one block is awaited after the other, so that all calls that may be in flight have to be in one.
    """
    branches = len(plan.leaf.branches) if isinstance(plan.leaf, BranchesLeaf) else 1
    awaited = [stage.concurrency or 1 for stage in plan.stages if stage.awaited]
    # Rows of one block are handed on together: no more of them than are awaited together.
    most_rows = min(awaited, default=largest_block(branches))
    least_rows = 1 if plan.leaf is None else rows_at_once(plan.leaf)
    if awaited and at_once:
        return [BlockSize(most_rows, most_rows) for _ in plan.stages], most_rows
    return [BlockSize(most_rows, 1 if number else least_rows, one_thread=at_once) for number, _ in enumerate(plan.stages)], least_rows
