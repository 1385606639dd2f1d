"""Each function in C and its twin in NumPy or Python give the same bytes and the same verdicts, whatever the arguments.

The cases are those of `tools/fuzz_kernels.py`, which runs them under AddressSanitizer as well.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fuzz_kernels import CASES
from penstock.kernels import checked
from penstock.kernels.library import load_library

LIBRARY: Any = load_library()
pytestmark = pytest.mark.skipif(LIBRARY is None, reason="the C library was not built here")


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
@given(seed=st.integers(0, 2**32))
def test_both_versions_agree(case: Callable[[Any, np.random.Generator], None], seed: int) -> None:
    rng = np.random.default_rng(seed)
    for _ in range(3):
        case(LIBRARY, rng)


@pytest.mark.parametrize("num_elements", [1, 2, 255, 256, 257, 1000, 66_000])
def test_permutations_of_a_whole_range_are_equal(num_elements: int) -> None:
    ours, other = np.empty(num_elements, np.int64), np.empty(num_elements, np.int64)
    LIBRARY.permute(np.arange(num_elements), num_elements, 99, ours)
    checked.permute_twin(np.arange(num_elements), num_elements, 99, other)
    assert np.array_equal(ours, other)


@pytest.mark.parametrize("capacity", [512, 2048, 10**6])
def test_many_elements_go_to_the_same_rows(capacity: int) -> None:
    sizes = np.random.default_rng(capacity).lognormal(5.5, 1, 20_000).astype(np.int64).clip(1, capacity)
    ours, other = np.empty(20_000, np.int64), np.empty(20_000, np.int64)
    assert LIBRARY.best_fit(sizes, capacity, ours) == checked.best_fit_twin(sizes, capacity, other) == -1
    assert np.array_equal(ours, other)
