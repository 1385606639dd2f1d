from __future__ import annotations

import json
from functools import partial
from typing import Any

import numpy as np
import pytest

import penstock as ps
from penstock import image
from penstock._plan.facts import identity, unnamed


def decode(value: Any) -> Any:
    return value


def other(value: Any) -> Any:
    return value


def maker(number: int) -> Any:
    def closed(value: Any) -> Any:
        return value + number

    def plain(value: Any) -> Any:
        return value

    return closed if number else plain


def elsewhere(value: Any) -> Any:
    return value


elsewhere.__qualname__, elsewhere.__module__ = "other", "another.module"


class Crop:
    def __init__(self, size: int) -> None:
        self.size = size

    def __call__(self, value: Any) -> Any:
        return value

    def method(self, value: Any) -> Any:
        return value

    @classmethod
    def of_class(cls, value: Any) -> Any:
        return value


class Named(Crop):
    def __repr__(self) -> str:
        return f"Named({self.size})"


BASE = ps.from_arrays(np.arange(6))


def key(dataset: ps.Dataset, version: str = "") -> str:
    return json.dumps(identity(dataset._root, version))


def test_plans_with_other_elements_have_other_keys(tmp_path: Any) -> None:
    plans = [
        BASE,
        ps.from_arrays(np.arange(7)),
        ps.from_arrays(np.arange(6)[::-1]),
        BASE.map(decode),
        BASE.map(other),
        BASE.map(elsewhere),
        BASE.map(decode).map(other),
        BASE.map(other).map(decode),
        BASE.map(Named(1)),
        BASE.map(Named(2)),
        BASE.shuffle(seed=1),
        BASE.shuffle(seed=2),
        BASE.shard(2, 0),
        BASE.shard(2, 1),
        BASE.take(5),
        BASE.batch(2),
        BASE.repeat(2),
        BASE.zip(BASE),
        BASE.zip(BASE, BASE),
        BASE.zip(BASE.zip(BASE)),
        BASE.concatenate(BASE),
        BASE.cache(),
        BASE.cache(tmp_path, version=1),
        BASE.cache(tmp_path, version=2),
    ]
    keys = [key(plan) for plan in plans] + [key(BASE, "2")]
    assert len(set(keys)) == len(keys)


def test_what_changes_no_element_changes_no_key(tmp_path: Any) -> None:
    assert key(BASE.prefetch(3)) == key(BASE)
    assert key(BASE.map(decode, name="anything")) == key(BASE.map(decode))
    assert key(BASE.cache(max_bytes=5)) == key(BASE.cache(tmp_path)) == key(BASE.cache())
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "a.bin").write_bytes(b"abc")
    (one, two) = (ps.read_files([str(tmp_path / folder / "a.bin")]) for folder in ("one", "two"))
    assert "tmp" not in identity(one._root, "")["plan"][0]
    assert identity(one._root, "")["plan"] == identity(two._root, "")["plan"]


@pytest.mark.parametrize(
    "fn",
    [lambda value: value, partial(decode, value=1), maker(1), Crop(3), Crop(3).method],
    ids=["lambda", "partial", "closure", "object", "method"],
)
def test_a_function_with_values_of_its_own_has_no_name_to_be_found_by(fn: Any) -> None:
    found = unnamed(BASE.map(decode).map(fn, name="x").map(decode)._root)
    assert found == (fn, "x")


@pytest.mark.parametrize(
    "fn",
    [decode, maker(0), abs, np.abs, str, Named(3), Crop.of_class, image.center_crop("data", 8)],
    ids=["function", "no closure", "builtin", "ufunc", "class", "repr", "classmethod", "transform"],
)
def test_a_plain_name_is_enough(fn: Any) -> None:
    assert unnamed(BASE.map(fn)._root) is None
