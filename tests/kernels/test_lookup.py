"""Where records lie."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

from penstock.errors import SpecError
from penstock.kernels.spans import Places


def made(counts: list[int], kinds: tuple[Any, Any] = (np.int64, np.uint32)) -> Places:
    """Return the places of records, of which number i is i * 3 bytes long, 1,000 * i in its file."""
    starts = np.concatenate(([0], np.cumsum(counts))).astype(np.int64)
    numbers = np.arange(starts[-1])
    return Places(starts, (numbers * 1000).astype(kinds[0]), (numbers * 3).astype(kinds[1]))


@pytest.mark.parametrize("kinds", [(np.int64, np.uint32), (np.int64, np.int64), (np.uint32, np.uint32)])
def test_records_are_found_in_any_order_and_more_than_once(kinds: tuple[Any, Any]) -> None:
    rows = np.array([5, 0, 2, 2, 4, 1, 3])
    found = made([2, 0, 3, 1, 0], kinds).find(rows)
    assert found is not None
    files, offsets, lengths = found
    assert files.tolist() == [3, 0, 2, 2, 2, 0, 2]
    assert offsets.tolist() == (rows * 1000).tolist()
    assert lengths.tolist() == (rows * 3).tolist()


def test_numbers_above_2_to_the_31_stay_as_they_are() -> None:
    large = np.array([2**32 - 1, 2**31], np.uint32)
    found = Places(np.array([0, 2]), np.array([2**62, 2**40]), large).find(np.array([1, 0]))
    assert found is not None
    assert found.tolist() == [[0, 0], [2**40, 2**62], [2**31, 2**32 - 1]]


@pytest.mark.parametrize("row", [-1, 6, 2**63 - 1, -(2**63)])
def test_a_record_that_is_not_there_is_not_found(row: int) -> None:
    assert made([2, 0, 3, 1]).find(np.array([3, row])) is None


def test_of_no_records_none_are_found() -> None:
    for counts in ([], [0], [0, 0]):
        places = made(counts)
        found = places.find(np.empty(0, np.int64))
        assert found is not None
        assert found.shape == (3, 0)
        assert places.find(np.array([0])) is None


def test_other_arrays_are_refused() -> None:
    numbers = np.arange(2)
    with pytest.raises(SpecError, match="rows is 1-d float64"):
        made([2]).find(np.zeros(1))  # type: ignore[arg-type]
    with pytest.raises(SpecError, match=r"lengths has shape \(1,\), not \(2,\)"):
        Places(np.array([0, 2]), numbers, numbers[:1])
    with pytest.raises(SpecError, match="offsets is 1-d int32"):
        Places(np.array([0, 2]), numbers.astype(np.int32), numbers)


def test_places_are_pickled_and_arrays_that_are_no_block_are_copied() -> None:
    numbers = np.arange(8)
    places = Places(np.array([0, 4]), numbers[::2], numbers[1::2].astype(np.uint32))
    again = pickle.loads(pickle.dumps(places))
    for one in (places, again):
        found = one.find(np.array([3, 0]))
        assert found is not None
        assert found.tolist() == [[0, 0], [6, 0], [7, 1]]
