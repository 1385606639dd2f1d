"""Real processes of jax.distributed on CPUs: ranks are found, plans are compared, and an array has the parts of both."""

from __future__ import annotations

import importlib.util
import json
import os
import socket
import subprocess
import sys
from typing import Any

import pytest

HAS_JAX = importlib.util.find_spec("jax") is not None  # not imported here: beside it, no test of this process could fork
pytestmark = [pytest.mark.slow, pytest.mark.skipif(not HAS_JAX, reason="JAX is not installed")]

_PROCESS = """
import json, sys
import jax
import numpy as np
import penstock as ps

number, address = int(sys.argv[1]), sys.argv[2]
jax.distributed.initialize(address, num_processes=2, process_id=number)
mesh = jax.sharding.Mesh(jax.devices(), ("data",))
sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("data"))
ds = ps.from_arrays(np.arange(41, dtype=np.float32)).shuffle(seed=7).filter(lambda n: n % 3 > 0).shard_by_rank()
total = jax.jit(lambda x: x.sum())
with ds.batch(4, drop_remainder=True).feed(output=ps.Jax(sharding=sharding)) as feed:
    steps = [(batch.shape, float(total(batch)), [float(n) for part in batch.addressable_shards for n in part.data]) for batch in feed]
out = {"steps": steps}
try:
    ds.batch(4).feed(output=ps.Jax(sharding=sharding), on_error=ps.Skip())
except ps.errors.PlanError as refused:
    out["skip"] = refused.what
print(json.dumps(out), flush=True)
jax.distributed.shutdown()
"""


def _run() -> list[dict[str, Any]]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "JAX_CPU_COLLECTIVES_IMPLEMENTATION": "gloo"}
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", _PROCESS, str(number), address],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment,
        )
        for number in range(2)
    ]  # fmt: skip
    ends = [process.communicate(timeout=90) for process in processes]
    assert all(out for out, _ in ends), ends[0][1][-2000:]
    return [json.loads(out.splitlines()[-1]) for out, _ in ends]


def test_two_processes_make_the_same_steps_of_global_arrays() -> None:
    first, second = _run()
    assert len(first["steps"]) == len(second["steps"]) == 3  # 27 elements: 13 each
    assert first["skip"].startswith("Skip shortens the batch of one process")
    for (shape, total, mine), (_, same, others) in zip(first["steps"], second["steps"], strict=True):
        assert shape == [8]
        assert total == same == sum(mine) + sum(others)
        assert not set(mine) & set(others)
