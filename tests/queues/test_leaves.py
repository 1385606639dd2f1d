from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from queues.labelled import Labelled

from penstock.errors import SpecError
from penstock.queues.trees import MASKED, array_of, is_sliceable, kinds_of

MASKED_ARRAY: Any = np.ma.masked_array([1, 2], [0, 1])


@pytest.mark.parametrize(
    ("values", "kinds"),
    [
        ([], set()),
        ([[], ([],)], set()),
        ([1, (2.5, [True])], {"i", "f", "b"}),
        ([1j, "a", b"b", None], {"c", "U", "S", "O"}),
        ([np.uint8(1), np.datetime64("2026"), np.str_("a")], {"u", "M", "U"}),
        ([np.zeros(2, np.float32), np.array(["a"])], {"f", "U"}),
        ([1, np.ma.masked, MASKED_ARRAY], {"i", MASKED}),
    ],
)
def test_the_kinds_of_a_list_are_those_of_its_items(values: list[Any], kinds: set[str]) -> None:
    assert kinds_of(values) == kinds


@pytest.mark.parametrize(
    ("value", "array"),
    [
        ([b"a\0", b"bcd"], np.array([b"a\0", b"bcd"], object)),
        ([["a\0"], ["b"]], np.array([["a\0"], ["b"]], object)),
        ([np.array(["a"]), np.array(["bc"])], np.array([["a"], ["bc"]], object)),
        ([5, 2**63 + 1], np.array([5, 2**63 + 1], np.uint64)),
        ([[1], [2**64 - 1]], np.array([[1], [2**64 - 1]], np.uint64)),
        ([np.array([1]), np.array([2**63], np.uint64)], np.array([[1], [2**63]], np.uint64)),
        ([1, 2.5], np.array([1, 2.5])),
        ([True, False], np.array([True, False])),
        ([1, None], np.array([1, None], object)),
        ([], np.array([])),
        (Labelled(), np.array([10, 20, 30])),
    ],
)
def test_every_item_stays_what_it_was(value: Any, array: Any) -> None:
    got = array_of(value, "a list", "here")
    assert_array_equal(got, array)
    assert got.dtype == array.dtype
    if array.dtype == object:
        assert [type(item) for item in got.flat] == [type(item) for item in array.flat]


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ([1, "a"], "[1, 'a']: items of different kinds"),
        ([True, "a"], "items of different kinds"),
        (["a", b"b"], "items of different kinds"),
        ([2**70, "a"], "items of different kinds"),
        ([-1, 2**63], "holds 9223372036854775808, which no 64-bit integer holds together with the others"),
        ([1, 2**64], "holds 18446744073709551616, which no 64-bit integer holds"),
        ([-(2**63) - 1], "holds -9223372036854775809, which no 64-bit integer holds"),
        ([float("nan"), 2**70, 1j], "which no 64-bit integer holds"),
        ([1.0, np.ma.masked], "masked array"),
        ([MASKED_ARRAY], "masked array"),
        ([["a"], ["b", "c"]], "cannot become an array"),
        ([[1], [1, 2]], "cannot become an array"),
    ],
)
def test_what_would_be_changed_is_refused(value: Any, words: str) -> None:
    with pytest.raises(SpecError) as caught:
        array_of(value, "a list", "here")
    assert caught.value.what.startswith("a list ")
    assert words in caught.value.what
    assert caught.value.where == "here"


def test_what_has_numbered_items_can_be_sliced() -> None:
    assert all(map(is_sliceable, ([1], range(2), np.zeros(2), Labelled(), memoryview(b"ab"))))
    assert not any(map(is_sliceable, ("a", b"a", bytearray(b"a"), {1}, {0: 1}, 3, np.array(3), iter([1]))))


def test_bools_beside_numbers_are_numbers() -> None:
    for value, wanted in (
        ([True, 0, 3], np.array([1, 0, 3])),
        ([[True, 1.5]], np.array([[1.0, 1.5]])),
        ([np.True_, np.int8(2)], np.array([1, 2])),
    ):
        array = array_of(value, "a list", "here")
        assert array.tolist() == wanted.tolist()
        assert array.dtype.kind == wanted.dtype.kind
