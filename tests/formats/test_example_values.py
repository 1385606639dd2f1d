"""What values become in a record, and which would be changed on the way and are refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as ps
from penstock.errors import SpecError
from penstock.formats.features import values_of
from penstock.kernels.wire import BYTES


def encoded(value: Any) -> list[Any]:
    return list(ps.decode_example(ps.encode_example({"v": value}))["v"])


@given(st.integers(1, 3).flatmap(lambda width: st.lists(st.lists(st.binary(max_size=3), min_size=width, max_size=width), min_size=1)))
def test_nested_texts_keep_every_byte(rows: list[list[bytes]]) -> None:
    flat = [text for row in rows for text in row]
    assert values_of(rows, "here") == (BYTES, (len(rows), len(rows[0])), flat)
    assert encoded(rows) == encoded(tuple(map(tuple, rows))) == encoded([rows]) == flat


MASKED: Any = np.ma.masked_array([1, 2], [0, 1])


@pytest.mark.parametrize(
    ("value", "match"),
    [
        ([1, 2**63], "9223372036854775808 does not fit int64"),
        ([-1, 2**63], "9223372036854775808 does not fit int64"),
        ([[1], [2**63]], "9223372036854775808 does not fit int64"),
        ([np.arange(2), np.array([1, 2**63], np.uint64)], "ndarray have no place"),
        ([2**64], "18446744073709551616 does not fit int64"),
        (2**64, "18446744073709551616 does not fit int64"),
        (-(2**63) - 1, "does not fit int64"),
        (10**400, "an int of 1329 bits does not fit int64"),
        ([1, "a"], "int, str have no place in one list"),
        ([True, "a"], "have no place"),
        ([[1.5, "a"]], "have no place"),
        ([1.5, np.array("a")], "have no place"),
        (np.array([1, "a"], object), "have no place"),
        ([1, None], "NoneType, int have no place"),
        (["a", None], "NoneType, str have no place"),
        (np.array([1, 2], object), "have no place"),
        (MASKED, "masked array"),
        ([MASKED, MASKED], "masked array"),
        ([1.0, np.ma.masked], "masked array"),
        ([["a"], ["b", "c"]], "ragged"),
        ([["a"], "b"], "ragged"),
    ],
)
def test_a_value_that_would_be_changed_is_refused(value: Any, match: str) -> None:
    with pytest.raises(SpecError, match=match) as caught:
        values_of(value, "here")
    assert caught.value.where == "here"
