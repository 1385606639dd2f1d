"""Refuse files over 400 lines, Python or C, and functions of src over 40 lines or 8 parameters. There is no list of exceptions."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Sequence

from findings import Module, finish, python_modules, root_of

MAX_MODULE_LINES = 400
MAX_FUNCTION_LINES = 40
MAX_PARAMETERS = 8

Function = ast.FunctionDef | ast.AsyncFunctionDef


def main(arguments: Sequence[str]) -> int:
    """Check the tree and return the exit status."""
    root = root_of(arguments)
    modules = list(python_modules(root, "src", "tools", "benchmarks", "examples"))
    problems = [problem for module in modules for problem in problems_of(module)]
    sources = sorted(path for path in (root / "src").rglob("*.[ch]"))
    for path in sources:
        problems += too_long(str(path.relative_to(root)), path.read_text("utf-8"))
    return finish("check_sizes", problems, len(modules) + len(sources), "modules")


def problems_of(module: Module) -> Iterator[str]:
    """Name what is too large in one module."""
    yield from too_long(module.name, module.source)
    if not module.name.startswith("src/"):
        return
    for node in ast.walk(module.tree):
        if not isinstance(node, Function):
            continue
        num_lines = function_lines(node)
        if num_lines > MAX_FUNCTION_LINES:
            yield f"{module.name}:{node.lineno}: {node.name} has {num_lines} lines, {MAX_FUNCTION_LINES} at most"
        num_parameters = parameters(node)
        if num_parameters > MAX_PARAMETERS:
            yield f"{module.name}:{node.lineno}: {node.name} has {num_parameters} parameters, {MAX_PARAMETERS} at most: make them a record"


def too_long(name: str, source: str) -> list[str]:
    """Name a file that has too many lines."""
    num_lines = len(source.splitlines())
    return [f"{name}:1: {num_lines} lines, {MAX_MODULE_LINES} at most: split it by subject"] * (num_lines > MAX_MODULE_LINES)


def function_lines(node: Function) -> int:
    """Count the lines from `def` to the end without the docstring, which is meant to be complete rather than short."""
    num_lines = (node.end_lineno or node.lineno) - node.lineno + 1
    if ast.get_docstring(node) is not None:
        docstring = node.body[0]
        num_lines -= (docstring.end_lineno or docstring.lineno) - docstring.lineno + 1
    return num_lines


def parameters(node: Function) -> int:
    """Count the parameters without `self` and `cls`; `*args` and `**kwargs` count as one each."""
    given = node.args
    named = [*given.posonlyargs, *given.args, *given.kwonlyargs]
    bound = bool(named) and named[0].arg in ("self", "cls")
    return len(named) - bound + (given.vararg is not None) + (given.kwarg is not None)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
