"""Settings that the program made in modules of its own reach worker processes, which import these modules again."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from programs import output_of

from penstock._workers.settings import set_here, settings_of

CONFIG = """
class Config(dict):
    __getattr__ = dict.__getitem__
    def __setitem__(self, key, value):
        raise AttributeError("it is frozen")

cfg = Config(size=224, inner=Config(mean=[1, 2]))
SIZE = 32
"""
STEPS = """
import config
from config import cfg

SCALE, NAMES = 1, ["a"]
HELD = NAMES  # as another module may hold it

class Photos:
    crop = 8
    def __len__(self):
        return 4
    def __getitem__(self, index):
        return index, cfg.size, cfg.inner["mean"][0], SCALE, HELD[-1], self.crop, helper(index)

def helper(index):
    return config.SIZE

def scale(value):
    global SCALE
    SCALE = value
"""
PROGRAM = """
import config, steps
import penstock as ps

def shown(element):
    return (*element, steps.SCALE)

if __name__ == "__main__":
    dict.__setitem__(config.cfg, "size", 64)
    config.cfg.inner["mean"][0] = 5
    config.SIZE, steps.Photos.crop = 16, 4
    steps.NAMES.append("b")
    steps.scale(7)
    feed = ps.from_source(steps.Photos()).map(shown).feed(num_workers=2)
    print(list(feed)[1])
    steps.scale(9)
    print(list(feed)[1])
    feed.close()
"""


def test_what_the_program_set_in_its_modules_is_set_in_worker_processes_in_each_epoch(tmp_path: Path) -> None:
    for name, text in {"config": CONFIG, "steps": STEPS, "program": PROGRAM}.items():
        (tmp_path / f"{name}.py").write_text(text)
    assert output_of("program.py", cwd=tmp_path) == "(1, 64, 5, 7, 'b', 4, 16, 7)\n(1, 64, 5, 9, 'b', 4, 16, 9)\n"


@pytest.fixture
def steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    module: Any = ModuleType("steps_of_settings")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    exec("def read(x):\n    return options, table, names, LIMIT\n", vars(module))
    vars(module).update(options=SimpleNamespace(a=1), table={"a": {"b": 1}, "c": 2}, names=["x"], LIMIT=3)
    return module


def test_values_are_put_into_the_objects_that_are_there(steps: Any) -> None:
    settings = settings_of(steps.read)
    before = steps.options, steps.table, steps.table["a"], steps.names
    steps.options.a, steps.table["a"]["b"], steps.table["d"], steps.LIMIT = 2, 2, 4, 4
    del steps.table["c"]
    steps.names[:] = []
    set_here(settings)
    assert (steps.options, steps.table, steps.names, steps.LIMIT) == (SimpleNamespace(a=1), {"a": {"b": 1}, "c": 2}, ["x"], 3)
    assert all(one is other for one, other in zip(before, (steps.options, steps.table, steps.table["a"], steps.names), strict=True))


def test_what_is_not_plain_is_left_as_it_is_there(steps: Any) -> None:
    steps.table, steps.names = {"a": object()}, [print]
    assert settings_of(steps.read) == {("steps_of_settings", ""): {"options": SimpleNamespace(a=1), "LIMIT": 3}}


def test_modules_that_are_not_imported_here_and_those_of_libraries_are_left_alone(steps: Any) -> None:
    settings = settings_of([steps.read, os.path.join])
    assert list(settings) == [("steps_of_settings", "")]
    del sys.modules["steps_of_settings"]
    set_here(settings)
    assert "steps_of_settings" not in sys.modules
