from __future__ import annotations

from collections import namedtuple
from typing import Any

import numpy as np
import pytest

import penstock as ps
from penstock._contracts.element import ArraySpec
from penstock._plan import node as plan
from penstock._plan.facts import declared, free_dimensions, known_spec, spec_of_plan
from penstock.errors import PlanError

Point = namedtuple("Point", ["x", "y"])
FLOATS = ArraySpec((None, 3), np.dtype(np.float32))
FOUND = ArraySpec((7,), np.dtype(np.int8))


def numbers(count: int = 10) -> ps.Dataset:
    return ps.from_source(list(range(count)))


def never(element: Any) -> Any:
    raise AssertionError("nothing is to be computed")


async def never_awaited(element: Any) -> Any:
    raise AssertionError("nothing is to be computed")


def mapped(count: int = 10) -> ps.Dataset:
    return numbers(count).map(never, output_spec=FLOATS)


def behind_filter() -> ps.Dataset:
    return mapped().filter(never)


def batch_of(rows: int | None) -> ArraySpec:
    return ArraySpec((rows, None, 3), np.dtype(np.float32))


CASES: list[tuple[str, ps.Dataset, Any]] = [
    ("map", mapped(), FLOATS),
    ("async map", numbers().map(never_awaited, output_spec=FLOATS), FLOATS),
    ("map below a map", numbers().map(never).map(never, output_spec=FLOATS), FLOATS),
    ("map above a batch", numbers().map(never).batch(3).map(never, output_spec=FLOATS), FLOATS),
    ("an empty dataset", mapped(0), FLOATS),
    ("what keeps elements", mapped().shuffle().skip(1).take(4).shard(2, 0).repeat(2).prefetch(1).cache(), FLOATS),
    ("filter", behind_filter().rejection_resample(never, [1, 1]), FLOATS),
    ("enumerate", mapped().enumerate(), (ArraySpec((), np.dtype(np.int64)), FLOATS)),
    ("zip", mapped().zip(mapped()), (FLOATS, FLOATS)),
    ("zip with what must be run", numbers().zip(mapped()), (FOUND, FLOATS)),
    ("concatenate", mapped().concatenate(numbers().map(never)), FLOATS),
    ("concatenate behind nothing", numbers(0).concatenate(mapped()), FLOATS),
    ("mix", mapped().mix(mapped()), FLOATS),
    ("interleave", numbers(3).interleave(lambda number: mapped()), FLOATS),
    ("batch", mapped().batch(4), batch_of(4)),
    ("a batch of less", mapped(3).batch(4), batch_of(3)),
    ("a batch of an endless dataset", mapped(3).repeat().batch(4), batch_of(4)),
    ("a batch behind a filter", behind_filter().batch(4), batch_of(None)),
    ("a full batch behind a filter", behind_filter().batch(4, drop_remainder=True), batch_of(4)),
    ("padded batch", mapped().padded_batch(4), batch_of(4)),
    ("window", mapped().window(4), batch_of(4)),
    ("a window with a stride", mapped(5).window(4, stride=2), batch_of(3)),
    ("batches of batches", mapped().batch(4).batch(5), ArraySpec((3, 4, None, 3), np.dtype(np.float32))),
]


@pytest.mark.parametrize(("dataset", "spec"), [row[1:] for row in CASES], ids=[row[0] for row in CASES])
def test_a_declaration_reaches_up_through_what_keeps_elements(dataset: ps.Dataset, spec: Any) -> None:
    def run(node: plan.Node) -> Any:
        assert isinstance(node, plan.Read)
        return FOUND

    assert spec_of_plan(dataset._root, run) == spec


RUN: list[tuple[str, ps.Dataset]] = [
    ("nothing declared", numbers().map(never).batch(2)),
    ("a map without above", mapped().map(never)),
    ("flat_map", mapped().flat_map(list)),
    ("unbatch", mapped().unbatch()),
    ("padded shapes", mapped().padded_batch(2, padded_shapes=(5, 3))),
    ("ragged batch", mapped().ragged_batch(2)),
    ("buckets", mapped().bucket_by_length(len, [2], [2, 2])),
    ("packs", mapped().pack_sequences(8)),
]


