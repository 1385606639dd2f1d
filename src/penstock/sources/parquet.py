"""Rows of Parquet files and of Arrow tables, a row group or batch at a time."""

from __future__ import annotations

import contextlib
import fnmatch
import hashlib
import os
import re
import threading
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import Any

import numpy as np

from penstock._contracts.element import LEAF, Structure
from penstock._contracts.source import Leaves
from penstock._contracts.storage import Storage
from penstock._contracts.transform import Scratch
from penstock._storage.urls import expand
from penstock._system.process import OwnLocks
from penstock.errors import PenstockError, RecordError, SourceError
from penstock.formats.arrow import ColumnForm, RowGroup, columns_of, one_line, pyarrow, row_group
from penstock.formats.parquet import Footer, Layout, ParquetReader, arrow_schema, common_columns, fills_of, read_footer
from penstock.kernels import columns
from penstock.kernels.library import Array, Ints
from penstock.sources.paths import beyond, crc_of_value, spread, words_of_files

_SAMPLED = 64


class ParquetSource:
    """Serve rows of Parquet files as dicts, any row at any time, from any thread. See `penstock.read_parquet`.

    A row costs its row group, unless that is at hand: ask for rows of few groups at a time (`group_starts`).
    """

    def __init__(self, names: list[str], files: ParquetFiles | _Batches, cache_bytes: int) -> None:
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
            null = group.null_at(rows)
            if null is not None:
                row, name = int(rows[null[0]]), null[1]
                raise RecordError(
                    f"the column {name!r} is null in row {row} of {self._files.describe(number)}",
                    where=self.describe(int(self._starts[number]) + row),
                    fix=f"{self._without_null(name)}, or leave such elements out with feed(on_error=ps.Skip())",
                )
            yield group, members, rows

    def _members(self, indices: Ints) -> dict[int, Ints]:
        """Return which places in `indices` are rows of which group, by row: a column is read from its beginning to its end then."""
        if not len(indices):
            return {}
        order = np.arange(len(indices)) if (indices[1:] >= indices[:-1]).all() else np.argsort(indices)
        ordered = indices[order]
        if ordered[0] < 0 or ordered[-1] >= self._count:
            raise beyond(indices, self._count, "rows", self.label())
        first, last = (np.searchsorted(self._starts, ordered[[0, -1]], "right") - 1).tolist()
        borders = np.searchsorted(ordered, self._starts[first : last + 2])
        touched = np.flatnonzero(borders[1:] > borders[:-1]).tolist()
        return {first + place: order[borders[place] : borders[place + 1]] for place in touched}

    def _without_null(self, name: str) -> str:
        is_single = any(column.name == name and column.is_single for column in self._files.columns)
        value = f", or nulls={{{name!r}: value}}" if is_single else ""
        return f'give read_parquet nulls="none" to have None{value}'

    def describe(self, index: int) -> str:
        """Name row, row group and file."""
        number = int(np.searchsorted(self._starts, index, "right")) - 1
        return f"row {index - int(self._starts[number])} of {self._files.describe(number)}"

    def input_files(self) -> Iterator[str]:
        """Give the full path of each file."""
        return map(os.path.abspath, self._names)

    def by_file(self) -> tuple[Ints, dict[str, Any]]:
        """Return the first row of each file; and the columns, and what stands for nulls."""
        return self._files.by_file()

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
        return f"read_parquet({words_of_files(self._names)}, {len(self)} elements in {len(self._files)} row groups)"


class ParquetColumns(ParquetSource):
    """One whose columns are all numbers, dates or arrays of fixed shapes: blocks are gathered column by column."""

    def structure(self) -> Structure:
        """Return the structure of one element: a dict of leaves."""
        columns = self._files.columns
        return ("dict", tuple(column.name for column in columns), tuple(LEAF for _ in columns))

    def leaves(self) -> Leaves:
        """Return shape and dtype of each column's values."""
        return [(column.shape, np.dtype(column.dtype)) for column in self._files.columns]

    def gather_columns(self, indices: Ints, out: list[Array] | None) -> list[Array]:
        """Gather rows `indices` of every column: into `out` (arrays of shape (n, *shape)) or into new arrays.

        Raises:
            LengthMismatch: an index is not in 0..len-1.
            RecordError, SourceError, OSError: as `gather`; what was written to `out` is then undefined.
        """
        if out is None:
            out = [np.empty((len(indices), *shape), dtype) for shape, dtype in self.leaves()]
        parts, num_bytes = list[tuple[Any, Ints, Ints]](), 0  # copied at once: the groups stay in memory until they are
        for group, members, rows in self._parts(indices):
            if num_bytes > self._cache_bytes:
                _copy(parts, out)
                parts, num_bytes = [], 0
            parts.append((group.table, members, rows))
            num_bytes += group.nbytes
        _copy(parts, out)
        return out


