from __future__ import annotations

from typing import Any

import pytest

import penstock as ps
from penstock._plan.saved import reweighted
from penstock.errors import StateDamaged, StateMismatch


def numbers(count: int = 50) -> ps.Dataset:
    return ps.from_source(list(range(count)))


def mixed(*weights: float, stop: Any = "first_exhausted") -> ps.Dataset:
    return numbers().mix(*[numbers() for _ in weights[1:]], weights=weights, stop=stop)


def test_many_weights_are_shown_in_part() -> None:
    weights = [1.25] * 34
    with pytest.raises(StateMismatch, match=r"were \(2, 1\.25, .*\.\.\.\) and are now") as refusal:
        reweighted(mixed(1.5, *weights).shuffle()._root, [[[0, [2.0, *weights]]]], 5, strict=True)
    assert len(refusal.value.what) < 350


@pytest.mark.parametrize(
    "saved",
    [
        None,
        7,
        [7],
        [[]],
        [[[1, [1.0, 2.0]]]],
        [[[0, []]]],
        [[[0, [0.0, 0.0]]]],
        [[[0, [1.0, -1.0]]]],
        [[[0, ["x", 1]]]],
        [[[0, [1.0, 2.0]], [0, [1.0, 2.0]]]],
        [[[0, [1.0, 2.0]], [4, [1.0]]]],
        [[[0, [1.0, 2.0]], [True, [1.0, 2.0]]]],
        [[[0, [1.0, 2.0]], [2**63, [1.0, 2.0]]]],
    ],
)
def test_what_is_no_history_is_refused(saved: Any) -> None:
    with pytest.raises(StateDamaged) as refusal:
        reweighted(mixed(1, 2)._root, saved, 5, strict=True)
    assert "not the weights of 1 mixes with the positions they hold from" in refusal.value.what
    assert refusal.value.where == "load_state_dict()"
    assert "older checkpoint" in refusal.value.fix


def test_a_state_of_other_mixes_is_left_alone_when_plans_are_not_compared() -> None:
    plan = mixed(1, 2)._root
    assert reweighted(plan, None, 5, strict=False) is plan
    assert reweighted(plan, [[[0, [1.0, 2.0, 3.0]]]], 5, strict=False) is plan
    assert reweighted(plan, [[[0, [1.0, 2.0]]], [[0, [1.0, 2.0]]]], 5, strict=False) is plan
