from __future__ import annotations

import warnings

import pytest
from dataset.small import double, noisy, numbers
from feeds import resumed

import penstock as ps
from penstock.errors import StateMismatch


@pytest.mark.parametrize(
    ("length", "fractions", "sizes"),
    [
        (100, (0.9,), [90, 10]),
        (100, (0.9, 0.1), [90, 10]),
        (10, (0.8, 0.1), [8, 1, 1]),
        (10, (0.7, 0.2, 0.1), [7, 2, 1]),  # as floats these add up to less than 1
        (1000, (0.1,) * 10, [100] * 10),
        (5, (0.5,), [3, 2]),  # half up
        (7, (1 / 3, 1 / 3), [2, 3, 2]),
        (4, (1.0,), [4]),
    ],
)
def test_the_sizes_are_the_rounded_sums_and_the_parts_are_the_whole(length: int, fractions: tuple[float, ...], sizes: list[int]) -> None:
    parts = numbers(length).split(*fractions, seed=3)
    assert [len(part) for part in parts] == sizes
    assert sorted(x for part in parts for x in part) == list(range(length))


def test_a_split_depends_on_its_seed_alone_and_is_the_same_in_every_epoch() -> None:
    train, val = numbers(1000).split(0.9, seed=7)
    again, _ = numbers(1000).with_options(executor="threads", num_workers=2).split(0.9, seed=7)
    other, _ = numbers(1000).split(0.9, seed=8)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # it is no shuffle whose order should change
        first = list(train)
        assert list(train) == list(again) == first
    assert set(other) != set(first)
    assert first != sorted(first)
    with train.shuffle(seed=1).feed() as feed:
        epochs = [list(feed) for _ in range(3)]
    assert epochs[0] != epochs[1]
    assert [sorted(epoch) for epoch in epochs] == [sorted(first)] * 3
    assert set(first).isdisjoint(val)


def test_parts_can_be_split_sharded_and_indexed() -> None:
    train, _ = numbers(100).map(double).split(0.8, seed=1)
    inner, rest = train.split(0.5, seed=1)
    assert sorted([*inner, *rest]) == sorted(train)
    assert sorted([*train.shard(2, 0), *train.shard(2, 1)]) == sorted(train)
    assert [train[place] for place in range(80)] == list(train)


def test_a_feed_of_a_part_resumes_exactly_and_its_state_belongs_to_the_split() -> None:
    def training(seed: int, fraction: float = 0.9) -> ps.Dataset:
        return numbers(200).split(fraction, seed=seed)[0].shuffle(seed=2).map(noisy, seed=3).batch(7)

    with training(5).feed(executor="threads", num_workers=2) as feed:
        wanted = [batch.tolist() for _ in range(2) for batch in feed]
    with training(5).feed() as feed:
        got = [batch.tolist() for batch in feed]
        got += [next(iter_).tolist() for iter_ in [iter(feed)] for _ in range(4)]
        state = feed.state_dict()
    got += [batch.tolist() for batch in resumed(training(5), state, executor="threads", num_workers=1)]
    assert got == wanted
    for other, line in ((training(6), "seed=6"), (training(5, 0.8), "take(160)")):
        with other.feed() as feed, pytest.raises(StateMismatch) as caught:
            feed.load_state_dict(state)
        assert line in str(caught.value)
