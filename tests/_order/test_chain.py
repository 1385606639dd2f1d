"""Several folds as one machine: early ends of a pass, and held items that do not come again; tests/laws has what comes out."""

from __future__ import annotations

import pytest

from penstock._order.chain import Chain
from penstock._order.folds import BatchFold, RepeatFold, SkipFold, TakeFold
from penstock._order.holding import BucketFold
from penstock.errors import StateMismatch

# -- ending a pass before its end -----------------------------------------------------------------------------------------------------


def test_a_full_take_waits_for_the_passes_of_a_repeat_below_it_when_one_above_asks_for_more() -> None:
    # The passes below have numbers: the second pass of the upper repeat begins with pass 2, whatever the take left unread.
    chain = Chain([RepeatFold(2), TakeFold(1, repeated=True), RepeatFold(2)])
    chain.push("pass 0")
    assert chain.close_early() == ((), "rest")
    assert chain.end() == ([], False)
    assert chain.close_early() == ([], "cut")
    assert chain.push("pass 2") == ["pass 2"]


def test_a_full_take_does_not_wait_for_a_repeat_that_an_endless_one_below_it_keeps_from_its_next_pass() -> None:
    chain = Chain([RepeatFold(None), RepeatFold(2), TakeFold(1, repeated=True), RepeatFold(2)])
    chain.push("pass 0")
    assert chain.close_early() == ([], "cut")
    above = Chain([RepeatFold(2), RepeatFold(None), TakeFold(1, repeated=True), RepeatFold(2)])
    above.push("pass 0")
    assert above.close_early() == ((), "rest")


def test_a_pass_of_which_no_more_is_wanted_ends_as_below_a_full_take() -> None:
    chain = Chain([SkipFold(1), BatchFold(2, drop_remainder=False), RepeatFold(2)])
    for item in (1, 2):
        chain.push(item)
    assert chain.close_early() == ((), "open")
    assert chain.close_early(wanted=False) == ((), "rest")
    assert chain.end() == ([[2]], False)
    assert chain.close_early(wanted=False) == ([], "end")
    assert chain.snapshot() == [0, [], 0]


# -- a fold that holds items ----------------------------------------------------------------------------------------------------------


def test_held_items_that_do_not_come_again_are_an_error_and_not_an_end() -> None:
    chain = Chain([BucketFold((10,), (2, 2), drop_remainder=False, weight=lambda held: held.item)], [[[0], [2]]], recall=3)
    chain.push(1)
    with pytest.raises(StateMismatch) as caught:
        chain.end()
    assert caught.value.what == "2 elements that were held when the state was saved did not come again before the end of their pass"
    assert caught.value.where == "load_state_dict()"
    assert caught.value.fix == "resume with the data and the functions that the state was saved with"
