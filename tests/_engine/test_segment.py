from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import penstock as ps
from penstock._engine.chunk import IN_ORDER, Chunk, Claim, Completed, Failure, KeyedElement, Token
from penstock._engine.committing import given_chunk
from penstock._engine.lowering import lower
from penstock._engine.segment import Segment
from penstock._order.runs import Runs


def segment(dataset: ps.Dataset, *, passes: float = 1, source: tuple[int, int] = (0, 0), number: int = 0) -> Segment:
    return Segment(number, lower(dataset._root).segments[number], passes, Token(source), at_once=False, elsewhere=False)


def numbers(count: int) -> ps.Dataset:
    return ps.from_source(list(range(count)))


def chunks(work: Segment, most: int = 1000) -> list[Chunk]:
    out = []
    while work.can_open() and len(out) < most:
        out.append(work.open())
        work._current = None
    return out


@given(st.integers(0, 50), st.integers(1, 7), st.booleans(), st.integers(1, 3))
def test_the_chunks_of_a_pass_are_its_batches_each_once_and_in_order(size: int, batch: int, drop: bool, passes: int) -> None:
    opened = chunks(segment(numbers(size).batch(batch, drop), passes=passes))
    count = size // batch if drop else -(-size // batch)
    assert sum(chunk.num_items for chunk in opened) == count * passes
    assert [chunk.seq for chunk in opened] == list(range(len(opened)))
    assert sum(chunk.ends_pass for chunk in opened) == passes
    assert opened[-1].ends_pass
    rows = [int(position) for chunk in opened if chunk.num_rows for position in chunk.positions.rows[0][1]]
    assert rows == [row for _ in range(passes) for row in range(min(size, count * batch))]
    assert all(sum(chunk.sizes or []) == chunk.num_rows for chunk in opened)


@given(st.integers(1, 30), st.data())
def test_a_segment_starts_in_the_middle_of_any_pass(size: int, data: st.DataObject) -> None:
    first_pass, position = data.draw(st.integers(0, 2)), data.draw(st.integers(0, size))
    opened = chunks(segment(numbers(size), passes=3, source=(first_pass, position)))
    rows = [(chunk.pass_number, int(row)) for chunk in opened if chunk.num_rows for row in chunk.positions.rows[0][1]]
    assert rows == [(number, row) for number in range(first_pass, 3) for row in range(position if number == first_pass else 0, size)]


def test_an_endless_number_of_passes_never_runs_out() -> None:
    work = segment(numbers(2), passes=math.inf)
    assert len(chunks(work, most=50)) == 50
    assert work.can_open()


def test_a_cut_pass_ends_with_an_empty_chunk_and_the_next_one_begins() -> None:
    work = segment(numbers(100), passes=2)
    first = work.open()
    work._current = None
    work.cut_pass = 0
    cut, following = work.open(), work.open()
    assert (first.pass_number, cut.pass_number, following.pass_number) == (0, 0, 1)
    assert (cut.num_rows, cut.ends_pass) == (0, True)
    assert following.first == 0


@given(st.integers(1, 60), st.integers(1, 6), st.lists(st.integers(1, 10**8), max_size=8))
def test_claims_cover_every_row_of_a_chunk_once(size: int, workers: int, costs: list[int]) -> None:
    work = segment(numbers(size).batch(size))
    for cost in costs:
        work.blocks[0].observe(1, cost)
    chunk = work.open()
    rows: list[int] = []
    while (task := work.next_rows(workers)) is not None:
        assert task.chunk is chunk
        rows.extend(range(task.begin, task.end))
    assert rows == list(range(size))
    assert not work.has_rows()


def test_nothing_behind_a_failure_is_claimed_or_opened() -> None:
    work = segment(numbers(8).batch(4))
    chunk = work.open()
    task = work.next_rows(4)
    assert task is not None
    chunk.fail(Failure(0, ValueError(), "map", 0))
    work.fail(chunk)
    assert work.next_rows(4) is None
    assert not work.can_open()
    assert not work.has_rows()


def test_the_lowest_failed_chunk_is_kept() -> None:
    work = segment(numbers(8).batch(2))
    first, second = chunks(work, most=2)
    work.fail(second)
    work.fail(first)
    work.fail(second)
    assert work.failed_seq == first.seq


