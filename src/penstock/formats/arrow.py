"""Arrow columns as rows: what the values of a column are as elements, and decoded columns. Needs pyarrow.

Columns are NumPy arrays over Arrow's memory, and strings Arrow arrays.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from penstock._contracts.element import parts_of
from penstock._system.lazy import dataclass
from penstock.errors import MissingExtra, PlanError, RecordError
from penstock.kernels.columns import ColumnTable
from penstock.kernels.library import Array, Ints


@dataclass(frozen=True, slots=True)
class ColumnForm:
    """The form of a column in an element, or of what a column of structs, lists or maps is made of.

    Attributes:
        name: of the column and of the element's field.
        form: "array" (a number, a date or an array of a fixed shape), "ragged" (an array of any length), "str", "bytes", "decimal", "null",
            "struct" (a dict), "list" (of what no array holds) or "map" (a list of pairs).
        shape: of one value; () for a scalar. Of one row of a "ragged" one.
        dtype: as NumPy writes it; "" where there is no array.
        parts: the fields of a struct; the items of a list; the keys and the values of a map.
        path: names of the structs that lead to a field that was chosen by itself, and its own; () for a column.
    """

    name: str
    form: str
    shape: tuple[int, ...] = ()
    dtype: str = ""
    parts: tuple[ColumnForm, ...] = ()
    path: tuple[str, ...] = ()

    @property
    def is_single(self) -> bool:
        """Tell whether a value is one number, date or string: only for null among those can another value stand."""
        return self.form in ("array", "str", "bytes", "decimal", "null") and not self.shape

    @property
    def words(self) -> str:
        """Say it as in `ds.spec()`, such as float32[3]."""
        if self.dtype:
            return f"{np.dtype(self.dtype).name}{[None, *self.shape] if self.form == 'ragged' else list(self.shape)}"
        if self.form == "struct":
            return "{" + ", ".join(f"{part.name}: {part.words}" for part in self.parts) + "}"
        return f"{self.form}[{', '.join(part.words for part in self.parts)}]" if self.parts else self.form


def common_form(one: ColumnForm, other: ColumnForm) -> ColumnForm | None:
    """Return the form that holds the values of both as they are: the wider of two integers or of two floats, what is not null; or None."""
    if one == other or other.form == "null":
        return one
    if one.form == "null":
        return other
    dtype = _common_dtype(one.dtype, other.dtype)
    alike = [replace(form, dtype="", parts=(ColumnForm("", ""),) * len(form.parts)) for form in (one, other)]
    if dtype is None or alike[0] != alike[1]:
        return None
    parts = tuple(part for part in map(common_form, one.parts, other.parts) if part is not None)
    return replace(one, dtype=dtype, parts=parts) if len(parts) == len(one.parts) else None


def _common_dtype(one: str, other: str) -> str | None:
    if one == other or not (one and other):
        return one if one == other else None
    dtypes = np.dtype(one), np.dtype(other), np.result_type(one, other)
    return dtypes[2].str if {dtype.kind for dtype in dtypes} in ({"i"}, {"u"}, {"i", "u"}, {"f"}) else None


def pyarrow() -> tuple[Any, Any]:
    """Return the modules pyarrow and pyarrow.parquet.

    Raises:
        MissingExtra: it is not installed.
    """
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise MissingExtra(f"pyarrow cannot be imported: {error}", where="read_parquet()", fix='pip install "penstock[parquet]"') from error
    return pyarrow, pyarrow.parquet


def _types() -> Any:
    return pyarrow()[0].types


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
    if len(known) < len(seen) or len(set(wanted)) < len(wanted):
        double = next(column for names in (seen, wanted) for column, count in Counter(names).items() if count > 1)
        raise PlanError(f"the column {double!r} stands twice", where=where, fix="give every column a name of its own")
    if not wanted:
        raise PlanError("there is no column to read", where=where, fix="give columns=None or names of columns")
    return tuple(_column(schema, (column,) if column in known else _path(schema, column), column, where) for column in wanted)


def _path(fields: Iterable[Any], name: str) -> tuple[str, ...]:
    """Return the names of the structs that lead to a field such as "image.bytes", and its own; () if there is none."""
    for field in fields:
        if field.name == name:
            return (field.name,)
        kind = storage_type(field.type)
        if str(name).startswith(f"{field.name}.") and _types().is_struct(kind):
            inner = _path(kind, name[len(field.name) + 1 :])
            if inner:
                return (field.name, *inner)
    return ()


def type_at(schema: Any, path: Sequence[str]) -> Any:
    """Return the type of a column, or of a field of a struct in it."""
    kind = schema
    for name in path:
        kind = storage_type(kind.field(name).type)
    return kind


def _column(schema: Any, path: tuple[str, ...], name: str, where: str) -> ColumnForm:
    if not path:
        some = ", ".join(map(repr, schema.names[:8])) + (", ..." if len(schema.names) > 8 else "")
        raise PlanError(f"there is no column {name!r}", where=where, fix=f"choose from {some}")
    kind = type_at(schema, path)
    form = _form(name, kind)
    if form is not None:
        return form if len(path) == 1 else replace(form, path=path)
    raise PlanError(
        f"the column {name!r} is of the type {kind!s:.80}, which has no conversion to arrays and Python objects",
        where=where,
        fix="leave it out with columns=[...], or of a table with drop_columns([...]), or write it as numbers, strings, lists or structs",
    )


def _form(name: str, kind: Any) -> ColumnForm | None:
    types, kind = _types(), storage_type(kind)
    if types.is_dictionary(kind):
        return _form(name, kind.value_type)
    dtype = plain_types().get(kind.id) or _dtype(kind)
    if dtype is not None:
        return ColumnForm(name, "array", (), dtype)
    form, is_fixed = _forms().get(kind.id), types.is_fixed_size_list(kind)
    if is_fixed or form == "list":
        item = _form(name, kind.value_type)
        if item is None or item.form != "array":
            return None if item is None else ColumnForm(name, "list", parts=(item,))
        return ColumnForm(name, "array", (kind.list_size, *item.shape), item.dtype) if is_fixed else replace(item, form="ragged")
    if types.is_map(kind):
        return _whole(name, "map", [_form(name, kind.key_type), _form(name, kind.item_type)])
    if types.is_struct(kind) and len({field.name for field in kind}) == kind.num_fields:
        return _whole(name, "struct", [_form(field.name, field.type) for field in kind])
    return None if form is None else ColumnForm(name, form)


def _whole(name: str, form: str, parts: list[ColumnForm | None]) -> ColumnForm | None:
    found = tuple(part for part in parts if part is not None)
    return ColumnForm(name, form, parts=found) if len(found) == len(parts) else None


def storage_type(kind: Any) -> Any:
    """Return what an extension type is stored as: what its metadata say is never interpreted."""
    pa, _ = pyarrow()
    while isinstance(kind, pa.BaseExtensionType):
        kind = kind.storage_type
    return kind


_TYPES = {
    "str": ("STRING", "LARGE_STRING", "STRING_VIEW"),
    "bytes": ("BINARY", "LARGE_BINARY", "BINARY_VIEW", "FIXED_SIZE_BINARY"),
    "decimal": ("DECIMAL32", "DECIMAL64", "DECIMAL128", "DECIMAL256"),
    "null": ("NA",),
    "list": ("LIST", "LARGE_LIST", "LIST_VIEW", "LARGE_LIST_VIEW"),
}


@cache
def _forms() -> dict[int, str]:
    """Return the form of each type of Arrow that has one whatever it is made of, by its number."""
    lib = pyarrow()[0].lib
    return {getattr(lib, f"Type_{name}", -1): form for form, names in _TYPES.items() for name in names}


def _dtype(kind: Any) -> str | None:
    """Return the dtype of a primitive type, None of any other."""
    types = _types()
    if types.is_boolean(kind):
        return "|b1"
    if types.is_date(kind):
        return "<M8[D]" if types.is_date32(kind) else "<M8[ms]"
    if types.is_timestamp(kind):
        return f"<M8[{kind.unit}]"
    if types.is_duration(kind) or types.is_time(kind):
        return f"<m8[{kind.unit}]"
    if types.is_integer(kind) or types.is_floating(kind):
        return str(np.dtype(kind.to_pandas_dtype()).str)
    return None


class Fixed:
    """Numbers, dates, or arrays of one shape; scalars, or views of one new array.

    Args:
        array: of all values; what stands where there is a null is undefined.
        nulls: which values are null, or hold one.
        fill: what stands for null among scalars.
        lists: the values as lists, for those that hold a null.
    """

    def __init__(self, array: Array, nulls: NDArray[np.bool_] | None, fill: Any = None, lists: Stored | None = None) -> None:
        if fill is not None and nulls is not None:
            array = array.copy()
            array[nulls] = fill
            nulls = None
        self.array, self.nulls, self.nbytes, self._lists = array, nulls, array.nbytes, lists
        self.has_nulls = nulls is not None

    def null_at(self, rows: Ints) -> tuple[int, str] | None:
        """Return (place in `rows`, path in the value such as ".path") of a null, or None."""
        found = [] if self.nulls is None else np.flatnonzero(self.nulls[rows]).tolist()
        return (found[0], "") if found else None

    def take(self, rows: Ints) -> list[Any]:
        """Return the values of some rows, which hold no memory of the column."""
        found: list[Any] = list(self.array[rows])
        places = np.empty(0, np.int64) if self.nulls is None else np.flatnonzero(self.nulls[rows])
        others = [None] * len(places) if self._lists is None else self._lists.take(rows[places])
        for place, value in zip(places.tolist(), others, strict=True):
            found[place] = value
        return found


class Stored:
    """Strings, lists, structs and the like, as Arrow keeps them; objects of Python are made of the rows that are asked for.

    Args:
        chunks: arrays of Arrow: as one they might have more bytes than its offsets can count, 2 GiB.
        form: of the values.
        fill: what stands for null.
    """

    def __init__(self, chunks: Sequence[Any], form: ColumnForm, fill: Any = None) -> None:
        self._chunks, self._form, self._fill = chunks, form, fill
        self._starts = np.cumsum([0, *map(len, chunks)])
        self.nbytes = sum(int(chunk.nbytes) for chunk in chunks)
        self.has_nulls = any(map(_holds_null, chunks))

    def null_at(self, rows: Ints) -> tuple[int, str] | None:
        """Return (place in `rows`, path in the value such as ".path") of a null, or None."""
        paths = ((place, _null_in(value)) for place, value in enumerate(self._take(rows)))
        return next(((place, path) for place, path in paths if path is not None), None)

    def take(self, rows: Ints) -> list[Any]:
        """Return the values of some rows, which hold no memory of the column."""
        found = self._take(rows)
        return found if self._fill is None else [self._fill if value is None else value for value in found]

    def _take(self, rows: Ints) -> list[Any]:
        if len(self._chunks) == 1:
            return _some(self._chunks[0], self._form, rows)
        out: list[Any] = [None] * len(rows)
        which = np.searchsorted(self._starts, rows, "right") - 1
        for number in np.unique(which).tolist():
            members = np.flatnonzero(which == number)
            values = _some(self._chunks[number], self._form, rows[members] - self._starts[number])
            for member, value in zip(members.tolist(), values, strict=True):
                out[member] = value
        return out


Values: TypeAlias = Fixed | Stored
"""A decoded column: read-only, for any thread. `nbytes` is its memory, `has_nulls` says whether a value is null, or may hold a null."""


def _holds_null(array: Any) -> bool:
    """Tell whether a value of an array is null, or may hold one: of a part of a table, those of the whole count."""
    types = _types()
    array = _storage(array)
    if array.null_count:
        return True
    if types.is_struct(array.type):
        return any(_holds_null(array.field(place)) for place in range(array.type.num_fields))
    if types.is_map(array.type):
        return _holds_null(array.items)
    inner = array.dictionary if types.is_dictionary(array.type) else array.values if types.is_nested(array.type) else None
    return inner is not None and _holds_null(inner)


def _null_in(value: Any) -> str | None:
    """Return the path of the first null in a value, such as ".path"; None where there is none."""
    parts = parts_of(value)
    if parts is None:
        return "" if value is None else None
    found = ((f".{key}" if isinstance(value, dict) else "", _null_in(part)) for key, part in parts)
    return next((prefix + path for prefix, path in found if path is not None), None)


class RowGroup:
    """The wanted columns of one row group. Read-only; from any thread.

    Args:
        columns: what they are.
        values: of each.
        fills: columns in which a null is no error.

    Attributes:
        columns: what they are.
        values: of each.
        table: the arrays of all columns when all are numbers, dates or arrays of one shape; else None.
        nbytes: bytes of memory.
    """

    def __init__(self, columns: Sequence[ColumnForm], values: Sequence[Values], fills: Container[str] = ()) -> None:
        self.columns, self.values = columns, values
        self.nbytes = sum(one.nbytes for one in values)
        pairs = zip(columns, values, strict=True)
        self._with_nulls = [(column.name, one) for column, one in pairs if one.has_nulls and column.name not in fills]
        arrays = [one.array for one in values if isinstance(one, Fixed)]
        self.table = ColumnTable(arrays) if len(arrays) == len(values) else None
        for array in arrays:
            array.flags.writeable = False

    def null_at(self, rows: Ints) -> tuple[int, str] | None:
        """Return (place in `rows`, column) of a row that has a null; None when none has."""
        for name, values in self._with_nulls:
            found = values.null_at(rows)
            if found is not None:
                return found[0], name + found[1]
        return None


def row_group(table: Any, columns: Sequence[ColumnForm], fills: Mapping[str, Any]) -> RowGroup:
    """Make columns of an Arrow table, without copying numbers.

    Args:
        table: of one row group, with the columns.
        columns: what they are.
        fills: by column: what stands for null, None as well. In any other column a null is an error of its row.

    Raises:
        RecordError: a column is not what it should be.
    """
    values = []
    for column in columns:
        chunked = table.column(column.path[0] if column.path else column.name)
        values.append(_plain(chunked, column) or column_values(chunked, column, fills.get(column.name)))
    return RowGroup(columns, values, fills)


def _plain(chunked: Any, column: ColumnForm) -> Fixed | None:
    """Return numbers none of which is null, as most columns are, with few calls; None for any others: a group may have many columns."""
    if chunked.num_chunks != 1 or column.form != "array" or column.shape or column.path:
        return None
    array = chunked.chunk(0)
    if plain_types().get(array.type.id) != column.dtype or array.null_count or not len(array):
        return None
    kind = np.dtype(column.dtype)
    return Fixed(np.frombuffer(array.buffers()[1], kind, len(array), array.offset * kind.itemsize), None)


@cache
def plain_types() -> dict[int, str]:
    """Return the dtype of each type of Arrow that NumPy has as well, by its number."""
    pa, _ = pyarrow()
    numbers = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64")
    return {getattr(pa, name)().id: np.dtype(name).str for name in numbers}


def column_values(column: Any, form: ColumnForm, fill: Any = None) -> Values:
    """Decode an Arrow array or chunked array, whose values are the stored ones exactly, whatever stands beside them.

    Numbers and dates are NumPy scalars and arrays of the stored dtype, structs dicts, lists of anything else lists, null is None.

    Args:
        column: the array.
        form: what `columns_of` says of it, or a form that holds its values as they are.
        fill: what stands for null.

    Raises:
        RecordError: the column is not of this form.
    """
    pa, _ = pyarrow()
    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    chunks = [_reached(chunk, form.path) for chunk in chunks or [pa.nulls(0, storage_type(column.type))]]
    if form.form == "array":
        array = chunks[0] if len(chunks) == 1 else pa.concat_arrays(list(map(_decoded, chunks)))
        fixed, nulls = _fixed_as(array, form)
        return Fixed(fixed, nulls, fill, Stored([array], form) if form.shape and nulls is not None else None)
    chunks = list(map(_plain_text, chunks))
    for chunk in chunks:
        _check_text(chunk, form)
    return Stored(chunks, form, fill)


def _reached(array: Any, path: Sequence[str]) -> Any:
    """Return a field of a struct, null where the struct is."""
    array = _storage(array)
    for name in path[1:]:
        array = _storage(array.flatten()[array.type.get_field_index(name)])
    return array


def _fixed_as(array: Any, form: ColumnForm) -> tuple[Array, NDArray[np.bool_] | None]:
    """Return the values of an array of a form, and which are null or hold one."""
    array = _storage(array)
    if _types().is_null(array.type):
        return np.zeros((len(array), *form.shape), form.dtype), _nulls(array)
    fixed, nulls = _fixed(array)
    if fixed.shape[1:] != form.shape or _common_dtype(fixed.dtype.str, form.dtype) != form.dtype:
        raise RecordError(
            f"the column {form.name!r} is {fixed.dtype.name}{list(fixed.shape[1:])}, and {form.words} by its schema",
            where=f"column {form.name!r}",
            fix="write the file again",
        )
    return fixed.astype(form.dtype, copy=False), nulls


def _some(array: Any, form: ColumnForm, rows: Ints) -> list[Any]:
    """Return the values of some rows of an array; None for null."""
    array = _plain_text(_storage(array))
    nulls = _nulls(array)
    if _types().is_dictionary(array.type) and form.form not in ("str", "bytes"):
        return _some(array.dictionary_decode(), form, rows)
    if form.form == "array":
        fixed, holding = _fixed_as(array, form)
        found: list[Any] = list(fixed[rows])
        if form.shape and holding is not None:
            places = np.flatnonzero(holding[rows])
            for place, value in zip(places.tolist(), _some_lists(array, form, rows[places]), strict=True):
                found[place] = value
    elif form.form == "struct":
        fields = [_some(array.field(place), part, rows) for place, part in enumerate(form.parts)]
        names = [part.name for part in form.parts]
        found = [dict(zip(names, values, strict=True)) for values in zip(*fields, strict=True)] if names else [{} for _ in rows]
    elif form.form in ("list", "ragged", "map"):
        found = _some_lists(array, form, rows)
    else:
        found = _some_objects(array, rows)
    for place in [] if nulls is None else np.flatnonzero(nulls[rows]).tolist():
        found[place] = None
    return found


def _some_objects(array: Any, rows: Ints) -> list[Any]:
    """Return strings, bytes or decimals of some rows; of a dictionary each word is made once, and rows that have it share it."""
    pa, _ = pyarrow()
    if not pa.types.is_dictionary(array.type):
        found: list[Any] = array.take(pa.array(rows)).to_pylist()
        return found
    if not len(array.dictionary):
        return [None] * len(rows)
    indices = array.indices.fill_null(0) if array.null_count else array.indices
    used, codes = np.unique(indices.to_numpy(zero_copy_only=False)[rows], return_inverse=True)
    words = _plain_text(array.dictionary).take(pa.array(used)).to_pylist()
    return [words[code] for code in codes.tolist()]


def _some_lists(array: Any, form: ColumnForm, rows: Ints) -> list[Any]:
    """Return lists, or arrays where numbers are the items; with a null among these a list of the others and None."""
    begins, ends = (edges[rows].astype(np.int64) for edges in _bounds(array))
    nulls = _nulls(array)
    ends = ends if nulls is None else np.where(nulls[rows], begins, ends)
    counts = ends - begins
    cuts = np.concatenate([[0], np.cumsum(counts)])
    places = np.repeat(begins - cuts[:-1], counts) + np.arange(cuts[-1])
    if form.form == "map":
        items = list(zip(_some(array.keys, form.parts[0], places), _some(array.items, form.parts[1], places), strict=True))
    elif form.form == "list":
        items = _some(array.values, form.parts[0], places)
    else:
        part = replace(form, form="array", shape=form.shape[form.form == "array" :], path=())
        fixed, holding = _fixed_as(array.values, part)
        spans = list(zip(begins.tolist(), ends.tolist(), strict=True))
        if holding is None:
            return [fixed[begin:end].copy() for begin, end in spans]
        with_nulls = [bool(holding[begin:end].any()) for begin, end in spans]
        return [
            _some(array.values, part, np.arange(begin, end)) if is_with else fixed[begin:end].copy()
            for (begin, end), is_with in zip(spans, with_nulls, strict=True)
        ]
    return [items[begin:end] for begin, end in pairwise(cuts.tolist())]


def _bounds(array: Any) -> tuple[Array, Array]:
    """Return where each list begins and ends among the items of all."""
    if _types().is_fixed_size_list(array.type):
        begins = (np.arange(len(array)) + array.offset) * array.type.list_size
        return begins, begins + array.type.list_size
    offsets = array.offsets.to_numpy()
    # Arrow's own cast of views to lists leaves out the last offset.
    return (offsets, offsets + array.sizes.to_numpy()) if hasattr(array, "sizes") else (offsets[:-1], offsets[1:])


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


def _decoded(array: Any) -> Any:
    """Return what an extension array or one of a dictionary stands for."""
    array = _storage(array)
    return _decoded(array.dictionary_decode()) if _types().is_dictionary(array.type) else array


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


def _fixed(array: Any) -> tuple[Array, NDArray[np.bool_] | None]:
    """Return the values of a primitive or fixed-size list array, and which have a null."""
    pa, _ = pyarrow()
    array = _decoded(array)
    kind = array.type
    nulls = _nulls(array)
    if pa.types.is_fixed_size_list(kind):
        size = kind.list_size
        inner, inner_nulls = _fixed(array.values.slice(array.offset * size, len(array) * size))
        if inner_nulls is not None:
            holding: Any = inner_nulls.reshape(len(array), size).any(axis=1)
            nulls = holding if nulls is None else np.logical_or(nulls, holding)
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
        values = values.astype("<i8", copy=False).view(_dtype(kind))
    return values, nulls
