from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

import penstock as ps
from penstock._engine.chunk import IN_ORDER, Chunk, Claim, Completed, Failure, Token
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
