"""Parquet files: footers, what the values of a column are as elements, readers of row groups, and decoded row groups. Needs pyarrow.

A decoded row group has columns as NumPy arrays over Arrow's memory, and strings as Arrow arrays.
"""

from __future__ import annotations

import zlib
from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from penstock._contracts.storage import Storage
from penstock._contracts.transform import Scratch
from penstock.errors import IndexStale, MissingExtra, PlanError, RecordError
from penstock.kernels.columns import ColumnTable
from penstock.kernels.library import Ints

_MAGIC = b"PAR1"
_TAIL_BYTES = 8
_MIDDLE_BYTES = 32 << 10  # 15 us; the whole footer may be megabytes, and is looked at for each row group
MAX_FOOTER_BYTES = 512 << 20


@dataclass(frozen=True, slots=True)
class ColumnForm:
    """The form of a column in an element.

    Attributes:
        name: of the column and of the element's field.
        form: "array" (a number, a date or an array of a fixed shape), "ragged" (a one-dimensional array), "str" or "bytes".
        shape: of one value; () for a scalar.
        dtype: as NumPy writes it; "" for str and bytes.
    """

    name: str
    form: str
    shape: tuple[int, ...] = ()
    dtype: str = ""

    @property
    def is_single(self) -> bool:
        """Tell whether a value is one number, date or string: only for null among those can another value stand."""
        return self.form != "ragged" and not self.shape

    @property
    def words(self) -> str:
        """Say it as in `ds.spec()`, such as float32[3]."""
        if self.form in ("str", "bytes"):
            return self.form
        sizes = [None] if self.form == "ragged" else list(self.shape)
        return f"{np.dtype(self.dtype).name}{sizes}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Footer:
    """The end of one file.

    Attributes:
        metadata: pyarrow's FileMetaData.
        offset: where it begins, the end of the data.
        crc32: of its bytes.
        middle_crc32: of 32 KiB in its middle.
    """

    metadata: Any
    offset: int
    crc32: int
    middle_crc32: int


def pyarrow() -> tuple[Any, Any]:
    """Return the modules pyarrow and pyarrow.parquet.

    Raises:
        MissingExtra: it is not installed.
    """
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise MissingExtra(f"pyarrow cannot be imported: {error}", where="read_parquet()", fix="pip install 'penstock[parquet]'") from error
    return pyarrow, pyarrow.parquet


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
    offset = size - _TAIL_BYTES - length
    begin, count = _middle(offset, size)
    return Footer(metadata=metadata, offset=offset, crc32=crc32, middle_crc32=zlib.crc32(data[begin - offset : begin - offset + count]))


def check_unchanged(storage: Storage, file: int, footer: Footer) -> None:
    """Refuse a file whose footer is another one by now, as far as its middle says: statistics of columns stand there.

    Raises:
        IndexStale, SourceError, OSError: it is, or it cannot be read.
    """
    begin, length = _middle(footer.offset, storage.size(file))
    if zlib.crc32(storage.read(file, begin, length)) != footer.middle_crc32:
        raise _replaced(storage.name(file))


def _middle(begin: int, end: int) -> tuple[int, int]:
    length = min(end - begin, _MIDDLE_BYTES)
    return (begin + end - length) // 2, length


def _replaced(name: str) -> IndexStale:
    return IndexStale(
        f"{name!r} has another footer than when the dataset was made: it was replaced",
        where=f"read_parquet, {name!r}",
        fix="do not change files while they are read; build the dataset again",
    )


def _no_parquet(name: str, why: str, fix: str = "take it out of the pattern, or write it again") -> RecordError:
    return RecordError(f"{name!r} is no whole Parquet file: {why}", where=f"read_parquet, {name!r}", fix=fix)


def one_line(error: BaseException) -> str:
    """Return the first line of an error's text."""
    return str(error).partition("\n")[0]