def test_blocks_behind_a_failure_are_dropped_and_those_before_it_are_given_out() -> None:
    work = segment(numbers(8).map(str, concurrency=2).batch(8))
    chunk = work.open()
    last = len(work.plan.stages) - 1
    for begin in (0, 2, 4, 6):
        work.queues[last].append(Claim(0, last, chunk, begin, begin + 2, None))
    chunk.fail(Failure(3, ValueError(), "map", 0))
    work.fail(chunk)
    taken = []
    while (task := work.waiting_block(last)) is not None:
        work.queues[last].remove(task)
        taken.append(task.begin)
    assert taken == [0, 2]


def test_a_block_that_is_put_back_is_the_next_one() -> None:
    work = segment(numbers(8).map(str, concurrency=2).batch(8))
    chunk = work.open()
    last = len(work.plan.stages) - 1
    work.queues[last].extend(Claim(0, last, chunk, begin, begin + 4, None, 0) for begin in (0, 4))
    task = work.queues[last].popleft()
    work.put_back(task)
    assert work.waiting_block(last) is task


def test_finished_chunks_come_out_in_order() -> None:
    work = segment(numbers(8).batch(2))
    first, second = chunks(work, most=2)
    work.finished[second.seq] = second
    assert work.next_finished() is None
    work.finished[first.seq] = first
    assert work.next_finished() is first
    assert work.position() == {"opened": 2, "committed": 0, "waiting": 0}


def test_where_names_the_element_of_a_row_with_its_key() -> None:
    work = segment(numbers(6).shuffle(seed=1).batch(3), source=(0, 0))
    chunk = work.open()
    index = numbers(6).shuffle(seed=1)[2]
    words, key = work.where(chunk, 2)
    assert key == (0, index)
    assert str(index) in words


def test_given_chunks_are_numbered_when_they_are_opened() -> None:
    work = segment(numbers(8).filter(bool).batch(2), number=1)
    assert not work.can_open()
    for _ in range(2):
        work.inbox.append(given_chunk([[KeyedElement(1, (0, 0, 0))]], True, [Token((0, 1))], 0, 0))
    assert [chunk.seq for chunk in chunks(work)] == [0, 1]
    assert np.array_equal(work.opened, 2)


async def fetch(x: object) -> object:
    return x


def test_a_segment_with_an_async_stage_opens_small_chunks_and_enough_of_them() -> None:
    work = segment(numbers(1000).map(fetch, concurrency=16))
    for _ in range(20):
        for block in work.blocks:
            block.observe(block.rows(1 << 40, 1), 1000)
    assert work.max_stage_concurrency == 16
    assert work.wanted_chunks() == 2
    assert {chunk.num_rows for chunk in chunks(work, 10)} == {16}
    assert (work.wanted_chunks(), work.wanted_chunks(1)) == (4 + 2, 1 + 2)
    single = segment(numbers(1000).map(fetch, concurrency=16).batch(1))
    chunks(single, 5)
    assert (single.wanted_chunks(), single.wanted_chunks(1)) == (64 + 2, 16 + 2)
    assert segment(numbers(10).batch(1)).wanted_chunks() == 0


# -- completion order -------------------------------------------------------------------------------------------------------------


def unordered(count: int, passes: float = 1, done: Completed = IN_ORDER, position: int = 0, *, ordered: bool = False) -> Segment:
    plan = replace(lower(numbers(count)._root).segments[0], unordered=not ordered)
    return Segment(0, plan, passes, Token((0, position), done=done), at_once=False, elsewhere=False)


def positions(opened: list[Chunk]) -> list[tuple[int, int]]:
    return [(chunk.pass_number, chunk.first + number) for chunk in opened for number in range(chunk.num_items)]


@given(st.integers(1, 30), st.integers(1, 3), st.randoms(use_true_random=False))
def test_chunks_finished_in_any_order_are_committed_as_they_come_but_the_end_of_a_pass_waits(size: int, passes: int, chance: Any) -> None:
    work = unordered(size, passes)
    opened = chunks(work)
    chance.shuffle(opened)
    committed: list[Chunk] = []
    for chunk in opened:
        work.finished[chunk.seq] = chunk
        while (one := work.next_finished()) is not None:
            work.commit(one)
            committed.append(one)
        known = {one.seq for one in committed}
        assert work.lowest == next(seq for seq in range(len(opened) + 1) if seq not in known)
        ends = [one.seq for one in opened if one.ends_pass and one.seq not in known]
        border = min(ends, default=len(opened))
        assert all(seq >= border for seq in work.finished)  # nothing that could go waits
    assert len(committed) == len(opened)
    assert work.rows_open == 0
    numbers_of_passes = [one.pass_number for one in committed]
    assert numbers_of_passes == sorted(numbers_of_passes)
    assert all(one.ends_pass == (one is committed[-1] or following != one.pass_number) for one, following in zip(
        committed, [*numbers_of_passes[1:], -1], strict=True))  # fmt: skip


