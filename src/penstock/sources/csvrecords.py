"""CSV files: one record per element, as text or as numbers of declared types."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np

from penstock._contracts.element import Structure, structure_of
from penstock._contracts.source import Leaves
from penstock._contracts.storage import Storage
from penstock._contracts.transform import Scratch
from penstock._storage import Patterns, open_storage
from penstock._system.lazy import dataclass
from penstock._system.process import OwnLocks
from penstock._system.text import shown
from penstock.errors import PlanError, RecordError
from penstock.formats.index import Indices
from penstock.formats.linescan import MAX_LINE_BYTES, Rules, stream_lines
from penstock.formats.values import DoesNotFit, NotTaken, number_in, numbers_into
from penstock.kernels.library import Array, Ints
from penstock.sources.compressed import RecordStream, is_compressed, pieces_of
from penstock.sources.indexing import open_all
from penstock.sources.records import RecordTable, moved
from penstock.sources.text import (
    LineFormat,
    LineSource,
    bad_line,
    checked_encoding,
    declared_dtype,
    declared_pairs,
    decoded,
    encoding_option,
    number_of,
)

_CALLER = "read_csv"
_SHOWN = 20
_NULL_WORDS = frozenset(("NA", "N/A", "n/a", "#N/A", "#NA", "<NA>", "NULL", "null", "None", "nan", "NaN", "-nan", "-NaN"))
"""Texts that stand for no number in what R, pandas, databases and spreadsheets write."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)  # for np.dtype(np.float64) == None is True
class CsvColumn:
    """One field of an element: its name, where it stands in a record, what it becomes, what is missing, and what stands for that."""

    name: str
    place: int = -1
    dtype: np.dtype[Any] | None = None
    default: Any = None
    nulls: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class CsvRecords(LineFormat):
    """Records of CSV files as RFC 4180 has them, with LF or CRLF; empty lines are left out.

    Attributes:
        columns: what an element has; None until the header is known, which is enough for an index.
        num_fields: of each record.
        delimiter: one ASCII character.
        quote: another one.
        header: whether the first record of each file names the fields.
        encoding: of the text.
        max_line_bytes: a longer record is an error when the file is indexed, before it is ever read whole.
        names: of the fields, and first_file: whose header they are, where all files are read as streams and must have the same.
    """

    kind: ClassVar[str] = "csv"

    columns: tuple[CsvColumn, ...] | None = None
    num_fields: int = 0
    delimiter: str = ","
    quote: str = '"'
    header: bool = True
    encoding: str = "utf-8"
    max_line_bytes: int = MAX_LINE_BYTES
    names: list[str] = field(default_factory=list)
    first_file: str = ""
    _texts: tuple[str, ...] | None = field(init=False, repr=False, compare=False)
    """The names of the columns where these are all fields of a record, in their order, as they stand there."""

    def __post_init__(self) -> None:
        columns = self.columns or ()
        whole = [column.place for column in columns] == list(range(self.num_fields))
        plain = whole and all(column.dtype is None and column.default is None for column in columns)
        object.__setattr__(self, "_texts", tuple(column.name for column in columns) if plain else None)

    @property
    def options(self) -> dict[str, Any]:
        """Return what decides where records begin and end, and whether the first is one."""
        return {"delimiter": self.delimiter, "quote": self.quote, "header": self.header} | encoding_option(self.encoding)

    @property
    def rules(self) -> Rules:
        """Say that empty lines are left out, and that line feeds in quotes end nothing."""
        return Rules(skip="empty", max_line_bytes=self.max_line_bytes, delimiter=ord(self.delimiter), quote=ord(self.quote))

    def first(self, name: str) -> Callable[[bytes], dict[str, Any]] | None:
        """Return what reads the header of a file, and refuses another one than `names`."""
        return partial(self._header, name) if self.header else None

    def _header(self, name: str, head: bytes) -> dict[str, Any]:
        try:
            names = self.fields_of(head.decode(self.encoding))
        except (UnicodeDecodeError, Unsplittable) as error:
            fix = getattr(error, "fix", "give encoding='latin-1' or the like")
            raise RecordError(f"the header cannot be read: {error}", where=f"the header of {name!r}", fix=fix) from error
        twice = [one for one, count in Counter(names).items() if count > 1]
        if twice:
            what, where = f"the header has {min(twice)!r} twice", f"the header of {name!r}"
            raise RecordError(what, where=where, fix="give each column a name of its own")
        if self.first_file and names != self.names:
            raise _other_header(name, names, self.first_file, self.names)
        return {"header": names}

    def fields_of(self, text: str) -> list[str]:
        """Split a record.

        Raises:
            Unsplittable: its quotes or line ends are out of order.
        """
        text = text.removesuffix("\r")
        if self.quote not in text and "\r" not in text and "\n" not in text:
            return text.split(self.delimiter)
        return split_quoted(text, self.delimiter, self.quote)

    def decode(self, data: memoryview, table: RecordTable, index: int) -> dict[str, Any]:
        """Return the record's columns.

        Raises:
            RecordError: no UTF-8, quotes in the wrong place, another number of fields, an empty field without a default, or no number.
        """
        assert self.columns is not None
        fields = self.split(data, table, index)
        if self._texts is not None:
            return dict(zip(self._texts, fields, strict=True))
        return {column.name: self._value(fields[column.place], column, table, index) for column in self.columns}

    def split(self, data: memoryview, table: RecordTable, index: int) -> list[str]:
        """Return the fields of a record, as many as there must be.

        Raises:
            RecordError: no UTF-8, quotes in the wrong place, or another number of fields.
            IndexStale: it is not one record any more.
        """
        text = decoded(data, table, index, self.encoding)
        try:
            fields = self.fields_of(text)
        except Unsplittable as error:
            if "\n" in text and self.quote not in text:
                raise moved(table, index) from error
            raise bad_line(table, index, f"the record cannot be split: {error}", error.fix) from error
        if len(fields) != self.num_fields:
            what = f"the record has {len(fields)} fields, not {self.num_fields}: {shown(text)}"
            raise bad_line(table, index, what, "put quotes around fields with a delimiter in them; check delimiter=")
        return fields

    def _value(self, text: str, column: CsvColumn, table: RecordTable, index: int) -> Any:
        if column.default is not None and (not text or text in column.nulls):
            return column.default
        if column.dtype is None:
            return text
        if not text:
            fix = f"give missing={{{column.name!r}: value}} for empty fields"
            raise bad_line(table, index, f"column {column.name!r} is empty, and is declared as {column.dtype}", fix)
        try:
            return number_in(text, column.dtype)
        except ValueError as error:
            what = f"column {column.name!r} is {shown(text)}, which is no {column.dtype}: {error}"
            fix = f"give missing={{{column.name!r}: value}} for it" if text in _NULL_WORDS else "declare another dtype, or None for text"
            raise bad_line(table, index, what, fix) from error


