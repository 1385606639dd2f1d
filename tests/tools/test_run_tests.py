"""What failed beside others runs again, alone; what fails twice fails the run; the slowest files are listed."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from core import core
from programs import python

import run_tests

PASSES_THE_SECOND_TIME = """
from pathlib import Path

def test_first():
    seen = Path("seen")
    if not seen.exists():
        seen.touch()
        assert False
"""


def run(folder: Path, text: str, *options: str) -> subprocess.CompletedProcess[str]:
    (folder / "pytest.ini").touch()  # so that names start here, whatever lies in the folders above
    (folder / "test_some.py").write_text(text)
    return python(run_tests.__file__, "-q", *(options or ("-n", "1", "test_some.py")), cwd=folder)


def test_a_test_that_passes_alone_is_named_and_passes(tmp_path: Path) -> None:
    done = run(tmp_path, PASSES_THE_SECOND_TIME)
    assert done.returncode == 0
    assert "UNSTABLE: failed beside other tests, and passed alone: test_some.py::test_first" in done.stdout
    assert "assert False" in done.stdout
    assert (tmp_path / run_tests.UNSTABLE).read_text() == "test_some.py::test_first\n"


@pytest.mark.parametrize(
    ("text", "status"),
    core(
        [
            ("def test_it():\n    assert 1 == 2\n", 1),
            ("".join(f"def test_{n}():\n    assert 1 == 2\n" for n in range(run_tests.MOST + 1)), 1),
            ("", 5),
            ("def test_it():\n    pass\n", 0),
        ]
    ),
    ids=["fails twice", "too many fail", "no test", "passes"],
)
def test_any_other_run_ends_with_the_code_of_pytest(tmp_path: Path, text: str, status: int) -> None:
    done = run(tmp_path, text)
    assert done.returncode == status, done.stdout
    assert "UNSTABLE" not in done.stdout
    assert ("== again, alone" in done.stdout) is ("1 == 2" in text and text.count("def ") == 1)


@pytest.mark.slow
def test_the_test_files_are_listed_with_their_number_of_tests(tmp_path: Path) -> None:
    (tmp_path / "test_other.py").write_text("import time\n\ndef test_it():\n    time.sleep(0.3)\n")
    done = run(tmp_path, "def test_one():\n    pass\n\ndef test_two():\n    pass\n", "-n", "2")
    head, *rows = done.stdout[done.stdout.index("== the slowest") :].splitlines()
    assert head.startswith("== the slowest of 2 test files, in seconds of all processes (all: ")
    assert [row.split(maxsplit=1)[1] for row in rows] == ["test_other.py (1 tests)", "test_some.py (2 tests)"]


def test_ten_files_are_listed_at_most_and_longest_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cases = "".join(f'<testcase file="tests/test_{n}.py" time="{n}.25"/>' for n in range(15))
    (tmp_path / "results.xml").write_text(f'<testsuites><testsuite>{cases}<testcase classname="odd"/></testsuite></testsuites>')
    run_tests.print_slowest(tmp_path / "results.xml")
    head, *rows = capsys.readouterr().out.splitlines()
    assert head == "== the slowest of 16 test files, in seconds of all processes (all: 109)"
    assert rows == [f"{n + 0.25:8.1f}  tests/test_{n}.py (1 tests)" for n in range(14, 4, -1)]


@pytest.mark.parametrize("text", [None, "<testsuites><testsuite/></testsuites>"])
def test_a_run_without_tests_lists_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str | None) -> None:
    if text is not None:
        (tmp_path / "results.xml").write_text(text)
    run_tests.print_slowest(tmp_path / "results.xml")
    assert capsys.readouterr().out == ""
