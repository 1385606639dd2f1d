"""Python programs in processes of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import penstock

PATHS = os.pathsep.join([str(Path(penstock.__file__).parents[1]), str(Path(__file__).parent)])
"""Where a program finds this Penstock and the helpers of the tests."""


def python(
    *arguments: object, cwd: Path | None = None, given: str = "", timeout_s: float = 110, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run Python with some arguments, such as "-c" and a text, to its end; `given` is its standard input."""
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": PATHS, **environment},
        input=given,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )


def output_of(*arguments: object, **options: Any) -> str:
    """Return what a program prints that says nothing on stderr."""
    done = python(*arguments, **options)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout
