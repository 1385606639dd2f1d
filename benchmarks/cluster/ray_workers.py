"""Ray workers against worker processes, and Ray Data, with the same function; what an item costs; several nodes.

`--work` is w1 or w5 (as in `functions.py`: two workers each), item (one worker, 100 ms of sleep an element, so that each is an item of its
own, beside a bare actor that sleeps as long) or nodes (10 ms of sleep an element, on one, two and four nodes of four workers).
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import drive
import functions
import numpy as np
import rounds
from data import Size

_FLAG = "--work"
_SLEEP_S, _ITEM_S, _PER_NODE, _BATCH = 0.01, 0.1, 4, 16
_PATHS = [str(Path(__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])]
os.environ["PYTHONPATH"] = os.pathsep.join(_PATHS)  # of the workers of Ray


def _asleep(index: int) -> int:
    time.sleep(_SLEEP_S)
    return index


def _sleeping(run: rounds.Run, num_elements: int, **options: Any) -> dict[str, Any]:
    import penstock as ps

    with ps.from_source(range(num_elements)).map(_asleep).batch(_BATCH).feed(**options) as feed:
        return drive.epochs(lambda: feed, _BATCH, run.size.min_seconds)


def _item(index: int) -> int:
    time.sleep(_ITEM_S)
    return index


def _items(run: rounds.Run, epoch: Callable[[], Iterable[Any]]) -> dict[str, Any]:
    found = drive.epochs(epoch, 1, run.size.min_seconds)
    return {**found, "item_ms": 1e3 / found["rate"] - 1e3 * _ITEM_S}


def _items_of_a_feed(run: rounds.Run, executor: Any) -> dict[str, Any]:
    import penstock as ps

    with ps.from_source(range(48)).map(_item).feed(executor=executor, num_workers=1) as feed:
        return _items(run, lambda: feed)


def _bare_actor(run: rounds.Run) -> dict[str, Any]:
    import ray

    class Sleeper:
        def item(self, index: int) -> int:
            return _item(index)

    actor = ray.remote(Sleeper).remote()
    return _items(run, lambda: (ray.get(actor.item.remote(index)) for index in range(48)))


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
    if name == "item":
        return {
            "thread": lambda run: _items_of_a_feed(run, "threads"),
            "ray": lambda run: _with_ray(1, lambda: _items_of_a_feed(run, "ray")),
            "bare_actor": lambda run: _with_ray(1, lambda: _bare_actor(run)),
        }
    work = functions.WORKS[name]
    return {
        "processes": lambda run: functions.with_penstock(work, run, executor="processes", num_workers=2),
        "ray": lambda run: _with_ray(2, lambda: functions.with_penstock(work, run, executor="ray", num_workers=2)),
        "ray_data": lambda run: _with_ray(2, lambda: _ray_data(work, run)),
    }


def _targets(name: str) -> list[rounds.Target]:
    if name == "item":
        return [rounds.Target(contestant="ray", metric="item_ms", sense="<=", bound=2)]
    least = {"two_nodes": 1.8, "four_nodes": 3.6} if name == "nodes" else {"ray": 0.9}
    return [rounds.Target(contestant=who, metric="ratio", sense=">=", bound=bound) for who, bound in least.items()]


def _prepare(name: str) -> Callable[[Size, Path], None]:
    return functions.prepare(name) if name in functions.WORKS else lambda size, root: None


def _claim(name: str) -> rounds.Claim:
    title = functions.WORKS[name].title if name in functions.WORKS else "elements that sleep"
    return rounds.Claim(
        name=f"ray_{name}",
        title=f"Ray workers, {name}: {title}",
        unit="elements/s",
        prepare=_prepare(name),
        reference={"nodes": "one_node", "item": "thread"}.get(name, "processes"),
        targets=tuple(_targets(name)),
    )


if __name__ == "__main__":
    NAME = "w5"
    if _FLAG in sys.argv:
        place = sys.argv.index(_FLAG)
        NAME = sys.argv[place + 1]
        del sys.argv[place : place + 2]
    rounds.main(_claim(NAME), _contestants(NAME), (_FLAG, NAME))
