from __future__ import annotations

import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import house
from findings import python_modules

Printed = Callable[[], str]


@pytest.fixture
def printed(capsys: pytest.CaptureFixture[str]) -> Printed:
    return lambda: capsys.readouterr().out


def tree(root: Path, **files: str) -> Path:
    """Write modules; two underscores in a keyword stand for a folder."""
    for name, text in files.items():
        path = root / "src/penstock" / f"{name.replace('__', '/')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return root


def figures(root: Path) -> dict[str, int]:
    return house.static_figures(list(python_modules(root, "src/penstock")), house.sources_in_c(root))


def list_ceilings(root: Path, text: str) -> None:
    (root / "tools").mkdir(exist_ok=True)
    (root / "tools/house.toml").write_text(text, "utf-8")


def test_lines_and_files_count_those_in_c_and_new_rooms_apart(tmp_path: Path, printed: Printed) -> None:
    tree(tmp_path, room__a="x = 1\n" * 5, observe__b="x = 1\n" * 3, feed="x = 1\n")
    (tmp_path / "src/penstock/room/c.c").write_text("int x;\n" * 2)
    found = figures(tmp_path)
    assert [found[f"source {what}"] for what in ("lines", "files", "lines without new rooms", "files without new rooms")] == [11, 4, 8, 3]
    house.print_rooms(house.lines_of_rooms(list(python_modules(tmp_path, "src")), house.sources_in_c(tmp_path)))
    assert [line.split() for line in printed().splitlines()[1:]] == [
        ["room", "lines", "files"],
        ["room", "7", "2"],
        ["observe", "3", "1"],
        ["feed.py", "1", "1"],
    ]


def test_the_depth_of_the_engine_is_its_longest_chain_of_imports(tmp_path: Path) -> None:
    chain = {f"_engine__m{number}": f"from penstock._engine import m{number + 1}\n" for number in range(3)}
    tree(tmp_path, **chain, _engine__m3="from penstock.room.a import x\n", room__a="x = 1\n")
    found = figures(tmp_path)
    assert (found["_engine import depth"], found["_engine files"], found["_engine lines"]) == (4, 4, 4)
    assert found["modules imported by one other only"] == 4


@pytest.mark.parametrize("name", ["Unit", "Chunk"])
def test_the_fields_of_the_record_of_rows_in_flight_are_counted_wherever_it_stands(tmp_path: Path, name: str) -> None:
    tree(tmp_path, _engine__any=f"class {name}:\n    a: int\n    b: int = 1\n\n    def c(self):\n        d: int = 1\n")
    assert figures(tmp_path)["fields of Unit or Chunk"] == 2


def test_functions_that_are_too_complex_and_class_names_of_two_rooms_are_counted(tmp_path: Path) -> None:
    complex_one = "def work():\n" + "    if a:\n        pass\n" * 15
    tree(
        tmp_path,
        one__a=complex_one + "class Same:\n    pass\nclass _Own:\n    pass\n",
        two__b="class Same:\n    pass\nclass _Own:\n    pass\n",
    )
    found = figures(tmp_path)
    assert (found["functions of complexity over 15"], found["class names in more than one room"]) == (1, 1)


UNION = "class Map:\n    pass\nclass Batch:\n    pass\nNode = Map | Batch\nGroup = (Map, Batch)\n"
BASE = "class Node:\n    pass\nclass Map(Node):\n    pass\nclass Batch(Map):\n    pass\nGroup = Map | Batch\n"


@pytest.mark.parametrize("nodes", [UNION, BASE])
@pytest.mark.parametrize(
    ("body", "asks"),
    [
        ("isinstance(x, Map)", True),
        ("isinstance(x, (int, plan.Batch))", True),
        ("isinstance(x, Group)", True),
        ("isinstance(x, Own)", True),
        ("of_kind(x, Map)", True),
        ("any(f(x, (int, Map)) for f in y)", True),
        ("isinstance(x, SET)", True),
        ("[y for y in x if isinstance(y, Renamed)]", True),
        ("type(x) is Map", True),
        ("TABLE[type(x)]", True),
        ("TABLE.get(type(x))", True),
        ("match x:\n        case plan.Map(child=y):\n            pass", True),
        ("isinstance(x, Node)", False),
        ("isinstance(x, int)", False),
        ("Map(child=x)", False),
        ("f(Map(child=x), Map.name)", False),
        ("TABLE['map']", False),
        ("def inside():\n        return isinstance(x, int)", False),
    ],
)
def test_a_function_that_asks_for_the_kind_of_a_node_is_found_by_any_name_of_it(tmp_path: Path, nodes: str, body: str, asks: bool) -> None:
    head = "from penstock._plan import nodes as plan\nfrom penstock._plan.nodes import Batch as Renamed, Group, Map, Node\n"
    text = f"{head}Own = (Map, Renamed)\nSET = frozenset((Map,))\nTABLE = {{Map: 1}}\ndef f(x):\n    {body}\ndef g(x):\n    pass\n"
    found = figures(tree(tmp_path, _plan__nodes=nodes, room__a=text))
    assert (found["functions that ask for the kind of a node"], found["files with such functions"]) == (asks, asks)


