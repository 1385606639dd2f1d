from __future__ import annotations

import subprocess
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
from tools.files import write

import house
from findings import python_modules

Printed = Callable[[], str]
UNTIL_NOW = (
    '[measures]\na = { ceiling = 90, goal = 50 }\n[trips]\nb = { ceiling = 7 }\n[budgets]\n6 = { "a" = 8 }\n[words]\nlot = 2\n[raised]\n'
)


@pytest.fixture
def printed(capsys: pytest.CaptureFixture[str]) -> Printed:
    return lambda: capsys.readouterr().out


def tree(root: Path, **files: str) -> Path:
    """Write modules; two underscores in a keyword stand for a folder."""
    for name, text in files.items():
        write(root, f"src/penstock/{name.replace('__', '/')}.py", text)
    return root


def figures(root: Path) -> dict[str, int]:
    return house.static_figures(root, list(python_modules(root, "src/penstock")), house.rooms_of(root))


def test_tokens_are_names_operators_and_numbers_and_no_room_is_left_out(tmp_path: Path, printed: Printed) -> None:
    tree(tmp_path, room__a='x = (1,\n  "text")  # comment\n', observe__b="x = 1\n" * 3, feed="x = 1\n")
    write(tmp_path, "src/penstock/room/c.c", "int x;\n" * 2)
    write(tmp_path, "tests/room/test_a.py", "def test():\n    '''text'''\n")
    for page in ("docs/a.md", "docs/formats/b.md", "docs/decisions/0001.md"):
        write(tmp_path, page, "# Two words\n")
    found = figures(tmp_path)
    assert (found["tokens of src"], found["tokens of tests"], found["source lines"], found["source files"]) == (18, 5, 8, 4)
    assert (found["pages of docs"], found["words of docs"]) == (2, 6)
    house.print_rooms(house.rooms_of(tmp_path))
    assert printed().split()[4:] == ["room", "6", "4", "2", "observe", "9", "3", "1", "feed.py", "3", "1", "1"]


def test_the_depth_of_the_engine_is_its_longest_chain_of_imports(tmp_path: Path) -> None:
    chain = {f"_engine__m{number}": f"from penstock._engine import m{number + 1}\n" for number in range(3)}
    tree(tmp_path, **chain, _engine__m3="from penstock.room.a import x\n", room__a="x = 1\n")
    found = figures(tmp_path)
    assert (found["_engine import depth"], found["_engine files"], found["_engine lines"]) == (4, 4, 4)
    assert (found["modules imported by one other only"], found["modules that import the kinds of nodes"]) == (4, 0)


def test_fields_are_what_a_class_annotates_names_as_slots_and_sets(tmp_path: Path) -> None:
    body = "__slots__ = ('a', '__weakref__')\n    b: int = 1\n    def f(self, x):\n        self.c, x.d = self.e = self.f.g = 1, 2\n"
    tree(tmp_path, _engine__a=f"class A:\n    {body}", room__b=f"class B:\n    {body}")
    assert figures(tmp_path)["fields of the classes of _engine"] == 4


def test_a_function_is_tangled_by_what_branches_in_it_and_in_the_functions_in_it(tmp_path: Path) -> None:
    branches = "if a and b:\n        assert [c for d in e if f]\n    def g():\n        " + "if a: pass\n        " * 6
    tree(tmp_path, one__a=f"def f():\n    {branches}\n", two__b=f"def f():\n    {branches}if a: pass\n")
    assert figures(tmp_path)["functions of complexity over 12"] == 1


def test_modes_are_counted_where_they_are_made(tmp_path: Path) -> None:
    modes = "def lower(root, *, folded=1, skips=0): pass\n"
    options = "class Options:\n    b: int = 1\n    c: int = 2\nclass Torch:\n    d: int = 3\n"
    same = "class Same: pass\nclass _Own: pass\n"
    found = figures(tree(tmp_path, _engine__lowering=modes, _contracts__options=options, one__a=same, two__b=same))
    assert (found["programs of a plan"], found["options of feed()"], found["class names in more than one room"]) == (4, 2, 1)


@pytest.mark.parametrize(
    ("call", "names"),
    [
        ("PlanError('record= of a replay', where='feed', fix='leave replay= out')", "record, replay"),
        ("PlanError(f'{name}={value!r} needs x', where='feed', fix=f'give executor={value}')", "executor, }"),
        ("PlanError('ordered=False', where='shuffle()', fix='leave Skip out')", "on_error, ordered"),
        ("ValueError(f'concurrency= before {operator}()')", "concurrency, {}"),
        ("_refused('device', value, 'names one', 'leave sharding= out')", "device, sharding"),
        ("_refused(name, value, 'has no meaning', 'give output= too')", "output, }"),
        ("PlanError(f'seed={seed} is none', where='shuffle()', fix='give seed=1 above')", ""),
        ("SpecError('a= and b=')", ""),
    ],
)
def test_an_error_that_names_two_options_refuses_a_combination(tmp_path: Path, call: str, names: str, printed: Printed) -> None:
    tree(tmp_path, room__a=f"def f():\n    raise {call}\n")
    assert figures(tmp_path)["combinations of options that are refused"] == bool(names)
    assert house.main([str(tmp_path), "--list"]) == 0
    assert printed().strip() == (f"src/penstock/room/a.py:2: {names}" if names else "")


