"""Where the memory of a run is: samples of the system, what feeds and queues hold, and a warning before a cgroup's limit is reached.

The parts are batch buffers, elements outside of them by the stage that made them, and queues. Together they are what the process has grown
by since the run began, but for what the training loop and the functions of the stages keep for themselves.
"""

from __future__ import annotations

import functools
import itertools
import os
import time
import weakref
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from penstock._contracts.event import Listener, Notice
from penstock._system.frames import warn
from penstock._system.lazy import dataclass
from penstock._system.memory import (
    FeedMemory,
    MemoryGroup,
    freed_memory,
    major_faults,
    memory_groups,
    proportional_memory,
    resident_memory,
    swapped_memory,
)
from penstock._system.text import redacted
from penstock.queues.base import Queue, living_queues

_NEAR = 0.8
"""The share of a limit in use from which on the kernel may soon kill: 100 MB are left of 512, which two threads fill in 50 ms."""

_FASTEST_BYTES_PER_NS = 4
"""No program fills memory faster; so long before the warning is due is the next look."""

_SOONEST_NS, _LATEST_NS, _NEVER = 10_000_000, 250_000_000, 1 << 63
"""A look costs 20 us: 0.2 % at the soonest, short of the warning, and 0.01 % otherwise. Behind the warning there is none."""

_PAUSE = 100
"""Walking all pages, for PSS, and all free pieces may take a hundredth of the time; in between the last figures hold."""

_WORTH_SAYING = 0.05
"""A part that is a smaller share of the growth is not named."""


class MemorySample(NamedTuple):
    """The memory of this process at a moment, in bytes.

    Attributes:
        process_bytes: what it has in use (PSS).
        freed_bytes: what of it is freed, and kept by the allocator for later.
        swapped_bytes: what of it is swapped out.
        num_major_faults: page faults that had to be read from a disk, since it began.
        limit: what its cgroup allows and what is in use there without cached files, of the one nearest to its limit; None for no limit.
    """

    process_bytes: int = 0
    freed_bytes: int = 0
    swapped_bytes: int = 0
    num_major_faults: int = 0
    limit: tuple[int, int] | None = None


class _Walk(NamedTuple):
    """What the last walk over all pages found, in which process, and when the next is due."""

    pid: int
    due_ns: int
    pss: int
    resident: int
    freed: int


class System:
    """Reads /proc and the cgroups of this process, from any thread. It keeps the last figures, for a process that was forked its own."""

    def __init__(self) -> None:
        self._groups: list[MemoryGroup] = []
        self._last = _Walk(0, 0, 0, 0, 0)

    def sample(self) -> MemorySample:
        """Return all of it."""
        self._groups = memory_groups()
        walk, resident, now_ns = self._last, resident_memory(), time.perf_counter_ns()
        if now_ns >= walk.due_ns or walk.pid != os.getpid():
            begin_ns = time.thread_time_ns()  # not the time in which other threads had the CPU
            pss, freed = proportional_memory(), freed_memory()
            self._last = walk = _Walk(os.getpid(), now_ns + _PAUSE * (time.thread_time_ns() - begin_ns), pss, resident, freed)
        process_bytes = max(0, walk.pss + resident - walk.resident)
        return MemorySample(process_bytes, walk.freed, swapped_memory(), major_faults(), self._nearest(0.0))

    def limit(self) -> tuple[int, int] | None:
        """Return the limit and what is in use of it; cached files may count as in use far below the limit. In 20 us."""
        return self._nearest(_NEAR)

    def _nearest(self, near: float) -> tuple[int, int] | None:
        found = [pair for pair in (group.read(near) for group in self._groups) if pair is not None]
        return max(found, key=lambda pair: pair[1] / max(1, pair[0]), default=None)