def _copy(parts: list[tuple[Any, Ints, Ints]], out: list[Array]) -> None:
    """Copy rows of tables, (table, places in `out`, rows) each."""
    if parts:
        tables, members, rows = zip(*parts, strict=True)
        which = np.repeat(np.arange(len(tables)), [len(some) for some in rows])
        columns.gather(tables, which, np.concatenate(rows), np.concatenate(members), out)


def parquet_source(
    storage: Storage, patterns: Sequence[str], columns: Sequence[str] | None, nulls: Any, cache_bytes: int, max_group_bytes: int
) -> ParquetSource:
    """Open files, as a source of columns where the columns allow it.

    Raises:
        MissingExtra, PlanError, RecordError, SourceError, OSError: as `ParquetFiles`.
    """
    files = ParquetFiles(storage, columns, nulls, max_group_bytes, data_files(storage, patterns))
    is_plain = all(column.form == "array" and files.fills.get(column.name, 0) is not None for column in files.columns)
    return (ParquetColumns if is_plain else ParquetSource)(list(files.names.values()), files, cache_bytes)


def data_files(storage: Storage, patterns: Sequence[str]) -> list[int]:
    """Return the files of a storage without what other programs put beside data: `_SUCCESS`, `_temporary/...`, hidden files.

    As for pyarrow, these begin with "_" or "."; a folder with "=" holds data, and so does what a pattern names with its first character.

    Raises:
        SourceError: there are no others.
    """
    given = {part for pattern in patterns for one in expand(pattern, "read_parquet") for part in _parts(one) if part[:1] in ("_", ".")}

    def is_data(part: str) -> bool:
        return part[:1] not in ("_", ".") or "=" in part or part in given or any(fnmatch.fnmatchcase(part, one) for one in given)

    names = [storage.name(file) for file in range(len(storage))]
    found = [file for file, name in enumerate(names) if all(map(is_data, _parts(name)))]
    if not found:
        raise SourceError(
            f"of {len(names)} files such as {names[0]!r} each has a name, or is in a folder, that begins with _ or .",
            where="read_parquet",
            fix="look whether the job that writes them has ended; to read such files name them with that character",
        )
    return found


def _parts(name: str) -> list[str]:
    return name.replace(os.sep, "/").split("/")


_HIVE_NULL = "__HIVE_DEFAULT_PARTITION__"


def hive_values(names: Iterable[str]) -> list[dict[str, Any]]:
    """Return what the folders of each file say, such as `year=2024`, as scalars of Arrow: integers where all values are, else texts."""
    from urllib.parse import unquote

    pa, _ = pyarrow()
    folders = [dict(part.split("=", 1) for part in _parts(name)[:-1] if part.find("=") > 0) for name in names]
    texts: dict[str, set[str]] = {}
    for key, text in chain.from_iterable(folder.items() for folder in folders):
        texts.setdefault(key, set()).add(text)
    kinds = {key: _hive_kind(found - {_HIVE_NULL}) for key, found in texts.items()}

    def scalar(key: str, text: str) -> Any:
        value: Any = int(text) if kinds[key] != pa.string() and text != _HIVE_NULL else unquote(text)
        return pa.scalar(None if text == _HIVE_NULL else value, kinds[key])

    return [{key: scalar(key, text) for key, text in folder.items()} for folder in folders]


def _hive_kind(texts: set[str]) -> Any:
    pa, _ = pyarrow()
    if not texts or not all(re.fullmatch(r"-?[0-9]{1,18}", text) for text in texts):
        return pa.string()
    return pa.int32() if all(abs(int(text)) < 2**31 for text in texts) else pa.int64()


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

    def by_file(self) -> tuple[Ints, dict[str, Any]]:
        return self.group_starts, {}

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


# -- row groups of a list of files: where they lie, and their bytes read and decoded ----------------------------------------------

_MOST_READERS = 16
_ALONE = 16  # so many groups in a row, each while no other was being decoded: one thread works, and Arrow's may help it
_MOST_METADATA_BYTES = 64 << 20
_MOST_SCRATCH_BYTES = 32 << 20  # working memory of larger groups goes at once: each thread would keep some for as long as the dataset lives
_OWN = frozenset({"_locks", "_idle", "_scratches", "_num_working", "_num_alone"})


