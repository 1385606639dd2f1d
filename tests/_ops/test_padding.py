from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock._contracts.element import structure_of
from penstock._ops.collation import fill_for, leaves_of
from penstock.errors import SpecError

NAT = np.datetime64("NaT", "s")


@given(st.integers(-(2**66), 2**66), st.sampled_from(["u1", "i2", "u4", "i8", "u8", "?"]))
def test_a_whole_number_is_held_exactly_where_the_dtype_has_it(number: int, code: str) -> None:
    dtype = np.dtype(code)
    least, most = (0, 1) if code == "?" else (int(np.iinfo(dtype).min), int(np.iinfo(dtype).max))
    fill = fill_for(number, dtype)
    assert (fill is not None) == (least <= number <= most)
    if fill is not None:
        assert (fill.dtype, fill.shape, fill.item()) == (dtype, (), number)


@pytest.mark.parametrize(
    ("value", "code", "held"),
    [
        (0.1, "f4", np.float32(0.1)),
        (np.float64(-1e30), "f4", np.float32(-1e30)),
        (float("-inf"), "f2", float("-inf")),
        (7.0, "i8", 7),
        (True, "i8", 1),
        (0, "?", False),
        (2**53, "f8", 2.0**53),
        (2**64, "f4", 2.0**64),
        (1.5, "c8", 1.5 + 0j),
        (1j, "c16", 1j),
        (np.array(5), "u1", 5),
        ("ab", "U2", "ab"),
        (b"ab", "S2", b"ab"),
        (0, "U2", ""),
        (0, "M8[s]", np.datetime64(0, "s").item()),
        (np.datetime64("2020", "Y"), "M8[D]", np.datetime64("2020-01-01").item()),
        (NAT, "M8[D]", None),
        ("text", "O", "text"),
        (-1, "O", -1),
        (np.void((1, 2.0), dtype="i4,f4"), "i4,f4", (1, 2.0)),
        (0, "i4,f4", (0, 0.0)),
    ],
)
def test_what_a_dtype_holds_is_kept(value: Any, code: str, held: Any) -> None:
    fill = fill_for(value, np.dtype(code))
    assert fill is not None
    assert (fill.dtype, fill.shape, fill.item()) == (np.dtype(code), (), held)


@pytest.mark.parametrize(
    ("value", "code"),
    [
        (0.5, "i8"),
        ("7", "i8"),
        (b"7", "i8"),
        (1e30, "i8"),
        (1e300, "f4"),
        (2**53 + 1, "f8"),
        (2**2000, "f8"),
        (1 + 2j, "f8"),
        (0.5, "?"),
        (None, "i8"),
        ({1}, "i8"),
        (np.arange(3), "i8"),
        (np.ma.masked, "f8"),
        (7, "U2"),
        ("abc", "U2"),
        ("ab", "S2"),
        (5, "M8[s]"),
        (np.datetime64("2020-01-01T12", "h"), "M8[D]"),
        (np.timedelta64(1, "Y"), "m8[s]"),
        (1, "i4,f4"),
        (np.datetime64("2020"), "i8"),
    ],
)
def test_what_a_dtype_does_not_hold_is_not_cast(value: Any, code: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert fill_for(value, np.dtype(code)) is None


TREE = structure_of({"a": 0, "b": [0, (0, 0)]})


@pytest.mark.parametrize(
    ("given", "what"),
    [
        ({"a": 1, "b": 2, "c": 3}, "padding_values names ['c'], which the elements do not have"),
        ([1, 2], "padding_values gives the element [1, 2], but it is {'a': array, 'b': [array, (array, array)]}"),
        ({"a": [1], "b": 2}, "padding_values gives ['a'] [1], but it is one array"),
        ({"a": 1, "b": [2]}, "padding_values gives ['b'] [2], but it is [array, (array, array)]"),
        ({"typo": (4,)}, "padded_shapes names ['typo'], which the elements do not have"),
        ({"b": {"c": ()}}, "padded_shapes gives ['b'] {'c': ()}, but it is [array, (array, array)]"),
        ({"a": 4}, "padded_shapes gives ['a'] 4, but it is one array"),
        ({"a": ((4,),)}, "padded_shapes gives ['a'] ((4,),), but it is one array"),
    ],
)
def test_another_structure_is_refused_with_the_field(given: Any, what: str) -> None:
    with pytest.raises(SpecError) as caught:
        leaves_of(given, TREE, what.partition(" ")[0])
    assert caught.value.what == what
    assert caught.value.where == "padded_batch()"
    assert caught.value.fix.startswith("give ")
