"""Count the files and functions of Penstock that a first batch, a batch, a saved state and an error run through.

    python tools/trip.py [--files | --json]

Only code of src/penstock counts; a lambda is a function of its own, and so is a comprehension before Python 3.12. A change of file is a
call or a return into another file than the one before. The numbers are the same in each run: everything runs in this thread, the second
time, and a simulated clock gives each element a cost of one millisecond, so that the sizes of the tasks do not depend on the machine. The
first batch is the longest of six pipelines. `tests/tools/test_trip.py` compares the numbers with their ceilings in `tools/house.toml`.
"""

from __future__ import annotations

import gc
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import CodeType, FrameType
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
Pipeline = tuple[Callable[[], ps.Dataset], dict[str, Any]]
"""A dataset as a program makes it, and the options of its feed."""
CLOCKS = {"monotonic": 1e9, "monotonic_ns": 1, "perf_counter": 1e9, "perf_counter_ns": 1, "thread_time": 1e9, "thread_time_ns": 1}
"""What the clock divides its nanoseconds by for each function of `time`."""


class Trip:
    """What ran while a piece of work was done.

    Attributes:
        codes: the functions of src/penstock.
        changes: how often a call or a return led into another file.
        walks: how often something went through all nodes of a plan.
    """

    def __init__(self) -> None:
        self.codes: set[CodeType] = set()
        self.changes = 0
        self.walks = 0
        self._file = ""

    @property
    def files(self) -> set[str]:
        """The files of src/penstock."""
        return {code.co_filename.removeprefix(SOURCES) for code in self.codes}

    def profile(self, frame: FrameType, event: str, argument: object) -> None:
        """Note one event of `sys.setprofile`."""
        code = frame.f_code
        if event not in ("call", "return") or not code.co_filename.startswith(SOURCES):
            return
        self.changes += code.co_filename != self._file
        self._file = code.co_filename
        self.codes.add(code)
        is_inner = frame.f_back is not None and frame.f_back.f_code is code  # `walk` calls itself for the nodes below
        self.walks += event == "call" and code.co_name == "walk" and not is_inner


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
    if "--files" in arguments:
        for name, trip in measure()[0].items():
            print(f"{name}:", *sorted(trip.files), sep="\n    ")
    elif "--json" in arguments:
        print(json.dumps(figures()))
    else:
        for name, figure in figures().items():
            print(f"{name:32} {figure:5}")
    return 0


def figures() -> dict[str, int]:
    """Return the numbers that have goals."""
    trips, states = measure()
    firsts = [trip for name, trip in trips.items() if name.startswith("first batch")]
    warm = trips["warm batch"]
    return {
        "first batch: files": max(len(trip.files) for trip in firsts),
        "first batch: functions": max(len(trip.codes) for trip in firsts),
        "first batch: walks of the plan": max(trip.walks for trip in firsts),
        "warm batch: files": len(warm.files),
        "warm batch: functions": len(warm.codes),
        "warm batch: changes of file": warm.changes,
        "state_dict: files": len(trips["state_dict"].files),
        "load_state_dict: files": len(trips["load_state_dict"].files),
        "failing map: files": len(trips["failing map"].files),
        "forms of a saved state": len({json.dumps(form_of(state)) for state in states}),
    }


def measure() -> tuple[dict[str, Trip], list[dict[str, Any]]]:
    """Count each trip, the second time that it is made, and return the saved states too. A process of its own measures."""
    clock = Clock()
    with clock.running():
        make_trips(clock)
        return make_trips(clock)


def everyday(function: Callable[[Any], Any]) -> dict[str, Pipeline]:
    """Return six pipelines that programs often have, with a function for their elements."""

    def numbers() -> ps.Dataset:
        return ps.from_arrays(np.arange(NUM_ELEMENTS))

    def mapped() -> ps.Dataset:
        return numbers().shuffle(seed=1).map(function).batch(BATCH_SIZE)

    def filtered() -> ps.Dataset:
        return numbers().shuffle(seed=1).filter(lambda element: True).map(function).batch(BATCH_SIZE)

    def generated() -> ps.Dataset:
        return ps.from_generator(lambda: iter(range(NUM_ELEMENTS)), fast_forward=True).map(function).batch(BATCH_SIZE)

    def two_branches() -> ps.Dataset:
        return numbers().map(function).batch(BATCH_SIZE).zip(numbers().batch(BATCH_SIZE))

    return {
        "map, batch": (mapped, {}),
        "Skip": (mapped, {"on_error": ps.Skip()}),
        "filter": (filtered, {}),
        "ordered=False": (mapped, {"ordered": False}),
        "generator": (generated, {}),
        "two branches": (two_branches, {}),
    }


def make_trips(clock: Clock) -> tuple[dict[str, Trip], list[dict[str, Any]]]:
    """Run the pipelines in this thread: all of them up to a saved state, the first one also from there, and with a function that fails."""

    def work(element: Any) -> Any:
        clock.now_ns += ELEMENT_NS
        return element

    def fail(element: Any) -> Any:
        raise ZeroDivisionError

    def begin(make: Callable[[], ps.Dataset], options: dict[str, Any]) -> None:
        feeds.append(make().feed(num_workers=0, **options))
        next(feeds[-1])

    feeds: list[ps.Feed] = []
    trips: dict[str, Trip] = {}
    states: list[dict[str, Any]] = []
    for name, (make, options) in everyday(work).items():
        trips[f"first batch: {name}"] = count(partial(begin, make, options))
        for _ in range(NUM_WARM):
            next(feeds[-1])
        states.append(feeds[-1].state_dict())
    trips["warm batch"] = max((count(lambda: next(feeds[0])) for _ in range(NUM_COUNTED)), key=lambda trip: trip.changes)
    trips["state_dict"] = count(feeds[0].state_dict)
    feeds.append(everyday(work)["map, batch"][0]().feed(num_workers=0))
    trips["load_state_dict"] = count(lambda: feeds[-1].load_state_dict(states[0]))
    failing = everyday(fail)["map, batch"][0]()
    trips["failing map"] = count(partial(begin, lambda: failing, {}), expected=ZeroDivisionError)
    for feed in feeds:
        feed.close()
    return trips, states


def form_of(value: Any) -> Any:
    """Return what tells the form of a saved state: its keys, which of them are empty, and its flags. Numbers and lists differ anyway."""
    if isinstance(value, dict):
        return {key: form_of(value[key]) for key in sorted(value)}
    return value if value is None or isinstance(value, bool) else "..."


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
