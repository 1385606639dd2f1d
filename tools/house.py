"""Print how large and how tangled the source is, or compare it with its ceilings.

    python tools/house.py            a table of each measure: today's figure, its ceiling and its goal; the size of each room
    python tools/house.py --write    the same, after the ceilings were lowered to the figures
    python tools/house.py --list     the errors that refuse a combination of options
    python tools/house.py --check    the guard: fail where a figure is above its ceiling, or a ceiling was raised without a budget

Ceilings and goals stand in `tools/house.toml`; `tests/tools/test_trip.py` compares those of the trips. A ceiling only shrinks. What an
issue may add stands in `[budgets]`, and what it did add in `[raised]`. Git knows the earlier versions of the file.
"""

from __future__ import annotations

import ast
import io
import json
import math
import os
import re
import subprocess
import sys
import tokenize
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any

from check_rooms import room_of
from check_sizes import PACKAGE, Function, count_lines, functions_of, importers_of, parameters
from check_words import CEILINGS
from findings import ROOT, Module, finish, python_modules, root_of

ENGINE = f"{PACKAGE}/_engine"
PLAN = f"{PACKAGE}/_plan"
COUNTED_TOKENS = (tokenize.NAME, tokenize.OP, tokenize.NUMBER)
"""Not texts, comments and ends of lines: documentation and another form of the same code change nothing."""
TANGLED = 12
ROUNDED = {"source lines": 500, "_engine lines": 100, "tokens of src": 500, "tokens of tests": 500, "words of docs": 500}
"""Measures whose ceilings are rounded up, so that a fix of a few lines passes."""
OPTION = re.compile(r"(\w+|\})=|\b(?:before|after|beside) ([\w{}]+)\(|\b(Skip|Replace)\b")
"""An option in the text of an error: `name=`, an operator beside another one, a policy. A brace is a name that is filled in."""
CEILING = re.compile(r'^"(.+)" = \{ ceiling = (\d+)', re.MULTILINE)
"""A measure in the file of ceilings."""
Rooms = Mapping[str, Sequence[tuple[int, int]]]
"""The tokens and lines of each file, by room."""


def main(arguments: Sequence[str]) -> int:
    """Print the table, lower the ceilings, or check them, and return the exit status."""
    options = [argument for argument in arguments if argument.startswith("--")]
    root = root_of([argument for argument in arguments if argument not in options])
    modules, rooms = list(python_modules(root, PACKAGE)), rooms_of(root)
    if "--list" in options:
        print(*refused_combinations(modules), sep="\n")
        return 0
    path = root / CEILINGS
    text = path.read_text("utf-8") if path.exists() else ""
    figures, listed = static_figures(root, modules, rooms), tomllib.loads(text)
    if "--check" in options:
        problems = [*problems_of(figures, listed.get("measures", {})), *raises(listed, earlier_versions(root))]
        return finish("house", problems, len(figures), "measures")
    figures |= trips(root)
    if "--write" in options:
        text = lowered(text, figures)
        path.write_text(text, "utf-8")
    print_table(figures, lines_of(tomllib.loads(text)))
    print_rooms(rooms)
    return 0


def static_figures(root: Path, modules: Sequence[Module], rooms: Rooms) -> dict[str, int]:
    """Measure what can be read off the files."""
    engine = [module for module in modules if module.name.startswith(f"{ENGINE}/")]
    classes = [node for module in engine for node in ast.walk(module.tree) if isinstance(node, ast.ClassDef)]
    functions = [function for module in modules for _, function in functions_of(module.tree)]
    lowering = [function for module in engine for name, function in functions_of(module.tree) if name == "lower"]
    importers = importers_of(modules)
    tops = [(node, room_of(module)) for module in modules for node in module.tree.body]
    public = {(node.name, room) for node, room in tops if isinstance(node, ast.ClassDef) and not node.name.startswith("_")}
    refused = list(refused_combinations(modules))
    pages = [path for path in (root / "docs").rglob("*.md") if "decisions" not in path.parts]
    return {
        "tokens of src": sum(tokens for sizes in rooms.values() for tokens, _ in sizes),
        "tokens of tests": sum(num_tokens(path.read_text("utf-8")) for path in (root / "tests").rglob("*.py")),
        "source lines": sum(lines for sizes in rooms.values() for _, lines in sizes),
        "source files": sum(map(len, rooms.values())),
        "pages of docs": len(pages),
        "words of docs": sum(len(path.read_text("utf-8").split()) for path in pages),
        "_engine files": len(engine),
        "_engine import depth": import_depth(engine),
        "_engine lines": sum(count_lines(module.source) for module in engine),
        "fields of the classes of _engine": sum(len(fields(node)) for node in classes),
        "programs of a plan": sum(2 ** (parameters(function) - 1) for function in lowering),  # each parameter beside the plan doubles them
        "options of feed()": sum(len(fields(node)) for node, _ in tops if isinstance(node, ast.ClassDef) and node.name == "Options"),
        "combinations of options that are refused": len(refused),
        f"functions of complexity over {TANGLED}": sum(tangle(function) > TANGLED for function in functions),
        "modules imported by one other only": sum(len(by) == 1 for by in importers.values()),
        "modules that import the kinds of nodes": len(importers.get(f"{PLAN}/node.py", ())),
        "class names in more than one room": sum(number > 1 for number in Counter(name for name, _ in public).values()),
    }


