"""Each `for` over a feed is the next epoch: the same elements as the passes of `repeat`, whatever is saved, left or set in between."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from feeds import resumed

import penstock as ps
from penstock.errors import FeedClosed, PlanError, TooManySkipped

NUM_EPOCHS = 3
WORKERS: list[dict[str, Any]] = [
    {"executor": "inline"},
    {"executor": "threads", "num_workers": 1},
    {"executor": "threads", "num_workers": 3},
]


class Odd(ValueError):
    pass


def fail_for_three(x: Any) -> Any:
    if x == 3:
        raise Odd(x)
    return x


def noisy(x: Any, rng: np.random.Generator) -> Any:
    return x, int(rng.integers(1 << 30))


def odd(x: Any) -> bool:
    return bool(x % 2)


def parity(x: Any) -> int:
    return int(x % 2)


def twice(x: Any) -> list[Any]:
    return [x, x + 100]


def stream() -> Iterator[int]:
    yield from range(9)


R = ps.from_source(range(11))
S = ps.from_source(range(10)).shuffle(seed=5)

# Each pass of these is an epoch, so epochs 0, 1, 2 are what the same dataset gives with `.repeat(3)` right above what makes passes.
PLANS: dict[str, tuple[ps.Dataset, ps.Dataset]] = {
    "shuffle": (S, S.repeat(3)),
    "random numbers": (R.map(noisy), R.map(noisy).repeat(3)),
    "batches": (S.batch(4), S.batch(4).repeat(3)),
    "whole batches": (S.batch(4, drop_remainder=True), S.batch(4, drop_remainder=True).repeat(3)),
    "repeat inside": (S.repeat(2).batch(3), S.repeat(2).batch(3).repeat(3)),
    "filter": (S.filter(odd), S.filter(odd).repeat(3)),
    "filter and batch": (S.filter(odd).batch(2), S.filter(odd).batch(2).repeat(3)),
    "repeat of a filter": (S.filter(odd).repeat(2), S.filter(odd).repeat(6)),
    "buffered shuffle": (R.filter(odd).shuffle(3, seed=2), R.filter(odd).shuffle(3, seed=2).repeat(3)),
    "buffered shuffle of a repeat": (
        R.filter(odd).repeat(2).shuffle(3, seed=2).batch(2),
        R.filter(odd).repeat(2).shuffle(3, seed=2).batch(2).repeat(3),
    ),
    "flat_map": (S.flat_map(twice), S.flat_map(twice).repeat(3)),
    "take": (S.filter(odd).take(3), S.filter(odd).take(3).repeat(3)),
    "skip": (S.filter(odd).skip(2), S.filter(odd).skip(2).repeat(3)),
    "enumerate": (S.enumerate(), S.enumerate().repeat(3)),
    "shard": (S.shard(2, 1), S.shard(2, 1).repeat(3)),
    "zip": (S.zip(R.map(noisy)), S.zip(R.map(noisy)).repeat(3)),
    "concatenate": (S.concatenate(R), S.concatenate(R).repeat(3)),
    "window": (S.window(3), S.window(3).repeat(3)),
    "resample": (
        S.rejection_resample(parity, [0.5, 0.5], seed=3),
        S.rejection_resample(parity, [0.5, 0.5], seed=3).repeat(3),
    ),
    "generator": (
        ps.from_generator(stream, fast_forward=True).shuffle(4, seed=1),
        ps.from_generator(stream, fast_forward=True).shuffle(4, seed=1).repeat(3),
    ),
    "columns": (
        ps.from_arrays({"x": np.arange(10)}).shuffle(seed=1).batch(4),
        ps.from_arrays({"x": np.arange(10)}).shuffle(seed=1).batch(4).repeat(3),
    ),
}


def plain(item: Any) -> Any:
    if isinstance(item, dict):
        return {key: plain(value) for key, value in item.items()}
    if isinstance(item, (list, tuple)):
        return [plain(part) for part in item]
    return item.tolist() if isinstance(item, (np.ndarray, np.generic)) else item


def epochs(feed: ps.Feed, count: int = NUM_EPOCHS) -> list[list[Any]]:
    return [[plain(item) for item in feed] for _ in range(count)]


@pytest.mark.parametrize("workers", [WORKERS[0], WORKERS[2]], ids=str)
@pytest.mark.parametrize("name", PLANS)
def test_each_for_is_the_next_pass(name: str, workers: dict[str, Any]):
    once, passes = PLANS[name]
    with passes.feed(executor="inline") as feed:
        wanted = [plain(item) for item in feed]
    with once.feed(**workers) as feed:
        found = epochs(feed)
    assert all(found)
    assert [item for epoch in found for item in epoch] == wanted


@pytest.mark.parametrize("name", PLANS)
def test_a_state_of_each_step_of_three_epochs_goes_on_with_other_workers(name: str):
    once, _ = PLANS[name]
    with once.feed(executor="threads", num_workers=2) as feed:
        wanted, states = [], [json.dumps(feed.state_dict())]
        for epoch in range(NUM_EPOCHS):
            for item in feed:
                assert feed.epoch == epoch
                wanted.append((epoch, plain(item)))
                states.append(json.dumps(feed.state_dict()))
            assert feed.epoch == epoch + 1
        ends = [sum(epoch <= number for epoch, _ in wanted) for number in range(NUM_EPOCHS)]
    for step, state in enumerate(states):
        with once.feed(**WORKERS[step % 3]) as feed:
            feed.load_state_dict(state)
            # Where the length is not known, the last element of an epoch looks as the others do until the end has been seen.
            known = json.loads(state)["epoch"][0]
            assert known in (sum(end <= step for end in ends), sum(end < step for end in ends))
            found: list[Any] = []
            while feed.epoch < NUM_EPOCHS:
                epoch = feed.epoch
                found += [(epoch, plain(item)) for item in feed]
            assert found == wanted[step:]
            assert feed.step == len(wanted)


def whole(name: str) -> tuple[ps.Dataset, list[Any]]:
    """Return a plan and all its epochs."""
    once, _ = PLANS[name]
    with once.feed(executor="inline") as feed:
        return once, epochs(feed)


@pytest.mark.parametrize("name", PLANS)
def test_set_epoch_gives_what_a_run_to_that_epoch_gives(name: str):
    once, wanted = whole(name)
    with once.feed(executor="threads", num_workers=2) as feed:
        for number in (2, 0, 1, 1):
            feed.set_epoch(number)
            assert [plain(item) for item in feed] == wanted[number]


@pytest.mark.parametrize("name", PLANS)
def test_a_loop_that_is_left_is_over_and_the_next_one_is_the_following_epoch(name: str):
    once, wanted = whole(name)
    with once.feed(executor="threads", num_workers=2) as feed:
        first = [plain(item) for item, _ in zip(feed, range(2), strict=False)]
        assert first == wanted[0][:2]
        assert epochs(feed, 2) == wanted[1:]


# -- what begins an epoch ----------------------------------------------------------------------------------------------------------


def test_the_length_is_that_of_a_whole_epoch_also_in_the_middle_of_one():
    with S.batch(4).feed() as feed:
        next(feed)
        state = feed.state_dict()
        assert len(feed) == 3
    with S.batch(4).feed() as feed:
        feed.load_state_dict(state)
        assert (len(feed), len(list(feed))) == (3, 2)
    with pytest.raises(TypeError, match="only known after reading"):
        len(S.filter(odd).feed())
    assert S.filter(odd).feed()


def test_an_epoch_is_over_when_its_last_batch_is_delivered_whether_the_end_was_seen_or_not():
    with S.feed(executor="inline") as feed:
        wanted = epochs(feed, 2)
    with S.feed() as feed:
        for number in range(2):
            iterator = iter(feed)
            assert [next(iterator) for _ in range(len(feed))] == wanted[number]
            assert feed.epoch == number
            assert feed.state_dict()["epoch"] == [number + 1, 0]
        assert "epoch" not in " ".join(feed.stats().notices)


def test_an_epoch_begun_by_hand_is_continued_by_the_first_loop():
    with S.feed() as feed:
        first = next(feed)
        assert sorted([first, *feed]) == list(range(10))
        assert feed.epoch == 1


def test_an_iterator_goes_on_where_it_is_and_so_does_next():
    with S.feed() as feed:
        iterator = iter(feed)
        assert iter(iterator) is iterator
        found = [next(iterator), next(feed)]
        assert sorted([*found, *iterator]) == list(range(10))
        with pytest.raises(StopIteration):
            next(iterator)


def test_an_iterator_of_an_epoch_that_was_left_says_so():
    with S.feed() as feed:
        before = iter(feed)
        next(before)
        after = iter(feed)
        next(after)
        with pytest.raises(FeedClosed, match="epoch was left"):
            next(before)
        assert len(list(after)) == 9


def test_an_iterator_of_an_epoch_that_ended_stays_at_its_end():
    with S.feed() as feed:
        before = iter(feed)
        list(before)
        next(iter(feed))
        assert list(before) == []


def test_a_loop_that_is_left_gives_one_notice():
    with S.feed() as feed:
        for _ in range(3):
            for _ in feed:
                break
        (notice,) = [text for text in feed.stats().notices if "epoch" in text]
        assert "epoch 0 was left after 1 of its elements" in notice


def test_set_epoch_keeps_a_state_that_is_in_that_epoch():
    with S.feed() as feed:
        list(feed)
        kept = [next(feed) for feed in [iter(feed)] for _ in range(3)]
        state = feed.state_dict()
    with S.feed() as feed:
        feed.load_state_dict(state)
        feed.set_epoch(1)
        rest = list(feed)
        assert sorted([*kept, *rest]) == list(range(10))
    with S.feed() as feed:
        feed.load_state_dict(state)
        feed.set_epoch(2)
        assert len(list(feed)) == 10


@pytest.mark.parametrize("wrong", [-1, 1.5, "1", None, True])
def test_set_epoch_takes_whole_numbers_only(wrong: Any):
    with S.feed() as feed, pytest.raises(PlanError):
        feed.set_epoch(wrong)


# -- what is counted, what is old --------------------------------------------------------------------------------------------------


def test_a_number_in_a_limit_counts_distinct_elements():
    bad = R.map(fail_for_three)
    with bad.feed(on_error=ps.Skip(limit=1)) as feed:
        assert [len(epoch) for epoch in epochs(feed, 4)] == [10] * 4
        assert feed.stats().num_skipped == 4
        state = json.dumps(feed.state_dict())
    assert len(resumed(bad, state, on_error=ps.Skip(limit=1))) == 10

    def fails_for_its_turn(x: tuple[int, int]) -> int:
        if x[0] == turn[0]:
            raise Odd(x)
        return x[0]

    turn = [0]
    with R.map(noisy).map(fails_for_its_turn).feed(on_error=ps.Skip(limit=2), executor="inline") as feed:
        for turn[0] in range(2):
            assert len(list(feed)) == 10
        turn[0] = 5
        with pytest.raises(TooManySkipped, match="3 elements were skipped, the limit is 2"):
            list(feed)


def test_a_rate_counts_per_pass():
    with ps.from_source(range(200)).map(fail_for_three).feed(on_error=ps.Skip(limit=0.01)) as feed:
        assert [len(epoch) for epoch in epochs(feed, 4)] == [199] * 4


def test_a_dataset_stays_epoch_0_and_says_so_once():
    dataset = ps.from_source(range(10)).shuffle(seed=5)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = [list(dataset) for _ in range(4)]
    assert found == [found[0]] * 4
    (warning,) = caught
    assert "each `for` over it is the next epoch" in str(warning.message)
    assert warning.filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert list(R) == list(R) == list(R)


def test_a_state_without_epochs_is_one_of_epoch_0():
    with S.batch(4).feed() as feed:
        first = [plain(next(feed)) for _ in range(2)]
        state = {key: value for key, value in feed.state_dict().items() if key not in ("epoch", "crc32")}
        state["position"] = {"source": state["position"]["source"], "done": [[], []], "sequencers": []}
    from penstock._plan.saved import sealed

    with S.batch(4).feed() as feed:
        feed.load_state_dict(sealed(state | {"penstock_state": 1}))
        assert (feed.epoch, feed.step) == (0, 2)
        rest = [plain(item) for item in feed]
        after = [plain(item) for item in feed]
    with S.batch(4).feed(executor="inline") as feed:
        assert [[*first, *rest], after] == epochs(feed, 2)


# -- other shards, streams with states ---------------------------------------------------------------------------------------------


def ranks(num_ranks: int, repeat: int) -> list[ps.Feed]:
    dataset = ps.from_source(range(24)).shuffle(seed=5)
    parts = [dataset.shard(num_ranks, rank).map(noisy).batch(2) for rank in range(num_ranks)]
    return [(part.repeat(repeat) if repeat > 1 else part).feed(executor="threads", num_workers=1 + rank) for rank, part in enumerate(parts)]


def pairs(batches: Any) -> list[Any]:
    return [pair for batch in batches for pair in zip(*plain(batch), strict=True)]


@pytest.mark.parametrize("repeat", [1, 2])
@pytest.mark.parametrize("to", [1, 2, 3])
def test_a_state_of_a_later_epoch_moves_to_another_number_of_ranks(to: int, repeat: int):
    (single,) = ranks(1, repeat)
    wanted = [sorted(pairs(single)) for _ in range(3)]
    assert wanted[0] != wanted[1]
    for delivered in range(6 * repeat):
        before, found = ranks(2, repeat), []
        for feed in before:
            list(feed)
            iterator = iter(feed)
            found += pairs([next(iterator) for _ in range(delivered)])
        after = ranks(to, repeat)
        for feed in after:
            feed.load_state_dict(before[0].state_dict())
            assert feed.epoch == 1
        assert sorted(found + [pair for feed in after for pair in pairs(feed)]) == wanted[1]
        assert {feed.epoch for feed in after} == {2}
        assert sorted(pair for feed in after for pair in pairs(feed)) == wanted[2]


class Log:
    """A stream whose passes differ, and which knows where it is: after load_state_dict() the next iter() gives the rest of that pass."""

    def __init__(self) -> None:
        self.number, self.place, self.loaded = 0, 0, False

    def __iter__(self) -> Iterator[int]:
        if not self.loaded:
            self.number, self.place = self.number + (self.place > 0), 0
        self.loaded = False
        while self.place < 6:
            self.place += 1
            yield 6 * self.number + self.place - 1

    def state_dict(self) -> dict[str, int]:
        return {"number": self.number, "place": self.place}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.number, self.place, self.loaded = state["number"], state["place"], True


def test_a_stream_with_states_goes_on_in_the_next_epoch_and_at_the_start_of_one():
    with ps.from_stream(Log()).batch(2).feed(executor="threads", num_workers=2) as feed:
        found = epochs(feed)
        state = feed.state_dict()
    assert found == [[[0, 1], [2, 3], [4, 5]], [[6, 7], [8, 9], [10, 11]], [[12, 13], [14, 15], [16, 17]]]
    with ps.from_stream(Log()).batch(2).feed(executor="threads", num_workers=2) as feed:
        feed.load_state_dict(state)
        assert feed.epoch == 3
        assert epochs(feed, 1) == [[[18, 19], [20, 21], [22, 23]]]
