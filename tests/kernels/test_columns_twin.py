"""The twin of the gathering of columns by hand-made cases; `test_columns.py` compares it with the C library."""

from __future__ import annotations

import numpy as np

from penstock.kernels import columns_twin


def test_rows_of_several_tables_go_where_they_should() -> None:
    tables = [[np.array([1, 2, 3]), np.array([[1.5, 2.5], [3.5, 4.5], [5.5, 6.5]])], [np.array([7]), np.array([[8.0, 9.0]])]]
    out = [np.zeros(4, np.int64), np.zeros((4, 2))]
    columns_twin.gather(tables, np.array([0, 1, 0]), np.array([2, 0, 0]), None, out)
    assert out[0].tolist() == [3, 7, 1, 0]
    assert out[1].tolist() == [[5.5, 6.5], [8.0, 9.0], [1.5, 2.5], [0.0, 0.0]]
    columns_twin.gather(tables, np.array([0, 1]), np.array([1, 0]), np.array([3, 0]), out)
    assert out[0].tolist() == [7, 7, 1, 2]


def test_values_are_converted_to_what_they_go_into() -> None:
    out = [np.zeros(2, np.float32)]
    columns_twin.gather([[np.array([1, 2])]], np.array([0, 0]), np.array([1, 0]), None, out)
    assert out[0].tolist() == [2.0, 1.0]
