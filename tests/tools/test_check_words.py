from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tools.files import write

from check_words import main

Printed = Callable[[], str]


@pytest.fixture
def printed(capsys: pytest.CaptureFixture[str]) -> Printed:
    return lambda: capsys.readouterr().out


def check(root: Path, text: str, name: str = "src/penstock/_engine/module.py") -> int:
    write(root, name, text)
    return main([str(root)])


@pytest.mark.parametrize(
    "text",
    [
        "class Unit:\n    pass\n",
        "class _Unit:\n    pass\n",
        "def treat():\n    pass\n",
        "async def treat():\n    pass\n",
        "alone = 1\n",
        "class A:\n    alone: int\n",
        "class A:\n    alone = other = 1\n",
        "class A:\n    def __init__(self):\n        self._alone = 1\n",
    ],
)
def test_an_old_word_is_no_name(tmp_path: Path, printed: Printed, text: str) -> None:
    assert check(tmp_path, text) == 1
    assert "a name in 1 modules, 0 at most: say " in printed()


def test_a_module_is_not_named_by_one(tmp_path: Path, printed: Printed) -> None:
    assert check(tmp_path, "x = 1\n", "src/penstock/_engine/moving.py") == 1
    assert printed().startswith("moving: a name in 1 modules, 0 at most: say resharding (src/penstock/_engine/moving.py:1)")


@pytest.mark.parametrize(
    "text",
    [
        "print(x.treat())\n",
        "from a import Unit\n",
        "class Units:\n    '''Unit'''\n",
        "x['ahead'] = 'ahead'\n",
        "def f(lot):\n    ring = lot\n",
    ],
)
def test_uses_texts_longer_names_and_local_ones_are_not_counted(tmp_path: Path, text: str) -> None:
    assert check(tmp_path, text) == 0


def test_an_ordinary_word_is_refused_only_in_the_rooms_that_bend_it(tmp_path: Path) -> None:
    assert check(tmp_path, "class Task:\n    pass\n", "src/penstock/packing/one.py") == 0
    assert check(tmp_path, "class Unit:\n    pass\n", "src/penstock/packing/one.py") == 1
    assert check(tmp_path, "hand = 1\n", "src/penstock/feed.py") == 1


def test_a_word_may_be_a_name_in_as_many_modules_as_are_listed(tmp_path: Path, printed: Printed) -> None:
    write(tmp_path, "tools/house.toml", "[words]\nlot = 2\n")
    for number, status in ((1, 1), (2, 0), (3, 1)):
        assert check(tmp_path, "x = 1\nlot = 1\nlot = 2\n", f"src/penstock/_engine/m{number}.py") == status
    assert "lot: a name in 1 modules; tools/house.toml allows 2: lower this line" in (told := printed())
    where = ", ".join(f"src/penstock/_engine/m{number}.py:2" for number in (1, 2, 3))
    assert f"lot: a name in 3 modules, 2 at most: say waiters ({where})" in told
