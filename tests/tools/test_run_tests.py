"""What failed beside others runs again, alone; what fails twice fails the run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import run_tests

PASSES_THE_SECOND_TIME = """
from pathlib import Path

def test_first():
    seen = Path("seen")
    if not seen.exists():
        seen.touch()
        assert False
"""


def run(folder: Path, text: str) -> subprocess.CompletedProcess[str]:
    (folder / "test_some.py").write_text(text)
    command = [sys.executable, run_tests.__file__, "-q", "-n", "1", "test_some.py"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def test_a_test_that_passes_alone_is_named_and_passes(tmp_path: Path) -> None:
    done = run(tmp_path, PASSES_THE_SECOND_TIME)
    assert done.returncode == 0
    assert "UNSTABLE: failed beside other tests, and passed alone: test_some.py::test_first" in done.stdout
    assert "assert False" in done.stdout
    assert (tmp_path / run_tests.UNSTABLE).read_text() == "test_some.py::test_first\n"


@pytest.mark.parametrize(
    ("text", "status"),
    [
        pytest.param("def test_it():\n    assert 1 == 2\n", 1, id="fails twice"),
        pytest.param("".join(f"def test_{n}():\n    assert 1 == 2\n" for n in range(run_tests.MOST + 1)), 1, id="too many fail"),
        pytest.param("", 5, id="no test"),
        pytest.param("def test_it():\n    pass\n", 0, id="passes"),
    ],
)
def test_any_other_run_ends_with_the_code_of_pytest(tmp_path: Path, text: str, status: int) -> None:
    done = run(tmp_path, text)
    assert done.returncode == status, done.stdout
    assert "UNSTABLE" not in done.stdout
    assert ("== again, alone" in done.stdout) is ("1 == 2" in text and text.count("def ") == 1)
