"""Several folds as one machine: what comes out, early ends, and saving at every item, with and without a fold that holds items."""

from __future__ import annotations

from typing import Any

import pytest
from _order.passes import FOLDS, PASSES, Passed, all_of, passes_per_end, run
from hypothesis import given
from hypothesis import strategies as st

from penstock._order.chain import BufferedElement, Chain
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


@given(st.lists(FOLDS, max_size=4), PASSES)
def test_whenever_something_comes_out_no_batch_is_half_full(folds: list[Fold], passes: Passed) -> None:
    # So the state of a batch is always [] where a token is taken, and a resume never needs elements.
    if any(isinstance(fold, BatchFold) for fold in folds[:-1]) or not folds or not isinstance(folds[-1], BatchFold):
        return
    chain = Chain(folds)
    for one in passes:
        for item in one:
            if chain.push(item):
                assert chain.snapshot()[-1] == []
        chain.end()
        last_pass_open = any(isinstance(fold, RepeatFold) for fold in folds)
        assert last_pass_open or chain.snapshot()[-1] == []


def test_a_snapshot_does_not_change_when_the_chain_goes_on() -> None:
    chain = Chain([BatchFold(3, drop_remainder=False)])
    chain.push("a")
    state = chain.snapshot()
    chain.push("b")
    assert state == [["a"]]
    again = Chain([BatchFold(3, drop_remainder=False)], state)
    again.push("c")
    assert state == [["a"]]
    assert again.push("d") == [["a", "c", "d"]]


# -- ending a pass before its end -----------------------------------------------------------------------------------------------------


def test_a_pass_stays_open_while_a_take_wants_more() -> None:
    chain = Chain([TakeFold(2)])
    chain.push(1)
    assert chain.close_early() == ((), "open")
    assert chain.snapshot() == [1]


def test_a_pass_ends_as_soon_as_a_take_has_all_it_wants() -> None:
    chain = Chain([TakeFold(2)])
    chain.push(1)
    chain.push(2)
    assert chain.close_early() == ([], "end")
    assert chain.snapshot() == [0]


def test_a_take_of_nothing_ends_the_pass_before_its_first_item() -> None:
    assert Chain([TakeFold(0)]).close_early() == ([], "end")


def test_a_repeat_above_a_take_cuts_the_pass_and_asks_for_the_next() -> None:
    chain = Chain([TakeFold(2), RepeatFold(2)])
    chain.push(1)
    chain.push(2)
    assert chain.close_early() == ([], "cut")
    chain.push(3)
    chain.push(4)
    assert chain.close_early() == ([], "end")


def test_an_early_end_brings_out_the_batch_above_the_take() -> None:
    chain = Chain([TakeFold(3), BatchFold(2, drop_remainder=False)])
    assert [list(chain.push(item)) for item in (1, 2, 3)] == [[], [[1, 2]], []]
    assert chain.close_early() == ([[3]], "end")
    dropping = Chain([TakeFold(3), BatchFold(2, drop_remainder=True)])
    for item in (1, 2, 3):
        dropping.push(item)
    assert dropping.close_early() == ([], "end")


def test_an_early_end_drops_what_stands_below_the_take_and_starts_it_anew() -> None:
    chain = Chain([SkipFold(1), BatchFold(2, drop_remainder=False), TakeFold(1), RepeatFold(None)])
    assert [list(chain.push(item)) for item in (1, 2, 3)] == [[], [], [[2, 3]]]
    chain.push(4)
    assert chain.close_early() == ([], "cut")
    assert chain.snapshot() == [0, [], 0, 1]


def test_a_repeat_below_a_take_starts_anew_too() -> None:
    chain = Chain([RepeatFold(None), TakeFold(3)])
    for item in (1, 2):
        chain.push(item)
    assert chain.end() == ([], False)
    chain.push(1)
    assert chain.snapshot() == [1, 3]
    assert chain.close_early() == ([], "end")
    assert chain.snapshot() == [0, 0]


@pytest.mark.parametrize("fold", [SkipFold(0), ShardFold(2, 0), EnumerateFold(0), BatchFold(2, drop_remainder=True), RepeatFold(1)])
def test_only_a_take_ends_a_pass_early(fold: Fold) -> None:
    chain = Chain([fold])
    for item in range(10):
        chain.push(item)
    assert chain.close_early() == ((), "open")


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


def test_a_full_take_waits_for_nothing_when_no_repeat_stands_above_it() -> None:
    chain = Chain([RepeatFold(100), TakeFold(1)])
    chain.push("pass 0")
    assert chain.close_early() == ([], "end")


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


def plain(outs: Any) -> Any:
    return [[held.item for held in out] if isinstance(out, list) else out for out in outs]


def test_items_are_numbered_where_they_enter_and_carry_the_mark_of_their_owner() -> None:
    chain = Chain(buckets(below=(SkipFold(1),)))
    for item in (1, 2, 30):
        chain.push(item, ("before", item))
    assert chain.num_entered == 2
    assert list(chain.held()) == [BufferedElement(0, ("before", 2), 2), BufferedElement(1, ("before", 30), 30)]


