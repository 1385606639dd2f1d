from __future__ import annotations

import json
from typing import Any

import pytest
from _order.references import resampled
from hypothesis import given
from hypothesis import strategies as st

from penstock._order.folds import ResampleFold, acceptance

SHARES = st.lists(st.floats(0.05, 1), min_size=3, max_size=3)
CLASSES = st.lists(st.lists(st.integers(0, 2), max_size=20), min_size=1, max_size=3)


def resampling(target: Any, initial: Any = None, seed: int = 0) -> ResampleFold:
    """Items are numbers; their class is the last digit."""
    return ResampleFold(tuple(target), None if initial is None else tuple(initial), seed, lambda item: item % 10, lambda item: item)


@given(CLASSES, SHARES, st.none() | SHARES, st.integers(0, 2**64 - 1))
def test_it_keeps_what_plain_python_keeps_saved_as_json_at_every_item(
    classes: list[list[int]], target: list[float], initial: list[float] | None, seed: int
) -> None:
    passes = [[10 * place + number for place, number in enumerate(one)] for one in classes]
    fold = resampling(target, initial, seed)
    state, out = fold.initial(), []
    for items in passes:
        out.append([])
        for item in items:
            state, some = fold.push(json.loads(json.dumps(state)), item)
            out[-1].extend(some)
        state, some, goes_on = fold.end(state)
        assert (some, goes_on) == ((), True)
    assert out == resampled([[(item, item % 10) for item in one] for one in passes], target, initial, seed)


@given(SHARES, SHARES)
def test_the_shares_of_what_is_kept_are_the_wanted_ones_and_one_class_is_kept_whole(target: list[float], initial: list[float]) -> None:
    keep = acceptance(target, initial)
    assert max(keep) == 1
    kept = [share * found for share, found in zip(keep, initial, strict=True)]
    for share, wanted in zip(kept, target, strict=True):
        assert share / sum(kept) == pytest.approx(wanted / sum(target))
