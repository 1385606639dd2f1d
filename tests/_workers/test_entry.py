"""A child ends with its parent, whatever it is doing and however the parent ends: FAULTS A21 to A23. Whole programs."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from _workers import acting
from core import core

import penstock as ps
from penstock._workers.child import Child

pytestmark = pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="waits for processes of others by pidfd")

PROGRAM = """
import os, signal, sys, threading
from _workers import acting
from penstock._workers.child import Child

def start(doing, method):
    child = Child.start(getattr(acting, doing), name=doing, method=method)
    print(child.receive() if doing != "talk_without_end" else child.pid, flush=True)
    return child

if __name__ == "__main__":
    method, *doings = sys.argv[1:]
    in_thread = "in a thread" in doings
    kept = []
    def begin():
        kept.extend(start(doing, method) for doing in doings if doing != "in a thread")
    if in_thread:
        thread = threading.Thread(target=begin)
        thread.start()
        thread.join()
        for child in kept:
            child.send("still there?")
            assert child.receive() == "still there?"
    else:
        begin()
    print("ready", flush=True)
    sys.stdin.readline()
"""
GONE_S = 20.0


def own_environment(tmp_path: Path) -> dict[str, str]:
    folders = [str(Path(ps.__file__).parents[1]), str(Path(__file__).parents[1])]
    # A fork server keeps its socket in the temporary folder, and nobody removes that of a killed program.
    return {**os.environ, "PYTHONPATH": os.pathsep.join(folders), "TMPDIR": str(tmp_path)}


METHODS = core(["forkserver", "exec", "fork", "spawn"], 2)


@contextmanager
def program(tmp_path: Path, *arguments: str) -> Iterator[tuple[subprocess.Popen[str], list[int]]]:
    """Run the program until it says that it is ready; kill what is left of its session at the end."""
    script = tmp_path / "program.py"
    script.write_text(PROGRAM)
    environment = own_environment(tmp_path)
    parent = subprocess.Popen(
        [sys.executable, str(script), *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
        start_new_session=True,
    )
    try:
        assert parent.stdout is not None
        pids = []
        for line in parent.stdout:
            if line == "ready\n":
                break
            if line.strip().isdigit():
                pids.append(int(line))
        yield parent, pids
    finally:
        try:
            os.killpg(parent.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        parent.communicate()


def wait_until_gone(pids: list[int]) -> None:
    for pid in pids:
        try:
            descriptor = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
        try:
            ready, _, _ = select.select([descriptor], [], [], GONE_S)
            assert ready, f"process {pid} has outlived its parent"
        finally:
            os.close(descriptor)


DOINGS = ("sit_idle", "compute", "sit_in_c", "talk_without_end", "stay")


@pytest.mark.parametrize("method", METHODS)
def test_children_end_when_the_parent_is_killed_whatever_they_do(method: str, tmp_path: Path) -> None:
    with program(tmp_path, method, *DOINGS) as (parent, pids):
        assert len(pids) == len(DOINGS)
        parent.kill()
        parent.wait()
        wait_until_gone(pids)


@pytest.mark.parametrize("method", METHODS)
def test_children_live_on_when_the_thread_that_started_them_ends_and_end_with_the_process(method: str, tmp_path: Path) -> None:
    with program(tmp_path, method, "in a thread", "say_and_echo", "say_and_echo") as (parent, pids):
        assert len(pids) == 2
        parent.kill()
        parent.wait()
        wait_until_gone(pids)


def test_a_parent_that_exits_by_itself_takes_its_children_along(tmp_path: Path) -> None:
    with program(tmp_path, "forkserver", "sit_idle", "compute") as (parent, pids):
        parent.communicate("\n", timeout=60)
        assert parent.returncode == 0
        wait_until_gone(pids)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["forkserver", "exec", "spawn"])
def test_a_parent_that_is_killed_while_its_children_begin_leaves_none(method: str, tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(PROGRAM)
    environment = own_environment(tmp_path)
    for wait_ms in range(100, 700, 50):
        command = [sys.executable, str(script), method, "sit_idle", "sit_idle", "sit_idle"]
        parent = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, env=environment, start_new_session=True)
        try:
            parent.wait(wait_ms / 1000)
        except subprocess.TimeoutExpired:
            pass
        parent.kill()
        parent.communicate()
        session = [int(name) for name in os.listdir("/proc") if name.isdigit() and _session(int(name)) == parent.pid]
        wait_until_gone(session)


def _session(pid: int) -> int:
    try:
        return os.getsid(pid)
    except ProcessLookupError:
        return -1


@pytest.mark.usefixtures("fork_server")
def test_a_function_that_cannot_be_read_in_the_child_is_its_error() -> None:
    child = Child.start(acting.take, (acting.Vanishing(),), name="worker 0")
    with pytest.raises(LookupError, match="nothing here") as caught:
        child.receive()
    child.stop(10.0)
    assert "worker 0" in caught.value.__notes__[0]


@pytest.mark.usefixtures("fork_server")
def test_an_error_of_cleaning_up_after_the_stop_is_said_on_stderr(capfd: pytest.CaptureFixture[str]) -> None:
    child = Child.start(acting.fail_at_cleanup, name="worker 0", method="fork")
    child.receive()
    child.stop(10.0)
    assert "RuntimeError: the disk is full" in capfd.readouterr().err
