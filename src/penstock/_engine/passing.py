"""Units of a segment, made of what the sequencer before it let through. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from penstock._engine.pieces import failure_in, pieces_of
from penstock._engine.sequencer import Sequenced
from penstock._engine.unit import Counted, LateFailure, Result, Token, Unit
from penstock._ops.block import Block

__all__ = ["given_unit", "passed_on", "units_of"]


def units_of(unit: Unit, out: Sequenced, *, batched: bool, alone: bool) -> list[Unit]:
    """Make the units of the next segment of what came out of a sequencer: one of all, or, where elements are to be alone, one of each."""
    if out.whole and (unit.ahead or not alone):
        return [passed_on(unit, out.tokens)]
    items: list[Any] = list(pieces_of(unit.result)) if out.whole and unit.result is not None else out.items
    groups = items if batched else [[piece] for piece in items]
    tokens = [out.tokens.behind(number + 1) for number in range(len(groups))] if isinstance(out.tokens, Counted) else out.tokens
    size = 1 if alone else max(1, len(groups))
    return [
        given_unit(groups[first : first + size], batched, tokens[first : first + size], unit.pass_number, 0, late=out.late)
        for first in range(0, max(1, len(groups)), size)
    ]


def given_unit(
    pieces: list[list[Any]], batched: bool, tokens: Sequence[Token], pass_number: int, first: int, *, late: bool = False
) -> Unit:
    """Make a unit for the next segment of what a sequencer emitted: groups of pieces or single ones, of which some may be `late`."""
    flat = [piece for group in pieces for piece in group]
    keys = [piece.key for piece in flat]
    block = Block(
        np.array([key[0] for key in keys], np.int64),
        np.array([key[1] for key in keys], np.int64),
        np.array([key[2] for key in keys], np.uint64),
        rows=[piece.value for piece in flat],
    )
    return Unit(
        seq=-1,
        pass_number=pass_number,
        first=first,
        sizes=[len(group) for group in pieces] if batched else None,
        num_items=len(pieces),
        num_rows=len(flat),
        given=block,
        tokens=tokens,
        bad_rows={row: LateFailure(failure) for row, piece in enumerate(flat) if (failure := failure_in(piece))} if late else {},
    )


def passed_on(unit: Unit, tokens: Sequence[Token] | Counted) -> Unit:
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
        lease=unit.lease if unit.ahead else None,
    )


def _keys_of(blocks: list[Block]) -> Block:
    return Block(
        np.concatenate([block.epochs for block in blocks]),
        np.concatenate([block.indices for block in blocks]),
        np.concatenate([block.lanes for block in blocks]),
    )
