"""The soak runner finds what grows, and a short run of it holds no more at the end."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from faults.long_run import Sample, faults_of

import penstock as ps

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="what a process holds is read from /proc")

HOUR = 3600.0


def series(change: Callable[[float], dict[str, object]], hours: float = 8.0) -> list[Sample]:
    """Return the samples of two processes that change as `change` of the hour says, from the fourth hour on."""
    samples = []
    for number in range(401):
        hour = hours * number / 400
        sample = Sample(hour * HOUR, number * 1000, {"1": 50 << 20, "2": 30 << 20}, {"1": 9, "2": 8}, {"1": 5, "2": 3}, 90 << 20)
        samples.append(sample._replace(**change(hour)) if hour > 4 else sample)
    return samples


@pytest.mark.parametrize(
    ("change", "said"),
    [
        pytest.param(lambda hour: {}, [], id="nothing"),
        pytest.param(lambda hour: {"memory": {"1": 50 << 20, "2": (30 << 20) + int(hour % 1 * 3e6)}}, [], id="memory that comes and goes"),
        pytest.param(
            lambda hour: {"memory": {"1": 50 << 20, "2": (30 << 20) + int(hour * 4e6)}}, ["process 2: memory grew by"], id="memory"
        ),
        pytest.param(lambda hour: {"descriptors": {"1": 10, "2": 8}}, ["process 1: 10 descriptors, 9 at the"], id="a descriptor"),
        pytest.param(lambda hour: {"descriptors": {"1": 9 + int(hour * 50) % 2, "2": 8}}, [], id="a descriptor that is closed again"),
        pytest.param(lambda hour: {"threads": {"1": 5, "2": 2}}, ["process 2: 2 threads, 3 at the beginning"], id="a thread less"),
        pytest.param(lambda hour: {"memory": {"1": 50 << 20, "3": 30 << 20}}, ["other processes than"], id="another process"),
        pytest.param(lambda hour: {"shared_bytes": 300 << 20}, ["300 MiB of shared memory, at most 256"], id="shared memory"),
        pytest.param(lambda hour: {"num_items": 200_000 + int(45_000 * (hour - 4))}, ["items a second"], id="speed"),
    ],
)
def test_what_changes_in_a_long_run_is_named(change: Callable[[float], dict[str, object]], said: list[str]) -> None:
    faults = faults_of(series(change))
    assert len(faults) == len(said), faults
    assert all(words in fault for words, fault in zip(said, faults, strict=True)), faults


def long_run(code: str) -> subprocess.CompletedProcess[str]:
    """Run Python code in a session of its own."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(ps.__file__).parents[1]), str(Path(__file__).parents[1])])}
    return subprocess.run(
        [sys.executable, "-c", code], env=environment, check=False, capture_output=True, text=True, timeout=120, start_new_session=True
    )


def test_a_run_of_some_seconds_holds_no_more_at_its_end(tmp_path: Path) -> None:
    done = long_run(f"from faults.long_run import main; raise SystemExit(main(['0.05', {str(tmp_path / 'run.json')!r}]))")
    assert done.returncode == 0, done.stdout + done.stderr
    samples = [Sample(**sample) for sample in json.loads((tmp_path / "run.json").read_text())]
    assert len(samples[-1].memory) == 5  # the program, the engine process, the process that workers are forked from, and two workers
    assert "nothing grew" in done.stdout


@pytest.mark.slow
def test_a_function_that_keeps_its_elements_is_found() -> None:
    code = """
from faults.long_run import faults_of, length_of, run

kept = []

def keeping(element):
    kept.append(bytes(2000))
    return length_of(element)

print(faults_of(run(3, keeping)))
"""
    done = long_run(code)
    assert done.stdout.count("memory grew by") == 3, done.stdout + done.stderr
