"""Every `pip install` in the sources and the docs can be typed into a shell as it stands, with no package index that has Penstock.

The quotes are double: `cmd.exe` on Windows hands single quotes on to pip.
"""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path

import pytest
from programs import python

ROOT = Path(__file__).parents[2]
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md")), *sorted((ROOT / "src").rglob("*.py"))]
COMMAND = re.compile(r"""pip install (?:-e )?("[^"\s]*"|'[^'\s]*'|[^\s`"')]+)""")


def problem_of(argument: str) -> str | None:
    """Return what is wrong with the argument of one `pip install`, or None."""
    if "[" not in argument:
        return None if argument == "." else "only a clone (.) can be installed without extras"
    quoted = re.fullmatch(r'"(\.|penstock)\[([a-z,]+)\]"', argument)
    if quoted is None:
        return "double quotes are missing: a shell expands brackets, and cmd.exe knows no single quotes"
    unknown = set(quoted[2].split(",")) - set(EXTRAS)
    return f"no such extra: {sorted(unknown)}" if unknown else None


def test_every_pip_install_in_sources_and_docs_is_quoted_and_names_extras_that_exist() -> None:
    found = [
        (path.relative_to(ROOT).as_posix(), argument) for path in PAGES for argument in COMMAND.findall(path.read_text(encoding="utf-8"))
    ]
    assert {name for name, _ in found} >= {"README.md", "docs/guide.md", "docs/errors.md", "src/penstock/image/operator.py"}
    wrong = [(name, argument, problem) for name, argument in found if (problem := problem_of(argument))]
    assert wrong == []


def raised_missing_extras(source: str) -> list[str]:
    """Return the texts of each `MissingExtra(...)` in a module: its arguments, and the value of a name `fix` beside it."""
    tree = ast.parse(source)
    names = {one.targets[0].id: one.value for one in ast.walk(tree) if isinstance(one, ast.Assign) and isinstance(one.targets[0], ast.Name)}
    found = []
    for call in ast.walk(tree):
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "MissingExtra":
            (fix,) = (keyword.value for keyword in call.keywords if keyword.arg == "fix")
            found.append(ast.unparse(names[fix.id] if isinstance(fix, ast.Name) else fix))
    return found


def test_every_missing_extra_says_which_extra_brings_it_or_where_the_framework_comes_from() -> None:
    fixes = [text for path in PAGES if path.suffix == ".py" for text in raised_missing_extras(path.read_text(encoding="utf-8"))]
    assert len(fixes) >= 9
    assert [text for text in fixes if not re.search(r"""pip install (["'])penstock\[[a-z]+\]\1|install it as https://""", text)] == []


def test_all_brings_what_each_extra_of_a_running_program_brings_but_no_framework() -> None:
    (everything,) = EXTRAS["all"]
    assert re.fullmatch(r"penstock\[(.*)\]", everything)[1].split(",") == ["image", "parquet", "cloud", "zstd", "live"]  # type: ignore[index]
    assert EXTRAS["torch"] == ["torch>=2.4"]


def test_the_guide_lists_every_extra_of_a_running_program_with_what_it_brings() -> None:
    rows = dict(re.findall(r"^\| `(\w+)` \| ([^|]*) \|", (ROOT / "docs" / "guide.md").read_text("utf-8"), re.MULTILINE))
    assert set(rows) & set(EXTRAS) == {"all", "cloud", "image", "live", "parquet", "ray", "text", "tiff", "torch", "zstd"}


@pytest.mark.parametrize(
    "argument", ["penstock", "penstock[image]", '"penstock[imagery]"', ".[image]", "'.[image]'", "'penstock[image]'", "torch"]
)
def test_a_command_that_would_fail_is_found(argument: str) -> None:
    assert COMMAND.findall(f"Type `pip install {argument}` here.") == [argument]
    assert problem_of(argument) is not None


def test_the_command_of_a_message_finds_the_installed_penstock_without_an_index() -> None:
    done = python("-m", "pip", "install", "--dry-run", "--no-index", "--no-deps", "penstock[image]", cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert "Requirement already satisfied: penstock[image]" in done.stdout
