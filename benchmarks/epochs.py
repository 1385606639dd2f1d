"""How long the next epoch of a feed takes to begin: from the end of a `for` to the first batch of the next one."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import rounds
from data import Size

_EPOCHS = 30


def _vector(number: int) -> np.ndarray[Any, Any]:
    return np.full(1000, number, np.float32)


def _next_epoch(num_workers: int) -> Callable[[rounds.Run], dict[str, Any]]:
    def measure(run: rounds.Run) -> dict[str, Any]:
        import penstock as ps

        dataset = ps.from_source(range(1280)).shuffle(seed=1).map(_vector).batch(64)
        begins_ms: list[float] = []
        with dataset.feed(num_workers=num_workers) as feed:
            for _ in range(_EPOCHS):
                ended_s, first = time.perf_counter(), True
                for _ in feed:
                    if first:
                        begins_ms.append((time.perf_counter() - ended_s) * 1e3)
                    first = False
        return {"first_ms": begins_ms[0], "next_ms": statistics.median(begins_ms[1:]), "worst_ms": max(begins_ms[1:])}

    return measure


def _nothing(size: Size, root: Path) -> None:
    """There are no data to make."""


CLAIM = rounds.Claim(
    name="epochs",
    title="The next epoch of a feed: ms from the end of one `for` to the first batch of the next",
    unit="ms",
    metric="next_ms",
    reference="no_workers",
    prepare=_nothing,
    also=("first_ms", "worst_ms"),
    targets=(rounds.Target(contestant="two_workers", metric="next_ms", sense="<=", bound=20.0),),
)

if __name__ == "__main__":
    rounds.main(CLAIM, {"no_workers": _next_epoch(0), "two_workers": _next_epoch(2), "eight_workers": _next_epoch(8)})
