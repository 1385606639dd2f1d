"""How long `state_dict()` takes while a feed runs."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import machine
import numpy as np
import rounds
from data import Size


def _keep(value: int) -> bool:
    return value % 3 != 0


def _measure(build: Callable[[int], Any]) -> Callable[[rounds.Run], dict[str, Any]]:
    def measure(run: rounds.Run) -> dict[str, Any]:
        taken_ms: list[float] = []
        largest = 0
        everybody, own, start = machine.busy_s(), time.process_time(), time.perf_counter()
        with build(run.size.num_integers).feed() as feed:
            for _ in islice(feed, run.size.num_integers // 500):
                before = time.perf_counter()
                state = feed.state_dict()
                taken_ms.append((time.perf_counter() - before) * 1e3)
                largest = max(largest, len(json.dumps(state))) if len(taken_ms) % 64 == 1 else largest
        other_s = machine.busy_s() - everybody - (time.process_time() - own)
        return {
            "p50_ms": float(np.percentile(taken_ms, 50)),
            "p99_ms": float(np.percentile(taken_ms, 99)),
            "longest_ms": max(taken_ms),
            "state_bytes": largest,
            "other_cores": max(0.0, other_s / (time.perf_counter() - start)),
        }

    return measure


def _order(num_integers: int) -> Any:
    import penstock as ps

    return ps.from_source(range(num_integers)).shuffle(seed=7).batch(256).repeat()


def _window(num_integers: int) -> Any:
    import penstock as ps

    return ps.from_source(range(num_integers)).shuffle(buffer_size=1000, seed=7).batch(256).repeat()


def _filter(num_integers: int) -> Any:
    import penstock as ps

    return ps.from_source(range(num_integers)).shuffle(seed=7).filter(_keep).batch(256).repeat()


def _nothing(size: Size, root: Path) -> None:
    """There are no data to make."""


CLAIM = rounds.Claim(
    name="state",
    title="state_dict() of a running feed, 99th percentile",
    unit="ms",
    metric="p99_ms",
    prepare=_nothing,
    reference="shuffle",
    also=("p50_ms", "longest_ms", "state_bytes"),
    targets=tuple(
        rounds.Target(contestant=name, metric=metric, sense="<=", bound=1.0)
        for name in ("shuffle", "window_shuffle", "filter")
        for metric in ("p50_ms", "p99_ms")
    ),
)

if __name__ == "__main__":
    rounds.main(CLAIM, {"shuffle": _measure(_order), "window_shuffle": _measure(_window), "filter": _measure(_filter)})