@given(st.integers(0, 40), st.lists(st.tuples(st.integers(0, 39), st.integers(1, 9)), max_size=8), st.integers(0, 40), st.integers(1, 2))
def test_what_an_earlier_run_delivered_is_left_out_of_its_pass_and_of_no_other(
    size: int, runs: list[tuple[int, int]], position: int, passes: int
) -> None:
    position = min(position, size)
    delivered = {place for begin, length in runs for place in range(begin, begin + length) if position <= place < size}
    done = Runs((place, place + 1) for place in delivered).without(())
    for ordered in (True, False):
        opened = chunks(unordered(size, passes, Completed(done), position, ordered=ordered))
        assert positions(opened) == [
            (number, place) for number in range(passes) for place in range(size) if number or (place >= position and place not in delivered)
        ]
        assert sum(chunk.ends_pass for chunk in opened) == passes


@st.composite
def resumed(draw: Any) -> tuple[int, Completed, list[tuple[int, int]], list[tuple[int, int]]]:
    """Draw the size of three passes, what was delivered, and the positions that come first, and those behind them."""
    size = draw(st.integers(1, 20))
    delivered = draw(st.frozensets(st.integers(1, size), max_size=size))
    left = [(number, place) for number in range(3) for place in range(size) if number or place not in delivered]
    first = [one for one in draw(st.permutations(left)) if draw(st.booleans())]
    first.sort(key=lambda one: one[0])
    runs: list[tuple[int, int, int]] = []
    for number, place in first:
        if runs and runs[-1][0] == number and runs[-1][2] == place and draw(st.booleans()):
            runs[-1] = (number, runs[-1][1], place + 1)
        else:
            runs.append((number, place, place + 1))
    done = Runs((place, place + 1) for place in delivered if place < size).without(())
    return size, Completed(done, tuple(runs)), first, [one for one in left if one not in first]


@given(resumed(), st.booleans())
def test_what_is_taken_again_is_opened_first_in_its_pass_and_each_position_once(case: Any, ordered: bool) -> None:
    size, done, first, others = case
    opened = chunks(unordered(size, 3, done, ordered=ordered))
    assert positions(opened) == [one for number in range(3) for part in (first, others) for one in part if one[0] == number]
    assert [chunk.pass_number for chunk in opened if chunk.ends_pass] == [0, 1, 2]


@given(resumed(), st.randoms(use_true_random=False))
def test_what_is_taken_again_is_committed_in_its_order_whatever_is_finished_first(case: Any, chance: Any) -> None:
    size, done, first, others = case
    work = unordered(size, 3, done)
    opened = chunks(work)
    chance.shuffle(opened)
    committed: list[Chunk] = []
    for chunk in opened:
        work.finished[chunk.seq] = chunk
        while (one := work.next_finished()) is not None:
            work.commit(one)
            committed.append(one)
    came = positions(committed)
    assert sorted(came) == sorted(first + others)
    for number in range(3):
        wanted = [one for one in first if one[0] == number]
        assert [one for one in came if one[0] == number][: len(wanted)] == wanted
    assert [chunk.pass_number for chunk in committed if chunk.ends_pass] == [0, 1, 2]


def test_a_cut_pass_ends_although_some_of_it_was_to_be_taken_again() -> None:
    work = unordered(9, 2, Completed((), ((0, 4, 6), (0, 1, 2), (1, 8, 9))))
    first = work.open()
    assert positions([first]) == [(0, 4)]
    work._current, work.cut_pass = None, 0
    rest = chunks(work)
    assert (rest[0].num_items, rest[0].ends_pass) == (0, True)
    assert positions(rest)[0] == (1, 8)
    for chunk in (first, *rest):
        work.finished[chunk.seq] = chunk
        work.commit(chunk)
    assert work.next_finished() is None