class ParquetFiles:
    """The files of one dataset. Thread-safe; open files and metadata in memory are bounded.

    Args:
        storage: the files.
        columns: names of the columns wanted; None for all of the first file.
        nulls: what stands for null: "error", "none" or a value; or a dict of these by column.
        max_group_bytes: bound on one decoded row group.
        files: which of the storage; None for all.

    Attributes:
        names: of the files, by their numbers in the storage.
        columns: what each is.
        fills: by column: what stands for null.
        group_starts: int64 [groups + 1], the first row of each row group that has rows, and the number of rows.
        crc32: check sum of all footers.
        group_bytes: about how many bytes a row group has decoded: the largest of the first in the first file.

    Raises:
        RecordError: a file is no Parquet file, or has another schema than the first.
        PlanError: a column that is not there or has no conversion, or a value for null that is none of its values.
        SourceError, OSError: a file cannot be read.
    """

    def __init__(
        self, storage: Storage, columns: Sequence[str] | None, nulls: Any, max_group_bytes: int, files: Sequence[int] | None = None
    ) -> None:
        self._storage, self._max_group_bytes = storage, max_group_bytes
        self._begin()
        self.names = {file: storage.name(file) for file in (range(len(storage)) if files is None else files)}
        self._hive = dict(zip(self.names, hive_values(self.names.values()), strict=True))
        self._footer_crcs: dict[int, int] = {}
        places: list[tuple[int, int]] = []
        counts: list[int] = []
        self.columns: tuple[ColumnForm, ...] = ()
        first: Any = None
        for file, name in self.names.items():
            footer = read_footer(storage, file)
            groups, schema = _counts(footer, name), self._schema(file, footer)
            found = columns_of(schema, columns, f"read_parquet, {name!r}")
            first = first or (file, name, footer, schema)
            self.columns = found if file == first[0] else common_columns(self.columns, found, first[1], name)
            self._footer_crcs[file] = footer.crc32
            places += [(file, group) for group, count in enumerate(groups) if count]
            counts += [count for count in groups if count]
        one, name, footer, schema = first
        self.fills = fills_of(nulls, schema, self.columns, f"read_parquet, {name!r}")
        self._idle.append(self._reader(one, footer))
        self._places = np.array(places, np.int32).reshape(-1, 2)
        self.group_starts = np.cumsum([0, *counts], dtype=np.int64)
        self.crc32 = zlib.crc32(np.array(list(self._footer_crcs.values()), "<u4").tobytes())
        if any(self._hive.values()) or self.fills:
            self.crc32 = zlib.crc32(repr((list(self._hive.values()), self.fills)).encode("utf-8", "surrogateescape"), self.crc32)
        groups = [group for file, group in self._places[:64].tolist() if file == one]
        self.group_bytes = max((self._idle[0].layout(group).num_bytes for group in groups), default=1)

    def _schema(self, file: int, footer: Footer) -> Any:
        """Return the schema of a file, with the columns that its folders give."""
        pa, _ = pyarrow()
        name = self.names[file]
        try:
            schema = arrow_schema(footer)
        except (pa.ArrowException, OSError, ValueError, KeyError) as error:
            raise RecordError(
                f"the schema of {name!r} cannot be read: {one_line(error)}", where=f"read_parquet, {name!r}", fix="write the file again"
            ) from error
        for key, scalar in self._hive[file].items():
            if schema.get_field_index(key) < 0:
                schema = schema.append(pa.field(key, scalar.type))
        return schema

    def _reader(self, file: int, footer: Footer, coded: frozenset[int] = frozenset()) -> ParquetReader:
        return ParquetReader(self._storage, file, footer, self.columns, coded)

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in self.__dict__.items() if key not in _OWN}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._begin()

    def _begin(self) -> None:
        """Make what each process has of its own."""
        self._locks = OwnLocks()
        self._idle: list[ParquetReader] = []
        self._scratches: list[Scratch] = []
        self._num_working, self._num_alone = 0, _ALONE

    def __len__(self) -> int:
        return len(self._places)

    def by_file(self) -> tuple[Ints, dict[str, Any]]:
        """See `ParquetSource.by_file`."""
        columns = [[column.name, column.words] for column in self.columns]
        groups = np.searchsorted(self._places[:, 0], [*self.names, len(self._storage)])
        return self.group_starts[groups], {"kind": "parquet", "columns": columns, "fills": repr(self.fills)}

    def describe(self, number: int) -> str:
        """Name row group and file."""
        file, group = self._places[number].tolist()
        return f"row group {group} of {self._storage.name(file)!r}"

    def load(self, number: int) -> RowGroup:
        """Read and decode a row group: one read of the storage; decoding in Arrow's threads too while no other thread does it.

        Raises:
            RecordError: its bytes are not what they should be, or would be more than `max_group_bytes` decoded.
            IndexStale: the file was replaced.
            SourceError, OSError: it cannot be read.
        """
        file, group = self._places[number].tolist()
        reader = self._take_reader(file)
        try:
            layout = reader.layout(group)
            if layout.coded != reader.coded:
                reader = self._reader(file, reader.footer, layout.coded)
            with self._working(sum(end - begin for begin, end in layout.spans)) as (scratch, is_alone):
                return self._decoded(reader, number, group, layout, scratch, is_alone)
        finally:
            self._give_back(reader)

    def _decoded(self, reader: ParquetReader, number: int, group: int, layout: Layout, scratch: Scratch, is_alone: bool) -> RowGroup:
        pa, _ = pyarrow()
        where = f"read_parquet, {self._storage.name(reader.file)!r}, row group {group}"
        if layout.num_bytes > self._max_group_bytes:
            raise RecordError(
                f"{self.describe(number)} would take {layout.num_bytes} bytes decoded, more than max_group_bytes={self._max_group_bytes}",
                where=where,
                fix="write smaller row groups, choose fewer columns, or raise max_group_bytes if the file is trusted",
            )
        count = int(self.group_starts[number + 1] - self.group_starts[number])
        reader.fetch(layout.spans, scratch)
        try:
            # Where other threads decode other groups, Arrow's would only be in their way.
            table = reader.table(group, num_parts=layout.num_parts, most_bytes=self._max_group_bytes, use_threads=is_alone)
            if table.num_rows != count and table.num_columns:
                raise pa.ArrowInvalid(f"{table.num_rows} rows where {count} should be")
            for name, scalar in self._hive[reader.file].items():
                if name not in table.column_names:
                    table = table.append_column(name, pa.repeat(scalar, count))
            return row_group(table, self.columns, self.fills)
        except (pa.ArrowException, OSError, ValueError, OverflowError) as error:
            if isinstance(error, PenstockError) and not isinstance(error, RecordError):
                raise
            if isinstance(error, OSError) and error.errno is not None:  # the system's; what Arrow says of bad bytes has no number
                raise
            read_footer(self._storage, reader.file, reader.footer.crc32)
            raise RecordError(
                f"{self.describe(number)} cannot be decoded: {error.what if isinstance(error, RecordError) else one_line(error)}",
                where=where,
                fix="write the file again; to go on without the rows of this group give feed(on_error=ps.Skip())",
            ) from error
        finally:
            reader.forget()

    @contextlib.contextmanager
    def _working(self, num_bytes: int) -> Iterator[tuple[Scratch, bool]]:
        """Lend working memory for so many bytes of one group, and say whether one thread alone has been decoding for a while."""
        with self._locks.own():
            if self._locks.is_new():
                self._num_working = 0
            self._num_alone = 0 if self._num_working else self._num_alone + 1
            self._num_working += 1
            is_alone = self._num_alone > _ALONE
            scratch = self._scratches.pop() if self._scratches else Scratch()
        try:
            yield scratch, is_alone
        finally:
            with self._locks.own():
                self._num_working -= 1
                if num_bytes <= _MOST_SCRATCH_BYTES:
                    self._scratches.append(scratch)

    def _take_reader(self, file: int) -> ParquetReader:
        with self._locks.own():
            for place in reversed(range(len(self._idle))):
                if self._idle[place].file == file:
                    return self._idle.pop(place)
        footer = read_footer(self._storage, file, self._footer_crcs[file])
        return self._reader(file, footer)

    def _give_back(self, reader: ParquetReader) -> None:
        with self._locks.own():
            self._idle.append(reader)
            while len(self._idle) > 1 and (
                len(self._idle) > _MOST_READERS or sum(one.metadata_bytes for one in self._idle) > _MOST_METADATA_BYTES
            ):
                self._idle.pop(0)


