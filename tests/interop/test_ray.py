"""executor="ray" on a real cluster of several nodes: the same bytes as in line, also when workers, nodes and programs are killed."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from faults.deaths import PLANS, DiesSometimes, unhurt
from feeds import resumed
from hypothesis import HealthCheck, given, settings
from interop.node_kills import kill_one, slow_row
from interop.ray_nodes import Nodes, several_nodes
from laws.checks import LAWS, deliver, same, whole_run

import penstock as ps
from penstock.testing.runs import exact

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="ray is not installed"),
]

RAY: dict[str, Any] = {"executor": "ray", "num_workers": 2}


@pytest.fixture(scope="session", autouse=True)
def nodes() -> Iterator[Nodes]:
    with several_nodes(2) as found:
        list(ps.from_source(range(8)).map(abs).feed(**RAY))  # Ray starts its threads and connections
        yield found


@pytest.fixture(autouse=True)
def leak_audit(nodes: Nodes) -> Iterator[None]:
    """In place of the audit of descriptors, since connections of Ray come and go: no actor is left."""
    import ray

    yield
    deadline = time.monotonic() + 30
    while ray.available_resources().get("CPU") != ray.cluster_resources().get("CPU"):
        assert time.monotonic() < deadline, "actors still hold CPUs"
        time.sleep(0.1)


def reference(ds: ps.Dataset) -> list[Any]:
    with ds.feed(executor="inline") as feed:
        return [exact(item) for item in feed]


# -- the same bytes --------------------------------------------------------------------------------------------------------------


@settings(deadline=None, suppress_health_check=list(HealthCheck), max_examples=25)
@given(plan=LAWS["executors"].plans)
def test_ray_delivers_what_the_loops_own_thread_does(plan: Any) -> None:
    same(plan, RAY, deliver(plan, RAY), whole_run(plan), "items and error")


@pytest.mark.parametrize("name", PLANS)
@pytest.mark.parametrize("ordered", [True, False])
def test_all_kinds_of_elements(name: str, ordered: bool) -> None:
    ds = PLANS[name](unhurt)
    with ds.feed(**RAY, ordered=ordered) as feed:
        items = [exact(item) for item in feed]
    whole = reference(ds)
    if ordered:
        assert items == whole
    else:
        assert len(items) == len(whole)


def test_a_state_goes_from_ray_to_threads_and_back() -> None:
    ds = ps.from_source(range(300)).shuffle(seed=3).map(float).batch(4)
    whole, items, state = reference(ds), [], None
    for way in (RAY, {"executor": "threads", "num_workers": 2}, {"executor": "inline"}, RAY):
        with ds.feed(**way) as feed:
            if state is not None:
                feed.load_state_dict(state)
            for _, item in zip(range(20), feed, strict=False):
                items.append(exact(item))
            state = json.loads(json.dumps(feed.state_dict()))
    assert items == whole


def test_workers_stay_for_the_next_epoch() -> None:
    pids = []
    with ps.from_source(range(8)).map(lambda x: os.getpid()).feed(**RAY) as feed:
        for _ in range(3):
            pids += list(feed)
    assert 1 <= len(set(pids)) <= 2
    assert os.getpid() not in pids


def test_a_function_that_says_so_runs_in_a_thread_of_the_program() -> None:
    with ps.from_source(range(8)).map(lambda x: os.getpid(), executor="threads").feed(**RAY) as feed:
        assert set(feed) == {os.getpid()}


def test_an_error_says_on_which_node_and_at_which_element() -> None:
    def fails(x: int) -> int:
        if x == 7:
            raise ValueError("no seven")
        return x

    with ps.from_source(range(20)).map(fails).feed(**RAY) as feed, pytest.raises(ValueError, match="no seven") as caught:
        list(feed)
    notes = "\n".join(caught.value.__notes__)
    assert "element epoch 0 index 7" in notes
    assert "on node" in notes
    assert "in fails" in notes


def test_retries_are_made_there_and_told_here(tmp_path: Path) -> None:
    def fails_once(x: int) -> int:
        if x == 7 and not (tmp_path / "failed").exists():
            (tmp_path / "failed").touch()
            raise OSError("not yet")
        return x

    with ps.from_source(range(20)).map(fails_once, on_error=ps.Retry(2, backoff_s=0.01)).feed(**RAY) as feed:
        assert list(feed) == list(range(20))
        assert "1 retr" in repr(feed.stats())


def test_workers_of_ray_train_know_their_rank(tmp_path: Path) -> None:
    pytest.importorskip("ray.train", reason="ray[train] is not installed")
    program = [sys.executable, "-c", TRAIN, str(tmp_path)]
    done = subprocess.run(program, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    parts = [json.loads((tmp_path / f"rank{rank}").read_text()) for rank in range(2)]
    assert [len(part) for part in parts] == [25, 25]
    assert sorted([*parts[0], *parts[1]]) == list(range(50))


TRAIN = """
import json, sys
import ray, ray.train
from ray.train import RunConfig, ScalingConfig
from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer
import penstock as ps

