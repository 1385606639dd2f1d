"""Rows that are written into batches before the folds have counted them: the same as counted first, and as good as free."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from _engine.stepping import Stepper
from hypothesis import given, settings
from hypothesis import strategies as st
from laws.plans import plain

import penstock as ps
from penstock._engine.chunk import Chunk, Counted, Failure, Token
from penstock._engine.committing import passed_on
from penstock._engine.folding import all_written, taken_out
from penstock._engine.lowering import lower
from penstock._engine.program import Policies, SegmentPlan, writing_in_place
from penstock._engine.segment import rows_in_place
from penstock._ops.block import Block, ElementFailed
from penstock._ops.collation import Stack
from penstock._ops.rows import Rows

SKIPPING = Policies(on_error=ps.Skip(), skips=True)
SEEDS = st.integers(0, 2**32)
BAD = st.frozensets(st.integers(0, 99), max_size=9)
COUNT = 100


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


PLANS: dict[str, Any] = {
    "batches": lambda f, size: numbers().map(f).batch(size),
    "full batches": lambda f, size: numbers().map(f).batch(size, drop_remainder=True),
    "passes": lambda f, size: numbers().map(f).batch(size).repeat(3),
    "passes below": lambda f, size: numbers().map(f).repeat(2).batch(size),
    "stages": lambda f, size: numbers().map(abs, concurrency=2).map(f).map(abs, concurrency=3).batch(size),
    "the first batches": lambda f, size: numbers().map(f).batch(size).repeat(2).take(7),
    "all but the first": lambda f, size: numbers().map(f).batch(size).skip(2),
    "maps above": lambda f, size: numbers().map(f).batch(size).map(np.copy).map(np.copy, concurrency=2),
    "batches that fail too": lambda f, size: numbers().map(f).batch(size).map(f),
    "ragged": lambda f, size: numbers().map(f).map(rows).padded_batch(size).map(first_column),
}


def rows(value: int) -> Any:
    return np.full(1 + value % 3, value)


def first_column(batch: Any) -> Any:
    return batch[:, 0]


def expected(name: str, bad: frozenset[int], size: int) -> list[Any]:
    def groups(values: list[int]) -> list[list[int]]:
        return [values[start : start + size] for start in range(0, len(values), size)]

    good = [value for value in range(COUNT) if value not in bad]
    match name:
        case "full batches":
            return [group for group in groups(good) if len(group) == size]
        case "passes":
            return groups(good) * 3
        case "passes below":
            return groups(good * 2)
        case "the first batches":
            return (groups(good) * 2)[:7]
        case "all but the first":
            return groups(good)[2:]
    return groups(good)


@pytest.mark.slow
@settings(max_examples=2 * settings.default.max_examples)
@given(st.sampled_from(sorted(PLANS)), BAD, st.sampled_from([1, 4, 7, 150]), SEEDS, st.integers(1, 4), st.sampled_from([1, 1 << 28]))
def test_whatever_the_order_of_completion_what_is_left_comes_in_full_batches(
    name: str, bad: frozenset[int], size: int, seed: int, workers: int, memory: int
) -> None:
    stepper = Stepper(PLANS[name](Failing(bad), size), seed, num_workers=workers, memory_bytes=memory, policies=SKIPPING).run()
    assert stepper.error is None
    assert [plain(item) for item in stepper.items] == expected(name, bad, size)
    assert len(set(stepper.claims)) == len(stepper.claims)


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


@pytest.mark.slow
@given(st.sampled_from(sorted(PLANS)), BAD, SEEDS)
def test_the_tokens_are_those_of_elements_that_are_counted_one_by_one(name: str, bad: frozenset[int], seed: int) -> None:
    dataset = PLANS[name](Failing(bad), 4)
    ahead = Stepper(dataset, seed, policies=SKIPPING)
    counted = Stepper(dataset, seed, policies=SKIPPING)
    first = counted.scheduler.segments[0]
    assert first.plan.batch_in_place is not None
    first.plan = replace(first.plan, batch_in_place=None)
    ahead.run()
    counted.run()
    assert ahead.tokens == counted.tokens


@pytest.mark.parametrize("bad", [frozenset(), frozenset({0}), frozenset({1, 2, 3}), frozenset({13, 14})])
def test_rows_are_written_in_place_again_soon_after_one_was_missing(bad: frozenset[int]) -> None:
    copied: set[int] = set()

    class Copies(Stepper):
        def _compute(self) -> bool:
            copied.update(
                task.chunk.seq for *_, task in self._claimed if task.segment == 1 and task.chunk is not None and not task.chunk.all_in_place
            )
            return super()._compute()

    stepper = Copies(numbers().map(Failing(bad)).batch(4), 0, num_workers=1, memory_bytes=1, policies=SKIPPING).run()
    good = [value for value in range(COUNT) if value not in bad]
    assert [plain(item) for item in stepper.items] == [good[start : start + 4] for start in range(0, len(good), 4)]
    assert bool(bad) <= len(copied) <= 8 * bool(bad)


def test_only_batches_of_elements_that_are_read_in_order_are_written_ahead() -> None:
    def ahead(dataset: ps.Dataset, *, skips: bool = True) -> bool:
        return writing_in_place(lower(dataset._root, folded=True, skips=skips)).segments[0].batch_in_place is not None

    assert ahead(numbers().map(abs).batch(4))
    assert ahead(numbers().shuffle(seed=1).batch(4).map(len), skips=False)
    assert not ahead(numbers().map(abs))
    assert not writing_in_place(lower(numbers().batch(4).map(len)._root, folded=True)).segments[0].delivers_directly
    assert not writing_in_place(lower(numbers().batch(4).map(len, concurrency=2)._root, folded=True)).segments[0].delivers_directly
    assert not ahead(numbers().filter(bool).batch(4))
    assert not ahead(ps.from_generator(lambda: iter(range(9))).batch(4))
    assert not ahead(numbers().map(rows).bucket_by_length(len, [2], [4, 4]))
    program = lower(numbers().batch(4)._root)
    assert writing_in_place(program) is program


def plan() -> SegmentPlan:
    return writing_in_place(lower(numbers().batch(4)._root, folded=True, skips=True)).segments[0]


def test_a_chunk_is_some_whole_batches_or_what_is_missing_of_one() -> None:
    assert rows_in_place(plan(), 0, 3, 100) == (12, 4)
    assert rows_in_place(plan(), 0, 3, float("inf")) == (12, 4)
    assert rows_in_place(plan(), 0, 3, 11) == (8, 4)
    assert rows_in_place(plan(), 0, 3, 3) == (3, 0)
    assert rows_in_place(plan(), 1, 3, 100) == (3, 0)
    assert rows_in_place(plan(), 1, 3, 2) == (2, 0)


COUNTED = replace(plan(), delivers_directly=False)


def written(missing: int | None = None) -> Chunk:
    """Return a chunk of two batches of two, written in two parts; a row may be missing."""
    chunk = Chunk(seq=0, pass_number=1, first=6, sizes=None, num_rows=4, batch_rows_in_place=2)
    chunk.rows = Rows([2, 2], None, lambda leaves: [np.empty(shape, dtype) for shape, dtype in leaves], str, Stack())
    for begin, end in ((0, 3), (3, 4)):
        here = np.array([row for row in range(begin, end) if row != missing], np.int64)
        for row in here.tolist():
            chunk.rows.put(row, 10 * row)
        chunk.collected.keys[begin] = Block(np.full(len(here), 1), here + 6, np.zeros(len(here), np.uint64)), here
    return chunk


def test_a_chunk_all_of_whose_rows_are_there_goes_on_with_its_batches() -> None:
    chunk = written()
    rows = chunk.rows
    chunk.result = all_written(COUNTED, chunk)
    assert chunk.all_in_place
    given = passed_on(chunk, Counted(Token((1, 6)), 2))
    assert given.rows is rows
    assert chunk.rows is None
    assert given.all_in_place
    assert (given.sizes, given.num_items, given.num_rows) == ([2, 2], 2, 4)
    assert given.given is not None
    assert given.given.indices.tolist() == [6, 7, 8, 9]
    assert [batch.tolist() for batch in given.rows.finish(2)] == [[0, 10], [20, 30]]
    assert [given.token_after(number).source for number in range(2)] == [(1, 8), (1, 10)]


def test_a_chunk_without_one_of_its_rows_gives_its_elements_back() -> None:
    chunk = written(missing=1)
    assert all_written(COUNTED, chunk) is None
    assert not chunk.all_in_place
    parts = taken_out(chunk)
    assert chunk.rows is None
    assert [(block.rows(), rows.tolist()) for block, rows in parts.values()] == [([0, 20], [0, 2]), ([30], [3])]
    failed = written()
    failed.fail(Failure(2, ValueError(), "map", 0))
    assert all_written(COUNTED, failed) is None


def test_a_chunk_goes_on_finished_where_its_batches_are_all_that_is_wanted() -> None:
    assert plan().delivers_directly
    chunk = written()
    chunk.result = all_written(plan(), chunk)
    given = passed_on(chunk, Counted(Token((1, 6)), 2))
    assert given.result is not None
    assert [batch.tolist() for batch in given.result.items] == [[0, 10], [20, 30]]
    assert given.rows is chunk.rows is None
    uneven = written()
    assert uneven.rows is not None
    rows = uneven.rows
    rows.put(3, "no number")  # kept beside the arrays: the folds may want it, so the next segment makes the batch
    uneven.result = all_written(plan(), uneven)
    assert passed_on(uneven, Counted(Token((1, 6)), 2)).rows is rows
    with pytest.raises(ElementFailed, match="batch"):
        rows.finish(2)
    uneven.rows = rows
    assert [block.rows() for block, _ in taken_out(uneven).values()] == [[0, 10, 20], ["no number"]]


@pytest.mark.parametrize("options", [{"executor": "inline"}, {"num_workers": 2}, {"executor": "inline", "ordered": False}], ids=str)
def test_batches_of_elements_kept_beside_the_arrays_are_cut_where_the_plan_ends(options: dict[str, Any]) -> None:
    batches = ps.from_source(range(5)).map(lambda value: np.arange(value + 1)).padded_batch(2)
    cut = batches if "ordered" in options else batches.take(2)
    with cut.feed(on_error=ps.Skip(), **options) as feed:
        found = [batch.tolist() for batch in feed]
    assert found[:2] == [[[0, 0], [0, 1]], [[0, 1, 2, 0], [0, 1, 2, 3]]]
    with ps.from_source(range(1)).ragged_batch(1).repeat().take(2).feed(on_error=ps.Skip(), executor="inline") as feed:
        assert [batch.tolist() for batch in feed] == [[0], [0]]
