from __future__ import annotations

from typing import Any

import pytest
from dataset.small import endless, numbers
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


@pytest.mark.parametrize("shards", [1, 2, 3])
def test_a_shuffle_of_groups_goes_on_with_other_workers_and_on_other_ranks(shards: int) -> None:
    def ranks(count: int) -> list[Any]:
        ds = ps.from_source(Grouped([7, 5, 9, 3, 12])).shuffle(seed=3, window_groups=2)
        return [ds.shard(count, rank).batch(3, drop_remainder=True).repeat(2) for rank in range(count)]

    whole = list(ps.from_source(Grouped([7, 5, 9, 3, 12])).shuffle(seed=3, window_groups=2).repeat(2))
    state: Any = None
    head: list[int] = []
    for ds in ranks(2):
        with ds.feed(executor="threads", num_workers=3) as feed:
            head += [number for _ in range(2) for number in next(feed).tolist()]
            state = feed.state_dict()
    assert sorted(head) == sorted(whole[:12])
    rest: list[int] = []
    for ds in ranks(shards):
        with ds.feed(executor="threads", num_workers=1) as feed:
            feed.load_state_dict(state)
            rest += next(feed).tolist()
    assert sorted(rest) == sorted(whole[12 : 12 + 3 * shards])


def test_a_state_of_other_groups_is_refused() -> None:
    with ps.from_source(Grouped([4, 4])).shuffle(window_groups=1).feed() as feed:
        next(feed)
        state = feed.state_dict()
    with ps.from_source(Grouped([2, 6])).shuffle(window_groups=1).feed() as feed, pytest.raises(ps.errors.StateMismatch) as caught:
        feed.load_state_dict(state)
    assert "shuffle(window_groups=1 of " in str(caught.value)
