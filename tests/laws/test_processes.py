"""The law "every executor delivers what the inline one does", with worker processes, over random pipelines of all operators."""

from __future__ import annotations

import os
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from laws.checks import LAWS, deliver, same, whole_run

from penstock.feed import feed as feeds

pytestmark = [pytest.mark.usefixtures("fork_server"), pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="worker processes")]

WAYS = st.sampled_from([{"executor": "processes", "num_workers": 1}, {"executor": "processes", "num_workers": 2}])
LAW = settings(deadline=None, suppress_health_check=list(HealthCheck))
PLANS = LAWS["executors"].plans


def check(plan: Any, way: dict[str, Any], num_cpus: int = 2) -> None:
    """Hold a run with worker processes against the one in line."""
    whole = whole_run(plan)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(feeds, "available_cpus", lambda: num_cpus)
        same(plan, way, deliver(plan, way), whole, "items and error")


@settings(LAW, max_examples=5)
@given(plan=PLANS, way=WAYS)
def test_worker_processes_deliver_what_the_loops_own_thread_does(plan: Any, way: dict[str, Any]) -> None:
    check(plan, way)


@settings(LAW, max_examples=5)
@given(plan=PLANS)
def test_on_many_cpus_the_default_delivers_the_same(plan: Any) -> None:
    check(plan, {}, num_cpus=5)


@pytest.mark.slow
@pytest.mark.timeout(600)
@settings(LAW, max_examples=60)
@given(plan=PLANS, way=WAYS)
def test_worker_processes_deliver_what_the_loops_own_thread_does_for_many_plans(plan: Any, way: dict[str, Any]) -> None:
    check(plan, way)


@pytest.mark.slow
@pytest.mark.timeout(600)
@settings(LAW, max_examples=60)
@given(plan=PLANS)
def test_on_many_cpus_the_default_delivers_the_same_for_many_plans(plan: Any) -> None:
    check(plan, {}, num_cpus=5)
