from __future__ import annotations

import numpy as np
import pytest

import penstock as ps
from penstock._engine.renewing import check_wanted, renewed, stalls_at
from penstock._engine.unit import TOP, Failure, Stall, Unit
from penstock._ops.block import Block, ElementFailed

SKIP = ps.Skip()


def unit_of(count: int = 5) -> Unit:
    numbers = np.arange(count)
    given = Block(0 * numbers, numbers, numbers.astype(np.uint64), rows=numbers.tolist())
    return Unit(seq=7, pass_number=2, first=10, sizes=None, num_items=count, num_rows=count, given=given, ends_pass=True)


def test_a_new_unit_is_the_old_one_with_nothing_done() -> None:
    unit = unit_of()
    unit.claimed, unit.num_done, unit.done, unit.finishing, unit.leased, unit.cost_ns = 5, 3, [(0, 3)], True, True, 99
    unit.stalled = {(0, 1): []}
    heir = renewed(unit, [])
    assert (heir.seq, heir.pass_number, heir.first, heir.num_rows, heir.ends_pass, heir.limit) == (7, 2, 10, 5, True, 5)
    assert (heir.claimed, heir.num_done, heir.done, heir.finishing, heir.leased, heir.cost_ns) == (0, 0, [], False, False, 0)
    assert (heir.single, heir.dead, unit.dead) == (True, False, True)
    assert heir.given is not unit.given
    assert heir.given is not None
    assert heir.given.rows() == [0, 1, 2, 3, 4]
    assert heir.stalled == unit.stalled
    assert heir.stalled is not unit.stalled


def test_a_failure_that_was_told_of_stays() -> None:
    unit = unit_of()
    unit.fail(Failure(3, ValueError(), "m", 0))
    heir = renewed(unit, [])
    assert heir.failure is unit.failure
    assert heir.limit == 3


def test_a_stall_counts_for_its_stage_its_row_and_what_was_left_out_then() -> None:
    unit = unit_of()
    error = ps.errors.FeedStalled("late", where="", fix="")
    unit.stalled = {
        (1, 3): [Stall(error, "m", SKIP, 0), Stall(error, "n", None, 0, without=((0, 2),), inner=(0, 4), key=(0, 3, 9))],
        (TOP, 3): [Stall(error, "replacement", None, 0, stand_in=2)],
    }
    here = stalls_at(unit, 1, 3)
    first, second = here([]), here([(0, 2)])
    assert first is not None
    assert second is not None
    assert (first.stage, first.policy, first.error, first.inner, first.stalled) == ("m", SKIP, error, None, True)
    assert (second.stage, second.policy, second.inner, second.key) == ("n", None, (0, 4), (0, 3, 9))
    assert here([(0, 2), (0, 3)]) is None
    assert stalls_at(unit, 0, 3)([]) is None
    assert stalls_at(unit, TOP, 3)([]) is None  # another element stalled in its place


def test_the_task_of_a_unit_that_was_given_up_ends() -> None:
    unit = unit_of()
    check_wanted(unit)
    check_wanted(None)
    unit.dead = True
    with pytest.raises(ElementFailed) as caught:
        check_wanted(unit)
    assert caught.value.stalled
