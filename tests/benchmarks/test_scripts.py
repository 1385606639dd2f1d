"""Every benchmark script runs on tiny data: its contestants take part, of long ones some of each kind, or say what they miss."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path

import pytest
from programs import output_of, python

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
STEPS = ["photos_50ms", *(f"{work}_2ms" for work in ("photos", "users", "small", "waits", "trivial"))]
MANY_CORES = [f"{step}_{way}" for step in STEPS for way in ("ceiling", "feed")]
POLICIES = [f"{one}_noop_threads" for one in ("raise", "retry", "watchdog")] + [
    f"{one}_noop_inline" for one in ("raise", "skip", "replace")
]
JOBS = [f"{way}_small" for way in ("penstock", "pool", "pool_split", "pool_fork", "executor")] + ["penstock_uneven", "pool_uneven"]
REMOTE = [f"{way}_shuffled" for way in ("plain", "penstock_s3", "penstock_http", "feed_s3", "feed_http")]
REMOTE += ["moto_plain_ordered", "moto_penstock_ordered", "moto_feed_ordered"]
CLAIMS = {
    "w1": ["w1.py"],
    "w1u": ["w1.py", "--uint8", "--only", "limit", "penstock"],
    "w2": ["w2.py"],
    "w3": ["w3.py"],
    "w4": ["w4.py"],
    "w6": ["w6.py"],
    "w7": ["w7.py", "--only", "limit", "penstock_50ms", "inline_50ms"],
    "w8": ["w8.py"],
    "functions_w3": ["functions.py", "--work", "w3"],
    "large_batches": ["large_batches.py"],
    "heavy_step": ["heavy_step.py"],
    "import_time": ["import_time.py"],
    "gather": ["gather.py"],
    "records": ["records.py"],
    "shards": ["shards.py"],
    "pack": ["pack.py"],
    "engine_cost": ["engine_cost.py"],
    "mix": ["mix.py"],
    "known": ["known.py"],
    "balance": ["balance.py"],
    "decoded": ["decoded.py"],
    "images": ["images.py"],
    "detection": ["detection.py"],
    "policies": ["policies.py", "--only", *POLICIES],
    "state": ["state.py"],
    "finalize_step": ["finalize_step.py"],
    "shuffle_memory": ["shuffle_memory.py"],
    "list_memory": ["list_memory.py"],
    "start": ["start.py"],
    "async_map": ["async_map.py"],
    "jobs": ["jobs.py", "--only", *JOBS],
    "classic": ["classic.py"],
    "enqueuer": ["enqueuer.py"],
    "queues": ["queues.py"],
    "packing": ["packing.py", "--only", "limit", "penstock", "penstock_cold", "heavy_packed"],
    "tokenise": ["tokenise.py"],
    "parquet": ["parquet.py"],
    "remote": ["remote.py", "--only", *REMOTE],
    "observing": ["observing.py"],
    "epochs": ["epochs.py"],
    "outputs": ["outputs.py"],
    "loaders": ["loaders.py"],
    "advice": ["advice.py"],
    "waiting": ["waiting.py"],
    "manycore": ["manycore.py", "--only", *MANY_CORES],
    "tar": ["tar.py"],
    "text": ["text.py"],
    "tokenizing": ["tokenizing.py"],
}
PACKAGES = {
    "albumentations": "albumentations",
    "dali": "nvidia",
    "dataloader": "torch",
    "datasets": "datasets",
    "encode": "tokenizers",
    "moto": "moto",
    "plain": "obstore",
    "hugging": "datasets",
    "jax": "jax",
    "pyarrow": "pyarrow",
    "spdl": "spdl",
    "tensorflow": "tensorflow",
    "tfdata": "tensorflow",
    "tokenize": "tokenizers",
    "torch": "torch",
    "turboloader": "turboloader",
    "vision": "torchvision",
    "webdataset": "webdataset",
}
HAS = {kind: importlib.util.find_spec(package) is not None for kind, package in PACKAGES.items()}
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the benchmarks measure with /proc")


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("bench-data")


def test_every_claim_is_run_by_make_bench_and_by_this_test() -> None:
    listed = (BENCHMARKS / "__main__.py").read_text()
    scripts = {path.name for path in BENCHMARKS.glob("*.py") if "rounds.Claim(" in path.read_text()}
    assert scripts == {command[0] for command in CLAIMS.values()}
    assert all(f'("{script}",' in listed for script in scripts)


@pytest.mark.slow
@pytest.mark.parametrize("claim", CLAIMS)
def test_a_script_measures_all_its_contestants_and_says_what_is_missing(claim: str, data: Path, tmp_path: Path) -> None:
    script, *flags = CLAIMS[claim]
    ran = python(BENCHMARKS / script, *flags, "--size", "tiny", "--data", data, "--out", tmp_path, timeout_s=600)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    result = json.loads((tmp_path / f"{claim}.json").read_text())
    own = {target["contestant"]: target["metric"] for target in result["targets"]}
    measured = {name for name, row in result["summary"].items() if result["metric"] in row or own.get(name) in row}
    skipped = {name: row["skipped"] for name, row in result["summary"].items() if "skipped" in row}
    assert measured | set(skipped) == set(result["summary"])
    assert {name.partition("_")[0] for name in skipped} == {
        kind for kind, there in HAS.items() if not there and any(name.startswith(kind) for name in result["summary"])
    }
    for name, reason in skipped.items():
        assert PACKAGES[name.partition("_")[0]] in reason
        assert "not installed" in reason
        assert f"{name}: {{'skipped': '{reason}'}}" in ran.stdout
    assert all(target["got"] is not None for target in result["targets"] if target["contestant"] in measured)
    assert "ODD" not in ran.stdout
    table = output_of(BENCHMARKS / "report.py", "--results", tmp_path)
    assert all(skipped or "--only" in flags or "not measured" not in line for line in table.splitlines() if line.startswith("|")), table


@pytest.mark.slow
def test_the_report_makes_one_line_per_target_and_calls_a_trial_no_claim(data: Path, tmp_path: Path) -> None:
    measured = python(BENCHMARKS / "state.py", "--size", "tiny", "--data", data, "--out", tmp_path, timeout_s=600)
    assert measured.returncode == 0, measured.stderr
    text = output_of(BENCHMARKS / "report.py", "--results", tmp_path, "--details")
    assert "| `state_dict()`, shuffle, 99th percentile, ms |" in text
    assert "`state` is no claim: a trial of small size." in text
    assert "### state_dict() of a running feed, 99th percentile" in text
