"""The laws of DESIGN section 7 over random pipelines."""

from __future__ import annotations

import json
import warnings
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from laws.plans import Plan, options, plain, plans

LAW = settings(deadline=None, max_examples=2500, derandomize=False, suppress_health_check=[HealthCheck.too_slow])


def delivered(plan: Plan, **chosen: Any) -> list[Any]:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="this dataset gave no elements")
        with plan.dataset.feed(**chosen) as feed:
            return [plain(item) for item in feed]


@LAW
@given(plans(), options())
def test_every_executor_delivers_what_plain_python_says(plan: Plan, chosen: dict[str, Any]) -> None:
    assert delivered(plan, **chosen) == plan.everything()


@LAW
@given(plans(), options(), options(), st.data())
def test_a_run_saved_anywhere_and_resumed_is_the_run_that_never_stopped(
    plan: Plan, before: dict[str, Any], after: dict[str, Any], data: st.DataObject
) -> None:
    whole = plan.everything()
    stop = data.draw(st.integers(0, len(whole)))
    with plan.dataset.feed(**before) as feed:
        head = [plain(next(feed)) for _ in range(stop)]
        state = json.loads(json.dumps(feed.state_dict()))
    assert head == whole[:stop]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="this dataset gave no elements")
        with plan.dataset.feed(**after) as feed:
            feed.load_state_dict(state)
            assert feed.step == stop
            middle = [plain(item) for _, item in zip(range(3), feed, strict=False)]
            again = feed.state_dict()
            feed.load_state_dict(again)
            tail = [plain(item) for item in feed]
    assert middle + tail == whole[stop:]


@LAW
@given(plans())
def test_element_i_is_what_the_feed_delivers_at_place_i(plan: Plan) -> None:
    if not plan.indexable:
        return
    whole = plan.everything()
    assert len(plan.dataset) == len(whole)
    assert [plain(plan.dataset[place]) for place in range(len(whole))] == whole