def rooms_of(root: Path) -> Rooms:
    """Measure the files in Python and in C."""
    rooms = defaultdict[str, list[tuple[int, int]]](list)
    for path in sorted((root / PACKAGE).rglob("*.*")):
        if path.suffix in (".py", ".c", ".h"):
            text = path.read_text("utf-8")
            rooms[path.relative_to(root / PACKAGE).parts[0]].append((num_tokens(text) if path.suffix == ".py" else 0, count_lines(text)))
    return dict(rooms)


def num_tokens(source: str) -> int:
    """Count the names, operators and numbers of a Python file."""
    return sum(token.type in COUNTED_TOKENS for token in tokenize.generate_tokens(io.StringIO(source).readline))


def fields(node: ast.ClassDef) -> set[str]:
    """Return the attributes of a class: those that are annotated, in `__slots__`, or set on `self`."""
    found = set[str]()
    for statement in node.body:
        match statement:
            case ast.AnnAssign(target=ast.Name(id=name)):
                found.add(name)
            case ast.Assign(targets=[ast.Name(id="__slots__")], value=ast.Tuple(elts=names)):
                found |= {ast.literal_eval(name) for name in names}
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                attributes = (part for part in ast.walk(statement) if isinstance(part, ast.Attribute) and isinstance(part.ctx, ast.Store))
                found |= {part.attr for part in attributes if isinstance(part.value, ast.Name) and part.value.id == "self"}
    return found - {"__weakref__"}


def tangle(function: Function) -> int:
    """Count the ways through a function and those in it. Other than for check_sizes, a comprehension and an assert count as well."""
    return 1 + sum(map(ways, ast.walk(function)))


def ways(node: ast.AST) -> int:
    """Count the ways that one node adds."""
    match node:
        case ast.If() | ast.For() | ast.AsyncFor() | ast.While() | ast.ExceptHandler() | ast.IfExp() | ast.Assert() | ast.match_case():
            return 1
        case ast.comprehension():
            return 1 + len(node.ifs)
        case ast.BoolOp():
            return len(node.values) - 1
    return 0


def refused_combinations(modules: Sequence[Module]) -> Iterator[str]:
    """Give place and names of each error whose texts name two options: it refuses one beside the other, or needs the other."""
    for module in modules:
        for node in ast.walk(module.tree):
            match node:
                case ast.Call(func=ast.Name(id="PlanError" | "ValueError" | "TypeError")):
                    told = texts(node)
                case ast.Call(func=ast.Name(id="_refused"), args=[option, *_]):
                    told = f"{texts(option) or '{}'}= {texts(node)}"
                case _:
                    continue
            names = {option or operator or "on_error" for option, operator, _ in OPTION.findall(told)}
            if len(names) > 1:
                yield f"{module.name}:{node.lineno}: {', '.join(sorted(names))}"


