from __future__ import annotations

from collections import OrderedDict, deque
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from penstock._contracts.arguments import flag, listed, real_number, whole_number


@pytest.mark.parametrize("value", [0, -3, 2**70, np.int64(5), np.uint8(5), np.array(5)])
def test_a_whole_number_of_any_kind_is_an_int(value: Any) -> None:
    assert type(whole_number(value)) is int
    assert whole_number(value) == value


@pytest.mark.parametrize("value", [True, np.True_, 1.0, np.float32(1), "1", b"1", None, [1], np.array([1, 2]), 1 + 0j])
def test_what_is_no_whole_number_is_none(value: Any) -> None:
    assert whole_number(value) is None


@pytest.mark.parametrize("value", [0, 2.5, np.float32(0.5), np.float64(0.5), np.int8(-2), np.array(1.5), Fraction(1, 4), float("inf")])
def test_a_number_of_any_kind_is_a_float(value: Any) -> None:
    assert type(real_number(value)) is float
    assert real_number(value) == value


@pytest.mark.parametrize("value", [True, np.False_, "1", b"1", bytearray(b"1"), None, [1], np.array([1, 2]), 1 + 0j, 10**400])
def test_what_is_no_number_is_none(value: Any) -> None:
    assert real_number(value) is None


@pytest.mark.parametrize("value", [True, False, np.True_, np.False_, 0, 1, np.int64(1)])
def test_a_flag_is_a_bool(value: Any) -> None:
    assert flag(value) is bool(value)


@pytest.mark.parametrize("value", [2, -1, 1.0, "no", "false", "", None, [], np.array([True])])
def test_what_only_counts_as_true_or_false_is_no_flag(value: Any) -> None:
    assert flag(value) is None


@pytest.mark.parametrize("values", [[1, 2], (1, 2), range(1, 3), np.array([1, 2]), deque([1, 2]), iter([1, 2])])
def test_what_has_an_order_is_a_list(values: Any) -> None:
    assert listed(values) == [1, 2]


@pytest.mark.parametrize("values", ["12", b"12", bytearray(b"12"), {1, 2}, frozenset([1]), {1: 2}, {1: 2}.keys(), OrderedDict(), 5, None])
def test_what_has_no_order_or_no_parts_is_no_list(values: Any) -> None:
    assert listed(values) is None
