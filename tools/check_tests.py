"""Refuse a room of src/penstock without tests in tests/ROOM, and a folder of tests that is no room's; hold the core to its branch coverage.

Tests mirror rooms and not modules, so that a module can be merged or split without touching them. `make coverage` gives the report of
coverage.py: `python tools/check_tests.py --coverage REPORT.json`.
"""

from __future__ import annotations

import ast
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from findings import finish, python_modules, root_of

PACKAGE = Path("src/penstock")
OTHER_FOLDERS = ("benchmarks", "docs", "examples", "faults", "fuzz", "interop", "laws", "tools")
"""Folders of tests that are of no room."""

CORE = ("_engine", "_order", "_plan")
LEAST_PERCENT = 95.0
"""Of the branches of the core, those that the tests of the core, the laws and the faults take."""


def main(arguments: Sequence[str]) -> int:
    """Check the tree, or the report behind `--coverage`, and return the exit status."""
    if arguments[:1] == ["--coverage"]:
        return check_coverage(Path(arguments[1]))
    root = root_of(arguments)
    rooms = {path.parent.name for path in (root / PACKAGE).glob("*/*.py")}
    tested = {name.split("/")[1] for name in files_with_tests(root) if name.count("/") > 1}
    problems = [f"{PACKAGE.as_posix()}/{room}: no test in tests/{room}" for room in sorted(rooms - tested)]
    problems += [f"tests/{folder}: there is no room {folder!r}" for folder in sorted(tested - rooms - {*OTHER_FOLDERS})]
    return finish("check_tests", problems, len(rooms), "rooms")


def files_with_tests(root: Path) -> Iterator[str]:
    """Give the test files that hold a test."""
    for module in python_modules(root, "tests"):
        if module.path.name.startswith("test_") and has_test(module.tree):
            yield module.name


def has_test(tree: ast.Module) -> bool:
    """Tell whether a file holds a test. A Hypothesis state machine is one without a function: `TestQueue = QueueMachine.TestCase`."""
    return any(
        (isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name.startswith("test_"))
        or (isinstance(node, ast.Attribute) and node.attr == "TestCase")
        for node in ast.walk(tree)
    )


def check_coverage(path: Path) -> int:
    """Compare the branches that a report counts with the floor, and name the files that lack most."""
    files = json.loads(path.read_text("utf-8"))["files"]
    in_core = {name: file["summary"] for name, file in files.items() if Path(name).parent.name in CORE}
    total, taken = (sum(summary[key] for summary in in_core.values()) for key in ("num_branches", "covered_branches"))
    percent = 100 * taken / total if total else 0.0
    print(f"{percent:.1f} % of {total} branches of {', '.join(CORE)}")
    problems = []
    if percent < LEAST_PERCENT:
        missed = sorted(in_core.items(), key=lambda item: item[1]["covered_branches"] - item[1]["num_branches"])
        problems = [f"{name}: {summary['num_branches'] - summary['covered_branches']} branches not taken" for name, summary in missed[:10]]
    return finish("check_coverage", problems, len(in_core), f"files; at least {LEAST_PERCENT} % of the branches are wanted")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
