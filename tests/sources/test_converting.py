"""Numbers of declared types out of JSON values and CSV fields."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import PlanError
from penstock.formats.values import DoesNotFit, number_in, numbers_into
from penstock.sources.text import declared_dtype, number_of


@given(st.floats(allow_nan=False), st.sampled_from([np.float32, np.float64]))
def test_floats_are_read_as_numpy_rounds_them(value: float, kind: Any) -> None:
    dtype = np.dtype(kind)
    with np.errstate(over="ignore"):
        expected = kind(value)
    if np.isinf(expected) and not np.isinf(value):
        for call in (lambda: number_in(repr(value), dtype), lambda: number_of(value, dtype)):
            with pytest.raises(ValueError, match="too large"):
                call()
        return
    for found in (number_in(repr(value), dtype), number_of(value, dtype)):
        assert found.dtype == dtype
        assert found == expected


@given(st.integers(-(2**70), 2**70), st.sampled_from([np.uint8, np.int16, np.int64, np.uint64]))
def test_integers_fit_or_are_refused(value: int, kind: Any) -> None:
    dtype, limits = np.dtype(kind), np.iinfo(kind)
    if limits.min <= value <= limits.max:
        assert number_in(str(value), dtype) == number_of(value, dtype) == value
        return
    for call in (lambda: number_in(str(value), dtype), lambda: number_of(value, dtype)):
        with pytest.raises(ValueError, match=r"fit|too large|another kind"):
            call()


@pytest.mark.parametrize(("text", "value"), [("true", True), ("False", False), (" 1 ", True), ("0", False)])
def test_booleans_have_words(text: str, value: bool) -> None:
    assert number_in(text, np.dtype(bool)) == np.bool_(value)
    with pytest.raises(ValueError, match="neither true nor false"):
        number_in(text + "x", np.dtype(bool))


def test_lists_become_arrays_also_empty_ones() -> None:
    assert number_of([], np.dtype(np.int64)).shape == (0,)
    assert number_of([[1, 2]], np.dtype(np.float32)).tolist() == [[1.0, 2.0]]


@pytest.mark.parametrize(("value", "kind"), [(70_000, np.float16), ([1, -70_000], np.float16), ([[1], [2**63]], np.float16)])
def test_an_integer_is_not_made_infinite(value: Any, kind: Any) -> None:
    with pytest.raises(ValueError, match="too large"):
        number_of(value, np.dtype(kind))
    assert number_of(65_504, np.dtype(np.float16)) == 65_504


@pytest.mark.parametrize("value", [[1, 2**64 - 1], [[2**63], [0]], [2**64 - 1], (5, 2**63 + 1)])
def test_integers_that_numpy_has_no_common_dtype_for_are_exact(value: Any) -> None:
    found = number_of(value, np.dtype(np.uint64))
    assert found.dtype == np.uint64
    assert found.tolist() == (list(value) if isinstance(value, tuple) else value)
    assert number_of(value, np.dtype(np.float64)).tolist() == np.array(value, np.float64).tolist()
    with pytest.raises(DoesNotFit, match="only -9223372036854775808 to 9223372036854775807 fit"):
        number_of(value, np.dtype(np.int64))


@pytest.mark.parametrize("value", [10**29, [1, 10**29], [[-1, -(10**29)]], [2**63, -1]])
@pytest.mark.parametrize("kind", [np.uint64, np.int64, np.int8])
def test_an_integer_that_is_too_large_is_told_what_fits(value: Any, kind: Any) -> None:
    with pytest.raises(DoesNotFit, match=f"only {np.iinfo(kind).min} to {np.iinfo(kind).max} fit"):
        number_of(value, np.dtype(kind))


def test_an_integer_of_any_size_is_a_float_as_far_as_these_reach() -> None:
    assert number_of(10**29, np.dtype(np.float32)) == np.float32(1e29)
    assert number_of([10**29, 0.5], np.dtype(np.float64)).tolist() == [1e29, 0.5]
    assert number_of(16777217, np.dtype(np.float32)) == 16777216
    for value, kind in ((10**29, np.float16), (10**400, np.float64), ([10**400, 1], np.float32)):
        with pytest.raises(DoesNotFit, match="too large"):
            number_of(value, np.dtype(kind))


@pytest.mark.parametrize(
    "value", [[[1], [2, 3]], [10**29, None], [10**29, 0.5], [10**29, "1"], {"a": 10**29}, [10**29, True], [[10**29], 1]]
)
def test_what_stands_beside_an_integer_beyond_64_bits_is_looked_at_too(value: Any) -> None:
    with pytest.raises(DoesNotFit, match="ragged lists, null, text or numbers of another kind"):
        number_of(value, np.dtype(np.int64))


@pytest.mark.parametrize("value", [[True, 2], [1, False], [[1, 2], [3, True]], [0.5, True], [True, True], True])
@pytest.mark.parametrize("kind", [np.int64, np.uint8, np.float32])
def test_a_bool_among_numbers_is_none(value: Any, kind: Any) -> None:
    with pytest.raises(ValueError, match="numbers of another kind"):
        number_of(value, np.dtype(kind))


TEXTS = ["1", "-2", "0.5", " 7 ", "1e3", "1e39", "nan", "inf", "300", "1_0", "٣", "x", "", "true", "9" * 30]


@given(st.lists(st.sampled_from(TEXTS), max_size=5), st.sampled_from([np.float32, np.float64, np.uint8, np.int64, bool]))
def test_a_column_holds_what_its_texts_are_one_by_one_or_is_left_to_that(texts: list[str], kind: Any) -> None:
    out = np.zeros(len(texts), kind)
    if numbers_into(texts, out):
        np.testing.assert_array_equal(out, np.array([number_in(text, out.dtype) for text in texts], kind))
    elif not {"inf"} & set(texts):
        with pytest.raises(ValueError, match=r"."):
            [number_in(text, out.dtype) for text in texts]


def test_a_dtype_is_bool_integer_or_float() -> None:
    assert declared_dtype("f2", "x", "read_csv") == np.float16
    with pytest.raises(PlanError, match="'S4' is declared for 'x'"):
        declared_dtype("S4", "x", "read_csv")
