"""Print how large and how tangled the source is, or compare it with its ceilings.

    python tools/house.py            a table of each measure: today's figure, its ceiling and its goal; lines and files of each room
    python tools/house.py --write    the same, after the ceilings were lowered to the figures
    python tools/house.py --check    the guard: fail where a figure is above its ceiling; `tests/tools/test_trip.py` does so for the trips

Ceilings and goals stand in `tools/house.toml`. A ceiling may only shrink.
"""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any

from check_rooms import room_of
from check_sizes import MOST, PACKAGE, count_lines, functions_of, importers_of, own_nodes, sizes_of
from check_words import CEILINGS, lowered_words
from findings import ROOT, Module, finish, python_modules, root_of

ENGINE = f"{PACKAGE}/_engine"
PLAN = f"{PACKAGE}/_plan"
WIDE_RECORDS = ("Unit", "Chunk")
"""The record of rows in flight, by its name before and after it was renamed."""
ROUNDED = {"source lines": 500, "source lines without new rooms": 500, "_engine lines": 100}
"""Measures whose ceilings are rounded up, so that a fix of a few lines passes."""
NEW_ROOMS = ("adapters", "doctor", "observe")
"""Rooms made or filled after the goals were set; they count in all, and the rest is shown by itself."""
HEAD = """# The measures of tools/house.py, with ceilings that only shrink, and goals; the old words that tools/check_words.py still allows.
# `make house WRITE=1` lowers each of them to the figure of today.
"""


def main(arguments: Sequence[str]) -> int:
    """Print the table, lower the ceilings, or check them, and return the exit status."""
    options = [argument for argument in arguments if argument.startswith("--")]
    root = root_of([argument for argument in arguments if argument not in options])
    modules = list(python_modules(root, PACKAGE))
    path = root / CEILINGS
    listed = tomllib.loads(path.read_text("utf-8")) if path.exists() else {}
    in_c = sources_in_c(root)
    figures = static_figures(modules, in_c)
    if "--check" in options:
        return finish("house", problems_of(figures, listed.get("measures", {})), len(figures), "measures")
    figures |= trips(root)
    if "--write" in options:
        listed = {"measures": lowered(figures, listed.get("measures", {})), "words": lowered_words(modules, listed.get("words"))}
        path.write_text(as_toml(listed), "utf-8")
    print_table(figures, listed.get("measures", {}))
    print_rooms(lines_of_rooms(modules, in_c))
    return 0


def sources_in_c(root: Path) -> list[tuple[str, int]]:
    """Return the names and the lines of the files in C."""
    paths = sorted((root / PACKAGE).rglob("*.[ch]"))
    return [(path.relative_to(root).as_posix(), count_lines(path.read_text("utf-8"))) for path in paths]


def static_figures(modules: Sequence[Module], in_c: Sequence[tuple[str, int]]) -> dict[str, int]:
    """Measure what can be read off the source."""
    engine = [module for module in modules if module.name.startswith(f"{ENGINE}/")]
    complexities = [offence.figure for module in modules for offence in sizes_of(module) if offence.kind == "complexity"]
    asking = list(functions_that_ask(modules))
    rooms = lines_of_rooms(modules, in_c)
    before = [lines for room, lines in rooms.items() if room not in NEW_ROOMS]
    return {
        "source lines": sum(map(sum, rooms.values())),
        "source files": sum(map(len, rooms.values())),
        "source lines without new rooms": sum(map(sum, before)),
        "source files without new rooms": sum(map(len, before)),
        "_engine files": len(engine),
        "_engine import depth": import_depth(engine),
        "_engine lines": sum(count_lines(module.source) for module in engine),
        f"fields of {' or '.join(WIDE_RECORDS)}": max(map(num_fields, records(engine)), default=0),
        f"functions of complexity over {MOST['complexity']}": sum(figure > MOST["complexity"] for figure in complexities),
        "modules imported by one other only": sum(len(by) == 1 for by in importers_of(modules).values()),
        "class names in more than one room": len(shared_class_names(modules)),
        "functions that ask for the kind of a node": len(asking),
        "files with such functions": len({name for name, _ in asking}),
    }


