"""Parquet files by row: row groups are decoded once and kept while they are needed. Arrow tables are read as files of these are."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from penstock._contracts.element import LEAF, Structure
from penstock._contracts.storage import Storage
from penstock.errors import LengthMismatch, RecordError
from penstock.formats.parquet import Column, columns_of, pyarrow
from penstock.formats.row_group import RowGroup, row_group
from penstock.kernels import columns
from penstock.sources.chunks import Chunks
from penstock.sources.digest import crc_of_value, spread
from penstock.sources.parquet_files import ParquetFiles

__all__ = ["ParquetColumns", "ParquetSource", "TableSource", "parquet_source", "table_source"]

Ints = NDArray[np.int64]
_SAMPLED = 64


class Groups(Protocol):
    """Row groups by number: those of files, or the batches of a table."""

    columns: tuple[Column, ...]
    group_starts: Ints
    group_bytes: int
    crc32: int

    def __len__(self) -> int: ...

    def describe(self, number: int) -> str:
        """Name one."""

    def load(self, number: int) -> RowGroup:
        """Decode one."""


class ParquetSource:
    """Serve rows of Parquet files as dicts, any row at any time, from any thread. See `penstock.read_parquet`.

    A row costs its row group, unless that is at hand: ask for rows of few groups at a time (`group_starts`).
    """

    def __init__(self, names: list[str], files: Groups, cache_bytes: int) -> None:
        self._names = names
        self._files, self._cache_bytes = files, cache_bytes
        self.chunks = Chunks(files.load, len(files), cache_bytes)
        self._starts = files.group_starts
        self._count = int(self._starts[-1])

    def __len__(self) -> int:
        return self._count

    def group_starts(self) -> Ints:
        """Return int64 [row groups + 1]."""
        return self._starts

    def groups_kept(self) -> int:
        """Return about how many decoded row groups there is memory for."""
        return max(1, self._cache_bytes // max(1, self._files.group_bytes))

    def gather(self, indices: Sequence[int], rows: list[Any]) -> None:
        """Append one dict per index; when one cannot be read, those before it are appended.

        Raises:
            RecordError: bytes of a row group are bad, or a value is null.
            SourceError, OSError: a file cannot be read, or was replaced.
        """
        if len(indices) > 1:
            try:
                rows.extend(self._rows(np.asarray(indices, np.int64)))
            except (RecordError, OSError):
                pass  # asked one by one, those before the first bad one come, and it is the one that is named
            else:
                return
        for index in indices:
            rows.extend(self._rows(np.array([index], np.int64)))

    def _rows(self, indices: Ints) -> list[Any]:
        names = [column.name for column in self._files.columns]
        out: list[Any] = [None] * len(indices)
        for group, members, rows in self._parts(indices):
            columns = [values.take(rows) for values in group.values]
            for member, values in zip(members.tolist(), zip(*columns, strict=True), strict=True):
                out[member] = dict(zip(names, values, strict=True))
        return out

    def _parts(self, indices: Ints) -> Iterator[tuple[RowGroup, Ints, Ints]]:
        """Yield (group, places in `indices`, rows in the group), in whatever order the groups are there soonest.

        Raises:
            LengthMismatch: an index is not in 0..len-1.
            RecordError, SourceError, OSError: as `gather`.
        """
        parts = self._members(indices)
        while parts:
            number = self.chunks.soonest(list(parts))
            members = parts.pop(number)
            rows = indices[members] - self._starts[number]
            group = self.chunks.get(number)
            null = group.null_at(rows) if group.has_nulls else None
            if null is not None:
                raise self._null(number, int(rows[null[0]]), null[1])
            yield group, members, rows

    def _members(self, indices: Ints) -> dict[int, Ints]:
        """Return which places in `indices` are rows of which group, by row: a column is read from its beginning to its end then."""
        if not len(indices):
            return {}
        order = np.arange(len(indices)) if (indices[1:] >= indices[:-1]).all() else np.argsort(indices)
        ordered = indices[order]
        if ordered[0] < 0 or ordered[-1] >= self._count:
            raise LengthMismatch(
                f"the files have {self._count} rows, and indices from {ordered[0]} to {ordered[-1]} were asked for",
                where=self.label(),
                fix=f"ask for rows 0..{self._count - 1}; when no code of yours did, report it as a fault of penstock",
            )
        first, last = (np.searchsorted(self._starts, ordered[[0, -1]], "right") - 1).tolist()
        borders = np.searchsorted(ordered, self._starts[first : last + 2])
        touched = np.flatnonzero(borders[1:] > borders[:-1]).tolist()
        return {first + place: order[borders[place] : borders[place + 1]] for place in touched}

    def _null(self, number: int, row: int, name: str) -> RecordError:
        return RecordError(
            f"the column {name!r} is null in row {row} of {self._files.describe(number)}",
            where=self.describe(int(self._starts[number]) + row),
            fix=f"{self._without_null(name)}, or leave such elements out with feed(on_error=ps.Skip())",
        )

    def _without_null(self, name: str) -> str:
        is_single = any(column.name == name and column.is_single for column in self._files.columns)
        return f"give read_parquet null_values={{{name!r}: ...}}" if is_single else "leave the column out with columns="

    def describe(self, index: int) -> str:
        """Name row, row group and file."""
        number = int(np.searchsorted(self._starts, index, "right")) - 1
        return f"row {index - int(self._starts[number])} of {self._files.describe(number)}"

    def input_files(self) -> Iterator[str]:
        """Give the full path of each file."""
        return map(os.path.abspath, self._names)

    def fingerprint(self) -> dict[str, Any]:
        """Return count, columns, and a check sum of all footers: rows of each group, places, sizes and statistics of each column."""
        return {
            "kind": "parquet",
            "count": len(self),
            "num_files": len(self._names),
            "columns": [[column.name, column.words] for column in self._files.columns],
            "footers_crc32": self._files.crc32,
        }

    def label(self) -> str:
        """Return the call with the numbers of elements, row groups and files."""
        more = "" if len(self._names) == 1 else f" and {len(self._names) - 1} more"
        return f"read_parquet({self._names[0]!r}{more}, {len(self)} elements in {len(self._files)} row groups)"


class ParquetColumns(ParquetSource):
    """One whose columns are all numbers, dates or arrays of fixed shapes: blocks are gathered column by column."""

    def structure(self) -> Structure:
        """Return the structure of one element: a dict of leaves."""
        columns = self._files.columns
        return ("dict", tuple(column.name for column in columns), tuple(LEAF for _ in columns))

    def leaves(self) -> list[tuple[tuple[int, ...], np.dtype[Any]]]:
        """Return shape and dtype of each column's values."""
        return [(column.shape, np.dtype(column.dtype)) for column in self._files.columns]

    def gather_columns(self, indices: Ints, out: list[NDArray[Any]] | None) -> list[NDArray[Any]]:
        """Gather rows `indices` of every column: into `out` (arrays of shape (n, *shape)) or into new arrays.

        Raises:
            LengthMismatch: an index is not in 0..len-1.
            RecordError, SourceError, OSError: as `gather`; what was written to `out` is then undefined.
        """
        if out is None:
            out = [np.empty((len(indices), *shape), dtype) for shape, dtype in self.leaves()]
        gathered = _Gathered(out)
        for group, members, rows in self._parts(indices):
            gathered.add(group, members, rows)
            if gathered.num_bytes > self._cache_bytes:
                gathered.write()
        gathered.write()
        return out


