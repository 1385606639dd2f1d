"""The records of W2, and whether a batch is some of them: for Penstock and for the peers, which may run in another environment."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

BATCH_SIZE = 256
NUM_FLOATS = 256


def records(num: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Return floats of shape (num, 256) and labels of shape (num,)."""
    rng = np.random.default_rng(13)
    return rng.standard_normal((num, NUM_FLOATS), dtype=np.float32), rng.integers(0, 1000, num)


def checker(num: int) -> Callable[[Iterable[Any]], None]:
    """Return a function that consumes an epoch, and raises AssertionError where it is not all of the records but for less than a batch."""
    floats, labels = records(num)
    # The bits of two floats tell the records apart.
    keys = _keys(floats)
    places = np.argsort(keys)
    keys = keys[places]

    def check(batches: Iterable[Any]) -> None:
        seen = np.zeros(num, np.int64)
        for batch in batches:
            rows = np.asarray(batch["x"])
            found = places[np.minimum(np.searchsorted(keys, _keys(rows)), num - 1)]
            assert np.array_equal(rows, floats[found]), "a batch has rows that are none of the records"
            assert np.array_equal(np.asarray(batch["y"]), labels[found]), "a batch has other labels than its records"
            seen[found] += 1
        assert seen.max() == 1, "an epoch has a record twice"
        assert seen.sum() == num - num % BATCH_SIZE, f"an epoch has {seen.sum()} of {num} records"

    return check


def _keys(rows: NDArray[np.float32]) -> NDArray[np.uint64]:
    return np.ascontiguousarray(rows[:, :2]).view(np.uint64)[:, 0]