def _counts(footer: Footer, name: str) -> list[int]:
    """Return the rows of each row group."""
    groups = [footer.metadata.row_group(group).num_rows for group in range(footer.metadata.num_row_groups)]
    if min(groups, default=0) < 0 or sum(groups) != footer.metadata.num_rows:
        raise RecordError(
            f"{name!r} has {footer.metadata.num_rows} rows by its footer, and {sum(groups)} in its row groups",
            where=f"read_parquet, {name!r}",
            fix="write the file again",
        )
    return groups


# -- decoded parts of files in memory, each decoded by one thread while others wait for it ----------------------------------------

_MOST_FAILURES = 1024
_NUM_ORDERED = 3  # so many in a row are an order


class Chunks:
    """Chunks by number. The one used longest ago goes first; the newest stays even when it alone is too large.

    A chunk whose bytes are not what they should be (RecordError) is remembered as bad and not decoded again, which would be once for each
    of its elements. Any other error is forgotten, so that a retry reads again. Thread-safe; waits only for another thread that decodes. A
    forked process has what was kept, and decodes again what threads of its parent are decoding.

    Args:
        load: decodes a chunk.
        count: of the chunks that there are.
        max_bytes: of the chunks that are kept.
    """

    def __init__(self, load: Callable[[int], RowGroup], count: int, max_bytes: int) -> None:
        self._load, self._count, self._max_bytes = load, count, max_bytes
        self._locks = OwnLocks()
        self._kept: dict[int, RowGroup] = {}  # the one used longest ago first
        self._num_bytes = 0
        self._flights: dict[int, threading.Event] = {}
        self._failures: dict[int, RecordError] = {}
        self._order: deque[int] = deque(maxlen=_NUM_ORDERED)  # what was decoded last
        self._most_bytes = 0  # of any chunk up to now
        self.num_loaded = 0

    def __reduce__(self) -> tuple[Any, ...]:
        return Chunks, (self._load, self._count, self._max_bytes)

    def get(self, number: int) -> RowGroup:
        """Return a chunk; decode it, or wait for the thread that does.

        Raises:
            RecordError: its bytes are bad.
            Exception: what `load` raises, as it is.
        """
        while True:
            with self._locks.own():
                self._settle()
                chunk = self._kept.pop(number, None)
                if chunk is not None:
                    self._kept[number] = chunk
                    return chunk
                failure = self._failures.get(number)
                if failure is not None:
                    raise RecordError(failure.what, where=failure.where, fix=failure.fix)
                awaited = self._flights.get(number)
                wanted = number if awaited is None else self._foreseen(number)
                flight = None if wanted is None else self._take_off(wanted)
            if awaited is None:
                assert flight is not None
                return self._loaded(number, flight)
            if wanted is not None and flight is not None:
                # The error is raised to the thread that asks for the chunk: RecordError is remembered, others come again then.
                with contextlib.suppress(PenstockError, OSError):
                    self._loaded(wanted, flight)
            awaited.wait()

    def _take_off(self, number: int) -> threading.Event:
        self._order.append(number)
        flight = self._flights[number] = threading.Event()
        return flight

    def _foreseen(self, number: int) -> int | None:
        """Return what will be asked for soon, if chunks are asked for in order and there is room: to decode instead of waiting."""
        if not self._kept or max(self._order) - min(self._order) != len(self._order) - 1:
            return None
        wanted = max(self._order) + 1
        if wanted >= self._count or any(wanted in there for there in (self._kept, self._flights, self._failures)):
            return None
        return wanted if (wanted - number + 2) * self._most_bytes <= self._max_bytes else None

    def soonest(self, numbers: Sequence[int]) -> int:
        """Return which of some chunks to ask for first: one that is there, else one that no thread decodes, else the first."""
        with self._locks.own():
            self._settle()
            for number in numbers:
                if number in self._kept:
                    return number
            return next((number for number in numbers if number not in self._flights), numbers[0])

    def _settle(self) -> None:
        """In a forked process, wait for no thread that is not there; a chunk may have been on its way in or out."""
        if self._locks.is_new():
            self._flights.clear()
            self._num_bytes = sum(chunk.nbytes for chunk in self._kept.values())

    def _loaded(self, number: int, flight: threading.Event) -> RowGroup:
        chunk = failure = None
        try:
            chunk = self._load(number)
        except RecordError as error:
            failure = error
            raise
        finally:
            with self._locks.own():
                del self._flights[number]
                if failure is not None and len(self._failures) < _MOST_FAILURES:
                    self._failures[number] = failure
                if chunk is not None:
                    self._keep(number, chunk)
            flight.set()
        return chunk

    def _keep(self, number: int, chunk: RowGroup) -> None:
        self.num_loaded += 1
        self._kept[number] = chunk
        self._num_bytes += chunk.nbytes
        self._most_bytes = max(self._most_bytes, chunk.nbytes)
        while self._num_bytes > self._max_bytes and len(self._kept) > 1:
            oldest = next(iter(self._kept))
            self._num_bytes -= self._kept.pop(oldest).nbytes
