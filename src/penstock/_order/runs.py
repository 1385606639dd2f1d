"""Which positions of a pass are done, when they are done in any order. Pure."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterable, Sequence

__all__ = ["ENDLESS", "Recording", "Run", "Runs", "kept"]

Run = tuple[int, int]
"""Positions begin..end-1."""

ENDLESS = 2**63 - 1  # as many positions as there are


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

    def gap(self, position: int, length: int) -> Run:
        """Return the first run of positions from `position` on, below `length`, that are not in the set; an empty one if there is none."""
        place = bisect_right(self._begins, position) - 1
        if place >= 0 and position < self._ends[place]:
            position = self._ends[place]
        end = self._begins[place + 1] if place + 1 < len(self._begins) else length
        position = min(position, length)
        return position, max(position, min(end, length))


class Recording:
    """The order in which positions went on in an earlier run. Each is given once; what was not recorded comes at the end of its pass."""

    __slots__ = ("_left", "_taken")

    def __init__(self, runs: Iterable[tuple[int, int, int]]) -> None:
        """Take (pass, begin, end) of each run, in order."""
        self._left = deque(runs)
        self._taken = Runs()

    def start(self, done: Iterable[Run]) -> None:
        """Leave out what was delivered of the pass that comes next."""
        self._taken = Runs(done)

    def next(self, pass_number: int, length: float) -> Run:
        """Return the next run of a pass of `length` positions; (length, length) when none is left."""
        length = int(min(length, ENDLESS))
        while self._left and self._left[0][0] <= pass_number:
            number, begin, end = self._left[0]
            if number == pass_number:
                found = self._taken.gap(begin, min(end, length))
                if found[0] < found[1]:
                    return found
            self._left.popleft()
        return self._taken.gap(0, length)

    def take(self, begin: int, end: int) -> None:
        """Book positions as given."""
        self._taken.add(begin, end)


def kept(runs: Iterable[tuple[int, int, int]], pass_number: int, done: Sequence[Run]) -> list[tuple[int, int, int]]:
    """Return what is left of the (pass, begin, end) of a run that is resumed where of a pass only the positions `done` were delivered."""
    out = []
    for number, begin, end in runs:
        if number < pass_number:
            out.append((number, begin, end))
        elif number == pass_number:
            out += [(number, max(begin, first), min(end, last)) for first, last in done if max(begin, first) < min(end, last)]
    return out
