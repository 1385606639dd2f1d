from __future__ import annotations

import datetime
import enum
import functools
import importlib
import json
import sys
import threading
from collections import namedtuple
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from programs import output_of

import penstock as ps
from penstock.errors import PlanError
from penstock.jobs.digest import Untold, digest_of
from penstock.jobs.donelist import digest_of_job

Point = namedtuple("Point", ["x", "y"])


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


@dataclass(frozen=True)
class Crop:
    path: str
    size: tuple[int, ...]


class Slotted:
    __slots__ = ("a",)

    def __init__(self, a: Any) -> None:
        self.a = a


ONES = np.ones(4, np.int16)

DIFFERENT: list[Any] = [
    None, 0, 1, 2, True, False, 1.0, 0.0, -0.0, 1j, "1", "", b"1", b"", bytearray(b"1"), (), [], {}, set(), frozenset(),
    (1,), [1], {1}, frozenset([1]), {1: None}, {"1": None}, {None: 1}, ("a", "b"), ("ab",), ("", "ab"), (("a",), "b"), ("a", ("b",)),
    [[1], [2]], [[1, 2]], [1, [2]], {"a": 1, "b": 2}, {"a": 2, "b": 1}, {1, 2}, float("inf"), float("nan"), 2**70,
    np.int64(1), np.int32(1), np.float64(1), np.zeros(4, np.int16), ONES, ONES.reshape(2, 2), ONES.astype(np.uint16), ONES.astype(">i2"),
    np.array(["a", None], object), np.array(["b", None], object), np.array(["a"]), np.datetime64("2020-01-01"),
    Path("a"), Path("a/b"), Point(1, 2), Point(2, 1), Colour.RED, Colour.BLUE, Crop("a", (1, 2)), Crop("a", (2, 1)), Slotted(1), Slotted(2),
    np.ma.masked_array(ONES, [0, 1, 1, 1]), np.ma.masked_array(ONES, [1, 0, 1, 1]), np.ma.masked_array(ONES, [1, 0, 1, 1], fill_value=7),
    np.zeros(2, [("a", "i4"), ("b", "i4")]), np.zeros(2, [("a", "i4"), ("c", "i4")]), [1].index, [2].index, lambda: 1, lambda: 2,
    datetime.date(2020, 1, 1), datetime.date(2020, 1, 2), Fraction(1, 2), Fraction(2, 1), len, abs, digest_of, Slotted, Crop, "\udc80",
]  # fmt: skip


def test_jobs_that_differ_in_type_or_value_have_different_hashes() -> None:
    digests = [digest_of(job) for job in DIFFERENT]
    assert len(set(digests)) == len(DIFFERENT)
    assert {len(digest) for digest in digests} == {32}


def test_what_equal_jobs_share_and_the_order_of_keys_does_not_count() -> None:
    text = "".join(["sh", "ared"])
    assert digest_of([text, text]) == digest_of(["shared", "".join(["share", "d"])])
    assert digest_of({"a": 1, "b": 2}) == digest_of({"b": 2, "a": 1})
    assert digest_of(ONES) == digest_of(np.ones((4, 2), np.int16)[:, 0])
    assert digest_of(Crop("a", (1,))) == digest_of(Crop("a", (1,)))
    masked = np.ma.masked_array(ONES, [0, 1, 1, 1])
    assert digest_of(masked.copy()) == digest_of(masked)
    print(masked)  # which fills a field of its own
    assert digest_of(masked) == digest_of(np.ma.masked_array(ONES, [0, 1, 1, 1]))


JOBS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=3) | st.binary(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.tuples(inner, inner)
        | st.dictionaries(st.text(max_size=2), inner, max_size=3)
        | st.frozensets(st.integers(), max_size=3)
    ),
    max_leaves=6,
)


def typed(job: Any) -> Any:
    """Return something that is equal exactly for jobs that are equal in value and type."""
    if isinstance(job, dict):
        return {key: typed(value) for key, value in job.items()}
    return (type(job), [typed(child) for child in job]) if isinstance(job, (list, tuple)) else (type(job), repr(job))


@given(JOBS, JOBS)
def test_two_jobs_have_one_hash_exactly_when_they_are_equal(one: Any, other: Any) -> None:
    if isinstance(one, frozenset) or isinstance(other, frozenset):
        assert (digest_of(one) == digest_of(other)) == (one == other and type(one) is type(other))
    elif "frozenset" not in repr(one) + repr(other):
        assert (digest_of(one) == digest_of(other)) == (typed(one) == typed(other))


def test_the_hash_is_the_same_in_every_process() -> None:
    program = "import sys; sys.path[:0] = sys.argv[1:]; from jobs.test_digest import told; print(told())"
    out = set()
    for seed in ("1", "2"):
        out.add(output_of("-c", program, *sys.path, PYTHONHASHSEED=seed))
    assert len(out) == 1


def told() -> str:
    jobs = [{"a", "b", "c", "d"}, frozenset("wxyz"), {"k": {1, 2, 3}}, PurePosixPath("a/b"), Fraction(1, 3), ONES]
    return digest_of([*jobs, scaled(3), functools.partial(scale, 2), Scaler({"a", "b"})], sources=True)


def scaled(size: int) -> Callable[[int], int]:
    return lambda job: job * size


def scale(job: int, size: int = 1) -> int:
    return job * size


class Scaler:
    def __init__(self, size: Any) -> None:
        self.size = size

    def __call__(self, job: int) -> Any:
        return job * self.size

    def by(self, job: int) -> Any:
        return job * self.size


