"""A list of numbers in an element is an array in a batch: every operator that makes batches against plain NumPy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import penstock as ps
from penstock.errors import SpecError
from penstock.testing.runs import exact, plain

COUNT, SIZE = 13, 4

FIXED: dict[str, Callable[[int], Any]] = {
    "ints": lambda i: [i, -i, 2**62 + i],
    "floats": lambda i: [i / 3, float("inf")],
    "bools": lambda i: [i % 2 == 0, True, False],
    "complex numbers": lambda i: [1j, i * 1j],
    "ints among floats": lambda i: [i, 0.5, 2**53],
    "bools among ints": lambda i: [True, i],
    "bools among floats": lambda i: [False, i / 2],
    "NumPy scalars": lambda i: [np.float32(i), np.float32(0.1)],
    "bytes of NumPy": lambda i: [np.uint8(i), np.uint8(255)],
    "whole numbers of several widths": lambda i: [np.int8(i), np.int32(-i), i],
    "large whole numbers of NumPy": lambda i: [np.uint64(2**63 + i)],
    "bools of NumPy": lambda i: [np.bool_(i % 2), True],
    "nested": lambda i: [[i, 1, 2], [3, 4, i]],
    "nested, ints among floats": lambda i: [[i, 1], [0.5, i]],
    "three dimensions": lambda i: [[[i], [1]], [[2], [i]]],
    "empty": lambda i: [],
    "nested and empty": lambda i: [[], []],
}
VARYING: dict[str, Callable[[int], Any]] = {
    "ints": lambda i: list(range(i % 4)),
    "floats": lambda i: [i / 7] * ((i + 2) % 4),
    "bools": lambda i: [True, False, True][: i % 4],
    "NumPy scalars": lambda i: [np.float32(i)] * (i % 3),
    "boxes": lambda i: [[i, 1, 2, 3.5]] * (i % 3),
    "arrays between lists": lambda i: np.arange(i % 4) if i % 3 else list(range(i % 4)),
    "always empty": lambda i: [],
    "empty beside arrays": lambda i: [] if i % 2 else np.ones((i % 3, 2), np.float16),
}
WAYS: dict[str, dict[str, Any]] = {
    "inline": {"executor": "inline"},
    "threads": {"executor": "threads", "num_workers": 3},
    "one unit at a time": {"executor": "threads", "num_workers": 2, "memory_bytes": 1},
}
PLACES: dict[str, Callable[[ps.Dataset], ps.Dataset]] = {
    "written ahead": lambda ds: ds,
    "behind a fold": lambda ds: ds.filter(lambda element: True),
    "from a cache": lambda ds: ds.cache(),
}


RUNS = [(place, way) for place in PLACES for way in WAYS if place == next(iter(PLACES)) or way == next(iter(WAYS))]
"""Each place, and each way at the first of them."""


def rows_of(make: Callable[[int], Any]) -> list[Any]:
    return [{"x": make(i), "deep": (make(i), {"y": i})} for i in range(COUNT)]


def groups(rows: list[Any], size: int = SIZE) -> Iterator[list[Any]]:
    for start in range(0, len(rows), size):
        yield rows[start : start + size]


def arrays_of(values: list[Any]) -> list[np.ndarray]:
    """Return the arrays of a batch's values: of an empty list one of the dtype and the inner sizes of the first that is none."""
    arrays = [np.asarray(value) for value in values]
    given = [array for array, value in zip(arrays, values, strict=True) if isinstance(value, np.ndarray) or array.size]
    dtype, inner = (given[0].dtype, given[0].shape[1:]) if given else (np.dtype(np.int64), None)
    return [
        np.empty((0, *inner) if value == [] and inner is not None else array.shape, dtype)
        if isinstance(value, list) and not array.size
        else array
        for array, value in zip(arrays, values, strict=True)
    ]


def padded(values: list[Any]) -> np.ndarray:
    arrays = arrays_of(values)
    out = np.zeros((len(arrays), *np.max([array.shape for array in arrays], axis=0)), arrays[0].dtype)
    for row, array in enumerate(arrays):
        out[(row, *map(slice, array.shape))] = array
    return out


def joined(values: list[Any]) -> dict[str, np.ndarray]:
    arrays = arrays_of(values)
    return {"values": np.concatenate(arrays), "row_splits": np.cumsum([0, *map(len, arrays)])}