class CsvColumns(LineSource):
    """Records whose columns all are numbers: whole blocks become arrays."""

    def __init__(self, storage: Storage, format: CsvRecords, caller: str, **options: Any) -> None:
        super().__init__(storage, format, caller, **options)
        self._csv, self._columns = format, format.columns or ()
        # Texts that mean nothing and would be numbers of their column otherwise.
        self._hidden = [
            frozenset(word for word in column.nulls if numbers_into([word], np.empty(1, column.dtype))) for column in self._columns
        ]

    def structure(self) -> Structure:
        """Return the structure that `element.unflatten` needs."""
        return structure_of({column.name: 0 for column in self._columns})

    def leaves(self) -> Leaves:
        """Return shape and dtype of each column, in the order in which they were declared."""
        return [((), column.dtype) for column in self._columns if column.dtype is not None]

    def gather_columns(self, indices: Ints, out: list[Array] | None) -> list[Array]:
        """Read records: into `out` (one array for each column) or into new arrays.

        Raises:
            LengthMismatch: an index is not in 0..len-1.
            RecordError, SourceError, OSError: as `gather`.
        """
        arrays = [np.empty(len(indices), dtype) for _, dtype in self.leaves()] if out is None else out
        if not self._all_at_once(indices, arrays):
            rows: list[Any] = []
            self.gather(indices.tolist(), rows)
            for column, array in zip(self._columns, arrays, strict=True):
                array[:] = [row[column.name] for row in rows]
        return arrays

    def _all_at_once(self, indices: Ints, arrays: list[Array]) -> bool:
        """Convert column by column: a tenth of the time. False where something is out of the ordinary, which `gather` then looks into."""
        data, begins, ends = self.read(indices, Scratch.of(self._own))
        view, fields_of, encoding = data.data, self._csv.fields_of, self._csv.encoding
        try:
            rows = [fields_of(str(view[begin:end], encoding)) for begin, end in zip(begins.tolist(), ends.tolist(), strict=True)]
        except (UnicodeDecodeError, Unsplittable):
            return False
        if any(len(row) != self._csv.num_fields for row in rows):
            return False
        for column, hidden, array in zip(self._columns, self._hidden, arrays, strict=True):
            texts = [row[column.place] for row in rows]
            if (hidden and not hidden.isdisjoint(texts)) or not numbers_into(texts, array):
                return False
        return True


