from __future__ import annotations

from fractions import Fraction

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from laws.turns import mix_counts, mix_turns

from penstock._order.arithmetic import INFINITE
from penstock._order.mixing import MixFold, mixed_parts, mixing, tree_of

WEIGHTS = st.lists(st.one_of(st.floats(1e-6, 1e6), st.sampled_from([1.0, 2.0, 1e-300, 1e300])), min_size=1, max_size=35)
FEW = st.lists(st.sampled_from([1.0, 2.0, 0.3, 7.0]), min_size=1, max_size=5)
STARTS = st.one_of(st.integers(0, 100), st.integers(0, 2**62 - 100))


def spots(order: MixFold, positions: list[int], epoch: int = 0) -> list[tuple[int, int, int]]:
    """Return (child, epoch, place) of each position."""
    out: dict[int, tuple[int, int, int]] = {}
    for child, offsets, epochs, places in mixed_parts(order, np.full(len(positions), epoch), np.array(positions, np.int64)):
        for offset, below, place in zip(offsets.tolist(), epochs.tolist(), places.tolist(), strict=True):
            assert offset not in out
            out[offset] = (child, below, place)
    return [out[offset] for offset in range(len(positions))]


@given(WEIGHTS, STARTS, st.data())
def test_the_counts_and_places_are_those_of_plain_python_up_to_2_to_the_62(weights: list[float], start: int, data: st.DataObject) -> None:
    tree = tree_of(tuple(weights))
    endless = mixing(((0, tuple(weights)),), [INFINITE] * len(weights), restart=False)
    expected = []
    for position in range(start, start + 20):
        before, after = tree.counts(position), tree.counts(position + 1)
        steps = [now - was for was, now in zip(before, after, strict=True)]
        assert sorted(steps) == [0] * (len(weights) - 1) + [1]
        expected.append((steps.index(1), 0, before[steps.index(1)]))
        if all(1e-9 < share < 1 - 1e-9 for share in _shares(weights)):
            assert before == mix_counts(weights, position)
    places = list(range(start, start + 20))
    assert spots(endless, places) == expected
    mixed = data.draw(st.permutations(range(20)))
    assert spots(endless, [places[place] for place in mixed]) == [expected[place] for place in mixed]


def _shares(weights: list[float]) -> list[float]:
    """List the left shares of all halvings."""
    if len(weights) == 1:
        return []
    half = (len(weights) + 1) // 2
    left, right = weights[:half], weights[half:]
    return [float(Fraction(sum(map(Fraction, left))) / sum(map(Fraction, weights))), *_shares(left), *_shares(right)]


@given(WEIGHTS, STARTS, st.integers(0, 2**62))
def test_no_window_drifts_from_the_weights(weights: list[float], first: int, count: int) -> None:
    tree = tree_of(tuple(weights))
    assert tree.height == (len(weights) - 1).bit_length()
    total = sum(map(Fraction, weights))
    last = min(first + count, 2**62)
    for weight, before, after in zip(weights, tree.counts(first), tree.counts(last), strict=True):
        share = Fraction(weight) / total
        assert abs(after - share * last) <= Fraction(3, 4) * tree.height
        assert abs(after - before - share * (last - first)) <= Fraction(3, 2) * tree.height


@given(WEIGHTS, STARTS, st.data())
def test_reach_is_the_last_position_with_so_many_elements_before_it(weights: list[float], count: int, data: st.DataObject) -> None:
    tree = tree_of(tuple(weights))
    child = data.draw(st.integers(0, len(weights) - 1))
    found = tree.reach(child, count)
    assert tree.counts(found)[child] <= count < tree.counts(found + 1)[child] or len(weights) == 1


@given(FEW, st.data(), st.sampled_from(["first_exhausted", "all_exhausted"]), st.integers(0, 3))
def test_a_whole_pass_is_that_of_plain_python(weights: list[float], data: st.DataObject, stop: str, epoch: int) -> None:
    restart = stop == "all_exhausted"
    lengths = [data.draw(st.integers(int(restart), 12)) for _ in weights]
    order = mixing(((0, tuple(weights)),), lengths, restart=restart)
    turns = mix_turns(weights, lengths, stop)
    assert order.length == len(turns)
    assert spots(order, list(range(len(turns))), epoch) == [(turn.child, turn.epoch(epoch), turn.place) for turn in turns]


def test_an_end_that_was_reached_before_the_weights_changed_stays_the_end() -> None:
    assert mixing(((0, (1.0, 1.0)), (9, (1.0, 3.0))), [2, 2], restart=False).length == 4
    assert mixing(((0, (1.0, 1.0)), (4, (1.0, 3.0))), [2, 2], restart=True).length == 4
    assert mixing(((0, (1.0, 1.0)), (2, (1.0, 3.0))), [1, 3], restart=True).length == 5


def test_positions_on_both_sides_of_a_change_are_found_in_one_call() -> None:
    order = mixing(((0, (1.0, 1.0)), (4, (1.0, 3.0))), [INFINITE, INFINITE], restart=False)
    assert spots(order, [7, 0, 5, 3, 4]) == [spots(order, [place])[0] for place in (7, 0, 5, 3, 4)]
    assert order.counts(8) == [3, 5]
