"""From `feed()` to its first batch with worker processes, also where functions import PyTorch; memory of idle workers."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import machine
import rounds
from data import Size

_BATCH_SIZE = 4


def _negative(number: int) -> int:
    return -number


def _function(needs_torch: bool) -> Callable[[int], int]:
    if not needs_torch:
        return _negative
    rounds.torch()
    from start_torch import half

    return half


def _import_s() -> float:
    """Return how long a fresh interpreter takes to start and to import PyTorch: the second time, with its files in the page cache."""
    for _ in range(2):
        start = time.perf_counter()
        subprocess.run([sys.executable, "-c", "import torch"], check=True)
    return time.perf_counter() - start


def _private_mb(pid: int) -> float:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("Private")) * 1024 / 1e6


def _figures(first_s: float, needs_torch: bool) -> dict[str, Any]:
    return {"first_ms": first_s * 1e3, **({"beyond_import_ms": (first_s - _import_s()) * 1e3} if needs_torch else {})}


def _penstock(num_workers: int, needs_torch: bool = False) -> Callable[[rounds.Run], dict[str, Any]]:
    def measure(run: rounds.Run) -> dict[str, Any]:
        import penstock as ps

        dataset = ps.from_source(range(_BATCH_SIZE * 1000)).map(_function(needs_torch)).batch(_BATCH_SIZE)
        start = time.perf_counter()
        with dataset.feed(executor="processes", num_workers=num_workers) as feed:
            next(feed)
            first_s = time.perf_counter() - start
            for _ in feed:
                pass
            nurseries = [nursery for engine in machine.children() for nursery in machine.children(engine)]
            idle = [_private_mb(int(pid)) for nursery in nurseries for pid in machine.children(nursery)]
        return {**_figures(first_s, needs_torch), "idle_mb": sum(idle) / len(idle)}

    return measure


class _Numbers:
    """A map-style dataset for DataLoader."""

    def __init__(self, function: Callable[[int], int]) -> None:
        self._function = function

    def __len__(self) -> int:
        return _BATCH_SIZE * 1000

    def __getitem__(self, index: int) -> int:
        return self._function(index)


def _dataloader(num_workers: int, method: str, needs_torch: bool = False) -> Callable[[rounds.Run], dict[str, Any]]:
    def measure(run: rounds.Run) -> dict[str, Any]:
        dataset, loader_of = _Numbers(_function(needs_torch)), rounds.torch().utils.data.DataLoader
        start = time.perf_counter()
        batches = iter(loader_of(dataset, _BATCH_SIZE, num_workers=num_workers, multiprocessing_context=method))
        next(batches)
        return _figures(time.perf_counter() - start, needs_torch)

    return measure


def _nothing(size: Size, root: Path) -> None:
    """There are no data to make."""


CLAIM = rounds.Claim(
    name="start",
    title="From feed() to the first batch with worker processes; memory of an idle worker that it shares with no other",
    unit="ms",
    metric="first_ms",
    reference="processes_2",
    prepare=_nothing,
    also=("beyond_import_ms", "idle_mb"),
    targets=(
        rounds.Target(contestant="processes_2", metric="first_ms", sense="<=", bound=400.0),
        rounds.Target(contestant="processes_16", metric="first_ms", sense="<=", bound=1000.0),
        rounds.Target(contestant="processes_16", metric="idle_mb", sense="<=", bound=12.0),
        rounds.Target(contestant="torch_processes_16", metric="beyond_import_ms", sense="<=", bound=500.0),
        rounds.Target(contestant="torch_processes_16", metric="idle_mb", sense="<=", bound=12.0),
    ),
)

if __name__ == "__main__":
    rounds.main(
        CLAIM,
        {
            "processes_2": _penstock(2),
            "processes_16": _penstock(16),
            "torch_processes_16": _penstock(16, needs_torch=True),
            "dataloader_2_fork": _dataloader(2, "fork"),
            "dataloader_16_fork": _dataloader(16, "fork"),
            "dataloader_16_spawn": _dataloader(16, "spawn"),
            "dataloader_16_torch_spawn": _dataloader(16, "spawn", needs_torch=True),
        },
    )