def csv_source(
    patterns: Patterns,
    *,
    columns: Any = None,
    names: Sequence[str] | None = None,
    missing: Mapping[str, Any] | None = None,
    null_values: Sequence[str] | None = None,
    **rules: Any,
) -> LineSource | RecordStream:
    """Open CSV files as one source, a stream where some are compressed. `rules` are those of `CsvRecords`.

    Raises:
        PlanError: an argument that cannot be, or a column that the files do not have.
        RecordError: files whose headers differ, or as `LineSource`.
        SourceError, OSError: as `open_storage` and `LineSource`.
    """
    plain = CsvRecords(header=names is None, **rules)
    _check_characters(plain.delimiter, plain.quote)
    plain = replace(plain, encoding=checked_encoding(plain.encoding, _CALLER, "\n\r" + plain.delimiter + plain.quote))
    if names is not None:
        names = _checked_names(names)
    if null_values is not None and not missing:
        what = "null_values= says which fields are missing, and nothing says what stands for them"
        raise PlanError(what, where=_CALLER, fix="give missing={column: value} as well")
    storage = open_storage(patterns, _CALLER)
    streams = is_compressed(storage)
    indices = None if streams else open_all(storage, plain)
    if names is not None:
        found = list(names)
    else:
        found = _first_header(storage, plain) if indices is None else _common_header(storage, indices)
    chosen = _columns(columns, found, dict(missing or {}), null_values)
    format = replace(plain, columns=chosen, num_fields=len(found))
    if streams:
        return RecordStream(storage, replace(format, names=found, first_file=storage.name(0)), _CALLER)
    numeric = all(column.dtype is not None for column in chosen)
    kind = CsvColumns if numeric else LineSource
    return kind(storage, format, _CALLER, indices=indices)


def _check_characters(delimiter: Any, quote: Any) -> None:
    good = all(isinstance(one, str) and len(one) == 1 and one.isascii() and one not in "\0\r\n" for one in (delimiter, quote))
    if not good or delimiter == quote:
        raise PlanError(
            f"delimiter={delimiter!r} and quote={quote!r}", where=_CALLER, fix="give two different ASCII characters that end no line"
        )


def _checked_names(names: Any) -> list[str]:
    given = [] if isinstance(names, str) else list(names)
    if not given or not all(isinstance(name, str) for name in given) or len(set(given)) < len(given):
        raise PlanError(f"names={names!r} names no fields, or one twice", where=_CALLER, fix='give one for each field, ["x", "y"]')
    return given


def _common_header(storage: Storage, indices: Indices) -> list[str]:
    """Return the header that all files have."""
    headers = [list(map(str, meta.get("header", ()))) for meta in indices.metas]  # that of the first file first
    for number, header in enumerate(headers):
        if header != headers[0]:
            file = int(np.argmax(indices.meta_of == number))
            raise _other_header(storage.name(file), header, storage.name(0), headers[0])
    return headers[0]


def _other_header(name: str, header: list[str], first: str, expected: list[str]) -> RecordError:
    return RecordError(
        f"the header of {shown(name)} is {shown(','.join(header))}, and that of {shown(first)} is {shown(','.join(expected))}",
        where=_CALLER,
        fix="read files of one kind at a time, and join the datasets with concatenate",
    )


