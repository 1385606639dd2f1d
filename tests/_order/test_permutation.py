from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from penstock._order.arithmetic import shuffled, window_shuffled

Ints = NDArray[np.int64]


def order(num_elements: int, *, window: int | None = None, seed: int = 7, epoch: int = 0, reshuffle: bool = True) -> Ints:
    """Return one whole pass."""
    epochs, positions = np.full(num_elements, epoch, np.int64), np.arange(num_elements, dtype=np.int64)
    if window is None:
        return shuffled(epochs, positions, num_elements, seed=seed, reshuffle=reshuffle)
    return window_shuffled(epochs, positions, num_elements, window, seed=seed, reshuffle=reshuffle)


def deviations(counts: NDArray[np.int64], expected: float) -> float:
    """Say how many standard deviations the chi-square statistic of equally likely cells lies from its mean."""
    freedom = counts.size - 1
    return float(abs(((counts - expected) ** 2 / expected).sum() - freedom) / math.sqrt(2 * freedom))


# -- the global order -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("num_elements", [*range(1, 70), 255, 256, 257, 1000, 4097, 65_537])
def test_a_global_shuffle_gives_every_element_exactly_once(num_elements: int) -> None:
    for epoch in (0, 1, 9):
        assert np.array_equal(np.sort(order(num_elements, epoch=epoch)), np.arange(num_elements))


@given(st.integers(1, 2**63), st.integers(0, 2**64 - 1), st.integers(0, 2**40), st.data())
def test_any_positions_of_any_length_can_be_asked_for_alone(num_elements: int, seed: int, epoch: int, data: st.DataObject) -> None:
    chosen = data.draw(st.lists(st.integers(0, num_elements - 1), min_size=1, max_size=20, unique=True))
    epochs, positions = np.full(len(chosen), epoch, np.int64), np.array(chosen, np.int64)
    together = shuffled(epochs, positions, num_elements, seed=seed, reshuffle=True)
    alone = [int(shuffled(epochs[:1], positions[at : at + 1], num_elements, seed=seed, reshuffle=True)[0]) for at in range(len(chosen))]
    assert together.tolist() == alone
    assert len(set(alone)) == len(chosen)
    assert all(0 <= place < num_elements for place in alone)