@pytest.mark.parametrize("dataset", [row[1] for row in RUN], ids=[row[0] for row in RUN])
def test_what_a_declaration_does_not_reach_is_run(dataset: ps.Dataset) -> None:
    ran: list[plan.Node] = []

    def run(node: plan.Node) -> Any:
        ran.append(node)
        return FOUND

    assert spec_of_plan(dataset._root, run) == FOUND
    assert ran == [dataset._root]


def spec(shape: Any, dtype: Any) -> ArraySpec:
    return ArraySpec(shape, dtype)


def test_a_declaration_may_name_dtypes_and_sizes_as_numpy_does() -> None:
    tree = {"a": (spec([np.int32(2), None], "float32"), [spec((), str)]), "b": Point(spec((), bytes), spec((), int))}
    texts = ArraySpec((), np.dtype(object))
    found = declared(tree)
    assert found == {
        "a": (ArraySpec((2, None), np.dtype(np.float32)), [texts]),
        "b": Point(texts, ArraySpec((), np.dtype(np.int64))),
    }
    assert repr(found["a"][0]) == "float32[2, None]"
    assert type(found["a"][0].shape[0]) is int
    assert isinstance(found["b"], Point)


@pytest.mark.parametrize(
    ("tree", "words"),
    [
        (np.float32, "output_spec is <class 'numpy.float32'>, which is no ArraySpec"),
        ({"a": (None,)}, "output_spec['a'][0] is None, which is no ArraySpec"),
        (spec((-1,), np.float32), "output_spec has the size -1, which is neither a whole number >= 0 nor None"),
        ([spec((1.5,), np.float32)], "output_spec[0] has the size 1.5"),
        (spec((True,), np.float32), "has the size True"),
        (spec(3, np.float32), "output_spec has the shape 3, which is no tuple of sizes"),
        (spec((3,), "float33"), "output_spec has the dtype 'float33', which NumPy does not know"),
    ],
)
def test_what_is_no_declaration_is_refused(tree: Any, words: str) -> None:
    with pytest.raises(PlanError) as caught:
        declared(tree)
    assert words in caught.value.what
    assert caught.value.where == "map(output_spec=...)"
    assert "give a tree as ds.spec() shows" in caught.value.fix


def arrays() -> ps.Dataset:
    return ps.from_arrays({"x": np.zeros((10, 2), np.float32), "y": np.arange(10), "z": np.array(["a"] * 10)})


@pytest.mark.parametrize(
    "ds",
    [
        arrays(),
        arrays().shuffle(seed=1).take(5).skip(1).repeat(2).prefetch(1),
        arrays().batch(4),
        arrays().batch(20),
        arrays().cache().window(3, shift=1).shard(2, 1),
        arrays().enumerate().padded_batch(3, drop_remainder=True),
        arrays().zip(arrays().map(len, output_spec=ArraySpec((), np.int64))),
        arrays().concatenate(arrays()).mix(arrays()),
        ps.from_arrays(np.zeros((3, 0))),
    ],
    ids=repr,
)
def test_what_arrays_declare_is_known_without_computing_and_is_the_spec_of_an_element(ds: ps.Dataset) -> None:
    assert known_spec(ds._root) == ds.spec()


@pytest.mark.parametrize(
    ("ds", "of_batches", "free"),
    [
        (numbers().padded_batch(2), False, [True, True]),
        (numbers().batch(2), False, [True, False]),
        (numbers().batch(2, drop_remainder=True).map(abs), True, [False, False]),
        (numbers().batch(2, drop_remainder=True).flat_map(list), True, [True, False]),
        (numbers(), True, [True, False]),
    ],
    ids=repr,
)
def test_the_first_dimension_may_differ_where_a_batch_may_be_short(ds: ps.Dataset, of_batches: bool, free: list[bool]) -> None:
    may_differ = free_dimensions(ds._root, of_batches=of_batches)
    assert [may_differ(place) for place in (0, 1)] == free
