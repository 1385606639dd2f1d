from __future__ import annotations

import math

from hypothesis import example, given
from hypothesis import strategies as st

from penstock._order.runs import Runs

RUN = st.tuples(st.integers(0, 40), st.integers(0, 12)).map(lambda run: (run[0], run[0] + run[1]))
RUNS = st.lists(RUN, max_size=12)


def positions(runs: object) -> list[int]:
    return [position for begin, end in runs for position in range(begin, end)]  # type: ignore[attr-defined]


@example([(3, 5), (0, 3), (5, 6)], [])
@given(RUNS, st.lists(st.integers(0, 60)))
def test_a_set_of_positions_is_held_as_runs_that_do_not_touch(runs: list[tuple[int, int]], left_out: list[int]) -> None:
    made, wanted = Runs(), set()
    for begin, end in runs:
        made.add(begin, end)
        wanted |= set(range(begin, end))
    assert Runs(runs).without(()) == made.without(())
    assert positions(made.without(())) == sorted(wanted)
    assert all(before[1] < after[0] for before, after in zip(made.without(()), made.without(())[1:], strict=False))
    assert [position in made for position in range(60)] == [position in wanted for position in range(60)]
    assert positions(made.without(left_out)) == sorted(wanted - set(left_out))


@given(RUNS, st.integers(0, 60), st.integers(0, 60))
def test_the_gap_is_the_first_run_of_missing_positions(runs: list[tuple[int, int]], position: int, length: int) -> None:
    wanted = set(positions(runs))
    begin, end = Runs(runs).gap(position, length)
    place = position
    while place in wanted:
        place += 1
    if begin == end:
        assert place >= length
        return
    assert begin == place
    assert all(one not in wanted for one in range(begin, end))
    assert end == length or end in wanted


def test_an_endless_gap_goes_on_for_ever() -> None:
    assert Runs([(0, 4)]).gap(2, math.inf) == (4, math.inf)
