"""Several folds as one machine: what comes out, early ends, and saving at every item, with and without a fold that holds items."""

from __future__ import annotations

import pytest
from _order.passes import FOLDS, PASSES, Passed, all_of, passes_per_end, run
from hypothesis import example, given
from hypothesis import strategies as st

from penstock._order.chain import Chain
from penstock._order.folds import BatchFold, EnumerateFold, Fold, RepeatFold, ShardFold, SkipFold, TakeFold
from penstock._order.holding import BucketFold
from penstock.errors import StateMismatch


def rebatchable(folds: list[Fold]) -> bool:
    """Leave out numbers and batches below a batch of batches: plain JSON turns their tuples into lists."""
    return sum(isinstance(fold, (BatchFold, EnumerateFold)) for fold in folds) <= 1


@given(st.lists(FOLDS, max_size=5), PASSES)
def test_a_chain_of_folds_does_what_one_after_the_other_does(folds: list[Fold], passes: Passed) -> None:
    complete = len(passes) - len(passes) % passes_per_end(folds)
    if not complete:
        return
    passes = passes[:complete]
    assert run(folds, passes) == [*all_of(folds, passes), []]


@given(st.lists(FOLDS, max_size=5), PASSES)
def test_a_chain_can_be_saved_as_json_and_resumed_at_every_item(folds: list[Fold], passes: Passed) -> None:
    if rebatchable(folds):
        assert run(folds, passes, reload=True) == run(folds, passes)


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


@example([SkipFold(1), TakeFold(1, False), RepeatFold(2)], [[1, 2, 3]] * 2)
@example([ShardFold(2, 0), TakeFold(1, False), RepeatFold(2)], [[1, 2, 3]] * 2)
@example([EnumerateFold(5), TakeFold(1, False), RepeatFold(2)], [[1, 2, 3]] * 2)
@given(st.lists(FOLDS, max_size=4), PASSES)
def test_asking_after_every_item_changes_nothing_but_the_reading(folds: list[Fold], passes: Passed) -> None:
    repeated = [any(isinstance(above, RepeatFold) for above in folds[place + 1 :]) for place in range(len(folds))]
    folds = [TakeFold(fold.count, again) if isinstance(fold, TakeFold) else fold for fold, again in zip(folds, repeated, strict=True)]
    passes = passes[: len(passes) - len(passes) % passes_per_end(folds)]
    chain, out, here = Chain(folds), [[]], 0
    while here < len(passes):
        verdict, items = "open", iter(passes[here])
        while verdict == "open":
            outs, verdict = chain.close_early()
            out[-1].extend(outs)
            item = next(items, None)
            if item is None or verdict != "open":
                break
            out[-1].extend(chain.push(item))
        if verdict in ("open", "rest"):
            outs, goes_on = chain.end()
            out[-1].extend(outs)
            verdict = "end" if goes_on else "cut"
        here += 1
        if verdict == "end":
            out.append([])
            here += -here % passes_per_end(folds)  # a take above a repeat that nothing repeats needs none of its later passes
    assert out == [*all_of(folds, passes), []]


# -- a fold that holds items ----------------------------------------------------------------------------------------------------------


def buckets(*above: Fold, below: tuple[Fold, ...] = ()) -> list[Fold]:
    """Pairs of the numbers below 10, and of those from 10 on."""
    return [*below, BucketFold((10,), (2, 2), drop_remainder=False, weight=lambda held: held.item), *above]


def test_held_items_that_do_not_come_again_are_an_error_and_not_an_end() -> None:
    chain = Chain(buckets(), [[[0], [2]]], recall=3)
    chain.push(1)
    with pytest.raises(StateMismatch) as caught:
        chain.end()
    assert caught.value.what == "2 elements that were held when the state was saved did not come again before the end of their pass"
    assert caught.value.where == "load_state_dict()"
    assert caught.value.fix == "resume with the data and the functions that the state was saved with"
