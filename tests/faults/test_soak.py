"""Many epochs, many abandoned feeds, many starts: nothing grows. FAULTS G2 in a short form, and G3."""

from __future__ import annotations

import gc
import os
import sys
import threading
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from core import core
from faults.cells import pids
from faults.outside import kilobytes_of
from faults.ways import WAYS, engine_threads, needs_proc, resident_bytes
from feeds import resumed
from programs import output_of

import penstock as ps
from penstock._engine.slots import KEEP_BYTES

pytestmark = needs_proc


def count_descriptors() -> int:
    """Count those that stay open: a worker has one while it looks how long it waited for a CPU, and may have to wait for the GIL."""

    def count() -> int:
        time.sleep(0.001)
        return len(os.listdir("/proc/self/fd"))

    return min(count() for _ in range(100))


def count_threads() -> int:
    return len(list(Path("/proc/self/task").iterdir()))


def grows_by(cycle: Callable[[], None], *, warm_up: int, rounds: int) -> int:
    """Run `cycle` until it is warm and then `rounds` times; check threads and descriptors; return the growth in bytes per round."""
    for _ in range(warm_up):
        cycle()
    gc.collect()
    threads, descriptors, memory = count_threads(), count_descriptors(), resident_bytes()
    for _ in range(rounds):
        cycle()
    gc.collect()
    assert engine_threads() == []
    assert threading.active_count() <= threads
    assert count_descriptors() == descriptors
    return (resident_bytes() - memory) // rounds


def dataset() -> ps.Dataset:
    return ps.from_source(range(100)).shuffle(seed=1).map(lambda x: np.full(200, x)).batch(10)


def many_epochs(way: dict[str, Any]) -> None:
    with dataset().repeat(10_000).feed(**{"executor": "threads", **way}) as feed:
        orders, memory = set(), []
        for epoch in range(10_000):
            order = [int(x) for _ in range(10) for x in next(feed)[:, 0]]
            assert sorted(order) == list(range(100))
            orders.add(tuple(order))
            memory.append(resident_bytes())
            if epoch == 200:
                threads, descriptors = count_threads(), count_descriptors()
        assert count_threads() == threads
        assert count_descriptors() == descriptors
        # The lowest of many: units come and go by the megabyte, and how many there are at one moment is a matter of luck. What may still
        # come is the free buffers that are kept, and 4 to 6 MB of holes in the heap; a batch lost an epoch would be 110 MB.
        assert min(memory[-1000:]) - min(memory[1000:2000]) < KEEP_BYTES + (16 << 20)
        # By then as many buffers are kept as ever will be, at some moment of a thousand epochs: a batch lost an epoch would be 55 MB.
        assert max(memory[-1000:]) - max(memory[5000:6000]) < 32 << 20
        with pytest.raises(StopIteration):
            next(feed)
    assert len(orders) == 10_000


@pytest.mark.parametrize("way", core(WAYS), ids=str)
def test_ten_thousand_epochs_of_a_hundred_samples_in_one_feed_are_whole_and_grow_nothing(way: dict[str, Any]) -> None:
    # In a process of its own: the large heap of one that ran thousands of tests takes and gives pages whatever runs in it.
    code = f"from faults.test_soak import many_epochs; many_epochs({way!r})"
    output_of("-c", code, timeout_s=300)


@pytest.mark.slow
def test_a_thousand_abandoned_feeds_leave_nothing() -> None:
    ds = dataset().with_options(executor="threads", num_workers=2)
    turn = iter(range(10**6))

    def abandon() -> None:
        steps = next(turn) % 4
        feed = iter(ds)
        for _ in range(steps):
            next(feed)

    assert grows_by(abandon, warm_up=100, rounds=1000) < 2000


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS, ids=str)
def test_two_hundred_starts_and_stops_leave_nothing(way: dict[str, Any]) -> None:
    ds = dataset()

    def start_and_stop() -> None:
        with ds.feed(**{"executor": "threads", **way}) as feed:
            batch = next(feed)
            state = feed.state_dict()
        assert batch.shape == (10, 200)
        assert len(resumed(ds, state, **way)) == 9

    assert grows_by(start_and_stop, warm_up=40, rounds=200) < 10_000


def memory_of_workers(texts: list[str]) -> list[int]:
    """Return what worker processes have of their own after one and after three epochs of a list."""
    found = []
    with ps.from_source(texts).map(len).batch(1000).repeat().feed(executor="processes", num_workers=2) as feed:
        for epochs in (1, 2):
            for _ in range(epochs * len(texts) // 1000):
                assert set(next(feed)) == {32}
            found.append(sum(1024 * kilobytes_of(pid, "Anonymous") for pid in pids(feed)))
    return found


@pytest.mark.parametrize("count", core([300_000, 3_000_000]))
def test_a_list_of_texts_lies_in_memory_once_for_all_worker_processes_and_reading_it_copies_nothing(count: int) -> None:
    texts = [f"/data/train/image_{number:010}.jpg" for number in range(count)]
    few, _ = memory_of_workers(texts[:1000])
    before = kilobytes_of(os.getpid(), "Anonymous")
    once, thrice = memory_of_workers(texts)
    part = 0.3 * count * (8 + sys.getsizeof(texts[0]))
    assert once - few < part  # two lists would be 2
    assert thrice < 1.05 * once
    assert 1024 * (kilobytes_of(os.getpid(), "Anonymous") - before) < part + (32 << 20)  # the pickles are freed


@pytest.mark.slow
def test_python_objects_do_not_grow_with_the_epochs() -> None:
    ds = ps.from_source(range(100)).filter(lambda x: x % 3).batch(7).repeat()
    sizes = []
    tracemalloc.start()  # before the feed: what it let go of since then counts, too
    try:
        with ds.feed(executor="inline") as feed:
            for _ in range(2):
                for _ in range(3000):
                    next(feed)
                gc.collect()
                sizes.append(tracemalloc.get_traced_memory()[0])
    finally:
        tracemalloc.stop()
    assert sizes[1] - sizes[0] < 50_000
