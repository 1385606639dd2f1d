from __future__ import annotations

import tomllib

import numpy as np
import pytest

import penstock as ps
from house import CEILINGS, ROOT, trips
from penstock._plan.base import walk
from penstock.kernels import backend
from trip import count, form_of


@pytest.mark.skipif(backend() != "c", reason="the ceilings are those of the kernels in C")
@pytest.mark.slow
def test_no_trip_is_longer_than_its_ceiling_and_each_has_one_length() -> None:
    found = trips()
    assert found == trips()
    assert all(found.values())
    ceilings = tomllib.loads((ROOT / CEILINGS).read_text("utf-8"))["trips"]
    assert found.keys() == ceilings.keys()
    assert {name: figure for name, figure in found.items() if figure > ceilings[name]["ceiling"]} == {}


def test_functions_outside_penstock_do_not_count_and_an_error_that_is_not_expected_is_raised() -> None:
    trip = count(lambda: [backend() for _ in range(2)])
    assert trip.codes == {backend.__code__}
    assert (trip.files, trip.changes, trip.walks) == ({"kernels/library.py"}, 1, 0)
    assert count(lambda: 1 // 0, expected=ZeroDivisionError).files == set()
    with pytest.raises(ZeroDivisionError):
        count(lambda: 1 // 0)
    with pytest.raises(AssertionError, match="ZeroDivisionError'> was not raised"):
        count(lambda: 1, expected=ZeroDivisionError)


def test_a_walk_counts_once_for_all_nodes_of_a_plan() -> None:
    plan = ps.from_arrays(np.arange(4)).batch(2)._root
    assert count(lambda: [walk(plan) for _ in range(2)]).walks == 2


def test_states_have_one_form_whatever_their_numbers_are() -> None:
    state = {"epoch": 1, "place": {"done": [1], "folded": False}, "everywhere": None}
    assert form_of({**state, "epoch": 2}) == form_of(state)
    for other in ({"place": None}, {"place": {"done": [1], "folded": True}}, {"everywhere": {"element": 1}}, {"more": 1}):
        assert form_of({**state, **other}) != form_of(state)
