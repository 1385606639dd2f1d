from __future__ import annotations

import json
import math
from collections import OrderedDict, namedtuple
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.jobs.keeping import as_json, from_json

Point = namedtuple("Point", ["x"])

ARRAYS = st.builds(
    lambda values, dtype: np.array(values).astype(dtype),
    st.lists(st.integers(0, 100), max_size=4) | st.integers(0, 100),
    st.sampled_from(["<f4", ">f8", "u1", "?", "<i8", "<c8"]),
)
SCALARS = st.builds(np.float32, st.floats(width=32)) | st.builds(np.int8, st.integers(-128, 127)) | st.builds(np.bool_, st.booleans())
RESULTS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3) | st.binary(max_size=3) | ARRAYS | SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3) | st.tuples(inner, inner) | st.dictionaries(st.text(max_size=2) | st.integers(), inner, max_size=3)
    ),
    max_leaves=6,
)


def same(one: Any, other: Any) -> bool:
    """Compare with types, order of keys, signs of zeros and NaN."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, (np.ndarray, np.generic)):
        return one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()
    if isinstance(one, float):
        return (math.isnan(one) and math.isnan(other)) or (one == other and math.copysign(1, one) == math.copysign(1, other))
    return bool(one == other)


@given(RESULTS)
def test_a_result_comes_back_as_it_was_to_the_type(result: Any) -> None:
    form = as_json(result)
    assert form is not None
    again = from_json(json.loads(json.dumps(form[0])))
    assert same(again, result)


def test_an_array_that_comes_back_can_be_written_to() -> None:
    form = as_json(np.zeros(3))
    assert form is not None
    assert from_json(form[0]).flags.writeable


@pytest.mark.parametrize(
    "result",
    [object(), {1, 2}, Point(1), OrderedDict(a=1), [1, {"a": {3}}], np.array([None]), np.array(["a"]), {(1, Point(2)): 3}, len, 1j],
    ids=["object", "set", "tuple with names", "ordered dict", "nested set", "objects", "strings", "key", "function", "complex"],
)
def test_what_would_come_back_as_something_else_has_no_form(result: Any) -> None:
    assert as_json(result) is None


def test_what_holds_itself_has_no_form() -> None:
    endless: list[Any] = []
    endless.append(endless)
    assert as_json(endless) is None


@pytest.mark.parametrize(
    "form",
    [
        {},
        {"tuple": [], "dict": []},
        {"set": []},
        {"tuple": 3},
        {"dict": [[1]]},
        {"bytes": "?"},
        {"array": ["<f4", [2], "AAAA"]},
        {"scalar": []},
    ],
    ids=str,
)
def test_what_is_no_form_is_an_error(form: Any) -> None:
    with pytest.raises((ValueError, TypeError)):
        from_json(form)
