"""Every `pip install` in the sources and the docs can be typed into a shell as it stands, with no package index that has Penstock."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXTRAS = set(tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"])
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md")), *sorted((ROOT / "src").rglob("*.py"))]
COMMAND = re.compile(r"pip install (?:-e )?('[^'\s]*'|[^\s`\")]+)")


def problem_of(argument: str) -> str | None:
    """Return what is wrong with the argument of one `pip install`, or None."""
    if "[" not in argument:
        return None if argument == "." else "only a clone (.) can be installed without extras"
    quoted = re.fullmatch(r"'(\.|penstock)\[([a-z,]+)\]'", argument)
    if quoted is None:
        return "quotes are missing: a shell expands brackets"
    unknown = set(quoted[2].split(",")) - EXTRAS
    return f"no such extra: {sorted(unknown)}" if unknown else None


def test_every_pip_install_in_sources_and_docs_is_quoted_and_names_extras_that_exist() -> None:
    found = [
        (path.relative_to(ROOT).as_posix(), argument) for path in PAGES for argument in COMMAND.findall(path.read_text(encoding="utf-8"))
    ]
    assert {name for name, _ in found} >= {"README.md", "docs/guide.md", "docs/errors.md", "src/penstock/image/operator.py"}
    assert [(name, argument, problem) for name, argument in found if (problem := problem_of(argument))] == []


@pytest.mark.parametrize("argument", ["penstock", "penstock[image]", "'penstock[imagery]'", ".[image]", '"penstock[image]"', "torch"])
def test_a_command_that_would_fail_is_found(argument: str) -> None:
    assert problem_of(argument) is not None


def test_the_command_of_a_message_finds_the_installed_penstock_without_an_index() -> None:
    command = [sys.executable, "-m", "pip", "install", "--dry-run", "--no-index", "--no-deps", "penstock[image]"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert "Requirement already satisfied: penstock[image]" in done.stdout
