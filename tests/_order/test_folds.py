from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock._order.chain import Chain
from penstock._order.folds import Batching, Fold, Numbering, Passes, Sharding, Skipping, Taking

Passed = list[list[Any]]

COUNTS = st.integers(0, 6)
SHARDS = st.integers(1, 4).flatmap(lambda number: st.builds(Sharding, st.just(number), st.integers(0, number - 1)))
FOLDS = st.one_of(
    st.builds(Taking, COUNTS, st.booleans()),
    st.builds(Skipping, COUNTS),
    SHARDS,
    st.builds(Numbering, st.integers(0, 5)),
    st.builds(Batching, st.integers(1, 4), st.booleans()),
    st.builds(Passes, st.integers(1, 3)),
)
PASSES = st.lists(st.lists(st.integers(0, 99), max_size=9), min_size=1, max_size=5)


def reference(fold: Fold, passes: Passed) -> Passed:
    """Say in plain Python what a fold makes of whole passes."""
    match fold:
        case Taking(count, _):
            return [one[:count] for one in passes]
        case Skipping(count):
            return [one[count:] for one in passes]
        case Sharding(number, index):
            return [one[index::number] for one in passes]
        case Numbering(start):
            return [list(enumerate(one, start)) for one in passes]
        case Batching(size, drop):
            cut = [[one[at : at + size] for at in range(0, len(one), size)] for one in passes]
            return [[part for part in parts if len(part) == size or not drop] for parts in cut]
        case Passes(count):
            size = count or len(passes) + 1
            return [[item for one in passes[at : at + size] for item in one] for at in range(0, len(passes), size)]
    raise AssertionError(fold)


def all_of(folds: list[Fold], passes: Passed) -> Passed:
    for fold in folds:
        passes = reference(fold, passes)
    return passes


def run(folds: list[Fold], passes: Passed, *, reload: bool = False) -> Passed:
    """Feed passes to a chain; the last list is that of a pass which did not end. With `reload`, a new chain goes on after every step."""
    chain, out = Chain(folds), [[]]
    for one in passes:
        for item in [*one, None]:
            if reload:
                chain = Chain(folds, json.loads(json.dumps(chain.snapshot())))
            if item is not None:
                out[-1].extend(chain.push(item))
                continue
            some, goes_on = chain.end()
            out[-1].extend(some)
            if goes_on:
                out.append([])
    return out


def ended(expected: Passed, passes: Passed, folds: list[Fold]) -> Passed:
    """Mark with an empty list at the end that the last pass of the top is complete, as `run` does."""
    number = len(passes)
    for fold in folds:
        if isinstance(fold, Passes):
            if number % (fold.count or number + 1):
                return expected
            number //= fold.count or 1
    return [*expected, []]


@given(FOLDS, PASSES)
def test_each_fold_does_what_plain_python_says(fold: Fold, passes: Passed) -> None:
    assert run([fold], passes) == ended(reference(fold, passes), passes, [fold])


def rebatchable(folds: list[Fold]) -> bool:
    """Leave out numbers and batches below a batch of batches: plain JSON turns their tuples into lists."""
    return sum(isinstance(fold, (Batching, Numbering)) for fold in folds) <= 1


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


def passes_per_end(folds: list[Fold]) -> int:
    out = 1
    for fold in folds:
        if isinstance(fold, Passes):
            out *= fold.count or 1
    return out


@given(st.lists(FOLDS, max_size=4), PASSES)
def test_whenever_something_comes_out_no_batch_is_half_full(folds: list[Fold], passes: Passed) -> None:
    # So the state of a batch is always [] where a token is taken, and a resume never needs elements.
    if any(isinstance(fold, Batching) for fold in folds[:-1]) or not folds or not isinstance(folds[-1], Batching):
        return
    chain = Chain(folds)
    for one in passes:
        for item in one:
            if chain.push(item):
                assert chain.snapshot()[-1] == []
        chain.end()
        last_pass_open = any(isinstance(fold, Passes) for fold in folds)
        assert last_pass_open or chain.snapshot()[-1] == []


def test_a_snapshot_does_not_change_when_the_chain_goes_on() -> None:
    chain = Chain([Batching(3, drop_remainder=False)])
    chain.push("a")
    state = chain.snapshot()
    chain.push("b")
    assert state == [["a"]]
    again = Chain([Batching(3, drop_remainder=False)], state)
    again.push("c")
    assert state == [["a"]]
    assert again.push("d") == [["a", "c", "d"]]


def test_an_endless_repeat_never_lets_an_end_through() -> None:
    chain = Chain([Passes(None)])
    assert [chain.end() for _ in range(5)] == [([], False)] * 5
    assert chain.snapshot() == [5]


