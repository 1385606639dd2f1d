"""When a piece of work began and ended, and its CPU time: what a `BlockDone` is made of, in whatever process the work was done."""

from __future__ import annotations

import time

__all__ = ["Times", "clocks", "times_since"]

Times = tuple[int, int, int]
"""Begin and end by `time.perf_counter_ns`, which all processes of a machine share, and the CPU time of the thread between them."""


def clocks() -> tuple[int, int]:
    """Return the time now, and the CPU time of this thread, both in nanoseconds. Takes 0.4 us."""
    return time.perf_counter_ns(), time.thread_time_ns()


def times_since(begin: tuple[int, int]) -> Times:
    """Return the times of what began when `clocks` gave `begin`, in the same thread."""
    return begin[0], time.perf_counter_ns(), time.thread_time_ns() - begin[1]
