from __future__ import annotations

from typing import Any

import pytest

import penstock as ps
from penstock._engine.chunk import Chunk, Counted, LostElement, Result, Token
from penstock._engine.committing import LeftOut, ReadCount
from penstock._engine.lowering import lower


def chunk_of(
    items: list[Any], first: int = 0, *, ends: bool = False, num_items: int | None = None, lost: tuple[LostElement, ...] = ()
) -> Chunk:
    count = len(items) if num_items is None else num_items
    return Chunk(
        seq=0,
        pass_number=0,
        first=first,
        sizes=None,
        num_rows=count,
        tokens=Counted(Token((0, first)), count),
        ends_pass=ends,
        result=Result(items, None, None),
        lost=list(lost),
    )


def loss(item: int, how: int, limit: int | None = None) -> LostElement:
    return LostElement(item, item, (0, item, 0), "", (), None, how=how, site="on_error", limit=limit, stage="f", error=ValueError("bad"))


@pytest.mark.parametrize(("items", "wrong"), [(6, False), (5, True), (7, True)])
def test_what_was_read_and_skipped_must_add_up_to_what_was_declared(items: int, wrong: bool) -> None:
    plan = lower(ps.from_source(list(range(10)))._root).segments[0]
    count = ReadCount(Token((0, 2)))
    assert count.add(chunk_of([0], 2, num_items=2, lost=(loss(0, 0),)), plan, cut=False) is None
    error = count.add(chunk_of([0] * items, 4, ends=True, num_items=6), plan, cut=False)
    assert (error is not None) == wrong
    if error is not None:
        assert error.what == f"pass 0 declared 10 elements; {3 + items} were read and 1 skipped"
        assert error.where == "the end of the pass"
        assert "please report it" in error.fix
    assert count.add(chunk_of([0] * 3, ends=True), plan, cut=True) is None


def numbers_until_it_is_noticed(watched: LeftOut, period: int, *, lost: int) -> int | None:
    """Take chunks of 5 items of an endless repeat, `lost` of each left out by Skip and the others by a filter."""
    for number in range(1000):
        if watched.add(chunk_of([], 5 * number, num_items=5, lost=tuple(loss(item, 0) for item in range(lost)))) is not None:
            return (5 * number + 5) // period
    return None


def test_an_endless_repeat_of_what_is_all_left_out_is_noticed_after_two_passes_and_many_elements() -> None:
    assert numbers_until_it_is_noticed(LeftOut(10, 0, random=False), 10, lost=5) == 30
    assert numbers_until_it_is_noticed(LeftOut(500, 0, random=False), 500, lost=5) == 2
    assert numbers_until_it_is_noticed(LeftOut(500, 0, random=True), 500, lost=5) == 2


def test_one_element_that_is_left_begins_the_count_anew() -> None:
    watched = LeftOut(5, 0, random=False)
    all_lost = chunk_of([], num_items=5, lost=tuple(loss(item, 0) for item in range(5)))
    for number in range(400):
        some = chunk_of(["a"], 5 * number, num_items=5, lost=tuple(loss(item, 0) for item in range(4)))
        all_lost.tokens = Counted(Token((0, 5 * number)), 5)
        assert watched.add(some if number % 50 == 0 else all_lost) is None
