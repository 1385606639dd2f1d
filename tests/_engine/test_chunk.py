from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from penstock._engine.chunk import Chunk, Claim, Counted, Failure, Token


def chunk(sizes: list[int] | None = None, rows: int = 10, **fields: Any) -> Chunk:
    return Chunk(
        seq=0,
        pass_number=2,
        first=30,
        sizes=sizes,
        num_rows=rows if sizes is None else sum(sizes),
        **fields,
    )


def book(work: Chunk, begin: int, end: int) -> None:
    work.progress.done.append((begin, end))
    work.progress.num_done += end - begin


def failure(at: int) -> Failure:
    return Failure(at, ValueError(at), "map", 0)


def test_a_new_chunk_wants_all_of_its_rows() -> None:
    fresh = chunk([4, 4, 2])
    assert fresh.progress.limit == 10
    assert not fresh.rows_complete()
    assert fresh.good_items() == fresh.good_count() == 3


def test_a_chunk_without_rows_is_complete() -> None:
    assert chunk([]).rows_complete()


@given(st.permutations(range(10)), st.integers(1, 10))
def test_a_chunk_is_complete_when_its_last_row_is_done_whatever_the_order(order: list[int], stop: int) -> None:
    work = chunk()
    for row in order[:stop]:
        assert not work.rows_complete()
        book(work, row, row + 1)
    assert work.rows_complete() == (stop == 10)


@given(st.lists(st.integers(0, 9), min_size=1, max_size=5))
def test_the_lowest_failing_row_is_kept_whatever_came_first(rows: list[int]) -> None:
    work = chunk()
    for row in rows:
        work.fail(failure(row))
    assert work.progress.failure is not None
    assert work.progress.failure.at == work.progress.limit == min(rows)


@given(st.lists(st.integers(1, 5), min_size=1, max_size=6), st.data())
def test_a_failure_leaves_the_items_all_of_whose_rows_come_before_it(sizes: list[int], data: st.DataObject) -> None:
    work = chunk(sizes)
    row = data.draw(st.integers(0, work.num_rows - 1))
    work.fail(failure(row))
    ends = np.cumsum(sizes).tolist()
    assert work.good_items() == sum(end <= row for end in ends)
    assert work.item_of(row) == work.good_items()


def test_rows_behind_a_failure_need_not_be_done() -> None:
    work = chunk()
    book(work, 0, 4)
    work.fail(failure(4))
    assert work.rows_complete()
    assert work.good_items() == 4
    assert work.item_of(7) == 7


def test_the_items_before_a_tail_failure_are_counted() -> None:
    assert chunk([5, 5], tail=failure(1)).good_count() == 1


def test_the_token_after_an_item_is_its_own_or_counts_positions() -> None:
    assert chunk([5, 5]).token_after(0) == Token((2, 31))
    tokens = [Token((0, 1)), Token((0, 7))]
    assert chunk([5, 5], tokens=tokens).token_after(1) == Token((0, 7))


def test_chunks_are_compared_by_identity_and_tasks_are_values() -> None:
    one, other = chunk(), chunk()
    assert one != other
    assert Claim(0, 0, one, 0, 5, None) == Claim(0, 0, one, 0, 5, None)


def test_the_place_behind_an_item_counts_on_or_is_listed_or_is_that_of_the_source() -> None:
    assert chunk().token_after(3) == Token((2, 34))
    listed = [Token((2, place)) for place in (7, 9)]
    assert chunk([5, 5], tokens=listed).token_after(1) == listed[1]
    assert chunk([5, 5], tokens=Counted(Token((2, 30)), 5)).token_after(1) == Token((2, 40))
    assert Counted(Token((2, 30))).behind(2) == Token((2, 32))
