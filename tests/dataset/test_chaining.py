from __future__ import annotations

import pytest
from dataset.small import generated, numbers

from penstock.dataset.chaining import branches
from penstock.errors import PlanError


def test_branches_are_the_plans_of_datasets() -> None:
    one, other = numbers(3), numbers(4)
    assert branches((one, other), "zip") == (one._root, other._root)


def test_a_branch_without_positions_is_refused() -> None:
    with pytest.raises(PlanError) as refusal:
        branches((numbers(3), generated()), "zip")
    assert "zip needs positions that are known before reading" in refusal.value.what
    assert refusal.value.where == "zip()"
    assert "put it below" in refusal.value.fix
