"""The C version and the twin find the same members, samples and faults, whatever the bytes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fuzz_tar import CASES
from penstock.kernels import native

LIBRARY = native.load()
pytestmark = pytest.mark.skipif(LIBRARY is None, reason="the C library was not built here")


@pytest.mark.parametrize("case", CASES)
@given(seed=st.integers(0, 2**32))
def test_both_versions_agree(case: object, seed: int) -> None:
    rng = np.random.default_rng(seed)
    for _ in range(5):
        case(LIBRARY, rng)  # type: ignore[operator]
