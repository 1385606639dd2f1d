"""What functions and values are, whatever run they are in."""

from __future__ import annotations

import enum
import functools
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
