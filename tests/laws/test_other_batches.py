"""A state of another batch size goes on behind the elements that were delivered, again and again, at any element."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import islice
from typing import Any

import numpy as np
import pytest
from feeds import state_behind
from hypothesis import given
from hypothesis import strategies as st
from laws.epochs import rest
from laws.turns import mix_counts

import penstock as ps
from penstock.errors import PlanError, StateMismatch

COUNT = 37
OPTIONS: list[dict[str, Any]] = [{"executor": "inline"}, {"executor": "threads", "num_workers": 3}]


def numbers(first: int = 0) -> ps.Dataset:
    return ps.from_source(list(range(first, first + COUNT))).shuffle(seed=1)


def generated(**options: Any) -> ps.Dataset:
    return ps.from_generator(lambda: iter(range(COUNT)), fast_forward=True, **options)


PLANS: dict[str, Callable[[int], ps.Dataset]] = {
    "one pass": lambda size: numbers().batch(size),
    "repeated batches": lambda size: numbers().batch(size).map(abs).repeat(3),
    "batches of endless passes": lambda size: numbers().repeat().batch(size).prefetch(2),
    "ranks": lambda size: numbers().shard_by_rank(rank=0, num_ranks=1).padded_batch(size).repeat(2),
    "a schedule": lambda size: numbers().mix(numbers(100), weights={0: [1, 2], 10: [2, 1]}).batch(size),
    "rows": lambda size: numbers().window(1).shuffle(seed=2).batch(size).map(np.ravel).repeat(2),
    "a filter": lambda size: numbers().filter(bool).batch(size).repeat(2),
    "a generator": lambda size: generated(length=COUNT).batch(size).repeat(2),
    "a buffer": lambda size: numbers().flat_map(lambda one: [one, one + 100]).shuffle(7, seed=2).batch(size).map(abs).repeat(2),
}


def run(ds: ps.Dataset, state: Any, count: int | None, **options: Any) -> tuple[list[list[int]], dict[str, Any]]:
    """Deliver up to `count` batches behind a state of any batch size; return them and the state behind them."""
    with ds.feed(**options) as feed:
        if state is not None:
            feed.load_state_dict(json.loads(json.dumps(state)), may_differ=("batch",))
        return [batch.tolist() for batch in islice(rest(feed), count)], feed.state_dict()


@pytest.mark.parametrize("name", PLANS)
@given(st.lists(st.tuples(st.integers(1, 9), st.integers(0, 4)), min_size=1, max_size=5), st.integers(1, 9), st.data())
def test_no_element_is_lost_or_repeated(name: str, changes: list[tuple[int, int]], last: int, data: st.DataObject) -> None:
    plan, state, delivered = PLANS[name], None, list[int]()
    for size, count in [*changes, (last, 30)]:
        batches, state = run(plan(size), state, count, **data.draw(st.sampled_from(OPTIONS)))
        assert max(map(len, batches), default=1) <= size
        delivered += [element for batch in batches for element in batch]
        if state["epoch"][0]:
            break
    whole = [element for batch in islice(plan(1), None if state["epoch"][0] else len(delivered)) for element in batch.tolist()]
    assert delivered == whole


def test_a_pass_that_ranks_ended_together_after_a_move_is_followed_by_a_whole_one() -> None:
    def rank(index: int, num_ranks: int) -> ps.Dataset:
        return numbers().shard_by_rank(rank=index, num_ranks=num_ranks).batch(1).repeat(2)

    _, state = run(rank(0, 2), None, 2, executor="inline")
    _, state = run(rank(0, 3), state, 11, executor="inline")  # of the 33 that are left
    assert state["global"] == {"epoch": 1, "element": 0}


def test_ranks_and_batch_size_may_change_together() -> None:
    def rank(index: int, num_ranks: int, size: int) -> ps.Dataset:
        return numbers().shard_by_rank(rank=index, num_ranks=num_ranks).batch(size).repeat(2)

    heads = [run(rank(index, 2, 5), None, 2, executor="inline") for index in range(2)]
    tails = [run(rank(index, 3, 2), heads[0][1], 3, executor="inline") for index in range(3)]  # 15 of the 17 that are left
    delivered = [element for batches, _ in [*heads, *tails] for batch in batches for element in batch]
    assert len(set(delivered)) == len(delivered) == 35
    assert tails[0][1]["global"] == {"epoch": 1, "element": 0}  # a whole pass follows


def test_weights_may_change_after_the_batch_size_did() -> None:
    def of(size: int, weights: Any) -> ps.Dataset:
        return numbers().repeat().mix(numbers(100).repeat(), weights=weights).batch(size)

    _, state = run(of(4, [1, 1]), None, 3, executor="inline")
    _, state = run(of(5, [1, 1]), state, 2, executor="inline")  # from 12 to 22
    batches, state = run(of(5, [1, 4]), state, 4, executor="inline")
    assert sum(element >= 100 for batch in batches for element in batch) == mix_counts([1, 4], 20)[1]
    assert state["mix"] == [[[0, [1.0, 1.0]], [22, [1.0, 4.0]]]]


@pytest.mark.parametrize(
    ("then", "words"),
    [
        (lambda: numbers().batch(5).take(3), "had 'batch(4)' where this one has 'batch(5)'"),
        (lambda: numbers().shuffle(seed=3).batch(5), "had 'batch(4)' where this one has 'shuffle(seed=3)'"),
    ],
)
def test_nothing_else_may_differ(then: Callable[[], ps.Dataset], words: str) -> None:
    _, state = run(numbers().batch(4), None, 2, executor="inline")
    with pytest.raises(StateMismatch) as refused:
        run(then(), state, None)
    assert words in refused.value.what


def test_a_state_of_another_batch_size_is_refused_with_what_goes_on_and_only_where_it_does() -> None:
    def refusal(saved: ps.Dataset, then: ps.Dataset) -> str:
        state = state_behind(saved, num_workers=0)
        with then.feed(num_workers=0) as feed, pytest.raises(StateMismatch) as refused:
            feed.load_state_dict(state)
        return refused.value.fix

    one, other = (numbers().batch(size) for size in (4, 5))
    assert "may_differ=('batch',)" in refusal(one, other)  # strict=False would go on at another element
    for change in (lambda ds: ds.batch(2), lambda ds: ds.shuffle(seed=1)):
        assert "strict=False" in refusal(change(one), change(other))
    assert "strict=False" in refusal(one, other.map(str))
    assert "strict=False" in refusal(one, numbers().batch(4, drop_remainder=True))


@pytest.mark.parametrize("names", ["batch", ("shuffle",), ("batch", "shard"), 1])
def test_other_names_are_refused(names: Any) -> None:
    with numbers().batch(4).feed() as feed, pytest.raises(PlanError, match=r"fix:.*may_differ=\('batch',\)"):
        feed.load_state_dict(feed.state_dict(), may_differ=names)


def test_of_two_batches_neither_may_differ() -> None:
    state = state_behind(numbers().batch(5).batch(2))
    with numbers().batch(5).batch(3).feed() as feed, pytest.raises(StateMismatch, match=r"batch\(3"):
        feed.load_state_dict(state, may_differ=("batch",))