def columns_of(schema: Any, names: Sequence[str] | None, where: str) -> tuple[ColumnForm, ...]:
    """Say what the values of columns are as elements.

    Args:
        schema: pyarrow's, of the file or table.
        names: the columns wanted, in this order; None for all.
        where: the call and the file, for errors.

    Raises:
        PlanError: a column is not there, or has a type that has no defined conversion.
    """
    seen = schema.names
    wanted = list(seen) if names is None else list(names)
    known = set(seen)
    for column in wanted:
        if column not in known:
            some = ", ".join(map(repr, seen[:8])) + (", ..." if len(seen) > 8 else "")
            raise PlanError(f"there is no column {column!r}", where=where, fix=f"choose from {some}")
    if len(known) < len(seen) or len(set(wanted)) < len(wanted):
        double = next(column for names in (seen, wanted) for column, count in Counter(names).items() if count > 1)
        raise PlanError(f"the column {double!r} stands twice", where=where, fix="give every column a name of its own")
    if not wanted:
        raise PlanError("there is no column to read", where=where, fix="give columns=None or names of columns")
    return tuple(_column(schema.field(column), where) for column in wanted)


def _column(field: Any, where: str) -> ColumnForm:
    pa, _ = pyarrow()
    kind = storage_type(field.type)
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if is_text(kind):
        return ColumnForm(field.name, "str")
    if is_bytes(kind):
        return ColumnForm(field.name, "bytes")
    shape: tuple[int, ...] = ()
    while pa.types.is_fixed_size_list(kind):
        shape = (*shape, kind.list_size)
        kind = storage_type(kind.value_type)
    if not shape and is_list(kind):
        dtype = _dtype(storage_type(kind.value_type))
        if dtype is not None:
            return ColumnForm(field.name, "ragged", (), dtype)
    dtype = _dtype(kind)
    if dtype is not None:
        return ColumnForm(field.name, "array", shape, dtype)
    raise PlanError(
        f"the column {field.name!r} is of the type {_short(field.type)}, which has no conversion to arrays, str or bytes",
        where=where,
        fix="leave it out with columns=[...], or of a table with drop_columns([...]), or write it as numbers, strings, or lists of numbers",
    )


def _short(kind: Any) -> str:
    text = str(kind)
    return text if len(text) <= 80 else text[:77] + "..."


def storage_type(kind: Any) -> Any:
    """Return what an extension type is stored as: what its metadata say is never interpreted."""
    pa, _ = pyarrow()
    while isinstance(kind, pa.BaseExtensionType):
        kind = kind.storage_type
    return kind


def is_text(kind: Any) -> bool:
    """Tell whether values are str."""
    types = pyarrow()[0].types
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def is_bytes(kind: Any) -> bool:
    """Tell whether values are bytes."""
    types = pyarrow()[0].types
    fixed = types.is_fixed_size_binary(kind) and not types.is_decimal(kind)
    return bool(types.is_binary(kind) or types.is_large_binary(kind) or types.is_binary_view(kind) or fixed)


def is_list(kind: Any) -> bool:
    """Tell whether values are lists of any length."""
    types = pyarrow()[0].types
    return bool(types.is_list(kind) or types.is_large_list(kind) or is_list_view(kind))


def is_list_view(kind: Any) -> bool:
    """Tell whether values are lists, each with a beginning and a size of its own."""
    types = pyarrow()[0].types
    return bool(types.is_list_view(kind) or types.is_large_list_view(kind))


def _dtype(kind: Any) -> str | None:
    """Return the dtype of a primitive type, None of any other."""
    types = pyarrow()[0].types
    if types.is_boolean(kind):
        return "|b1"
    if types.is_date(kind):
        return "<M8[D]" if types.is_date32(kind) else "<M8[ms]"
    if types.is_timestamp(kind):
        return f"<M8[{kind.unit}]"
    if types.is_duration(kind):
        return f"<m8[{kind.unit}]"
    if types.is_integer(kind) or types.is_floating(kind):
        return str(np.dtype(kind.to_pandas_dtype()).str)
    return None


def same_columns(first: Sequence[ColumnForm], other: Sequence[ColumnForm], first_name: str, other_name: str) -> None:
    """Refuse a file whose columns are not those of the first.

    Raises:
        RecordError: naming the first difference.
    """
    by_name = {column.name: column for column in other}
    what = ""
    for column in first:
        found = by_name.pop(column.name, None)
        if found is None:
            what = f"it has no column {column.name!r}, which is {column.words} there"
        elif found != column:
            what = f"the column {column.name!r} is {found.words}, and {column.words} there"
        if what:
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


