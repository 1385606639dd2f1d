"""Parquet files: footers, what stands for null, and readers of row groups. Needs pyarrow."""

from __future__ import annotations

import math
import zlib
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from penstock._contracts.storage import Storage
from penstock._contracts.transform import Scratch
from penstock.errors import IndexStale, PlanError, RecordError
from penstock.formats.arrow import ColumnForm, column_values, common_form, one_line, plain_types, pyarrow, storage_type, type_at

_MAGIC = b"PAR1"
_TAIL_BYTES = 8
MAX_FOOTER_BYTES = 512 << 20


class Footer(NamedTuple):
    """The end of one file.

    Attributes:
        metadata: pyarrow's FileMetaData.
        offset: where it begins, the end of the data.
        crc32: of its bytes.
    """

    metadata: Any
    offset: int
    crc32: int


def read_footer(storage: Storage, file: int, known_crc32: int | None = None) -> Footer:
    """Read and check the end of a file.

    Args:
        storage: the files.
        file: which.
        known_crc32: of the footer as it was; another one is an IndexStale.

    Raises:
        RecordError: it is no Parquet file, or not all of one.
        IndexStale: it is not the file that it was.
        SourceError, OSError: it cannot be read.
    """
    name, size = storage.name(file), storage.size(file)
    if size < 3 * len(_MAGIC):
        raise _no_parquet(name, f"it has {size} bytes, and a Parquet file has at least 12")
    tail = storage.read(file, size - _TAIL_BYTES, _TAIL_BYTES)
    length = int.from_bytes(tail[:4], "little")
    if known_crc32 is not None and (tail[4:] != _MAGIC or length > size - _TAIL_BYTES):
        raise _replaced(name)
    if tail[4:] == b"PARE":
        raise _no_parquet(name, "its footer is encrypted", "decrypt it; encrypted files are not read")
    if tail[4:] != _MAGIC:
        raise _no_parquet(name, f"it ends with {tail[4:]!r} where {_MAGIC!r} marks a footer: another format, or a file that was cut")
    if length > size - _TAIL_BYTES - len(_MAGIC):
        raise _no_parquet(name, f"its footer would have {length} bytes, and the file has {size}")
    if length > MAX_FOOTER_BYTES:
        raise _no_parquet(name, f"its footer has {length} bytes, more than {MAX_FOOTER_BYTES}", "write fewer columns or larger row groups")
    if (head := storage.read(file, 0, len(_MAGIC))) != _MAGIC:
        raise _no_parquet(name, f"it begins with {head!r}, not with {_MAGIC!r}")
    data = storage.read(file, size - _TAIL_BYTES - length, length + _TAIL_BYTES)
    crc32 = zlib.crc32(data)
    if known_crc32 not in (None, crc32):
        raise _replaced(name)
    pa, pq = pyarrow()
    try:
        metadata = pq.read_metadata(pa.BufferReader(_MAGIC + data))
    except (pa.ArrowException, OSError, ValueError) as error:
        raise _no_parquet(name, f"its footer cannot be read: {one_line(error)}") from error
    return Footer(metadata=metadata, offset=size - _TAIL_BYTES - length, crc32=crc32)


def _replaced(name: str) -> IndexStale:
    return IndexStale(
        f"{name!r} has another footer than when the dataset was made: it was replaced",
        where=f"read_parquet, {name!r}",
        fix="do not change files while they are read; build the dataset again",
    )


def _no_parquet(name: str, why: str, fix: str = "take it out of the pattern, or write it again") -> RecordError:
    return RecordError(f"{name!r} is no whole Parquet file: {why}", where=f"read_parquet, {name!r}", fix=fix)


