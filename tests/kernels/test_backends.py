from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import penstock.kernels
from penstock.kernels import backend, native
from penstock.kernels.backends import chosen

PROGRAM = """
import sys
import numpy as np
from penstock import kernels
from penstock.kernels import native
out = np.empty((1, 3, 4, 6), np.float32)
kernels.normalize(np.arange(72, dtype=np.uint8).reshape(1, 4, 6, 3)[:, :, ::-1], np.ones(3, np.float32), np.zeros(3, np.float32), out, True)
print(kernels.backend(), kernels.permute(np.arange(5), 1000, 3).tolist(), out.sum())
"""


def run_with(**environment: str) -> list[str]:
    source = str(Path(penstock.kernels.__file__).parents[2])
    inherited = {name: value for name, value in os.environ.items() if name != "PENSTOCK_KERNELS"}
    finished = subprocess.run(
        [sys.executable, "-c", PROGRAM], env={**inherited, "PYTHONPATH": source, **environment}, capture_output=True, text=True, check=True
    )
    return finished.stdout.split(maxsplit=1)


def test_the_environment_can_ask_for_numpy_and_gets_the_same_numbers() -> None:
    name, numbers = run_with(PENSTOCK_KERNELS="numpy")
    assert name == "numpy"
    assert run_with()[1] == numbers


@pytest.mark.skipif(native.load() is None, reason="the C library was not built here")
def test_without_the_switch_the_c_library_is_used_where_it_was_built() -> None:
    assert run_with()[0] == "c"
    assert run_with(PENSTOCK_KERNELS="c")[0] == "c"


def test_without_the_library_the_same_program_runs_on_numpy(tmp_path: Path) -> None:
    # The real thing: a copy of the package in which the library is missing.
    package = Path(penstock.kernels.__file__).parents[1]
    for room in (".", "_contracts", "kernels"):
        (tmp_path / "penstock" / room).mkdir(parents=True, exist_ok=True)
    for path in [package / "errors.py", *(package / "kernels").glob("*.py")]:
        (tmp_path / "penstock" / path.relative_to(package)).write_bytes(path.read_bytes())
    (tmp_path / "penstock" / "__init__.py").touch()
    name, numbers = run_with(PYTHONPATH=str(tmp_path))
    assert name == "numpy"
    assert numbers == run_with()[1]


def test_the_choice_is_made_once() -> None:
    assert chosen() is chosen()
    assert backend() == chosen().name
