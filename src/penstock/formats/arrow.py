"""Arrow columns as rows: what the values of a column are as elements, and decoded columns. Needs pyarrow.

Columns are NumPy arrays over Arrow's memory, and strings Arrow arrays.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from penstock.errors import MissingExtra, PlanError, RecordError
from penstock.kernels.columns import ColumnTable
from penstock.kernels.library import Ints


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
