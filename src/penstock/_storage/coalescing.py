"""Which requests many spans make: neighbours together, large ones in pieces."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["Plan", "plan_ranges"]

_LEAST_BYTES = 4 << 20


class Plan(NamedTuple):
    """Ranges to fetch, one behind the other, and where the spans then begin.

    Attributes:
        files: int64 [r].
        begins: int64 [r], offset in the file.
        lengths: int64 [r], in bytes.
        starts: int64 [n], where span i begins in the bytes of all ranges.
    """

    files: NDArray[np.int64]
    begins: NDArray[np.int64]
    lengths: NDArray[np.int64]
    starts: NDArray[np.int64]


def plan_ranges(
    files: NDArray[np.int64], offsets: NDArray[np.int64], lengths: NDArray[np.int64], max_gap: int, max_range: int, num_parallel: int
) -> Plan:
    """Join spans of one file that overlap or are at most `max_gap` bytes apart, and cut what is long.

    A range is at most `max_range` bytes. When all ranges together are fewer than may be in flight, they are cut further, to 4 MB at least:
    one connection rarely carries all that a store can give.

    Args:
        files: int64 [n].
        offsets: int64 [n].
        lengths: int64 [n]; spans of no bytes belong to no range.
        max_gap: bytes.
        max_range: bytes.
        num_parallel: how many requests may be in flight.
    """
    runs, run_of = _join(files, offsets, lengths, max_gap)
    total = int(runs[2].sum())
    piece = max(1, min(max_range, max(-(-total // max(1, num_parallel)), min(_LEAST_BYTES, max_range))))
    run_starts = np.cumsum(runs[2]) - runs[2]
    starts = np.zeros(len(files), np.int64)
    inside = run_of >= 0
    starts[inside] = run_starts[run_of[inside]] + offsets[inside] - runs[1][run_of[inside]]
    counts = -(-runs[2] // piece)
    owner = np.repeat(np.arange(len(counts)), counts)
    number = np.arange(len(owner)) - np.repeat(np.cumsum(counts) - counts, counts)
    begins = runs[1][owner] + number * piece
    ends = np.minimum(begins + piece, runs[1][owner] + runs[2][owner])
    return Plan(runs[0][owner], begins, ends - begins, starts)


def _join(
    files: NDArray[np.int64], offsets: NDArray[np.int64], lengths: NDArray[np.int64], max_gap: int
) -> tuple[tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]], NDArray[np.int64]]:
    """Return (file, begin, length) of each run, and the run of each span: -1 for one of no bytes."""
    run_of = np.full(len(files), -1, np.int64)
    order = np.lexsort((offsets, files))
    order = order[lengths[order] > 0]
    if not len(order):
        none = np.zeros(0, np.int64)
        return (none, none, none), run_of
    file, begin, end = files[order], offsets[order], offsets[order] + lengths[order]
    # The furthest end so far, file by file: the files are made disjoint ranges of one axis, which 2^63 bytes hold in practice.
    base = np.concatenate(([0], np.cumsum(np.diff(file) != 0))) * (int(end.max()) + max_gap + 1)
    furthest = np.maximum.accumulate(end + base)
    is_new = np.concatenate(([True], begin[1:] + base[1:] > furthest[:-1] + max_gap))
    run_of[order] = np.cumsum(is_new) - 1
    firsts = np.flatnonzero(is_new)
    lasts = np.concatenate((firsts[1:], [len(order)])) - 1
    return (file[firsts], begin[firsts], furthest[lasts] - base[lasts] - begin[firsts]), run_of