@functools.cache
def this_process() -> System:
    """Return the one whose figures all share."""
    return System()


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryStats:
    """Where the memory of a run is, in bytes. Behind the end of an epoch, where it was at the end.

    Attributes:
        begin_bytes: what the process had in use (PSS) when the run began, without what is listed here.
        process_bytes: what it has now.
        slots_bytes: batch buffers, those that the training loop keeps included.
        held_bytes: (stage, bytes) of elements outside of batch buffers, for each stage that made some; batches outside of buffers that
            the training loop refers to are those of "training loop".
        freed_bytes: memory that was freed and that the allocator keeps for later.
        queue_bytes: (name, bytes) of the elements of each queue of this process, about; for queues that have some.
        num_kept: how many batches the training loop still refers to, beside the last one.
        kept_bytes: their buffers.
        kept: the oldest of them, in words; empty where there is none.
        num_major_faults: page faults of the process since the run began that had to be read from a disk.
        swapped_bytes: memory of the process that is swapped out.
        limit_bytes: what the cgroups of the process allow; None for no limit.
        limit_used_bytes: what of that limit is in use, cached files excluded; None for no limit.
    """

    begin_bytes: int = 0
    process_bytes: int = 0
    slots_bytes: int = 0
    held_bytes: tuple[tuple[str, int], ...] = ()
    queue_bytes: tuple[tuple[str, int], ...] = ()
    freed_bytes: int = 0
    num_kept: int = 0
    kept_bytes: int = 0
    kept: str = ""
    num_major_faults: int = 0
    swapped_bytes: int = 0
    limit_bytes: int | None = None
    limit_used_bytes: int | None = None

    @property
    def growth_bytes(self) -> int:
        """What the process has grown by since the run began."""
        return self.process_bytes - self.begin_bytes

    @property
    def parts_bytes(self) -> int:
        """What buffers, stages, queues and the allocator hold; the rest of the growth is the training loop's and that of your functions."""
        return self.slots_bytes + self.freed_bytes + sum(size for _, size in (*self.held_bytes, *self.queue_bytes))


def parts_of(targets: Iterable[tuple[str, Any]]) -> dict[str, int]:
    """Return the bytes of the parts of named feeds and queues: of all feeds `slots`, `held_<stage>` and `kept`, and `queue_<name>`.

    Costs 60 us for a feed and 20 us for a queue. What is neither has no parts.
    """
    parts: Counter[str] = Counter()
    for name, target in targets:
        if isinstance(target, Queue):
            parts[f"queue_{name}"] += target.num_bytes()
        elif hasattr(target, "memory"):
            held = target.memory()
            parts.update({"slots": held.slots_bytes, "kept": held.kept_bytes})
            for stage, size in held.held:
                parts[redacted(f"held_{stage.replace(' ', '_')}")] += size
    return parts


