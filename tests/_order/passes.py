"""Random folds and passes, what plain Python makes of them, and how a chain is fed."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import strategies as st

from penstock._order.chain import Chain
from penstock._order.folds import BatchFold, EnumerateFold, Fold, RepeatFold, ShardFold, SkipFold, TakeFold

__all__ = ["FOLDS", "PASSES", "Passed", "all_of", "ended", "passes_per_end", "reference", "run"]

Passed = list[list[Any]]

COUNTS = st.integers(0, 6)
SHARDS = st.integers(1, 4).flatmap(lambda number: st.builds(ShardFold, st.just(number), st.integers(0, number - 1)))
FOLDS = st.one_of(
    st.builds(TakeFold, COUNTS, st.booleans()),
    st.builds(SkipFold, COUNTS),
    SHARDS,
    st.builds(EnumerateFold, st.integers(0, 5)),
    st.builds(BatchFold, st.integers(1, 4), st.booleans()),
    st.builds(RepeatFold, st.integers(1, 3)),
)
PASSES = st.lists(st.lists(st.integers(0, 99), max_size=9), min_size=1, max_size=5)


def reference(fold: Fold, passes: Passed) -> Passed:
    """Say in plain Python what a fold makes of whole passes."""
    match fold:
        case TakeFold(count, _):
            return [one[:count] for one in passes]
        case SkipFold(count):
            return [one[count:] for one in passes]
        case ShardFold(number, index):
            return [one[index::number] for one in passes]
        case EnumerateFold(start):
            return [list(enumerate(one, start)) for one in passes]
        case BatchFold(size, drop):
            cut = [[one[at : at + size] for at in range(0, len(one), size)] for one in passes]
            return [[part for part in parts if len(part) == size or not drop] for parts in cut]
        case RepeatFold(count):
            size = count or len(passes) + 1
            return [[item for one in passes[at : at + size] for item in one] for at in range(0, len(passes), size)]
    raise AssertionError(fold)


def all_of(folds: list[Fold], passes: Passed) -> Passed:
    for fold in folds:
        passes = reference(fold, passes)
    return passes


def run(folds: list[Fold], passes: Passed, *, reload: bool = False) -> Passed:
    """Feed passes to a chain; the last list is that of a pass which did not end. With `reload`, a new chain goes on after every step."""
    chain, out = Chain(folds), [[]]
    for one in passes:
        for item in [*one, None]:
            if reload:
                chain = Chain(folds, json.loads(json.dumps(chain.snapshot())))
            if item is not None:
                out[-1].extend(chain.push(item))
                continue
            some, goes_on = chain.end()
            out[-1].extend(some)
            if goes_on:
                out.append([])
    return out


def ended(expected: Passed, passes: Passed, folds: list[Fold]) -> Passed:
    """Mark with an empty list at the end that the last pass of the top is complete, as `run` does."""
    number = len(passes)
    for fold in folds:
        if isinstance(fold, RepeatFold):
            if number % (fold.count or number + 1):
                return expected
            number //= fold.count or 1
    return [*expected, []]


def passes_per_end(folds: list[Fold]) -> int:
    out = 1
    for fold in folds:
        if isinstance(fold, RepeatFold):
            out *= fold.count or 1
    return out