def test_a_chain_without_a_holding_fold_holds_nothing() -> None:
    chain = Chain([TakeFold(2)])
    assert chain.holding is None
    assert chain.held() == ()
    assert not chain.recalling
    assert chain.settled


def test_what_leaves_the_holding_fold_is_unwrapped_before_the_folds_above_see_it() -> None:
    chain = Chain(buckets(EnumerateFold(7)), unwrap=lambda out: [held.item for held in out])
    assert chain.push(1) == []
    assert chain.push(2) == [(7, [1, 2])]
    chain.push(30)
    assert chain.end() == ([(8, [30])], True)


def test_a_batch_above_that_is_half_full_is_not_settled() -> None:
    chain = Chain(buckets(BatchFold(2, drop_remainder=False)))
    assert chain.settled
    chain.push(1)
    assert chain.settled
    chain.push(2)
    assert not chain.settled


def test_a_snapshot_holds_numbers_counted_from_the_oldest_held_item_and_the_states_below_it() -> None:
    chain = Chain(buckets(RepeatFold(3), below=(SkipFold(2),)))
    for item in (9, 1, 2, 3, 40):
        chain.push(item)
    assert [held.number for held in chain.held()] == [2]
    assert chain.snapshot() == [2, [[], [2]], 0]
    assert chain.snapshot([1], first=2) == [1, [[], [0]], 0]


@given(st.lists(st.integers(0, 20), max_size=20), st.data())
def test_recalled_items_lie_where_they_were_and_nothing_comes_out_for_them(items: list[int], data: st.DataObject) -> None:
    stop = data.draw(st.integers(0, len(items)))
    chain = Chain(buckets(EnumerateFold(0)), unwrap=lambda out: [held.item for held in out])
    for item in items[:stop]:
        chain.push(item)
    held = chain.held()
    first = min((one.number for one in held), default=stop)
    state, recall = chain.snapshot(first=first), stop - first
    again = Chain(buckets(EnumerateFold(0)), state, recall=recall, unwrap=lambda out: [held.item for held in out])
    assert again.recalling == (recall > 0)
    for item in items[first:stop]:
        assert again.push(item) == []
    assert not again.recalling
    assert [one.item for one in again.held()] == [one.item for one in held]
    assert [list(again.push(item)) for item in items[stop:]] == [list(chain.push(item)) for item in items[stop:]]
    assert again.end() == chain.end()


def test_no_take_above_ends_a_pass_while_items_are_recalled_but_one_below_does() -> None:
    chain = Chain(buckets(TakeFold(0)), [[[0], []], 0], recall=1)
    assert chain.close_early() == ((), "open")
    chain.push(1)
    assert chain.close_early() == ([], "end")


def test_held_items_that_do_not_come_again_are_an_error_and_not_an_end() -> None:
    chain = Chain(buckets(), [[[0], [2]]], recall=3)
    chain.push(1)
    with pytest.raises(StateMismatch) as caught:
        chain.end()
    assert caught.value.what == "2 elements that were held when the state was saved did not come again before the end of their pass"
    assert caught.value.where == "load_state_dict()"
    assert caught.value.fix == "resume with the data and the functions that the state was saved with"


def test_a_repeat_below_holds_the_end_of_a_pass_back_while_items_are_recalled() -> None:
    chain = Chain(buckets(below=(RepeatFold(2),)), [0, [[0, 1], []]], recall=2)
    chain.push(1)
    assert chain.end() == ([], False)
    chain.push(2)
    assert not chain.recalling
    assert [held.item for held in chain.held()] == [1, 2]


def test_what_waits_is_what_is_held_and_what_stands_in_an_unfinished_batch() -> None:
    chain = Chain(buckets(BatchFold(3, drop_remainder=False)))
    for item in (1, 2, 30):
        chain.push(item)
    alone, batch = chain.waiting()
    assert alone.item == 30
    assert plain([batch]) == [[1, 2]]


@given(
    st.lists(
        st.one_of(st.just(RepeatFold(None)), st.builds(TakeFold, st.integers(0, 9)), st.builds(SkipFold, st.integers(0, 3))), max_size=3
    ),
    st.integers(0, 7),
    st.integers(1, 5),
)
def test_what_is_let_through_is_what_comes_out_as_it_was_pushed(folds: list[Fold], before: int, count: int) -> None:
    ahead, plain = Chain(folds), Chain(folds)
    for item in range(before):
        ahead.push(item)
        plain.push(item)
    if not ahead.lets_through(count):
        return
    for _ in range(count):
        ahead.count_one()
    assert [out for item in range(count) for out in plain.push(item)] == list(range(count))
    assert plain.close_early() == ((), "open")
    assert ahead.snapshot() == plain.snapshot()
    assert ahead.counts == any(isinstance(fold, TakeFold) for fold in folds)


def test_items_that_are_counted_or_held_or_that_end_a_pass_are_not_let_through() -> None:
    assert Chain([RepeatFold(2), TakeFold(4)]).lets_through(3)
    for folds in (
        [TakeFold(3)],
        [SkipFold(1)],
        [ShardFold(2, 0)],
        [EnumerateFold(0)],
        [BatchFold(3, False)],
        [BucketFold((), (3,), False, len)],
    ):
        assert not Chain(folds).lets_through(3)