def test_a_figure_needs_a_ceiling_above_it(tmp_path: Path, printed: Printed) -> None:
    lines = {"a": {"ceiling": 5, "goal": 0}, "b": {"ceiling": 5}, "c": {"ceiling": 5, "goal": 2}, "d": {"ceiling": 5}}
    assert list(house.problems_of({"a": 0, "b": 6, "c": 0, "e": 1}, lines)) == [
        "b: 6, at most 5 (tools/house.toml)",
        "c: found none to measure; tools/house.py looks in the wrong place",
        "e: 1; tools/house.toml has no ceiling for it",
        "d: tools/house.toml has a ceiling for it, and it is not measured",
    ]
    assert house.main([str(tree(tmp_path, a="x = 1\n")), "--check"]) == 1
    assert "tokens of src: 3; tools/house.toml has no ceiling for it" in printed()


def test_writing_lowers_ceilings_and_changes_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, printed: Printed) -> None:
    monkeypatch.setattr(house, "trips", lambda root: {"warm batch: files": 38})  # those of another tree than this one
    text = '# Why.\n[measures]\n"source files" = {{ ceiling = {}, goal = 1 }}\n"source lines" = {{ ceiling = {} }}\n[raised]\n'
    write(tree(tmp_path, _engine__a="x = 1\n"), "tools/house.toml", text.format(9, 900))
    assert house.main([str(tmp_path), "--write"]) == 0
    assert (tmp_path / "tools/house.toml").read_text("utf-8") == text.format(1, 500)
    rows = [line.split() for line in printed().splitlines()]
    assert ["source", "files", "1", "1", "1"] in rows
    assert ["warm", "batch:", "files", "38", "-", "-"] in rows


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("ceiling = 90", "ceiling = 80", ""),
        ("ceiling = 90", "ceiling = 91", "ceiling of a, without what was raised: 91, at most 90 since "),
        ("ceiling = 7 }", "ceiling = 8 }", "ceiling of b, without what was raised: 8, at most 7 since "),
        ("b = { ceiling = 7 }", "", "ceiling of b, without what was raised: none, at most 7 since "),
        ("goal = 50", "goal = 51", "goal of a: 51, at most 50 since "),
        (", goal = 50", "", "goal of a: none, at most 50 since "),
        ('"a" = 8', '"a" = 9', "[budgets]: not what it was in "),
        ("lot = 2\n", "", ""),
        ("lot = 2", "lot = 3", "[words] lot: 3, at most 2 since "),
        ("lot = 2", "ring = 1", "[words] ring: 1, at most 0 since "),
    ],
)
def test_nothing_is_looser_than_in_any_earlier_version(tmp_path: Path, old: str, new: str, problem: str) -> None:
    commit(tmp_path, UNTIL_NOW.replace("90", "95"))
    last = commit(tmp_path, UNTIL_NOW)
    assert problems(tmp_path, UNTIL_NOW.replace(old, new)) == ([problem + last] if problem else [])


def test_an_issue_raises_a_ceiling_once_and_within_its_budget(tmp_path: Path, printed: Printed) -> None:
    commit(tmp_path, "[measures]\na = { ceiling = 1 }\n")  # from before there were budgets
    raised = UNTIL_NOW.replace("90", "96") + '6 = { "a" = 6 }\n'
    assert problems(tmp_path, raised) == []
    assert printed() == "house: git knows no earlier version of tools/house.toml, so ceilings were not compared with it\n"
    first = commit(tmp_path, UNTIL_NOW)
    assert problems(tmp_path, raised) == []
    assert problems(tmp_path, raised.replace("96", "97")) == [f"ceiling of a, without what was raised: 91, at most 90 since {first}"]
    over = ["[raised] 6: 9 of a, at most 8 (its budget)", "[raised] 7: 1 of a, at most 0 (its budget)"]
    assert problems(tmp_path, raised.replace('"a" = 6 }', '"a" = 9 }\n7 = { "a" = 1 }')) == over
    last = commit(tmp_path, raised)
    assert problems(tmp_path, raised.replace("96", "97")) == [f"ceiling of a, without what was raised: 91, at most 90 since {last}"]


def test_a_merge_that_takes_the_older_file_does_not_hide_the_newer_one(tmp_path: Path) -> None:
    commit(tmp_path, UNTIL_NOW)
    git(tmp_path, "branch", "other")
    last = commit(tmp_path, UNTIL_NOW.replace("90", "80"))
    git(tmp_path, "checkout", "-q", "other")
    git(tmp_path, "merge", "-q", "-s", "ours", "-m", "merge", "--no-ff", last)
    assert problems(tmp_path, UNTIL_NOW) == [f"ceiling of a, without what was raised: 90, at most 80 since {last}"]


def test_a_clone_without_older_commits_says_so(tmp_path: Path, printed: Printed) -> None:
    for text in (UNTIL_NOW, UNTIL_NOW.replace("90", "95")):
        commit(tmp_path / "whole", text)
    git(tmp_path, "clone", "-q", "--depth=1", (tmp_path / "whole").as_uri(), "part")
    assert problems(tmp_path / "part", text) == []
    assert "this clone lacks older commits" in printed()


def commit(root: Path, text: str) -> str:
    """Commit a file of ceilings, and return the name of the commit."""
    write(root, "tools/house.toml", text)
    git(root, "init", "-q")
    git(root, "add", ".")
    git(root, "commit", "-q", "-m", "ceilings")
    return house.git(root, "rev-parse", "--short", "HEAD").strip()


def git(root: Path, *arguments: str) -> None:
    settings = ("-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false")
    subprocess.run(["git", "-C", str(root), *settings, *arguments], check=True)


def problems(root: Path, text: str) -> list[str]:
    return list(house.raises(tomllib.loads(text), house.earlier_versions(root)))
