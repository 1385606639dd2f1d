"""Refuse files, functions and rooms that are too large, and modules that are too small to stand alone.

Offenders of today are the lines of `tools/exceptions.toml`, which may only shrink: a line whose offender has become better, or is not
there any more, is a problem as well. `python tools/check_sizes.py --write` writes the file again from what is found and keeps the
reasons; it is run by hand only, and what it adds needs a reason before the check passes.
"""

from __future__ import annotations

import ast
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from findings import Module, finish, python_modules, root_of

MOST = {"file": 800, "function": 60, "complexity": 15, "parameters": 8, "room": 24}
"""Lines of a file, lines of a function without its docstring, its cyclomatic complexity, its parameters, modules of a room."""

ALONE = 80
"""Lines from which on a module stands alone. A shorter one needs two importers, or one outside its room."""

WRITTEN_OUT = ("feed", "with_options", "parallel_jobs", "read_csv", "read_tokens", "random_resized_crop")
"""Functions whose parameters are options, written out for editors and readers."""

PACKAGE = "src/penstock"
EXCEPTIONS = "tools/exceptions.toml"
KINDS = (*MOST, "small")
HEAD = """# What breaks a rule of tools/check_sizes.py today, by kind: where, the figure, and why it may. This file only shrinks:
# a figure may fall, a line may go. `python tools/check_sizes.py --write` writes it again; reasons are written by hand.
"""

Function = ast.FunctionDef | ast.AsyncFunctionDef
DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


class Offence(NamedTuple):
    """Something that breaks a rule."""

    kind: str
    where: str
    figure: int


def main(arguments: Sequence[str]) -> int:
    """Check the tree, or write the list of exceptions, and return the exit status."""
    root = root_of([argument for argument in arguments if argument != "--write"])
    modules = list(python_modules(root, "src", "tools", "benchmarks", "examples"))
    sources = sorted((root / "src").rglob("*.[ch]"))
    offences = [offence for module in modules for offence in sizes_of(module)]
    offences += [Offence("file", path.relative_to(root).as_posix(), count_lines(path.read_text("utf-8"))) for path in sources]
    package = [module for module in modules if module.name.startswith(f"{PACKAGE}/")]
    offences += [*rooms_of(package), *small_modules(package)]
    found = {(kind, where): figure for kind, where, figure in offences if figure > MOST.get(kind, 0)}
    path = root / EXCEPTIONS
    listed = tomllib.loads(path.read_text("utf-8")) if path.exists() else {}
    if "--write" in arguments:
        path.write_text(as_toml(found, listed), "utf-8")
        return 0
    return finish("check_sizes", compare(found, listed), len(modules) + len(sources), "modules")


def sizes_of(module: Module) -> Iterator[Offence]:
    """Measure one module, and the functions in it if it stands in src."""
    yield Offence("file", module.name, count_lines(module.source))
    if not module.name.startswith("src/"):
        return
    for name, node in functions_of(module.tree):
        where = f"{module.name}:{name}"
        yield Offence("function", where, function_lines(node))
        yield Offence("complexity", where, complexity(node))
        if node.name not in WRITTEN_OUT:
            yield Offence("parameters", where, parameters(node))


def count_lines(source: str) -> int:
    """Count the lines of a file."""
    return len(source.splitlines())


def functions_of(node: ast.AST, path: str = "") -> Iterator[tuple[str, Function]]:
    """Give every function with its dotted name; a second one of the same name (an overload, a branch) has a number behind it."""
    taken: dict[str, int] = {}
    for child in own_nodes(node):
        if isinstance(child, DEFINITIONS):
            taken[child.name] = taken.get(child.name, 0) + 1
            name = f"{path}{child.name}" + (f"#{taken[child.name]}" if taken[child.name] > 1 else "")
            if isinstance(child, Function):
                yield name, child
            yield from functions_of(child, f"{name}.")


def own_nodes(node: ast.AST) -> Iterator[ast.AST]:
    """Walk what stands below a node; functions and classes in it are given, but not entered."""
    waiting = [*ast.iter_child_nodes(node)][::-1]
    while waiting:
        child = waiting.pop()
        yield child
        if not isinstance(child, DEFINITIONS):
            waiting += [*ast.iter_child_nodes(child)][::-1]


def function_lines(node: Function) -> int:
    """Count the lines from `def` to the end without the docstring, which is meant to be complete rather than short."""
    num_lines = (node.end_lineno or node.lineno) - node.lineno + 1
    if ast.get_docstring(node) is not None:
        docstring = node.body[0]
        num_lines -= (docstring.end_lineno or docstring.lineno) - docstring.lineno + 1
    return num_lines


