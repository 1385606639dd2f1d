from __future__ import annotations

import collections
import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from penstock._contracts.element import flatten
from penstock.errors import SpecError
from penstock.formats.cache_stores import pack, unpack

DTYPES = ["?", "|u1", "<i2", ">i4", "<u8", "<f2", ">f8", "<c8", "<c16", "<g", "<M8[ns]", ">m8[s]", "<U5", ">U3", "|S4"]


def same(left: Any, right: Any) -> bool:
    """Compare type by type, bit by bit."""
    if type(left) is not type(right):
        return False
    if isinstance(left, dict):
        return list(left) == list(right) and all(same(left[key], right[key]) for key in left)
    if isinstance(left, (tuple, list)):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, (np.ndarray, np.generic)):
        if left.dtype == object:
            return left.shape == right.shape and same(left.ravel().tolist(), right.ravel().tolist())
        return (left.shape, left.dtype.str, left.tobytes()) == (right.shape, right.dtype.str, right.tobytes())
    if isinstance(left, float):
        return struct.pack("<d", left) == struct.pack("<d", right)
    if isinstance(left, complex):
        return same(left.real, right.real) and same(left.imag, right.imag)
    return bool(left == right)


leaves = st.one_of(
    st.booleans(),
    st.integers(),
    st.floats(),
    st.complex_numbers(),
    st.text(st.characters()),
    st.binary(),
    arrays.arrays(
        st.one_of(arrays.integer_dtypes(), arrays.floating_dtypes(), arrays.boolean_dtypes(), arrays.datetime64_dtypes()),
        arrays.array_shapes(min_dims=0, min_side=0, max_dims=4, max_side=4),
    ),
    st.integers(-100, 100).map(np.int16),
)
keys = st.one_of(st.text(), st.integers())
trees = st.recursive(
    leaves,
    lambda below: st.one_of(st.lists(below, max_size=3), st.lists(below, max_size=3).map(tuple), st.dictionaries(keys, below, max_size=3)),
    max_leaves=8,
)


@given(trees)
def test_what_is_written_is_read_back(tree: Any) -> None:
    assert same(unpack(pack(tree)), tree)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 0, 4), (2, 3)])
def test_every_dtype_and_shape_keeps_its_byte_order(dtype: str, shape: tuple[int, ...]) -> None:
    array = np.arange(int(np.prod(shape))).reshape(shape).astype(dtype)
    found = unpack(pack({"a": array, "b": 1}))["a"]
    assert same(found, array)
    assert found.dtype.str == np.dtype(dtype).str


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_numpy_scalar_stays_one(dtype: str) -> None:
    scalar = np.zeros(1, dtype)[0]
    assert same(unpack(pack([scalar, scalar])), [scalar, scalar])


def test_a_batch_of_texts_and_bytes_is_kept() -> None:
    batch = np.empty((2, 2), object)
    batch[:] = [["a", b"\xff"], ["", "\udcff"]]
    found = unpack(pack({"path": batch, "label": np.arange(2)}))
    assert same(found["path"], batch)
    assert not found["path"].flags.writeable


def test_arrays_in_any_memory_order_are_read_back_in_c_order() -> None:
    array = np.asfortranarray(np.arange(12).reshape(3, 4))[::2, ::-1]
    found = unpack(pack(array))
    assert found.flags.c_contiguous
    assert np.array_equal(found, array)


@pytest.mark.parametrize("dtype", DTYPES)
def test_large_arrays_are_kept_like_small_ones(dtype: str) -> None:
    array = np.arange(12_000).reshape(30, 400).astype(dtype)
    for part in (array, array[::2], array.T, array[:, ::-1]):
        assert same(unpack(pack([part, 1]))[0], part.copy())


def test_arrays_are_aligned_read_only_and_of_no_memory_but_the_record(tmp_path: Any) -> None:
    mapped = np.memmap(tmp_path / "m", np.float32, "w+", shape=(5,))
    element = {"a": np.arange(7, dtype=np.uint8), "b": np.arange(3.0), "c": mapped, "d": [np.arange(2)]}
    record = pack(element)
    found = unpack(record)
    for leaf in flatten(found):
        assert type(leaf) is np.ndarray
        assert leaf.ctypes.data % 16 == 0
        assert leaf.base is record
        with pytest.raises(ValueError, match="read-only"):
            leaf[...] = 0
        with pytest.raises(ValueError, match="WRITEABLE"):
            leaf.flags.writeable = True


def test_two_readings_share_no_container() -> None:
    record = pack({"a": [1, {"b": (2,)}]})
    one, other = unpack(record), unpack(record)
    one["a"].append(3)
    one["a"][1]["b"] = 0
    assert other == {"a": [1, {"b": (2,)}]} == unpack(record)


def test_the_record_does_not_follow_the_element() -> None:
    array = np.arange(3)
    record = pack(array)
    array[:] = 9
    assert unpack(record).tolist() == [0, 1, 2]


Point = collections.namedtuple("Point", "x y")

REFUSED: list[tuple[str, Any, str, str, str]] = [
    ("None", {"a": None}, "a cache cannot keep a NoneType", "leaf ['a']", "give None a number of its own"),
    ("an object", object(), "a cache cannot keep a object", "leaf the element itself", "return arrays, numbers, str or bytes"),
    ("a set", [1, {2}], "a cache cannot keep a set", "leaf [1]", "return arrays"),
    ("a named tuple", {"p": Point(1, 2)}, "a Point, a container of a type of its own", "leaf ['p']", "a plain dict, tuple or list"),
    ("a dict of a kind", collections.OrderedDict(a=1), "a OrderedDict, a container", "leaf the element itself", "a plain dict"),
    ("a key", {1.5: 2}, "a dict with the key 1.5 of type float", "leaf the element itself", "use str or int keys"),
    ("a structured array", np.zeros(2, [("a", "i4")]), "an array of dtype [('a', '<i4')]", "itself", "an array of its own"),
    ("raw bytes", np.zeros(2, "V3"), "an array of dtype |V3", "itself", "an array of its own"),
    ("objects in an array", np.array([1, "a"], object), "an object array with a int in it", "itself", "keep only str and bytes"),
    ("a masked array", np.ma.zeros(2), "a cache cannot keep a MaskedArray", "itself", "return arrays"),
    ("a memory view", memoryview(b"ab"), "a cache cannot keep a memoryview", "itself", "str or bytes"),
]


@pytest.mark.parametrize(("element", "what", "where", "fix"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED])
def test_what_cannot_be_kept_is_refused_with_its_place(element: Any, what: str, where: str, fix: str) -> None:
    with pytest.raises(SpecError) as caught:
        pack(element)
    assert what in caught.value.what
    assert where in caught.value.where
    assert fix in caught.value.fix
