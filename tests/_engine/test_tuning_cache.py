from __future__ import annotations

import numpy as np

import penstock as ps
from penstock._engine.tuning import TuningCache


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


def test_no_more_than_64_mb_are_kept_and_each_is_taken_once() -> None:
    tuning_cache = TuningCache()
    tuning_cache.keep_spare([bytearray(65 << 20), bytearray(40 << 20), bytearray(40 << 20)])
    tuning_cache.keep_spare([bytearray(24 << 20), bytearray(1)])
    assert sorted(map(len, tuning_cache.take_spare())) == [24 << 20, 40 << 20]
    assert tuning_cache.take_spare() == []
