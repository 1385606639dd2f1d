from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from penstock._storage.remote import plan_ranges

spans = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3000), st.integers(0, 400)), max_size=40)


@given(spans, st.integers(0, 300), st.integers(1, 500), st.integers(1, 8))
def test_the_ranges_hold_every_span_and_none_is_too_long(asked: list[tuple[int, int, int]], gap: int, longest: int, parallel: int):
    columns = np.array(asked, np.int64).reshape(-1, 3)
    files, offsets, lengths = columns[:, 0], columns[:, 1], columns[:, 2]
    ranges, starts = plan_ranges(files, offsets, lengths, gap, longest, parallel)
    place_of = [(file, byte) for file, begin, count in ranges for byte in range(begin, begin + count)]
    assert all(0 < count <= longest for _, _, count in ranges)
    assert len(set(place_of)) == len(place_of)  # no byte is asked for twice
    for file, offset, length, start in zip(files, offsets, lengths, starts, strict=True):
        assert place_of[start : start + length] == [(file, byte) for byte in range(offset, offset + length)]


@given(spans, st.integers(0, 300))
def test_spans_are_joined_across_gaps_up_to_the_limit_and_no_further(asked: list[tuple[int, int, int]], gap: int):
    columns = np.array(asked, np.int64).reshape(-1, 3)
    ranges, _ = plan_ranges(columns[:, 0], columns[:, 1], columns[:, 2], gap, 1 << 30, 1)
    assert all(other != file or place > begin + count + gap for (file, begin, count), (other, place, _) in pairwise(ranges))
    wanted = {(file, byte) for file, offset, length in asked for byte in range(offset, offset + length)}
    for file, begin, count in ranges:
        there = [(file, byte) in wanted for byte in range(begin, begin + count)]
        holes = "".join("x" if one else "." for one in there).split("x")
        assert all(len(hole) <= gap for hole in holes)


def test_few_large_ranges_are_cut_so_that_all_requests_are_used():
    one = np.array([0])
    for size, cut in ((64 << 20, [4 << 20] * 16), (1 << 20, [1 << 20]), (0, [])):
        ranges, _ = plan_ranges(one, one, np.array([size]), 0, 32 << 20, 16)
        assert [count for _, _, count in ranges] == cut
