"""The ways to run a feed that every fault is tried with, and what came out of one."""

from __future__ import annotations

import os
import re
import threading
from pathlib import Path
from typing import Any

import pytest
from core import core
from laws.epochs import rest
from laws.plans import plain

import penstock as ps

WAYS: list[dict[str, Any]] = [
    {"executor": "inline"},
    {"executor": "threads", "num_workers": 1},
    {"executor": "threads", "num_workers": 2},
    {"executor": "threads", "num_workers": 8},
]
THREADS: list[dict[str, Any]] = WAYS[1:]

_NAMES = ["inline", "1 thread", "2 threads", "8 threads"]
every_way = pytest.mark.parametrize("way", core(WAYS, [WAYS[0], WAYS[2]]), ids=_NAMES)
every_thread_count = pytest.mark.parametrize("way", core(THREADS, [WAYS[2]]), ids=_NAMES[1:])

UNORDERED: list[dict[str, Any]] = [{**way, "ordered": False} for way in WAYS]
every_unordered_way = pytest.mark.parametrize("way", UNORDERED, ids=_NAMES)
every_thread_count_and_order = pytest.mark.parametrize(
    "way", core([*THREADS, *UNORDERED[1:]], [WAYS[2], UNORDERED[2]]), ids=[*_NAMES[1:], *(f"{name}, unordered" for name in _NAMES[1:])]
)
every_way_and_order = pytest.mark.parametrize(
    "way", core([*WAYS, *UNORDERED], [WAYS[0], WAYS[2], UNORDERED[2]]), ids=[*_NAMES, *(f"{name}, unordered" for name in _NAMES)]
)

SETTLED_S = 0.3
"""What has not happened after so long, in a process that has nothing else to do, does not happen."""


def drained(feed: ps.Feed) -> tuple[list[Any], BaseException | None]:
    """Take all that the feed delivers, and the error that ended it."""
    items: list[Any] = []
    with feed:
        try:
            items.extend(plain(item) for item in rest(feed))
        except BaseException as error:  # a worker's SystemExit that came through would otherwise end the tests
            return items, error
    return items, None


def resumed(ds: ps.Dataset, state: Any, **way: Any) -> list[Any]:
    """Return all that a new feed delivers behind a state."""
    feed = ds.feed(**way)
    feed.load_state_dict(state)
    if feed.epoch > 0:  # saved behind the last element: the start of the next epoch
        return []
    items, error = drained(feed)
    assert error is None
    return items


def notes(error: BaseException | None) -> str:
    """Return all notes of an error."""
    return "\n".join(getattr(error, "__notes__", ()))


def worker_named_in(text: str) -> int:
    """Return the number of the worker that an error names."""
    found = re.search(r"worker (\d+)", text)
    assert found is not None, text
    return int(found[1])


def engine_threads() -> list[str]:
    """Name the threads of feeds that are alive."""
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("penstock-")]


def resident_bytes() -> int:
    """Return the memory that this process occupies now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


needs_proc = pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="memory and descriptors are read from /proc")