def lines_of_rooms(modules: Sequence[Module], in_c: Sequence[tuple[str, int]]) -> dict[str, list[int]]:
    """Return the lines of each file, by room."""
    rooms = defaultdict[str, list[int]](list)
    for name, num_lines in [*((module.name, count_lines(module.source)) for module in modules), *in_c]:
        rooms[name.removeprefix(f"{PACKAGE}/").partition("/")[0]].append(num_lines)
    return dict(rooms)


def trips(root: Path = ROOT) -> dict[str, int]:
    """Measure the trips of tools/trip.py in a process of their own, with the sources of `root`."""
    command = [sys.executable, str(ROOT / "tools" / "trip.py"), "--json"]
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": str(root / "src")}, stdout=subprocess.PIPE, check=True)
    return dict(json.loads(done.stdout))


def import_depth(modules: Sequence[Module]) -> int:
    """Return the length of the longest chain of modules of which each imports the next."""
    imports: dict[str, set[str]] = {module.name: set() for module in modules}
    for name, importers in importers_of(modules).items():
        for importer in importers:
            imports[importer].add(name)
    depths: dict[str, int] = {}
    for name in TopologicalSorter(imports).static_order():
        depths[name] = 1 + max((depths[other] for other in imports[name]), default=0)
    return max(depths.values(), default=0)


def records(modules: Sequence[Module]) -> Iterator[ast.ClassDef]:
    """Give the classes of rows in flight."""
    for module in modules:
        yield from (node for node in module.tree.body if isinstance(node, ast.ClassDef) and node.name in WIDE_RECORDS)


def num_fields(node: ast.ClassDef) -> int:
    """Count the fields of a dataclass."""
    return sum(isinstance(statement, ast.AnnAssign) for statement in node.body)


def shared_class_names(modules: Sequence[Module]) -> dict[str, set[str]]:
    """Return the names of public classes that stand in more than one room, with the rooms."""
    rooms = defaultdict[str, set[str]](set)
    for module in modules:
        for node in module.tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                rooms[node.name].add(room_of(module))
    return {name: where for name, where in rooms.items() if len(where) > 1}


def functions_that_ask(modules: Sequence[Module]) -> Iterator[tuple[str, str]]:
    """Give file and name of each function that asks of which kind a plan node is: by `isinstance`, a class pattern or its type."""
    kinds = kinds_of_nodes([module for module in modules if module.name.startswith(f"{PLAN}/")])
    for module in modules:
        names = local_names(module, kinds) - {"Node"}
        for name, function in functions_of(module.tree) if names else ():
            if any(asks(node, names) for node in own_nodes(function)):
                yield module.name, name


def kinds_of_nodes(modules: Sequence[Module]) -> dict[str, set[str]]:
    """Return the classes of nodes by their modules: the parts of a union `Node`, what derives from a class `Node`, and groups of these."""
    kinds = defaultdict[str, set[str]](set)
    num_before = -1
    while sum(map(len, kinds.values())) > num_before:
        num_before = sum(map(len, kinds.values()))
        for module in modules:
            names = local_names(module, kinds)
            for node in module.tree.body:
                if isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value and target_of(node) == "Node":
                    kinds[dotted(module)] |= {part.id for part in ast.walk(node.value) if isinstance(part, ast.Name)}
                elif isinstance(node, ast.ClassDef) and (node.name == "Node" or any(mentions(base, names) for base in node.bases)):
                    kinds[dotted(module)].add(node.name)
            kinds[dotted(module)] |= groups_of(module, names)
    return kinds


def dotted(module: Module) -> str:
    """Return the name by which a module is imported."""
    return module.name.removeprefix("src/").removesuffix(".py").replace("/", ".")


def groups_of(module: Module, names: set[str]) -> set[str]:
    """Return the names that a module gives to unions and tuples of classes, and to tables of them."""
    assigned = [node for node in module.tree.body if isinstance(node, (ast.Assign, ast.AnnAssign))]
    return {target_of(node) for node in assigned if node.value and is_group(node.value) and mentions(node.value, names)} - {""}


def is_group(node: ast.AST) -> bool:
    """Tell whether an expression holds classes: a union, a tuple, a table, or a call that makes one."""
    match node:
        case ast.Call(func=ast.Name(id="tuple" | "list" | "set" | "frozenset" | "dict")):
            return True
    return isinstance(node, (ast.Tuple, ast.List, ast.Set, ast.Dict, ast.BinOp))