# -- one file at a time -----------------------------------------------------------------------------------------------------------

_GAP_BYTES = 64 << 10  # a shorter gap between two columns is read with them: a request costs more
_WIDTHS = {"BOOLEAN": 1, "INT32": 4, "INT64": 8, "INT96": 12, "FLOAT": 4, "DOUBLE": 8}


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """The place of a row group in its file.

    Attributes:
        spans: (begin, end) of its bytes, ascending; those with short gaps between them joined.
        num_bytes: what its columns take decoded, at most about.
        coded: columns of strings that are to be read as numbers of a dictionary: as strings, a small page may be terabytes.
    """

    spans: list[tuple[int, int]]
    num_bytes: int
    coded: frozenset[str]


class ParquetReader:
    """One open file, used by one thread at a time.

    Raises:
        RecordError: the footer contradicts itself about a column.
    """

    def __init__(self, storage: Storage, file: int, footer: Footer, columns: Sequence[ColumnForm], coded_columns: frozenset[str]) -> None:
        pa, pq = pyarrow()
        self.file, self.footer, self.coded_columns = file, footer, coded_columns
        self.metadata_bytes = storage.size(file) - footer.offset
        self._storage, self._spans = storage, _Spans(storage, file)
        # By number: names with dots may be those of a field in a struct as well.
        leaves, place = {}, 0
        for field in footer.metadata.schema.to_arrow_schema():
            leaves[field.name] = place
            place += _num_leaves(field.type)
        self._file = pq.ParquetFile(
            pa.PythonFile(self._spans, mode="r"),
            metadata=footer.metadata,
            read_dictionary=sorted(leaves[name] for name in coded_columns),
            page_checksum_verification=True,
            arrow_extensions_enabled=False,
            pre_buffer=False,
        )
        widths = {}
        for column in columns:
            leaf = footer.metadata.schema.column(leaves[column.name])
            width = leaf.length if leaf.physical_type == "FIXED_LEN_BYTE_ARRAY" else _WIDTHS.get(leaf.physical_type, 0)
            widths[column.name] = max(width, np.dtype(column.dtype).itemsize if column.dtype else 0)
        self._leaves = [(column.name, leaves[column.name], widths[column.name], column.form) for column in columns]
        self._check_chunks()

    def _check_chunks(self) -> None:
        """Have pyarrow look at what the footer says of each column of each row group, where an error of it can be caught.

        What contradicts itself, such as statistics of another length than the type has, is a C++ exception of `row_group(...).column(...)`,
        which ends the process. `read_row_groups` catches it; with `pre_buffer` it looks at all before it reads the first. It costs 120 us
        a file and 0.4 us for each column of a group.
        """
        pa, pq = pyarrow()
        name, metadata = self._storage.name(self.file), self.footer.metadata
        empty = _Empty(self._storage, self.file)
        try:
            reader = pq.ParquetFile(
                pa.PythonFile(empty, mode="r"), metadata=metadata, pre_buffer=True, arrow_extensions_enabled=False
            ).reader
            leaves = [leaf for _, leaf, _, _ in self._leaves]
            reader.read_row_groups(list(range(metadata.num_row_groups)), column_indices=leaves, use_threads=False)
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
        spans, coded, num_bytes = [], [], 0
        for name, leaf, width, form in self._leaves:
            chunk = data.column(leaf)
            count, begin, length = chunk.num_values, chunk.data_page_offset, chunk.total_compressed_size
            num_bytes += count * (width + 4 * (form == "ragged")) if width else chunk.total_uncompressed_size + 8 * count
            if chunk.has_dictionary_page:
                if 0 < chunk.dictionary_page_offset < begin:
                    begin = chunk.dictionary_page_offset
                if form in ("str", "bytes"):
                    coded.append(name)
            if begin < 4 or length < 0 or begin + length > self.footer.offset or count < 0:
                file = self._storage.name(self.file)
                raise RecordError(
                    f"the column {name!r} of row group {group} would lie at {begin} with {length} bytes and {count} values, outside the "
                    f"{self.footer.offset} bytes of data of {file!r}",
                    where=f"read_parquet, {file!r}, row group {group}",
                    fix="write the file again",
                )
            spans.append((begin, begin + length))
        return Layout(spans=_joined(spans), num_bytes=num_bytes, coded=frozenset(coded))

    def fetch(self, spans: Sequence[tuple[int, int]], scratch: Scratch) -> None:
        """Read spans into working memory, with one call of the storage. It is needed until `forget`.

        Raises:
            SourceError, OSError: they cannot be read.
        """
        self._spans.fill(spans, scratch)

    def table(self, group: int, *, use_threads: bool = False) -> Any:
        """Decode the columns of a row group, which pyarrow returns as a table in the order of the file.

        Args:
            group: number of the row group.
            use_threads: Arrow's threads may help.

        Raises:
            pyarrow.ArrowException, OSError: they cannot be decoded.
            SourceError: what was not fetched cannot be read.
        """
        return self._file.reader.read_row_group(group, column_indices=[leaf for _, leaf, _, _ in self._leaves], use_threads=use_threads)

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

    def size(self) -> int:
        """Return the bytes of the file."""
        return self._size

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def writable(self) -> bool:
        """Return False."""
        return False

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


