"""The table of faults is complete, and what it names exists."""

from __future__ import annotations

import ast
import functools
import tomllib
from pathlib import Path
from typing import Any

TESTS = Path(__file__).parents[1]
FAULTS: list[dict[str, Any]] = tomllib.loads(Path(__file__).with_name("registry.toml").read_text(encoding="utf-8"))["fault"]

NAMED = (
    *(f"A{n}" for n in range(1, 29) if n != 26),
    *(f"B{n}" for n in range(1, 33)),
    *(f"C{n}" for n in range(1, 35)),
    *(f"D{n}" for n in range(1, 24)),
    *(f"E{n}" for n in range(1, 19)),
    *(f"F{n}" for n in (9, 11, 12)),
    *(f"G{n}" for n in range(1, 10)),
    "H9",
)
"""The rows that the issues of the project asked for so far."""


@functools.cache
def functions_of(file: str) -> dict[str, ast.FunctionDef]:
    """Collect the test functions at the top of a file."""
    tree = ast.parse((TESTS / file).read_text(encoding="utf-8"))
    return {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")}


def test_every_fault_that_must_be_covered_is_in_the_table_once() -> None:
    numbers = [fault["number"] for fault in FAULTS]
    assert len(set(numbers)) == len(numbers)
    assert set(NAMED) - set(numbers) == set()


def test_every_row_has_tests() -> None:
    assert [fault["number"] for fault in FAULTS if not (fault["what"] and fault["outcome"] and fault["tests"])] == []


def test_every_test_that_the_table_names_exists_and_is_not_skipped_without_a_condition() -> None:
    for fault in FAULTS:
        for address in fault["tests"]:
            file, _, name = address.partition("::")
            found = functions_of(file).get(name)
            assert found is not None, f"{fault['number']}: no {address}"
            decorators = [ast.unparse(decorator) for decorator in found.decorator_list]
            assert not any(decorator.startswith(("pytest.mark.skip(", "pytest.mark.xfail")) for decorator in decorators), address


def test_every_fault_has_a_test_in_the_core_suite() -> None:
    for fault in FAULTS:
        marks = []
        for address in fault["tests"]:
            file, _, name = address.partition("::")
            marks.append([ast.unparse(decorator) for decorator in functions_of(file)[name].decorator_list])
        assert any("pytest.mark.slow" not in decorators for decorators in marks), fault["number"]


def test_every_test_of_this_folder_belongs_to_a_fault() -> None:
    named = {address for fault in FAULTS for address in fault["tests"]}
    files = [f"faults/{path.name}" for path in (TESTS / "faults").glob("test_*.py")]
    there = {f"{file}::{name}" for file in files for name in functions_of(file)}
    rest = {address.partition("::")[2] for address in there - named if not address.startswith("faults/test_registry.py")}
    assert rest == {
        "test_a_feed_that_was_never_started_closes_without_having_run_anything",
        "test_an_uncaught_error_of_a_users_function_prints_its_stage_and_element",
    }
