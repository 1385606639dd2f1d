"""Skip shortens its batch: a plan makes the same batches with it, and every place resumes, whatever is finished first."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from _engine.stepping import Stepper
from hypothesis import given, settings
from hypothesis import strategies as st
from laws.plans import plain

import penstock as ps
from penstock._engine.chunk import Token
from penstock._engine.program import Policies

SKIPPING = Policies(on_error=ps.Skip(), skips=True)
SEEDS = st.integers(0, 2**32)
BAD = st.frozensets(st.integers(0, 39), max_size=9) | st.integers(0, 39).map(lambda first: frozenset(range(first, first + 9)))
COUNT = 40


def numbers() -> ps.Dataset:
    return ps.from_source(list(range(COUNT)))


class Failing:
    """A map function that fails at some values."""

    def __init__(self, bad: frozenset[int]) -> None:
        self.bad = bad

    def __call__(self, value: Any) -> Any:
        if int(np.max(value)) in self.bad:
            raise ValueError(f"bad {value}")
        return value


def rows(value: int) -> Any:
    return np.full(1 + value % 3, value)


def first_column(batch: Any) -> Any:
    return batch[:, 0]


def copied(batch: Any) -> Any:
    return np.array(batch)


PLANS: dict[str, Any] = {
    "batches": lambda f, size: numbers().map(f).batch(size),
    "full batches": lambda f, size: numbers().map(f).batch(size, drop_remainder=True),
    "passes": lambda f, size: numbers().map(f).batch(size).repeat(3),
    "passes below": lambda f, size: numbers().map(f).repeat(2).batch(size),
    "stages": lambda f, size: numbers().map(abs, concurrency=2).map(f).map(abs, concurrency=3).batch(size),
    "the first batches": lambda f, size: numbers().map(f).batch(size).repeat(2).take(7),
    "all but the first": lambda f, size: numbers().map(f).batch(size).skip(2),
    "maps above": lambda f, size: numbers().map(f).batch(size).map(copied).map(copied, concurrency=2),
    "ragged": lambda f, size: numbers().map(f).map(rows).padded_batch(size).map(first_column),
    "a filter above": lambda f, size: numbers().map(f).batch(size).filter(len),
    "lists": lambda f, size: numbers().map(f).batch(size, collate_fn=list),
    "inside a branch": lambda f, size: numbers().map(f).batch(size).concatenate(numbers().map(f).batch(size)),
    "inside a cache": lambda f, size: numbers().map(f).batch(size).cache(),
}


def expected(name: str, bad: frozenset[int], size: int) -> list[Any]:
    def groups(values: list[int], *, full: bool = False) -> list[list[int]]:
        made = [values[start : start + size] for start in range(0, len(values), size)]
        return [group for group in made if len(group) == size or not full]

    values = list(range(COUNT))
    match name:
        case "full batches":
            made = groups(values, full=True)
        case "passes":
            made = groups(values) * 3
        case "passes below":
            made = groups(values * 2)
        case "the first batches":
            made = (groups(values) * 2)[:7]
        case "all but the first":
            made = groups(values)[2:]
        case "inside a branch":
            made = groups(values) * 2
        case _:
            made = groups(values)
    short = [[value for value in group if value not in bad] for group in made]
    return [group for group in short if group]


@settings(max_examples=2 * settings.default.max_examples)
@given(st.sampled_from(sorted(PLANS)), BAD, st.sampled_from([1, 4, 7, 150]), SEEDS, st.integers(1, 4), st.sampled_from([1, 1 << 28]))
def test_batches_are_those_of_the_plan_without_what_failed(
    name: str, bad: frozenset[int], size: int, seed: int, workers: int, memory: int
) -> None:
    stepper = Stepper(PLANS[name](Failing(bad), size), seed, num_workers=workers, memory_bytes=memory, policies=SKIPPING).run()
    assert stepper.error is None
    assert [plain(item) for item in stepper.items] == expected(name, bad, size)
    assert len(set(stepper.claims)) == len(stepper.claims) or memory == 1  # what there was no room for is claimed again


@settings(max_examples=2 * settings.default.max_examples)
@given(st.sampled_from(sorted(PLANS)), BAD, st.sampled_from([4, 7]), SEEDS, SEEDS, st.data())
def test_the_token_after_any_batch_resumes_right_behind_it(
    name: str, bad: frozenset[int], size: int, seed: int, other: int, data: st.DataObject
) -> None:
    whole, dataset = expected(name, bad, size), PLANS[name](Failing(bad), size)
    stop = data.draw(st.integers(0, len(whole)))
    stepper = Stepper(dataset, seed, policies=SKIPPING).run(most_items=stop)
    token = stepper.tokens[stop - 1] if stop else Token((0, 0))
    again = Stepper(dataset, other, num_workers=2, start=token, policies=SKIPPING).run()
    assert [plain(item) for item in again.items] == whole[stop:]


@settings(max_examples=2 * settings.default.max_examples)
@given(st.sampled_from(sorted(PLANS)), BAD, st.sampled_from([4, 7]), SEEDS, SEEDS, st.booleans(), st.data())
def test_without_order_the_same_batches_come_and_the_token_after_any_names_the_others(
    name: str, bad: frozenset[int], size: int, seed: int, other: int, then: bool, data: st.DataObject
) -> None:
    whole, dataset = expected(name, bad, size), PLANS[name](Failing(bad), size)
    stop = data.draw(st.integers(0, len(whole)))
    stepper = Stepper(dataset, seed, policies=SKIPPING, ordered=False).run(most_items=stop)
    items = stepper.items[:stop]
    token = stepper.tokens[stop - 1] if stop else Token((0, 0))
    again = Stepper(dataset, other, num_workers=2, start=token, policies=SKIPPING, ordered=then).run()
    assert sorted(plain(item) for item in [*items, *again.items]) == sorted(whole)


@pytest.mark.parametrize("options", [{"executor": "inline"}, {"executor": "threads"}, {"executor": "inline", "ordered": False}], ids=str)
def test_batches_of_elements_kept_beside_the_arrays_are_cut_where_the_plan_ends(options: dict[str, Any]) -> None:
    batches = ps.from_source(range(5)).map(lambda value: np.arange(value + 1)).padded_batch(2)
    cut = batches if "ordered" in options else batches.take(2)
    with cut.feed(on_error=ps.Skip(), **options) as feed:
        found = [batch.tolist() for batch in feed]
    assert found[:2] == [[[0, 0], [0, 1]], [[0, 1, 2, 0], [0, 1, 2, 3]]]
    with ps.from_source(range(1)).ragged_batch(1).repeat().take(2).feed(on_error=ps.Skip(), executor="inline") as feed:
        assert [batch.tolist() for batch in feed] == [[0], [0]]
