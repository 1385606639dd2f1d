"""What the engine announces: small records, one per block or batch, never per element."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

__all__ = ["BatchDelivered", "BlockDone", "Event", "Listener", "Notice", "RowsPacked"]


class BlockDone(NamedTuple):
    """A worker finished one block of one stage. Times are `time.perf_counter_ns`, CPU time is the thread's own.

    Of an async stage it is one call: `worker` is its place among those in flight.
    """

    stage: str
    worker: int
    start_ns: int
    end_ns: int
    cpu_ns: int
    num_elements: int


class BatchDelivered(NamedTuple):
    """The consumer received one or more batches (or elements) in one hand-over."""

    time_ns: int
    wait_ns: int
    num_ready: int
    num_delivered: int


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


Event = BlockDone | BatchDelivered | RowsPacked | Notice
Listener = Callable[[Event], None]
