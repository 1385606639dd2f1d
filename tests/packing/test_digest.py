"""What functions and values are, whatever run they are in."""

from __future__ import annotations

import enum
import functools
import importlib
import os
import subprocess
import sys
import threading
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock as ps
from penstock.packing.digest import Untold, digest_of

BASE = """
import functools, logging, threading
SIZE = 3
CLASSES = ["a", "b"]
LOCK = threading.Lock()
LOG = logging.getLogger("x")
memory = None

class Helper:
    limit = 5
    def more(self, x):
        return x + 1

HELPER = Helper()

def second(x):
    return x * SIZE

def first(x, factor=2):
    global memory
    memory = x
    with LOCK:
        return [second(x) * factor + HELPER.more(n) for n in range(3) if n in (0, 1)], CLASSES

def cached(x):
    return second(x)
"""


def module(text: str, name: str = "mine") -> types.ModuleType:
    """Make a module of a source text, as an edited file would."""
    made = types.ModuleType(name)
    exec(compile(text, f"/work/{name}.py", "exec"), made.__dict__)
    return made


def first_of(*edit: str) -> str:
    return digest_of(module(BASE.replace(*edit) if edit else BASE).first)


@pytest.mark.parametrize(
    "edit",
    [
        ("* factor +", "* factor -"),
        ("factor=2", "factor=3"),
        ("range(3)", "range(4)"),
        ("x * SIZE", "x + SIZE"),
        ("SIZE = 3", "SIZE = 4"),
        ('["a", "b"]', '["a", "c"]'),
        ("x + 1", "x + 2"),
        ("limit = 5", "limit = 6"),
        ("in (0, 1)", "in (0, 2)"),
    ],
)
def test_an_edited_function_is_another_one_also_where_it_is_what_it_uses(edit: tuple[str, str]) -> None:
    assert first_of(*edit) != first_of()


def test_lines_memory_locks_and_what_is_not_used_make_no_other_function() -> None:
    assert first_of("import functools", "\n\n# a comment\nimport functools") == first_of()
    assert first_of("return second(x)\n", "return 5\n") == first_of()
    used = module(BASE)
    before = digest_of(used.first)
    used.first(1)
    assert digest_of(used.first) == before


def adder(number: int) -> Callable[[int], int]:
    return lambda x: x + number


class Step:
    def __init__(self, size: int) -> None:
        self.size = size

    def __call__(self, x: int) -> int:
        return x + self.size


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (functools.partial(pow, 1), functools.partial(pow, 2)),
        (adder(1), adder(2)),
        (lambda x: x + 1, lambda x: x + 2),
        (Step(1), Step(2)),
        (Step(1).__call__, Step(2).__call__),
        (np.zeros((2, 3)), np.zeros((3, 2))),
        (np.zeros(2), np.zeros(2, np.int64)),
        (["1"], [1]),
        ([1, True], [1, 1]),
        ({"a": 1}, {"b": 1}),
        ([("a",), "b"], [("a", "b")]),
        (list(range(100)), [*range(99), 0]),
        ({1, 2}, {1, 3}),
        (Path("a"), Path("b")),
        (Colour.RED, Colour.BLUE),
        (np.random.default_rng(1), np.random.default_rng(2)),
        (str.upper, str.lower),
        (functools.lru_cache(adder(1)), functools.lru_cache(adder(2))),
        (ps.image.center_crop("data", 3), ps.image.center_crop("data", 4)),
        (np.float32, np.float64),
        (len, max),
        ([].append, [1].append),
    ],
)
def test_values_that_differ_have_other_digests(one: Any, other: Any) -> None:
    assert digest_of(one) == digest_of(one)
    assert digest_of(one) != digest_of(other)


def test_equal_values_have_one_digest_whatever_they_share() -> None:
    text = "".join(["a", "b"])
    assert digest_of([text, text]) == digest_of(["ab", "".join(["a", "b"])])
    assert digest_of(Step(3), adder(4)) == digest_of(Step(3), adder(4))
    around: list[Any] = []
    around.append(around)
    assert digest_of(around) == digest_of(around)
    assert digest_of(np.zeros((0, 3))) == digest_of(np.zeros((0, 3)))


