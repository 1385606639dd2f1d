"""`python -m penstock`."""

from __future__ import annotations

import subprocess
import sys

import penstock as ps


def test_the_command_also_runs_as_a_module() -> None:
    done = subprocess.run([sys.executable, "-m", "penstock", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == f"penstock {ps.__version__}\n"
    assert done.stderr == ""