@pytest.mark.parametrize("num_elements", [2**63, 2**63 - 1, 2**62 + 1, 2**53 + 1])
def test_positions_near_the_largest_length_stay_inside_it(num_elements: int) -> None:
    positions = np.array([0, 1, num_elements // 2, num_elements - 2, num_elements - 1], np.int64)
    places = shuffled(np.zeros(5, np.int64), positions, num_elements, seed=3, reshuffle=True).tolist()
    assert len(set(places)) == 5
    assert all(0 <= place < num_elements for place in places)


@pytest.mark.parametrize("num_elements", [5, 16, 100, 300])
def test_over_the_epochs_each_element_comes_to_each_place_equally_often(num_elements: int) -> None:
    num_epochs = 4000
    epochs = np.repeat(np.arange(num_epochs), num_elements)
    positions = np.tile(np.arange(num_elements), num_epochs)
    places = shuffled(epochs, positions, num_elements, seed=11, reshuffle=True)
    cells = np.bincount(positions * num_elements + places, minlength=num_elements**2)
    assert deviations(cells, num_epochs / num_elements) < 6


def test_epochs_differ_unless_that_is_asked_for() -> None:
    assert not np.array_equal(order(1000, epoch=0), order(1000, epoch=1))
    assert np.array_equal(order(1000, epoch=0, reshuffle=False), order(1000, epoch=1, reshuffle=False))
    assert np.array_equal(order(1000, epoch=0), order(1000, epoch=0, reshuffle=False))
    assert not np.array_equal(order(1000, seed=1), order(1000, seed=2))


GOLDEN = {
    # (num_elements, window, seed, epoch): the first eight places. Computed once; another value means that no saved run can be resumed.
    (8, None, 0, 0): [0, 2, 5, 7, 1, 6, 3, 4],
    (100, None, 7, 0): [64, 49, 45, 61, 58, 1, 9, 29],
    (100, None, 7, 1): [13, 42, 35, 85, 59, 17, 86, 21],
    (1000, None, 7, 0): [423, 750, 781, 933, 37, 430, 55, 221],
    (10**9, None, 2**64 - 1, 3): [206319132, 192397641, 224894765, 833302678, 558290833, 618850576, 1008651, 168420489],
    (2**63, None, 7, 0): [
        3728781886068939621,
        5943510386004213362,
        8110780708577838064,
        4660264691498180590,
        6653394150051533896,
        1460355229014528226,
        8801366489936260483,
        7878704255687511794,
    ],
    (100, 10, 7, 0): [4, 3, 2, 6, 8, 1, 0, 7],
    (100, 10, 7, 2): [0, 1, 2, 5, 3, 7, 9, 4],
    (10**6, 512, 7, 0): [252, 12, 94, 135, 40, 28, 197, 43],
    (10**6, 514, 7, 0): [229, 130, 142, 56, 102, 110, 214, 37],
    (2**62, 5000, 1, 1): [24, 2134, 87, 1574, 715, 153, 2495, 397],
}


@pytest.mark.parametrize(("arguments", "expected"), GOLDEN.items())
def test_the_order_is_the_same_on_every_platform_and_in_every_version(
    arguments: tuple[int, int | None, int, int], expected: list[int]
) -> None:
    num_elements, window, seed, epoch = arguments
    epochs, positions = np.full(8, epoch, np.int64), np.arange(8, dtype=np.int64)
    if window is None:
        places = shuffled(epochs, positions, num_elements, seed=seed, reshuffle=True)
    else:
        places = window_shuffled(epochs, positions, num_elements, window, seed=seed, reshuffle=True)
    assert places.tolist() == expected


# -- inside a window ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("num_elements", range(1, 61))
def test_a_window_shuffle_gives_every_element_once_and_moves_none_too_far(num_elements: int) -> None:
    for window in range(1, 71):
        for epoch in (0, 3):
            places = order(num_elements, window=window, epoch=epoch)
            assert np.array_equal(np.sort(places), np.arange(num_elements)), (window, epoch)
            assert window >= num_elements or np.abs(places - np.arange(num_elements)).max() < window, (window, epoch)


@pytest.mark.parametrize("window", [510, 511, 512, 513, 514, 515, 2000, 9998, 9999])
def test_half_windows_above_and_below_256_places_both_give_a_permutation(window: int) -> None:
    # Up to 256 places a half window is sorted by hashes, above it goes through the keyed permutation.
    places = order(10_000, window=window)
    assert np.array_equal(np.sort(places), np.arange(10_000))
    moved = np.abs(places - np.arange(10_000))
    assert 0 < moved.max() < window
    assert moved.mean() > window / 8


@pytest.mark.parametrize("num_elements", [1, 2, 17, 300, 1000])
def test_a_window_of_all_elements_or_more_is_the_global_shuffle(num_elements: int) -> None:
    for window in (num_elements, num_elements + 1, 10 * num_elements, 2**62):
        assert np.array_equal(order(num_elements, window=window), order(num_elements))


@pytest.mark.parametrize("window", [8, pytest.param(600, marks=pytest.mark.slow)])
def test_over_the_epochs_an_element_in_the_middle_goes_to_every_place_in_reach_and_no_further(window: int) -> None:
    num_epochs, middle = 4000, 2000
    epochs = np.arange(num_epochs)
    places = window_shuffled(epochs, np.full(num_epochs, middle), 4001, window, seed=1, reshuffle=True)
    moved = places - middle
    assert -window < moved.min() < -window // 4
    assert window // 4 < moved.max() < window


def test_a_window_far_behind_the_beginning_of_a_long_order_works_like_the_first() -> None:
    start, num_elements = 2**61, 2**62
    for window in (10, 1000):
        half = (window + 1) // 2
        positions = start // half * half + np.arange(4 * half)
        places = window_shuffled(np.zeros(len(positions), np.int64), positions, num_elements, window, seed=5, reshuffle=True)
        assert len(np.unique(places)) == len(positions)
        assert 0 < np.abs(places - positions).max() < window


# -- several epochs in one call -------------------------------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 299)), max_size=40), st.sampled_from([None, 7, 40, 600, 290]), st.booleans())
def test_epochs_mixed_in_one_call_give_what_separate_calls_give(keys: list[tuple[int, int]], window: int | None, reshuffle: bool) -> None:
    epochs, positions = np.array([key[0] for key in keys], np.int64), np.array([key[1] for key in keys], np.int64)
    if window is None:
        places = shuffled(epochs, positions, 300, seed=2, reshuffle=reshuffle)
    else:
        places = window_shuffled(epochs, positions, 300, window, seed=2, reshuffle=reshuffle)
    whole = [order(300, window=window, seed=2, epoch=epoch, reshuffle=reshuffle) for epoch in range(4)]
    assert places.tolist() == [int(whole[epoch][place]) for epoch, place in keys]


@pytest.mark.parametrize("reshuffle", [False, True])
@pytest.mark.parametrize("window", [None, 3])
def test_a_shuffle_of_nothing_is_nothing(window: int | None, reshuffle: bool) -> None:
    assert order(0, window=window, reshuffle=reshuffle).tolist() == []