def _num_leaves(kind: Any) -> int:
    """Count the columns of the file that a column of the schema has."""
    types = pyarrow()[0].types
    kind = storage_type(kind)
    if types.is_map(kind):
        return _num_leaves(kind.key_type) + _num_leaves(kind.item_type)
    if types.is_struct(kind):
        return sum(_num_leaves(kind.field(place).type) for place in range(kind.num_fields))
    if types.is_nested(kind):
        return _num_leaves(kind.value_type)
    return 1


_LISTED = 4096
"""Up to so many different strings of a column are made Python strings at once: 30 ns a row then, 150 ns otherwise."""
_LISTED_BYTES = 1 << 20


class Fixed:
    """Numbers, dates, or arrays of one shape.

    As of each kind of values, `nbytes` is its memory, `nulls` which are null, and `take` gives those of some rows, none of which is null;
    they hold no memory of the group.
    """

    def __init__(self, array: NDArray[Any], nulls: NDArray[np.bool_] | None) -> None:
        self.array, self.nulls, self.nbytes = array, nulls, array.nbytes

    def take(self, rows: Ints) -> list[Any]:
        """Return scalars, or views of one new array."""
        return list(self.array[rows])


class RaggedColumn:
    """One-dimensional arrays of any lengths."""

    def __init__(self, values: NDArray[Any], begins: NDArray[Any], ends: NDArray[Any], nulls: NDArray[np.bool_] | None) -> None:
        self._values, self._begins, self._ends, self.nulls = values, begins, ends, nulls
        self.nbytes = values.nbytes + begins.nbytes + ends.nbytes

    def take(self, rows: Ints) -> list[Any]:
        """Return new arrays."""
        begins, ends = self._begins[rows].tolist(), self._ends[rows].tolist()
        return [self._values[begin:end].copy() for begin, end in zip(begins, ends, strict=True)]


class Text:
    """Strings or bytes."""

    def __init__(self, array: Any, nulls: NDArray[np.bool_] | None) -> None:
        self._array, self.nulls, self.nbytes = array, nulls, int(array.nbytes)

    def take(self, rows: Ints) -> list[Any]:
        """Return str or bytes."""
        found: list[Any] = self._array.take(pyarrow()[0].array(rows)).to_pylist()
        return found


class Coded:
    """Strings or bytes by number: each different one is there once, however many rows have it."""

    def __init__(self, codes: NDArray[np.int32], words: Any, nulls: NDArray[np.bool_] | None) -> None:
        self._codes, self._words, self.nulls = codes, words, nulls
        small = len(words) <= _LISTED and words.nbytes <= _LISTED_BYTES
        self._list: list[Any] | None = words.to_pylist() if small else None
        self.nbytes = codes.nbytes + words.nbytes * (2 if small else 1) + 60 * len(self._list or ())

    def take(self, rows: Ints) -> list[Any]:
        """Return str or bytes; rows with the same share one object."""
        words = self._list
        codes: NDArray[Any] = self._codes[rows]
        if words is None:
            used, codes = np.unique(codes, return_inverse=True)
            words = self._words.take(pyarrow()[0].array(used)).to_pylist()
        return [words[code] for code in codes.tolist()]