def train(config):
    ds = ps.from_source(range(50)).shuffle(seed=1).shard_by_rank()
    with open(f"{config['folder']}/rank{ray.train.get_context().get_world_rank()}", "w") as file:
        json.dump([int(x) for x in ds.feed(num_workers=0)], file)

ray.init(num_cpus=3, include_dashboard=False, log_to_driver=False, address="local")
run = RunConfig(storage_path=sys.argv[1])
DataParallelTrainer(train, train_loop_config={"folder": sys.argv[1]}, scaling_config=ScalingConfig(num_workers=2), run_config=run).fit()
"""


# -- deaths ----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PLANS)
def test_workers_that_die_change_nothing(name: str, tmp_path: Path) -> None:
    with PLANS[name](DiesSometimes(tmp_path, 5, 3)).feed(**RAY) as feed:
        items = [exact(item) for item in feed]
    assert items == reference(PLANS[name](unhurt))


def test_two_workers_that_lose_one_actor_have_both_begun() -> None:
    with ps.from_source(range(60)).batch(20).feed(**RAY) as feed:
        first = next(feed).tolist()
        workers = feed._run._placement._ray
        assert workers is not None
        known = next(iter(workers._workers.values()))
        owner, other = (workers.worker("workers", number, known.engine, known.plans) for number in range(2))
        owner.actor = owner.actor or workers.create("worker", 0)
        assert owner.actor.wait(60)
        for worker in (owner, other):
            worker._used, worker._began = owner.actor, True
        assert [owner._lose(), other._lose()] == [True, True]
        assert first + [number for batch in feed for number in batch.tolist()] == list(range(60))


def test_an_element_that_kills_twice_is_named_and_goes_to_the_policy() -> None:
    def kills(x: int) -> int:
        if x == 5:
            os._exit(3)
        return x

    with ps.from_source(range(20)).map(kills, on_error=ps.Skip()).feed(**RAY) as feed:
        assert list(feed) == [x for x in range(20) if x != 5]
    with ps.from_source(range(20)).map(kills).feed(**RAY) as feed, pytest.raises(ps.errors.WorkerDied, match="on node") as caught:
        list(feed)
    assert "index 5" in "\n".join(caught.value.__notes__)


def test_an_element_that_hangs_is_skipped_and_its_stack_told(tmp_path: Path) -> None:
    def hangs(x: int) -> int:
        if x == 5:
            time.sleep(1000)
        return x

    lines: list[str] = []
    ds = ps.from_source(range(20)).map(hangs, on_error=ps.Skip())
    with ds.feed(**RAY, stall_timeout_s=10.0, on_stall="skip", listeners=[lambda event: lines.append(str(event))]) as feed:
        assert list(feed) == [x for x in range(20) if x != 5]
    with ps.from_source(range(20)).map(hangs).feed(**RAY, stall_timeout_s=10.0) as feed, pytest.raises(ps.errors.FeedStalled) as caught:
        list(feed)
    assert "in hangs" in str(caught.value)
    assert "index 5" in str(caught.value)


def test_an_element_behind_one_that_hangs_in_the_only_actor_waits_its_turn(nodes: Nodes) -> None:
    only = nodes.add(num_cpus=1, resources={"slot": 1})

    def hangs(x: int) -> int:
        if x == 5:
            time.sleep(1000)
        return x

    ds = ps.from_source(range(20)).map(hangs)
    with ds.feed(executor=ps.Ray(resources={"slot": 1}), num_workers=3, stall_timeout_s=15.0) as feed:
        with pytest.raises(ps.errors.FeedStalled) as caught:
            list(feed)
        nodes.kill(only)
    assert "index 5 " in caught.value.where
    assert "index 6 " not in caught.value.where


@pytest.mark.parametrize("run", range(3))
def test_a_killed_node_changes_nothing(nodes: Nodes, run: int) -> None:
    kill_one(nodes, run)


@pytest.mark.filterwarnings("ignore:nothing has arrived:RuntimeWarning")  # so long Ray needs to see that the node is gone
def test_a_node_that_never_comes_back_is_named(nodes: Nodes) -> None:
    only = nodes.add(num_cpus=1, resources={"disk": 1})
    ds = ps.from_source(range(600)).map(slow_row).batch(5)
    items = []
    with ds.feed(executor=ps.Ray(resources={"disk": 1}), num_workers=1, stall_timeout_s=5, memory_bytes=1 << 20) as feed:
        items += [exact(next(feed)) for _ in range(10)]
        nodes.kill(only)
        with pytest.raises(ps.errors.PlanError) as caught:
            items.extend(exact(item) for item in feed)
        state = feed.state_dict()
    assert "Ray has placed no worker (CPU: 1, disk: 1)" in str(caught.value)
    assert f"gone: {only.node_ip_address}" in str(caught.value)
    items += [exact(item) for item in resumed(ds, state, **RAY)]
    assert items == reference(ds)


def test_results_that_the_object_store_has_lost_are_computed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    import ray

    get, results, lost = ray.get, Counter[str](), list[Any]()

    def get_or_lose(reference: Any, **options: Any) -> Any:  # `ray.internal.free` is gone, so the error is raised in its place
        value = get(reference, **options)
        worker = threading.current_thread().name
        if "workers" in worker and getattr(value, "columns", None):
            results[worker] += 1
            if results[worker] in (2, 5):
                lost.append(reference)
                raise ray.exceptions.ObjectLostError(reference.hex(), b"", "")
        return value

    monkeypatch.setattr(ray, "get", get_or_lose)
    ds = ps.from_source(range(300)).map(slow_row).batch(5)
    with ds.feed(**RAY) as feed:
        items = [exact(item) for item in feed]
    assert len(lost) >= 3
    assert items == reference(ds)


def wide_row(x: int) -> Any:
    return np.full(200_000, x, np.float32)


PROGRAM = """
import json, os, sys, time
import numpy as np
import ray
import penstock as ps
ray.init(address=sys.argv[1], log_to_driver=False, logging_level="ERROR")
state_file, kill_at = sys.argv[2], int(sys.argv[3])
ds = ps.from_source(range(200)).shuffle(seed=9).map(lambda x: x * 2).batch(4)
with ds.feed(executor="ray", num_workers=2) as feed:
    if os.path.exists(state_file):
        feed.load_state_dict(json.load(open(state_file)))
    for number, batch in enumerate(feed):
        print(json.dumps(batch.tolist()), flush=True)
        with open(state_file + ".new", "w") as file:
            json.dump(feed.state_dict(), file)
        os.replace(state_file + ".new", state_file)
        if number == kill_at:
            os.kill(os.getpid(), 9)
