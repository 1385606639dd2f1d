"""Arrow columns as rows: what the values of a column are as elements, and decoded columns. Needs pyarrow.

Columns are NumPy arrays over Arrow's memory, and strings Arrow arrays.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from penstock.errors import MissingExtra, PlanError, RecordError
from penstock.kernels.columns import ColumnTable
from penstock.kernels.library import Ints


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
        if str(name).startswith(f"{field.name}.") and pyarrow()[0].types.is_struct(kind):
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
        f"the column {name!r} is of the type {_short(kind)}, which has no conversion to arrays and Python objects",
        where=where,
        fix="leave it out with columns=[...], or of a table with drop_columns([...]), or write it as numbers, strings, lists or structs",
    )


def _form(name: str, kind: Any) -> ColumnForm | None:
    types = pyarrow()[0].types
    kind = storage_type(kind)
    if types.is_dictionary(kind):
        return _form(name, kind.value_type)
    dtype = plain_types().get(kind.id) or _dtype(kind)
    if dtype is not None:
        return ColumnForm(name, "array", (), dtype)
    for form, tells in {"str": is_text, "bytes": is_bytes, "decimal": types.is_decimal, "null": types.is_null}.items():
        if tells(kind):
            return ColumnForm(name, form)
    is_fixed = types.is_fixed_size_list(kind)
    if is_fixed or is_list(kind):
        item = _form(name, kind.value_type)
        if item is None or item.form != "array":
            return None if item is None else ColumnForm(name, "list", parts=(item,))
        return ColumnForm(name, "array", (kind.list_size, *item.shape), item.dtype) if is_fixed else replace(item, form="ragged")
    if types.is_map(kind):
        return _whole(name, "map", [_form(name, kind.key_type), _form(name, kind.item_type)])
    if types.is_struct(kind) and len({field.name for field in kind}) == kind.num_fields:
        return _whole(name, "struct", [_form(field.name, field.type) for field in kind])
    return None


def _whole(name: str, form: str, parts: list[ColumnForm | None]) -> ColumnForm | None:
    found = tuple(part for part in parts if part is not None)
    return ColumnForm(name, form, parts=found) if len(found) == len(parts) else None


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
    if types.is_duration(kind) or types.is_time(kind):
        return f"<m8[{kind.unit}]"
    if types.is_integer(kind) or types.is_floating(kind):
        return str(np.dtype(kind.to_pandas_dtype()).str)
    return None


_LISTED = 4096
"""Up to so many different strings of a column are made Python strings at once: 30 ns a row then, 150 ns otherwise."""
_LISTED_BYTES = 1 << 20


class Values(ABC):
    """A decoded column. Read-only, for any thread.

    Attributes:
        nbytes: its memory.
        nulls: which values are null; None when none is.
        fill: what `take` gives for null.
    """

    nbytes: int
    nulls: NDArray[np.bool_] | None = None
    fill: Any = None

    @property
    def has_nulls(self) -> bool:
        """Whether a value is null, or holds a null."""
        return self.nulls is not None

    def null_at(self, rows: Ints) -> tuple[int, str] | None:
        """Return (place in `rows`, path in the value such as ".path") of a null, or None."""
        found = [] if self.nulls is None else np.flatnonzero(self.nulls[rows]).tolist()
        return (found[0], "") if found else None

    def take(self, rows: Ints) -> list[Any]:
        """Return the values of some rows, which hold no memory of the column."""
        found = self._take(rows)
        if self.nulls is not None:
            for place in np.flatnonzero(self.nulls[rows]).tolist():
                found[place] = self.fill
        return found

    @abstractmethod
    def _take(self, rows: Ints) -> list[Any]:
        """Return the values, anything where there is a null."""


class Fixed(Values):
    """Numbers, dates, or arrays of one shape; scalars, or views of one new array.

    Args:
        array: of all values; what stands where there is a null is undefined.
        nulls: which values are null, or hold one.
        fill: what stands for null among scalars.
        lists: the values as lists, for those that hold a null.
    """

    def __init__(self, array: NDArray[Any], nulls: NDArray[np.bool_] | None, fill: Any = None, lists: Lists | None = None) -> None:
        if fill is not None and nulls is not None:
            array = array.copy()
            array[nulls] = fill
            nulls = None
        self.array, self.nulls, self.nbytes, self._lists = array, nulls, array.nbytes, lists

    def take(self, rows: Ints) -> list[Any]:
        """Return the values of some rows."""
        if self.nulls is None:
            return list(self.array[rows])
        found: list[Any] = super().take(rows)
        if self._lists is not None:
            places = np.flatnonzero(self.nulls[rows])
            for place, value in zip(places.tolist(), self._lists.take(rows[places]), strict=True):
                found[place] = value
        return found

    def _take(self, rows: Ints) -> list[Any]:
        return list(self.array[rows])


class Objects(Values):
    """Strings, bytes, decimals: what Arrow makes Python objects of."""

    def __init__(self, array: Any, nulls: NDArray[np.bool_] | None, fill: Any = None) -> None:
        self._array, self.nulls, self.fill, self.nbytes = array, nulls, fill, int(array.nbytes)

    def _take(self, rows: Ints) -> list[Any]:
        found: list[Any] = self._array.take(pyarrow()[0].array(rows)).to_pylist()
        return found


class Coded(Values):
    """Strings or bytes by number: each different one is there once, however many rows have it; those rows share one object."""

    def __init__(self, codes: NDArray[np.int32], words: Any, nulls: NDArray[np.bool_] | None, fill: Any = None) -> None:
        self._codes, self._words, self.nulls, self.fill = codes, words, nulls, fill
        small = len(words) <= _LISTED and words.nbytes <= _LISTED_BYTES
        self._list: list[Any] | None = words.to_pylist() if small else None
        self.nbytes = codes.nbytes + words.nbytes * (2 if small else 1) + 60 * len(self._list or ())

    def _take(self, rows: Ints) -> list[Any]:
        words = self._list
        codes: NDArray[Any] = self._codes[rows]
        if words is None:
            used, codes = np.unique(codes, return_inverse=True)
            words = self._words.take(pyarrow()[0].array(used)).to_pylist()
        return [words[code] for code in codes.tolist()]


class Struct(Values):
    """Dicts of the values of fields; tuples of them where there are no names."""

    def __init__(self, names: Sequence[str] | None, fields: Sequence[Values], nulls: NDArray[np.bool_] | None) -> None:
        self._names, self._fields, self.nulls = names, fields, nulls
        self.nbytes = sum(field.nbytes for field in fields)

    @property
    def has_nulls(self) -> bool:
        """Whether a value is null, or a field of one."""
        return self.nulls is not None or any(field.has_nulls for field in self._fields)

    def null_at(self, rows: Ints) -> tuple[int, str] | None:
        """Return place and path of a null."""
        found = super().null_at(rows)
        prefixes = ["", ""] if self._names is None else [f".{name}" for name in self._names]
        for prefix, field in zip(prefixes, self._fields, strict=True):
            if found is None and (inner := field.null_at(rows)) is not None:
                found = inner[0], prefix + inner[1]
        return found

    def _take(self, rows: Ints) -> list[Any]:
        if not self._fields:
            return [{} for _ in rows]
        values = zip(*(field.take(rows) for field in self._fields), strict=True)
        return list(values) if self._names is None else [dict(zip(self._names, row, strict=True)) for row in values]


class Lists(Values):
    """Lists, or arrays of any length where numbers are the items; with a null among them a list of the others and None.

    Args:
        items: of all lists.
        begins: where each begins among them.
        ends: where each ends.
        nulls: which lists are null.
        form: whether they are arrays, and of what dtype.
    """

    def __init__(self, items: Values, begins: NDArray[Any], ends: NDArray[Any], nulls: NDArray[np.bool_] | None, form: ColumnForm) -> None:
        self._items, self._begins, self.nulls = items, begins, nulls
        self._ends = ends if nulls is None else np.where(nulls, begins, ends)
        self._dtype = np.dtype(form.dtype) if form.dtype else None
        self._shape = form.shape[form.form == "array" :]
        self.nbytes = items.nbytes + begins.nbytes + ends.nbytes

    @property
    def has_nulls(self) -> bool:
        """Whether a list is null, or an item."""
        return self.nulls is not None or self._items.has_nulls

    def null_at(self, rows: Ints) -> tuple[int, str] | None:
        """Return place and path of a null."""
        found = super().null_at(rows)
        if found is None and self._items.has_nulls:
            places, cuts = self._places(rows)
            found = self._items.null_at(places)
            found = found and (int(np.searchsorted(cuts, found[0], "right")) - 1, found[1])
        return found

    def _places(self, rows: Ints) -> tuple[Ints, Ints]:
        """Return the places of the items of some rows, and where those of each row begin and end among them."""
        begins = self._begins[rows].astype(np.int64)
        counts = self._ends[rows] - begins
        cuts = np.concatenate([[0], np.cumsum(counts)])
        return np.repeat(begins - cuts[:-1], counts) + np.arange(cuts[-1]), cuts

    def _take(self, rows: Ints) -> list[Any]:
        if self._dtype is not None and isinstance(self._items, Fixed) and not self._items.has_nulls:
            begins, ends = self._begins[rows].tolist(), self._ends[rows].tolist()
            return [self._items.array[begin:end].copy() for begin, end in zip(begins, ends, strict=True)]
        places, cuts = self._places(rows)
        items = self._items.take(places)
        return [self._list(items[begin:end]) for begin, end in pairwise(cuts.tolist())]

    def _list(self, items: list[Any]) -> Any:
        if self._dtype is None or not all(isinstance(item, (np.ndarray, np.generic)) for item in items):
            return items
        return np.array(items, self._dtype).reshape(len(items), *self._shape)


class Joined(Values):
    """Chunks of one column, which as one array might have more bytes than its offsets can count: 2 GiB."""

    def __init__(self, parts: Sequence[Values], counts: Sequence[int]) -> None:
        self._parts, self._starts = parts, np.cumsum([0, *counts])
        self.nbytes = sum(part.nbytes for part in parts)

    @property
    def has_nulls(self) -> bool:
        """Whether a value is null, or holds a null."""
        return any(part.has_nulls for part in self._parts)

    def _split(self, rows: Ints) -> Iterator[tuple[Values, Ints, Ints]]:
        """Yield (part, places in `rows`, rows of the part)."""
        which = np.searchsorted(self._starts, rows, "right") - 1
        for number in np.unique(which).tolist():
            members = np.flatnonzero(which == number)
            yield self._parts[number], members, rows[members] - self._starts[number]

    def null_at(self, rows: Ints) -> tuple[int, str] | None:
        """Return place and path of a null."""
        for part, members, inner in self._split(rows):
            found = part.null_at(inner)
            if found is not None:
                return int(members[found[0]]), found[1]
        return None

    def _take(self, rows: Ints) -> list[Any]:
        out: list[Any] = [None] * len(rows)
        for part, members, inner in self._split(rows):
            for member, value in zip(members.tolist(), part.take(inner), strict=True):
                out[member] = value
        return out


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

    @property
    def has_nulls(self) -> bool:
        """Whether any value is null that must not be."""
        return bool(self._with_nulls)

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
    if form.form == "array" and len(chunks) > 1:
        chunks = [pa.concat_arrays([_decoded(chunk) for chunk in chunks])]
    parts = [_values(chunk, form, fill) for chunk in chunks]
    return parts[0] if len(parts) == 1 else Joined(parts, list(map(len, chunks)))


def _reached(array: Any, path: Sequence[str]) -> Any:
    """Return a field of a struct, null where the struct is."""
    array = _storage(array)
    for name in path[1:]:
        array = _storage(array.flatten()[array.type.get_field_index(name)])
    return array


def _values(array: Any, form: ColumnForm, fill: Any = None) -> Values:
    types = pyarrow()[0].types
    array = _plain_text(_storage(array))
    if types.is_dictionary(array.type) and (form.form not in ("str", "bytes") or array.dictionary.null_count):
        return _values(array.dictionary_decode(), form, fill)
    nulls = _nulls(array)
    if form.form == "array":
        return _arrays(array, nulls, form, fill)
    if types.is_null(array.type) or form.form == "decimal":
        return Objects(array, nulls, fill)
    if form.form in ("str", "bytes"):
        _check_text(array.dictionary if types.is_dictionary(array.type) else array, form)
        if not types.is_dictionary(array.type):
            return Objects(array, nulls, fill)
        codes = array.indices.fill_null(0).to_numpy(zero_copy_only=False)
        words = array.dictionary if len(array.dictionary) else pyarrow()[0].array([None], array.type.value_type)
        return Coded(codes, _plain_text(words), nulls, fill)
    if form.form == "struct":
        fields = [_values(array.field(place), part) for place, part in enumerate(form.parts)]
        return Struct([part.name for part in form.parts], fields, nulls)
    return _lists(array, nulls, form)


def _arrays(array: Any, nulls: NDArray[np.bool_] | None, form: ColumnForm, fill: Any) -> Fixed:
    if pyarrow()[0].types.is_null(array.type):
        fixed, lists = np.zeros((len(array), *form.shape), form.dtype), None
    else:
        own = nulls
        fixed, nulls = _fixed(array)
        lists = _lists(array, own, form) if form.shape and nulls is not None else None
    if fixed.shape[1:] != form.shape or _common_dtype(fixed.dtype.str, form.dtype) != form.dtype:
        raise RecordError(
            f"the column {form.name!r} is {fixed.dtype.name}{list(fixed.shape[1:])}, and {form.words} by its schema",
            where=f"column {form.name!r}",
            fix="write the file again",
        )
    return Fixed(fixed.astype(form.dtype, copy=False), nulls, fill, lists)


def _lists(array: Any, nulls: NDArray[np.bool_] | None, form: ColumnForm) -> Lists:
    begins, ends = _bounds(array)
    first, last = (int(begins.min()), int(ends.max())) if len(array) else (0, 0)

    def items(values: Any, part: ColumnForm) -> Values:
        return _values(values.slice(first, last - first), part)  # of a part of a table: not those of the whole table

    if pyarrow()[0].types.is_map(array.type):
        found: Values = Struct(None, [items(array.keys, form.parts[0]), items(array.items, form.parts[1])], None)
    elif form.form == "list":
        found = items(array.values, form.parts[0])
    else:
        found = items(array.values, replace(form, form="array", shape=form.shape[form.form == "array" :], path=()))
    return Lists(found, begins - first, ends - first, nulls, form)


def _bounds(array: Any) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return where each list begins and ends among the items of all."""
    if pyarrow()[0].types.is_fixed_size_list(array.type):
        begins = (np.arange(len(array)) + array.offset) * array.type.list_size
        return begins, begins + array.type.list_size
    offsets = array.offsets.to_numpy()
    # Arrow's own cast of views to lists leaves out the last offset.
    return (offsets, offsets + array.sizes.to_numpy()) if is_list_view(array.type) else (offsets[:-1], offsets[1:])


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
    return _decoded(array.dictionary_decode()) if pyarrow()[0].types.is_dictionary(array.type) else array


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
    array = _decoded(array)
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
        values = values.astype("<i8", copy=False).view(_dtype(kind))
    return values, nulls
