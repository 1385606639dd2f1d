"""Folds: small deterministic machines that number what is left after `filter` or `flat_map`, in position order, at one place.

A fold sees one item at a time and the ends of passes. Its state is a JSON value and holds counts, never elements.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

__all__ = ["Batching", "Chain", "Fold", "Numbering", "Passes", "Sharding", "Skipping", "Taking"]

Item = Any


class Fold(Protocol):
    """(state, item) -> (state, what comes out)."""

    def initial(self) -> Any:
        """Return the state before the first item of the first pass."""

    def push(self, state: Any, item: Item) -> tuple[Any, Sequence[Item]]:
        """Take one item."""

    def end(self, state: Any) -> tuple[Any, Sequence[Item], bool]:
        """Take the end of a pass: return (state of the next pass, what comes out before it, whether the end goes on upwards)."""

    def closed(self, state: Any) -> bool:
        """Tell whether nothing more can come out of this pass."""


@dataclass(frozen=True, slots=True)
class Taking:
    """The first `count` items of each pass. State: how many were seen. `repeated` tells that a repeat stands somewhere above."""

    count: int
    repeated: bool = False

    def initial(self) -> int:
        return 0

    def push(self, state: int, item: Item) -> tuple[int, Sequence[Item]]:
        return (state + 1, (item,)) if state < self.count else (state, ())

    def end(self, state: int) -> tuple[int, Sequence[Item], bool]:
        return 0, (), True

    def closed(self, state: int) -> bool:
        return state >= self.count


@dataclass(frozen=True, slots=True)
class Skipping:
    """All but the first `count` items of each pass. State: how many were skipped."""

    count: int

    def initial(self) -> int:
        return 0

    def push(self, state: int, item: Item) -> tuple[int, Sequence[Item]]:
        return (state, (item,)) if state >= self.count else (state + 1, ())

    def end(self, state: int) -> tuple[int, Sequence[Item], bool]:
        return 0, (), True

    def closed(self, state: int) -> bool:
        return False


@dataclass(frozen=True, slots=True)
class Sharding:
    """Every `num_shards`-th item, beginning with item `index`. State: the number of the next item, modulo num_shards."""

    num_shards: int
    index: int

    def initial(self) -> int:
        return 0

    def push(self, state: int, item: Item) -> tuple[int, Sequence[Item]]:
        return (state + 1) % self.num_shards, ((item,) if state == self.index else ())

    def end(self, state: int) -> tuple[int, Sequence[Item], bool]:
        return 0, (), True

    def closed(self, state: int) -> bool:
        return False


@dataclass(frozen=True, slots=True)
class Numbering:
    """Pairs (number, item), as `pair` makes them. State: the next number."""

    start: int
    pair: Callable[[int, Item], Item] = lambda number, item: (number, item)

    def initial(self) -> int:
        return self.start

    def push(self, state: int, item: Item) -> tuple[int, Sequence[Item]]:
        return state + 1, (self.pair(state, item),)

    def end(self, state: int) -> tuple[int, Sequence[Item], bool]:
        return self.start, (), True

    def closed(self, state: int) -> bool:
        return False


@dataclass(frozen=True, slots=True)
class Batching:
    """Lists of `batch_size` items. State: the items of the unfinished batch, which is empty whenever something comes out.

    So a saved state is always []; a resume never needs the elements of an unfinished batch.
    """

    batch_size: int
    drop_remainder: bool

    def initial(self) -> list[Item]:
        return []

    def push(self, state: list[Item], item: Item) -> tuple[list[Item], Sequence[Item]]:
        state.append(item)
        return ([], (state,)) if len(state) == self.batch_size else (state, ())

    def end(self, state: list[Item]) -> tuple[list[Item], Sequence[Item], bool]:
        return [], ((state,) if state and not self.drop_remainder else ()), True

    def closed(self, state: list[Item]) -> bool:
        return False


@dataclass(frozen=True, slots=True)
class Passes:
    """The point where `repeat(count)` stands: ends of passes stop here until the last one. State: the number of the current pass."""

    count: int | None

    def initial(self) -> int:
        return 0

    def push(self, state: int, item: Item) -> tuple[int, Sequence[Item]]:
        return state, (item,)

    def end(self, state: int) -> tuple[int, Sequence[Item], bool]:
        last = self.count is not None and state + 1 >= self.count
        return (0 if last else state + 1), (), last

    def closed(self, state: int) -> bool:
        return False


class Chain:
    """Several folds, one on top of the other, run together. Not thread-safe: its owner holds the lock."""

    __slots__ = ("_folds", "_states")

    def __init__(self, folds: Sequence[Fold], states: Sequence[Any] | None = None) -> None:
        self._folds = tuple(folds)
        self._states = [fold.initial() for fold in folds] if states is None else list(states)
        self._states = self.snapshot()  # a fold may change its state in place; the given one stays as it was

    def snapshot(self) -> list[Any]:
        """Copy the states: JSON values."""
        return [list(state) if isinstance(state, list) else state for state in self._states]

    def push(self, item: Item) -> Sequence[Item]:
        """Take one item from below and return what comes out at the top."""
        return self._push_from(0, (item,))

    def end(self) -> tuple[Sequence[Item], bool]:
        """Take the end of a pass; return what comes out before it, and whether it goes on upwards (no `repeat` held it)."""
        return self._end_from(0)

    def close_early(self) -> tuple[Sequence[Item], Literal["open", "cut", "end"]]:
        """End the pass now if a fold lets nothing more out of it.

        Returns what comes out, and "open" (nothing was done), "cut" (a `repeat` above asks for the next pass; the rest of this one and its
        end must not be pushed) or "end" (the end of the pass went on upwards).
        """
        for level, (fold, state) in enumerate(zip(self._folds, self._states, strict=True)):
            if fold.closed(state) and not (isinstance(fold, Taking) and fold.repeated and self._passes_wait(level)):
                for below in range(level):
                    self._states[below] = self._folds[below].initial()
                outs, goes_on = self._end_from(level)
                return outs, "end" if goes_on else "cut"
        return (), "open"

    def _passes_wait(self, level: int) -> bool:
        """Tell whether a `repeat(count)` below has passes to come: a cut would give their epochs to the pass that a repeat above wants."""
        return any(
            isinstance(fold, Passes) and fold.count is not None and state + 1 < fold.count
            for fold, state in zip(self._folds[:level], self._states[:level], strict=True)
        )

    def _push_from(self, level: int, items: Sequence[Item]) -> Sequence[Item]:
        for position in range(level, len(self._folds)):
            if not items:
                return items
            outs: list[Item] = []
            for item in items:
                self._states[position], some = self._folds[position].push(self._states[position], item)
                outs.extend(some)
            items = outs
        return items

    def _end_from(self, level: int) -> tuple[Sequence[Item], bool]:
        top: list[Item] = []
        for position in range(level, len(self._folds)):
            self._states[position], outs, goes_on = self._folds[position].end(self._states[position])
            top.extend(self._push_from(position + 1, outs))
            if not goes_on:
                return top, False
        return top, True