class _Gathered:
    """Rows of several groups that are to be copied at once: the groups stay in memory until they are."""

    def __init__(self, out: list[NDArray[Any]]) -> None:
        self.num_bytes = 0
        self._out = out
        self._parts: list[tuple[columns.Table, Ints, Ints]] = []

    def add(self, group: RowGroup, members: Ints, rows: Ints) -> None:
        """Ask for rows of a group, which go to places `members`."""
        assert group.table is not None  # all columns are arrays
        self._parts.append((group.table, members, rows))
        self.num_bytes += group.nbytes

    def write(self) -> None:
        """Copy them."""
        if self._parts:
            tables, members, rows = zip(*self._parts, strict=True)
            which = np.repeat(np.arange(len(tables)), [len(some) for some in rows])
            columns.gather(tables, which, np.concatenate(rows), np.concatenate(members), self._out)
        self._parts, self.num_bytes = [], 0


def parquet_source(
    storage: Storage, columns: Sequence[str] | None, null_values: Mapping[str, Any], cache_bytes: int, max_group_bytes: int
) -> ParquetSource:
    """Open files, as a source of columns where the columns allow it.

    Raises:
        MissingExtra, PlanError, RecordError, SourceError, OSError: as `ParquetFiles`.
    """
    files = ParquetFiles(storage, columns, null_values, max_group_bytes)
    kind = ParquetColumns if all(column.form == "array" for column in files.columns) else ParquetSource
    return kind([storage.name(file) for file in range(len(storage))], files, cache_bytes)


