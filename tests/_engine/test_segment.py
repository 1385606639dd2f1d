from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

import penstock as ps
from penstock._engine.chunk import IN_ORDER, Chunk, Completed, Token
from penstock._engine.lowering import lower
from penstock._engine.segment import Segment
from penstock._order.runs import Runs


def numbers(count: int) -> ps.Dataset:
    return ps.from_source(list(range(count)))


def chunks(work: Segment, most: int = 1000) -> list[Chunk]:
    out = []
    while work.can_open() and len(out) < most:
        out.append(work.open())
        work._current = None
    return out


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
