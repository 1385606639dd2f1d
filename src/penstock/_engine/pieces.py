"""What travels between a segment and its folds: an element with its key, weighed or not, alone or in groups. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from penstock._contracts.element import bytes_of
from penstock._engine.ahead import taken_out
from penstock._engine.finishing import join
from penstock._engine.unit import Failure, LateFailure, Piece, Result, Unit
from penstock._ops.weigh import Gathered, Weighed
from penstock._order.chain import Held
from penstock._order.holding import Group
from penstock.errors import LengthMismatch

__all__ = ["bare", "bytes_in", "failure_in", "helds_in", "pieces_by_input", "pieces_of", "unwrapped", "weight_of"]


def pieces_by_input(unit: Unit) -> list[list[Piece]]:
    """Return the pieces that each good item of the unit gave."""
    if unit.whole and unit.ahead:
        _take_out(unit)
    result = unit.result
    assert isinstance(result, Result)
    pieces = pieces_of(result)
    if result.origins is None:
        return [[piece] for piece in pieces]
    out: list[list[Piece]] = [[] for _ in range(unit.good_count())]
    for origin, piece in zip(result.origins, pieces, strict=True):
        out[origin].append(piece)
    return out


def _take_out(unit: Unit) -> None:
    """Take all elements out of the batches that they were written into: the folds have others in mind."""
    unit.parts = taken_out(unit)
    unit.result = join(unit, unit.num_items)


def pieces_of(result: Result) -> list[Piece]:
    """Return the elements of a result, each with its key."""
    block = result.block
    if block is None and result.items:
        raise LengthMismatch(
            f"{len(result.items)} elements came to a fold without their keys",
            where="between two segments of the plan (ds.explain() shows them)",
            fix="this is a fault of penstock: please report it, with print(ds) and the options of the feed",
        )
    if block is None:
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


def failure_in(out: Any) -> Failure | None:
    """Return the failure of an element in what leaves the folds, or None."""
    if isinstance(out, list):
        return next(filter(None, map(failure_in, out)), None)
    value = out.value if isinstance(out, Piece) else out
    if isinstance(value, Gathered):
        return next(filter(None, map(failure_in, value.values)), None)
    return value.failure if isinstance(value, LateFailure) else None


def bytes_in(waiting: Iterable[Any]) -> int:
    """Return the memory of what folds hold."""
    total = 0
    for one in waiting:
        if isinstance(one, (list, Group)):
            total += bytes_in(one if isinstance(one, list) else one.items)
        else:
            total += bytes_of(bare(one.item if type(one) is Held else one).value)
    return total


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
