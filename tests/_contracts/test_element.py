from __future__ import annotations

import enum
import sys
import time
from collections import ChainMap, OrderedDict, UserDict, defaultdict, namedtuple
from collections.abc import Mapping
from types import MappingProxyType, ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from programs import output_of

from penstock._contracts.element import (
    LEAF,
    ArraySpec,
    bytes_of,
    entries_of,
    flatten,
    is_masked,
    items_of,
    kind_of,
    leaf_paths,
    map_leaves,
    spec_of,
    structure_of,
    unflatten,
)

Point = namedtuple("Point", ["x", "y"])

TREES = st.recursive(
    st.integers() | st.text(max_size=3) | st.binary(max_size=3) | st.floats(allow_nan=False),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.tuples(inner, inner)
        | st.builds(Point, inner, inner)
        | st.dictionaries(st.sampled_from(["a", "b", "it's"]), inner, max_size=3)
    ),
    max_leaves=8,
)


def same(one: Any, other: Any) -> bool:
    """Compare two trees with the types of their nodes and the order of their keys; an array is like the list of its numbers."""
    if isinstance(one, np.ndarray):
        return isinstance(other, list) and one.tolist() == other
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


@given(TREES)
def test_a_tree_taken_apart_and_put_together_is_the_same_tree(tree: Any) -> None:
    assert same(unflatten(structure_of(tree), iter(flatten(tree))), tree)


@given(TREES)
def test_every_leaf_has_a_path_that_leads_to_it(tree: Any) -> None:
    paths = leaf_paths(structure_of(tree))
    leaves = flatten(tree)
    assert len(paths) == len(leaves) == len(set(paths))
    for path, leaf in zip(paths, leaves, strict=True):
        found = eval("tree" + path, {"tree": tree})
        assert found is leaf or (isinstance(leaf, np.ndarray) and leaf.tolist() == found)


class Entries(Mapping[Any, Any]):
    """A Mapping whose iterator gives something else, as that of a TensorDict gives its rows."""

    def __init__(self, entries: dict[Any, Any]) -> None:
        self.entries = entries

    def __getitem__(self, key: Any) -> Any:
        return self.entries[key]

    def __iter__(self) -> Any:
        return iter([0, 1])

    def __len__(self) -> int:
        return 2

    def keys(self) -> Any:
        return self.entries.keys()

    def items(self) -> Any:
        return self.entries.items()


MAPPINGS = [dict, OrderedDict, UserDict, MappingProxyType, ChainMap, Entries]


@pytest.mark.parametrize("kind", MAPPINGS)
@given(TREES)
def test_every_mapping_is_the_dict_of_its_entries(kind: Any, tree: Any) -> None:
    plain = {"one": tree, "inner": {"two": [tree, "text"]}}
    made = kind({"one": tree, "inner": kind({"two": [tree, "text"]})})
    assert structure_of(made) == structure_of(plain)
    assert kind_of(made) is dict
    assert entries_of(made) == made if kind is dict else list(entries_of(made) or {}) == ["one", "inner"]
    assert repr(flatten(made)) == repr(flatten(plain))
    assert repr(items_of(made)) == repr(items_of(plain))
    assert bytes_of(made) == bytes_of(plain)
    assert repr(map_leaves(lambda leaf: leaf, made)) == repr(map_leaves(lambda leaf: leaf, plain))


class Row(list[Any]):
    """A list of another class."""


class Pair(tuple[Any, ...]):
    """A tuple of another class, whose constructor takes one argument."""

    __slots__ = ()


def test_classes_made_of_list_and_tuple_have_their_structure_and_all_their_leaves() -> None:
    tree = Row([1, {"a": Row([2, "3"]), "b": Pair((4, Pair((5,))))}])
    plain = [1, {"a": [2, "3"], "b": (4, (5,))}]
    assert structure_of(tree) == structure_of(plain)
    assert len(leaf_paths(structure_of(tree))) == len(flatten(tree)) == 5
    assert same(map_leaves(lambda leaf: leaf * 10, tree), map_leaves(lambda leaf: leaf * 10, plain))
    assert structure_of(Row([1, 2])) is structure_of([1, 2]) is LEAF
    assert flatten(Row([1, Row([2])]))[0] == [1, [2]]
    assert structure_of(time.gmtime(0)) == structure_of((0,) * 9)
    kinds = [kind_of(one) for one in (tree, plain, Pair(), Point(1, 2), OrderedDict(), defaultdict(int), {}, 1, np.zeros(1))]
    assert kinds == [list, list, tuple, Point, dict, dict, dict, None, None]


class Tensor:
    """What PyTorch, JAX and TensorFlow have in common."""

    def __init__(self, array: Any) -> None:
        self.array = array

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return self.array


class Colour(enum.IntEnum):
    RED = 1


@pytest.mark.parametrize(
    ("leaf", "shape", "dtype"),
    [
        (True, (), "bool"),
        (7, (), "int64"),
        (7.0, (), "float64"),
        (7j, (), "complex128"),
        (np.float16(1), (), "float16"),
        (np.datetime64("2026-01-01", "ms"), (), "datetime64[ms]"),
        (np.zeros((2, 0, 3), ">i4"), (2, 0, 3), ">i4"),
        (np.array(5, "u1"), (), "u1"),
        (np.zeros(2, [("x", "i4"), ("y", "f8")]), (2,), [("x", "i4"), ("y", "f8")]),
        ("text", (), object),
        (b"bytes", (), object),
        (np.str_("text"), (), object),
        (np.bytes_(b"bytes"), (), object),
        (np.array(["a", "bcd"]), (2,), object),
        (np.array([b"a", b"bcd"]), (2,), object),
        (np.array([None, 1]), (2,), object),
        (Tensor(np.zeros((2, 3), "f4")), (2, 3), "f4"),
        (Tensor(np.array(["a", "bcd"])), (2,), object),
        (None, (), object),
        (Colour.RED, (), object),
    ],
)
def test_the_spec_of_a_leaf_is_what_it_becomes_in_a_batch(leaf: Any, shape: tuple[int, ...], dtype: Any) -> None:
    assert spec_of(leaf) == ArraySpec(shape, np.dtype(dtype))


def test_a_spec_reads_like_a_shape() -> None:
    assert repr(ArraySpec((224, 3), np.dtype("f4"))) == "float32[224, 3]"
    assert repr(ArraySpec((), np.dtype("i8"))) == "int64[]"
    assert repr(ArraySpec((2,), np.dtype(">i4"))) == ">i4[2]"
    assert "('x', '<i4')" in repr(ArraySpec((), np.dtype([("x", "<i4")])))


def test_masked_arrays_are_told_from_others_without_importing_their_module() -> None:
    code = "import sys\nfrom penstock._contracts.element import is_masked\nprint(is_masked(3), 'numpy.ma' in sys.modules)"
    assert output_of("-c", code) == "False False\n"
    assert is_masked(np.ma.masked_array([1, 2]))
    assert is_masked(np.ma.masked)
    assert not is_masked([1])


def test_no_array_is_masked_while_another_thread_imports_numpy_ma(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "numpy.ma", ModuleType("numpy.ma"))  # as it is until the import has ended
    assert not is_masked(np.zeros(2))
