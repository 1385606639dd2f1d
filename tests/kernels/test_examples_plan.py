from __future__ import annotations

import pytest

from penstock.errors import SpecError
from penstock.kernels.examples import COUNT, FILL, FIXED, SKIP, FeaturePlan, hash_of, make_plan
from penstock.kernels.wire import BYTES, FLOAT, INT64


def test_the_hash_is_fnv_1a() -> None:
    assert hash_of(b"") == 0xCBF29CE484222325
    assert hash_of(b"foobar") == 0x85944171F73967E8  # of the authors' test vectors


def test_every_name_is_found_from_its_hash_on() -> None:
    names = [f"feature {number}".encode() for number in range(100)]
    plan = make_plan([FeaturePlan(name, INT64, FIXED, 1, None) for name in names])
    table = plan.table.tolist()
    assert len(table) >= 200
    assert len(table) & (len(table) - 1) == 0
    for number, name in enumerate(names):
        spot = hash_of(name) & (len(table) - 1)
        while table[spot] != number:
            assert table[spot] >= 0, "a free place ends the search"
            spot = (spot + 1) & (len(table) - 1)


def test_the_second_call_fills_what_varies_and_leaves_the_rest_alone() -> None:
    plan = make_plan([FeaturePlan(b"a", FLOAT, FIXED, 2, bytes(8)), FeaturePlan(b"bc", BYTES, COUNT, 1, b"")])
    assert plan.first[:, 3].tolist() == [FIXED, COUNT]
    assert plan.second[:, 3].tolist() == [SKIP, FILL]
    assert plan.has_variable
    assert [plan.texts[at : at + length].tobytes() for at, length in plan.first[:, :2].tolist()] == [b"a", b"bc"]
    assert not make_plan([]).has_variable


@pytest.mark.parametrize(
    "feature",
    [
        FeaturePlan(b"a", 4, FIXED, 1, None),
        FeaturePlan(b"a", FLOAT, FILL, 1, None),
        FeaturePlan(b"a", FLOAT, COUNT, 0, None),
        FeaturePlan(b"a", FLOAT, FIXED, -1, None),
        FeaturePlan(b"a", FLOAT, FIXED, 2, bytes(4)),
    ],
)
def test_what_the_c_could_not_trust_is_refused(feature: FeaturePlan) -> None:
    with pytest.raises(SpecError, match="no such feature"):
        make_plan([feature])


def test_two_features_of_one_name_are_refused() -> None:
    with pytest.raises(SpecError, match="one name"):
        make_plan([FeaturePlan(b"a", FLOAT, FIXED, 1, None)] * 2)
