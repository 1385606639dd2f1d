from __future__ import annotations

from collections import UserDict
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from queues.labelled import Labelled

from penstock.errors import PlanError, SpecError
from penstock.queues.trees import Component, Components, Priority, batch_of, declare, slices_of, stack

pad = partial(stack, padded=True)


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
        ({"a": [1], "b": None}, "component 'b' is a NoneType"),
        (([1, 2], (n for n in range(2))), "component 1 is a generator"),
        (([1, 2], [1, 2, 3]), "the first dimensions are not equal: component 0 has 2, component 1 has 3"),
        (
            {"a": np.zeros((2, 3)), "b": (np.zeros(0), np.zeros(2))},
            "component 'a' has 2, component 'b', component 0 has 0, component 'b', component 1 has 2",
        ),
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
    assert pad([[b"a\0"], [b"b", b"c\0"]], "here").tolist() == [[b"a\0", b""], [b"b", b"c\0"]]


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


# -- declared components -------------------------------------------------------------------------------------------------------------------


def declared(dtypes: Any = None, shapes: Any = None, names: Any = None) -> Components:
    components = declare(dtypes, shapes, names)
    assert components is not None
    return components


def refused(components: Components, element: Any, words: str) -> None:
    with pytest.raises(SpecError) as caught:
        components.entry(element, "the queue")
    assert caught.value.where == "the queue"
    assert words in caught.value.what


@pytest.mark.parametrize(
    ("dtype", "value", "got"),
    [
        (np.float32, 1, np.float32(1)),
        (np.float32, 1.5, np.float32(1.5)),
        (np.float32, np.float32(2), np.float32(2)),
        (np.float32, [1, 2.5], np.array([1, 2.5], np.float32)),
        ("uint8", 255, np.uint8(255)),
        (np.int64, [[1], [2]], np.array([[1], [2]])),
        (bool, True, np.True_),
        (np.complex64, 2.0, np.complex64(2)),
        (np.int32, np.array(4, np.int32), np.int32(4)),
        (object, None, None),
        (str, "text", "text"),
        (str, ["a", "bcd"], np.array(["a", "bcd"], object)),
        (str, np.array(["a", "bcd"]), np.array(["a", "bcd"], object)),
        (bytes, b"text", b"text"),
        (None, [["a\0"], ["b"]], np.array([["a\0"], ["b"]], object)),
        (None, [np.array(["a"]), np.array(["bc"])], np.array([["a"], ["bc"]], object)),
        (None, [[1], [2**64 - 1]], np.array([[1], [2**64 - 1]], np.uint64)),
        (None, [np.array([1]), np.array([2**63], np.uint64)], np.array([[1], [2**63]], np.uint64)),
        (None, [1, 2.5], np.array([1, 2.5])),
        (None, [True, 0, 3], np.array([1, 0, 3])),
        (None, [1, None], np.array([1, None], object)),
        (None, [], np.array([])),
        (None, Labelled(), np.array([10, 20, 30])),
        (np.uint64, [1, 2**63 + 1], np.array([1, 2**63 + 1], np.uint64)),
        (np.int64, [], np.array([], np.int64)),
        (np.int64, [[], []], np.zeros((2, 0), np.int64)),
        (np.float32, [1, 2**63], np.array([1, 2**63], np.float32)),
    ],
)
def test_a_value_becomes_its_component_and_every_item_of_a_list_stays_what_it_was(dtype: Any, value: Any, got: Any) -> None:
    entry = declared([dtype]).entry(value, "the queue")
    assert_array_equal(entry, got)
    assert type(entry) is type(got)
    assert getattr(entry, "dtype", None) == getattr(got, "dtype", None)


def test_an_array_that_fits_is_kept_as_it_is() -> None:
    image = np.zeros((2, 3), np.uint8)
    assert declared(np.uint8, [(2, None)]).entry(image, "the queue") is image


