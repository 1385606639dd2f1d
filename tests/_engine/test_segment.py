from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as ps
from penstock._engine.lower import lower
from penstock._engine.segment import Segment, given_unit
from penstock._engine.unit import Failure, Piece, Task, Token, Unit


def segment(dataset: ps.Dataset, *, passes: float = 1, source: tuple[int, int] = (0, 0), number: int = 0) -> Segment:
    return Segment(number, lower(dataset._root).segments[number], passes, Token(source))


def numbers(count: int) -> ps.Dataset:
    return ps.from_source(list(range(count)))


def units(work: Segment, most: int = 1000) -> list[Unit]:
    out = []
    while work.can_open() and len(out) < most:
        out.append(work.open())
        work._current = None
    return out


@given(st.integers(0, 50), st.integers(1, 7), st.booleans(), st.integers(1, 3))
def test_the_units_of_a_pass_are_its_batches_each_once_and_in_order(size: int, batch: int, drop: bool, passes: int) -> None:
    opened = units(segment(numbers(size).batch(batch, drop), passes=passes))
    count = size // batch if drop else -(-size // batch)
    assert sum(unit.num_items for unit in opened) == count * passes
    assert [unit.seq for unit in opened] == list(range(len(opened)))
    assert sum(unit.ends_pass for unit in opened) == passes
    assert opened[-1].ends_pass
    rows = [int(position) for unit in opened if unit.num_rows for position in unit.levels[0][1]]
    assert rows == [row for _ in range(passes) for row in range(min(size, count * batch))]
    assert all(sum(unit.sizes or []) == unit.num_rows for unit in opened)


@given(st.integers(1, 30), st.data())
def test_a_segment_starts_in_the_middle_of_any_pass(size: int, data: st.DataObject) -> None:
    first_pass, position = data.draw(st.integers(0, 2)), data.draw(st.integers(0, size))
    opened = units(segment(numbers(size), passes=3, source=(first_pass, position)))
    rows = [(unit.pass_number, int(row)) for unit in opened if unit.num_rows for row in unit.levels[0][1]]
    assert rows == [(number, row) for number in range(first_pass, 3) for row in range(position if number == first_pass else 0, size)]


def test_an_endless_number_of_passes_never_runs_out() -> None:
    work = segment(numbers(2), passes=math.inf)
    assert len(units(work, most=50)) == 50
    assert work.can_open()


def test_a_cut_pass_ends_with_an_empty_unit_and_the_next_one_begins() -> None:
    work = segment(numbers(100), passes=2)
    first = work.open()
    work._current = None
    work.cut_pass = 0
    cut, following = work.open(), work.open()
    assert (first.pass_number, cut.pass_number, following.pass_number) == (0, 0, 1)
    assert (cut.num_rows, cut.ends_pass) == (0, True)
    assert following.first == 0


@given(st.integers(1, 60), st.integers(1, 6), st.lists(st.integers(1, 10**8), max_size=8))
def test_claims_cover_every_row_of_a_unit_once(size: int, workers: int, costs: list[int]) -> None:
    work = segment(numbers(size).batch(size))
    for cost in costs:
        work.blocks[0].observe(1, cost)
    unit = work.open()
    rows: list[int] = []
    while (task := work.next_rows(workers)) is not None:
        assert task.unit is unit
        rows.extend(range(task.begin, task.end))
    assert rows == list(range(size))
    assert not work.has_rows()


def test_nothing_behind_a_failure_is_claimed_or_opened() -> None:
    work = segment(numbers(8).batch(4))
    unit = work.open()
    task = work.next_rows(4)
    assert task is not None
    unit.fail(Failure(0, ValueError(), "map", 0))
    work.fail(unit)
    assert work.next_rows(4) is None
    assert not work.can_open()
    assert not work.has_rows()


def test_the_lowest_failed_unit_is_kept() -> None:
    work = segment(numbers(8).batch(2))
    first, second = units(work, most=2)
    work.fail(second)
    work.fail(first)
    work.fail(second)
    assert work.failed_seq == first.seq


