"""Completion order: whatever is finished first goes first, and nothing is lost, nothing comes twice, however often it is saved."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from feeds import resumed, state_behind
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from laws.epochs import rest
from sources.streams import Epochs

import penstock as ps

pytestmark = pytest.mark.slow  # together with its kin two minutes; `make check` runs it

LAW = settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
COUNT = 90
ORDERS = st.sampled_from([{"ordered": False}, {"ordered": False}, {"ordered": True}])


# -- slow elements ----------------------------------------------------------------------------------------------------------------


class Gate:
    """Makes elements slow: they wait until the consumer has nothing left in hand, so everything that can pass them does."""

    def __init__(self, every: int = 4, seed: int = 0) -> None:
        self._event, self._every, self._seed = threading.Event(), every, seed

    def __call__(self, element: Any) -> Any:
        if hash((int(np.ravel(element)[0]), self._seed)) % self._every == 0:
            self._event.wait()
        return element

    def take(self, feed: ps.Feed, most: int | None = None) -> Iterator[Any]:
        """Take elements; the gate is open while the consumer waits, and only then."""
        try:
            while most is None or most > 0:
                most = None if most is None else most - 1
                engine = feed._run._engine
                in_hand = feed._delivery.items or (engine is not None and any(ready.items for ready in list(engine.scheduler.ready)))
                if not in_hand:
                    self._event.set()
                item = None if feed.epoch > 0 else next(feed, None)
                self._event.clear()
                if item is None:
                    return
                yield item
        finally:
            self._event.set()  # for workers that are to end
            feed.close()
            self._event.clear()


def numbers() -> ps.Dataset:
    return ps.from_source(list(range(1, COUNT + 1)))


def sequences() -> ps.Dataset:
    return ps.from_source([np.full(1 + number * 7 % 6, number) for number in range(1, COUNT + 1)])


def generated() -> ps.Dataset:
    return ps.from_generator(lambda: iter(range(1, COUNT + 1)), fast_forward=True)


def some(value: int) -> list[int]:
    return [value] * (value % 4)


def long(sequence: Any) -> bool:
    return len(sequence) != 5


async def later(value: Any) -> Any:
    return value


def bucket(ds: ps.Dataset) -> ps.Dataset:
    return ds.bucket_by_length(len, [3, 6], [4, 3, 2])


Build = Callable[[Callable[[Any], Any]], ps.Dataset]
CASES: dict[str, Build] = {
    "elements": lambda slow: numbers().map(slow).shuffle(seed=3),
    "batches, three passes": lambda slow: numbers().map(slow).batch(7).repeat(3),
    "batches of several passes": lambda slow: numbers().repeat(2).map(slow).batch(8),
    "filter": lambda slow: numbers().map(slow).filter(lambda value: value % 3 != 0).as_completed().batch(4).repeat(2),
    "flat_map": lambda slow: numbers().map(slow).flat_map(some).as_completed().batch(5).repeat(2),
    "flat_map behind it": lambda slow: numbers().map(slow).as_completed().flat_map(some).batch(5).repeat(2),
    "elements of batches": lambda slow: numbers().map(slow).as_completed().batch(7).repeat(3),
    "bucket": lambda slow: bucket(sequences().map(slow).as_completed()).repeat(2),
    "pack": lambda slow: sequences().map(slow).filter(long).as_completed().pack_sequences(16, num_bins=4).batch(3).repeat(2),
    "generator": lambda slow: generated().map(slow).filter(lambda value: value % 2).as_completed().batch(4).repeat(2),
    "shuffle of a generator": lambda slow: generated().map(slow).as_completed().shuffle(16).batch(4),
    "stages of their own": lambda slow: numbers().map(slow, concurrency=3).batch(6).map(np.copy, concurrency=2).repeat(2),
    "async": lambda slow: numbers().map(slow).map(later, concurrency=5).batch(6).repeat(2),
    "mix and cache": lambda slow: numbers().map(slow).cache().mix(numbers().skip(40), weights=[2, 1]).batch(5),
}
DROPS: dict[str, Build] = {
    "batches": lambda slow: numbers().shuffle(seed=1).map(slow).batch(7, drop_remainder=True).repeat(2),
    "batches behind a filter": lambda slow: (
        numbers().map(slow).filter(lambda value: value % 3 != 0).as_completed().batch(7, drop_remainder=True).repeat(2)
    ),
}
WAYS: list[dict[str, Any]] = [
    {"executor": "inline"},
    {},
    {"executor": "threads", "num_workers": 2},
    {"executor": "threads", "num_workers": 4},
    {"executor": "threads", "num_workers": 3, "memory_bytes": 1},
]


def tokens(item: Any) -> list[int]:
    """List the elements in a delivered one: padding is 0 and no element is."""
    value = item["tokens"] if isinstance(item, dict) else item
    return [int(one) for one in np.ravel(value) if one]


def run(build: Build, way: dict[str, Any], state: Any = None, most: int | None = None, seed: int = 0) -> tuple[list[list[int]], Any]:
    """Deliver up to `most` items behind `state`; return them and the state behind them."""
    gate = Gate(seed=seed)
    feed = build(gate).feed(**way)
    if state is not None:
        feed.load_state_dict(state)
    out = [tokens(item) for item in gate.take(feed, most)]
    return out, json.loads(json.dumps(feed.state_dict()))


def once(items: list[list[int]]) -> Counter[int]:
    return Counter(token for item in items for token in item)


@pytest.mark.parametrize("build", CASES.values(), ids=CASES.keys())
@settings(LAW, max_examples=40)
@given(data=st.data())
def test_a_run_of_slow_elements_saved_twice_anywhere_loses_nothing(build: Build, data: st.DataObject) -> None:
    wanted, _ = run(build, {"executor": "inline"})
    out: list[list[int]] = []
    state = None
    for most in (data.draw(st.integers(0, len(wanted))), data.draw(st.integers(0, 9)), None):
        way = {**data.draw(st.sampled_from(WAYS)), **data.draw(ORDERS)}
        items, state = run(build, way, state, most, data.draw(st.integers(0, 3)))
        out += items
    assert once(out) == once(wanted)


@pytest.mark.parametrize("build", DROPS.values(), ids=DROPS.keys())
@settings(LAW, max_examples=40)
@given(data=st.data())
def test_every_batch_is_full_where_remainders_are_dropped(build: Build, data: st.DataObject) -> None:
    wanted, _ = run(build, {"executor": "inline"})
    out: list[list[int]] = []
    state = None
    for most in (data.draw(st.integers(0, len(wanted))), data.draw(st.integers(0, 4)), None):
        way = {**data.draw(st.sampled_from(WAYS)), **data.draw(ORDERS)}
        items, state = run(build, way, state, most, data.draw(st.integers(0, 3)))
        out += items
    assert [len(item) for item in out] == [7] * len(wanted)
    assert max(once(out).values()) <= 2


@settings(LAW, max_examples=60)
@given(data=st.data())
def test_completed_elements_make_full_batches_but_the_last_of_a_pass_and_passes_are_kept_apart(data: st.DataObject) -> None:
    build = CASES["elements of batches"]
    out: list[list[int]] = []
    state = None
    for most in (data.draw(st.integers(0, 39)), data.draw(st.integers(0, 9)), None):
        items, state = run(build, {**data.draw(st.sampled_from(WAYS)), **data.draw(ORDERS)}, state, most, data.draw(st.integers(0, 3)))
        out += items
    assert [len(item) for item in out] == ([7] * 12 + [6]) * 3
    for number in range(3):
        assert once(out[13 * number : 13 * number + 13]) == Counter(range(1, COUNT + 1))


def test_behind_one_slow_element_the_others_go_on_and_the_state_stays_small() -> None:
    gate = threading.Event()

    def slow(value: int) -> int:
        if value == 0:
            gate.wait()
        return value

    with ps.from_source(range(10**9)).map(slow).batch(16).feed(executor="threads", num_workers=3, ordered=False) as feed:
        batches = [next(feed) for _ in range(60)]
        assert 0 not in np.concatenate(batches)
        assert len(json.dumps(feed.state_dict())) < 1000
        gate.set()
        while 0 not in next(feed):
            pass


# -- errors, ends, streams --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize("name", ["batches, three passes", "flat_map", "bucket", "pack", "generator", "stages of their own", "async"])
def test_an_error_is_raised_once_and_the_state_behind_it_has_everything_else(name: str, way: dict[str, Any]) -> None:
    broken = [True]

    def fragile(element: Any) -> Any:
        if broken[0] and int(np.ravel(element)[0]) == 41:
            raise ZeroDivisionError("element 41")
        return element

    wanted = [tokens(item) for item in CASES[name](lambda element: element)]
    out = []
    with CASES[name](fragile).feed(**way, ordered=False) as feed:
        with pytest.raises(ZeroDivisionError, match="element 41") as caught:
            out.extend(tokens(item) for item in feed)
        assert any("41" in note or "index 40" in note for note in caught.value.__notes__)
        state = feed.state_dict()
        with pytest.raises(ps.errors.FeedClosed):
            next(feed)
    assert all(41 not in item for item in out)
    broken[0] = False
    with CASES[name](fragile).feed(executor="threads", num_workers=2, ordered=False) as feed:
        feed.load_state_dict(state)
        out.extend(tokens(item) for item in rest(feed))
    assert once(out) == once(wanted)


def test_an_endless_repeat_goes_on_pass_by_pass_and_resumes() -> None:
    def endless(slow: Callable[[Any], Any]) -> ps.Dataset:
        return numbers().map(slow).filter(lambda value: value > 10).as_completed().batch(8).repeat()

    out: list[list[int]] = []
    state = None
    for way in (
        {"executor": "threads", "num_workers": 3, "ordered": False},
        {"executor": "threads", "num_workers": 2, "ordered": True},
        {"executor": "threads", "num_workers": 2, "ordered": False},
    ):
        items, state = run(endless, way, state, 17)
        out += items
    for number in range(5):
        assert once(out[10 * number : 10 * number + 10]) == Counter(range(11, COUNT + 1))


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_a_stream_with_states_is_put_back_to_them_in_every_pass(way: dict[str, Any]) -> None:
    def epochs(stream: Epochs, slow: Callable[[Any], Any]) -> ps.Dataset:
        return ps.from_stream(stream).map(slow).as_completed().batch(4).repeat(3)

    wanted = Counter(100 * epoch + number for epoch in range(3) for number in range(30))
    for stop in range(0, 25, 3):
        gate, first = Gate(), Epochs(30)
        feed = epochs(first, gate).feed(**way, ordered=False)
        out = [int(value) for batch in gate.take(feed, stop) for value in batch]
        state = json.loads(json.dumps(feed.state_dict()))
        for order in (True, False):
            second = Epochs(30)
            gate = Gate()
            resumed = epochs(second, gate).feed(**way, ordered=order)
            resumed.load_state_dict(state)
            behind = [int(value) for batch in gate.take(resumed) for value in batch]
            assert Counter(out + behind) == wanted
            assert state["position"]["source"] == [0, 0] or second.loaded


# -- other places -----------------------------------------------------------------------------------------------------------------


def test_a_state_of_a_run_in_another_order_does_not_move_to_other_shards() -> None:
    def ranks(count: int) -> ps.Dataset:
        return numbers().shard(count, 0).batch(4)

    state = state_behind(ranks(2), executor="inline", ordered=False)
    assert state["global"] is None
    with ranks(2).feed(executor="inline") as feed:
        feed.load_state_dict(state)
        next(feed)
        state = feed.state_dict()
    assert state["global"] is None  # also when it was loaded and saved again
    with ranks(3).feed() as feed, pytest.raises(ps.errors.StateMismatch, match=r"shard.*\(2, 0\)"):
        feed.load_state_dict(state)


def test_weights_of_a_mix_do_not_change_behind_a_state_in_completion_order() -> None:
    def mixed(weight: float) -> ps.Dataset:
        return numbers().map(slow_first).mix(numbers(), weights=[1, weight]).batch(4)

    gate = threading.Event()

    def slow_first(value: int) -> int:
        if value == 1:
            gate.wait()
        return value

    with mixed(1).feed(executor="threads", num_workers=2, ordered=False) as feed:
        next(feed)
        state = feed.state_dict()
        gate.set()
    assert state["position"]["done"]
    for order in (True, False):
        with mixed(1).feed(ordered=order) as feed:
            feed.load_state_dict(state)
            next(feed)
        with mixed(2).feed(ordered=order) as feed, pytest.raises(ps.errors.StateMismatch) as refusal:
            feed.load_state_dict(state)
        assert "the weights of mix were (1, 1) and are now (1, 2)" in refusal.value.what
        assert refusal.value.where
        assert refusal.value.fix


def test_where_a_fold_counts_in_order_a_notice_names_as_completed() -> None:
    def notices(ds: ps.Dataset) -> list[str]:
        with ds.feed(executor="inline", ordered=False) as feed:
            list(feed)
            return feed.stats().notices

    assert any("as_completed()" in text for text in notices(numbers().filter(bool).batch(4)))
    assert not any("as_completed()" in text for text in notices(numbers().batch(4)))
    assert not any("as_completed()" in text for text in notices(numbers().filter(bool).as_completed().batch(4)))


def test_the_epoch_and_the_step_are_those_of_what_was_delivered() -> None:
    for ds in (numbers().batch(30).repeat(3), numbers().filter(bool).batch(30).repeat(3)):
        with ds.feed(executor="threads", num_workers=2, ordered=False) as feed:
            places = [(feed.step, feed.epoch) for _ in feed]
        assert [step for step, _ in places] == list(range(1, 10))
        assert {epoch for _, epoch in places} == {0}


def test_a_generator_is_counted_in_the_order_of_the_state() -> None:
    first_is_due = threading.Event()

    def slow(value: int) -> int:
        assert value != 1 or first_is_due.wait(60)
        if value == 7:
            raise ValueError(value)
        return value

    ds = generated().map(slow, on_error=ps.Skip()).filter(bool).as_completed().bucket_by_length(lambda _: 1, [3], [8, 8]).repeat(2)
    with ds.feed(executor="threads", num_workers=2) as feed:
        seen = next(feed).tolist()
        state = feed.state_dict()
        first_is_due.set()
    seen += [value for batch in resumed(ds, state, executor="inline") for value in batch.tolist()]
    assert sorted(seen) == sorted(2 * [value for value in range(1, COUNT + 1) if value != 7])
