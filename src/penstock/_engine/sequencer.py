"""The one place where folds run: finished items of a segment in, units of the next segment (or deliveries) out. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from penstock._engine.unit import Failure, Piece, Result, Token, Unit
from penstock._order.folds import Chain, Fold, Passes

__all__ = ["DROP_END", "OPEN", "PASS_END", "Sequenced", "Sequencer"]

OPEN, DROP_END, PASS_END = 0, 1, 2
"""What a sequencer does with what is left of a pass: fold it; ignore it and its end; ignore it, but let its end go on upwards."""


class Sequenced(NamedTuple):
    """What came out of one unit: items (a Piece each, or a list of pieces behind a batch), a token each, and the marks that go on."""

    items: list[Any]
    tokens: list[Token]
    ends_pass: bool
    tail: Failure | None
    cut: bool
    empty_pass: bool


class Sequencer:
    """Numbers what passes it. Not thread-safe: it runs under the engine's mutex, in unit order."""

    __slots__ = ("_before", "_chain", "_emitted", "_endless", "_mode", "_skip", "_started", "_transparent")

    def __init__(
        self, folds: Sequence[Fold], before: Token, saved: tuple[int, int, tuple[Any, ...]] | None, *, transparent: bool = False
    ) -> None:
        """Start with the resume token of the input before, and this sequencer's own saved record."""
        self._endless = any(isinstance(fold, Passes) and fold.count is None for fold in folds)
        self._before = before
        self._skip, self._mode, states = saved if saved is not None else (0, OPEN, None)
        self._chain = Chain(folds, states)
        self._emitted = 0 if saved is None else 1  # a pass that gave something before the save is not an empty one
        self._started = False
        self._transparent = transparent

    def take(self, unit: Unit) -> Sequenced:
        """Take one finished unit, in order."""
        items: list[Any] = []
        tokens: list[Token] = []
        ends = cut = False
        if not self._started:
            self._started = True
            ends, cut = self._close(items, tokens, self._before, 0)
            cut = cut or self._mode != OPEN
        if unit.result is not None:
            for number, results in enumerate(_by_input(unit)):
                if self._mode != OPEN:
                    break
                step_ends, step_cut = self._take_input(unit.token_after(number), results, items, tokens)
                ends, cut = ends or step_ends, cut or step_cut
        empty = False
        if unit.ends_pass and unit.tail is None:
            if self._mode == OPEN:
                ends = self._end(items, tokens) or ends
            else:
                ends = ends or self._mode == PASS_END
                self._mode = OPEN
            empty = self._endless and self._emitted + len(items) == 0
            self._emitted = -len(items)
            self._before, self._skip = self._pass_start(unit), 0
        self._emitted += len(items)
        return Sequenced(items, tokens, ends, unit.tail, cut, empty)

    def _take_input(self, after: Token, results: list[Piece], items: list[Any], tokens: list[Token]) -> tuple[bool, bool]:
        skip, self._skip = self._skip, 0
        for number, piece in enumerate(results):
            if number < skip:
                continue
            last = number == len(results) - 1
            outs = self._chain.push(piece)
            place = (after, 0) if last else (self._before, number + 1)
            if outs:
                self._emit(outs, items, tokens, *place)
            ends, cut = self._close(items, tokens, *place)
            if cut:
                self._before = after
                return ends, cut
        self._before = after
        return False, False

    def _close(self, items: list[Any], tokens: list[Token], before: Token, skip: int) -> tuple[bool, bool]:
        """End the pass early if a `take` is full; return (whether its end goes on, whether the rest of the pass is cut)."""
        if self._mode != OPEN:
            return False, False
        outs, how = self._chain.close_early()
        if how == "open":
            return False, False
        self._emit(outs, items, tokens, before, skip, PASS_END if how == "end" else DROP_END)
        self._mode = DROP_END
        return how == "end", True

    def _end(self, items: list[Any], tokens: list[Token]) -> bool:
        outs, goes_on = self._chain.end()
        self._emit(outs, items, tokens, self._before, 0, PASS_END if goes_on else DROP_END)
        return goes_on

    def _pass_start(self, unit: Unit) -> Token:
        """Return the token of the start of the next pass: the source's next pass, and every sequencer below as it is then."""
        if unit.tokens is None:
            return Token((unit.pass_number + 1, 0))
        assert unit.pass_token is not None
        return unit.pass_token

    def _emit(self, outs: Sequence[Any], items: list[Any], tokens: list[Token], before: Token, skip: int, mode: int = OPEN) -> None:
        if not outs:
            return
        record = (skip, mode, tuple(self._chain.snapshot()))
        token = before if self._transparent else before._replace(sequencers=(*before.sequencers, record))
        items.extend(outs)
        tokens.extend([token] * len(outs))

    def start_of_next_pass(self, unit: Unit) -> Token:
        """Return the token that resumes at the start of the pass after `unit`'s, seen from behind this sequencer."""
        below = self._pass_start(unit)
        if self._transparent:
            return below
        return below._replace(sequencers=(*below.sequencers, (0, OPEN, tuple(self._chain.snapshot()))))


def _by_input(unit: Unit) -> list[list[Piece]]:
    """Return the pieces that each good item of the unit gave."""
    result = unit.result
    assert isinstance(result, Result)
    pieces = _pieces(result)
    if result.origins is None:
        return [[piece] for piece in pieces]
    out: list[list[Piece]] = [[] for _ in range(unit.good_count())]
    for origin, piece in zip(result.origins, pieces, strict=True):
        out[origin].append(piece)
    return out


def _pieces(result: Result) -> list[Piece]:
    block = result.block
    if block is None:
        assert not result.items
        return []
    keys = zip(block.epochs.tolist(), block.indices.tolist(), block.lanes.tolist(), strict=True)
    return [Piece(item, key) for item, key in zip(result.items, keys, strict=True)]
