"""Which worker does which job next. Pure: no clock, no process."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise

__all__ = ["JobQueue", "parts_of"]

_AHEAD_S = 0.01
_AHEAD_JOBS = 1024
_AHEAD_BYTES = 1 << 16
"""So much lies ready for a worker: enough to cover the way to the parent and back, little enough never to fill its pipe."""


def parts_of(count: int, num_parts: int) -> list[tuple[int, int]]:
    """Cut 0..count-1 into (begin, end) as the classic programs do: count // num_parts each, the first count % num_parts one longer."""
    size, longer = divmod(count, num_parts)
    borders = [part * size + min(part, longer) for part in range(num_parts + 1)]
    return list(pairwise(borders))


class JobQueue:
    """The jobs that no worker has yet, and those that each worker has and has not reported.

    Each worker begins with a part of the list of its own, and is given a little of it at a time. One whose part is used up takes the back
    half of what is left of the longest part; when nothing is left of any, half of what another worker has and has not begun.
    """

    def __init__(self, todo: Sequence[int], num_workers: int) -> None:
        """Cut `todo`, numbers of jobs, into one part per worker."""
        self._todo = todo
        self._parts = [list(part) for part in parts_of(len(todo), num_workers)]
        self._again: deque[int] = deque()
        self._dealt: list[deque[int]] = [deque() for _ in range(num_workers)]
        self._bytes: list[dict[int, int]] = [{} for _ in range(num_workers)]
        self._mean_s: float | None = None

    def has(self, worker: int) -> bool:
        """Tell whether a worker has jobs that it has not reported."""
        return bool(self._dealt[worker])

    def next_of(self, worker: int, size_of: Callable[[int], int]) -> list[int]:
        """Give a worker some jobs, so that it has enough until it is asked again; none when it has enough.

        Args:
            worker: its number.
            size_of: says how many bytes a job has on its way. Jobs of many bytes are given one at a time, to a worker that has none:
                that one reads its pipe.
        """
        dealt, sizes = self._dealt[worker], self._bytes[worker]
        wanted = 2 if self._mean_s is None else int(min(max(2.0, _AHEAD_S / max(self._mean_s, 1e-9)), _AHEAD_JOBS))
        if len(dealt) > wanted // 2:
            return []
        given: list[int] = []
        lying = sum(sizes.values())
        while len(dealt) < wanted and (job := self._peek(worker)) is not None:
            size = size_of(job)
            if dealt and lying + size > _AHEAD_BYTES:
                break
            self._pop(worker)
            lying += size
            sizes[job] = size
            dealt.append(job)
            given.append(job)
        return given

    def reported(self, worker: int, jobs: Iterable[int], seconds: float) -> None:
        """Note that a worker has done jobs, in `seconds` together."""
        count = 0
        for job in jobs:
            self._dealt[worker].remove(job)  # it stands in front: they are done as they were given
            del self._bytes[worker][job]
            count += 1
        if count:
            mean_s = seconds / count
            self._mean_s = mean_s if self._mean_s is None else 0.75 * self._mean_s + 0.25 * mean_s

    def again(self, job: int) -> None:
        """Have a job done once more, by the worker that is free first."""
        self._again.append(job)

    def victims(self) -> list[tuple[int, int]]:
        """Return (worker, number of jobs) that may be taken back for one that has none; nothing as long as there are others.

        The likeliest first: how many of its jobs a worker has begun is known to its tickets only.
        """
        if self._again or any(begin < end for begin, end in self._parts):
            return []
        counts = [(len(dealt), worker) for worker, dealt in enumerate(self._dealt)]
        return [(worker, count // 2) for count, worker in sorted(counts, reverse=True) if count > 1]

    def taken_back(self, worker: int, jobs: Sequence[int]) -> None:
        """Note that a worker will not do these jobs, the oldest that it had not begun."""
        for job in jobs:
            self._dealt[worker].remove(job)
            del self._bytes[worker][job]
        self._again.extendleft(reversed(jobs))

    def last_of(self, worker: int) -> int | None:
        """Return the job that a worker is at, or None. What it had not begun must have been taken back before."""
        return self._dealt[worker][-1] if self._dealt[worker] else None

    def lost(self, worker: int) -> int | None:
        """Return the job that a dead worker was at, or None; what it had done and not reported will be done again.

        What it had not begun must have been taken back before.
        """
        had = list(self._dealt[worker])
        self._dealt[worker].clear()
        self._bytes[worker].clear()
        self._again.extendleft(reversed(had[:-1]))
        return had[-1] if had else None

    def _peek(self, worker: int) -> int | None:
        if self._again:
            return self._again[0]
        begin, end = self._parts[worker]
        if begin == end:
            longest = max(self._parts, key=lambda part: part[1] - part[0])
            begin, end = longest[0] + (longest[1] - longest[0]) // 2, longest[1]
            if begin == end:
                return None
            self._parts[worker], longest[1] = [begin, end], begin
        return self._todo[begin]

    def _pop(self, worker: int) -> None:
        if self._again:
            self._again.popleft()
        else:
            self._parts[worker][0] += 1
