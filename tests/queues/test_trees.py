from __future__ import annotations

from collections import UserDict
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from queues.labelled import Labelled

from penstock.errors import SpecError
from penstock.queues.trees import batch_of, pad, slices_of, stack


class Pair(NamedTuple):
    image: Any
    label: Any


def test_slices_are_views_of_arrays_and_items_of_lists_in_the_same_tree() -> None:
    images = np.arange(6).reshape(3, 2)
    slices = slices_of({"pair": Pair(images, ["a", "b", "c"]), "flag": [True, False, True]}, "here")
    assert [element["pair"].label for element in slices] == ["a", "b", "c"]
    assert [element["flag"] for element in slices] == [True, False, True]
    assert type(slices[0]["pair"]) is Pair
    assert all(np.shares_memory(element["pair"].image, images) for element in slices)
    assert slices_of([], "here") == []
    assert slices_of(([1, 2],), "here") == [(1,), (2,)]
    assert slices_of(range(3), "here") == [0, 1, 2]


@pytest.mark.parametrize(
    ("elements", "words"),
    [
        (7, "the element is a int, which has no dimension 0"),
        ("text", "the element is a str"),
        (b"text", "the element is a bytes"),
        (np.array(7), "the element is a ndarray"),
        ({"a": [1], "b": None}, "['b'] is a NoneType"),
        (([1, 2], (n for n in range(2))), "[1] is a generator"),
        (([1, 2], [1, 2, 3]), "the first dimensions are not equal: [0] has 2, [1] has 3"),
        ({"a": np.zeros((2, 3)), "b": (np.zeros(0), np.zeros(2))}, "['a'] has 2, ['b'][0] has 0, ['b'][1] has 2"),
        ((), "there is no component to slice"),
        ({}, "there is no component to slice"),
    ],
)
def test_what_has_no_slices_or_not_equally_many_is_refused(elements: Any, words: str) -> None:
    with pytest.raises(SpecError) as caught:
        slices_of(elements, "here")
    assert words in caught.value.what
    assert caught.value.where == "here"


@pytest.mark.parametrize(
    ("values", "batch"),
    [
        ([1, 2], np.array([1, 2])),
        ([1.5, 2.0], np.array([1.5, 2.0])),
        ([True, False], np.array([True, False])),
        ([np.float32(1), np.float32(2)], np.array([1, 2], np.float32)),
        ([np.zeros((2, 3), np.int8), np.ones((2, 3), np.int8)], np.stack([np.zeros((2, 3), np.int8), np.ones((2, 3), np.int8)])),
        ([[1, 2], [3, 4]], np.array([[1, 2], [3, 4]])),
        (["a", "long"], np.array(["a", "long"], object)),
        ([None, {1}], np.array([None, {1}], object)),
        ([np.array(["a"], object), np.array(["bc"], object)], np.array([["a"], ["bc"]], object)),
    ],
)
def test_leaves_of_one_spec_are_stacked(values: list[Any], batch: Any) -> None:
    for stacker in (stack, pad):
        stacked = stacker(values, "here")
        assert_array_equal(stacked, batch)
        assert stacked.dtype == batch.dtype


@pytest.mark.parametrize(
    "values", [[1, 1.5], [1, True], [np.float32(1), 1.0], [np.zeros(2), np.zeros(2, np.float32)], [np.zeros(2), np.zeros((2, 1))], ["a", 1]]
)
def test_leaves_of_another_dtype_or_rank_are_refused_and_never_converted(values: list[Any]) -> None:
    for stacker in (stack, pad):
        with pytest.raises(SpecError, match="cannot be") as caught:
            stacker(values, "here")
        assert caught.value.where == "here"


def test_leaves_of_another_length_are_stacked_only_with_padding() -> None:
    with pytest.raises(SpecError) as caught:
        stack([np.zeros(2), np.zeros(3)], "here")
    assert caught.value.what == "elements of float64[2] and float64[3] cannot be stacked to one batch"
    assert "PaddingFIFOQueue" in caught.value.fix


def test_a_list_with_rows_of_different_length_is_refused() -> None:
    with pytest.raises(SpecError, match="a list cannot become an array"):
        stack([[[1], [1, 2]]], "here")