def complexity(node: Function) -> int:
    """Count the ways through a function after McCabe: one, and one more for each place where it branches. Functions inside count alone."""
    return 1 + sum(map(branches, own_nodes(node)))


def branches(node: ast.AST) -> int:
    """Count the ways that one node adds."""
    match node:
        case ast.If() | ast.For() | ast.AsyncFor() | ast.While() | ast.ExceptHandler() | ast.IfExp():
            return 1
        case ast.BoolOp():
            return len(node.values) - 1
        case ast.comprehension():
            return len(node.ifs)
        case ast.match_case():
            always = isinstance(node.pattern, ast.MatchAs) and node.pattern.pattern is None and node.guard is None
            return 0 if always else 1
    return 0


def parameters(node: Function) -> int:
    """Count the parameters without `self` and `cls`; `*args` and `**kwargs` count as one each."""
    given = node.args
    named = [*given.posonlyargs, *given.args, *given.kwonlyargs]
    bound = bool(named) and named[0].arg in ("self", "cls")
    return len(named) - bound + (given.vararg is not None) + (given.kwarg is not None)


def rooms_of(modules: Sequence[Module]) -> Iterator[Offence]:
    """Count the modules of each folder of the package."""
    folders = [folder_of(module.name) for module in modules]
    for folder in sorted(set(folders) - {PACKAGE}):
        yield Offence("room", folder, folders.count(folder))


def folder_of(name: str) -> str:
    """Return the folder of a file."""
    return name.rpartition("/")[0]


def small_modules(modules: Sequence[Module]) -> Iterator[Offence]:
    """Give the modules under 80 lines that one module of their room imports, and no other; not what only the room's `__init__` imports."""
    importers = importers_of(modules)
    for module in modules:
        num_lines, by = count_lines(module.source), importers[module.name]
        if num_lines < ALONE and len(by) == 1 and folder_of(by[0]) == folder_of(module.name) and not by[0].endswith("/__init__.py"):
            yield Offence("small", module.name, num_lines)


def importers_of(modules: Sequence[Module]) -> dict[str, list[str]]:
    """Return for each module the others that import it."""
    names = {module.name for module in modules}
    importers: dict[str, list[str]] = {name: [] for name in names}
    for module in modules:
        for target in imported(module.tree, names) - {module.name}:
            importers[target].append(module.name)
    return importers


def imported(tree: ast.Module, names: set[str]) -> set[str]:
    """Return the files of the package that a module imports, wherever in it."""
    dotted = set[str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            dotted |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            dotted |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return {f"src/{name.replace('.', '/')}.py" for name in dotted} & names


def compare(found: Mapping[tuple[str, str], int], listed: Mapping[str, Any]) -> Iterator[str]:
    """Name what is not listed, has grown past its line, or has a line that is not needed as it stands."""
    lines = {(kind, where): line for kind in listed for where, line in listed[kind].items()}
    for (kind, where), figure in found.items():
        line = lines.get((kind, where))
        if line is None:
            yield f"{where}: {words(kind, figure)}"
            continue
        if not line["reason"].strip():
            yield f"{where}: its line in {EXCEPTIONS} says no reason"
        if kind != "small" and figure > line["today"]:
            yield f"{where}: {words(kind, figure)}; it may not grow from the {line['today']} in {EXCEPTIONS}"
        elif kind != "small" and figure < line["today"]:
            yield f"{where}: {words(kind, figure)}; {EXCEPTIONS} has {line['today']}: lower this line"
    for kind, where in sorted(lines.keys() - found.keys()):
        yield f"{where}: does not break the rule {kind!r}: remove this line from {EXCEPTIONS}"


def words(kind: str, figure: int) -> str:
    """Say what is wrong."""
    if kind == "small":
        return f"{figure} lines and one importer, in its own room: put it there, or where it belongs (alone from {ALONE} lines on)"
    what = {
        "file": "lines, {} at most: split it by subject",
        "function": "lines, {} at most",
        "complexity": "ways through it, {} at most",
        "parameters": "parameters, {} at most: make them a record",
        "room": "modules, {} at most: merge what is one idea",
    }[kind]
    return f"{figure} {what.format(MOST[kind])}"


def as_toml(found: Mapping[tuple[str, str], int], listed: Mapping[str, Any]) -> str:
    """Return the list of exceptions with the reasons that it had."""
    out = [HEAD]
    for kind in KINDS:
        out.append(f"[{kind}]")
        for (of_kind, where), figure in sorted(found.items()):
            if of_kind == kind:
                reason = listed.get(kind, {}).get(where, {}).get("reason", "")
                out.append(f'"{where}" = {{ today = {figure}, reason = "{reason}" }}')
        out.append("")
    return "\n".join(out)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
