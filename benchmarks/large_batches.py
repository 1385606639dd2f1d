"""Batches of 19 and 77 MB from worker processes: ms of the loop's thread that a finished one costs, and copies against memcpy.

"in_place" makes each image in a worker. "copied" reads them from an array of the user's in memory.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import rounds
from data import Size

_IMAGE = (3, 224, 224)
_BATCHES = 12
_WAIT_S = {"full": 0.5, "quick": 0.3, "tiny": 0.0}
_PROCESSES: dict[str, Any] = {"executor": "processes", "num_workers": 2}


def _image(number: int) -> np.ndarray[Any, Any]:
    return np.full(_IMAGE, number, np.float32)


class _Images:
    """A map-style dataset for DataLoader."""

    def __len__(self) -> int:
        return 128 * _BATCHES

    def __getitem__(self, index: int) -> Any:
        return _image(index)


def _hand_over(batches: Any, run: rounds.Run) -> dict[str, Any]:
    """Time each `next()` behind a pause in which the batch was finished."""
    took_ms, iterator, num_bytes = [], iter(batches), 0
    for number in range(_BATCHES):
        time.sleep(_WAIT_S[run.size.name])
        begin_s = time.perf_counter()
        batch = next(iterator)
        if number > 1:
            took_ms.append(1e3 * (time.perf_counter() - begin_s))
        num_bytes = batch.nbytes
    return {"hand_over_ms": statistics.median(took_ms), "worst_ms": max(took_ms), "batch_mb": num_bytes / 1e6}


def _in_place(batch_size: int) -> Callable[[rounds.Run], dict[str, Any]]:
    def measure(run: rounds.Run) -> dict[str, Any]:
        import penstock as ps

        with ps.from_source(range(128 * _BATCHES)).map(_image).batch(batch_size).feed(**_PROCESSES, memory_bytes=1 << 29) as feed:
            return _hand_over(feed, run)

    return measure


def _dataloader(batch_size: int) -> Callable[[rounds.Run], dict[str, Any]]:
    def measure(run: rounds.Run) -> dict[str, Any]:
        torch = rounds.torch()
        return _hand_over(torch.utils.data.DataLoader(_Images(), batch_size, num_workers=2), run)

    return measure


def _copied(run: rounds.Run) -> dict[str, Any]:
    import penstock as ps

    array = np.full((1280, *_IMAGE), 7, np.float32)
    memcpy = _memcpy_rate(array, run.size.min_seconds)
    with ps.from_arrays(array).shuffle(seed=1).repeat().batch(128).feed(**_PROCESSES, memory_bytes=1 << 29) as feed:
        for _ in zip(range(10), feed, strict=False):
            pass
        begin_s, count = time.perf_counter(), 0
        while not count or time.perf_counter() - begin_s < run.size.min_seconds:
            next(feed)
            count += 1
        rate = count / (time.perf_counter() - begin_s)
    return {"gb_per_s": rate * array[:128].nbytes / 1e9, "of_memcpy": rate / memcpy}


def _memcpy_rate(array: np.ndarray[Any, Any], seconds: float) -> float:
    """Return how many shuffled batches of 128 one thread copies in a second."""
    out = [np.full((128, *_IMAGE), 0, np.float32) for _ in range(3)]
    order = np.random.default_rng(1)
    begin_s, count = time.perf_counter(), 0
    while not count or time.perf_counter() - begin_s < seconds:
        np.take(array, order.permutation(1280)[:128], axis=0, out=out[count % 3], mode="clip")
        count += 1
    return count / (time.perf_counter() - begin_s)


def _nothing(size: Size, root: Path) -> None:
    """There are no data to make."""


CLAIM = rounds.Claim(
    name="large_batches",
    title="Large batches from worker processes: ms of the loop's thread for one that is finished",
    unit="ms",
    metric="hand_over_ms",
    reference="dataloader_77mb",
    prepare=_nothing,
    also=("worst_ms", "batch_mb", "gb_per_s", "of_memcpy"),
    targets=(
        rounds.Target(contestant="in_place_19mb", metric="hand_over_ms", sense="<=", bound=0.2),
        rounds.Target(contestant="in_place_77mb", metric="hand_over_ms", sense="<=", bound=0.2),
        rounds.Target(contestant="copied", metric="of_memcpy", sense=">=", bound=0.8),
    ),
)

if __name__ == "__main__":
    rounds.main(
        CLAIM,
        {
            "in_place_19mb": _in_place(32),
            "in_place_77mb": _in_place(128),
            "dataloader_19mb": _dataloader(32),
            "dataloader_77mb": _dataloader(128),
            "copied": _copied,
        },
    )
