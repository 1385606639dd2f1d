from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

import penstock as ps
from penstock._engine.chunk import Token
from penstock._engine.lowering import lower
from penstock._engine.scheduler import Scheduler
from penstock._engine.tuning import TuningCache
from penstock.dataset.operators import Chaining


def dataset() -> ps.Dataset:
    return ps.from_source(range(20_000)).map(lambda x: np.full(3, x)).batch(16)


def new(of: Chaining, num_workers: int = 2, memory_bytes: int = 1 << 26, elsewhere: bool = False) -> Scheduler:
    return Scheduler(replace(lower(of._root), elsewhere=elsewhere), num_workers, memory_bytes, Token((0, 0)))


def sizes(scheduler: Scheduler) -> list[tuple[int, list[int]]]:
    return [(segment.chunk_size.items, [block.size for block in segment.blocks]) for segment in scheduler.segments]


def test_a_run_begins_with_what_the_last_one_of_its_shape_ended_with() -> None:
    tuning_cache, scheduler = TuningCache(), new(dataset())
    scheduler.segments[0].blocks[0].begin((1000.0, 50, 300))
    scheduler.segments[0].chunk_size.begin(7)
    scheduler.active._go(1, "one works")
    tuning_cache.keep(scheduler)
    again, fewer, smaller = new(dataset()), new(dataset(), num_workers=1), new(dataset(), memory_bytes=1 << 20)
    processes = new(dataset(), elsewhere=True)
    for one in (again, fewer, smaller, processes):
        tuning_cache.begin(one)
    assert sizes(again) == [(7, [300])]
    assert again.segments[0].blocks[0].found == (1000.0, 50, 300)
    assert (again.active.limit, again.active.notice) == (1, "one works")
    assert fewer.active.limit == 1
    assert smaller.active.limit == processes.active.limit == 2
    assert sizes(fewer) == sizes(smaller) == [(1, [1])]


def batch_addresses(ds: ps.Dataset) -> set[int]:
    """Read an epoch, keep nothing, and return where its batches lay."""
    with ds.feed(executor="threads", num_workers=2) as feed:
        return {batch.ctypes.data for batch in feed}


def test_an_epoch_takes_fresh_memory_only_where_the_one_before_left_none() -> None:
    ds = ps.from_arrays(np.zeros((64, 200_000))).batch(8)  # 12.8 MB: a chunk never holds two of them, and a buffer always fits
    assert batch_addresses(ds)
    spare = list(ds._tuning_cache._spare)
    assert len(spare) >= 2
    places = [(np.frombuffer(buffer, np.uint8).ctypes.data, len(buffer)) for buffer in spare]
    again = batch_addresses(ds)
    reused = [sum(start <= one < start + size for one in again) for start, size in places]
    assert sum(reused) == min(len(again), len(spare))
    assert max(reused) == 1


def test_a_batch_that_is_held_is_written_over_by_no_later_epoch() -> None:
    ds = ps.from_source(range(400)).map(lambda x: np.full(50_000, x)).batch(4)
    held = []
    for _ in range(5):
        with ds.feed(executor="threads", num_workers=2) as feed:
            held += [batch for number, batch in enumerate(feed) if number % 17 == 3]
    assert [batch[:, ::49_999].tolist() for batch in held] == [
        [[row, row] for row in range(4 * number, 4 * number + 4)] for number in range(3, 100, 17)
    ] * 5


def test_what_an_element_looks_like_is_a_guess_only() -> None:
    shapes = iter([(2,), (3,)])

    class Changing:
        def __init__(self) -> None:
            self.shape = (2,)

        def __len__(self) -> int:
            return 40

        def __getitem__(self, index: int) -> Any:
            return np.full(self.shape, index)

    source = Changing()
    ds = ps.from_source(source).batch(5)
    for shape in shapes:
        source.shape = shape
        for _ in range(2):
            with ds.feed(executor="threads", num_workers=2) as feed:
                assert [batch.shape for batch in feed] == [(5, *shape)] * 8
