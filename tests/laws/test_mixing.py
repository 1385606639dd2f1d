"""Mix and interleave against plain Python: whole runs, a resume at every element with other options, weights that change at a resume."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import cache
from itertools import islice
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from laws.epochs import rest
from laws.plans import plain
from laws.turns import interleaved_turns, mix_counts, mix_turns

import penstock as ps
from penstock._order import planned
from penstock.dataset import known

SIZES = [11, 5, 8]
OPTIONS: list[dict[str, Any]] = [
    {"executor": "inline"},
    {"executor": "threads", "num_workers": 2},
    {"executor": "threads", "num_workers": 3},
]
WEIGHTS = st.tuples(*[st.sampled_from([1.0, 2.0, 0.3, 5.0])] * 3)


def child(number: int) -> ps.Dataset:
    return ps.from_source([1000 * number + place for place in range(SIZES[number])]).shuffle(seed=number)


def mixed(weights: Any, stop: Any = "first_exhausted", change: Callable[[ps.Dataset], ps.Dataset] = lambda ds: ds) -> ps.Dataset:
    return change(child(0)).mix(change(child(1)), change(child(2)), weights=weights, stop=stop)


def run(ds: ps.Dataset, state: Any, count: int | None, **chosen: Any) -> tuple[list[Any], dict[str, Any]]:
    """Deliver up to `count` elements behind a state; return them and the state behind them."""
    with ds.feed(**chosen) as feed:
        if state is not None:
            feed.load_state_dict(json.loads(json.dumps(state)))
        found = [plain(item) for item in islice(rest(feed), count)]
        return found, feed.state_dict()


@cache
def passes(number: int, count: int) -> list[Any]:
    """List `count` shuffled passes of a child, one after the other."""
    return [plain(item) for item in child(number).repeat(count)]


def of_child(number: int, items: Any) -> list[int]:
    """List the elements of a child in what was delivered, batches and tuples taken apart."""
    if isinstance(items, list):
        return [value for item in items for value in of_child(number, item)]
    return [items] if items // 1000 == number else []


@pytest.mark.parametrize("stop", ["first_exhausted", "all_exhausted"])
def test_a_mix_saved_at_every_element_goes_on_with_other_options(stop: str) -> None:
    ds = mixed([1, 2, 1], stop)
    turns = mix_turns([1, 2, 1], SIZES, stop)
    rows = [passes(number, 9) for number in range(3)]
    whole = [rows[turn.child][turn.number * SIZES[turn.child] + turn.place] for turn in turns]
    assert len(ds) == len(whole)
    assert [plain(ds[place]) for place in range(len(whole))] == whole
    for place in range(len(whole) + 1):
        head, state = run(ds, None, place, **OPTIONS[place % 3])
        middle, again = run(ds, state, 2, **OPTIONS[(place + 1) % 3])
        tail, _ = run(ds, again, None, **OPTIONS[(place + 2) % 3])
        assert head + middle + tail == whole


def test_an_interleave_saved_at_every_element_goes_on_with_other_options() -> None:
    ds = ps.from_source([0, 2, 1]).interleave(child, cycle_length=2, block_length=3)
    rows = [passes(number, 1) for number in (0, 2, 1)]
    whole = [rows[member][place] for member, place in interleaved_turns([11, 8, 5], 2, 3)]
    assert [plain(ds[place]) for place in range(len(ds))] == whole
    for place in range(len(whole) + 1):
        head, state = run(ds, None, place, **OPTIONS[place % 3])
        tail, _ = run(ds, state, None, **OPTIONS[(place + 1) % 3])
        assert head + tail == whole


def test_interleaved_datasets_of_arrays_come_in_batches() -> None:
    ds = ps.from_source([10, 20, 30]).interleave(lambda first: ps.from_arrays(np.arange(first, first + 3))).batch(4)
    assert [batch.tolist() for batch in ds] == [[10, 20, 30, 11], [21, 31, 12, 22], [32]]


def test_elements_of_equal_index_draw_other_random_numbers_in_each_dataset() -> None:
    def noisy(value: int, rng: np.random.Generator) -> int:
        return int(rng.integers(2**40))

    same = ps.from_source(list(range(20)))
    for ds in (same.mix(same, same), ps.from_source(range(3)).interleave(lambda _: same)):
        assert len(set(ds.map(noisy))) == 60


def test_a_mix_under_repeat_shuffles_each_epoch_anew() -> None:
    first, second = mixed([1, 2, 1], "all_exhausted").repeat(2).batch(len(mixed([1, 2, 1], "all_exhausted")))
    assert plain(first) != plain(second)
    assert set(plain(first)) == set(plain(second))


@given(WEIGHTS, st.lists(st.tuples(st.integers(0, 9), WEIGHTS), min_size=1, max_size=4), st.booleans(), st.data())
def test_weights_that_change_at_a_resume_hold_for_what_follows(
    first: Any, changes: list[tuple[int, Any]], endless: bool, data: st.DataObject
) -> None:
    stop = data.draw(st.sampled_from(["first_exhausted", "all_exhausted"])) if not endless else "first_exhausted"

    def of(weights: Any) -> ps.Dataset:
        return mixed(weights, stop, ps.Dataset.repeat).take(60) if endless else mixed(weights, stop)

    got: list[Any] = []
    expected: list[tuple[int, Any]] = []
    state, weights = None, first
    for count, after in changes:
        items, state = run(of(weights), state, count, **data.draw(st.sampled_from(OPTIONS)))
        got += items
        expected.append((len(items), weights))
        weights = after
    tail, state = run(of(weights), state, None, executor="inline")
    got += tail
    for number in range(3):
        own = of_child(number, got)
        assert own == passes(number, 60)[: len(own)]
    _assert_shares(got, [*expected, (len(tail), weights)])
    assert run(of(weights), state, None, executor="inline")[0] == []


SCHEDULES = st.builds(lambda first, at, then: {0: first, at: then}, st.sampled_from([(1, 0, 0), (1, 5, 1)]), st.integers(1, 40), WEIGHTS)


@given(SCHEDULES, SCHEDULES, st.integers(0, 50), st.data())
def test_a_schedule_goes_on_at_a_resume_and_another_one_holds_from_there(first: Any, other: Any, count: int, data: st.DataObject) -> None:
    def of(weights: Any) -> ps.Dataset:
        return mixed(weights, change=ps.Dataset.repeat).take(60)

    def at(schedule: Any) -> Any:
        return schedule[max(start for start in schedule if start <= count)]

    head, state = run(of(first), None, count, **data.draw(st.sampled_from(OPTIONS)))
    tail, again = run(of(other), state, data.draw(st.integers(0, 9)), **data.draw(st.sampled_from(OPTIONS)))
    tail += run(of(other), again, None, executor="inline")[0]
    goes_on = _shares(at(first)) == _shares(at(other))
    expected = {start: weights for start, weights in first.items() if start < count + goes_on} | ({} if goes_on else {count: at(other)})
    expected |= {start: weights for start, weights in other.items() if start > count}
    for place in range(61):
        assert [len(of_child(number, (head + tail)[:place])) for number in range(3)] == mix_counts(expected, place)
    for number in range(3):
        own = of_child(number, head + tail)
        assert own == passes(number, 60)[: len(own)]
    assert run(of(first), state, None, executor="inline")[0] == [plain(item) for item in of(first)][count:]


def test_behind_a_shuffle_a_schedule_stays_as_it_is() -> None:
    def of(weights: Any) -> ps.Dataset:
        return mixed(weights).shuffle(seed=1)

    head, state = run(of({0: [1, 1, 1], 9: [1, 2, 1]}), None, 5)
    assert head + run(of({0: [2, 2, 2], 9: [1, 2, 1]}), state, None)[0] == [plain(item) for item in of({0: [1, 1, 1], 9: [1, 2, 1]})]
    with pytest.raises(ps.errors.StateMismatch, match=r"were \(1, 1, 1; 1, 2, 1 from 9\) and are now"):
        run(of([1, 2, 1]), state, None)


def test_a_dataset_without_a_last_weight_is_not_waited_for() -> None:
    with pytest.raises(ps.errors.PlanError, match="dataset 1 has the weight 0 at the end"):
        mixed({0: [1, 1, 1], 5: [1, 0, 1]}, "all_exhausted")
    weights = {0: [1, 1, 1], 5: [1, 0, 1]}
    assert len(mixed(weights)) == len(mix_turns(weights, SIZES, "first_exhausted"))


def _shares(weights: Any) -> list[Fraction]:
    total = sum(map(Fraction, weights))
    return [Fraction(weight) / total for weight in weights]


def _assert_shares(got: list[Any], stretches: list[tuple[int, Any]]) -> None:
    """Check that the counts of each stretch of equal weights are those of a mix that began there; (2, 2, 2) are (1, 1, 1)."""
    place = 0
    merged: list[list[Any]] = []
    for count, weights in stretches:
        if merged and (_shares(merged[-1][1]) == _shares(weights) or merged[-1][0] == 0):
            merged[-1] = [merged[-1][0] + count, weights]
        else:
            merged.append([count, weights])
    for count, weights in merged:
        found = [len(of_child(number, got[place : place + count])) for number in range(3)]
        assert found == mix_counts(weights, count), (merged, place)
        place += count


@pytest.mark.parametrize(
    "above",
    [
        lambda ds: ds.batch(4).map(lambda x: x),
        lambda ds: ds.skip(3).batch(2),
        lambda ds: ds.take(40).prefetch(2).map(lambda x: x),
        lambda ds: ds.skip(1).take(50).batch(3).skip(1).take(9).map(lambda x: x, concurrency=2),
        lambda ds: ds.enumerate(7000),
        lambda ds: ds.zip(ps.from_source(list(range(7000, 7100)))),
        lambda ds: ds.mix(ps.from_source(list(range(7000, 7100)))),
    ],
)
@pytest.mark.parametrize("stop", [1, 3])
def test_the_place_of_the_mix_follows_from_the_position_above(above: Callable[[ps.Dataset], ps.Dataset], stop: int) -> None:
    def of(weights: Any) -> ps.Dataset:
        return above(mixed(weights, change=ps.Dataset.repeat))

    head, state = run(of([1, 2, 3]), None, stop)
    assert [entry[0] for entry in state["mix"][0]] == [0]
    between, again = run(of([9, 1, 1]), state, 1, executor="threads", num_workers=1)
    tail, _ = run(of([9, 1, 1]), again, 5, executor="inline")
    for number in range(3):
        own, stream = of_child(number, [*head, *between, *tail]), passes(number, 9)
        assert any(own == stream[first : first + len(own)] for first in range(4))


def full(value: int) -> Any:
    return np.full(1 + value % 4, value)


ABOVE: dict[str, Callable[[ps.Dataset], ps.Dataset]] = {
    "filter": lambda ds: ds.filter(bool).shard_by_rank(rank=0, num_ranks=1).batch(3),
    "flat map": lambda ds: ds.flat_map(full),
    "buffer": lambda ds: ds.flat_map(full).shuffle(6, seed=1),
    "bucket": lambda ds: ds.map(full).bucket_by_length(len, [2, 4], [2, 5, 3], padding_values=0),
    "pack": lambda ds: ds.map(full).pack_sequences(9, num_bins=3).map(lambda row: row["tokens"]).batch(2),
    "ragged": lambda ds: ds.map(full).ragged_batch(3).map(lambda batch: batch["values"]),
}


@pytest.mark.parametrize("name", ABOVE)
@given(st.lists(st.tuples(st.integers(0, 6), WEIGHTS), min_size=1, max_size=4), st.data())
def test_weights_change_below_operators_that_hold_elements(name: str, changes: list[tuple[int, Any]], data: st.DataObject) -> None:
    got, state = list[int](), None
    for count, weights in [*changes, (None, (2, 1, 1))]:
        try:
            items, state = run(ABOVE[name](mixed(weights, "all_exhausted")), state, count, **data.draw(st.sampled_from(OPTIONS)))
        except ps.errors.StateMismatch:  # only where the end was seen
            position = state["position"] if state else {}
            assert position.get("read", [0])[0] == 1 or any(mode for _, mode, *_ in position["folds"])
            return
        got += [int(value) for item in items for value in np.ravel(item) if value]
        if state["epoch"][0]:
            break
    for number in range(3):
        own = [value for value in passes(number, 60) if value for _ in range(1 if name == "filter" else 1 + value % 4)]
        found = sorted(of_child(number, got))
        assert found == sorted(own[: len(found)])


BY_NUMBER: dict[str, Callable[[ps.Dataset], ps.Dataset]] = {
    "filter": lambda ds: ds.filter(by="is_odd"),
    "sorted": lambda ds: ds.sort_window("size", 4),
    "balanced": lambda ds: ds.balance("size", 3).shard_by_rank(rank=0, num_ranks=1),
    "cut": lambda ds: ds.pack_sequences(9, by="size", split=True).map(lambda row: row["tokens"]),
    "packed": lambda ds: ds.pack_sequences(9, by="size").map(lambda row: row["tokens"]).batch(2),
    "bucket": lambda ds: ds.bucket_by_length(by="size", bucket_boundaries=[2, 4], bucket_batch_sizes=[2, 5, 3]),
    "cost": lambda ds: ds.filter(by="is_odd").batch_by_cost("size", 9, pool=7),
}


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[ps.Dataset]]:
    """Measured datasets of 60 arrays each; windows of 8 elements, so that few rows depend on one."""
    sources = [ps.from_source(list(range(1000 * number + 1, 1000 * number + 61))).map(full) for number in range(3)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(planned, "_WINDOW", 8)
        patch.setattr(known, "WIDE_WINDOW", 8)
        folders = [tmp_path_factory.mktemp("numbers") for _ in sources]
        found = [ds.measure(str(to), num_workers=0, size=len, is_odd=odd) for ds, to in zip(sources, folders, strict=True)]
        assert all(len(ds.filter(by="is_odd").pack_sequences(9, by="size")) for ds in found)  # all files are mapped before the tests
        yield found


def odd(value: Any) -> bool:
    return bool(value[0] % 2)


@pytest.mark.parametrize("name", BY_NUMBER)
@given(st.lists(st.tuples(st.integers(0, 3), WEIGHTS), min_size=1, max_size=4), st.data())
def test_weights_and_components_change_below_operators_by_number(
    parts: list[ps.Dataset], name: str, changes: list[tuple[int, Any]], data: st.DataObject
) -> None:
    got, state, num_parts = list[int](), None, 2
    for count, weights in [*changes, (None, (2, 1, 1))]:
        num_parts = max(num_parts, data.draw(st.integers(2, 3)))
        ds = BY_NUMBER[name](parts[0].mix(*parts[1:num_parts], weights=weights[:num_parts]))
        items, state = run(ds, state, count, **data.draw(st.sampled_from(OPTIONS)))
        got += [int(value) for item in items for value in np.ravel(item) if value]
    for number, part in enumerate(parts):
        own = [int(value) for array in part for value in array if value % 2 or name not in ("filter", "cost")]
        found = sorted(of_child(number, got))
        assert found == own[: len(found)]


def dealt_together(plans: Callable[[int], tuple[ps.Dataset, ps.Dataset]]) -> list[int]:
    """Return what two ranks get, which go on with another plan behind two batches; each child gives its own in order."""
    parts = []
    for index in range(2):
        before, behind = plans(index)
        head, state = run(before, None, 2)
        parts.append(head + run(behind, state, None, executor="threads", num_workers=2)[0])
    dealt = [value for step in zip(*parts, strict=True) for row in zip(*step, strict=True) for value in row]
    assert len(dealt) == 48
    for number in range(3):
        own = of_child(number, dealt)
        assert own == passes(number, 9)[: len(own)]
    return dealt


def test_ranks_change_weights_together() -> None:
    def rank(index: int, weights: Any) -> ps.Dataset:
        return mixed(weights, change=ps.Dataset.repeat).take(48).shard(2, index).batch(3, drop_remainder=True)

    dealt = dealt_together(lambda index: (rank(index, [1, 2, 3]), rank(index, [4, 1, 1])))
    assert [len(of_child(number, dealt[:12])) for number in range(3)] == mix_counts([1, 2, 3], 12)
    assert [len(of_child(number, dealt[12:])) for number in range(3)] == mix_counts([4, 1, 1], 36)


@given(st.integers(0, 30), st.integers(0, 9), st.integers(1, 3), WEIGHTS, st.sampled_from(["first_exhausted", "all_exhausted"]), st.data())
def test_a_component_that_is_added_at_the_end_begins_at_its_start_and_the_others_go_on(
    count: int, between: int, size: int, weights: Any, stop: Any, data: st.DataObject
) -> None:
    def of(components: int, weights: Any) -> ps.Dataset:
        first, *others = [child(number) for number in range(components)]
        ds = first.mix(*others, weights=weights[:components], stop=stop)
        return ds.batch(size, drop_remainder=True) if size > 1 else ds

    other = data.draw(WEIGHTS)
    head, state = run(of(2, weights), None, count, **data.draw(st.sampled_from(OPTIONS)))
    assert [len(entry[1]) for entry in state["mix"][0]] == [2]
    assume(state["epoch"][0] == 0)  # else the longer mix begins with the next epoch
    middle, state = run(of(3, weights), state, between, **data.draw(st.sampled_from(OPTIONS)))
    assume(state["epoch"][0] == 0)
    tail, state = run(of(3, other), state, None, **data.draw(st.sampled_from(OPTIONS)))
    got = [head, middle, tail]
    for number in range(3):
        own = of_child(number, got)
        assert own == passes(number, 60)[: len(own)]
        assert number < 2 or not of_child(number, head)
        assert stop == "first_exhausted" or len(own) >= SIZES[number] - size + 1
    assert run(of(3, other), state, None, executor="inline")[0] == []
    flat = [len(of_child(0, part) + of_child(1, part) + of_child(2, part)) for part in got]
    assert [len(of_child(number, head)) for number in range(2)] == mix_counts(weights[:2], flat[0])
    assert [len(of_child(number, middle)) for number in range(3)] == mix_counts(weights, flat[1])


@pytest.mark.parametrize(
    "above",
    [
        lambda ds: ds.batch(4).map(lambda x: x),
        lambda ds: ds.skip(3).batch(2),
        lambda ds: ds.enumerate(7000),
        lambda ds: ds.mix(ps.from_source(list(range(7000, 7100)))),
        lambda ds: ps.from_source(list(range(7000, 7100))).mix(ds),
    ],
)
def test_a_component_may_be_added_below_all_that_lets_the_place_be_known(above: Callable[[ps.Dataset], ps.Dataset]) -> None:
    def of(components: int) -> ps.Dataset:
        first, *others = [child(number).repeat() for number in range(components)]
        return above(first.mix(*others))

    head, state = run(of(2), None, 3)
    between, again = run(of(3), state, 2, executor="threads", num_workers=1)
    tail, _ = run(of(3), again, 5, executor="inline")
    for number in range(2):
        own, stream = of_child(number, [*head, *between, *tail]), passes(number, 9)
        assert any(own == stream[first : first + len(own)] for first in range(4))
    assert not of_child(2, head)
    assert of_child(2, [*between, *tail])[0] in passes(2, 1)[:2]


def test_ranks_get_a_component_more_together() -> None:
    def rank(index: int, components: int) -> ps.Dataset:
        first, *others = [child(number).repeat() for number in range(components)]
        return first.mix(*others).take(48).shard(2, index).batch(3, drop_remainder=True)

    dealt = dealt_together(lambda index: (rank(index, 2), rank(index, 3)))
    assert [len(of_child(number, dealt[12:])) for number in range(3)] == mix_counts([1, 1, 1], 36)


def test_a_component_with_mixes_of_its_own_and_one_more_in_an_inner_mix_are_found() -> None:
    def of(inner: int, *, more: bool) -> ps.Dataset:
        first, *others = [child(number).repeat() for number in range(inner)]
        ds = ps.from_source(list(range(7000, 7100))).mix(first.mix(*others))
        return ps.from_source(list(range(8000, 8100))).mix(ds, *([child(0).repeat().mix(child(1).repeat())] if more else []))

    head, state = run(of(2, more=False), None, 12)
    assert [[len(weights) for _, weights in history] for history in state["mix"]] == [[2], [2], [2]]
    tail, state = run(of(3, more=True), state, 30, executor="threads", num_workers=2)
    assert [[len(weights) for _, weights in history] for history in state["mix"]] == [[2, 3], [2], [2], [2, 3]]
    for number, stream in [(7, list(range(7000, 7100))), (8, list(range(8000, 8100))), (2, passes(2, 9))]:
        own = of_child(number, [*head, *tail])
        assert own == stream[: len(own)]
        assert own


def rows(first: int, count: int = 30) -> ps.Dataset:
    return ps.from_source(list(range(first, first + count)))


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda: rows(0).mix(rows(9000), rows(1000).map(abs)), "in component 2 of the mix sample_crc32 was "),
        (lambda: rows(0).mix(rows(1000), rows(1000).map(abs)), "it had 'map(abs)' where this one has 'mix of 2'"),
        (lambda: rows(9000).map(abs).mix(rows(0), rows(1000)), "component 1 of the mix had 'from_source' where this one has 'map(abs)'"),
        (lambda: rows(0).mix(rows(1000).map(str)), "component 2 of the mix had 'map(abs)' where this one has 'map(str)'"),
    ],
)
def test_another_change_of_the_components_is_refused_with_the_component_that_changed(build: Callable[[], ps.Dataset], words: str) -> None:
    _, state = run(rows(0).mix(rows(1000).map(abs)), None, 5)
    ds = build()
    with pytest.raises(ps.errors.StateMismatch) as refused:
        run(ds, state, 1)
    assert words in refused.value.what
    more = "the mix had 2 components and has 3 now; they can only be added, behind the others"
    assert (more in refused.value.what) == ("mix of 3" in str(ds))


@pytest.mark.parametrize(
    ("left", "words"),
    [
        ([1, 2], "in component 1 of the mix sample_crc32 was "),
        ([0, 2], "in component 2 of the mix sample_crc32 was "),
        ([0, 1], "it had 'from_source' where this one has 'mix of 2'"),
    ],
)
def test_a_component_that_was_removed_is_named(left: list[int], words: str) -> None:
    first, *others = [rows(1000 * number) for number in range(3)]
    _, state = run(first.mix(*others), None, 5)
    first, *others = [rows(1000 * number) for number in left]
    with pytest.raises(ps.errors.StateMismatch) as refused:
        run(first.mix(*others), state, 1)
    assert words in refused.value.what
    assert "the mix had 3 components and has 2 now; they can only be added, behind the others" in refused.value.what


@pytest.mark.parametrize("above", [lambda ds: ds.shuffle(seed=1), lambda ds: ds.repeat(2), lambda ds: ds.filter(bool).repeat(2)])
def test_a_component_is_not_added_below_what_hides_the_place(above: Callable[[ps.Dataset], ps.Dataset]) -> None:
    _, state = run(above(rows(0).mix(rows(1000))), None, 5)
    with pytest.raises(ps.errors.StateMismatch) as refused:
        run(above(rows(0).mix(rows(1000), rows(2000))), state, 1)
    assert refused.value.what.startswith("the mix had 2 components and has 3 now, but how many elements it has given does not follow")
    assert "put shuffle() and repeat() before it" in refused.value.fix


def test_a_mix_that_ended_may_be_longer_in_the_next_epoch() -> None:
    def of(*components: ps.Dataset) -> ps.Dataset:
        return components[0].mix(*components[1:], stop="all_exhausted").batch(4)

    got, state = run(of(rows(0, 9), rows(1000, 9)), None, None)
    assert [len(batch) for batch in got] == [4, 4, 4, 4, 2]
    with of(rows(0, 9), rows(1000, 9), rows(2000, 9)).feed() as feed:
        feed.load_state_dict(state)
        assert feed.epoch == 1
        found = sorted(int(value) for batch in feed for value in batch)
    assert found == [start + number for start in (0, 1000, 2000) for number in range(9)]
