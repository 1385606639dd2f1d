"""Programs under strace, which has calls of the system fail."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import penstock

STRACE = shutil.which("strace")
needs_strace = pytest.mark.skipif(STRACE is None, reason="strace is not installed")


def run(program: str, *arguments: str, options: list[str]) -> list[str]:
    """Run a program under strace; return what it printed."""
    path = os.pathsep.join((os.path.dirname(os.path.dirname(os.path.abspath(penstock.__file__))), str(Path(__file__).parents[1])))
    command = [str(STRACE), *options, sys.executable, "-c", program, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=True, env={**os.environ, "PYTHONPATH": path})
    return done.stdout.splitlines()


def failing(program: str, *arguments: str, call: str, error: str, when: int, more: str = "", mark: str) -> list[str]:
    """Run a program whose `when`-th call of this kind behind the first opening of a path with `mark` in it fails."""
    log = f"{arguments[0]}.log"
    run(program, *arguments, options=["-o", log, "-e", f"trace=openat,{call}"])
    with open(log) as file:
        calls = file.read().splitlines()
    os.unlink(log)
    opened = next(number for number, line in enumerate(calls) if "openat" in line and mark in line)
    before = sum(line.startswith(f"{call}(") for line in calls[:opened])
    return run(program, *arguments, options=["-o", "/dev/null", "-e", f"inject={call}:error={error}:when={before + when}{more}"])