def test_the_pass_number_counts_up_and_starts_again_above_a_nested_repeat() -> None:
    chain = Chain([Passes(2), Passes(2)])
    states = []
    for _ in range(4):
        states.append(chain.snapshot())
        chain.end()
    assert states == [[0, 0], [1, 0], [0, 1], [1, 1]]
    assert chain.snapshot() == [0, 0]


# -- ending a pass before its end -----------------------------------------------------------------------------------------------------


def test_a_pass_stays_open_while_a_take_wants_more() -> None:
    chain = Chain([Taking(2)])
    chain.push(1)
    assert chain.close_early() == ((), "open")
    assert chain.snapshot() == [1]


def test_a_pass_ends_as_soon_as_a_take_has_all_it_wants() -> None:
    chain = Chain([Taking(2)])
    chain.push(1)
    chain.push(2)
    assert chain.close_early() == ([], "end")
    assert chain.snapshot() == [0]


def test_a_take_of_nothing_ends_the_pass_before_its_first_item() -> None:
    assert Chain([Taking(0)]).close_early() == ([], "end")


def test_a_repeat_above_a_take_cuts_the_pass_and_asks_for_the_next() -> None:
    chain = Chain([Taking(2), Passes(2)])
    chain.push(1)
    chain.push(2)
    assert chain.close_early() == ([], "cut")
    chain.push(3)
    chain.push(4)
    assert chain.close_early() == ([], "end")


def test_an_early_end_brings_out_the_batch_above_the_take() -> None:
    chain = Chain([Taking(3), Batching(2, drop_remainder=False)])
    assert [list(chain.push(item)) for item in (1, 2, 3)] == [[], [[1, 2]], []]
    assert chain.close_early() == ([[3]], "end")
    dropping = Chain([Taking(3), Batching(2, drop_remainder=True)])
    for item in (1, 2, 3):
        dropping.push(item)
    assert dropping.close_early() == ([], "end")


def test_an_early_end_drops_what_stands_below_the_take_and_starts_it_anew() -> None:
    chain = Chain([Skipping(1), Batching(2, drop_remainder=False), Taking(1), Passes(None)])
    assert [list(chain.push(item)) for item in (1, 2, 3)] == [[], [], [[2, 3]]]
    chain.push(4)
    assert chain.close_early() == ([], "cut")
    assert chain.snapshot() == [0, [], 0, 1]


def test_a_repeat_below_a_take_starts_anew_too() -> None:
    chain = Chain([Passes(None), Taking(3)])
    for item in (1, 2):
        chain.push(item)
    assert chain.end() == ([], False)
    chain.push(1)
    assert chain.snapshot() == [1, 3]
    assert chain.close_early() == ([], "end")
    assert chain.snapshot() == [0, 0]


@pytest.mark.parametrize("fold", [Skipping(0), Sharding(2, 0), Numbering(0), Batching(2, drop_remainder=True), Passes(1)])
def test_only_a_take_ends_a_pass_early(fold: Fold) -> None:
    chain = Chain([fold])
    for item in range(10):
        chain.push(item)
    assert chain.close_early() == ((), "open")


def test_a_full_take_waits_for_the_passes_of_a_repeat_below_it_when_one_above_asks_for_more() -> None:
    # The passes below have numbers: the second pass of the upper repeat begins with pass 2, whatever the take left unread.
    chain = Chain([Passes(2), Taking(1, repeated=True), Passes(2)])
    chain.push("pass 0")
    assert chain.close_early() == ((), "open")
    assert chain.end() == ([], False)
    assert chain.close_early() == ([], "cut")
    assert chain.push("pass 2") == ["pass 2"]


def test_a_full_take_waits_for_nothing_when_no_repeat_stands_above_it() -> None:
    chain = Chain([Passes(100), Taking(1)])
    chain.push("pass 0")
    assert chain.close_early() == ([], "end")


@given(st.lists(FOLDS, max_size=4), PASSES)
def test_asking_after_every_item_changes_nothing_but_the_reading(folds: list[Fold], passes: Passed) -> None:
    repeated = [any(isinstance(above, Passes) for above in folds[place + 1 :]) for place in range(len(folds))]
    folds = [Taking(fold.count, again) if isinstance(fold, Taking) else fold for fold, again in zip(folds, repeated, strict=True)]
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
        if verdict == "open":
            outs, goes_on = chain.end()
            out[-1].extend(outs)
            verdict = "end" if goes_on else "cut"
        here += 1
        if verdict == "end":
            out.append([])
            here += -here % passes_per_end(folds)  # a take above a repeat that nothing repeats needs none of its later passes
    assert out == [*all_of(folds, passes), []]
