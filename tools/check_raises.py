"""Refuse errors that do not say what, where and fix, exceptions that are not ours, and handlers that swallow everything.

- A call of a class of penstock.errors passes what, where= and fix=, none of them empty.
- No module raises an exception of Python's own, but for what a protocol of the language asks for.
- `except Exception`, `except BaseException` and a bare `except` end in a `raise`, except in the modules that are named below.
"""

from __future__ import annotations

import ast
import builtins
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from findings import Module, finish, python_modules, root_of

PACKAGE = "src/penstock"

BROAD_HANDLERS = (
    "_system/failing.py",
    "_system/process.py",
    "_workers/processes.py",
    "_workers/threads.py",
    "_storage/requests.py",
    "_engine/error_policy.py",
    "_ops/map.py",
    "_ops/map.py",
    "_workers/ray_actor.py",  # the same, of an actor
    "_workers/entry.py",
    "cli/doctor.py",
    "_engine/turns.py",
    "queues/runner.py",
    "feed/engine_process.py",
    "jobs/run.py",
    "jobs/processes.py",
    "enqueuer/batches.py",
    "enqueuer/enqueuer.py",
    "observe/ticker.py",
    "testing/runs.py",
)
"""Where a broad handler may end without `raise`: the worker loop and its kin hand errors to the consumer, a child process sends them, those
of jobs are booked, the laws compare them, those of a script are printed as Python prints them, an error of several operators in one is
looked for by running them again one by one, what an odd exception of the user's raises while it is looked at may not take its place, and a
listener that fails is switched off with a warning; a call that is made in another thread hands its error over."""

LANGUAGE = {
    ("__next__", "StopIteration"),
    ("__anext__", "StopAsyncIteration"),
    ("__getattr__", "AttributeError"),
    ("classes", "AttributeError"),
}
"""(method, exception) that Python's own protocols ask for; `classes` is a property of some datasets only."""

BUILTIN = {name for name, value in vars(builtins).items() if isinstance(value, type) and issubclass(value, BaseException)}
BROAD = {"Exception", "BaseException"}


def main(arguments: Sequence[str]) -> int:
    """Check the tree and return the exit status."""
    root = root_of(arguments)
    modules = list(python_modules(root, PACKAGE))
    ours = error_classes(root)
    problems = [problem for module in modules for problem in problems_of(module, ours)]
    return finish("check_raises", problems, len(modules), "modules")


def error_classes(root: Path) -> set[str]:
    """Return the names of the classes of penstock.errors."""
    return {
        node.name
        for module in python_modules(root, PACKAGE)
        if module.name == f"{PACKAGE}/errors.py"
        for node in module.tree.body
        if isinstance(node, ast.ClassDef)
    }


def problems_of(module: Module, ours: set[str]) -> Iterator[str]:
    """Name the errors of one module that say too little, and its handlers that hear too much."""
    for node, function in walk_with_function(module.tree):
        place = f"{module.name}:{getattr(node, 'lineno', 1)}"
        if isinstance(node, ast.Call) and name_of(node.func) in ours:
            missing = missing_parts(node)
            if missing:
                yield f"{place}: {name_of(node.func)} does not give {', '.join(missing)}"
        elif isinstance(node, ast.Raise) and node.exc is not None:
            name = name_of(node.exc.func if isinstance(node.exc, ast.Call) else node.exc)
            if name in BUILTIN and (function, name) not in LANGUAGE:
                yield f"{place}: raises {name}, which is not ours: raise a class of penstock.errors"
        elif isinstance(node, ast.ExceptHandler) and is_broad(node.type) and not ends_in_raise(node.body):
            if module.name.removeprefix(f"{PACKAGE}/") in BROAD_HANDLERS:
                print(f"{place}: broad handler, allowed here")
            else:
                yield f"{place}: a broad `except` that does not end in `raise` swallows errors: name the exceptions"


def walk_with_function(node: ast.AST, function: str = "") -> Iterator[tuple[ast.AST, str]]:
    """Walk a tree and give every node with the name of the function that it stands in."""
    for child in ast.iter_child_nodes(node):
        yield child, function
        inside = child.name if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)) else function
        yield from walk_with_function(child, inside)


def missing_parts(call: ast.Call) -> list[str]:
    """List which of what, where= and fix= a call leaves out or leaves empty."""
    keywords = {keyword.arg: keyword.value for keyword in call.keywords if keyword.arg is not None}
    parts = {"what": call.args[0] if call.args else keywords.get("what"), "where=": keywords.get("where"), "fix=": keywords.get("fix")}
    return [name for name, value in parts.items() if value is None or _is_blank(value)]


def _is_blank(value: ast.expr) -> bool:
    return isinstance(value, ast.Starred) or (
        isinstance(value, ast.Constant) and not (isinstance(value.value, str) and value.value.strip())
    )


def is_broad(kind: ast.expr | None) -> bool:
    """Tell whether a handler catches everything."""
    if kind is None:
        return True
    kinds = kind.elts if isinstance(kind, ast.Tuple) else [kind]
    return any(name_of(one) in BROAD for one in kinds)


def ends_in_raise(body: Sequence[ast.stmt]) -> bool:
    """Tell whether a handler raises on its way out."""
    return isinstance(body[-1], ast.Raise)


def name_of(node: ast.expr) -> str:
    """Return the last part of a dotted name, or the empty string."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
