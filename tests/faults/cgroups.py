"""Programs in a memory cgroup of their own, of version 1 or 2, where one can be made."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import penstock

_TOP = Path("/sys/fs/cgroup")
_JOIN = 'echo $$ > "$0/cgroup.procs" && exec "$@"'


@contextmanager
def memory_group(limit_bytes: int) -> Iterator[Path]:
    """Give the folder of a cgroup inside that of this process, which allows so much memory and no swap; skip the test where none can be."""
    parent, version = _own_group()
    group = parent / f"penstock-test-{os.getpid()}"
    try:
        if version == 2 and "memory" not in (parent / "cgroup.subtree_control").read_text().split():
            (parent / "cgroup.subtree_control").write_text("+memory")
        group.mkdir()
    except OSError as error:
        pytest.skip(f"no memory cgroup can be made here: {error}")
    try:
        limit, swap = ("memory.max", "memory.swap.max") if version == 2 else ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes")
        (group / limit).write_text(str(limit_bytes))
        if (group / swap).exists():
            (group / swap).write_text("0" if version == 2 else str(limit_bytes))
        yield group
    finally:
        _remove(group)


def _remove(group: Path) -> None:
    """Remove a group once its last process, a fork server that ends by itself, is gone."""
    deadline = time.monotonic() + 10
    while True:
        try:
            return group.rmdir()
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def _own_group() -> tuple[Path, int]:
    """Return the memory cgroup of this process, and its version."""
    try:
        lines = [line.split(":", 2) for line in Path("/proc/self/cgroup").read_text().splitlines()]
    except OSError as error:
        pytest.skip(f"this system has no cgroups: {error}")
    for number, names, path in lines:
        if "memory" in names.split(","):
            return _TOP / "memory" / path.strip("/"), 1
        if number == "0" and (_TOP / "cgroup.controllers").exists():
            return _TOP / path.strip("/"), 2
    pytest.skip("no cgroup of this process has a memory controller")


def run_in(group: Path, program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a program in a cgroup, to its end."""
    path = os.path.dirname(os.path.dirname(os.path.abspath(penstock.__file__)))
    command = ["sh", "-c", _JOIN, str(group), sys.executable, "-c", program, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=100, check=False, env={**os.environ, "PYTHONPATH": path})
