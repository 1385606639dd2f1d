"""What a user gets from `pip install .` in a clone."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
@pytest.mark.parametrize(("compiler", "tag"), [("/bin/false", "any"), (None, "linux_x86_64")])
def test_a_wheel_without_the_library_is_for_any_machine(compiler: str | None, tag: str, tmp_path: Path) -> None:
    sources = [
        *(ROOT / "src").rglob("*.py"),
        *(ROOT / "src").rglob("*.[ch]"),
        *(ROOT / name for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE")),
    ]
    for path in sources:  # a copy: what another build left would be taken
        (tmp_path / "clone" / path.relative_to(ROOT)).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "clone" / path.relative_to(ROOT)).write_bytes(path.read_bytes())
    environment = {**os.environ, **({} if compiler is None else {"CC": compiler})}
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(tmp_path), str(tmp_path / "clone")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,) = tmp_path.glob("penstock-*.whl")
    has_library = any(name.endswith(".so") for name in zipfile.ZipFile(wheel).namelist())
    assert has_library == (compiler is None)
    assert wheel.stem.rpartition("-")[2] == tag if compiler is not None else wheel.stem.rpartition("-")[2] != "any"


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
