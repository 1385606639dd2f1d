"""What an object is made of: where something hangs, in the user's words."""

from __future__ import annotations

import functools
import random
import threading
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from penstock._workers.parts import generators_in, largest_part, warn_of_generators, words_of
from penstock._workers.pipe import not_sendable
from penstock._workers.sending import dumps_to_worker

LOCK = threading.Lock()
DRAWS = np.random.default_rng(3)


def locked(element: Any) -> Any:
    with LOCK:
        return element


def with_default(element: Any, lock: Any = LOCK) -> Any:
    return element


class Aug:
    def __init__(self, **values: Any) -> None:
        vars(self).update(values)

    def __call__(self, element: Any) -> Any:
        return element

    def twice(self, element: Any) -> Any:
        return element


class Slotted:
    __slots__ = ("inner", "unset")

    def __init__(self, inner: Any) -> None:
        self.inner = inner


class Global:
    def __call__(self, element: Any) -> Any:
        return LOCK, element


for one in (locked, with_default, Global, Global.__call__):
    one.__module__ = "__main__"  # as in a program


@dataclass
class Plan:
    fn: Any


def inner(value: Any) -> Any:
    def held(element: Any) -> Any:
        return value, element

    return held


@pytest.mark.parametrize(
    ("holder", "place"),
    [
        (locked, "global `LOCK` of function `locked`"),
        (lambda element: LOCK, "global `LOCK` of function `<lambda>`"),
        (with_default, "default `lock` of function `with_default`"),
        (inner(LOCK), "variable `value` of function `inner.<locals>.held`"),
        (inner([1, {"a": LOCK}]), "variable `value`[1]['a'] of function `inner.<locals>.held`"),
        (Aug(lock=LOCK), "`self.lock` of Aug"),
        (Aug(steps=[Aug(), Aug(lock=LOCK)]).twice, "`self.lock` of Aug"),
        (functools.partial(np.add, Slotted(LOCK)), "`self.inner` of Slotted"),
        (Global(), "global `LOCK` of function `Global.__call__`"),
    ],
)
def test_what_cannot_be_sent_is_named_where_it_hangs(holder: Any, place: str) -> None:
    told = not_sendable([Plan(holder)], TypeError("no"), "there", dumps_to_worker)
    assert told.what == f"a value of type _thread.lock cannot be sent to another process (at {place}): TypeError: no"


@pytest.mark.parametrize(
    ("holder", "place"),
    [
        (Aug(rng=np.random.default_rng()), "`self.rng` of Aug"),
        (Aug(inner=Aug(rng=np.random.RandomState(1))), "`self.rng` of Aug"),
        (Aug(inner=[random.Random(2)]).twice, "`self.inner[0]` of Aug"),
        (inner(random.Random(2)), "variable `value` of function `inner.<locals>.held`"),
        (lambda element: DRAWS.random() + element, "global `DRAWS` of function `<lambda>`"),
    ],
)
def test_a_generator_that_an_object_holds_is_found_and_warned_of(holder: Any, place: str) -> None:
    ((steps, _),) = generators_in(Plan(holder))
    assert words_of(steps) == place
    with pytest.warns(UserWarning, match="it draws the same numbers in each worker process; take") as told:
        warn_of_generators(Plan(holder))
    assert str(told[0].message).startswith(f"{place} is a ")
    assert "a parameter `rng` of the function that map() gets" in str(told[0].message)


@pytest.mark.parametrize(
    "holder", [random.random, np.random.rand, Aug(rng=random.SystemRandom()), lambda element: np.random.rand(), locked, Aug(size=3)]
)
def test_what_each_process_seeds_for_itself_is_nothing_to_warn_of(holder: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_of_generators(Plan(holder))


def test_the_largest_part_is_found_by_a_look_at_some_elements() -> None:
    holder = Aug(small=np.zeros(10), inner=Aug(data={"a": np.zeros(1000), "b": np.zeros(100_000)}))
    assert words_of(largest_part(Plan(holder))) == "`self.data['b']` of Aug"
    assert words_of(largest_part(Plan(Aug(texts=[f"text {number}" for number in range(10_000)])))) == "`self.texts` of Aug"
