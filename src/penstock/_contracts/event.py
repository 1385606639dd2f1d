"""What the engine announces: small records, one per block or batch, never per element."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Set
from types import MappingProxyType
from typing import NamedTuple


class RunBegun(NamedTuple):
    """A feed begins to run an epoch, or goes on with one.

    Attributes:
        memory_bytes: the budget for what is in flight.
        concurrency: that of the stages that have one, by name.
        in_program: the stages that one thread of the program runs, because they call functions of the user's.
        is_stream: whether one thread reads a generator or an iterator.
        in_order: whether nothing goes on before what comes earlier in the order is finished.
        no_processes: why worker processes cannot run it; empty where they can, or that was not tried.
    """

    time_ns: int
    memory_bytes: int = 0
    concurrency: Mapping[str, int] = MappingProxyType({})
    in_program: Set[str] = frozenset()
    is_stream: bool = False
    in_order: bool = True
    no_processes: str = ""


class BlockDone(NamedTuple):
    """A worker finished one block of one stage. Times are `time.perf_counter_ns`, CPU time is the thread's own.

    Of an async stage it is one call: `worker` is its place among those in flight.

    Attributes:
        chunk: (segment, number) of the run of elements or batches that the block is a part of; None where that is not known.
        made_of: the chunk of the segment before that this one was made of.
        first, last: (epoch, index) of the first and last element of the block.
        num_bytes: what the block left in memory.
    """

    stage: str
    worker: int
    start_ns: int
    end_ns: int
    cpu_ns: int
    num_elements: int
    chunk: tuple[int, int] | None = None
    made_of: tuple[int, int] | None = None
    first: tuple[int, int] | None = None
    last: tuple[int, int] | None = None
    num_bytes: int = 0


class BatchDelivered(NamedTuple):
    """The consumer received one or more batches (or elements) in one hand-over; `chunk` as in BlockDone.

    Attributes:
        num_kept: hand-overs before this one whose buffers the consumer still refers to.
        most: how many hand-overs may exist at once: in work, ready or kept; 0 where that is not known.
    """

    time_ns: int
    wait_ns: int
    num_ready: int
    num_delivered: int
    chunk: tuple[int, int] | None = None
    num_kept: int = 0
    most: int = 0


class BatchEnqueued(NamedTuple):
    """A producer put one or more elements into a queue in one call, after it waited for room; `num_ready` stood in it then."""

    time_ns: int
    wait_ns: int
    num_ready: int
    num_enqueued: int


class ElementLost(NamedTuple):
    """An element was skipped, or replaced by another; announced once, in the order of the elements.

    Attributes:
        action: "skipped" or "replaced"; of jobs, and of the items of an enqueuer, also "raised".
        where: its place in words, empty when only the key is known.
        keys: of the elements in it, (epoch, index, number of the result of a `flat_map`) each, when it is a group such as a batch; else its
            own.
        place: pass and number in what the plan begins with, None when only the keys are known.
        retries: how often it was tried again before.
        quarantine: the file that gets a line of it, as its policy says.
    """

    time_ns: int
    action: str
    stage: str
    worker: int
    where: str
    keys: tuple[tuple[int, int, int], ...]
    place: tuple[int, int] | None
    error: BaseException
    retries: int
    quarantine: str | os.PathLike[str] | None = None


class ElementRetried(NamedTuple):
    """A failing element is about to be tried again, for the `retry`-th time, after a wait."""

    time_ns: int
    stage: str
    worker: int
    key: tuple[int, int, int]
    retry: int
    wait_s: float
    error: BaseException


class SlowElement(NamedTuple):
    """A worker spent much longer with an element than is usual in its stage, while the consumer waited.

    Attributes:
        stage: as BlockDone has it.
        key: (epoch, index) of the element.
        where: its place in words; empty where only the key is known.
        lasted_ns: at least so long.
    """

    time_ns: int
    stage: str
    key: tuple[int, int]
    where: str
    lasted_ns: int


class RowsPacked(NamedTuple):
    """A worker packed sequences into rows of `num_places` places in all, of which `num_used` hold a token."""

    time_ns: int
    num_used: int
    num_places: int


class Notice(NamedTuple):
    """A decision or an oddity, with its reason: a changed number of active workers, slots held by the consumer."""

    time_ns: int
    kind: str
    text: str


def noted(kind: str, text: str) -> Notice:
    """Make a notice of this moment."""
    return Notice(time.perf_counter_ns(), kind, text)


Event = RunBegun | BlockDone | BatchDelivered | BatchEnqueued | ElementLost | ElementRetried | SlowElement | RowsPacked | Notice
Listener = Callable[[Event], None]


class Fill(NamedTuple):
    """What a buffer holds at a moment.

    Attributes:
        name: of the queue, or of a buffer of a feed.
        size: how many elements, batches or blocks it holds.
        capacity: how many it holds at most.
        margin: how many reads leave in; they do not count as fill.
    """

    name: str
    size: int
    capacity: int
    margin: int = 0

    @property
    def fraction(self) -> float:
        """The part that is in use, from 0.0 to 1.0."""
        return min(1.0, max(0, self.size - self.margin) / max(1, self.capacity - self.margin))

    @property
    def tag(self) -> str:
        """The name of its curve, as TensorFlow's queues called theirs."""
        if self.margin:
            return f"{self.name}/fraction_over_{self.margin}_of_{self.capacity - self.margin}_full"
        return f"{self.name}/fraction_of_{self.capacity}_full"


Times = tuple[int, int, int]
"""Begin and end by `time.perf_counter_ns`, which all processes of a machine share, and the CPU time of the thread between them."""


def clocks() -> tuple[int, int]:
    """Return the time now, and the CPU time of this thread, both in nanoseconds. Takes 0.4 us."""
    return time.perf_counter_ns(), time.thread_time_ns()


def times_since(begin: tuple[int, int]) -> Times:
    """Return the times of what began when `clocks` gave `begin`, in the same thread."""
    return begin[0], time.perf_counter_ns(), time.thread_time_ns() - begin[1]
