"""A list of paths that two worker processes read: the memory of all processes beside that of the list alone, and elements per second."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import machine
import rounds
from data import Size

_COUNTS = {"full": 2_000_000, "quick": 200_000, "tiny": 2000}
_BATCH_SIZE, _EPOCHS = 1000, 2


def _paths(run: rounds.Run) -> list[str]:
    return [f"/data/train/class{number % 1000}/image_{number:08}.jpg" for number in range(_COUNTS[run.size.name])]


def _read(epochs: Iterable[Iterable[Any]], count: int) -> dict[str, Any]:
    start, done = time.perf_counter(), 0
    for epoch in epochs:
        for batch in epoch:
            done += len(batch)
        memory_mb = machine.session_pss_mb(os.getsid(0))
    assert done == _EPOCHS * count
    return {"memory_mb": memory_mb, "rate": done / (time.perf_counter() - start)}


def _penstock(**options: Any) -> Callable[[rounds.Run], dict[str, Any]]:
    def measure(run: rounds.Run) -> dict[str, Any]:
        import penstock as ps

        paths = _paths(run)
        with ps.from_source(paths).map(len).batch(_BATCH_SIZE).feed(**options) as feed:
            return _read([feed] * _EPOCHS, len(paths))

    return measure


class _Lengths:
    """A map-style dataset for DataLoader."""

    def __init__(self, paths: list[str]) -> None:
        self._paths = paths

    def __len__(self) -> int:
        return len(self._paths)

    def __getitem__(self, index: int) -> int:
        return len(self._paths[index])


def _dataloader(method: str) -> Callable[[rounds.Run], dict[str, Any]]:
    def measure(run: rounds.Run) -> dict[str, Any]:
        paths = _paths(run)
        loader = rounds.torch().utils.data.DataLoader(
            _Lengths(paths), _BATCH_SIZE, num_workers=2, persistent_workers=True, multiprocessing_context=method
        )
        return _read([loader] * _EPOCHS, len(paths))

    return measure


def _nothing(size: Size, root: Path) -> None:
    """There are no data to make."""


CLAIM = rounds.Claim(
    name="list_memory",
    title="A list of paths in two worker processes: memory of all processes (PSS) beside one process",
    unit="MB",
    metric="memory_mb",
    reference="inline",
    prepare=_nothing,
    also=("rate",),
    targets=(rounds.Target(contestant="processes", metric="ratio", sense="<=", bound=2.0),),
)

if __name__ == "__main__":
    rounds.main(
        CLAIM,
        {
            "inline": _penstock(executor="inline"),
            "processes": _penstock(executor="processes", num_workers=2),
            "dataloader_fork": _dataloader("fork"),
            "dataloader_forkserver": _dataloader("forkserver"),
        },
    )