@pytest.mark.parametrize(
    ("dtype", "value", "words"),
    [
        (np.float32, np.zeros(2), "the element is float64[2], the queue takes float32"),
        (np.float32, np.float64(1), "the element is float64[]"),
        (np.int32, 1.5, "the element is 1.5, the queue takes int32"),
        (np.int32, True, "the element is True"),
        (bool, 1, "the element is 1, the queue takes bool"),
        (np.uint8, 256, "cannot become an array"),
        (np.uint8, -1, "cannot become an array"),
        (np.uint8, [5, np.int64(-1)], "does not fit uint8"),
        (np.int32, "7", "the element is '7'"),
        (np.int32, None, "the element is None"),
        (np.int32, [[1], [1, 2]], "cannot become an array"),
        (str, b"a", "the queue takes str"),
        (str, ["a", 1], "the queue takes str"),
        (bytes, "a", "the queue takes bytes"),
        (object, np.zeros(2), "the queue takes object"),
        (None, ["a", b"b"], "items of different kinds"),
        (None, [2**70, "a"], "items of different kinds"),
        (None, [-1, 2**63], "cannot become an array"),
        (None, [np.array([-1]), np.array([2**63], np.uint64)], "which does not fit a dtype"),
        (None, [float("nan"), 2**70, 1j], "which does not fit a dtype"),
        (None, [1.0, np.ma.masked], "masked array"),
        (None, [["a"], ["b", "c"]], "cannot become an array"),
    ],
)
def test_a_value_of_another_dtype_and_a_list_that_an_array_would_change_are_refused(dtype: Any, value: Any, words: str) -> None:
    refused(declared([dtype]), value, words)


@pytest.mark.parametrize(
    ("shape", "value"), [((), 1), ((2,), [1, 2]), ((None,), [1]), ((2, None), np.zeros((2, 0))), (None, np.zeros((1, 1)))]
)
def test_a_shape_that_fits_is_taken(shape: Any, value: Any) -> None:
    assert_array_equal(Component("", None, shape).fit(value, "q"), value)


@pytest.mark.parametrize(
    ("shape", "value"), [((), [1]), ((2,), [1, 2, 3]), ((None,), 1), ((2, None), np.zeros((3, 4))), ((1,), np.zeros((1, 1)))]
)
def test_a_value_of_another_shape_is_refused(shape: Any, value: Any) -> None:
    refused(declared(None, shape), value, f"the element has shape {list(np.shape(value))}, the queue takes {list(shape)}")


def test_several_components_are_a_tuple() -> None:
    components = declared([np.float32, np.int64], [(2,), ()])
    entry = components.entry(([1, 2], 3), "the queue")
    assert_array_equal(entry[0], [1, 2])
    assert entry[1] == 3
    refused(components, [[1, 2], 3], "the element is a list, the queue takes tuples of 2")
    refused(components, ([1, 2],), "the element is a tuple of 1, the queue takes tuples of 2")
    refused(components, {"a": 1, "b": 2}, "the element is a dict")
    refused(components, ([1, 2], 3.5), "component 1 is 3.5")
    refused(components, ([1, 2, 3], 3), "component 0 has shape [3]")


def test_one_component_may_be_written_as_a_tuple_of_one() -> None:
    for components in (declared(np.int64), declared([np.int64])):
        assert components.entry((3,), "q") == components.entry(3, "q") == 3
        refused(components, (1, 2), "the element is a tuple of 2, the queue takes one array")
        refused(components, {"a": 1}, "the element is a dict, the queue takes one array")


def test_names_make_elements_dicts_in_the_declared_order() -> None:
    components = declared([np.int64, str], None, ["label", "path"])
    assert list(components.entry({"path": "a.jpg", "label": 1}, "q")) == ["label", "path"]
    refused(components, {"label": 1}, "a dict with ['label'], the queue takes dicts with ['label', 'path']")
    refused(components, {"label": 1, "path": "a", "more": 2}, "more")
    refused(components, (1, "a"), "the element is a tuple")
    refused(components, {"label": 1.5, "path": "a"}, "component 'label' is 1.5")
    assert declared(None, None, ["x"]).entry({"x": object}, "q") == {"x": object}