def target_of(node: ast.Assign | ast.AnnAssign) -> str:
    """Return the name that an assignment binds, or nothing."""
    target = node.targets[0] if isinstance(node, ast.Assign) else node.target
    return target.id if isinstance(target, ast.Name) else ""


def local_names(module: Module, kinds: Mapping[str, set[str]]) -> set[str]:
    """Return by what names a module knows the node classes; those of an imported module have its name and a dot before them."""
    names = set(kinds.get(dotted(module), ()))
    package = PLAN.removeprefix("src/").replace("/", ".")
    for node in ast.walk(module.tree) if package in module.source else ():
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                name = alias.asname or alias.name
                names |= {name} if alias.name in kinds.get(node.module, ()) else set()
                names |= {f"{name}.{kind}" for kind in kinds.get(f"{node.module}.{alias.name}", ())}
    return names | groups_of(module, names) if names else names


def mentions(node: ast.AST, names: set[str]) -> bool:
    """Tell whether one of the names stands in an expression."""
    return any(is_named(part, names) for part in ast.walk(node))


def is_named(node: ast.AST, names: set[str]) -> bool:
    """Tell whether an expression is one of the names."""
    match node:
        case ast.Name(id=name):
            return name in names
        case ast.Attribute(value=ast.Name(id=module), attr=name):
            return f"{module}.{name}" in names
    return False


def asks(node: ast.AST, names: set[str]) -> bool:
    """Tell whether a node of a syntax tree asks for a kind: a class given to a function, a class pattern, or `type()` compared."""
    match node:
        case ast.MatchClass(cls=kind):
            return is_named(kind, names)
        case ast.Call(args=given) if any(is_named(kind, names) or (is_group(kind) and mentions(kind, names)) for kind in given):
            return True
        case ast.Compare() | ast.Subscript() | ast.Call(func=ast.Attribute(attr="get")):
            calls = (part.func for part in ast.walk(node) if isinstance(part, ast.Call))
            return any(isinstance(function, ast.Name) and function.id == "type" for function in calls) and mentions(node, names)
    return False


def problems_of(figures: Mapping[str, int], ceilings: Mapping[str, Any]) -> Iterator[str]:
    """Name the figures that are above their ceilings, or have none."""
    for name, figure in figures.items():
        line = ceilings.get(name)
        if line is None:
            yield f"{name}: {figure}; {CEILINGS} has no ceiling for it: run `make house WRITE=1`"
        elif figure > line["ceiling"]:
            yield f"{name}: {figure}, at most {line['ceiling']} ({CEILINGS})"
        elif figure == 0 and line.get("goal"):
            yield f"{name}: found none to measure; tools/house.py looks in the wrong place"


def lowered(figures: Mapping[str, int], ceilings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the ceilings, none of them higher than it was."""
    lines = {}
    for name, figure in figures.items():
        step = ROUNDED.get(name, 1)
        rounded, before = -(-figure // step) * step, ceilings.get(name, {})
        lines[name] = {**before, "ceiling": min(rounded, before.get("ceiling", rounded))}
    return lines


def as_toml(listed: Mapping[str, Any]) -> str:
    """Return the text of the file of ceilings."""
    out = [HEAD, "[measures]"]
    for name, line in listed["measures"].items():
        figures = ", ".join(f"{key} = {line[key]}" for key in ("ceiling", "goal") if key in line)
        out.append(f'"{name}" = {{ {figures} }}')
    words = (f"{word} = {number}" for word, number in listed["words"].items())
    return "\n".join([*out, "", "[words]", *words, ""])


def print_table(figures: Mapping[str, int], ceilings: Mapping[str, Any]) -> None:
    """Print each measure with today's figure, its ceiling and its goal."""
    print(f"{'measure':42} {'today':>8} {'ceiling':>8} {'goal':>8}")
    for name, figure in figures.items():
        line = ceilings.get(name, {})
        print(f"{name:42} {figure:8} {line.get('ceiling', '-'):>8} {line.get('goal', '-'):>8}")


def print_rooms(rooms: Mapping[str, Sequence[int]]) -> None:
    """Print the lines and the files of each room, those in C included."""
    print(f"\n{'room':42} {'lines':>8} {'files':>8}")
    for room, lines in sorted(rooms.items(), key=lambda item: -sum(item[1])):
        print(f"{room:42} {sum(lines):8} {len(lines):8}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
