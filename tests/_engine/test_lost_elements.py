from __future__ import annotations

import pytest

from penstock._engine.chunk import Entry, LostElement
from penstock._engine.error_policy import LossLedger


def loss(index: int, limit: int | float | None = None, how: int = 0, site: str = "stage 'f'") -> LostElement:
    return LostElement(
        0, 0, how, site, limit, (0, index, 0), f"line {index}", ((0, index, 0),), (0, index), "f", 1, ValueError(f"bad {index}"), 0
    )


def test_each_is_kept_to_be_announced_once_unless_it_is_known_from_a_state() -> None:
    ledger = LossLedger()
    first, again = loss(1), loss(2)._replace(error=None)
    assert ledger.book(first, (), 0, 5) is None
    assert ledger.book(again, (), 0, 6) is None
    assert list(ledger.fresh) == [first]
    assert ledger.loss_counts == (Entry("skipped", "stage 'f'", 2, 0, 2),)


def test_one_more_than_a_count_is_an_error_and_what_was_before_the_run_counts() -> None:
    ledger = LossLedger((Entry("skipped", "stage 'f'", 1, 0, 1, frozenset([(3, 0)])),))
    assert ledger.book(loss(7, 3), (), 0, 8) is None
    assert ledger.book(loss(7, 3), (), 1, 8) is None  # the same element again
    error = ledger.book(loss(9, 3), (Entry("skipped", "stage 'f'", 1, 0, 1, frozenset([(5, 0)])),), 0, 10)
    assert error is not None
    assert error.what == "4 elements were skipped, the limit is 3"
    assert error.where == "Skip(limit=3) of stage 'f'; the last one: epoch 0 index 9 (line 9)"
    assert "mend the data or the function, or raise the limit" in error.fix
    assert str(error.__cause__) == "bad 9"


@pytest.mark.parametrize(("num_read", "fine"), [(5, 2), (100, 2), (199, 3), (300, 6)])
def test_a_rate_is_one_of_what_was_read_in_the_pass_the_first_hundred_counted_as_read(num_read: int, fine: int) -> None:
    ledger = LossLedger((Entry("replaced", "stage 'f'", 50, 0, 50),))
    for index in range(fine):
        assert ledger.book(loss(index, 0.02, how=1), (), 1, num_read) is None
    error = ledger.book(loss(8, 0.02, how=1), (), 1, num_read)
    if num_read == 199:
        assert error is not None
    assert error is not None
    assert error.what == f"{fine + 1} of {num_read} elements of this pass were replaced, the limit is 0.02 of them"
    assert error.where.startswith("Replace(limit=0.02) of stage 'f'")
