from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from penstock._storage.remote import plan_ranges

spans = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3000), st.integers(0, 400)), max_size=40)


@given(spans, st.integers(0, 300), st.integers(1, 500), st.integers(1, 8))
def test_the_ranges_hold_every_span_and_none_is_too_long(asked: list[tuple[int, int, int]], gap: int, longest: int, parallel: int):
    columns = np.array(asked, np.int64).reshape(-1, 3)
    files, offsets, lengths = columns[:, 0], columns[:, 1], columns[:, 2]
    plan = plan_ranges(files, offsets, lengths, gap, longest, parallel)
    place_of = [
        (file, byte)
        for file, begin, count in zip(plan.files, plan.begins, plan.lengths, strict=True)
        for byte in range(begin, begin + count)
    ]
    assert all(0 < count <= longest for count in plan.lengths.tolist())
    assert len(set(place_of)) == len(place_of)  # no byte is asked for twice
    for file, offset, length, start in zip(files, offsets, lengths, plan.starts, strict=True):
        assert place_of[start : start + length] == [(file, byte) for byte in range(offset, offset + length)]


@given(spans, st.integers(0, 300))
def test_spans_are_joined_across_gaps_up_to_the_limit_and_no_further(asked: list[tuple[int, int, int]], gap: int):
    columns = np.array(asked, np.int64).reshape(-1, 3)
    plan = plan_ranges(columns[:, 0], columns[:, 1], columns[:, 2], gap, 1 << 30, 1)
    ends = plan.begins + plan.lengths
    same = plan.files[1:] == plan.files[:-1]
    assert np.all(plan.begins[1:][same] > ends[:-1][same] + gap)
    wanted = {(file, byte) for file, offset, length in asked for byte in range(offset, offset + length)}
    for file, begin, end in zip(plan.files, plan.begins, ends, strict=True):
        there = [(file, byte) in wanted for byte in range(begin, end)]
        holes = "".join("x" if one else "." for one in there).split("x")
        assert all(len(hole) <= gap for hole in holes)


def test_few_large_ranges_are_cut_so_that_all_requests_are_used():
    one = np.array([0])
    plan = plan_ranges(one, one, np.array([64 << 20]), 0, 32 << 20, 16)
    assert plan.lengths.tolist() == [4 << 20] * 16
    small = plan_ranges(one, one, np.array([1 << 20]), 0, 32 << 20, 16)
    assert small.lengths.tolist() == [1 << 20]


def test_nothing_to_read_makes_no_request():
    none = np.zeros(0, np.int64)
    assert len(plan_ranges(none, none, none, 1, 1, 1).files) == 0
    assert len(plan_ranges(np.array([0]), np.array([7]), np.array([0]), 1, 1, 1).files) == 0
