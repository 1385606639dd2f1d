"""Count the files and functions of Penstock that a batch, a first batch, a saved state and an error run through.

    python tools/trip.py [--files | --json]

A function counts once; lambdas and comprehensions belong to the function that they stand in. A change of file is a call or a return into
another file than the one before. Only files of src/penstock count. The numbers are the same in each run: everything runs in this thread,
the second time, and a simulated clock gives each element a cost of one millisecond, so that the sizes of the tasks do not depend on the
machine. Python 3.12 and later make a few changes of file less: they close a generator without a call. `tools/house.py` compares the numbers
with their ceilings and their goals.
"""

from __future__ import annotations

import gc
import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

import penstock as ps

SOURCES = f"{Path(ps.__file__).parent}/"
BATCH_SIZE = 16
NUM_ELEMENTS = 1000
ELEMENT_NS = 1_000_000
NUM_WARM = 8
"""Batches until the sizes of the tasks are found."""
NUM_COUNTED = 4
"""Warm batches whose largest trip counts: every other one is a little shorter."""
CLOCKS = {"monotonic": 1e9, "monotonic_ns": 1, "perf_counter": 1e9, "perf_counter_ns": 1, "thread_time": 1e9, "thread_time_ns": 1}
"""What the clock divides its nanoseconds by for each function of `time`."""


class Trip:
    """What ran while a piece of work was done.

    Attributes:
        files: of src/penstock.
        functions: their files and qualified names.
        changes: how often a call or a return led into another file.
    """

    def __init__(self) -> None:
        self.files: set[str] = set()
        self.functions: set[tuple[str, str]] = set()
        self.changes = 0
        self._file = ""

    def profile(self, frame: FrameType, event: str, argument: object) -> None:
        """Note one event of `sys.setprofile`."""
        code = frame.f_code
        if event not in ("call", "return") or not code.co_filename.startswith(SOURCES):
            return
        file = code.co_filename.removeprefix(SOURCES)
        self.changes += file != self._file
        self._file = file
        self.files.add(file)
        if not code.co_name.startswith("<"):
            self.functions.add((file, code.co_qualname))


class Clock:
    """A clock that stands still, but for the cost of elements."""

    def __init__(self) -> None:
        self.now_ns = 10**12

    @contextmanager
    def running(self) -> Iterator[None]:
        """Put this clock in the place of the system's."""
        own = {name: getattr(time, name) for name in CLOCKS}
        for name, divisor in CLOCKS.items():
            setattr(time, name, lambda divisor=divisor: self.now_ns / divisor if divisor > 1 else self.now_ns)
        try:
            yield
        finally:
            for name, function in own.items():
                setattr(time, name, function)


def main(arguments: Sequence[str]) -> int:
    """Print the numbers, or with `--files` the files of each trip."""
    trips = measure()
    if "--files" in arguments:
        for name, trip in trips.items():
            print(f"{name}:", *sorted(trip.files), sep="\n    ")
    elif "--json" in arguments:
        print(json.dumps(figures(trips)))
    else:
        for name, figure in figures(trips).items():
            print(f"{name:28} {figure:5}")
    return 0


def figures(trips: Mapping[str, Trip]) -> dict[str, int]:
    """Return the numbers that have goals."""
    warm, first = trips["warm batch"], trips["first batch"]
    return {
        "warm batch: files": len(warm.files),
        "warm batch: functions": len(warm.functions),
        "warm batch: changes of file": warm.changes,
        "first batch: files": len(first.files),
        "first batch: functions": len(first.functions),
        "state_dict: files": len(trips["state_dict"].files),
        "load_state_dict: files": len(trips["load_state_dict"].files),
        "failing map: files": len(trips["failing map"].files),
    }


def measure() -> dict[str, Trip]:
    """Count each trip, the second time that it is made. A process of its own measures: what others ran before would count."""
    clock = Clock()
    with clock.running():
        make_trips(clock)
        return make_trips(clock)


def make_trips(clock: Clock) -> dict[str, Trip]:
    """Run a shuffled, mapped and batched dataset in this thread."""

    def double(element: dict[str, Any]) -> dict[str, Any]:
        clock.now_ns += ELEMENT_NS
        return {**element, "doubled": element["value"] * 2}

    def fail(element: dict[str, Any]) -> dict[str, Any]:
        raise ZeroDivisionError

    def dataset_of(function: Callable[..., Any]) -> ps.Dataset:
        values = {"value": np.arange(NUM_ELEMENTS, dtype=np.float32), "label": np.arange(NUM_ELEMENTS)}
        return ps.from_arrays(values).shuffle(seed=1).map(function).batch(BATCH_SIZE)

    feeds: list[Any] = []

    def first(dataset: ps.Dataset) -> None:
        feeds.append(dataset.feed(executor="inline"))
        next(feeds[-1])

    doubled, failing, trips = dataset_of(double), dataset_of(fail), {}
    trips["first batch"] = count(lambda: first(doubled))
    for _ in range(NUM_WARM):
        next(feeds[0])
    trips["warm batch"] = max((count(lambda: next(feeds[0])) for _ in range(NUM_COUNTED)), key=lambda trip: trip.changes)
    trips["state_dict"] = count(feeds[0].state_dict)
    feeds.append(doubled.feed(executor="inline"))
    state = feeds[0].state_dict()
    trips["load_state_dict"] = count(lambda: feeds[1].load_state_dict(state))
    trips["failing map"] = count(lambda: first(failing), expected=ZeroDivisionError)
    for feed in feeds:
        feed.close()
    return trips


def count(work: Callable[[], object], expected: type[Exception] | None = None) -> Trip:
    """Count what runs in this thread while `work` runs, which has to raise `expected`. The garbage collector rests."""
    trip, raised = Trip(), None
    gc.collect()
    gc.disable()
    sys.setprofile(trip.profile)
    try:
        work()
    except Exception as error:
        raised = error
    finally:
        sys.setprofile(None)
        gc.enable()
    if type(raised) is not (expected or type(None)):
        raise raised or AssertionError(f"{expected} was not raised")
    return trip


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
