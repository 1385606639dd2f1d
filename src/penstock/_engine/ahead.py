"""Rows written into batches before the fold that counts them has seen them: nearly always none is missing, and then it was right. Pure.

The folds behind a segment say which elements stand in which batch. Where elements come one to one and may only be left out, the guess is
that none will be. If the guess fails, the rows of the unit go to the folds one by one, and later units are cut where batches begin again.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from penstock._engine.program import Program, SegmentPlan
from penstock._engine.unit import Counted, Result, Token, Unit
from penstock._ops.block import Block, ElementFailed, Ints
from penstock._order.folds import Batching

__all__ = ["all_written", "passed_on", "rows_ahead", "taken_out", "writing_ahead"]


def writing_ahead(program: Program) -> Program:
    """Let the first segment write rows into the batches of the second, if the fold between them makes batches of what is read in order."""
    first, *rest = program.segments
    if first.leaf is None or first.batch is not None or not first.folds or not isinstance(first.folds[0], Batching):
        return program
    if any(stage.sifts for stage in first.stages) or not rest:
        return program
    direct = len(rest) == 1 and not rest[0].top
    return replace(program, segments=(replace(first, ahead=rest[0].batch, direct=direct), *rest))


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
    if plan.direct:
        assert unit.rows is not None
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


def passed_on(unit: Unit, tokens: list[Token] | Counted) -> Unit:
    """Make the unit of the next segment of one that goes through the folds unchanged: its batches, or its elements. It loses its rows.

    Where nothing is to be done there, it is finished already.
    """
    assert isinstance(unit.result, Result)
    block, done = unit.result.block, unit.ahead and unit.result.items
    given: Block | None = None
    if not unit.ahead:
        assert block is not None
        given = Block(block.epochs, block.indices, block.lanes, rows=block.rows())
    elif not done:
        given = _keys_of([unit.keys[begin][0] for begin in sorted(unit.keys)])
    num_rows = unit.num_rows if unit.ahead else len(unit.result.items)
    count = num_rows // (unit.ahead or 1)
    rows, unit.rows = unit.rows, None  # they know the unit by name: the one that made them must not hold them
    return Unit(
        seq=-1,
        pass_number=unit.pass_number,
        first=0,
        sizes=[unit.ahead] * count if unit.ahead else None,
        num_items=count,
        num_rows=num_rows,
        given=given,
        tokens=tokens,
        rows=None if done else rows,
        result=unit.result if done else None,
        whole=unit.ahead > 0,
        leased=unit.leased and unit.ahead > 0,
    )


def _keys_of(blocks: list[Block]) -> Block:
    return Block(
        np.concatenate([block.epochs for block in blocks]),
        np.concatenate([block.indices for block in blocks]),
        np.concatenate([block.lanes for block in blocks]),
    )