def common_columns(first: Sequence[ColumnForm], other: Sequence[ColumnForm], first_name: str, other_name: str) -> tuple[ColumnForm, ...]:
    """Return columns that hold the values of two files as they are: int64 for int32 beside int64.

    Raises:
        RecordError: there are none, naming the first difference.
    """
    by_name = {column.name: column for column in other}
    out, what = [], ""
    for column in first:
        found = by_name.pop(column.name, None)
        both = found and common_form(column, found)
        if both:
            out.append(both)
            continue
        what = f"it has no column {column.name!r}, which is {column.words} there"
        if found is not None:
            what = f"the column {column.name!r} is {found.words}, and {column.words} there"
        break
    if not what and by_name:
        extra = next(iter(by_name.values()))
        what = f"it has a column {extra.name!r} ({extra.words}) that is not there"
    if what:
        raise RecordError(
            f"{other_name!r} has another schema than {first_name!r}: {what}",
            where=f"read_parquet, {other_name!r}",
            fix="write both with one schema, or read them as two datasets",
        )
    return tuple(out)


def arrow_schema(footer: Footer) -> Any:
    """Return pyarrow's schema of a file, with INT96 timestamps in microseconds.

    Raises:
        pyarrow.ArrowException, OSError, ValueError, KeyError: it cannot be read.
    """
    pa, pq = pyarrow()
    empty = pa.BufferReader(b"")
    return pq.ParquetFile(empty, metadata=footer.metadata, coerce_int96_timestamp_unit="us", arrow_extensions_enabled=False).schema_arrow


# -- what stands for null in a column: an error, None, or a value that the column holds as it is -----------------------------------


def fills_of(nulls: Any, schema: Any, columns: Sequence[ColumnForm], where: str) -> dict[str, Any]:
    """Return what stands for null, by column: None or a value as the column gives it. In other columns a null is an error of its row.

    Args:
        nulls: "error", "none", or a value, which stands in the columns that hold it; or a dict of these by column.
        schema: pyarrow's.
        columns: those that are read.
        where: the call and the file, for errors.

    Raises:
        PlanError: a column is not there, or does not hold the value as it is; or no column does.
    """
    by_name = {column.name: column for column in columns}
    wanted: Mapping[str, Any] = nulls if isinstance(nulls, Mapping) else dict.fromkeys(by_name, nulls)
    out: dict[str, Any] = {}
    refused: dict[str, tuple[str, str]] = {}
    for name, value in wanted.items():
        column = by_name.get(name)
        if column is not None and isinstance(value, str) and value in ("error", "none"):
            out.update({name: None} if value == "none" else {})
        elif column is None or not column.is_single:
            refused[name] = f"{name!r} is no column of single values that is read", "name columns of numbers or strings"
        elif (element := _element(value, kind := _kind(schema, column), column)) is None:
            refused[name] = f"{value!r} is no value of the column, which is {kind}", "give one that it holds as it is"
        else:
            out[name] = element
    # One value for all stands in the columns that hold it.
    for name, (what, fix) in refused.items() if wanted is nulls or not out else ():
        raise PlanError(what, where=f"{where}, nulls[{name!r}]", fix=fix)
    return out


def _kind(schema: Any, column: ColumnForm) -> Any:
    """Return the type of Arrow that holds what the column has in all files."""
    pa, _ = pyarrow()
    kind = type_at(schema, column.path or (column.name,))
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    if column.dtype and (np.dtype(column.dtype).kind in "iuf" or pa.types.is_null(kind)):
        return pa.from_numpy_dtype(np.dtype(column.dtype))
    return {"str": pa.string(), "bytes": pa.binary()}.get(column.form, kind) if pa.types.is_null(kind) else kind


def _element(value: Any, kind: Any, column: ColumnForm) -> Any:
    """Return a value as the column would give it; None if the type does not hold it as it is."""
    pa, _ = pyarrow()
    try:
        scalar = pa.scalar(value, kind)
        if scalar.is_valid and _is_kept(value, scalar):
            return column_values(pa.array([value], kind), replace(column, path=())).take(np.array([0]))[0]
    except (pa.ArrowException, ValueError, TypeError, OverflowError):
        pass
    return None


