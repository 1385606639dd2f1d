from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from penstock._contracts.arguments import flag, listed, real_number, whole_number

NO_NUMBERS = [True, np.True_, "1", b"1", bytearray(b"1"), None, [1], np.array([1, 2]), 1 + 0j]
RULES: list[tuple[Callable[[Any], Any], type, list[Any], list[Any]]] = [
    (whole_number, int, [0, -3, 2**70, np.int64(5), np.uint8(5), np.array(5)], [*NO_NUMBERS, 1.0, np.float32(1)]),
    (
        real_number,
        float,
        [0, 2.5, np.float32(0.5), np.float64(0.5), np.int8(-2), np.array(1.5), Fraction(1, 4), float("inf")],
        [*NO_NUMBERS, 10**400],
    ),
    (flag, bool, [True, False, np.True_, np.False_, 0, 1, np.int64(1)], [2, -1, 1.0, "no", "false", "", None, [], np.array([True])]),
]


@pytest.mark.parametrize(("rule", "kind", "good", "bad"), RULES)
def test_a_value_of_any_kind_of_number_is_one_of_python_and_what_is_none_is_none(
    rule: Callable[[Any], Any], kind: type, good: list[Any], bad: list[Any]
) -> None:
    for value in good:
        assert type(rule(value)) is kind
        assert rule(value) == value
    assert [rule(value) for value in bad] == [None] * len(bad)


@pytest.mark.parametrize("values", [[1, 2], (1, 2), range(1, 3), np.array([1, 2]), deque([1, 2]), iter([1, 2])])
def test_what_has_an_order_is_a_list(values: Any) -> None:
    assert listed(values) == [1, 2]


@pytest.mark.parametrize("values", ["12", b"12", bytearray(b"12"), {1, 2}, frozenset([1]), {1: 2}, {1: 2}.keys(), OrderedDict(), 5, None])
def test_what_has_no_order_or_no_parts_is_no_list(values: Any) -> None:
    assert listed(values) is None
