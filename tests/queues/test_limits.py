from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from penstock.errors import PlanError
from penstock.queues.trees import limit_of, positive


@pytest.mark.parametrize(
    ("given", "limit"), [(None, None), (math.inf, None), (0, 0.0), (2, 2.0), (0.5, 0.5), (np.float32(0.5), 0.5), (np.int64(3), 3.0)]
)
def test_a_time_limit_is_seconds_or_none(given: Any, limit: float | None) -> None:
    assert limit_of(given) == limit
    assert type(limit_of(given)) in (float, type(None))


@pytest.mark.parametrize("given", [-1, -0.0001, math.nan, -math.inf, True, "1", [], 1j])
def test_what_is_no_time_limit_is_refused(given: Any) -> None:
    with pytest.raises(PlanError) as caught:
        limit_of(given)
    assert caught.value.what == f"timeout_s is {given!r}"
    assert "0 does not block, None waits without limit" in caught.value.fix


def test_a_time_limit_beyond_all_floats_is_refused() -> None:
    with pytest.raises(PlanError) as caught:
        limit_of(10**400)
    assert caught.value.what == "timeout_s is an int of 1329 bits"
    assert limit_of(np.longdouble("inf")) is None


def test_a_count_is_a_whole_number() -> None:
    assert (positive(3, "n"), positive(np.int32(3), "n"), positive(0, "seed", 0)) == (3, 3, 0)
    assert type(positive(np.int32(3), "n")) is int


@pytest.mark.parametrize("given", [0, -1, True, 1.0, None, "1", math.nan])
def test_what_is_no_count_is_refused_by_name(given: Any) -> None:
    with pytest.raises(PlanError) as caught:
        positive(given, "n")
    assert (caught.value.what, caught.value.where, caught.value.fix) == (f"n is {given!r}", "n", "give a whole number, 1 or more")
