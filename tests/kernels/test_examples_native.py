"""The parser in C and the twin give the same columns and the same reports, whatever the bytes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fuzz_examples import parse_examples
from penstock.kernels.library import load_library

LIBRARY = load_library()
pytestmark = pytest.mark.skipif(LIBRARY is None, reason="the C library was not built here")


@given(seed=st.integers(0, 2**32))
def test_both_versions_agree_on_records_and_on_every_cut_of_one(seed: int) -> None:
    parse_examples(LIBRARY, np.random.default_rng(seed))
