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
from penstock.kernels.library import load_library

LIBRARY: Any = load_library()
pytestmark = pytest.mark.skipif(LIBRARY is None, reason="the C library was not built here")


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
@given(seed=st.integers(0, 2**32))
def test_both_versions_agree(case: Callable[[Any, np.random.Generator], None], seed: int) -> None:
    rng = np.random.default_rng(seed)
    for _ in range(3):
        case(LIBRARY, rng)
