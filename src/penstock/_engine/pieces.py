"""What travels between a segment and its folds: an element with its key, weighed or not, alone or in groups. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from penstock._engine.unit import Piece, Result, Unit
from penstock._ops.weigh import Gathered, Weighed
from penstock._order.chain import Held
from penstock._order.holding import Group

__all__ = ["bare", "helds_in", "pieces_by_input", "pieces_of", "unwrapped", "weight_of"]


def pieces_by_input(unit: Unit) -> list[list[Piece]]:
    """Return the pieces that each good item of the unit gave."""
    result = unit.result
    assert isinstance(result, Result)
    pieces = pieces_of(result)
    if result.origins is None:
        return [[piece] for piece in pieces]
    out: list[list[Piece]] = [[] for _ in range(unit.good_count())]
    for origin, piece in zip(result.origins, pieces, strict=True):
        out[origin].append(piece)
    return out


def pieces_of(result: Result) -> list[Piece]:
    """Return the elements of a result, each with its key."""
    block = result.block
    if block is None:
        assert not result.items
        return []
    keys = zip(block.epochs.tolist(), block.indices.tolist(), block.lanes.tolist(), strict=True)
    return [Piece(item, key) for item, key in zip(result.items, keys, strict=True)]


def weight_of(item: Any) -> Any:
    """Return the weight that a worker gave an element."""
    piece = item.item if type(item) is Held else item
    return piece.value.weight


def bare(piece: Piece) -> Piece:
    """Take the weight off an element."""
    return Piece(piece.value.value, piece.key) if type(piece.value) is Weighed else piece


def helds_in(out: Any) -> Sequence[Held]:
    """List the items in what comes out of a chain of folds that does not unwrap."""
    if isinstance(out, Held):
        return (out,)
    if isinstance(out, Group):
        return out.items
    return [held for part in out for held in helds_in(part)] if isinstance(out, list) else ()


def unwrapped(out: Any) -> Any:
    """Return what leaves the folds as the next segment takes it: a piece, or a list of pieces for a batch."""
    if isinstance(out, Held):
        return bare(out.item)
    if isinstance(out, list):
        return [unwrapped(part) for part in out]
    if isinstance(out, Piece):
        return bare(out)
    assert isinstance(out, Group)
    pieces = [bare(held.item) for held in out.items]
    return Piece(Gathered(tuple(piece.value for piece in pieces), out.layout), pieces[0].key)
