"""A Ray cluster of several nodes on this machine, each a raylet of its own that can be killed."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

__all__ = ["Nodes", "several_nodes"]


class Nodes:
    """The nodes that work; the head has no CPU."""

    def __init__(self, cluster: Any) -> None:
        self._cluster = cluster
        self._nodes: list[Any] = []

    def add(self, num_cpus: int = 2, **options: Any) -> Any:
        """Start a node, and wait until the cluster knows it."""
        import ray

        before = {node["NodeID"] for node in ray.nodes()}  # one that was killed counts as alive for some seconds
        self._nodes.append(self._cluster.add_node(num_cpus=num_cpus, **options))
        deadline = time.monotonic() + 60
        while all(node["NodeID"] in before for node in ray.nodes() if node["Alive"]):
            assert time.monotonic() < deadline, "the node did not join"
            time.sleep(0.05)
        return self._nodes[-1]

    def kill(self, node: Any) -> None:
        """SIGKILL the raylet of a node and its workers: they would go on for some seconds without it."""
        self._nodes.remove(node)
        raylet = node.all_processes["raylet"][0].process.pid
        workers = [int(pid) for task in Path(f"/proc/{raylet}/task").iterdir() for pid in (task / "children").read_text().split()]
        for pid in (raylet, *workers):
            os.kill(pid, signal.SIGKILL)

    def ensure(self, count: int) -> list[Any]:
        """Have at least so many nodes."""
        while len(self._nodes) < count:
            self.add()
        return self._nodes


@contextmanager
def several_nodes(count: int = 2, **head: Any) -> Iterator[Nodes]:
    """Start a cluster, and connect this program to it."""
    os.environ["RAY_DEDUP_LOGS"] = "0"
    os.environ["RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO"] = "0"
    os.environ["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])])
    import ray
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False, **head})
    try:
        ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
        nodes = Nodes(cluster)
        nodes.ensure(count)
        yield nodes
    finally:
        ray.shutdown()
        cluster.shutdown()


if __name__ == "__main__":
    with several_nodes(int(sys.argv[1]) if sys.argv[1:] else 2) as found:
        print(found)
