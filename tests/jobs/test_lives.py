"""A program with jobs and a done-list that is killed or interrupted, and started again. FAULTS A21, A22, E7."""

from __future__ import annotations

import json
import os
import random
import select
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import penstock as ps

SOURCE = str(Path(ps.__file__).parents[1])
COUNT = 300

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="signals of POSIX, and /proc")

PROGRAM = """
import json, os, sys, time
import penstock as ps

def work(job):
    number, folder, life = job[0], job[1], os.environ["LIFE"]
    note = os.open(os.path.join(folder, "log"), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(note, f"begin {life} {number}\\n".encode())
    if str(number) == os.environ["HOLD"]:
        time.sleep(600)
    deadline = time.perf_counter() + 0.002 * (number % 5 == 0)
    while time.perf_counter() < deadline:
        pass
    os.write(note, f"end {life} {number}\\n".encode())
    os.close(note)
    return [number, "x" * (number % 50)]

def told(progress):
    print(progress.done, flush=True)

if __name__ == "__main__":
    folder, options = sys.argv[1], json.loads(sys.argv[2])
    jobs = [(number, folder) for number in range(COUNT)]
    results = ps.parallel_jobs(work, jobs, done=os.path.join(folder, "done"), progress=told, **options)
    assert results == [[number, "x" * (number % 50)] for number in range(COUNT)], results
    print("all", flush=True)
"""

WAYS: list[dict[str, Any]] = [{"num_workers": 1}, {"num_workers": 2}, {"num_workers": 4}, {"num_workers": 2, "method": "spawn"}]


def assert_gone(members: dict[int, int]) -> None:
    for pid, descriptor in members.items():
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        assert poll.poll(10_000), f"process {pid} has outlived the program"
        os.close(descriptor)


def members_of(session: int) -> dict[int, int]:
    """Return a descriptor of each process of a session that runs."""
    out = {}
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and int((entry / "stat").read_text().rpartition(")")[2].split()[3]) == session:
                out[int(entry.name)] = os.pidfd_open(int(entry.name))
        except (FileNotFoundError, ProcessLookupError):
            continue
    return out


@contextmanager
def life(folder: Path, number: int, options: dict[str, Any], hold: int | None = None) -> Iterator[subprocess.Popen[str]]:
    """Run the program, in a session of its own; job number `hold` never ends."""
    (folder / "program.py").write_text(PROGRAM.replace("COUNT", str(COUNT)))
    temporary = tempfile.mkdtemp()  # Python's fork server leaves its socket there when the program is killed
    command = [sys.executable, "-W", "error", str(folder / "program.py"), str(folder), json.dumps(options)]
    own = {"PYTHONPATH": SOURCE, "LIFE": str(number), "HOLD": str(hold), "TMPDIR": temporary}
    pipe = subprocess.PIPE
    with subprocess.Popen(command, env={**os.environ, **own}, stdout=pipe, stderr=pipe, text=True, start_new_session=True) as running:
        try:
            yield running
        finally:
            shutil.rmtree(temporary)
            running.kill()


def read(running: subprocess.Popen[str], count: int) -> bool:
    """Read so many lines of progress; return False when the program ends before."""
    assert running.stdout is not None
    return all(running.stdout.readline() not in ("", "all\n") for _ in range(count))


def end_of(running: subprocess.Popen[str]) -> tuple[int, str]:
    """Wait for the program; return its status and stderr."""
    _, errors = running.communicate(timeout=60)
    return running.returncode, errors


def done_of(folder: Path) -> list[int]:
    """Return the jobs of whole lines of the done-list, in their order."""
    file = folder / "done"
    lines = file.read_bytes().splitlines(keepends=True)[1:] if file.exists() else []
    return [json.loads(line)["index"] for line in lines if line.endswith(b"\n")]


def log_of(folder: Path) -> list[list[str]]:
    file = folder / "log"
    return [line.split() for line in file.read_text().splitlines()] if file.exists() else []


