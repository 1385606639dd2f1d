"""The limit: two processes (one per core) that only compute, into memory they own, and hand nothing over."""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Callable, Sequence
from multiprocessing.connection import wait
from typing import Any

import machine

Work = Callable[[], int]
"""Do one portion of work and return how many elements it was."""


def limit(make: Callable[..., Work], arguments: tuple[Any, ...], portions: int, min_seconds: float) -> dict[str, Any]:
    """Run `make(worker, num_workers, *arguments)()` again and again in one process per available core; return their joint rate.

    Args:
        make: builds a worker's state, in the worker; a function of a module.
        arguments: further arguments of `make`.
        portions: portions that each worker does before the clock starts, and at least does on the clock.
        min_seconds: how long the clock runs at least.

    Raises:
        RuntimeError: a worker ended with an error (its traceback is on stderr).
    """
    num_workers = max(1, min(2, len(os.sched_getaffinity(0))))
    context = multiprocessing.get_context("fork")
    barrier, results = context.Barrier(num_workers), context.SimpleQueue()
    workers = [
        context.Process(target=_work, args=(make, (worker, num_workers, *arguments), portions, min_seconds, barrier, results))
        for worker in range(num_workers)
    ]
    for worker in workers:
        worker.start()
    _join(workers)
    reports = [results.get() for _ in workers]
    rate = sum(report["rate"] for report in reports)
    return {"rate": rate, "seconds": max(report["seconds"] for report in reports), "other_cores": reports[0]["other_cores"]}


def _join(workers: Sequence[Any]) -> None:
    """Wait for all workers; when one fails, end the others, which would wait at the barrier for it for ever."""
    running = list(workers)
    try:
        while running:
            wait([worker.sentinel for worker in running])
            for worker in [one for one in running if one.exitcode is not None]:
                if worker.exitcode != 0:
                    raise RuntimeError(f"a worker of the limit ended with exit status {worker.exitcode}")
                running.remove(worker)
    finally:
        for worker in running:
            worker.terminate()
            worker.join()


def _work(make: Callable[..., Work], arguments: tuple[Any, ...], portions: int, min_seconds: float, barrier: Any, results: Any) -> None:
    machine.die_with_parent()
    step = make(*arguments)
    for _ in range(portions):
        step()
    barrier.wait()
    own, everybody, start = time.process_time(), machine.busy_s(), time.perf_counter()
    count, done = 0, 0
    while done < portions or time.perf_counter() - start < min_seconds:
        count += step()
        done += 1
    seconds = time.perf_counter() - start
    # Both workers use the same CPU time, so one's own counts twice.
    other_s = machine.busy_s() - everybody - barrier.parties * (time.process_time() - own)
    results.put({"rate": count / seconds, "seconds": seconds, "other_cores": max(0.0, other_s / seconds)})
