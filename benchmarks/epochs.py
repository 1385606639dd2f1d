"""How long the next epoch of a feed takes to begin: from the end of a `for` to the first batch of the next one. And what 1,000 leave."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import machine
import numpy as np
import rounds
from data import Size

_EPOCHS, _MANY = 30, {"full": 1000, "quick": 100, "tiny": 3}
_FEW_ELEMENTS = 64


def _vector(number: int) -> np.ndarray[Any, Any]:
    return np.full(1000, number, np.float32)


class _Vectors:
    """A map-style dataset for DataLoader."""

    def __len__(self) -> int:
        return 1280

    def __getitem__(self, index: int) -> Any:
        return _vector(index)


def _begins(batches: Iterable[Any]) -> dict[str, Any]:
    begins_ms: list[float] = []
    for _ in range(_EPOCHS):
        ended_s, first = time.perf_counter(), True
        for _ in batches:
            if first:
                begins_ms.append((time.perf_counter() - ended_s) * 1e3)
            first = False
    return {"first_ms": begins_ms[0], "next_ms": statistics.median(begins_ms[1:]), "worst_ms": max(begins_ms[1:])}


def _next_epoch(**options: Any) -> Callable[[rounds.Run], dict[str, Any]]:
    def measure(run: rounds.Run) -> dict[str, Any]:
        import penstock as ps

        with ps.from_source(range(1280)).shuffle(seed=1).map(_vector).batch(64).feed(**options) as feed:
            return _begins(feed)

    return measure


def _dataloader(run: rounds.Run) -> dict[str, Any]:
    loader = rounds.torch().utils.data.DataLoader(_Vectors(), 64, shuffle=True, num_workers=2, persistent_workers=True)
    return _begins(loader)


def _many(run: rounds.Run) -> dict[str, Any]:
    """Count what the parent and its two workers have more behind all epochs than behind the first tenth."""
    import penstock as ps

    count = _MANY[run.size.name]
    with ps.from_source(range(_FEW_ELEMENTS)).shuffle(seed=1).map(_vector).batch(8).feed(executor="processes", num_workers=2) as feed:
        found: list[tuple[int, float]] = []
        for epoch in range(count):
            num_batches = sum(1 for _ in feed)
            assert num_batches == _FEW_ELEMENTS // 8
            if epoch + 1 in (max(1, count // 10), count):
                found.append((len(os.listdir("/proc/self/fd")), machine.session_pss_mb(os.getsid(0))))
    return {"next_ms": 0.0, "grown_fds": found[-1][0] - found[0][0], "grown_mb": found[-1][1] - found[0][1]}


def _nothing(size: Size, root: Path) -> None:
    """There are no data to make."""


CLAIM = rounds.Claim(
    name="epochs",
    title="The next epoch of a feed: ms from the end of one `for` to the first batch of the next",
    unit="ms",
    metric="next_ms",
    reference="no_workers",
    prepare=_nothing,
    also=("first_ms", "worst_ms", "grown_fds", "grown_mb"),
    targets=(
        rounds.Target(contestant="two_workers", metric="next_ms", sense="<=", bound=20.0),
        rounds.Target(contestant="two_processes", metric="next_ms", sense="<=", bound=20.0),
        rounds.Target(contestant="two_processes", metric="first_ms", sense="<=", bound=600.0),
        rounds.Target(contestant="many_epochs", metric="grown_fds", sense="<=", bound=0.0),
        rounds.Target(contestant="many_epochs", metric="grown_mb", sense="<=", bound=5.0),
    ),
)

if __name__ == "__main__":
    rounds.main(
        CLAIM,
        {
            "no_workers": _next_epoch(num_workers=0),
            "two_workers": _next_epoch(executor="threads", num_workers=2),
            "eight_workers": _next_epoch(executor="threads", num_workers=8),
            "two_processes": _next_epoch(executor="processes", num_workers=2),
            "dataloader": _dataloader,
            "many_epochs": _many,
        },
    )
