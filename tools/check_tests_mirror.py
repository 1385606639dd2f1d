"""Refuse a module of src without its test file: src/penstock/ROOM/NAME.py has tests/ROOM/test_NAME.py, private modules too.

A leading underscore of a module may be left out in the test's name, `__init__.py` is tested by test_init.py or test_ROOM.py. A module
without behaviour (constants, re-exports, records, protocols) needs none. A test file without a test does not count.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Sequence
from pathlib import Path

from findings import Module, finish, python_modules, root_of

PACKAGE = Path("src/penstock")


def main(arguments: Sequence[str]) -> int:
    """Check the tree and return the exit status."""
    root = root_of(arguments)
    modules = list(python_modules(root, PACKAGE.as_posix()))
    problems = []
    for module in modules:
        if not has_behaviour(module.tree):
            continue
        wanted = test_paths(module)
        if not any(has_test(root / path) for path in wanted):
            problems.append(f"{module.name}:1: no test in {' or '.join(path.as_posix() for path in wanted)}")
    return finish("check_tests_mirror", problems, len(modules), "modules")


def test_paths(module: Module) -> list[Path]:
    """List the places where the tests of a module may stand."""
    inside = Path(module.name).relative_to(PACKAGE)
    room = inside.parent
    if inside.stem == "__init__":
        names = ["init"] if room == Path() else ["init", room.name.lstrip("_")]
    else:
        names = [inside.stem, inside.stem.strip("_")]
    return [Path("tests") / room / f"test_{name}.py" for name in dict.fromkeys(names)]


def has_behaviour(tree: ast.Module) -> bool:
    """Tell whether a module has a function or method with a body, or statements that do something at import."""
    return any(_behaves(node) for node in tree.body)


def _behaves(node: ast.stmt) -> bool:
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            return not all(_is_empty(statement) for statement in node.body)
        case ast.ClassDef():
            return any(_behaves(statement) for statement in node.body)
        case ast.If():
            return not _is_type_checking(node.test)
        case ast.Import() | ast.ImportFrom() | ast.Assign() | ast.AnnAssign():
            return False
        case _:
            return not _is_empty(node)


def _is_empty(node: ast.stmt) -> bool:
    return isinstance(node, ast.Pass) or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))


def _is_type_checking(test: ast.expr) -> bool:
    return isinstance(test, ast.Name) and test.id == "TYPE_CHECKING"


def has_test(path: Path) -> bool:
    """Tell whether a file exists and holds at least one test."""
    if not path.is_file():
        return False
    tree = ast.parse(path.read_text(encoding="utf-8"), str(path))
    functions = (node for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)))
    # A Hypothesis state machine is a test without a function: `TestQueue = QueueMachine.TestCase`.
    machines = any(isinstance(node, ast.Attribute) and node.attr == "TestCase" for node in ast.walk(tree))
    return machines or any(node.name.startswith("test_") for node in functions)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
