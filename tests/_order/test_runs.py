from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock._order.runs import Recording, Runs, kept

RUN = st.tuples(st.integers(0, 40), st.integers(0, 12)).map(lambda run: (run[0], run[0] + run[1]))
RUNS = st.lists(RUN, max_size=12)


def positions(runs: object) -> list[int]:
    return [position for begin, end in runs for position in range(begin, end)]  # type: ignore[attr-defined]


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


def replayed(recording: Recording, length: int, num_passes: int, most: int, done: list[tuple[int, int]] | None = None) -> list[tuple[int, int]]:
    """Read as a segment does: up to `most` positions at once."""
    out: list[tuple[int, int]] = []
    for number in range(num_passes):
        recording.start((done or []) if number == 0 else ())
        while (run := recording.next(number, length)) != (length, length):
            begin, end = run[0], min(run[1], run[0] + most)
            recording.take(begin, end)
            out += [(number, position) for position in range(begin, end)]
    return out


@given(st.lists(st.tuples(st.integers(0, 2), RUN), max_size=20), st.integers(0, 45), st.integers(1, 7), RUNS)
def test_a_recording_gives_each_position_once_first_those_that_were_recorded_in_their_order(
    recorded: list[tuple[int, tuple[int, int]]], length: int, most: int, done: list[tuple[int, int]]
) -> None:
    recorded = sorted(recorded, key=lambda run: run[0])  # passes are kept apart where they are recorded
    done = [(begin, min(end, length)) for begin, end in done]
    out = replayed(Recording([(number, *run) for number, run in recorded]), length, 3, most, done)
    wanted = []
    for number in range(3):
        seen = set(positions(done)) if number == 0 else set()
        for position in [*positions(run for one, run in recorded if one == number), *range(length)]:
            if position < length and position not in seen:
                seen.add(position)
                wanted.append((number, position))
    assert out == wanted


def test_a_recording_of_an_endless_pass_goes_on_for_ever_behind_its_end() -> None:
    recording = Recording([(0, 4, 6), (0, 0, 4)])
    assert recording.next(0, math.inf) == (4, 6)
    recording.take(4, 6)
    assert recording.next(0, math.inf) == (0, 4)
    recording.take(0, 4)
    assert recording.next(0, math.inf)[0] == 6


@pytest.mark.parametrize(
    ("number", "done", "wanted"),
    [
        (0, [(0, 4)], [(0, 2, 4), (0, 0, 2)]),
        (0, [(0, 1), (3, 9)], [(0, 3, 6), (0, 0, 1)]),
        (1, [(0, 0)], [(0, 2, 6), (0, 0, 2)]),
        (1, [(0, 3), (5, 6)], [(0, 2, 6), (0, 0, 2), (1, 5, 6), (1, 0, 3)]),
        (2, [], [(0, 2, 6), (0, 0, 2), (1, 5, 9), (1, 0, 5)]),
    ],
)
def test_of_a_run_that_is_resumed_only_what_was_delivered_counts(
    number: int, done: list[tuple[int, int]], wanted: list[tuple[int, int, int]]
) -> None:
    assert kept([(0, 2, 6), (0, 0, 2), (1, 5, 9), (1, 0, 5)], number, done) == wanted
