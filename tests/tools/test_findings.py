from __future__ import annotations

from pathlib import Path

import pytest

from findings import finish, python_modules


def test_a_guard_that_finds_nothing_to_look_at_fails(capsys: pytest.CaptureFixture[str]) -> None:
    assert finish("check_x", [], 0, "modules") == 1
    assert "check_x: found no modules to check" in capsys.readouterr().out


def test_problems_are_printed_and_set_the_exit_status(capsys: pytest.CaptureFixture[str]) -> None:
    assert finish("check_x", ["a.py:1: bad"], 3, "modules") == 1
    assert finish("check_x", [], 3, "modules") == 0
    assert capsys.readouterr().out == "a.py:1: bad\ncheck_x: 1 problems in 3 modules\ncheck_x: 0 problems in 3 modules\n"


def test_a_file_of_a_newer_python_is_named_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "new.py").write_text("x = 1\ntype Number = int\n")
    with pytest.raises(SystemExit, match=r"^src/new\.py:2: not Python 3\.11: "):
        list(python_modules(tmp_path, "src"))


def test_modules_come_in_the_order_of_their_names_and_missing_folders_are_empty(tmp_path: Path) -> None:
    for name in ("src/b.py", "src/a/z.py", "src/a.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    assert [module.name for module in python_modules(tmp_path, "src", "tools")] == ["src/a/z.py", "src/a.py", "src/b.py"]
