from __future__ import annotations

from pathlib import Path

import pytest

from check_tests_mirror import main

TEST = "def test_it():\n    assert f() == 1\n"


def write(root: Path, name: str, text: str) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def test_a_module_without_a_test_is_named_with_the_file_that_is_missing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, "src/penstock/_order/window.py", "def f():\n    return 1\n")
    assert main([str(tmp_path)]) == 1
    assert "src/penstock/_order/window.py:1: no test in tests/_order/test_window.py" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("module", "test"),
    [
        ("_order/window.py", "_order/test_window.py"),
        ("_order/_window.py", "_order/test__window.py"),
        ("_order/_window.py", "_order/test_window.py"),
        ("dataset.py", "test_dataset.py"),
        ("__init__.py", "test_init.py"),
        ("__main__.py", "test_main.py"),
        ("_ops/__init__.py", "_ops/test_init.py"),
        ("_ops/__init__.py", "_ops/test_ops.py"),
    ],
)
def test_a_test_file_at_the_mirrored_place_is_enough(tmp_path: Path, module: str, test: str) -> None:
    write(tmp_path, f"src/penstock/{module}", "class A:\n    def f(self):\n        return 1\n")
    assert main([str(tmp_path)]) == 1
    write(tmp_path, f"tests/{test}", TEST)
    assert main([str(tmp_path)]) == 0


@pytest.mark.parametrize("text", ["", "def helper():\n    return 1\n"])
def test_a_test_file_without_a_test_does_not_count(tmp_path: Path, text: str) -> None:
    write(tmp_path, "src/penstock/dataset.py", "def f():\n    return 1\n")
    write(tmp_path, "tests/test_dataset.py", text)
    assert main([str(tmp_path)]) == 1


def test_a_state_machine_is_a_test(tmp_path: Path) -> None:
    write(tmp_path, "src/penstock/dataset.py", "def f():\n    return 1\n")
    write(tmp_path, "tests/test_dataset.py", "TestDataset = Machine.TestCase\n")
    assert main([str(tmp_path)]) == 0


@pytest.mark.parametrize(
    "text",
    [
        '"""Say it."""\n\nfrom a import b\n\n__all__ = ["b"]\nLIMIT: int = 3\n',
        "if TYPE_CHECKING:\n    from a import b\n",
        'class Source(Protocol):\n    """A source."""\n\n    def label(self) -> str:\n        """Say what it is."""\n',
        "class Source(Protocol):\n    def label(self) -> str: ...\n",
        "class Done(NamedTuple):\n    start_ns: int\n    end_ns: int = 0\n",
        "class PlanError(Exception):\n    pass\n",
    ],
)
def test_a_module_without_behaviour_needs_no_test(tmp_path: Path, text: str) -> None:
    write(tmp_path, "src/penstock/_contracts/source.py", text)
    assert main([str(tmp_path)]) == 0


@pytest.mark.parametrize("text", ["for x in range(3):\n    print(x)\n", "run()\n", "async def f():\n    await g()\n"])
def test_a_module_that_does_something_needs_a_test(tmp_path: Path, text: str) -> None:
    write(tmp_path, "src/penstock/dataset.py", text)
    assert main([str(tmp_path)]) == 1
