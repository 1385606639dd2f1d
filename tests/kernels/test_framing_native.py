"""The C version and the twin find the same frames and the same faults, whatever the bytes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fuzz_framing import CASES
from penstock.kernels import framing
from penstock.kernels.library import load_library

LIBRARY = load_library()
pytestmark = pytest.mark.skipif(LIBRARY is None, reason="the C library was not built here")


@pytest.mark.parametrize("case", CASES)
@given(seed=st.integers(0, 2**32))
def test_both_versions_agree(case: object, seed: int) -> None:
    rng = np.random.default_rng(seed)
    for _ in range(5):
        case(LIBRARY, rng)  # type: ignore[operator]


@pytest.mark.parametrize("size", [0, 1, 7, 8, 9, 191, 192, 193, 3071, 3072, 3073, 3072 + 192, 10_000, 300_000])
def test_check_sums_agree_at_the_sizes_where_the_way_of_computing_changes(size: int) -> None:
    assert LIBRARY is not None
    data = np.random.default_rng(size).integers(0, 256, size + 7, dtype=np.uint8)
    for shift in (0, 1, 7):
        part = data[shift : shift + size].copy()
        assert LIBRARY.crc32c(part, size, 5) == framing.crc32c_twin(part, size, 5) == framing.crc32c_twin(part.tobytes(), size, 5)
