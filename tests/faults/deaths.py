"""Pipelines whose workers die at random times, in random ways."""

from __future__ import annotations

import os
import random
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from faults.cells import begun
from faults.jobs_in_workers import batch_sum, claimed, copies, die, doubled, keep, noisy, number_of, ragged, row, words

import penstock as ps

__all__ = ["PLANS", "DiesSometimes", "killer", "unhurt"]

HOWS = ("SIGKILL", "SIGSEGV", "exit 0", "exit 3")
SIZE = 400


class DiesSometimes:
    """Ends its process at some elements, each the first time."""

    def __init__(self, folder: Path, seed: int, count: int) -> None:
        chance = random.Random(seed)
        self.folder = folder
        self.places = {chance.randrange(SIZE): chance.choice(HOWS) for _ in range(count)}

    def __call__(self, x: Any) -> Any:
        how = self.places.get(number_of(x))
        if how is not None and claimed(self.folder, f"died at {number_of(x)}", 1):
            die(how)
        return x


def unhurt(x: Any) -> Any:
    """Stand in for DiesSometimes in a run that nothing disturbs."""
    return x


PLANS: dict[str, Callable[[Callable[[Any], Any]], ps.Dataset]] = {
    "map, filter, batch": lambda hurt: ps.from_source(range(SIZE)).shuffle(seed=1).map(hurt, name="hurt").filter(keep).map(row).batch(7),
    "random numbers, flat_map, buffer": lambda hurt: (
        ps.from_source(range(SIZE)).map(hurt, name="hurt").flat_map(copies).map(noisy, seed=3).shuffle(30, seed=2).batch(9)
    ),
    "above batches": lambda hurt: ps.from_source(range(SIZE)).batch(8).map(hurt, name="hurt").map(batch_sum),
    "texts": lambda hurt: ps.from_source(range(SIZE)).map(hurt, name="hurt").map(words),
    "ragged": lambda hurt: ps.from_source(range(SIZE)).map(hurt, name="hurt").map(ragged),
    "the elements of one rank": lambda hurt: (
        ps.from_source(range(SIZE)).repeat().shard_by_rank(rank=1, num_ranks=3).map(hurt, name="hurt").flat_map(copies).shuffle(9).take(99)
    ),
    "two epochs": lambda hurt: ps.from_source(range(SIZE // 2)).map(doubled).map(hurt, name="hurt").repeat(2).batch(3),
}


@contextmanager
def killer(feed: ps.Feed, seed: int, count: int) -> Iterator[None]:
    """Kill random workers of a feed at random times, from another thread."""
    chance, over = random.Random(seed), threading.Event()

    def kill() -> None:
        for _ in range(count):
            if over.wait(chance.random() ** 2 * 0.1):
                return
            try:
                found = begun(feed)
            except (AssertionError, RuntimeError):  # not begun, or a worker is being entered
                continue
            if found:
                pid = chance.choice(found)
                try:
                    os.kill(pid, chance.choice([signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM, signal.SIGABRT]))
                except ProcessLookupError:
                    pass

    thread = threading.Thread(target=kill)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