def stacked(values: list[Any]) -> np.ndarray:
    return np.stack(arrays_of(values))


def batch_of(rows: list[Any], make: Callable[[list[Any]], Any]) -> Any:
    return {
        "x": make([row["x"] for row in rows]),
        "deep": (make([row["deep"][0] for row in rows]), {"y": np.array([row["deep"][1]["y"] for row in rows])}),
    }


OPERATORS: dict[str, tuple[Callable[[ps.Dataset], ps.Dataset], Callable[[list[Any]], list[Any]], bool]] = {
    "batch": (lambda ds: ds.batch(SIZE), lambda rows: [batch_of(group, stacked) for group in groups(rows)], False),
    "window": (
        lambda ds: ds.window(SIZE, 2, drop_remainder=True),
        lambda rows: [batch_of(rows[start : start + SIZE], stacked) for start in range(0, COUNT - SIZE + 1, 2)],
        False,
    ),
    "padded_batch": (lambda ds: ds.padded_batch(SIZE), lambda rows: [batch_of(group, padded) for group in groups(rows)], True),
    "ragged_batch": (
        lambda ds: ds.map(flat).ragged_batch(SIZE),
        lambda rows: [
            {"x": joined([row["x"] for row in group]), "y": np.array([row["deep"][1]["y"] for row in group])} for group in groups(rows)
        ],
        True,
    ),
    "bucket_by_length": (
        lambda ds: ds.bucket_by_length(lambda row: 0, [1], [SIZE, SIZE]),
        lambda rows: [batch_of(group, padded) for group in groups(rows)],
        True,
    ),
}


def flat(row: Any) -> Any:
    return {"x": row["x"], "y": row["deep"][1]["y"]}


CASES = [
    pytest.param(operator, make, id=f"{operator}, {kind}")
    for operator, (_, _, varying) in OPERATORS.items()
    for kind, make in {**FIXED, **({f"varying {kind}": make for kind, make in VARYING.items()} if varying else {})}.items()
]


@pytest.mark.parametrize(("operator", "make"), CASES)
def test_a_batch_of_lists_is_what_numpy_makes_of_them(operator: str, make: Callable[[int], Any]) -> None:
    build, reference, _ = OPERATORS[operator]
    rows = rows_of(make)
    wanted = [exact(batch) for batch in reference(rows)]
    for place, way in RUNS:
        with build(PLACES[place](ps.from_source(rows))).feed(**WAYS[way]) as feed:
            assert [exact(batch) for batch in feed] == wanted, (place, way)


@pytest.mark.parametrize("make", [pytest.param(make, id=kind) for kind, make in {**FIXED, **VARYING}.items()])
def test_an_element_alone_keeps_its_list(make: Callable[[int], Any]) -> None:
    rows = rows_of(make)
    ds = ps.from_source(rows).map(lambda row: row)
    wanted = [exact(row) for row in rows]
    assert [exact(ds[place]) for place in range(COUNT)] == [exact(row) for row in ds] == [exact(row) for row in ds.cache()] == wanted
    first = arrays_of([rows[0]["x"]])[0]
    assert ds.spec()["x"] == ps.ArraySpec(first.shape, first.dtype)
    assert ds.spec()["deep"] == (ps.ArraySpec(first.shape, first.dtype), {"y": ps.ArraySpec((), np.dtype(np.int64))})


PACKED = [
    pytest.param(make, id=kind)
    for kind, make in VARYING.items()
    if kind in ("ints", "floats", "bools", "NumPy scalars", "arrays between lists")
]


@pytest.mark.parametrize("split", [False, True])
@pytest.mark.parametrize("make", PACKED)
def test_sequences_in_lists_are_packed_as_their_arrays_are(make: Callable[[int], Any], split: bool) -> None:
    lists = [make(i) for i in range(COUNT)]
    arrays = arrays_of(lists)
    for several in (False, True):
        rows, others = ([{"a": one, "b": one} for one in values] if several else values for values in (lists, arrays))
        with ps.from_source(others).pack_sequences(5, split=split).feed(executor="inline") as feed:
            wanted = [exact(row) for row in feed]
        for options in WAYS.values():
            with ps.from_source(rows).pack_sequences(5, split=split).feed(**options) as feed:
                assert [exact(row) for row in feed] == wanted


