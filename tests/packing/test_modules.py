"""Which modules are the user's, and which of them code imports."""

from __future__ import annotations

import importlib
import json
import math
import sys
from pathlib import Path
from types import FunctionType, ModuleType

import numpy as np
import pytest

import penstock as ps
from penstock.packing.modules import codes_in, is_own, source_of, sources_imported

FILES = {
    "own_package/__init__.py": "",
    "own_package/near.py": "def f():\n    return 1\n",
    "own_package/user.py": """
def relative():
    from . import near
    from .near import f
    return near, f

def plain():
    import json, numpy, own_spread.far as far, nowhere_at_all
    def deeper():
        import own_package.near
    return far, deeper

def broken():
    import own_broken, own_wrong

def far():
    from own_spread.deep import anything
""",
    "own_spread/far.py": "",
    "own_spread/deep.py": "import own_package.near\n",
    "own_broken.py": "import sys\nsys.exit(1 / 0)\n",
    "own_wrong.py": "no python\n",
}


@pytest.fixture
def user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in [name for name in sys.modules if name.startswith("own_")]:
        monkeypatch.delitem(sys.modules, name)
    importlib.invalidate_caches()
    return importlib.import_module("own_package.user")


def imported(function: FunctionType) -> list[str]:
    return sorted(sources_imported(function.__code__, function.__globals__["__package__"]))


def test_imports_inside_functions_are_found_and_nothing_is_imported(user: ModuleType) -> None:
    before = set(sys.modules)
    assert imported(user.relative) == ["own_package", "own_package.near"]
    assert imported(user.plain) == ["own_package", "own_package.near", "own_spread", "own_spread.far"]
    assert imported(user.broken) == ["own_broken", "own_wrong"]
    assert imported(user.far) == ["own_package", "own_package.near", "own_spread", "own_spread.deep"]
    assert sources_imported(user.relative.__code__, "own_package")["own_package.near"] == FILES["own_package/near.py"].encode()
    assert sources_imported(user.relative.__code__, "") == {}, "a function of a script has no package"
    assert len(list(codes_in(user.plain.__code__))) == 2
    assert set(sys.modules) - before <= {"own_package"}


def test_own_is_what_is_not_installed(user: ModuleType) -> None:
    spread = importlib.import_module("own_spread")
    assert spread.__file__ is None
    assert [is_own(module) for module in (user, spread, np, json, math, ps, ModuleType("made"))] == [True, True] + [False] * 5


def test_a_source_is_read_where_there_is_one(user: ModuleType) -> None:
    assert source_of(user.__file__) == FILES["own_package/user.py"].encode()
    assert source_of(None) == source_of("/nowhere/at/all.py") == b""