"""


def test_a_killed_program_resumes_exactly_and_leaves_no_actor(tmp_path: Path) -> None:
    import ray

    address, lines = ray.get_runtime_context().gcs_address, []
    for kill_at in (7, 12, -1):
        program = [sys.executable, "-c", PROGRAM, address, str(tmp_path / "state"), str(kill_at)]
        done = subprocess.run(program, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == (0 if kill_at < 0 else -signal.SIGKILL), done.stderr[-2000:]
        lines += [json.loads(line) for line in done.stdout.splitlines()]
    ds = ps.from_source(range(200)).shuffle(seed=9).map(lambda x: x * 2).batch(4)
    assert lines == [batch.tolist() for batch in ds.feed(executor="inline")]


# -- what cannot work says so ----------------------------------------------------------------------------------------------------


def refusal(ds: ps.Dataset, **options: Any) -> str:
    with ds.feed(**{**RAY, **options}) as feed, pytest.raises(ps.errors.PlanError) as caught:
        list(feed)
    return str(caught.value)


def test_resources_that_no_node_has() -> None:
    text = refusal(ps.from_source(range(4)).map(abs), executor=ps.Ray(resources={"tpu": 1}), stall_timeout_s=2.0, num_workers=1)
    assert "tpu: 1" in text
    assert "nodes are alive" in text
    assert "stall_timeout_s" in text


def test_another_version_of_penstock_on_a_node(tmp_path: Path) -> None:
    package = Path(ps.__file__).parent
    shutil.copytree(package, tmp_path / "penstock", ignore=shutil.ignore_patterns("__pycache__"))
    version = tmp_path / "penstock" / "_contracts" / "version.py"
    version.write_text(version.read_text().replace(ps.__version__, "0.0.7"))
    environment = {"env_vars": {"PYTHONPATH": str(tmp_path)}}
    text = refusal(ps.from_source(range(4)).map(abs), executor=ps.Ray(runtime_env=environment))
    assert "has Penstock 0.0.7, and this program" in text
    assert "node " in text


def test_a_node_without_penstock(tmp_path: Path) -> None:
    (tmp_path / "penstock").mkdir()  # an empty one, in front of the one that is installed
    (tmp_path / "penstock" / "__init__.py").touch()
    nodes = ps.Ray(runtime_env={"env_vars": {"PYTHONPATH": str(tmp_path)}})
    with ps.from_source(range(4)).map(abs).feed(**{**RAY, "executor": nodes}) as feed, pytest.raises(ps.errors.WorkerDied) as caught:
        list(feed)
    assert "No module named 'penstock._" in str(caught.value)
    assert "install penstock on every node" in str(caught.value)


def test_a_module_that_only_this_program_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "only_here.py").write_text("def double(x):\n    return 2 * x\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    import only_here

    text = refusal(ps.from_source(range(4)).map(only_here.double))
    assert "No module named 'only_here'" in text
    assert "runtime_env" in text
    environment = {"env_vars": {"PYTHONPATH": os.pathsep.join([str(tmp_path), str(Path(ps.__file__).parents[1])])}}
    with ps.from_source(range(4)).map(only_here.double).feed(**{**RAY, "executor": ps.Ray(runtime_env=environment)}) as feed:
        assert list(feed) == [0, 2, 4, 6]


def test_a_function_that_cannot_be_pickled() -> None:
    lock = threading.Lock()
    text = refusal(ps.from_source(range(4)).map(lambda x: (lock, x)[1]))
    assert "lock" in text


def test_a_file_that_only_this_program_sees(tmp_path: Path) -> None:
    np.save(tmp_path / "rows.npy", np.arange(12))
    with open(tmp_path / "rows.npy", "rb") as file:
        rows = np.memmap(f"/proc/self/fd/{file.fileno()}", np.int64, "r", offset=128, shape=(12,))
        rows.filename = f"/proc/self/fd/{file.fileno()}"
        text = refusal(ps.from_arrays(rows).map(abs))
    assert "does not have '/proc/self/fd/" in text
    assert "s3://" in text


ALONE = ["unshare", "--net", "--pid", "--fork", "--mount-proc"]
"""In namespaces of its own a program does not find the cluster of these tests."""


@pytest.mark.skipif(subprocess.run([*ALONE, "true"], check=False).returncode != 0, reason="this user may make no namespaces")
def test_no_cluster(tmp_path: Path) -> None:
    program = "import penstock as ps\nlist(ps.from_source([1]).map(abs).feed(executor='ray'))"
    environment = {**os.environ, "RAY_TMPDIR": str(tmp_path)}
    command = [*ALONE, sys.executable, "-c", program]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert "penstock.errors.PlanError: no Ray cluster runs that can be joined" in done.stderr
    assert "ray start --head" in done.stderr


def test_an_address_where_no_cluster_is() -> None:
    program = "import penstock as ps\nlist(ps.from_source([1]).map(abs).feed(executor=ps.Ray(address='127.0.0.1:1')))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert "penstock.errors.PlanError: no Ray cluster at '127.0.0.1:1' can be joined: [Errno 111]" in done.stderr


FULL = """
import sys
import numpy as np
from interop.ray_nodes import several_nodes
import penstock as ps
no_disk = {"local_fs_capacity_threshold": 0.01, "object_store_full_delay_ms": 10}
with several_nodes(1, object_store_memory=80_000_000, _system_config=no_disk) as nodes:
    ds = ps.from_source(range(8)).map(lambda x: np.full(12_500_000, x)).batch(2)
    with ds.feed(executor="ray", num_workers=1) as feed:
        next(feed)
"""


def test_an_object_store_that_is_full_and_cannot_spill() -> None:
    done = subprocess.run([sys.executable, "-c", FULL], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 1
    assert "WorkerFailed: the object store is full, and so is the disk that it spills to" in done.stderr
    assert "object-store-memory" in done.stderr
    assert re.search(r"where: Ray worker workers-0 on node [0-9.]+ \([0-9a-f]+\), process \d+", done.stderr)


def test_more_than_the_object_store_holds_passes_through_it() -> None:
    ds = ps.from_source(range(400)).map(wide_row).batch(4)  # 320 MB, in batches of 3.2 MB
    with ds.feed(**RAY) as feed:
        assert [batch[:, 0].tolist() for batch in feed] == [[float(4 * n + k) for k in range(4)] for n in range(100)]
