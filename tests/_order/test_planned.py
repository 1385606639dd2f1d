"""Orders that known numbers decide: each is that of the stream operator where there is one, in windows of any size."""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from penstock._order import planned
from penstock._order.chain import BufferedElement
from penstock._order.holding import BucketFold, BudgetFold, ConcatenateFold, PackFold
from penstock._order.planned import (
    BalancedOrder,
    BucketedOrder,
    BudgetOrder,
    CutOrder,
    DistinctOrder,
    FilteredOrder,
    PackedOrder,
    PlannedOrder,
    SampledOrder,
    SortedOrder,
)
from penstock.errors import SpecError

Ints = NDArray[np.int64]
CAPACITY = 12
NUMBERS = st.lists(st.integers(0, CAPACITY), max_size=80)
WINDOWS = st.sampled_from([1, 3, 16, 65_536])


class Known:
    """Numbers by position, as a column has them."""

    def __init__(self, numbers: list[int]) -> None:
        self.numbers = np.array(numbers, np.int64)
        self.num_asked = 0

    def __call__(self, positions: Ints, epoch: int = 0) -> Ints:
        self.num_asked += len(positions)
        found: Ints = self.numbers[(positions + epoch) % len(self.numbers)]  # another pass begins elsewhere
        return found

    def describe(self, position: int) -> str:
        return f"element {position}"


def rows_of(order: PlannedOrder) -> list[list[int]]:
    """List the elements of all rows, asked for at once; each row alone has the same."""
    found = order.rows(np.arange(len(order), dtype=np.int64))
    ends = np.cumsum(found.sizes, dtype=np.int64).tolist()
    rows = [found.positions[end - size : end].tolist() for size, end in zip(found.sizes, ends, strict=True)]
    for number in reversed(range(len(order))):
        assert order.rows(np.array([number], np.int64)).positions.tolist() == rows[number]
    return rows


def below(order: PlannedOrder | SampledOrder, epoch: int = 0, positions: list[int] | None = None) -> list[int]:
    """List where the elements of some rows stand, or those of all."""
    asked = np.array(range(len(order)) if positions is None else positions, np.int64)
    return order.below(np.full(len(asked), epoch, np.int64), asked).tolist()


def of_stream(fold: Any, numbers: list[int]) -> list[Any]:
    """List what a fold makes of elements with these numbers."""
    state, out = fold.initial(), []
    for number in range(len(numbers)):
        state, some = fold.push(state, BufferedElement(number, None, None))
        out += some
    return [*out, *fold.end(state)[1]]


def weight(numbers: list[int]) -> Callable[[BufferedElement], int]:
    return lambda item: numbers[item.number]


@pytest.fixture(autouse=True)
def _windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planned, "_WINDOW", 16)


@given(NUMBERS)
def test_those_whose_number_is_not_0_are_kept_in_their_order(numbers: list[int]) -> None:
    order = FilteredOrder(Known(numbers), len(numbers))
    kept = [place for place, number in enumerate(numbers) if number]
    assert below(order) == kept
    assert below(order, positions=list(range(len(order)))[::-1]) == kept[::-1]


@given(NUMBERS, WINDOWS)
def test_each_window_is_sorted_and_equal_numbers_keep_their_order(numbers: list[int], window: int) -> None:
    order = SortedOrder(Known(numbers), len(numbers), window, varies=False)
    wanted = [
        place
        for begin in range(0, len(numbers), window)
        for place in sorted(range(begin, min(begin + window, len(numbers))), key=numbers.__getitem__)
    ]
    assert below(order) == below(order, epoch=7) == wanted


