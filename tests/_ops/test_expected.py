from __future__ import annotations

import asyncio
from collections import OrderedDict, namedtuple
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock._contracts.element import ArraySpec, map_leaves, spec_of
from penstock._ops.map import Expected
from penstock.errors import SpecError

Point = namedtuple("Point", ["x", "y"])
FLOATS = ArraySpec((2, 3), np.dtype(np.float32))
IMAGE = ArraySpec((None, None, 3), np.dtype(np.uint8))
NUMBER = ArraySpec((), np.dtype(np.int64))
TEXT = ArraySpec((), np.dtype(object))


def zeros(*shape: int, dtype: Any = np.float32) -> Any:
    return np.zeros(shape, dtype)


class Tensor:
    """What offers `__array__`, as a tensor of another library does."""

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return zeros(2, 3)


FITTING: list[tuple[str, Any, Any]] = [
    ("an array", FLOATS, zeros(2, 3)),
    ("what offers an array", FLOATS, Tensor()),
    ("a loose array", IMAGE, zeros(5, 7, 3, dtype=np.uint8)),
    ("a loose array of nothing", IMAGE, zeros(0, 7, 3, dtype=np.uint8)),
    ("a number", NUMBER, 7),
    ("a text", TEXT, "word"),
    ("a loose array of texts", ArraySpec((None,), np.dtype(object)), np.array(["a", "bb"])),
    ("a dict in another order", {"a": FLOATS, "b": NUMBER}, {"b": 3, "a": zeros(2, 3)}),
    ("a dict of another type", {"a": FLOATS}, OrderedDict(a=zeros(2, 3))),
    ("a named tuple", Point(FLOATS, NUMBER), Point(zeros(2, 3), 3)),
    ("a tree", {"a": [FLOATS, {"b": (NUMBER,)}]}, {"a": [zeros(2, 3), {"b": (1,)}]}),
    ("a list of numbers", ArraySpec((2, 3), np.dtype(np.float64)), [[1.5, 2, 3], [4, 5, 6]]),
    ("another byte order", ArraySpec((1,), np.dtype(">f4")), np.zeros(1, ">f4")),
]


@pytest.mark.parametrize(("tree", "value"), [row[1:] for row in FITTING], ids=[row[0] for row in FITTING])
def test_what_is_as_declared_passes(tree: Any, value: Any) -> None:
    expected = Expected(tree, "stage")
    expected.check(value)
    assert expected.around(lambda element: element)(value) is value


DIFFERING: list[tuple[str, Any, Any, str]] = [
    ("dtype", FLOATS, zeros(2, 3, dtype=np.float64), "the result is declared as float32[2, 3] and came as float64[2, 3]"),
    ("shape", FLOATS, zeros(3, 2), "the result is declared as float32[2, 3] and came as float32[3, 2]"),
    ("dimensions", FLOATS, zeros(2), "the result is declared as float32[2, 3] and came as float32[2]"),
    ("loose dtype", IMAGE, zeros(4, 4, 3), "the result is declared as uint8[None, None, 3] and came as float32[4, 4, 3]"),
    ("loose size", IMAGE, zeros(4, 4, 4, dtype=np.uint8), "declared as uint8[None, None, 3] and came as uint8[4, 4, 4]"),
    ("a loose leaf as a number", IMAGE, 3, "declared as uint8[None, None, 3] and came as int64[]"),
    ("a number too large", NUMBER, 2**63, "the result is declared as int64[] and came as 9223372036854775808, which does not fit int64"),
    ("a forgotten return", NUMBER, None, "the result is declared as int64[] and came as NoneType"),
    ("a list for an array", FLOATS, [1.5, 2.5], "declared as float32[2, 3] and came as float64[2]"),
    ("a list of numbers for a list", [NUMBER, NUMBER], [3, 4], "declared as [int64[], int64[]] and came as int64[2]"),
    ("a long list of texts", FLOATS, ["word"] * 1000, "declared as float32[2, 3] and came as a list"),
    ("many words", {"x" * 400: NUMBER}, 3, "the result is declared as {'" + "x" * 298 + "... and came as int64[]"),
    ("a field", {"a": FLOATS, "b": NUMBER}, {"a": zeros(2, 3), "b": 1.5}, "['b'] is declared as int64[] and came as float64[]"),
    ("a missing field", {"a": FLOATS, "b": NUMBER}, {"b": 3}, "declared as {'a': float32[2, 3], 'b': int64[]} and came as {'b': int64[]}"),
    (
        "a loose field",
        {"a": NUMBER, "i": IMAGE},
        {"a": 3, "i": zeros(1)},
        "['i'] is declared as uint8[None, None, 3] and came as float32[1]",
    ),
    ("a list for a tuple", (NUMBER,), [3], "the result is declared as (int64[],) and came as int64[1]"),
    ("a tuple for a named one", Point(NUMBER, NUMBER), (3, 4), "declared as Point(x=int64[], y=int64[]) and came as (int64[], int64[])"),
    ("deep inside", {"a": [FLOATS, {"b": (NUMBER,)}]}, {"a": [zeros(2, 3), {"b": (b"",)}]}, "['a'][1]['b'][0] is declared as int64[]"),
]


@pytest.mark.parametrize(("tree", "value", "words"), [row[1:] for row in DIFFERING], ids=[row[0] for row in DIFFERING])
def test_what_is_not_as_declared_is_refused_with_the_field_and_both(tree: Any, value: Any, words: str) -> None:
    expected = Expected(tree, "decode")
    for call in (
        lambda: expected.check(value),
        lambda: expected.around(lambda element: value)(None),
        lambda: asyncio.run(expected.around_async(later)(value)),
    ):
        with pytest.raises(SpecError) as caught:
            call()
        assert words in caught.value.what
        assert caught.value.where == "stage 'decode'"
        assert "declare what is returned" in caught.value.fix


async def later(value: Any) -> Any:
    await asyncio.sleep(0)
    return value


DTYPES = st.sampled_from([np.float32, np.float64, np.uint8, np.int64, np.bool_])
ARRAYS = st.builds(np.zeros, st.lists(st.integers(0, 3), max_size=3), DTYPES)
LEAVES = ARRAYS | st.integers() | st.floats() | st.text(max_size=2) | st.booleans()
TREES = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.tuples(inner, inner)
        | st.builds(Point, inner, inner)
        | st.dictionaries(st.sampled_from("abc"), inner, max_size=3)
    ),
    max_leaves=6,
)


def ordered(tree: Any) -> Any:
    """Return the tree with the keys of each dict in one order: equal for two trees that differ in that only."""
    if isinstance(tree, dict):
        return {key: ordered(tree[key]) for key in sorted(tree)}
    if isinstance(tree, tuple):
        return (type(tree), *map(ordered, tree))
    return [ordered(child) for child in tree] if isinstance(tree, list) else tree


@given(TREES, TREES)
def test_a_result_fits_exactly_what_has_its_spec(one: Any, other: Any) -> None:
    declared, found = map_leaves(spec_of, one), map_leaves(spec_of, other)
    too_large = any(type(leaf) is int and not -(2**63) <= leaf < 2**63 for leaf in leaves(other))
    assert Expected(declared, "stage").fits(other) == (ordered(declared) == ordered(found) and not too_large)


def leaves(tree: Any) -> list[Any]:
    if isinstance(tree, dict):
        tree = list(tree.values())
    return [leaf for child in tree for leaf in leaves(child)] if isinstance(tree, (list, tuple)) else [tree]
