"""The laws of DESIGN section 7 over random pipelines of all operators; `make soak` runs them over thousands."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from laws.checks import LAWS, Law
from programs import output_of

pytestmark = pytest.mark.timeout(300)

LAW = settings(
    deadline=None,
    max_examples=2 * settings.default.max_examples,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
)
SOAK = Path(__file__).with_name("soak.py")


@pytest.mark.parametrize("law", LAWS.values(), ids=LAWS.keys())
@settings(LAW)
@given(data=st.data())
def test_of_random_plans_holds(law: Law, data: st.DataObject) -> None:
    law.check(data.draw(law.plans), data.draw)


@pytest.mark.slow
@pytest.mark.parametrize("law", LAWS.values(), ids=LAWS.keys())
@settings(LAW, max_examples=150)
@given(data=st.data())
def test_of_more_random_plans_holds(law: Law, data: st.DataObject) -> None:
    law.check(data.draw(law.plans), data.draw)


def test_the_laws_hold_under_python_o() -> None:
    assert output_of("-O", SOAK, "--seed", 1, 8, timeout_s=250) == ""