def test_classes_that_derive_from_a_node_of_another_module_are_kinds_too(tmp_path: Path) -> None:
    base = "class Node:\n    pass\nclass Unary(Node):\n    pass\n"
    nodes = "from penstock._plan.base import Unary\nclass Map(Unary):\n    pass\n"
    asking = "from penstock._plan.{} import {}\ndef f(x):\n    return isinstance(x, {})\n"
    tree(
        tmp_path,
        _plan__base=base,
        _plan__a_nodes=nodes,
        one__a=asking.format("a_nodes", "Map", "Map"),
        one__b=asking.format("base", "Unary", "Unary"),
    )
    tree(tmp_path, one__c=asking.format("base", "Node", "Node"), one__d=asking.format("other", "Map", "Map"))
    assert figures(tmp_path)["functions that ask for the kind of a node"] == 2


def test_a_figure_above_its_ceiling_fails_the_guard(tmp_path: Path, printed: Printed) -> None:
    tree(tmp_path, _engine__a="x = 1\n", room__b="x = 1\n")
    assert house.main([str(tmp_path), "--check"]) == 1
    assert "source files: 2; tools/house.toml has no ceiling for it: run `make house WRITE=1`" in printed()
    measures = dict.fromkeys(figures(tmp_path), 9)
    text = "".join(f'"{name}" = {{ ceiling = {ceiling} }}\n' for name, ceiling in measures.items())
    list_ceilings(tmp_path, f"[measures]\n{text}")
    assert house.main([str(tmp_path), "--check"]) == 0
    list_ceilings(tmp_path, f"[measures]\n{text}".replace('"source files" = { ceiling = 9 }', '"source files" = { ceiling = 1 }'))
    printed()
    assert house.main([str(tmp_path), "--check"]) == 1
    assert printed().splitlines()[0] == "source files: 2, at most 1 (tools/house.toml)"


def test_a_measure_that_finds_nothing_fails_unless_nothing_is_the_goal() -> None:
    assert list(house.problems_of({"a": 0}, {"a": {"ceiling": 5, "goal": 0}})) == []
    assert list(house.problems_of({"a": 0}, {"a": {"ceiling": 5, "goal": 2}})) == [
        "a: found none to measure; tools/house.py looks in the wrong place"
    ]


def test_writing_lowers_ceilings_and_keeps_goals_and_raises_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, printed: Printed
) -> None:
    def no_trips(root: Path) -> dict[str, int]:
        return {"warm batch: files": 38}

    monkeypatch.setattr(house, "trips", no_trips)  # those of another tree than this one
    tree(tmp_path, _engine__a="lot = 1\n", _engine__c="lot = 1\n", room__b="x = 1\n")
    list_ceilings(
        tmp_path, '[measures]\n"source files" = { ceiling = 9, goal = 1 }\n"_engine files" = { ceiling = 0, goal = 3 }\n[words]\nlot = 5\n'
    )
    assert house.main([str(tmp_path), "--write"]) == 0
    listed: dict[str, Any] = tomllib.loads((tmp_path / "tools/house.toml").read_text("utf-8"))
    assert listed["measures"]["source files"] == {"ceiling": 3, "goal": 1}
    assert listed["measures"]["_engine files"] == {"ceiling": 0, "goal": 3}
    assert listed["measures"]["source lines"] == {"ceiling": 500}
    assert listed["measures"]["warm batch: files"] == {"ceiling": 38}
    assert listed["words"] == {"lot": 2}
    rows = [line.split() for line in printed().splitlines()]
    assert ["source", "files", "3", "3", "1"] in rows
    assert ["warm", "batch:", "files", "38", "38", "-"] in rows
