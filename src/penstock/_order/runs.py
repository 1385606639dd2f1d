"""Which positions of a pass are done, when they are done in any order. Pure."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable

__all__ = ["Run", "Runs"]

Run = tuple[int, int]
"""Positions begin..end-1."""


class Runs:
    """A set of positions as disjoint runs, none of which touch. O(log runs) to find a place, O(runs) to add a new one."""

    __slots__ = ("_begins", "_ends")

    def __init__(self, runs: Iterable[Run] = ()) -> None:
        self._begins: list[int] = []
        self._ends: list[int] = []
        for begin, end in runs:
            self.add(begin, end)

    def add(self, begin: int, end: int) -> None:
        """Add positions begin..end-1; those that are there stay there."""
        if begin >= end:
            return
        first = bisect_left(self._ends, begin)
        last = bisect_right(self._begins, end)
        if first < last:
            begin = min(begin, self._begins[first])
            end = max(end, self._ends[last - 1])
        self._begins[first:last] = [begin]
        self._ends[first:last] = [end]

    def __contains__(self, position: int) -> bool:
        place = bisect_right(self._begins, position) - 1
        return place >= 0 and position < self._ends[place]

    def without(self, positions: Iterable[int]) -> tuple[Run, ...]:
        """Return the runs without some positions."""
        out: list[Run] = []
        left = sorted(set(positions))
        at = 0
        for begin, end in zip(self._begins, self._ends, strict=True):
            at = bisect_left(left, begin, at)
            while at < len(left) and left[at] < end:
                if begin < left[at]:
                    out.append((begin, left[at]))
                begin = left[at] + 1
                at += 1
            if begin < end:
                out.append((begin, end))
        return tuple(out)

    def split(self, positions: Iterable[int] = ()) -> tuple[int, tuple[Run, ...]]:
        """Return up to where all positions but `positions` are in the set, and the runs of others that are."""
        runs = self.without(positions)
        return (runs[0][1], runs[1:]) if runs and not runs[0][0] else (0, runs)

    def gap(self, position: int, length: float) -> tuple[int, float]:
        """Return the first run of positions from `position` on, below `length`, that are not in the set; an empty one if there is none."""
        place = bisect_right(self._begins, position) - 1
        if place >= 0 and position < self._ends[place]:
            position = self._ends[place]
        end = self._begins[place + 1] if place + 1 < len(self._begins) else length
        position = int(min(position, length))
        return position, max(position, min(end, length))
