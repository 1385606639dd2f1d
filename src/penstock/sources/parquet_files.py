"""Row groups of a list of Parquet files: where they lie, and their bytes read and decoded."""

from __future__ import annotations

import contextlib
import math
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from penstock._contracts.forking import OwnLocks
from penstock._contracts.storage import Storage
from penstock._contracts.transform import Scratch
from penstock.errors import PenstockError, PlanError, RecordError
from penstock.formats.parquet import (
    Column,
    Footer,
    check_unchanged,
    columns_of,
    one_line,
    pyarrow,
    read_footer,
    same_columns,
    storage_type,
)
from penstock.formats.parquet_reader import Layout, Reader
from penstock.formats.row_group import RowGroup, row_group

__all__ = ["ParquetFiles"]

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
        null_values: by column: what stands for null.
        max_group_bytes: bound on one decoded row group.

    Attributes:
        columns: what each is.
        group_starts: int64 [groups + 1], the first row of each row group that has rows, and the number of rows.
        crc32: check sum of all footers.
        group_bytes: about how many bytes a row group has decoded: the largest of the first in the first file.

    Raises:
        RecordError: a file is no Parquet file, or has another schema than the first.
        PlanError: a column that is not there or has no conversion, or a value for null that is none of its values.
        SourceError, OSError: a file cannot be read.
    """

    def __init__(self, storage: Storage, columns: Sequence[str] | None, null_values: Mapping[str, Any], max_group_bytes: int) -> None:
        self._storage, self._null_values, self._max_group_bytes = storage, dict(null_values), max_group_bytes
        self._begin()
        self._footer_crcs: list[int] = []
        places: list[tuple[int, int]] = []
        counts: list[int] = []
        self.columns: tuple[Column, ...] = ()
        for file in range(len(storage)):
            footer = read_footer(storage, file)
            name, schema = storage.name(file), _schema(footer, storage.name(file))
            found = columns_of(schema, columns, f"read_parquet, {name!r}")
            if file:
                same_columns(self.columns, found, storage.name(0), name)
            else:
                self.columns = found
                _check_null_values(self._null_values, schema, found, name)
            groups = [footer.metadata.row_group(group).num_rows for group in range(footer.metadata.num_row_groups)]
            if min(groups, default=0) < 0 or sum(groups) != footer.metadata.num_rows:
                raise RecordError(
                    f"{name!r} has {footer.metadata.num_rows} rows by its footer, and {sum(groups)} in its row groups",
                    where=f"read_parquet, {name!r}",
                    fix="write the file again",
                )
            self._footer_crcs.append(footer.crc32)
            places += [(file, group) for group, count in enumerate(groups) if count]
            counts += [count for count in groups if count]
            if file == 0:
                self._idle.append(Reader(storage, file, footer, self.columns, frozenset()))
        self._places = np.array(places, np.int32).reshape(-1, 2)
        self.group_starts = np.zeros(len(counts) + 1, np.int64)
        np.cumsum(counts, out=self.group_starts[1:])
        self.crc32 = zlib.crc32(np.array(self._footer_crcs, "<u4").tobytes())
        groups = [group for file, group in self._places[:64].tolist() if file == 0]
        self.group_bytes = max((self._idle[0].layout(group).num_bytes for group in groups), default=1)

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in self.__dict__.items() if key not in _OWN}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._begin()

    def _begin(self) -> None:
        """Make what each process has of its own."""
        self._locks = OwnLocks()
        self._idle: list[Reader] = []
        self._scratches: list[Scratch] = []
        self._num_working, self._num_alone = 0, _ALONE

    def __len__(self) -> int:
        return len(self._places)

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
            if layout.coded != reader.coded_columns:
                reader = Reader(self._storage, file, reader.footer, self.columns, layout.coded)
            with self._working(sum(end - begin for begin, end in layout.spans)) as (scratch, is_alone):
                return self._decoded(reader, number, group, layout, scratch, is_alone)
        finally:
            self._give_back(reader)

    def _decoded(self, reader: Reader, number: int, group: int, layout: Layout, scratch: Scratch, is_alone: bool) -> RowGroup:
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
            table = reader.table(group, use_threads=is_alone)
            if table.num_rows != count or table.num_columns != len(self.columns):
                raise pa.ArrowInvalid(
                    f"{table.num_rows} rows of {table.num_columns} columns where {count} of {len(self.columns)} should be"
                )
            decoded = row_group(table, self.columns, self._null_values)
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
        check_unchanged(self._storage, reader.file, reader.footer)
        return decoded

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

    def _take_reader(self, file: int) -> Reader:
        with self._locks.own():
            for place in reversed(range(len(self._idle))):
                if self._idle[place].file == file:
                    return self._idle.pop(place)
        footer = read_footer(self._storage, file, self._footer_crcs[file])
        return Reader(self._storage, file, footer, self.columns, frozenset())

    def _give_back(self, reader: Reader) -> None:
        with self._locks.own():
            self._idle.append(reader)
            while len(self._idle) > 1 and (
                len(self._idle) > _MOST_READERS or sum(one.metadata_bytes for one in self._idle) > _MOST_METADATA_BYTES
            ):
                self._idle.pop(0)


def _schema(footer: Footer, name: str) -> Any:
    pa, _ = pyarrow()
    try:
        return footer.metadata.schema.to_arrow_schema()
    except (pa.ArrowException, OSError, ValueError, KeyError) as error:
        raise RecordError(
            f"the schema of {name!r} cannot be read: {one_line(error)}", where=f"read_parquet, {name!r}", fix="write the file again"
        ) from error


def _check_null_values(values: Mapping[str, Any], schema: Any, columns: Sequence[Column], name: str) -> None:
    pa, _ = pyarrow()
    scalars = {column.name for column in columns if column.is_single}
    for column, value in values.items():
        where = f"read_parquet, {name!r}, null_values[{column!r}]"
        if column not in scalars:
            raise PlanError(f"{column!r} is no column of single values that is read", where=where, fix="name columns of numbers or strings")
        kind = storage_type(schema.field(column).type)
        kind = kind.value_type if pa.types.is_dictionary(kind) else kind
        try:
            scalar = pa.scalar(value, kind)
            good = scalar.is_valid and _is_kept(value, scalar)
        except (pa.ArrowException, ValueError, TypeError, OverflowError):
            good = False
        if not good:
            raise PlanError(f"{value!r} is no value of the column, which is {kind}", where=where, fix="give one that it holds as it is")


def _is_kept(value: Any, scalar: Any) -> bool:
    """Tell whether Arrow made a scalar that is the value given: it cuts off fractions, hours and zones without a word.

    Only a float may be rounded, to the nearest that the type has, if that is neither an infinity nor a zero made of another number.
    """
    pa, _ = pyarrow()
    if pa.types.is_temporal(scalar.type):
        given = pa.scalar(value)
        if not pa.types.is_temporal(given.type) or (_zone(given.type) and not _zone(scalar.type)):
            return False
        return bool(scalar.cast(given.type).equals(given))
    given, kept = value.item() if isinstance(value, np.generic) else value, scalar.as_py()
    if isinstance(given, float) and pa.types.is_floating(scalar.type):
        return all(of(given) == of(float(kept)) for of in (math.isnan, math.isinf, bool))
    return isinstance(given, bool) == isinstance(kept, bool) and bool(kept == given)


def _zone(kind: Any) -> str | None:
    """Return the time zone of a type, if it has one."""
    zone: str | None = getattr(kind, "tz", None)
    return zone
