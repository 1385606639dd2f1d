from __future__ import annotations

import tomllib

import pytest

from house import CEILINGS, ROOT, trips
from penstock.kernels import backend
from trip import count


@pytest.mark.skipif(backend() != "c", reason="the ceilings are those of the kernels in C")
def test_no_trip_is_longer_than_its_ceiling_and_each_has_one_length() -> None:
    found = trips()
    assert found == trips()
    assert all(found.values())
    ceilings = tomllib.loads((ROOT / CEILINGS).read_text("utf-8"))["measures"]
    assert {name: figure for name, figure in found.items() if figure > ceilings[name]["ceiling"]} == {}


def test_functions_outside_penstock_do_not_count_and_an_error_that_is_not_expected_is_raised() -> None:
    trip = count(lambda: [backend() for _ in range(2)])
    assert trip.functions == {("kernels/library.py", "backend")}
    assert (trip.files, trip.changes) == ({"kernels/library.py"}, 1)
    assert count(lambda: 1 // 0, expected=ZeroDivisionError).files == set()
    with pytest.raises(ZeroDivisionError):
        count(lambda: 1 // 0)
    with pytest.raises(AssertionError, match="ZeroDivisionError'> was not raised"):
        count(lambda: 1, expected=ZeroDivisionError)
