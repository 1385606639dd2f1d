"""Whatever the order in which tasks complete, what comes out is the reference sequence: schedules at random, without threads."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from _engine.stepping import Stepper
from hypothesis import given, settings
from hypothesis import strategies as st
from laws.plans import Plan, plain, plans

import penstock as ps
from penstock._engine.chunk import Token
from penstock._engine.lowering import lower
from penstock._engine.scheduler import Scheduler
from penstock._engine.segment import READER, SHARED
from penstock._ops.block import UNLIMITED

SEEDS = st.integers(0, 2**32)


def items(stepper: Stepper) -> list[Any]:
    return [plain(item) for item in stepper.items]


def double(x: Any) -> Any:
    return x * 2


@settings(max_examples=3 * settings.default.max_examples)
@given(plans(), SEEDS, st.integers(1, 5), st.integers(0, 3), st.booleans())
def test_whatever_the_order_of_completion_the_reference_sequence_comes_out(
    plan: Plan, seed: int, workers: int, keep: int, ordered: bool
) -> None:
    stepper = Stepper(plan.dataset, seed, num_workers=workers, keep=keep, ordered=ordered).run()
    stepper.close()
    assert stepper.error is None
    assert items(stepper) == plan.everything() if ordered else Counter(map(repr, items(stepper))) == Counter(map(repr, plan.everything()))
    assert len(set(stepper.claims)) == len(stepper.claims)


@settings(max_examples=3 * settings.default.max_examples)
@given(plans(), SEEDS, SEEDS, st.data())
def test_the_token_after_any_item_resumes_right_behind_it(plan: Plan, seed: int, other: int, data: st.DataObject) -> None:
    whole = plan.everything()
    stop = data.draw(st.integers(0, len(whole)))
    stepper = Stepper(plan.dataset, seed).run(most_items=stop)
    token = stepper.tokens[stop - 1] if stop else Token((0, 0))
    assert items(stepper)[:stop] == whole[:stop]
    stepper.close()
    again = Stepper(plan.dataset, other, num_workers=2, start=token).run()
    assert items(again) == whole[stop:]


async def later(x: Any) -> Any:
    return x


def test_elements_that_are_awaited_come_alone_out_of_large_chunks_and_none_waits_behind_more_than_one_commit() -> None:
    for seed in range(2):
        for ds in (
            ps.from_generator(lambda: iter(range(100))).map(later),
            ps.from_source(range(100)).shuffle(buffer_size=9, seed=seed).map(later),
        ):
            stepper = Stepper(ds, seed, num_workers=2).run()
            assert len(stepper.items) == 100


class Refused(Exception):
    """A user's error."""


def failing(bad: frozenset[int]) -> Any:
    def look(x: Any) -> Any:
        if int(x) in bad:
            raise Refused(int(x))
        return x

    return look


BAD = st.frozensets(st.integers(0, 59), min_size=1, max_size=8)


def build(kind: str, bad: frozenset[int], batch: int) -> tuple[ps.Dataset, list[int]]:
    """Return a dataset that fails at the elements `bad`, and the order in which elements come without the failure."""
    ds, order = ps.from_source(list(range(60))), list(range(60))
    if "shuffled" in kind:
        order = [ps.from_source(order).shuffle(seed=3)[place] for place in range(60)]
        ds = ds.shuffle(seed=3)
    if "generator" in kind:
        ds = ps.from_generator(lambda: iter(range(60)))
    if "bad source" in kind:
        ds = ds.map(failing(bad), concurrency=None)
    if "sifted" in kind:
        ds, order = ds.filter(lambda x: x % 3 != 0), [x for x in order if x % 3 != 0]
    if "bad filter" in kind:
        look = failing(bad)
        ds = ds.filter(lambda x: look(x) is not None)
    if "bad map" in kind:
        ds = ds.map(failing(bad))
    if "bad pool" in kind:
        ds = ds.map(failing(bad), concurrency=2)
    return (ds.batch(batch) if batch else ds), order


KINDS = [
    "shuffled bad map",
    "shuffled bad filter",
    "generator sifted bad pool",
    "shuffled bad source sifted",
]