def texts(node: ast.AST) -> str:
    """Return the texts in an expression, with braces for what is filled in."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=parts):
            return "".join(map(texts, parts))
        case ast.FormattedValue():
            return "{}"
    return " ".join(map(texts, ast.iter_child_nodes(node)))


def trips(root: Path = ROOT) -> dict[str, int]:
    """Measure the trips of tools/trip.py in a process of their own, with the sources of `root`."""
    command = [sys.executable, str(ROOT / "tools" / "trip.py"), "--json"]
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": str(root / "src")}, stdout=subprocess.PIPE, check=True)
    return dict(json.loads(done.stdout))


def import_depth(modules: Sequence[Module]) -> int:
    """Return the length of the longest chain of modules of which each imports the one before."""
    importers, depths = importers_of(modules), dict[str, int]()
    for name in TopologicalSorter(importers).static_order():
        depths[name] = 1 + max((depths[other] for other in importers[name]), default=0)
    return max(depths.values(), default=0)


def problems_of(figures: Mapping[str, int], ceilings: Mapping[str, Any]) -> Iterator[str]:
    """Name the figures that are above their ceilings, or have none, and ceilings without a figure."""
    for name, figure in figures.items():
        line = ceilings.get(name)
        if line is None:
            yield f"{name}: {figure}; {CEILINGS} has no ceiling for it"
        elif figure > line["ceiling"]:
            yield f"{name}: {figure}, at most {line['ceiling']} ({CEILINGS})"
        elif figure == 0 and line.get("goal"):
            yield f"{name}: found none to measure; tools/house.py looks in the wrong place"
    yield from (f"{name}: {CEILINGS} has a ceiling for it, and it is not measured" for name in ceilings if name not in figures)


def earlier_versions(root: Path) -> dict[str, dict[str, Any]]:
    """Return by commit, the newest first, what the file of ceilings held since it has budgets. Print so where git lacks some."""
    commits = git(root, "log", "--full-history", "--format=%h", "--", CEILINGS).split()
    versions = {commit: tomllib.loads(git(root, "show", f"{commit}:./{CEILINGS}")) for commit in commits}
    versions = {commit: listed for commit, listed in versions.items() if "budgets" in listed}
    if not versions:
        print(f"house: git knows no earlier version of {CEILINGS}, so ceilings were not compared with it")
    if git(root, "rev-parse", "--is-shallow-repository").strip() == "true":
        print("house: this clone lacks older commits, so ceilings were not compared with those: git fetch --unshallow")
    return versions


def git(root: Path, *arguments: str) -> str:
    """Return what git prints: nothing where it fails, or is not there."""
    try:
        return subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, encoding="utf-8", check=False).stdout
    except OSError:
        return ""


def raises(listed: Mapping[str, Any], earlier: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """Name what [raised] has beyond its budget, and what is looser than in an earlier version."""
    budgets, bounds, found = listed.get("budgets", {}), bounds_of(listed), dict[str, str]()
    for issue, raised in listed.get("raised", {}).items():
        for name, amount in raised.items():
            most = budgets.get(issue, {}).get(name, 0)
            if amount > most:
                yield f"[raised] {issue}: {amount} of {name}, at most {most} (its budget)"
    for commit, before in earlier.items():
        if budgets != before["budgets"]:
            found.setdefault("[budgets]", f"[budgets]: not what it was in {commit}")
        for name, bound in bounds_of(before).items():
            if bounds.get(name, math.inf) > bound:
                found.setdefault(name, f"{name}: {bounds.get(name, 'none')}, at most {bound} since {commit}")
        for word, count in listed.get("words", {}).items():
            most = before.get("words", {}).get(word, 0)
            if count > most:
                found.setdefault(f"[words] {word}", f"[words] {word}: {count}, at most {most} since {commit}")
    yield from found.values()


def bounds_of(listed: Mapping[str, Any]) -> dict[str, int]:
    """Return what may only shrink: goals, and ceilings without what [raised] has."""
    bounds = dict[str, int]()
    for name, line in lines_of(listed).items():
        raised = sum(added.get(name, 0) for added in listed.get("raised", {}).values())
        bounds[f"ceiling of {name}, without what was raised"] = line["ceiling"] - raised
        if "goal" in line:
            bounds[f"goal of {name}"] = line["goal"]
    return bounds


def lines_of(listed: Mapping[str, Any]) -> dict[str, Any]:
    """Return the ceilings and goals of all measures."""
    return {**listed.get("measures", {}), **listed.get("trips", {})}


def lowered(text: str, figures: Mapping[str, int]) -> str:
    """Return the text of the file of ceilings with those lowered that are above the figures."""

    def line(found: re.Match[str]) -> str:
        name, ceiling = found[1], int(found[2])
        step = ROUNDED.get(name, 1)
        return f'"{name}" = {{ ceiling = {min(ceiling, -(-figures[name] // step) * step)}'

    return CEILING.sub(line, text)


def print_table(figures: Mapping[str, int], ceilings: Mapping[str, Any]) -> None:
    """Print each measure with today's figure, its ceiling and its goal."""
    print(f"{'measure':42} {'today':>8} {'ceiling':>8} {'goal':>8}")
    for name, figure in figures.items():
        line = ceilings.get(name, {})
        print(f"{name:42} {figure:8} {line.get('ceiling', '-'):>8} {line.get('goal', '-'):>8}")


def print_rooms(rooms: Rooms) -> None:
    """Print the tokens, lines and files of each room, those in C included."""
    print(f"\n{'room':42} {'tokens':>8} {'lines':>8} {'files':>8}")
    for room, sizes in sorted(rooms.items(), key=lambda item: -sum(lines for _, lines in item[1])):
        print(f"{room:42} {sum(tokens for tokens, _ in sizes):8} {sum(lines for _, lines in sizes):8} {len(sizes):8}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