def _is_kept(value: Any, scalar: Any) -> bool:
    """Tell whether Arrow made a scalar that is the value given: it cuts off fractions, hours and zones without a word.

    Only a float may be rounded, to the nearest that the type has, if that is neither an infinity nor a zero made of another number.
    """
    pa, _ = pyarrow()
    if pa.types.is_temporal(scalar.type):
        given = pa.scalar(value)
        if not pa.types.is_temporal(given.type) or (getattr(given.type, "tz", None) and not getattr(scalar.type, "tz", None)):
            return False
        return bool(scalar.cast(given.type).equals(given))
    given, kept = value.item() if isinstance(value, np.generic) else value, scalar.as_py()
    if isinstance(given, float) and pa.types.is_floating(scalar.type):
        return all(of(given) == of(float(kept)) for of in (math.isnan, math.isinf, bool))
    return isinstance(given, bool) == isinstance(kept, bool) and bool(kept == given)


# -- one file at a time -----------------------------------------------------------------------------------------------------------

_GAP_BYTES = 64 << 10  # a shorter gap between two columns is read with them: a request costs more
_WIDTHS = {"BOOLEAN": 1, "INT32": 4, "INT64": 8, "INT96": 12, "FLOAT": 4, "DOUBLE": 8}
_LARGE_BYTES = 1 << 30  # a column from here on is read in parts: pyarrow makes no struct or list of 2 GiB
_PART_BYTES = 256 << 20


class Layout(NamedTuple):
    """The place of a row group in its file.

    Attributes:
        spans: (begin, end) of its bytes, ascending; those with short gaps between them joined.
        num_bytes: what its columns take decoded, at most about.
        coded: leaves of strings that are to be read as numbers of a dictionary: as strings, a small page may be terabytes.
        num_parts: in how many it is to be read.
    """

    spans: list[tuple[int, int]]
    num_bytes: int
    coded: frozenset[int]
    num_parts: int