class RunMemory:
    """The memory of a run, from its first `begin` on. From any thread, signal handlers included: it takes no lock.

    Args:
        system: gives samples; by default of this process.
        ended: the figures until then, of another process.

    Attributes:
        due_ns: when `look` is to be called next, by `time.perf_counter_ns`.
    """

    def __init__(self, system: System | None = None, ended: MemoryStats | None = None) -> None:
        self._system = system or this_process()
        self._feed: weakref.WeakMethod[Callable[[], FeedMemory]] | None = None
        self._announce: weakref.WeakMethod[Listener] | None = None
        self._begin: MemorySample | None = None
        self._begin_bytes = 0
        self._ended = ended
        self._num_warnings = itertools.count()
        self.due_ns = _NEVER

    def begin(self, feed: Callable[[], FeedMemory], announce: Listener) -> None:
        """Begin, or go on with the next epoch.

        Args:
            feed: a method that says what the feed holds; not kept alive, nor is the next.
            announce: a method that gets the notice of a warning.
        """
        self._ended = None
        self._feed, self._announce = weakref.WeakMethod(feed), weakref.WeakMethod(announce)
        self.begin_once()

    def begin_once(self) -> None:
        """Begin if it has not begun."""
        if self._begin is None:
            self._begin = sample = self._system.sample()
            self._begin_bytes = sample.process_bytes - self._stats(sample, self._held()).parts_bytes
            self.due_ns = 0 if sample.limit is not None else _NEVER

    def end(self) -> None:
        """Keep the figures of now, for `stats`: what runs is about to end."""
        self._ended = self.stats()

    def stats(self) -> MemoryStats:
        """Return where the memory is. Costs 0.1 ms, now and then 1 ms for each GB."""
        return self._ended or self._stats(self._system.sample(), self._held())

    def look(self, now_ns: int, listener: Listener) -> None:
        """Warn, once, when little is left of a cgroup's limit. Call it when it is due.

        Args:
            now_ns: `time.perf_counter_ns`.
            listener: gets the notice when the feed does not.
        """
        self.due_ns = now_ns + _LATEST_NS
        found = self._system.limit()
        room = 0 if found is None else int(_NEAR * found[0]) - found[1]
        if found is not None and room > 0:
            self.due_ns = now_ns + min(max(room // _FASTEST_BYTES_PER_NS, _SOONEST_NS), _LATEST_NS)
            return
        self.due_ns = _NEVER
        if found is None or next(self._num_warnings):
            return
        held = self._held()
        text = _warning(*found, held, self._stats(self._system.sample(), held))
        announce = None if self._announce is None else self._announce()
        (announce or listener)(Notice(now_ns, "memory", text))
        warn(text)

    def _held(self) -> FeedMemory:
        feed = None if self._feed is None else self._feed()
        return FeedMemory() if feed is None else feed()

    def _stats(self, sample: MemorySample, held: FeedMemory) -> MemoryStats:
        begin = self._begin or sample
        queues: Counter[str] = Counter()
        for queue in living_queues():
            queues[queue.name] += queue.num_bytes()
        limit, used = sample.limit or (None, None)
        return MemoryStats(
            begin_bytes=self._begin_bytes if self._begin else sample.process_bytes,
            process_bytes=sample.process_bytes,
            slots_bytes=held.slots_bytes,
            freed_bytes=sample.freed_bytes,
            held_bytes=held.held,
            queue_bytes=tuple((name, size) for name, size in queues.items() if size),
            num_kept=held.num_kept,
            kept_bytes=held.kept_bytes,
            kept=held.kept,
            num_major_faults=sample.num_major_faults - begin.num_major_faults,
            swapped_bytes=sample.swapped_bytes,
            limit_bytes=limit,
            limit_used_bytes=used,
        )


def _warning(limit: int, used: int, held: FeedMemory, stats: MemoryStats) -> str:
    """Say that the limit is near, what has the memory, the largest part first, and what to change."""
    stage, growth = repr(held.filled_by), max(1, stats.growth_bytes)
    lower = f"lower memory_bytes, now {_mega(held.budget_bytes)}"
    buffers = stats.slots_bytes - max(0, stats.kept_bytes - dict(held.held).get("training loop", 0))
    kept = f"the training loop keeps {stats.num_kept} batches of stage {stage}, {_mega(stats.kept_bytes)}, the oldest {stats.kept}"
    rest = max(0, growth - stats.parts_bytes)
    parts = [
        (buffers, f"batch buffers, which stage {stage} fills, take {_mega(buffers)}", lower),
        *((size, f"elements of stage {name!r} take {_mega(size)}", lower) for name, size in stats.held_bytes if name != "training loop"),
        (stats.kept_bytes, kept, "drop batches that are done with, and copy what must be kept of them"),
        *((size, f"queue {name!r} takes {_mega(size)}", "lower its capacity") for name, size in stats.queue_bytes),
        (stats.freed_bytes, f"{_mega(stats.freed_bytes)} are freed and kept by the allocator", lower),
        (rest, f"the functions up to stage {stage} and the training loop have {_mega(rest)}", "look at what they keep"),
    ]
    parts.sort(key=lambda part: -part[0])
    said = [words for size, words, _ in parts if size >= _WORTH_SAYING * growth] or [parts[0][1]]
    return (
        f"{_mega(used)} of the {_mega(limit)} that the cgroup of this process allows are in use, and at the limit the kernel kills it. "
        f"Since the run began the process grew by {_mega(growth)}: {'; '.join(said)}. To change: {parts[0][2]}"
    )


def _mega(num_bytes: int) -> str:
    return f"{num_bytes / 1e6:,.0f} MB"
