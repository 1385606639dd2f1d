"""Lists of jobs in two processes: `parallel_jobs` beside `Pool.map`, the classic split and `ProcessPoolExecutor.map`, jobs per second.

A job computes for a given time. Each contestant does whole lists, as a program would: start the workers, do the jobs, end the workers. All
use one fork server that is warm and has imported the same modules.
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import rounds
from data import Size

_WORKERS = 2
_SCALE = {"full": 1.0, "quick": 0.25, "tiny": 0.01}

Call = Callable[[Callable[[float], float], list[float]], list[float]]


def compute(seconds: float) -> float:
    """Keep a core busy for so long."""
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass
    return seconds


def _jobs(kind: str, scale: float) -> list[float]:
    def of(count: int, seconds: float) -> list[float]:
        return [seconds] * max(2, round(count * scale))

    return {
        "tiny": of(400_000, 1e-6),
        "small": of(4000, 1e-3),
        "large": of(40, 0.1),
        "uneven": of(800, 0.002) + of(80, 0.04),  # as files sorted by size
    }[kind]


def _penstock(fn: Any, jobs: list[float]) -> list[float]:
    import penstock as ps

    return ps.parallel_jobs(fn, jobs, _WORKERS)


def _pool(fn: Any, jobs: list[float], chunk: int | None = None, method: str = "forkserver") -> list[float]:
    with multiprocessing.get_context(method).Pool(_WORKERS) as pool:
        return pool.map(fn, jobs, chunk)


def _split(fn: Any, jobs: list[float]) -> list[float]:
    """One part per worker."""
    return _pool(fn, jobs, -(-len(jobs) // _WORKERS))


def _fork(fn: Any, jobs: list[float]) -> list[float]:
    return _pool(fn, jobs, method="fork")


def _executor(fn: Any, jobs: list[float]) -> list[float]:
    with ProcessPoolExecutor(_WORKERS, multiprocessing.get_context("forkserver")) as executor:
        return list(executor.map(fn, jobs))


def _contestant(call: Call, kind: str) -> Callable[[rounds.Run], dict[str, Any]]:
    def measure(run: rounds.Run) -> dict[str, Any]:
        multiprocessing.set_forkserver_preload(["penstock.jobs", "concurrent.futures.process"])
        multiprocessing.get_context("forkserver").Process(target=compute, args=(0.0,)).start()
        jobs = _jobs(kind, _SCALE[run.size.name])
        call(compute, jobs[:4])
        start, done = time.perf_counter(), 0
        while done == 0 or time.perf_counter() - start < run.size.min_seconds:
            if call(compute, jobs) != jobs:
                raise AssertionError("other results")
            done += len(jobs)
        return {"rate": done / (time.perf_counter() - start)}

    return measure


def _nothing(size: Size, root: Path) -> None:
    """There are no data to make."""


CALLS: dict[str, Call] = {"penstock": _penstock, "pool": _pool, "pool_split": _split, "pool_fork": _fork, "executor": _executor}
KINDS = ("small", "large", "uneven", "tiny")

CLAIM = rounds.Claim(
    name="jobs",
    title="Lists of jobs in two processes",
    unit="jobs/s",
    prepare=_nothing,
    reference="pool_small",
    references={f"{name}_{kind}": f"pool_{kind}" for kind in KINDS[1:] for name in CALLS},
    targets=(
        rounds.Target(contestant="penstock_small", metric="ratio", sense=">=", bound=0.95),
        rounds.Target(contestant="penstock_large", metric="ratio", sense=">=", bound=1.0),
        rounds.Target(contestant="penstock_uneven", metric="ratio", sense=">=", bound=1.05),
    ),
)

if __name__ == "__main__":
    rounds.main(CLAIM, {f"{name}_{kind}": _contestant(call, kind) for kind in KINDS for name, call in CALLS.items()})