WAYS_TO_CARRY: list[Callable[[Any], Any]] = [
    lambda size: functools.partial(scale, size=size),
    lambda size: functools.partial(scaled, size),
    Scaler,
    lambda size: Scaler(size).by,
    scaled,
    lambda size: lambda job, size=size: job * size,
    lambda size: [size].index,
    lambda size: (lambda job: job * 2) if size == 2 else (lambda job: job * 3),
]


@pytest.mark.parametrize("made", WAYS_TO_CARRY)
def test_a_function_is_told_by_the_values_that_it_carries(made: Callable[[Any], Any]) -> None:
    assert digest_of(made(2), sources=True) == digest_of(made(2), sources=True)
    assert digest_of(made(2), sources=True) != digest_of(made(3), sources=True)


SOURCE = """
import functools

def named(x, factor=2):
    text = "a"
    return [x * factor, text, (lambda y: y + 1)(x)]

def made(number):
    def inner(x):
        return x + number
    return inner

inner = made(1)
longer = made(
    1)
chosen = lambda x: (
    x + 1,
    x - 1,
)
kept = functools.lru_cache(named)
part = functools.partial(named, 3)

class Step:
    def __call__(self, x):
        return x * 3

class Deep(Step):
    pass

step, method, deep = Step(), Step().__call__, Deep()
"""


class Sources:
    """A module in a file, that is edited between two runs."""

    def __init__(self, root: Path) -> None:
        self._path = root / "edited_for_digest.py"

    def digest(self, name: str, old: str = "", new: str = "") -> str:
        """Return what a new run says of a part of the module."""
        assert old in SOURCE
        self._path.write_text(SOURCE.replace(old, new, 1) if old else SOURCE)
        sys.modules.pop("edited_for_digest", None)
        importlib.invalidate_caches()
        return digest_of(getattr(importlib.import_module("edited_for_digest"), name), sources=True)


@pytest.fixture
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Sources:
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    return Sources(tmp_path)


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("named", "x * factor", "x - factor"),
        ("named", "factor=2", "factor=3"),
        ("named", 'text = "a"', 'text = "b"'),
        ("named", "y + 1", "y + 2"),
        ("inner", "x + number", "x - number"),
        ("inner", "made(1)", "made(2)"),
        ("longer", "    1)", "    2)"),
        ("chosen", "x - 1", "x - 2"),
        ("kept", "x * factor", "x + factor"),
        ("part", "x * factor", "x + factor"),
        ("part", "named, 3", "named, 4"),
        ("step", "x * 3", "x * 4"),
        ("method", "x * 3", "x * 4"),
        ("deep", "x * 3", "x * 4"),
    ],
)
def test_an_edited_function_is_another_one(sources: Sources, name: str, old: str, new: str) -> None:
    before = sources.digest(name)
    assert sources.digest(name) == before
    assert sources.digest(name, "import functools", "\n\n# a comment\nimport functools") == before, "lines above do not count"
    assert sources.digest(name, old, new) != before


def test_lambdas_of_one_line_are_told_apart() -> None:
    one, other = (lambda x: x + 1), (lambda x: x + 2)
    assert digest_of(one) != digest_of(other)


def test_classes_count_by_their_source_text_only_where_that_is_asked_for(sources: Sources) -> None:
    sources.digest("named")
    values = []
    for text in (SOURCE, SOURCE.replace("x * 3", "x * 4")):
        sources._path.write_text(text)
        sys.modules.pop("edited_for_digest", None)
        importlib.invalidate_caches()
        values.append(digest_of(importlib.import_module("edited_for_digest").step))
    assert values[0] == values[1]


@pytest.mark.parametrize("fn", [len, Path, json.dumps, np.sum, np.float32, ps.image.decode, functools.wraps, Point])
def test_what_is_installed_or_has_no_source_counts_by_its_name(fn: Any) -> None:
    assert digest_of(fn, sources=True) == digest_of(fn, sources=True)
    assert digest_of(fn) == digest_of(fn)


def test_operators_count_by_their_values() -> None:
    crops = [ps.image.center_crop("data", size) for size in (3, 3, 4)]
    assert digest_of(crops[0]) == digest_of(crops[1]) != digest_of(crops[2])
    assert digest_of(np.random.default_rng(1)) != digest_of(np.random.default_rng(2))


class Around:
    """Holds itself."""

    def __init__(self) -> None:
        self.me = self


def test_what_has_no_content_to_compare_is_told() -> None:
    lock = threading.Lock()
    unread: dict[str, Any] = {}
    exec(compile("def of_no_file(x):\n    return x", "of_no_file.py", "exec"), unread)  # Python 3.13 may know the lines of "<string>"
    for value, words in (
        (lock, "cannot pickle '_thread.lock'"),
        (lambda: lock, "cannot pickle '_thread.lock'"),
        (functools.partial(print, lock), "cannot pickle '_thread.lock'"),
        ((number for number in range(3)), "cannot pickle 'generator'"),
        (Around(), "it holds itself, or goes too deep"),
        (unread["of_no_file"], "source code"),
    ):
        with pytest.raises(Untold, match=words):
            digest_of(value, sources=True)


def test_a_job_that_has_no_content_to_speak_of_is_refused() -> None:
    endless: list[Any] = []
    endless.append(endless)
    with open(__file__) as file:
        for job, words in ((file, "cannot pickle"), (endless, "it holds itself, or goes too deep"), ([memoryview(b"")], "memoryview")):
            with pytest.raises(PlanError) as caught:
                digest_of_job(job, 7)
            assert caught.value.what.startswith(f"job 7, a {type(job).__name__}, cannot be told from others in another run: ")
            assert words in caught.value.what
            assert caught.value.where == "parallel_jobs(done=...)"
            assert "look up the rest in the function" in caught.value.fix
