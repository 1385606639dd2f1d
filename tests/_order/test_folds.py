"""Each fold does what plain Python says of whole passes."""

from __future__ import annotations

from _order.passes import FOLDS, PASSES, Passed, ended, reference, run
from hypothesis import given

from penstock._order.chain import Chain
from penstock._order.folds import Fold, RepeatFold


@given(FOLDS, PASSES)
def test_each_fold_does_what_plain_python_says(fold: Fold, passes: Passed) -> None:
    assert run([fold], passes) == ended(reference(fold, passes), passes, [fold])


def test_an_endless_repeat_never_lets_an_end_through() -> None:
    chain = Chain([RepeatFold(None)])
    assert [chain.end() for _ in range(5)] == [([], False)] * 5
    assert chain.snapshot() == [5]


def test_the_pass_number_counts_up_and_starts_again_above_a_nested_repeat() -> None:
    chain = Chain([RepeatFold(2), RepeatFold(2)])
    states = []
    for _ in range(4):
        states.append(chain.snapshot())
        chain.end()
    assert states == [[0, 0], [1, 0], [0, 1], [1, 1]]
    assert chain.snapshot() == [0, 0]
