from __future__ import annotations

import datetime
import enum
import functools
import os
import subprocess
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

from penstock.errors import PlanError
from penstock.jobs.identity import digest_of, digest_of_all, digest_of_function

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
    digests = [digest_of(job, 0) for job in DIFFERENT]
    assert len(set(digests)) == len(DIFFERENT)
    assert {len(digest) for digest in digests} == {16}


def test_what_equal_jobs_share_and_the_order_of_keys_does_not_count() -> None:
    text = "".join(["sh", "ared"])
    assert digest_of([text, text], 0) == digest_of(["shared", "".join(["share", "d"])], 0)
    assert digest_of({"a": 1, "b": 2}, 0) == digest_of({"b": 2, "a": 1}, 0)
    assert digest_of(ONES, 0) == digest_of(np.ones((4, 2), np.int16)[:, 0], 0)
    assert digest_of(Crop("a", (1,)), 3) == digest_of(Crop("a", (1,)), 4)
    masked = np.ma.masked_array(ONES, [0, 1, 1, 1])
    assert digest_of(masked.copy(), 0) == digest_of(masked, 0)
    print(masked)  # which fills a field of its own
    assert digest_of(masked, 0) == digest_of(np.ma.masked_array(ONES, [0, 1, 1, 1]), 0)


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
        assert (digest_of(one, 0) == digest_of(other, 0)) == (one == other and type(one) is type(other))
    elif "frozenset" not in repr(one) + repr(other):
        assert (digest_of(one, 0) == digest_of(other, 0)) == (typed(one) == typed(other))


def test_the_hash_is_the_same_in_every_process() -> None:
    program = "import sys; sys.path[:0] = sys.argv[1:]; from jobs.test_identity import told; print(told())"
    out = set()
    for seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-c", program, *sys.path],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        out.add(done.stdout.strip())
    assert out == {told()}


def told() -> str:
    jobs = [{"a", "b", "c", "d"}, frozenset("wxyz"), {"k": {1, 2, 3}}, PurePosixPath("a/b"), Fraction(1, 3), ONES]
    return digest_of_all(digest_of(job, 0) for job in jobs)


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
    assert digest_of_function(made(2)) == digest_of_function(made(2))
    assert digest_of_function(made(2)) != digest_of_function(made(3))


@pytest.mark.parametrize("fn", [scale, len, Scaler, Scaler.by, Path])
def test_a_function_that_is_found_by_its_name_carries_nothing_else(fn: Any) -> None:
    assert digest_of_function(fn) is None


@pytest.mark.parametrize("made", [scaled, Scaler, lambda size: functools.partial(scale, size=size)])
def test_what_has_no_content_counts_by_its_type(made: Callable[[Any], Any]) -> None:
    one, other, event = (digest_of_function(made(value)) for value in (threading.Lock(), threading.Lock(), threading.Event()))
    assert one == other != event
    assert digest_of_function(made([threading.Lock(), 1])) != digest_of_function(made([threading.Lock(), 2]))


class Around:
    """Holds itself, as models do that choose one of their methods."""

    def __init__(self, size: int) -> None:
        self.me, self.forward, self.size, self.parts = self, self.run, size, [{"of": self}]

    def run(self, job: int) -> int:
        return job * self.size


def test_an_object_that_holds_itself_is_told_by_what_else_it_has() -> None:
    assert digest_of_function(Around(2).run) == digest_of_function(Around(2).run)
    assert digest_of_function(Around(2).run) != digest_of_function(Around(3).run)


def test_a_list_has_another_hash_when_jobs_stand_in_another_order() -> None:
    assert digest_of_all(["a", "b"]) != digest_of_all(["b", "a"])
    assert digest_of_all([]) == digest_of_all(iter(()))


def test_a_job_that_has_no_content_to_speak_of_is_refused() -> None:
    endless: list[Any] = []
    endless.append(endless)
    with open(__file__) as file:
        for job, words in ((file, "cannot pickle"), (endless, "it holds itself, or goes too deep"), ([memoryview(b"")], "memoryview")):
            with pytest.raises(PlanError) as caught:
                digest_of(job, 7)
            assert caught.value.what.startswith(f"job 7, a {type(job).__name__}, cannot be told from others in another run: ")
            assert words in caught.value.what
            assert caught.value.where == "parallel_jobs(done=...)"
            assert "look up the rest in the function" in caught.value.fix
