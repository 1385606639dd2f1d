from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

FIND_PYTHON = Path(__file__).resolve().parents[2] / "tools" / "find_python"
THIS = f"{sys.version_info.major}.{sys.version_info.minor}"


def find(*versions: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([FIND_PYTHON, *versions], capture_output=True, text=True, check=False, env={**os.environ, **environment})


def installation(root: Path, version: str) -> Path:
    """Lay out what pyenv would have installed: a program that starts the interpreter of this test."""
    program = root / "versions" / version / "bin" / "python"
    program.parent.mkdir(parents=True)
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    program.chmod(0o755)
    return program


def test_an_interpreter_of_pyenv_is_found_when_path_has_none(tmp_path: Path) -> None:
    installation(tmp_path, f"{THIS}.99")
    found = find(THIS, PYENV_ROOT=str(tmp_path), PATH="/nowhere")
    assert (found.returncode, found.stdout.strip()) == (0, sys.executable)


@pytest.mark.parametrize("versions", [["3.2"], []])
def test_no_interpreter_is_status_1_and_silence(tmp_path: Path, versions: list[str]) -> None:
    found = find(*versions, PYENV_ROOT=str(tmp_path), PATH="/nowhere")
    assert (found.returncode, found.stdout, found.stderr) == (1, "", "")


def test_an_interpreter_of_another_version_is_not_taken(tmp_path: Path) -> None:
    installation(tmp_path, "3.2.1")
    assert find("3.2", PYENV_ROOT=str(tmp_path), PATH="/nowhere").returncode == 1


def test_the_first_version_that_is_there_wins(tmp_path: Path) -> None:
    installation(tmp_path, f"{THIS}.0")
    assert find("3.2", THIS, PYENV_ROOT=str(tmp_path), PATH="/nowhere").stdout.strip() == sys.executable