@given(NUMBERS, st.sampled_from([1, 3, 8, 20]))
def test_rounds_have_like_numbers_in_each_pass_and_the_last_elements_stay(numbers: list[int], size: int) -> None:
    order = BalancedOrder(Known(numbers), len(numbers), size, varies=True)
    whole = len(numbers) - len(numbers) % size
    for epoch in (0, 3):
        found, here = below(order, epoch), [numbers[(place + epoch) % len(numbers)] for place in range(len(numbers))]
        assert sorted(found) == list(range(len(numbers)))
        assert found[whole:] == list(range(whole, len(numbers)))
        rounds = [found[begin : begin + size] for begin in range(0, whole, size)]
        assert all(one == sorted(one) for one in rounds)
        spans = sorted((min(here[place] for place in one), max(here[place] for place in one)) for one in rounds[: order._window // size])
        assert all(high <= low for (_, high), (low, _) in pairwise(spans))  # of one window
    assert below(order, epoch=3, positions=[0] * bool(numbers)) == below(order, 3)[:1]


def test_each_rank_has_the_work_of_the_others_whatever_its_batch_size() -> None:
    lengths = np.minimum(np.random.default_rng(0).lognormal(5, 1.2, 1 << 16).astype(int), 4096)
    order = BalancedOrder(Known(lengths.tolist()), len(lengths), 64, window=planned.WIDE_WINDOW, varies=False)
    for num_ranks, batch_size in ((64, 1), (64, 8), (16, 8)):
        work = lengths[below(order)].reshape(-1, batch_size, num_ranks).sum(axis=1)
        assert work.max(axis=1).sum() < 1.02 * work.mean(axis=1).sum()


@given(st.lists(st.integers(0, 4), min_size=1, max_size=700).filter(any))
def test_draws_stand_alone_and_are_of_elements_with_a_weight(numbers: list[int]) -> None:
    order = SampledOrder(Known(numbers), len(numbers), 50, seed=5, varies=True)
    for epoch in (0, 2):
        found = below(order, epoch)
        assert len(found) == 50
        assert all(numbers[place] for place in found)
        assert below(order, epoch, [17, 3]) == [found[17], found[3]]


@pytest.mark.parametrize("count", [4, 300, 3000])
def test_elements_are_drawn_in_proportion_to_their_weights(count: int) -> None:
    weights = np.random.default_rng(count).integers(0, 9, count)
    order = SampledOrder(Known(weights.tolist()), count, 20_000, seed=1, varies=True)
    found = np.array(below(order))
    drawn = np.bincount(found * 4 // count, minlength=4)  # by quarters, each of thousands of draws
    wanted = 20_000 * np.add.reduceat(weights, np.arange(4) * count // 4) / weights.sum()
    assert (abs(drawn - wanted) < 6 * np.sqrt(wanted) + 1).all()
    assert below(order, 1) != found.tolist()
    fixed = SampledOrder(Known(weights.tolist()), count, 200, seed=1, varies=False)
    assert below(fixed, 1) == below(fixed, 0) == found[:200].tolist()


@pytest.mark.parametrize("window", [16, 100, 65_536])
def test_without_replacement_those_of_the_smallest_keys_come_once(monkeypatch: pytest.MonkeyPatch, window: int) -> None:
    monkeypatch.setattr(planned, "_WINDOW", window)
    weights = np.random.default_rng(9).integers(0, 5, 500)
    order = DistinctOrder(Known(weights.tolist()), 500, 60, seed=3, varies=True)
    for epoch in (0, 4):
        keys = [
            -math.log1p(-planned._uniform(3, np.array([epoch]), np.array([place]))[0]) / weights[place] for place in np.flatnonzero(weights)
        ]
        assert below(order, epoch) == np.flatnonzero(weights)[np.argsort(keys)][:60].tolist()
    assert below(order, 0) != below(order, 4)


def test_the_first_of_draws_without_replacement_is_drawn_in_proportion_to_its_weight() -> None:
    order = DistinctOrder(Known([1, 2, 0, 5]), 4, 2, seed=0, varies=True)
    firsts = np.bincount([below(order, epoch)[0] for epoch in range(4000)], minlength=4)
    assert (abs(firsts - np.array([500, 1000, 0, 2500])) < 6 * np.sqrt(2500)).all()


@given(NUMBERS)
def test_packed_rows_have_each_element_with_a_size_once_and_fit(numbers: list[int]) -> None:
    order = PackedOrder(Known(numbers), len(numbers), CAPACITY)
    rows = rows_of(order)
    assert sorted(place for row in rows for place in row) == [place for place, number in enumerate(numbers) if number]
    assert all(0 < sum(numbers[place] for place in row) <= CAPACITY for row in rows)
    assert all(row == sorted(row) for row in rows)
    firsts = [row[0] for row in rows]
    assert firsts == sorted(firsts)  # windows come one after the other, and so do the rows of one


def test_packed_rows_are_no_more_than_those_of_first_fit() -> None:
    numbers = np.minimum(np.random.default_rng(3).lognormal(4, 1, 4000).astype(int) + 1, 512).tolist()
    order = PackedOrder(Known(numbers), len(numbers), 512)
    order._window = 65_536
    assert len(order) < len(of_stream(PackFold(512, 64, weight(numbers)), numbers))
    assert len(order) <= -(-sum(numbers) // 512) + 1


@given(NUMBERS)
def test_cut_rows_are_those_of_the_stream(numbers: list[int]) -> None:
    order = CutOrder(Known(numbers), len(numbers), CAPACITY)
    groups = of_stream(ConcatenateFold(CAPACITY, weight(numbers)), numbers)
    assert rows_of(order) == [[item.number for item in group.items] for group in groups]
    found = order.rows(np.arange(len(order), dtype=np.int64)).parts
    assert found is not None
    assert found[:, 1:].tolist() == [list(cut) for group in groups for cut in group.layout]
    assert found[:, 0].tolist() == [numbers[item.number] for group in groups for item in group.items]


@given(NUMBERS, st.booleans())
def test_buckets_are_those_of_the_stream(numbers: list[int], drops: bool) -> None:
    order = BucketedOrder(Known(numbers), len(numbers), (3, 6), (4, 2, 1), drops=drops)
    wanted = of_stream(BucketFold((3, 6), (4, 2, 1), drops, weight(numbers)), numbers)
    assert rows_of(order) == [[item.number for item in batch] for batch in wanted]


@given(NUMBERS, st.sampled_from([1, 7, 16, 40]), st.sampled_from([1, 4]))
def test_batches_by_cost_are_those_of_the_stream_and_keep_the_budget(numbers: list[int], pool: int, multiple: int) -> None:
    order = BudgetOrder(Known(numbers), len(numbers), 24, pool, multiple)
    rows = rows_of(order)
    wanted = of_stream(BudgetFold(24, pool, multiple, weight(numbers)), numbers)
    assert rows == [[item.number for item in batch] for batch in wanted]
    assert sorted(place for row in rows for place in row) == list(range(len(numbers)))
    assert all(len(row) * -(-max(numbers[place] for place in row) // multiple) * multiple <= 24 for row in rows)


ORDERS: dict[str, Callable[[Known, int], PlannedOrder]] = {
    "filter": FilteredOrder,
    "pack": lambda known, count: PackedOrder(known, count, CAPACITY),
    "cut": lambda known, count: CutOrder(known, count, CAPACITY),
    "bucket": lambda known, count: BucketedOrder(known, count, (3,), (4, 2), drops=False),
    "budget": lambda known, count: BudgetOrder(known, count, 24, 8, 1),
}


@pytest.mark.parametrize("kind", ORDERS)
def test_another_process_does_not_go_through_all_numbers_again(kind: str) -> None:
    numbers = np.random.default_rng(1).integers(0, CAPACITY, 400).tolist()
    order = ORDERS[kind](Known(numbers), len(numbers))
    there: Any = pickle.loads(pickle.dumps(order))
    asked = there._numbers.num_asked
    assert len(there) == len(order)
    assert there._numbers.num_asked == asked
    last = np.array([len(order) - 1], np.int64)
    assert there.rows(last).positions.tolist() == order.rows(last).positions.tolist()
    assert there._numbers.num_asked < asked + 200


def test_a_window_that_is_not_kept_is_planned_again(monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = np.random.default_rng(2).integers(1, CAPACITY, 200).tolist()
    wanted = rows_of(PackedOrder(Known(numbers), len(numbers), CAPACITY))
    monkeypatch.setattr(planned, "_MOST_BYTES", 1)
    order = PackedOrder(Known(numbers), len(numbers), CAPACITY)
    assert rows_of(order) == wanted
    assert len(order._kept) == 1


@pytest.mark.parametrize(
    ("order", "words"),
    [
        (lambda known: PackedOrder(known, 40, 8), r"element 33 is 9, and 8 is the most"),
        (lambda known: BudgetOrder(known, 40, 10, 8, 4), r"element 33 is 12, and 10 is the most"),
    ],
)
def test_an_element_that_fits_no_row_is_named(order: Callable[[Known], PlannedOrder], words: str) -> None:
    with pytest.raises(SpecError, match=words):
        len(order(Known([4] * 33 + [9] + [1] * 6)))
