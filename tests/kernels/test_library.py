"""The C library is taken when it fits this code and is wanted."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.kernels.library import LIBRARY, load_library


def test_a_file_that_is_no_library_or_not_there_gives_none(tmp_path: Path) -> None:
    (tmp_path / "other.so").write_bytes(b"not a library")
    assert load_library(tmp_path / "other.so") is None
    assert load_library(tmp_path / "absent.so") is None


@pytest.mark.skipif(load_library() is None, reason="the C library was not built here")
@pytest.mark.parametrize(("choice", "wanted"), [("numpy", False), ("c", True), ("", True)])
def test_the_environment_asks_for_the_twins(choice: str, wanted: bool) -> None:
    code = "from penstock.kernels.library import chosen_library; print(chosen_library() is not None)"
    source = str(Path(LIBRARY).parents[2])
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PENSTOCK_KERNELS": choice, "PYTHONPATH": source},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == str(wanted)
