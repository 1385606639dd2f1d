"""Completion order: whatever is finished first goes first, and nothing is lost, nothing comes twice, however often it is saved."""

from __future__ import annotations

import json
import warnings
from collections import Counter
from typing import Any

from _engine.stepping import Stepper
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from laws.plans import Plan, options, plain, plans

import penstock as ps

LAW = settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
COMPOSED = ("pack(", "resample(", ",True")
"""Parts of plans where what is delivered depends on which elements stand together."""


def leaves(items: Any) -> list[Any]:
    return [leaf for part in items for leaf in leaves(part)] if isinstance(items, list) else [items]


def accepted(plan: Plan) -> bool:
    """Tell whether the plan runs in completion order; what is refused is refused in words."""
    try:
        plan.dataset.feed(ordered=False)
    except ps.errors.PlanError as refusal:
        assert "ordered=False" in refusal.what, refusal
        return False
    return True


@LAW
@given(plans(), st.integers(0, 2**32), st.integers(1, 5))
def test_units_that_finish_in_any_order_deliver_every_element_once(plan: Plan, seed: int, num_workers: int) -> None:
    assume(accepted(plan) and not any(word in plan.words for word in COMPOSED))
    run = Stepper(plan.dataset, seed, num_workers=num_workers, ordered=False).run()
    run.close()
    assert run.error is None
    assert Counter(leaves(plain_all(run.items))) == Counter(leaves(plan.everything()))


def plain_all(items: Any) -> list[Any]:
    return [plain(item) for item in items]


ORDERS = st.sampled_from([{"ordered": False}, {"ordered": False}, {"ordered": True}])
MOVES = ("holds elements in a shuffle buffer", "cannot be moved to completion order")


@LAW
@given(plans(), st.lists(st.tuples(options(), ORDERS), min_size=3, max_size=3), st.data())
def test_saved_anywhere_twice_and_resumed_in_any_order_it_loses_nothing(plan: Plan, ways: list[Any], data: st.DataObject) -> None:
    assume(accepted(plan) and not any(word in plan.words for word in COMPOSED))
    whole = plan.everything()
    out: list[Any] = []
    state = None
    for place, (chosen, order) in enumerate(ways):
        most = data.draw(st.integers(0, len(whole))) if place < 2 else len(whole) + 1
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="this dataset gave no elements")
            with plan.dataset.feed(**chosen, **order) as feed:
                if state is not None:
                    try:
                        feed.load_state_dict(state)
                    except ps.errors.StateMismatch as refusal:
                        assert any(words in refusal.what for words in MOVES)
                        return
                out += plain_all(item for _, item in zip(range(most), feed, strict=False))
                state = json.loads(json.dumps(feed.state_dict()))
    assert Counter(leaves(out)) == Counter(leaves(whole))