def killed_many_times(folder: Path, seed: int, num_kills: int) -> int:
    """Run the program, killed `num_kills` times, and then to its end; return how many kills hit it."""
    chance = random.Random(seed)
    hit = 0
    for number in range(num_kills + 1):
        before = set(done_of(folder))
        with life(folder, number, chance.choice(WAYS)) as running:
            if number < num_kills and read(running, chance.choice([0, 1, 1, 2, 5, 20])):
                members = members_of(running.pid)
                running.kill()
                assert_gone(members)
            status, errors = end_of(running)
        assert errors == ""
        hit += status == -signal.SIGKILL
        assert status in (0, -signal.SIGKILL)
        begun = {int(job) for word, its, job in log_of(folder) if (word, its) == ("begin", str(number))}
        assert begun & before == set()
    assert status == 0
    return hit


def check(folder: Path, num_kills: int) -> None:
    """Check that every job is noted once, and was done again only where a kill took it."""
    assert sorted(done_of(folder)) == list(range(COUNT))
    ended = Counter(int(job) for word, _, job in log_of(folder) if word == "end")
    assert set(ended) == set(range(COUNT))
    assert max(ended.values()) <= num_kills + 1


def test_a_program_that_is_killed_goes_on_with_the_jobs_that_are_not_done(tmp_path: Path) -> None:
    assert killed_many_times(tmp_path, seed=1, num_kills=1) > 0
    check(tmp_path, 1)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 5))
def test_a_program_that_is_killed_many_times_does_every_job(seed: int, tmp_path: Path) -> None:
    killed_many_times(tmp_path, seed, num_kills=8)
    check(tmp_path, 8)


@pytest.mark.parametrize("options", [WAYS[1], pytest.param(WAYS[3], marks=pytest.mark.slow)], ids=str)
def test_a_kill_while_a_job_never_ends_leaves_no_process(options: dict[str, Any], tmp_path: Path) -> None:
    with life(tmp_path, 0, options, hold=7) as running:
        assert read(running, 3)
        members = members_of(running.pid)
        assert len(members) > 2
        running.kill()
        assert_gone(members)


INTERRUPTED = [
    pytest.param(COUNT - 1, WAYS[1], id="jobs that end but the last"),
    pytest.param(7, WAYS[1], id="an early job that does not", marks=pytest.mark.slow),
    pytest.param(7, {"num_workers": 2, "executor": "threads"}, id="threads", marks=pytest.mark.slow),
    pytest.param(7, {"executor": "inline"}, id="inline", marks=pytest.mark.slow),
]


@pytest.mark.parametrize(("hold", "options"), INTERRUPTED)
def test_ctrl_c_leaves_no_process_and_the_next_run_goes_on(hold: int, options: dict[str, Any], tmp_path: Path) -> None:
    with life(tmp_path, 0, options, hold) as running:
        assert read(running, 2)
        members = members_of(running.pid)
        os.killpg(running.pid, signal.SIGINT)
        status, errors = end_of(running)
        assert_gone(members)
    assert status == -signal.SIGINT
    assert "KeyboardInterrupt" in errors
    before = set(done_of(tmp_path))
    assert before
    with life(tmp_path, 1, WAYS[1]) as running:
        assert end_of(running) == (0, "")
    assert {int(job) for word, its, job in log_of(tmp_path) if (word, its) == ("begin", "1")} == set(range(COUNT)) - before


@pytest.mark.slow
def test_two_ctrl_cs_leave_no_process_either(tmp_path: Path) -> None:
    with life(tmp_path, 0, WAYS[1], hold=7) as running:
        assert read(running, 2)
        members = members_of(running.pid)
        for _ in range(2):
            os.killpg(running.pid, signal.SIGINT)
        status, _ = end_of(running)
        assert_gone(members)
    assert status == -signal.SIGINT