class _Batches:
    """The batches of an Arrow table as row groups. Numbers stay where Arrow has them."""

    def __init__(self, table: Any) -> None:
        self.columns = columns_of(table.schema, None, f"from_source({type(table).__name__})")
        self.batches = [batch for batch in table.to_batches() if batch.num_rows]
        self.group_starts = np.cumsum([0, *(batch.num_rows for batch in self.batches)], dtype=np.int64)
        self.group_bytes = self.crc32 = 0

    def __len__(self) -> int:
        return len(self.batches)

    def describe(self, number: int) -> str:
        return f"batch {number} of the table"

    def load(self, number: int) -> RowGroup:
        return row_group(pyarrow()[0].Table.from_batches([self.batches[number]]), self.columns, {})


class TableSource(ParquetSource):
    """Serve the rows of an Arrow table as `read_parquet` would if the table were a file."""

    def __init__(self, batches: _Batches) -> None:
        super().__init__([], batches, 1 << 62)
        self._batches = batches.batches

    def _without_null(self, name: str) -> str:
        return f"fill it, pyarrow.compute.fill_null(table[{name!r}], ...), or drop_columns([{name!r}])"

    def describe(self, index: int) -> str:
        """Name the row."""
        return f"row {index} of the table"

    def held(self) -> list[bytes]:
        """Return a hash of each batch. Reads the whole table."""
        pa, _ = pyarrow()
        out = []
        for batch in self._batches:
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, batch.schema) as stream:
                stream.write_batch(batch)
            out.append(hashlib.blake2b(sink.getvalue()).digest())
        return out

    def fingerprint(self) -> dict[str, Any]:
        """Return count, columns, and a check sum of 64 rows."""
        crc = 0
        for index in spread(len(self), _SAMPLED):
            rows: list[Any] = [None]
            with contextlib.suppress(RecordError):  # a null
                self.gather([index], rows)
            crc = crc_of_value(rows[-1], crc)
        columns = [[column.name, column.words] for column in self._files.columns]
        return {"kind": "table", "count": len(self), "columns": columns, "sample_crc32": crc}

    def label(self) -> str:
        """Return the call with the number of elements."""
        return f"from_source(Table, {len(self)} elements)"


class _TableColumns(TableSource, ParquetColumns):
    """One whose columns are all numbers, dates or arrays of fixed shapes."""


def table_source(table: Any) -> TableSource:
    """Open a `pyarrow.Table` or `RecordBatch`.

    Raises:
        MissingExtra: a part of pyarrow is not installed.
        PlanError: a column has no conversion.
    """
    pa, _ = pyarrow()
    batches = _Batches(pa.Table.from_batches([table]) if isinstance(table, pa.RecordBatch) else table)
    kind = _TableColumns if all(column.form == "array" for column in batches.columns) else TableSource
    return kind(batches)
