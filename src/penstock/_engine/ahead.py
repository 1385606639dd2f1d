"""Rows written into batches before the fold that counts them has seen them: nearly always none is missing, and then it was right. Pure.

The folds behind a segment say which elements stand in which batch. Where elements come one to one and may only be left out, the guess is
that none will be. If the guess fails, the rows of the unit go to the folds one by one, and later units are cut where batches begin again.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from penstock._engine.program import Program, SegmentPlan, StagePlan
from penstock._engine.unit import Result, Unit
from penstock._ops.block import Block, ElementFailed, Ints
from penstock._order.folds import Batching

__all__ = ["all_written", "keeping_failures", "rows_ahead", "taken_out", "writing_ahead"]


def writing_ahead(program: Program) -> Program:
    """Let the first segment write rows into the batches of the second, if the fold between them makes batches of what is read in order."""
    first, *rest = program.segments
    if first.leaf is None or first.batch is not None or not first.folds or not isinstance(first.folds[0], Batching):
        return program
    if any(stage.sifts for stage in first.stages) or not rest:
        return program
    direct = len(rest) == 1 and not rest[0].top and not rest[0].folds  # folds take elements with their keys
    return replace(program, segments=(replace(first, ahead=rest[0].batch, direct=direct), *rest))


def keeping_failures(program: Program) -> Program:
    """Let elements that fail be raised by the folds: where these may leave them out by count alone, or others of one input come before."""
    segments: list[SegmentPlan] = []
    on = False  # whether the segment above takes failures
    for one in reversed(program.segments):
        segments.append(replace(one, late_failures=on or one.drops or one.multiplies, hands_failures_on=on))
        on = (on or one.drops) and not one.decides
        if on and one.leaf is None and one.stages[0].awaited:  # the function must not be called for a row that has no element
            segments[-1] = replace(segments[-1], stages=(StagePlan(name=""), *one.stages))
    return replace(program, segments=tuple(reversed(segments)))


def rows_ahead(plan: SegmentPlan, phase: int, num_batches: int, most: float) -> tuple[float, int]:
    """Return how many of the next `most` rows make a unit, and its `ahead`.

    Args:
        plan: of the segment.
        phase: so many rows of an unfinished batch will have been counted before them.
        num_batches: how many batches a unit should have.
        most: rows up to the end of the pass, or to what was delivered before.
    """
    assert plan.ahead is not None
    size = plan.ahead.batch_size
    if phase:
        return min(size - phase, most), 0
    whole = int(min(num_batches * size, most)) // size
    return (whole * size, size) if whole else (most, 0)


def all_written(plan: SegmentPlan, unit: Unit) -> Result | None:
    """Return the result of a unit that wrote ahead, all of whose wanted rows are done: its batches, where nothing else is to be done.

    None, and nothing is done, if a row is missing, or if some do not fit each other: that is judged where they are counted.
    """
    if unit.failure is not None or sum(len(rows) for _, rows in unit.keys.values()) != unit.num_rows:
        return None
    batches: list[Any] = []
    assert unit.rows is not None
    if plan.direct and not unit.rows.beside:  # rows beside are let go when their batch is made, and the folds may yet want them
        try:
            batches = unit.rows.finish(unit.num_rows // unit.ahead)
        except ElementFailed:
            return None
    unit.whole = True
    return Result(batches, None, None)


def taken_out(unit: Unit) -> dict[int, tuple[Block, Ints]]:
    """Return the parts of a unit that wrote ahead with their elements, taken out of the batches again."""
    assert unit.rows is not None
    elements, unit.rows, unit.whole = unit.rows.elements(), None, False
    return {
        begin: (block.with_rows([elements[row] for row in rows]), np.asarray(rows, np.int64)) for begin, (block, rows) in unit.keys.items()
    }
