from __future__ import annotations

import pytest
from dataset.small import endless, numbers
from feeds import state_behind
from sources.groups import Grouped

import penstock as ps


def test_a_shuffle_behind_a_filter_holds_a_buffer_and_is_said_so() -> None:
    ds = numbers(100).filter(lambda x: x % 2).shuffle(10, seed=3)
    assert sorted(ds) == list(range(1, 100, 2))
    assert list(ds) != sorted(ds)
    assert "shuffle(buffer_size=10, buffer_bytes=268435456, seed=3)" in repr(ds)
    assert "then in order, at one place: shuffle buffer" in ds.explain()
    assert "buffer_bytes" not in repr(numbers(100).shuffle(10, seed=3))


def test_a_function_that_fails_while_an_interleave_is_built_fails_there() -> None:
    with pytest.raises(ZeroDivisionError):
        numbers(3).interleave(lambda number: numbers(6 // number))


def test_a_mix_with_an_endless_dataset_is_as_long_as_the_finite_ones_last() -> None:
    assert list(numbers(2).mix(endless())) == [0, 0, 1, 1]
    assert numbers(2).mix(endless(), weights=[1, 2]).take(3)[1] == 0


def test_a_state_of_other_groups_is_refused() -> None:
    state = state_behind(ps.from_source(Grouped([4, 4])).shuffle(window_groups=1))
    with (
        ps.from_source(Grouped([2, 6])).shuffle(window_groups=1).feed() as feed,
        pytest.raises(ps.errors.StateMismatch, match=r"shuffle\(window_groups=1 of "),
    ):
        feed.load_state_dict(state)
