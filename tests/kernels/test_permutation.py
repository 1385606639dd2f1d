from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from penstock.kernels import mix, permute
from penstock.kernels.checked import SMALL, grid, round_keys, seed_of

GOLDEN_POSITIONS = {
    # num_elements: (positions, where key 7 sends them)
    2: ([0, 1], [1, 0]),
    10: ([0, 1, 2, 5, 9], [0, 7, 6, 2, 4]),
    256: ([0, 1, 2, 128, 255], [172, 251, 221, 144, 161]),
    257: ([0, 1, 2, 128, 256], [124, 46, 136, 39, 202]),
    10**6: ([0, 1, 2, 500000, 999999], [128756, 275172, 414519, 342103, 869836]),
    10**9: ([0, 1, 2, 500000000, 999999999], [788222317, 838964495, 881154361, 191627359, 328166946]),
    2**40 + 1: ([0, 1, 2, 2**39, 2**40], [438711392630, 1014239930370, 418813660488, 507940580593, 665915153214]),
    2**63: (
        [0, 1, 2, 2**62, 2**63 - 1],
        [6251483366526074875, 4781976519792129682, 6173106077927516198, 4391314674306023679, 6466744719466996287],
    ),
}


def standard_deviations(counts: NDArray[np.int64], expected: float) -> float:
    """Say how far the chi-square statistic of equally likely cells is from its mean, in standard deviations."""
    freedom = counts.size - 1
    return float(abs(((counts - expected) ** 2 / expected).sum() - freedom) / math.sqrt(2 * freedom))


def many(num_elements: int, num_keys: int, positions: NDArray[np.int64] | None = None) -> NDArray[np.int64]:
    rows = np.arange(num_elements) if positions is None else positions
    return np.stack([permute(rows, num_elements, mix(11, key)) for key in range(num_keys)])


@pytest.mark.parametrize("num_elements", GOLDEN_POSITIONS)
def test_the_permutation_is_the_same_on_every_platform_and_in_every_version(num_elements: int) -> None:
    positions, expected = GOLDEN_POSITIONS[num_elements]
    assert permute(np.array(positions), num_elements, 7).tolist() == expected


def test_the_key_counts_with_all_its_64_bits() -> None:
    assert permute(np.arange(10), 10, 0).tolist() == [4, 1, 6, 2, 7, 5, 0, 9, 8, 3]
    assert permute(np.arange(8), 1000, 2**64 - 1).tolist() == [763, 910, 343, 112, 668, 909, 166, 652]
    results = {tuple(permute(np.arange(20), 1000, 1 << bit).tolist()) for bit in range(64)}
    assert len(results) == 64


@pytest.mark.parametrize("num_elements", [*range(1, 70), 255, 256, 257, 258, 1000, 1023, 1024, 1025, 4095, 4097, 65535, 65537, 300_007])
def test_every_element_comes_exactly_once(num_elements: int) -> None:
    for key in (0, 1, 2**64 - 1):
        assert np.array_equal(np.sort(permute(np.arange(num_elements), num_elements, key)), np.arange(num_elements))


@given(st.integers(1, 2**63), st.integers(0, 2**64 - 1), st.data())
def test_different_positions_go_to_different_places_in_any_range(num_elements: int, key: int, data: st.DataObject) -> None:
    chosen = data.draw(st.sets(st.integers(0, num_elements - 1), max_size=50))
    result = permute(np.array(sorted(chosen), np.int64), num_elements, key)
    assert np.unique(result).size == len(chosen)
    assert not result.size or (result.min() >= 0 and result.max() <= num_elements - 1)


@pytest.mark.parametrize("num_elements", [2, 3, 4, 5])
def test_all_orders_of_a_few_elements_are_equally_likely(num_elements: int) -> None:
    num_keys = 12_000
    orders = dict.fromkeys(itertools.permutations(range(num_elements)), 0)
    for row in many(num_elements, num_keys).tolist():
        orders[tuple(row)] += 1
    counts = np.array(list(orders.values()))
    assert standard_deviations(counts, num_keys / counts.size) < 6


@pytest.mark.parametrize("num_elements", [257, pytest.param(300, marks=pytest.mark.slow), pytest.param(1000, marks=pytest.mark.slow)])
def test_steps_between_neighbours_are_equally_likely(num_elements: int) -> None:
    # The sharpest of these tests: it finds a network of six rounds at n = 257.
    num_keys = 6000
    steps = np.diff(many(num_elements, num_keys), axis=1) % num_elements
    assert standard_deviations(np.bincount(steps.ravel(), minlength=num_elements)[1:], num_keys) < 6


@given(st.integers(SMALL + 1, 2**63))
def test_the_grid_covers_the_range_with_few_cells_to_spare(num_elements: int) -> None:
    num_left, right_bits = grid(num_elements)
    assert right_bits <= 32
    assert num_left <= 2**31
    assert 0 <= (num_left << right_bits) - num_elements < 1 << right_bits
    assert 1 << right_bits <= 2 * math.isqrt(num_elements) + 2


def test_round_keys_are_the_outputs_of_splitmix64() -> None:
    assert round_keys(0, 3) == [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]


def test_the_seed_depends_on_size_and_key() -> None:
    assert len({seed_of(size, key) for size in (1, 2, 300, 2**63) for key in (0, 1, 2**64 - 1)}) == 12
