"""What a user gets from `pip install .` in a clone."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
def test_the_wheel_has_the_types_the_c_sources_and_every_module(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(tmp_path), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,) = tmp_path.glob("penstock-*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    package = ROOT / "src" / "penstock"
    wanted = {path.relative_to(package.parent).as_posix() for pattern in ("*.py", "*.c", "py.typed") for path in package.rglob(pattern)}
    assert "penstock/py.typed" in wanted
    assert wanted - names == set()
    assert any(name.endswith("/licenses/LICENSE") for name in names)