def test_blocks_behind_a_failure_are_dropped_and_those_before_it_are_given_out() -> None:
    work = segment(numbers(8).map(str, concurrency=2).batch(8))
    unit = work.open()
    last = len(work.plan.stages) - 1
    for begin in (0, 2, 4, 6):
        work.queues[last].append(Task(0, last, unit, begin, begin + 2, None))
    unit.fail(Failure(3, ValueError(), "map", 0))
    work.fail(unit)
    taken = []
    while (task := work.next_block(last)) is not None:
        taken.append(task.begin)
    assert taken == [0, 2]


def test_a_block_that_is_put_back_is_the_next_one() -> None:
    work = segment(numbers(8).map(str, concurrency=2).batch(8))
    unit = work.open()
    last = len(work.plan.stages) - 1
    work.queues[last].extend(Task(0, last, unit, begin, begin + 4, None, 0) for begin in (0, 4))
    task = work.next_block(last)
    assert task is not None
    work.put_back(task)
    assert work.next_block(last) == task


def test_finished_units_come_out_in_order() -> None:
    work = segment(numbers(8).batch(2))
    first, second = units(work, most=2)
    work.finished[second.seq] = second
    assert work.next_finished() is None
    work.finished[first.seq] = first
    assert work.next_finished() is first
    assert work.position() == {"opened": 2, "committed": 0, "waiting": 0}


def test_where_names_the_element_of_a_row_with_its_key() -> None:
    work = segment(numbers(6).shuffle(seed=1).batch(3), source=(0, 0))
    unit = work.open()
    index = numbers(6).shuffle(seed=1)[2]
    words, key = work.where(unit, 2)
    assert key == (0, index)
    assert str(index) in words


@pytest.mark.parametrize("batched", [True, False])
def test_a_given_unit_keeps_values_keys_and_tokens(batched: bool) -> None:
    pieces = [[Piece(f"v{number}", (1, number, 2**63 + number)) for number in group] for group in ([0, 1], [2])]
    if not batched:
        pieces = [[piece] for group in pieces for piece in group]
    tokens = [Token((1, number)) for number in range(len(pieces))]
    unit = given_unit(pieces, batched, tokens, 1, 0)
    assert unit.given is not None
    assert unit.given.rows() == ["v0", "v1", "v2"]
    assert unit.given.lanes.tolist() == [2**63, 2**63 + 1, 2**63 + 2]
    assert unit.given.indices.tolist() == [0, 1, 2]
    assert (unit.sizes, unit.num_items, unit.num_rows) == (([2, 1], 2, 3) if batched else (None, 3, 3))
    assert unit.token_after(1) == tokens[1]


def test_given_units_are_numbered_when_they_are_opened() -> None:
    work = segment(numbers(8).filter(bool).batch(2), number=1)
    assert not work.can_open()
    for _ in range(2):
        work.inbox.append(given_unit([[Piece(1, (0, 0, 0))]], True, [Token((0, 1))], 0, 0))
    assert [unit.seq for unit in units(work)] == [0, 1]
    assert np.array_equal(work.opened, 2)


async def fetch(x: object) -> object:
    return x


def test_a_segment_with_an_async_stage_opens_small_units_and_enough_of_them() -> None:
    work = segment(numbers(1000).map(fetch, concurrency=16))
    for _ in range(20):
        work.blocks[0].observe(work.blocks[0].rows(1 << 40, 1), 1000)
    assert work.widest == 16
    assert work.wanted_units() == 2
    assert {unit.num_rows for unit in units(work, 10)} == {16}
    assert (work.wanted_units(), work.wanted_units(1)) == (4 + 2, 1 + 2)
    single = segment(numbers(1000).map(fetch, concurrency=16).batch(1))
    units(single, 5)
    assert (single.wanted_units(), single.wanted_units(1)) == (64 + 2, 16 + 2)
    assert segment(numbers(10).batch(1)).wanted_units() == 0