PROGRAM = """
import sys
from packing.test_digest import BASE, Step, module
from penstock.packing.digest import digest_of
print(digest_of(module(BASE).first, {"a", "b", "c"}, frozenset(["x", "y"]), Step(2), [str(n) for n in range(20)]))
"""


def test_it_is_the_same_in_every_process() -> None:
    found = set()
    for seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)}
        found.add(subprocess.run([sys.executable, "-c", PROGRAM], env=environment, check=True, capture_output=True).stdout)
    assert len(found) == 1


OWN = {
    "proj/__init__.py": "",
    "proj/ops.py": "RATE = 2\ndef scale(x):\n    return x * RATE\n",
    "plain/deep.py": "def more(x):\n    return x + 1\n",
    "helper.py": "def g(x):\n    return x * 3\n",
    "other.py": "def h(x):\n    return x - 1\n",
    "train.py": """
import re, threading
import other, plain.deep, proj.ops
DROP = re.compile("[a-c]")
CFG = {"lock": threading.Lock(), "k": 2}
SINK = (number for number in range(3))
class Held:
    module = other
def dotted(x):
    return proj.ops.scale(x)
def without_init(x):
    return plain.deep.more(x)
def inside(x):
    def work():
        from helper import g
        return g(x)
    return work()
def inside_dotted(x):
    import proj.ops
    return proj.ops.scale(x)
def inside_submodule(x):
    from proj import ops
    return ops.scale(x)
def pattern(x):
    return DROP.sub("", x)
def beside_a_lock(x):
    return x * CFG["k"]
def opaque(x):
    return next(SINK)
def of_a_class(x):
    return Held.module.h(x)
def missing(x):
    import nowhere_to_be_found
""",
}


class Sources:
    """Modules in files, that are edited between two runs."""

    def __init__(self, root: Path) -> None:
        self._root = root
        for name, text in OWN.items():
            (root / name).parent.mkdir(exist_ok=True)
            (root / name).write_text(text)

    def edit(self, name: str, old: str, new: str) -> None:
        text = (self._root / name).read_text()
        assert old in text
        (self._root / name).write_text(text.replace(old, new))

    def digest(self, function: str) -> str:
        """Return what a new run says."""
        for name in [name for name in sys.modules if name.partition(".")[0] in ("train", "helper", "other", "plain", "proj")]:
            del sys.modules[name]
        importlib.invalidate_caches()
        return digest_of(getattr(importlib.import_module("train"), function))


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Sources:
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    return Sources(tmp_path)


@pytest.mark.parametrize(
    ("function", "file", "old", "new"),
    [
        ("dotted", "proj/ops.py", "x * RATE", "x + RATE"),
        ("dotted", "proj/ops.py", "RATE = 2", "RATE = 3"),
        ("without_init", "plain/deep.py", "x + 1", "x + 2"),
        ("inside", "helper.py", "x * 3", "x * 4"),
        ("inside_dotted", "proj/ops.py", "x * RATE", "x + RATE"),
        ("inside_submodule", "proj/ops.py", "RATE = 2", "RATE = 3"),
        ("pattern", "train.py", "[a-c]", "[a-d]"),
        ("beside_a_lock", "train.py", '"k": 2', '"k": 3'),
        ("opaque", "train.py", "range(3)", "range(4)"),
        ("of_a_class", "other.py", "x - 1", "x - 2"),
    ],
)
def test_what_is_used_of_other_modules_and_of_globals_is_seen_in_the_next_run(
    own: Sources, function: str, file: str, old: str, new: str
) -> None:
    before = own.digest(function)
    assert own.digest(function) == before
    own.edit(file, old, new)
    assert own.digest(function) != before


def test_what_is_not_used_of_a_module_and_what_is_not_there_make_no_other_function(own: Sources) -> None:
    before = [own.digest(name) for name in ("dotted", "inside", "beside_a_lock", "missing")]
    own.edit("proj/ops.py", "def scale", "UNUSED = 1\ndef scale")
    own.edit("train.py", "def missing", "# a comment\ndef missing")
    assert [own.digest(name) for name in ("dotted", "inside", "beside_a_lock", "missing")] == before


def test_what_has_no_content_is_told_to_have_none() -> None:
    lock = threading.Lock()
    for value in (lock, lambda: lock, functools.partial(print, lock), (number for number in range(3))):
        with pytest.raises(Untold):
            digest_of(value)
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(Untold, match="too deep"):
        digest_of(deep)