Values = Fixed | RaggedColumn | Text | Coded


class RowGroup:
    """The wanted columns of one row group. Read-only; from any thread.

    Attributes:
        columns: what they are.
        values: of each.
        table: the arrays of all columns when all are numbers, dates or arrays of one shape; else None.
        nbytes: bytes of memory.
    """

    def __init__(self, columns: Sequence[ColumnForm], values: Sequence[Values]) -> None:
        self.columns, self.values = columns, values
        self.nbytes = sum(one.nbytes for one in values)
        self._with_nulls = [(column.name, one.nulls) for column, one in zip(columns, values, strict=True) if one.nulls is not None]
        arrays = [one.array for one in values if isinstance(one, Fixed)]
        self.table = ColumnTable(arrays) if len(arrays) == len(values) else None
        for array in arrays:
            array.flags.writeable = False

    @property
    def has_nulls(self) -> bool:
        """Whether any value is null."""
        return bool(self._with_nulls)

    def null_at(self, rows: Ints) -> tuple[int, str] | None:
        """Return (place in `rows`, column) of a row that has a null; None when none has."""
        for name, nulls in self._with_nulls:
            found = np.flatnonzero(nulls[rows])
            if len(found):
                return int(found[0]), name
        return None


def row_group(table: Any, columns: Sequence[ColumnForm], null_values: Mapping[str, Any]) -> RowGroup:
    """Make columns of an Arrow table, without copying numbers.

    Args:
        table: of one row group, with the columns.
        columns: what they are.
        null_values: by column: what stands for null.

    Raises:
        RecordError: a column is not what it should be.
    """
    values = []
    for column in columns:
        chunked = table.column(column.name)
        values.append(_plain(chunked, column) or _values(chunked, column, null_values))
    return RowGroup(columns, values)


def _plain(chunked: Any, column: ColumnForm) -> Fixed | None:
    """Return numbers none of which is null, as most columns are, with few calls; None for any others: a group may have many columns."""
    if chunked.num_chunks != 1 or column.form != "array" or column.shape:
        return None
    array = chunked.chunk(0)
    if _plain_types().get(array.type.id) != column.dtype or array.null_count or not len(array):
        return None
    kind = np.dtype(column.dtype)
    return Fixed(np.frombuffer(array.buffers()[1], kind, len(array), array.offset * kind.itemsize), None)


@cache
def _plain_types() -> dict[int, str]:
    """Return the dtype of each type of Arrow that NumPy has as well, by its number."""
    pa, _ = pyarrow()
    numbers = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64")
    return {getattr(pa, name)().id: np.dtype(name).str for name in numbers}


def _values(chunked: Any, column: ColumnForm, null_values: Mapping[str, Any]) -> Values:
    pa, _ = pyarrow()
    array = _plain_text(_storage(_one_chunk(chunked)))
    if column.name in null_values and array.null_count:
        if pa.types.is_dictionary(array.type):
            array = array.dictionary_decode()
        array = array.fill_null(pa.scalar(null_values[column.name], array.type))
    if column.form in ("str", "bytes"):
        nulls = _nulls(array)
        _check_text(array.dictionary if pa.types.is_dictionary(array.type) else array, column)
        if not pa.types.is_dictionary(array.type):
            return Text(array, nulls)
        codes = array.indices.fill_null(0).to_numpy(zero_copy_only=False)
        return Coded(codes, array.dictionary if len(array.dictionary) else pa.array([None], array.type.value_type), nulls)
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if column.form == "ragged":
        return _ragged(array, column)
    fixed, nulls = _fixed(array)
    if fixed.shape[1:] != column.shape or fixed.dtype.str != column.dtype:
        raise RecordError(
            f"the column {column.name!r} is {fixed.dtype.name}{list(fixed.shape[1:])}, and {column.words} by its schema",
            where=f"column {column.name!r}",
            fix="write the file again",
        )
    return Fixed(fixed, nulls)


