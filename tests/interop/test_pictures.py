"""The script that makes the pictures of the pages draws real runs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from findings import ROOT

pytestmark = pytest.mark.slow


def test_the_script_draws_runs_as_pictures(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    names = ["feed_dict", "jobs", "memory", "shuffle"]
    command = [sys.executable, str(ROOT / "tools" / "pictures.py"), "--out", str(tmp_path), *names]
    subprocess.run(command, check=True, timeout=100, stdout=subprocess.DEVNULL)
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"{name}.png" for name in names]
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in tmp_path.iterdir())
