"""Runs a program on a real terminal."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys


def on_a_terminal(program: str, columns: int) -> str:
    """Run a program on a real terminal, and return what it wrote."""
    ours, theirs = pty.openpty()
    os.set_blocking(ours, False)
    subprocess.run(["stty", "cols", str(columns), "rows", "30"], stdin=theirs, check=True)
    out = b""
    with subprocess.Popen([sys.executable, "-W", "error", "-c", program], stdin=theirs, stdout=theirs, stderr=theirs) as running:
        os.close(theirs)
        while select.select([ours], [], [], 60.0)[0]:
            try:
                out += os.read(ours, 65536)
            except OSError:  # the end of a terminal
                break
    os.close(ours)
    assert running.returncode == 0, out.decode()
    return out.decode()
