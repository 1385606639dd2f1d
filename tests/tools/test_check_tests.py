from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tools.files import write

from check_tests import main

TEST = "def test_it():\n    assert f() == 1\n"


@pytest.fixture
def room(tmp_path: Path) -> Path:
    """A tree with one room of two modules."""
    for name in ("feed", "_order/window", "_order/chain"):
        write(tmp_path, f"src/penstock/{name}.py", "x = 1\n")
    return tmp_path


@pytest.mark.parametrize("text", [TEST, "class TestIt:\n    async def test_it(self):\n        pass\n", "TestIt = Machine.TestCase\n"])
def test_one_test_of_any_name_covers_a_room(room: Path, capsys: pytest.CaptureFixture[str], text: str) -> None:
    assert main([str(room)]) == 1
    assert "src/penstock/_order: no test in tests/_order" in capsys.readouterr().out
    write(room, "tests/_order/test_all_orders.py", text)
    assert main([str(room)]) == 0


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("_order/test_window.py", "def helper():\n    pass\n"),
        ("_order/window.py", TEST),
        ("test_order.py", TEST),
        ("laws/test_order.py", TEST),
    ],
)
def test_what_is_no_test_of_the_room_does_not_count(room: Path, name: str, text: str) -> None:
    write(room, f"tests/{name}", text)
    assert main([str(room)]) == 1


def test_a_folder_of_tests_names_a_room_that_exists_or_is_of_all_rooms(room: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("_order/test_window", "laws/test_order", "test_feed", "golden/make"):
        write(room, f"tests/{name}.py", TEST)
    assert main([str(room)]) == 0
    write(room, "tests/order/test_window.py", TEST)
    assert main([str(room)]) == 1
    assert "tests/order: there is no room 'order'" in capsys.readouterr().out


def test_a_tree_without_rooms_fails(tmp_path: Path) -> None:
    assert main([str(tmp_path)]) == 1


def report(path: Path, **files: tuple[int, int]) -> list[str]:
    summaries = {
        f"src/penstock/{name.replace('__', '/')}.py": {"summary": {"covered_branches": taken, "num_branches": of}}
        for name, (taken, of) in files.items()
    }
    document: dict[str, Any] = {"files": summaries}
    path.write_text(json.dumps(document))
    return ["--coverage", str(path)]


def test_95_percent_of_the_branches_of_the_core_are_taken_by_its_tests(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "report.json"
    assert main(report(path, _engine__flow=(92, 100), _order__folds=(98, 100), feed=(0, 50))) == 0
    assert main(report(path, _engine__flow=(91, 100), _order__folds=(98, 100), feed=(50, 50))) == 1
    out = capsys.readouterr().out
    assert "94.5 % of 200 branches of _engine, _order, _plan" in out
    assert "src/penstock/_engine/flow.py: 9 branches not taken\nsrc/penstock/_order/folds.py: 2 branches not taken" in out


def test_a_report_without_the_core_fails(tmp_path: Path) -> None:
    assert main(report(tmp_path / "report.json", feed=(50, 50))) == 1