def _first_header(storage: Storage, format: CsvRecords) -> list[str]:
    """Return the header of the first file of a stream.

    Raises:
        RecordError: there is none, or the file cannot be read.
    """
    found: list[list[str]] = []

    def first(head: bytes) -> None:
        found.append(format._header(storage.name(0), head)["header"])

    for _ in stream_lines(pieces_of(storage, 0), storage.name(0), format.rules, first):
        break
    return found[0]


def _columns(declared: Any, names: list[str], missing: dict[str, Any], null_values: Sequence[str] | None) -> tuple[CsvColumn, ...]:
    """Return what an element has."""
    fix = 'give names, ["x"], or names and dtypes, {"x": np.float32}'
    pairs = declared_pairs(names if declared is None else declared, "columns", _CALLER, fix)
    for name in [*dict(pairs), *missing]:
        if name not in names:
            known = ", ".join(map(repr, names[:_SHOWN])) + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")
            raise PlanError(
                f"there is no column {name!r}", where=_CALLER, fix=f"the columns are {known}; check delimiter= when that looks wrong"
            )
    columns = []
    for name, dtype in pairs:
        kind = None if dtype is None or dtype is str else declared_dtype(dtype, name, _CALLER)
        default = _default(missing[name], kind, name) if name in missing else None
        nulls = frozenset() if default is None else _nulls(kind) if null_values is None else frozenset(null_values)
        columns.append(CsvColumn(name=name, place=names.index(name), dtype=kind, default=default, nulls=nulls))
    return tuple(columns)


def _nulls(dtype: np.dtype[Any] | None) -> frozenset[str]:
    """Return the texts that mean that nothing is there, unless the user says which: none of a column of text, and no nan of floats."""
    if dtype is None:
        return frozenset()
    return frozenset(word for word in _NULL_WORDS if dtype.kind != "f" or "nan" not in word.lower())


def _default(value: Any, dtype: np.dtype[Any] | None, name: str) -> Any:
    if value is None:
        raise PlanError(
            f"missing={{{name!r}: None}} gives no value for empty fields", where=_CALLER, fix="give a value, such as -1, nan or a text"
        )
    if dtype is None:
        return value
    try:
        number = number_of(value, dtype)
        if number.ndim:
            raise DoesNotFit("a field holds one")
    except ValueError as error:
        raise PlanError(
            f"missing={{{name!r}: {value!r}}} is no {dtype}: {error}", where=_CALLER, fix="give a value of that dtype"
        ) from error
    return number


# -- from the text of a record to its fields --------------------------------------------------------------------------------------


class Unsplittable(NotTaken):
    """Quotes or line ends of a record are out of order; the text says how, `fix` what to do."""


_UNSPLITTABLE = {
    "new-line": (
        "CR stands outside quotes, and CR alone ends no line",
        "end the lines with LF or CRLF (tr '\\r' '\\n' <old.csv >new.csv), or put quotes around fields with CR in them",
    ),
    "unexpected end": ("a quote is not closed", "close the quote, or give the quote character that the file uses"),
}


def split_quoted(text: str, delimiter: str, quote: str) -> list[str]:
    """Split a record with quotes in it.

    Raises:
        Unsplittable: its quotes or line ends are out of order.
    """
    try:
        return _split(text, delimiter, quote)
    except csv.Error as error:
        misplaced = f"{delimiter!r} expected after {quote!r}", "double the quotes inside quotes, as RFC 4180 says"
        raise Unsplittable(*next((words for kind, words in _UNSPLITTABLE.items() if kind in str(error)), misplaced)) from error


_LIMIT = OwnLocks()


def _split(text: str, delimiter: str, quote: str) -> list[str]:
    """Split as `csv` does. Its limit of a field, 128 kB at first, is one for the whole process: it is raised for the call alone."""
    read = partial(csv.reader, [text], delimiter=delimiter, quotechar=quote, strict=True)
    try:
        return next(read())
    except csv.Error as error:
        if "field limit" not in str(error):
            raise
    with _LIMIT.own():
        before = csv.field_size_limit(len(text))
        try:
            return next(read())
        finally:
            csv.field_size_limit(before)