@pytest.mark.parametrize("kind", KINDS)
@given(BAD, st.sampled_from([0, 1, 4, 7]), SEEDS, st.integers(1, 4))
def test_the_first_failure_in_order_wins_and_everything_before_it_is_delivered(
    kind: str, bad: frozenset[int], batch: int, seed: int, workers: int
) -> None:
    dataset, order = build(kind, bad, batch)
    # "bad source" looks at all elements, also at those that the filter would drop.
    seen = list(range(60)) if kind == "bad source sifted" else order
    if kind == "shuffled bad source sifted":
        seen = [ps.from_source(list(range(60))).shuffle(seed=3)[place] for place in range(60)]
    first = next((x for x in seen if x in bad), None)
    stepper = Stepper(dataset, seed, num_workers=workers).run()
    before = set(seen[: seen.index(first)]) if first is not None else set(seen)
    good = [x for x in order if x in before]
    if batch:
        whole = len(good) // batch if first is not None else -(-len(good) // batch)
        expected: list[Any] = [good[number * batch : (number + 1) * batch] for number in range(whole)]
    else:
        expected = good
    assert items(stepper) == expected
    if first is None:
        assert stepper.error is None
    else:
        assert stepper.error is not None
        assert isinstance(stepper.error.error, Refused)
        assert stepper.error.error.args == (first,)
        assert stepper.scheduler.failures


@given(st.integers(1, 6), SEEDS)
def test_chunks_in_flight_are_bounded_although_nobody_takes_them(workers: int, seed: int) -> None:
    stepper = Stepper(ps.from_source(list(range(10_000))).batch(2), seed, num_workers=workers)
    stepper.fill()
    assert stepper.items == []
    assert 1 <= stepper.most_in_flight <= 2 * workers + 2


@given(SEEDS)
def test_a_byte_budget_of_nothing_still_leaves_three_batches(seed: int) -> None:
    stepper = Stepper(ps.from_source(list(range(200))).batch(4), seed, num_workers=4, memory_bytes=1)
    stepper.run()
    assert len(stepper.items) == 50
    assert stepper.most_in_flight <= 3


def test_prefetch_lets_more_chunks_be_ready() -> None:
    dataset = ps.from_source(list(range(2000))).map(double).batch(2)
    few, many = Stepper(dataset, 1, num_workers=1), Stepper(dataset.prefetch(30), 1, num_workers=1)
    for stepper in (few, many):
        stepper.run(most_items=2)
        stepper.fill()
    assert few.most_in_flight <= 4
    assert 25 <= many.most_in_flight <= 32


def test_rows_that_take_next_to_nothing_do_not_bound_a_task() -> None:
    scheduler = Scheduler(lower(ps.from_source(range(9)).batch(3)._root), 2, 1 << 20, Token((0, 0)))
    segment = scheduler.segments[0]
    segment.row_bytes[0] = 1e-310  # each look halves what was found once: what is left is too small to be divided by
    assert scheduler._most_rows(segment, 1 << 20) == UNLIMITED


def test_the_buffers_before_the_later_stages_are_told_with_what_fits_in() -> None:
    dataset = ps.from_source(range(9)).map(double).map(double, concurrency=5, name="second")
    scheduler = Scheduler(lower(dataset._root), 3, 1 << 20, Token((0, 0)))
    assert [(fill.name, fill.size, fill.capacity) for fill in scheduler.fills()] == [("ready", 0, 8), ("before_second", 0, 13)]


def test_the_claim_of_a_read_is_put_back_with_its_room() -> None:
    scheduler = Scheduler(lower(ps.from_generator(lambda: iter(range(3)))._root), 3, 1 << 20, Token((0, 0)))
    task = scheduler.next_task(READER, 0)
    assert task is not None
    held = scheduler.held_bytes
    assert scheduler.next_task(READER, 0) is None
    assert scheduler.put_back(task)
    assert scheduler.held_bytes < held
    assert scheduler.next_task(READER, 0) == task
    assert scheduler.reader is not None
    scheduler.reader.read(1)
    assert not scheduler.put_back(task)  # it has been read


def test_a_claim_that_is_put_back_is_given_out_again() -> None:
    scheduler = Scheduler(lower(ps.from_source(list(range(8))).batch(2)._root), 1, 1 << 20, Token((0, 0)))
    task = scheduler.next_task(SHARED, 0)
    assert task is not None
    scheduler.put_back(task)
    again = scheduler.next_task(SHARED, 0)
    assert again is not None
    assert (again.chunk, again.begin, again.end) == (task.chunk, task.begin, task.end)
