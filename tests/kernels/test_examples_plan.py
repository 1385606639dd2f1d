from __future__ import annotations

from penstock.kernels.examples import COUNT, FILL, FIXED, SKIP, FeaturePlan, hash_of, make_plan
from penstock.kernels.wire import BYTES, FLOAT


def test_the_hash_is_fnv_1a() -> None:
    assert hash_of(b"") == 0xCBF29CE484222325
    assert hash_of(b"foobar") == 0x85944171F73967E8  # of the authors' test vectors


def test_the_second_call_fills_what_varies_and_leaves_the_rest_alone() -> None:
    plan = make_plan([FeaturePlan(b"a", FLOAT, FIXED, 2, bytes(8)), FeaturePlan(b"bc", BYTES, COUNT, 1, b"")])
    assert plan.first[:, 3].tolist() == [FIXED, COUNT]
    assert plan.second[:, 3].tolist() == [SKIP, FILL]
    assert plan.has_variable
    assert [plan.texts[at : at + length].tobytes() for at, length in plan.first[:, :2].tolist()] == [b"a", b"bc"]
    assert not make_plan([]).has_variable
