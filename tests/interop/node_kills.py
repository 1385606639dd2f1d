"""Nodes of a Ray cluster that are killed while a feed uses them. `python tests/interop/node_kills.py [kills]`."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np
from interop.ray_nodes import Nodes, several_nodes

import penstock as ps
from penstock.testing.runs import exact


def slow_row(x: int) -> dict[str, Any]:
    time.sleep(0.004)
    return {"x": x, "row": np.full(3000, x, np.float32), "text": "a" * (x % 7)}


def kill_one(nodes: Nodes, run: int) -> None:
    """Kill one of two nodes behind a batch, and raise AssertionError where the batches are not those of a run in line."""
    victim = nodes.ensure(2)[run % 2]
    ds = ps.from_source(range(600)).shuffle(seed=run).map(slow_row).batch(5)
    items = []
    with ds.feed(executor="ray", num_workers=4, stall_timeout_s=60) as feed:
        for number, item in enumerate(feed):
            items.append(exact(item))
            if number == run * 7 % 60:
                nodes.kill(victim)
    nodes.ensure(2)
    with ds.feed(executor="inline") as feed:
        assert items == [exact(item) for item in feed], f"run {run}"


def main(arguments: list[str]) -> int:
    """Kill so many nodes, one after the other; print which runs were not the same."""
    count, broken = int(arguments[0]) if arguments else 50, 0
    with several_nodes(2) as nodes:
        for run in range(count):
            try:
                kill_one(nodes, run)
            except Exception as error:
                broken += 1
                print(f"BROKEN node kill, run {run}: {type(error).__name__}: {error}", flush=True)
    print(f"Ray: {count - broken} of {count} runs with a killed node are the run in line", flush=True)
    return min(1, broken)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
