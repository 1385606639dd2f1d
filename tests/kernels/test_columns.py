"""Rows of several tables, gathered column by column."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from penstock.errors import LengthMismatch, SpecError
from penstock.kernels.columns import ColumnTable, gather

KINDS: list[tuple[str, tuple[int, ...]]] = [
    ("u1", ()),
    ("?", ()),
    ("<i2", ()),
    ("<f4", ()),
    ("<i8", ()),
    ("<f4", (3,)),
    ("<f8", (2, 1)),
    ("<u4", (0,)),
    ("<M8[ns]", ()),
    ("<c16", (2,)),
]


def ints(values: Any) -> NDArray[np.int64]:
    return np.array(values, np.int64)


def table(seed: int, kinds: list[tuple[str, tuple[int, ...]]], num_rows: int) -> ColumnTable:
    generator = np.random.default_rng(seed)
    made = []
    for dtype, shape in kinds:
        kind = np.dtype(dtype)
        data = (
            generator.integers(0, 2, (num_rows, *shape), np.uint8)
            if dtype == "?"
            else generator.bytes(num_rows * int(np.prod(shape)) * kind.itemsize)
        )
        made.append(np.frombuffer(data, kind).reshape(num_rows, *shape))
    return ColumnTable(made)


@pytest.mark.parametrize("seed", range(3))
def test_rows_are_those_of_the_tables(seed: int) -> None:
    generator = np.random.default_rng(seed)
    of = [table(number, KINDS, 500) for number in range(3)]
    which, rows, places = generator.integers(0, 3, 1000), generator.integers(0, 500, 1000), generator.permutation(1000)
    rows[200:700], which[200:700] = np.arange(500), 1
    places[200:700] = np.sort(places[200:700])
    out = [np.zeros((1000, *column.shape[1:]), column.dtype) for column in of[0].columns]
    gather(of, which, rows, places, out)
    for number, array in enumerate(out):
        wanted = np.stack([of[one].columns[number][row] for one, row in zip(which.tolist(), rows.tolist(), strict=True)])
        assert array[places].tobytes() == wanted.tobytes()


def test_other_dtypes_and_layouts_of_the_output_are_served_too() -> None:
    of = [ColumnTable([np.arange(6).reshape(3, 2)])]
    loose = np.zeros((4, 2), np.int64, order="F")
    gather(of, ints([0, 0]), ints([2, 0]), ints([3, 1]), [loose])
    assert loose.tolist() == [[0, 0], [0, 1], [0, 0], [4, 5]]
    halves = np.zeros((2, 2), np.float16)
    gather(of, ints([0, 0]), ints([1, 2]), None, [halves])
    assert halves.tolist() == [[2.0, 3.0], [4.0, 5.0]]


def test_a_column_that_is_not_one_block_is_copied() -> None:
    wide = np.arange(12).reshape(6, 2)
    out = [np.zeros(2, np.int64)]
    gather([ColumnTable([wide[:, 1]])], ints([0, 0]), ints([5, 0]), None, out)
    assert out[0].tolist() == [11, 1]


@pytest.mark.parametrize(
    ("tables", "rows", "places", "bad"), [([0, 1], [0, 0], None, 1), ([0, 0], [0, 3], None, 1), ([0], [-1], None, 0), ([0], [0], [2], 0)]
)
def test_a_row_that_is_not_there_is_an_error_and_nothing_is_written(tables: Any, rows: Any, places: Any, bad: int) -> None:
    out = [np.full(2, 9)]
    to = None if places is None else ints(places)
    with pytest.raises(LengthMismatch, match=f"row {rows[bad]} of table {tables[bad]}"):
        gather([ColumnTable([np.arange(3)])], ints(tables), ints(rows), to, out)
    assert out[0].tolist() == [9, 9]


def test_nothing_of_no_tables_is_nothing() -> None:
    gather([], ints([]), ints([]), None, [])
    with pytest.raises(LengthMismatch):
        gather([], ints([0]), ints([0]), None, [np.zeros(1)])


def test_arguments_that_the_c_could_not_survive_are_refused() -> None:
    of = [ColumnTable([np.arange(3)])]
    with pytest.raises(SpecError, match="tables is 1-d float64"):
        gather(of, np.zeros(1), ints([0]), None, [np.zeros(1, np.int64)])  # type: ignore[arg-type]
    with pytest.raises(SpecError, match="rows has shape"):
        gather(of, ints([0]), ints([0, 1]), None, [np.zeros(1, np.int64)])
    with pytest.raises(SpecError, match="places has shape"):
        gather(of, ints([0]), ints([0]), ints([0, 1]), [np.zeros(1, np.int64)])
    with pytest.raises(SpecError, match=r"table 0 has columns int64\[\].* and out has int64\[2\]"):
        gather(of, ints([0]), ints([0]), None, [np.zeros((1, 2), np.int64)])
    with pytest.raises(SpecError, match="and out has none"):
        gather(of, ints([0]), ints([0]), None, [])
    with pytest.raises(SpecError, match="table 1 has columns"):
        gather([*of, ColumnTable([np.zeros(3)])], ints([0]), ints([0]), None, [np.zeros(1, np.int64)])
    with pytest.raises(SpecError, match="one column has 3 rows, another 2"):
        ColumnTable([np.zeros(3), np.zeros(2)])