class ParquetReader:
    """One open file, used by one thread at a time.

    Raises:
        RecordError: the footer contradicts itself about a column.
    """

    def __init__(self, storage: Storage, file: int, footer: Footer, columns: Sequence[ColumnForm], coded: frozenset[int]) -> None:
        self.file, self.footer, self.coded = file, footer, coded
        self.metadata_bytes = storage.size(file) - footer.offset
        self._storage, self._spans = storage, _Spans(storage, file)
        # By number: names with dots may be those of a field in a struct as well.
        schema = footer.metadata.schema.to_arrow_schema()
        starts, place = {}, 0
        for number, field in enumerate(schema):
            starts[field.name] = place, number
            place += len(_leaves(field.type))
        self._leaves = []
        for column in columns:
            path = column.path or (column.name,)
            if path[0] in starts:  # else the name of a folder says what it is
                place, number = starts[path[0]]
                skipped, kind = _inside(schema.field(number).type, path[1:])
                for leaf, of in enumerate(_leaves(kind), place + skipped):
                    self._leaves.append((column.name, leaf, _width(footer.metadata.schema.column(leaf), of)))
        self._numbers = sorted({leaf for _, leaf, _ in self._leaves})
        self._file = self._opened(self._spans)
        self._check_chunks()

    def _opened(self, spans: _Spans, *, pre_buffer: bool = False) -> Any:
        pa, pq = pyarrow()
        return pq.ParquetFile(
            pa.PythonFile(spans, mode="r"),
            metadata=self.footer.metadata,
            read_dictionary=sorted(self.coded),
            page_checksum_verification=True,
            arrow_extensions_enabled=False,
            pre_buffer=pre_buffer,
            coerce_int96_timestamp_unit="us",
        ).reader

    def _check_chunks(self) -> None:
        """Have pyarrow look at what the footer says of each column of each row group, where an error of it can be caught.

        What contradicts itself, such as statistics of another length than the type has, is a C++ exception of `row_group(...).column(...)`,
        which ends the process. `read_row_groups` catches it; with `pre_buffer` it looks at all before it reads the first. It costs 120 us
        a file and 0.4 us for each column of a group.
        """
        pa, _ = pyarrow()
        name, metadata = self._storage.name(self.file), self.footer.metadata
        empty = _Empty(self._storage, self.file)
        try:
            reader = self._opened(empty, pre_buffer=True)
            reader.read_row_groups(list(range(metadata.num_row_groups)), column_indices=self._numbers, use_threads=False)
        except (pa.ArrowException, OSError, ValueError) as error:
            if empty.was_read:
                return
            raise RecordError(
                f"the footer of {name!r} contradicts itself: {one_line(error)}", where=f"read_parquet, {name!r}", fix="write the file again"
            ) from error

    def layout(self, group: int) -> Layout:
        """Say where the columns of a row group lie, and what they take decoded.

        Raises:
            RecordError: a column lies outside its file.
        """
        data = self.footer.metadata.row_group(group)
        spans, coded, num_bytes, largest = [], [], 0, 0
        for name, leaf, width in self._leaves:
            chunk = data.column(leaf)
            count, begin, length = chunk.num_values, chunk.data_page_offset, chunk.total_compressed_size
            num_bytes += count * width if width else chunk.total_uncompressed_size + 8 * count
            largest = max(largest, 0 if width else chunk.total_uncompressed_size)
            if chunk.has_dictionary_page:
                if 0 < chunk.dictionary_page_offset < begin:
                    begin = chunk.dictionary_page_offset
                if not width and chunk.total_uncompressed_size < _LARGE_BYTES:
                    coded.append(leaf)
            if begin < 4 or length < 0 or begin + length > self.footer.offset or count < 0:
                file = self._storage.name(self.file)
                raise RecordError(
                    f"the column {name!r} of row group {group} would lie at {begin} with {length} bytes and {count} values, outside the "
                    f"{self.footer.offset} bytes of data of {file!r}",
                    where=f"read_parquet, {file!r}, row group {group}",
                    fix="write the file again",
                )
            spans.append((begin, begin + length))
        num_parts = 1 if largest < _LARGE_BYTES else -(-largest // _PART_BYTES)
        return Layout(spans=_joined(spans), num_bytes=num_bytes, coded=frozenset(coded), num_parts=num_parts)

    def fetch(self, spans: Sequence[tuple[int, int]], scratch: Scratch) -> None:
        """Read spans into working memory, with one call of the storage. It is needed until `forget`.

        Raises:
            SourceError, OSError: they cannot be read.
        """
        self._spans.fill(spans, scratch)

    def table(self, group: int, *, num_parts: int = 1, most_bytes: int = 1 << 62, use_threads: bool = False) -> Any:
        """Decode the columns of a row group, which pyarrow returns as a table in the order of the file.

        Args:
            group: number of the row group.
            num_parts: in how many to read it.
            most_bytes: of all parts.
            use_threads: Arrow's threads may help.

        Raises:
            pyarrow.ArrowException, OSError: they cannot be decoded.
            SourceError: what was not fetched cannot be read.
        """
        pa, _ = pyarrow()
        if num_parts == 1:
            return self._file.read_row_group(group, column_indices=self._numbers, use_threads=use_threads)
        rows = -(-self.footer.metadata.row_group(group).num_rows // num_parts)
        batches, num_bytes = [], 0
        for batch in self._file.iter_batches(rows, [group], self._numbers, use_threads):
            batches.append(batch)
            num_bytes += batch.nbytes
            if num_bytes > most_bytes:
                raise pa.ArrowCapacityError(f"more than {most_bytes} bytes")
        return pa.Table.from_batches(batches)

    def forget(self) -> None:
        """Let go of the bytes."""
        self._spans.fill([], None)


class _Spans:
    """The file object that pyarrow reads: the spans that were read beforehand, and the storage for anything else."""

    closed = False

    def __init__(self, storage: Storage, file: int) -> None:
        self._storage, self._file, self._size = storage, file, storage.size(file)
        self._place = 0
        self._begins: list[int] = []
        self._parts: list[memoryview] = []

    def fill(self, spans: Sequence[tuple[int, int]], scratch: Scratch | None) -> None:
        """Read spans (begin, end), ascending."""
        self._parts, self._begins = [], [begin for begin, _ in spans]
        if spans:
            offsets = np.array(self._begins, np.int64)
            lengths = np.array([end for _, end in spans], np.int64) - offsets
            data, starts = self._storage.read_spans(np.full(len(spans), self._file, np.int64), offsets, lengths, scratch)
            view = data.data.toreadonly()
            self._parts = [view[start : start + length] for start, length in zip(starts.tolist(), lengths.tolist(), strict=True)]

    def read(self, count: int = -1) -> memoryview | bytes:
        """Return the next bytes, without copying those that are there."""
        begin = self._place
        end = self._size if count < 0 else min(begin + count, self._size)
        self._place = max(begin, end)
        place = bisect_right(self._begins, begin) - 1
        if place >= 0 and end <= self._begins[place] + len(self._parts[place]):
            return self._parts[place][begin - self._begins[place] : end - self._begins[place]]
        return self._storage.read(self._file, begin, end - begin) if end > begin else b""

    read_buffer = read

    def seek(self, offset: int, whence: int = 0) -> int:
        """Move."""
        self._place = offset + (0, self._place, self._size)[whence]
        return self._place

    def tell(self) -> int:
        """Return where it is."""
        return self._place

    def close(self) -> None:
        """Do nothing: there is nothing open."""


class _Empty(_Spans):
    """A file that gives no data and knows whether it was asked for some. It raises nothing: pyarrow would keep that for ever."""

    was_read = False

    def read(self, count: int = -1) -> memoryview | bytes:
        """Return nothing."""
        self.was_read = True
        return b""

    read_buffer = read


def _joined(spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Join spans that overlap or have short gaps."""
    out: list[tuple[int, int]] = []
    for begin, end in sorted(spans):
        if out and begin - out[-1][1] <= _GAP_BYTES:
            out[-1] = (out[-1][0], max(end, out[-1][1]))
        else:
            out.append((begin, end))
    return out


def _leaves(kind: Any) -> list[Any]:
    """Return the types of the columns of the file that a column of the schema has."""
    if kind.id in plain_types():
        return [kind]
    types = pyarrow()[0].types
    kind = storage_type(kind)
    if types.is_map(kind):
        return _leaves(kind.key_type) + _leaves(kind.item_type)
    if types.is_struct(kind):
        return [leaf for field in kind for leaf in _leaves(field.type)]
    return _leaves(kind.value_type) if types.is_nested(kind) else [kind]


def _inside(kind: Any, path: Sequence[str]) -> tuple[int, Any]:
    """Return a field of a struct: how many leaves are before it, and its type."""
    skipped = 0
    for name in path:
        kind = storage_type(kind)
        place = kind.get_field_index(name)
        skipped += sum(len(_leaves(kind.field(before).type)) for before in range(place))
        kind = kind.field(place).type
    return skipped, kind


def _width(leaf: Any, kind: Any) -> int:
    """Return how many bytes a value takes decoded, at most, with its place in a list; 0 where its length says it."""
    width = leaf.length if leaf.physical_type == "FIXED_LEN_BYTE_ARRAY" else _WIDTHS.get(leaf.physical_type, 0)
    try:
        return width and max(width, kind.bit_width // 8) + 4 * leaf.max_repetition_level
    except ValueError:  # of a dictionary, whatever it holds
        return width