@given(lengths=st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=5))
def test_padding_keeps_every_value_in_its_place_and_is_zero_elsewhere(lengths: list[tuple[int, int]]) -> None:
    values = [np.full(shape, number + 1, np.uint8) for number, shape in enumerate(lengths)]
    padded = pad(values, "here")
    assert padded.shape == (len(values), max(rows for rows, _ in lengths), max(columns for _, columns in lengths))
    assert padded.dtype == np.uint8
    for row, (rows, columns) in enumerate(lengths):
        assert_array_equal(padded[row, :rows, :columns], values[row])
        assert padded[row].sum() == values[row].sum()


@pytest.mark.parametrize("empty", ["", b"", None])
def test_padding_of_objects_is_an_empty_text_of_their_kind_or_none(empty: Any) -> None:
    item: Any = {1} if empty is None else type(empty)(empty[:0]) + ("ab" if isinstance(empty, str) else b"ab")
    short, long = np.empty(1, object), np.empty(2, object)
    short[0], long[0], long[1] = item, item, item
    assert pad([short, long], "here").tolist() == [[item, empty], [item, item]]


def test_batches_have_the_tree_of_their_elements() -> None:
    batch = batch_of([{"pair": Pair(np.zeros(2), 1), "one": (3,)}, {"pair": Pair(np.ones(2), 2), "one": (4,)}], stack, "here")
    assert type(batch["pair"]) is Pair
    assert_array_equal(batch["pair"].image, [[0, 0], [1, 1]])
    assert_array_equal(batch["pair"].label, [1, 2])
    assert_array_equal(batch["one"][0], [3, 4])


@pytest.mark.parametrize(
    ("entries", "words"),
    [
        ([(1, 2), (1, 2, 3)], "tuple of 2; tuple of 3"),
        ([(1, 2), 1], "one int; tuple of 2"),
        ([{"a": 1}, {"b": 1}], "dict with"),
        ([1, {"b": 1}], "dict with"),
    ],
)
def test_elements_of_different_structure_are_refused(entries: list[Any], words: str) -> None:
    with pytest.raises(SpecError) as caught:
        batch_of(entries, stack, "here")
    assert words in caught.value.what


def test_a_leaf_that_does_not_fit_is_named_by_its_component() -> None:
    with pytest.raises(SpecError) as caught:
        batch_of([{"a": (1, 2)}, {"a": (1, 2.5)}], stack, "the queue")
    assert caught.value.where == "the queue, component 'a', component 1"


def test_array_likes_are_sliced_by_position_not_by_label() -> None:
    assert slices_of(Labelled(), "here") == [10, 20, 30]
    assert slices_of({"x": (Labelled(),), "y": ["a", "b", "c"]}, "here")[0] == {"x": (10,), "y": "a"}
    for mapping in (UserDict({0: 1}), bytearray(b"ab")):
        with pytest.raises(SpecError, match="has no dimension 0"):
            slices_of(mapping, "here")


@pytest.mark.parametrize(
    ("values", "batch"),
    [
        ([[b"a\0"], [b"bcd"]], [[b"a\0"], [b"bcd"]]),
        ([["a\0", "b"], ["c", "d"]], [["a\0", "b"], ["c", "d"]]),
        ([[5, 2**63 + 1], [7, 2**63 + 3]], [[5, 2**63 + 1], [7, 2**63 + 3]]),
    ],
)
def test_lists_keep_every_byte_and_every_digit(values: list[Any], batch: list[Any]) -> None:
    for stacker in (stack, pad):
        assert stacker(values, "here").tolist() == batch
    assert pad([[b"a\0"], [b"b", b"c\0"]], "here").tolist() == [[b"a\0", b""], [b"b", b"c\0"]]


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ([1, "a"], "items of different kinds"),
        ([1, 2**64], "no 64-bit integer holds"),
        (2**63, "an element is 9223372036854775808, which does not fit int64"),
        (np.ma.masked_array([1, 2], [0, 1]), "masked array"),
        (np.ma.masked, "masked array"),
    ],
)
def test_a_leaf_that_a_batch_would_change_is_refused(value: Any, words: str) -> None:
    for stacker in (stack, pad):
        with pytest.raises(SpecError) as caught:
            stacker([value, value], "here")
        assert words in caught.value.what
        assert caught.value.where == "here"
