"""Python programs in processes of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def python(*arguments: object, cwd: Path | None = None, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run Python with some arguments, such as "-c" and a text, to its end."""
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        cwd=cwd,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )


def output_of(*arguments: object, **environment: str) -> str:
    """Return what a program prints that says nothing on stderr."""
    done = python(*arguments, **environment)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout
