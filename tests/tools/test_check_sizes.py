from __future__ import annotations

from pathlib import Path

import pytest

from check_sizes import main


def check(root: Path, text: str, name: str = "src/penstock/room/module.py") -> int:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return main([str(root)])


def function_of(num_lines: int, docstring: str = "") -> str:
    return "def work():\n" + docstring + "    x = 1\n" * (num_lines - 1)


def test_a_module_of_400_lines_passes_and_one_of_401_does_not(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert check(tmp_path, "x = 1\n" * 400) == 0
    assert check(tmp_path, "x = 1\n" * 401) == 1
    assert "src/penstock/room/module.py:1: 401 lines, 400 at most" in capsys.readouterr().out


def test_a_file_in_c_has_the_same_limit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert check(tmp_path, "int x;\n" * 400, "src/penstock/kernels/loops.c") == 0
    assert check(tmp_path, "int x;\n" * 401, "src/penstock/kernels/loops.h") == 1
    assert "kernels/loops.h:1: 401 lines" in capsys.readouterr().out


def test_a_function_of_40_lines_passes_and_one_of_41_does_not(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert check(tmp_path, function_of(40)) == 0
    assert check(tmp_path, "\n" + function_of(41)) == 1
    assert "module.py:2: work has 41 lines, 40 at most" in capsys.readouterr().out


def test_the_lines_of_a_docstring_do_not_count(tmp_path: Path) -> None:
    assert check(tmp_path, function_of(40, docstring='    """Do it.\n\n    At length.\n    """\n')) == 0


@pytest.mark.parametrize(
    ("parameters", "status"),
    [
        ("a, b, c, d, e, f, g, h", 0),
        ("a, b, c, d, e, f, g, h, i", 1),
        ("self, a, b, c, d, e, f, g, h", 0),
        ("a, /, b, c, *d, e, f, g, **h", 0),
        ("a, /, b, c, *d, e, f, g, h, **i", 1),
    ],
)
def test_eight_parameters_are_the_limit_without_self(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], parameters: str, status: int
) -> None:
    assert check(tmp_path, f"class A:\n    async def work({parameters}):\n        pass\n") == status
    assert ("module.py:2: work has 9 parameters, 8 at most" in capsys.readouterr().out) == bool(status)


def test_functions_outside_src_may_be_long_but_their_modules_may_not(tmp_path: Path) -> None:
    assert check(tmp_path, function_of(60), name="benchmarks/w1.py") == 0
    assert check(tmp_path, "x = 1\n" * 401, name="benchmarks/w1.py") == 1