def _one_chunk(chunked: Any) -> Any:
    """Return a column as one array, with one dictionary if it has several."""
    pa, _ = pyarrow()
    if pa.types.is_dictionary(chunked.type) and chunked.num_chunks > 1:
        chunked = chunked.unify_dictionaries()
    array = chunked.chunk(0) if chunked.num_chunks == 1 else chunked.combine_chunks()
    if isinstance(array, pa.ChunkedArray):
        array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], chunked.type)
    return array


def _check_text(array: Any, column: ColumnForm) -> None:
    """Refuse strings that are not UTF-8 before str objects are made of them: a GB/s."""
    pa, _ = pyarrow()
    try:
        array.validate(full=True)
    except pa.ArrowInvalid as error:
        raise RecordError(
            f"the column {column.name!r} has a value that is no {column.form}: {one_line(error)}",
            where=f"column {column.name!r}",
            fix="write the file again, or read the column as bytes",
        ) from error


def _storage(array: Any) -> Any:
    pa, _ = pyarrow()
    while isinstance(array, pa.ExtensionArray):
        array = array.storage
    return array


def _plain_text(array: Any) -> Any:
    """Copy strings that are views into one piece, which most of Arrow's functions want."""
    pa, _ = pyarrow()
    if pa.types.is_string_view(array.type):
        return array.cast(pa.large_string())
    return array.cast(pa.large_binary()) if pa.types.is_binary_view(array.type) else array


def _nulls(array: Any) -> NDArray[np.bool_] | None:
    """Return which values are null; None when none is."""
    if not array.null_count:
        return None
    found: NDArray[np.bool_] = array.is_null().to_numpy(zero_copy_only=False)
    return found


def _either(nulls: NDArray[np.bool_] | None, more: Any) -> NDArray[np.bool_]:
    found: NDArray[np.bool_] = np.asarray(more, np.bool_) if nulls is None else np.logical_or(nulls, more)
    return found


def _fixed(array: Any) -> tuple[NDArray[Any], NDArray[np.bool_] | None]:
    """Return the values of a primitive or fixed-size list array, and which have a null."""
    pa, _ = pyarrow()
    array = _storage(array)
    kind = array.type
    nulls = _nulls(array)
    if pa.types.is_fixed_size_list(kind):
        size = kind.list_size
        inner, inner_nulls = _fixed(array.values.slice(array.offset * size, len(array) * size))
        if inner_nulls is not None:
            nulls = _either(nulls, inner_nulls.reshape(len(array), size).any(axis=1))
        return inner.reshape(len(array), size, *inner.shape[1:]), nulls
    if pa.types.is_boolean(kind):
        return array.fill_null(False).to_numpy(zero_copy_only=False), nulls
    raw = np.dtype(f"i{kind.bit_width // 8}") if pa.types.is_temporal(kind) else np.dtype(kind.to_pandas_dtype())
    buffer = array.buffers()[1]
    if buffer is None or not len(array):
        values = np.empty(0, raw)
    else:
        values = np.frombuffer(buffer, raw, len(array), array.offset * raw.itemsize)
    if pa.types.is_temporal(kind):
        values = _temporal(values, kind)
    return values, nulls


def _temporal(values: NDArray[Any], kind: Any) -> NDArray[Any]:
    types = pyarrow()[0].types
    if types.is_date32(kind):
        return values.astype("<M8[D]")
    if types.is_date64(kind):
        return values.view("<M8[ms]")
    return values.view(f"<m8[{kind.unit}]" if types.is_duration(kind) else f"<M8[{kind.unit}]")


def _ragged(array: Any, column: ColumnForm) -> RaggedColumn:
    assert is_list(storage_type(array.type)), column
    offsets = array.offsets.to_numpy()
    # Arrow's own cast of views to lists leaves out the last offset.
    begins, ends = (offsets, offsets + array.sizes.to_numpy()) if is_list_view(array.type) else (offsets[:-1], offsets[1:])
    values, inner = _fixed(array.values)
    nulls = _nulls(array)
    if inner is not None:
        before = np.concatenate([[0], np.cumsum(inner)])
        nulls = _either(nulls, before[ends] > before[begins])
    return RaggedColumn(values, begins, ends, nulls)
