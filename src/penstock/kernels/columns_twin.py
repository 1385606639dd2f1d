"""Rows of several tables gathered with NumPy: what runs where the C library is missing, and what it is tested against."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["gather"]


def gather(
    columns: Sequence[Sequence[NDArray[Any]]],
    tables: NDArray[np.int64],
    rows: NDArray[np.int64],
    places: NDArray[np.int64] | None,
    out: Sequence[NDArray[Any]],
) -> None:
    """Write row rows[i] of each of columns[tables[i]] to row places[i] (None: i) of the array of `out` for that column; rows are there."""
    for number in np.unique(tables).tolist():
        members = np.flatnonzero(tables == number)
        targets, sources = members if places is None else places[members], rows[members]
        for values, target in zip(columns[number], out, strict=True):
            target[targets] = values[sources]
