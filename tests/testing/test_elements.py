from __future__ import annotations

from collections import namedtuple
from typing import Any

import numpy as np
import pytest
from testing.breaking import assert_broken

from penstock.testing.runs import alike, exact, plain, require_same, shown

Pair = namedtuple("Pair", ["left", "right"])
NAN = float("nan")

DIFFERENT: list[Any] = [
    0,
    0.0,
    -0.0,
    NAN,
    False,
    None,
    "0",
    b"0",
    [0],
    (0,),
    Pair(0, 1),
    (0, 1),
    {"x": 0},
    {"y": 0},
    {"x": 0, "y": 1},
    {"y": 1, "x": 0},
    np.int64(0),
    np.int32(0),
    np.zeros(1),
    np.zeros(1, np.float32),
    np.zeros((1, 1)),
    np.array([0, "a"], object),
    np.array([0, "b"], object),
]


def test_exact_values_are_equal_for_the_same_element_and_no_other() -> None:
    for place, one in enumerate(DIFFERENT):
        for other, two in enumerate(DIFFERENT):
            assert (exact(one) == exact(two)) == (place == other), (one, two)


def test_exact_values_are_copies() -> None:
    for memory in (bytearray(b"abc"), np.arange(3, dtype=np.uint8)):
        before = exact(memoryview(memory)) if isinstance(memory, bytearray) else exact(memory)
        memory[0] = 9
        assert exact(memory) != before
    assert exact(memoryview(b"abc")) == exact(b"abc") == exact(bytearray(b"abc"))


def test_what_offers_array_counts_as_the_array_of_its_class() -> None:
    class Tensor:
        def __init__(self, value: int) -> None:
            self.value = value

        def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray[Any, Any]:
            return np.full(2, self.value)

    assert exact(Tensor(1)) == exact(Tensor(1))
    assert exact(Tensor(1)) != exact(Tensor(2))
    assert exact(Tensor(1)) != exact(np.full(2, 1))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (np.arange(3), [0, 1, 2]),
        (np.float32(0.5), 0.5),
        ((1, [np.nan]), [1, [NAN]]),
        ({"x": np.zeros((1, 2))}, {"x": [[0, 0]]}),
        ("a", "a"),
    ],
)
def test_values_alike_may_be_arrays_or_lists(one: Any, other: Any) -> None:
    assert alike(one, other)
    assert alike(other, one)


@pytest.mark.parametrize(("one", "other"), [([1, 2], [1]), ({"x": 1}, {"y": 1}), (1, 2), ([1], 1), ({"a": 1, "b": 2}, {"b": 2, "a": 1})])
def test_other_values_are_not_alike(one: Any, other: Any) -> None:
    assert not alike(one, other)


def test_plain_elements_are_python_values() -> None:
    assert plain({"x": (np.arange(2), np.int8(3)), "y": ["a"]}) == {"x": [[0, 1], 3], "y": ["a"]}
    assert type(plain(np.int8(3))) is int


def test_the_first_difference_is_said_in_words() -> None:
    require_same([1, np.arange(2)], [1, [0, 1]], "law", where="here", fix="so", by=alike)
    for got, wanted, what in (
        ([1, 5, 6], [1, 2, 3], "law: element 1 is 5, not 2"),
        ([1], [1.0], "law: element 0 is 1, not 1.0"),
        ([1], [1, 2, 3], "law: 1 elements came instead of 3"),
    ):
        assert_broken(lambda got=got, wanted=wanted: require_same(got, wanted, "law", where="here", fix="so"), what, "here", "so")  # type: ignore[misc]


def test_long_elements_are_shown_in_one_short_line() -> None:
    assert shown(np.arange(3)) == "array([0, 1, 2])"
    text = shown(np.arange(1000).reshape(10, 100))
    assert len(text) == 100
    assert "\n" not in text
