"""The records of W2, and whether a batch is some of them: for Penstock and for the peers, which may run in another environment."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

BATCH_SIZE = 256
NUM_FLOATS = 256


def records(num: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Return floats of shape (num, 256) and labels of shape (num,)."""
    rng = np.random.default_rng(13)
    return rng.standard_normal((num, NUM_FLOATS), dtype=np.float32), rng.integers(0, 1000, num)


def checker(num: int) -> Callable[[Mapping[str, Any]], None]:
    """Return a function that raises AssertionError where a row of a batch is none of the records."""
    floats, labels = records(num)
    # The bits of two floats tell the records apart.
    keys = _keys(floats)
    places = np.argsort(keys)
    keys = keys[places]

    def check(batch: Mapping[str, Any]) -> None:
        rows = np.asarray(batch["x"])
        found = places[np.minimum(np.searchsorted(keys, _keys(rows)), num - 1)]
        assert np.array_equal(rows, floats[found]), "a batch has rows that are none of the records"
        assert np.array_equal(np.asarray(batch["y"]), labels[found]), "a batch has other labels than its records"
        assert len(np.unique(found)) == len(found), "a batch has a record twice"

    return check


def _keys(rows: NDArray[np.float32]) -> NDArray[np.uint64]:
    return np.ascontiguousarray(rows[:, :2]).view(np.uint64)[:, 0]
