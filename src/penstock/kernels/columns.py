"""Columns gathered from tables, and spans of bytes copied, each with one call that holds no GIL."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, Final

import numpy as np

from penstock.errors import LengthMismatch, SpecError
from penstock.kernels.library import INT64_DTYPE, Array, Ints, addresses, block, chosen, chosen_library, place


class ColumnTable:
    """Columns of one length, whose addresses are known: C-contiguous arrays that nothing writes to.

    Attributes:
        columns: arrays of shape (num_rows, ...).
        dtypes: of each.
        shapes: of a row of each.
        widths: int64 [columns], bytes of a row.
        addresses: int64 [columns].
        num_rows: of each of them.
    """

    __slots__ = ("addresses", "columns", "dtypes", "num_rows", "shapes", "widths")

    def __init__(self, columns: Sequence[Array]) -> None:
        """Look at the arrays, and copy one that is not one block.

        Raises:
            SpecError: one has another length than the first.
        """
        self.columns = tuple(np.ascontiguousarray(column) for column in columns)
        self.num_rows = len(self.columns[0]) if self.columns else 0
        for column in self.columns:
            if len(column) != self.num_rows:
                raise SpecError(
                    f"one column has {self.num_rows} rows, another {len(column)}",
                    where=place("columns.Table", "columns"),
                    fix="pass columns of one length",
                )
        self.dtypes = [column.dtype for column in self.columns]
        self.shapes = [column.shape[1:] for column in self.columns]
        self.widths = np.array([column.itemsize * math.prod(column.shape[1:]) for column in self.columns], np.int64)
        self.addresses = addresses(self.columns)


def gather(of: Sequence[ColumnTable], tables: Ints, rows: Ints, places: Ints | None, out: Sequence[Array]) -> None:
    """Write row rows[i] of table tables[i] to row places[i] of `out`, column by column. From any thread; holds no GIL.

    Args:
        of: tables with the same columns.
        tables: int64 [n], numbers in `of`.
        rows: int64 [n].
        places: int64 [n], each at most once; None for 0, 1, 2...
        out: one array for each column, of the shape of its rows; values are converted where it has another dtype.

    Raises:
        LengthMismatch: a row is not there, or has no place in `out`; then nothing is written.
        SpecError: a table has other columns, or rows of another shape, than the first or than `out`; or numbers that are not int64 [n].
    """
    tables = block("columns.gather", "tables", tables, INT64_DTYPE)
    rows = block("columns.gather", "rows", rows, INT64_DTYPE, tables.shape[0])
    if places is not None:
        places = block("columns.gather", "places", places, INT64_DTYPE, tables.shape[0])
    shapes = [array.shape[1:] for array in out]
    for table in of:
        if table.dtypes != of[0].dtypes or table.shapes != shapes:
            raise SpecError(
                f"table {of.index(table)} has columns {_words(table.columns)}, the first {_words(of[0].columns)}, "
                f"and out has {_words(out) or 'none'}",
                where=place("columns.gather", "out"),
                fix="pass one array for each column, with rows of its shape",
            )
    plain = bool(of) and all(array.dtype == dtype and array.flags.carray for array, dtype in zip(out, of[0].dtypes, strict=True))
    row = (chosen("gather_columns", by_twin) if plain else by_twin)(of, tables, rows, places, out)
    if row >= 0:
        to = row if places is None else int(places[row])
        raise LengthMismatch(
            f"row {int(rows[row])} of table {int(tables[row])}, asked for at place {to}, is not there or has no place",
            where=place("columns.gather", "rows"),
            fix="ask for rows of the tables; when no code of yours did, report it as a fault of penstock",
        )


def by_twin(of: Sequence[ColumnTable], tables: Ints, rows: Ints, places: Ints | None, out: Sequence[Array]) -> int:
    """Do what the C function does, with NumPy; return what it returns."""
    counts = np.array([*(table.num_rows for table in of), 0], np.int64)
    to = np.arange(len(rows)) if places is None else places
    known = (tables >= 0) & (tables < len(of))
    good = known & (rows >= 0) & (rows < counts[np.where(known, tables, -1)]) & (to >= 0) & (to < min(map(len, out), default=0))
    if not good.all():
        return int(np.argmin(good))
    for number in np.unique(tables).tolist():
        members = np.flatnonzero(tables == number)
        targets, sources = members if places is None else places[members], rows[members]
        for values, target in zip(of[number].columns, out, strict=True):
            target[targets] = values[sources]
    return -1


def _words(arrays: Sequence[Array]) -> str:
    return ", ".join(f"{array.dtype}{list(array.shape[1:])}" for array in arrays)


LARGE_BYTES: Final = 16 << 10
"""From here on a copy takes longer than what is to be done around it."""


def copies(views: Sequence[memoryview]) -> list[bytes]:
    """Return the bytes of contiguous views, as `bytes(view)` does; worth it for many of `LARGE_BYTES` and more. From any thread."""
    copy = _chosen()
    return [bytes(view) for view in views] if copy is None or not all(map(len, views)) else copy(views)


@cache
def _chosen() -> Callable[[Sequence[memoryview]], list[bytes]] | None:
    library, python = chosen_library(), getattr(ctypes, "pythonapi", None)
    if library is None or python is None:  # other Pythons than CPython have no such way to fill a new object
        return None
    # Of the stable interface: a new object whose bytes are undefined, to be written before anybody else has seen it.
    new = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_ssize_t)(("PyBytes_FromStringAndSize", python))
    start = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object)(("PyBytes_AsString", python))

    def copy(views: Sequence[memoryview]) -> list[bytes]:
        arrays: list[Any] = [np.frombuffer(view, np.uint8) for view in views]
        made: list[bytes] = [new(None, array.nbytes) for array in arrays]
        sources = addresses(arrays)
        targets = np.array([start(data) for data in made], np.int64)
        lengths = np.array([array.nbytes for array in arrays], np.int64)
        library.copy_spans(sources, targets, lengths, len(made))
        return made

    return copy