@pytest.mark.parametrize(
    ("dtypes", "shapes", "names", "words"),
    [
        ([int, int], [()], None, "dtypes has 2, shapes has 1"),
        ([int], None, ["a", "b"], "dtypes has 1, names has 2"),
        (None, [(), ()], ["a"], "shapes has 2, names has 1"),
        ([], None, None, "dtypes has 0"),
        ("no such", None, None, "'no such' is no dtype"),
        ("float", None, None, "dtypes='float' is float32 in TensorFlow and float64 in NumPy"),
        ([np.int64, "string"], None, None, "dtypes='string' is a name of TensorFlow's"),
        ([int], [(-1,)], None, "(-1,) is no shape"),
        ([int], [(1.5,)], None, "is no shape"),
        ([int], 3, None, "3 is no shape"),
        ([int], "ab", None, "'ab' is no shape"),
        (None, None, "ab", "names is 'ab'"),
        (None, None, ["a", "a"], "names is ['a', 'a']"),
        (None, None, ["a", 1], "names is ['a', 1]"),
        (None, None, {"x"}, "names is {'x'}"),
        ({np.int64}, None, None, "is no dtype"),
    ],
)
def test_declarations_that_do_not_fit_each_other_are_refused(dtypes: Any, shapes: Any, names: Any, words: str) -> None:
    with pytest.raises(PlanError) as caught:
        declare(dtypes, shapes, names)
    assert words in caught.value.what


def test_a_shape_alone_is_that_of_one_component() -> None:
    assert [part.shape for part in declared(None, (2, None)).parts] == [(2, None)]
    assert [part.shape for part in declared(None, [2, 3]).parts] == [(2, 3)]
    assert [part.shape for part in declared(None, [(2,), None]).parts] == [(2,), None]
    assert [part.shape for part in declared(None, []).parts] == [()]


@pytest.mark.parametrize("value", [3, np.int8(3), np.uint64(3), np.array(3)])
def test_a_priority_is_any_whole_number(value: Any) -> None:
    assert type(Priority().fit(value, "q")) is np.int64
    assert Priority().fit(value, "q") == 3


@pytest.mark.parametrize("value", [True, 1.0, "1", None, 2**63, -(2**63) - 1, [1], np.array([1]), np.float32(1), np.uint64(2**63)])
def test_what_is_no_priority_is_refused(value: Any) -> None:
    with pytest.raises(SpecError, match="the queue takes an int64"):
        Priority().fit(value, "q")


def test_declared_components_stand_behind_the_priority() -> None:
    components = declare([np.float32], [()], ["rank", "value"], (Priority(),))
    assert components is not None
    assert components.entry({"value": 2, "rank": 1}, "q") == {"rank": 1, "value": 2}
    with pytest.raises(PlanError, match="besides the first 1"):
        declare([np.float32], None, ["value"], (Priority(),))


@pytest.mark.parametrize("dtype", [None, np.int64, np.float64, object, str])
def test_masked_arrays_are_refused(dtype: Any) -> None:
    masked: Any = np.ma.masked_array([1, 2], [0, 1])
    refused(declared(dtype, [(2,)]), masked, "the element is a masked array")
    if dtype in (None, np.int64):
        refused(declared(dtype, [(2, 2)]), [masked, masked], "the element is a masked array")


def test_dtypes_that_differ_only_in_byte_order_do_not_read_the_same() -> None:
    with pytest.raises(SpecError) as caught:
        declared(">i4").entry(np.zeros(2, "<i4"), "q")
    assert caught.value.what == "the element is int32[2], the queue takes >i4"
    assert caught.value.fix == "convert it before: .astype('>i4')"
    refused(declared("i4,f4"), np.zeros(2, "i4,f8"), "the queue takes [('f0', '<i4'), ('f1', '<f4')]")
