from __future__ import annotations

from typing import Any

import pytest

from penstock._engine.chunk import Entry, FoldState, KnownLoss, Token
from penstock._engine.resume import count, known_of, listed, loss_counts_of, lost_before
from penstock.errors import StateDamaged

TALLY = (Entry("skipped", "on_error", 3, 1, 2), Entry("replaced", "stage 'f'", 1, 0, 1))
KNOWN = (KnownLoss(0, 4, 0, "on_error"), KnownLoss(1, 0, 2, "stage 'f'"), KnownLoss(1, 1, 0, "on_error", (0, 1, 2)))


def test_what_was_skipped_comes_back_from_its_json_form() -> None:
    assert loss_counts_of([list(entry) for entry in TALLY]) == TALLY
    *_, known, replay = listed(FoldState(0, 0, (5,), 1, 2, KNOWN, (1, 7)))
    assert (known_of(known), replay) == (KNOWN, [1, 7])
    assert listed(FoldState(0, 0, (5,), 1, 2)) == [0, 0, [5], 1, 2]


def test_what_will_be_read_again_is_counted_once() -> None:
    assert lost_before(Token((0, 0), (FoldState(0, 0, (), known=KNOWN),), loss_counts=TALLY)) == (3 + 2, 1 + 1)


def test_what_is_known_may_be_from_an_older_state_that_says_no_row() -> None:
    assert [one.row for one in known_of([[0, 1, 0, "x", []], [0, 1, 2, "x", [], 3], [0, 2, 0, "x", [], -1]])] == [-1, 3, -1]


@pytest.mark.parametrize("value", [None, -1, True, 1.0, "1", 2**63, [1]])
def test_a_number_that_is_none_or_out_of_bounds_is_refused(value: Any) -> None:
    with pytest.raises(StateDamaged) as refused:
        count(value, "step")
    assert refused.value.what == f"the state's step is {value!r}, outside 0..{2**63 - 1}"
    assert refused.value.where == "load_state_dict()"
    assert "this one would skip or repeat elements" in refused.value.fix
