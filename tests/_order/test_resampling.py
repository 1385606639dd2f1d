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


def test_a_class_that_does_not_occur_and_one_that_is_not_wanted_are_not_kept() -> None:
    assert acceptance([0.5, 0.5, 0.0], [0.9, 0.0, 0.1]) == [1.0, 0.0, 0.0]
    assert acceptance([0.0, 1.0], [1.0, 0.0]) == [0.0, 0.0]


@pytest.mark.parametrize("initial", [None, (0.8, 0.2)])
def test_ten_thousand_items_come_out_in_the_wanted_shares(initial: Any) -> None:
    fold = resampling((0.5, 0.5), initial, seed=5)
    state, kept = fold.initial(), [0, 0]
    for number in range(10_000):
        item = 10 * number + (number % 5 == 0)
        state, some = fold.push(state, item)
        for one in some:
            kept[one % 10] += 1
    # 2,000 of the rare class are kept whole; of the others as many: the standard deviation of a fair draw is below 40.
    assert kept[1] == 2000 or (initial is None and kept[1] > 1990)
    assert abs(kept[0] - 2000) < 160


def test_a_pass_that_is_cut_off_counts_as_one_and_the_classes_are_counted_anew() -> None:
    fold = resampling((0.5, 0.5))
    state, _ = fold.push(fold.initial(), 1)
    assert state == {"pass": 0, "seen": 1, "counts": [1, 2]}
    assert fold.restart(state) == fold.end(state)[0] == {"pass": 1, "seen": 0, "counts": [1, 1]}
    assert not fold.closed(state)


def test_a_state_given_is_not_changed() -> None:
    fold = resampling((0.5, 0.5))
    state = fold.initial()
    fold.push(state, 0)
    assert state == fold.initial()
