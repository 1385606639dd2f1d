from __future__ import annotations

from collections import UserDict
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from penstock.errors import PlanError, SpecError
from penstock.queues.trees import Component, Components, Priority, declare


def declared(dtypes: Any = None, shapes: Any = None, names: Any = None) -> Components:
    components = declare(dtypes, shapes, names)
    assert components is not None
    return components


def refused(components: Components, element: Any, *words: str, many: bool = False) -> None:
    with pytest.raises(SpecError) as caught:
        (components.entries if many else components.entry)(element, "the queue")
    assert caught.value.where == "the queue"
    for word in words:
        assert word in caught.value.what


def test_nothing_declared_is_no_check() -> None:
    assert declare(None, None, None) is None


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
    ],
)
def test_a_value_becomes_its_component(dtype: Any, value: Any, got: Any) -> None:
    entry = declared(dtype).entry(value, "the queue")
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
    ],
)
def test_a_value_of_another_dtype_is_refused(dtype: Any, value: Any, words: str) -> None:
    refused(declared(dtype), value, words)


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


def test_slices_are_checked_like_elements() -> None:
    components = declared([np.float32, str], [(2,), ()])
    entries = components.entries((np.ones((3, 2), np.float32), ["a", "b", "c"]), "q")
    assert [entry[1] for entry in entries] == ["a", "b", "c"]
    assert_array_equal(entries[2][0], [1, 1])
    refused(components, (np.ones((3, 2)), ["a", "b", "c"]), "component 0 is float64[3, 2]", many=True)
    refused(components, (np.ones((3, 3), np.float32), ["a", "b", "c"]), "component 0 has shape [3]", many=True)
    refused(components, (np.ones((3, 2), np.float32), ["a", "b"]), "not equal: component 0 has 3, component 1 has 2", many=True)
    refused(components, (np.float32(1), ["a"]), "component 0 is a single value", many=True)
    refused(components, (5, ["a"]), "component 0 is a int, which has no dimension 0", many=True)
    refused(components, ([[1, 2], [1]], ["a", "b"]), "component 0 has shape [1]", many=True)
    refused(components, [1, 2], "the element is a list", many=True)


def test_slices_of_one_component_may_have_different_lengths_when_they_are_a_list() -> None:
    entries = declared(np.int64, [(None,)]).entries([[1], [1, 2]], "q")
    assert [entry.tolist() for entry in entries] == [[1], [1, 2]]


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
    with pytest.raises(SpecError) as caught:
        Priority().fit(value, "q")
    assert "the queue takes an int64" in caught.value.what


def test_priorities_of_many_are_checked_one_by_one() -> None:
    assert Priority().rows(np.array([1, 2], np.int16), "q") == [1, 2]
    for values in (5, "12", [[1]], [1.5], [1, True], np.array([0.5])):
        with pytest.raises(SpecError):
            Priority().rows(values, "q")


def test_declared_components_stand_behind_the_priority() -> None:
    components = declare([np.float32], [()], ["rank", "value"], (Priority(),))
    assert components is not None
    assert components.entry({"value": 2, "rank": 1}, "q") == {"rank": 1, "value": 2}
    with pytest.raises(PlanError, match="besides the first 1"):
        declare([np.float32], None, ["value"], (Priority(),))


@pytest.mark.parametrize(
    ("dtype", "value", "got"),
    [
        (np.uint64, [1, 2**63 + 1], np.array([1, 2**63 + 1], np.uint64)),
        (np.int64, [], np.array([], np.int64)),
        (np.int64, [[], []], np.zeros((2, 0), np.int64)),
        (np.float32, [1, 2**63], np.array([1, 2**63], np.float32)),
        (None, [b"a\0", b"b"], np.array([b"a\0", b"b"], object)),
        (None, [1, 2**63 + 1], np.array([1, 2**63 + 1], np.uint64)),
    ],
)
def test_a_list_keeps_what_it_holds(dtype: Any, value: Any, got: Any) -> None:
    entry = declared(dtype, [(None,) * got.ndim]).entry(value, "the queue")
    assert_array_equal(entry, got)
    assert entry.dtype == got.dtype


@pytest.mark.parametrize("dtype", [None, np.int64, np.float64, object, str])
def test_masked_arrays_are_refused(dtype: Any) -> None:
    masked: Any = np.ma.masked_array([1, 2], [0, 1])
    for many in (False, True):
        refused(declared(dtype, [(2,)]), masked, "the element is a masked array", many=many)
    if dtype in (None, np.int64):
        refused(declared(dtype, [(2, 2)]), [masked, masked], "the element is a masked array")


def test_dtypes_that_differ_only_in_byte_order_do_not_read_the_same() -> None:
    with pytest.raises(SpecError) as caught:
        declared(">i4").entry(np.zeros(2, "<i4"), "q")
    assert caught.value.what == "the element is int32[2], the queue takes >i4"
    assert caught.value.fix == "convert it before: .astype('>i4')"
    refused(declared("i4,f4"), np.zeros(2, "i4,f8"), "the queue takes [('f0', '<i4'), ('f1', '<f4')]")


@pytest.mark.parametrize(
    ("dtypes", "names", "words"),
    [
        ({}, None, "dtypes is {}"),
        ({"x": np.int64}, None, "dtypes is {'x'"),
        ({np.int64}, None, "dtypes is {"),
        (None, {"x"}, "names is {'x'}"),
        (None, {"x": 1}, "names is {'x': 1}"),
        (None, 5, "names is 5"),
    ],
)
def test_declarations_without_an_order_are_refused(dtypes: Any, names: Any, words: str) -> None:
    with pytest.raises(PlanError) as caught:
        declare(dtypes, None, names)
    assert words in caught.value.what


def test_slices_of_what_has_no_order_or_no_position_are_refused() -> None:
    for values in ({1, 2}, UserDict({5: 1}), bytearray(b"ab")):
        refused(declared(np.int64), values, "has no dimension 0", many=True)
