from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from dataset.small import numbers

from penstock.dataset.operators import check_padding, check_padding_value
from penstock.errors import PlanError


@pytest.mark.parametrize(
    ("shapes", "values"),
    [
        (None, None),
        ((4, None, -1, np.int64(3)), -1),
        ([4], "text"),
        ({"a": (), "b": None, "c": [(4,), {"d": (None,)}]}, {"a": None, "b": (1, [np.float32(0.5)])}),
        ((None, (4,)), np.array(5)),
    ],
)
def test_shapes_and_single_values_in_any_tree_pass(shapes: Any, values: Any) -> None:
    check_padding("padded_batch", shapes, values)


@pytest.mark.parametrize(
    ("shapes", "what"),
    [
        (5, "padded_shapes=5 is no shape"),
        ("5", "padded_shapes='5' is no shape"),
        ({"a": 5}, "padded_shapes['a']=5 is no shape"),
        (((4,), 5), "padded_shapes[1]=5 is no shape"),
        ((3.7,), "padded_shapes=(3.7,) has the size 3.7, which is no whole number >= 0"),
        ({"a": ("5",)}, "padded_shapes['a']=('5',) has the size '5', which is no whole number >= 0"),
        ((True,), "has the size True"),
        ((-2,), "has the size -2"),
    ],
)
def test_what_is_no_shape_is_refused_with_its_field(shapes: Any, what: str) -> None:
    with pytest.raises(PlanError) as caught:
        numbers(3).padded_batch(2, padded_shapes=shapes)
    assert what in caught.value.what
    assert caught.value.where == "padded_batch()"
    assert "one size per dimension" in caught.value.fix
    with pytest.raises(PlanError) as caught:
        numbers(3).bucket_by_length(len, [4], [1, 1], padded_shapes=shapes)
    assert caught.value.where == "bucket_by_length()"


def test_what_is_no_single_value_is_refused_with_its_field() -> None:
    for value, what in (
        (np.arange(3), "padding_values=array([0, 1, 2]) is no single value"),
        ({"a": (1, np.ma.masked)}, "padding_values['a'][1]=masked is no single value"),
    ):
        with pytest.raises(PlanError) as caught:
            numbers(3).padded_batch(2, padding_values=value)
        assert (caught.value.what, caught.value.where) == (what, "padded_batch()")
        assert "one number" in caught.value.fix
    for given, told in (([9], "=[9]"), ((), "=()"), ({"a": [9]}, "['a']=[9]"), (np.zeros(1), "=array([0.])")):
        with pytest.raises(PlanError) as caught:
            numbers(3).pack_sequences(8, padding_value=given)
        assert (caught.value.what, caught.value.where) == (f"padding_value{told} is no single value", "pack_sequences()")
    check_padding_value("pack_sequences", -1.5)
