"""Ray workers against worker processes, and Ray Data, with the same function; what an item costs; several nodes.

`--work` is w1 or w5 (as in `functions.py`: two workers each), block (10 ms of sleep an element, one worker: 0.83 is 2 ms an item) or nodes
(the same sleep on one, two and four nodes of four workers).
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import drive
import functions
import numpy as np
import rounds
from data import Size

_FLAG = "--work"
_SLEEP_S, _PER_NODE, _BATCH = 0.01, 4, 16


def _asleep(index: int) -> int:
    time.sleep(_SLEEP_S)
    return index


def _sleeping(run: rounds.Run, num_elements: int, **options: Any) -> dict[str, Any]:
    import penstock as ps

    with ps.from_source(range(num_elements)).map(_asleep).batch(_BATCH).feed(**options) as feed:
        return drive.epochs(lambda: feed, _BATCH, run.size.min_seconds)


def _with_ray(num_cpus: int, body: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    import ray

    ray.init(num_cpus=num_cpus, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    try:
        return body()
    finally:
        ray.shutdown()


def _on_nodes(run: rounds.Run, count: int) -> dict[str, Any]:
    import ray
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    try:
        for _ in range(count):
            cluster.add_node(num_cpus=_PER_NODE)
        cluster.wait_for_nodes()
        ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
        num_workers = count * _PER_NODE
        return _sleeping(run, 640 * count, executor="ray", num_workers=num_workers)
    finally:
        ray.shutdown()
        cluster.shutdown()


def _ray_data(work: Any, run: rounds.Run) -> dict[str, Any]:
    import ray.data

    items = work.make(run)
    ray.data.DataContext.get_current().enable_progress_bars = False

    def row(given: dict[str, Any]) -> dict[str, Any]:
        element = items[given["id"]]
        leaves = element if isinstance(element, tuple) else (element,)
        return {f"leaf{number}": np.asarray(leaf) for number, leaf in enumerate(leaves)}

    dataset = ray.data.range(len(items)).random_shuffle().map(row)
    size = items.batch_size
    return drive.epochs(lambda: dataset.iter_batches(batch_size=size, drop_last=True, prefetch_batches=4), size, run.size.min_seconds)


def _contestants(name: str) -> rounds.Contestants:
    if name == "nodes":
        return {
            "one_node": lambda run: _on_nodes(run, 1),
            "two_nodes": lambda run: _on_nodes(run, 2),
            "four_nodes": lambda run: _on_nodes(run, 4),
        }
    if name == "block":
        return {
            "thread": lambda run: _sleeping(run, 160, executor="threads", num_workers=1),
            "ray": lambda run: _with_ray(1, lambda: _sleeping(run, 160, executor="ray", num_workers=1)),
        }
    work = functions.WORKS[name]
    return {
        "processes": lambda run: functions.with_penstock(work, run, executor="processes", num_workers=2),
        "ray": lambda run: _with_ray(2, lambda: functions.with_penstock(work, run, executor="ray", num_workers=2)),
        "ray_data": lambda run: _with_ray(2, lambda: _ray_data(work, run)),
    }


def _targets(name: str) -> dict[str, float]:
    """Return the least ratio of contestants to the reference."""
    return {"nodes": {"two_nodes": 1.8, "four_nodes": 3.6}, "block": {"ray": 10 / 12}}.get(name, {"ray": 0.9})


def _prepare(name: str) -> Callable[[Size, Path], None]:
    return functions.prepare(name) if name in functions.WORKS else lambda size, root: None


def _claim(name: str) -> rounds.Claim:
    title = functions.WORKS[name].title if name in functions.WORKS else f"{_SLEEP_S * 1000:g} ms of sleep an element"
    return rounds.Claim(
        name=f"ray_{name}",
        title=f"Ray workers, {name}: {title}",
        unit="elements/s",
        prepare=_prepare(name),
        reference={"nodes": "one_node", "block": "thread"}.get(name, "processes"),
        targets=tuple(rounds.Target(contestant=who, metric="ratio", sense=">=", bound=bound) for who, bound in _targets(name).items()),
    )


if __name__ == "__main__":
    NAME = "w5"
    if _FLAG in sys.argv:
        place = sys.argv.index(_FLAG)
        NAME = sys.argv[place + 1]
        del sys.argv[place : place + 2]
    rounds.main(_claim(NAME), _contestants(NAME), (_FLAG, NAME))