ODD: dict[str, tuple[Any, str]] = {
    "floats": ([1.5, 2.5], "['x'] is int64[2] in one and float64[2] in the other"),
    "one float": ([1, 2.5], "['x'] is int64[2] in one and float64[2] in the other"),
    "bools": ([True, False], "['x'] is int64[2] in one and bool[2] in the other"),
    "small ints": (np.zeros(2, np.int8), "['x'] is int64[2] in one and int8[2] in the other"),
    "a number": (3, "['x'] is int64[2] in one and int64[] in the other"),
    "nested": ([[1, 2]], "['x'] is int64[2] in one and int64[1, 2] in the other"),
    "a tuple": ((1, 2), "the structure is {'x': array} in one and {'x': (array, array)} in the other"),
    "texts": (["a", "b"], "the structure is {'x': array} in one and {'x': [array, array]} in the other"),
    "a text": ("ab", "['x'] is int64[2] in one and object[] in the other"),
    "ragged": ([[1, 2], [3]], "['x'] is a list of lists of different lengths, which is no array"),
    "a large int": ([1, 2**63], "['x'] is a list with 9223372036854775808, which does not fit int64"),
    "a rounded int": ([0.5, 2**53 + 1], "['x'] is a list with 9007199254740993 among numbers of other types"),
    "nothing": ([1, None], "['x'][1] is a NoneType, which cannot stand in a batch"),
}
NAMES_OF_ONE = ("ragged", "a large int", "a rounded int", "nothing")


@pytest.mark.parametrize("operator", ["batch", "window", "padded_batch", "ragged_batch", "bucket_by_length"])
@pytest.mark.parametrize("odd", ODD)
def test_an_odd_element_in_the_middle_is_refused_alike_by_all(odd: str, operator: str) -> None:
    value, words = ODD[odd]
    rows = [{"x": [i, i]} for i in range(COUNT)]
    rows[6] = {"x": value}
    build = (lambda ds: ds.ragged_batch(SIZE)) if operator == "ragged_batch" else OPERATORS[operator][0]
    for place, way in RUNS:
        if place == "from a cache" and odd == "nothing":
            continue  # a cache refuses None by itself
        with build(PLACES[place](ps.from_source(rows))).feed(**WAYS[way]) as feed:
            next(feed)
            with pytest.raises(SpecError) as caught:
                list(feed)
        assert words in caught.value.what
        assert "6" in caught.value.where or operator == "window"  # which counts from its own begin
        assert ("and element" in caught.value.where) == (odd not in NAMES_OF_ONE)


@pytest.mark.parametrize(("value", "words"), [([[1, 2], [3]], "ragged_batch"), ([2**64], "np.uint64"), ([[1], 2], "ragged_batch")])
def test_a_list_that_is_no_array_has_no_spec_and_is_named_with_a_remedy(value: Any, words: str) -> None:
    ds = ps.from_source([{"x": value}])
    assert ds[0] == {"x": value}
    assert [plain(row) for row in ds] == [{"x": plain(value)}]
    with pytest.raises(SpecError) as caught:
        ds.spec()
    assert caught.value.where == "ds.spec()"
    assert words in caught.value.fix
    with pytest.raises(SpecError) as caught:
        list(ds.padded_batch(2))
    assert words in caught.value.fix


def test_tuples_and_lists_of_other_things_stay_structure() -> None:
    rows = [{"t": (i, i + 1), "d": [{"a": i}], "s": ["a", str(i)], "l": [np.full(2, i), np.zeros(1)], "m": [i, "x"]} for i in range(3)]
    with ps.from_source(rows).batch(3).feed() as feed:
        (batch,) = feed
    assert plain(batch) == {
        "t": [[0, 1, 2], [1, 2, 3]],
        "d": [{"a": [0, 1, 2]}],
        "s": [["a", "a", "a"], ["0", "1", "2"]],
        "l": [[[0, 0], [1, 1], [2, 2]], [[0.0], [0.0], [0.0]]],
        "m": [[0, 1, 2], ["x", "x", "x"]],
    }
    assert type(batch["t"]) is tuple
    assert type(batch["s"]) is list
