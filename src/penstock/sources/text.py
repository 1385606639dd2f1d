"""Text files, one element per line, and JSON lines, one value per line; declared types of JSON values.

Values become integers exactly or not at all, and floats rounded to their dtype.
"""

from __future__ import annotations

import codecs
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import field
from typing import Any, ClassVar

import numpy as np

from penstock._contracts.arguments import listed
from penstock._contracts.element import ArraySpec
from penstock._contracts.storage import Storage
from penstock._storage import Patterns, open_storage
from penstock._system.lazy import dataclass
from penstock._system.text import shown
from penstock.errors import PlanError, RecordError
from penstock.formats.compression import PlainPart
from penstock.formats.index import Indices
from penstock.formats.linescan import MAX_LINE_BYTES, NEWLINE, Rules, line_number, scan_lines, stream_lines
from penstock.formats.values import DoesNotFit, json_decoder, json_fix, nul_in
from penstock.kernels.library import Uint8s
from penstock.sources.compressed import RecordStream, StreamFormat, is_compressed
from penstock.sources.records import RecordSource, RecordTable, moved


class LineSource(RecordSource):
    """Records that are lines: they are named by file and line.

    Args:
        storage: the files.
        format: finds and decodes records.
        caller: the function that the user called.
        indices: of the files, if they are open already. No record may be longer than `format` allows, whatever the limit was when they were
            built.

    Raises:
        RecordError: a file that is not of this format, or a record that is too long.
        SourceError, OSError: a file that cannot be read.
    """

    def __init__(self, storage: Storage, format: Any, caller: str, *, indices: Indices | None = None) -> None:
        super().__init__(storage, format, caller, noun="line", indices=indices)
        lengths, max_line_bytes = self.table.columns["lengths"], format.max_line_bytes
        if len(lengths) and int(lengths.max()) > max_line_bytes:
            first = int((lengths > max_line_bytes).argmax())
            what = f"the line has {int(lengths[first])} bytes, more than {max_line_bytes}"
            raise bad_line(self.table, first, what, "check the file, or give max_line_bytes=")

    def describe(self, index: int) -> str:
        """Name line and file."""
        return place_of(self.table, index)


class LineFormat(ABC):
    """The part of a format of lines that all have in common. See `StreamFormat`."""

    __slots__ = ()
    checks_records: ClassVar[bool] = False
    """False: nothing in a line tells whether it is one."""
    separator: ClassVar[int] = NEWLINE

    @property
    @abstractmethod
    def rules(self) -> Rules:
        """Say what is a record."""

    def first(self, name: str) -> Callable[[bytes], Any] | None:
        """Return what is called with the first record of a file where that is a header."""
        return None

    def scan(self, pieces: Iterator[Uint8s], size: int, name: str) -> dict[str, Any]:
        """Find the records of one file.

        Raises:
            RecordError: a record is longer than the limit, quotes that are not closed, no good header, or the file is no text.
        """
        return scan_lines(pieces, name, self.rules, self.first(name))

    def stream(self, pieces: Iterator[Uint8s], name: str) -> Iterator[PlainPart]:
        """Find the records of a file piece by piece.

        Raises:
            RecordError: as `scan`.
        """
        return stream_lines(pieces, name, self.rules, self.first(name))


@dataclass(frozen=True, slots=True)
class TextLines(LineFormat):
    """Lines of text, as {"text": str}.

    A line ends at LF or CRLF, or at the end of the file; the end is not part of it, nor is a CR at the very end of the file. A byte order
    mark at the beginning is not part of the text.

    Attributes:
        max_line_bytes: a longer line is an error when the file is indexed, before it is ever read whole.
        skip_blank: leave lines out that hold nothing but white space; otherwise they are elements.
        encoding: of the text.
    """

    kind: ClassVar[str] = "text"

    max_line_bytes: int = MAX_LINE_BYTES
    skip_blank: bool = False
    encoding: str = "utf-8"

    @property
    def options(self) -> dict[str, Any]:
        """Return which lines are left out, if any are, and another encoding than UTF-8."""
        return ({"skip": "blank"} if self.skip_blank else {}) | encoding_option(self.encoding)

    @property
    def rules(self) -> Rules:
        """Say which lines are left out."""
        return Rules(skip="blank" if self.skip_blank else "none", max_line_bytes=self.max_line_bytes)

    def decode(self, data: memoryview, table: RecordTable, index: int) -> dict[str, str]:
        """Return {"text": str}.

        Raises:
            RecordError: it is no UTF-8.
            IndexStale: it is not one line any more.
        """
        text = decoded(data, table, index, self.encoding)
        if "\n" in text:
            raise moved(table, index)
        return {"text": text.removesuffix("\r")}


def text_source(patterns: Patterns, *, encoding: str = "utf-8", **options: Any) -> LineSource | RecordStream:
    """Open text files as one source of lines, a stream where some are compressed. `options` are those of `TextLines`.

    Raises:
        PlanError, RecordError, SourceError, OSError: as `open_storage` and `LineSource`.
    """
    return line_source(patterns, TextLines(encoding=checked_encoding(encoding, "read_text"), **options), "read_text")


def line_source(patterns: Patterns, format: StreamFormat, caller: str) -> LineSource | RecordStream:
    """Return the source for lines of files: a stream where the name of one says that it is compressed."""
    storage = open_storage(patterns, caller)
    return (RecordStream if is_compressed(storage) else LineSource)(storage, format, caller)


def encoding_option(encoding: str) -> dict[str, str]:
    """Return the part of an index's options that says the encoding; that of UTF-8 is none, as in indices of before."""
    return {} if encoding == "utf-8" else {"encoding": encoding}


def place_of(table: RecordTable, index: int) -> str:
    """Say where a record is, such as 'line 412 of train.jsonl'."""
    file, number = table.place(index)
    return f"line {line_number(table.indices.columns_of_file(file), number)} of {shown(table.names[file])}"


def bad_line(table: RecordTable, index: int, what: str, fix: str) -> RecordError:
    """Return the error of a record, which names line, file and offset."""
    return RecordError(what, where=f"{place_of(table, index)}, offset {int(table.columns['offsets'][index])}", fix=fix)


def decoded(data: memoryview, table: RecordTable, index: int, encoding: str = "utf-8") -> str:
    """Return the text of a record.

    Raises:
        RecordError: it is of another encoding, or has NUL bytes.
    """
    try:
        text = str(data, encoding)
    except UnicodeDecodeError as error:
        named = "UTF-8" if encoding == "utf-8" else encoding
        what = f"byte {error.start} of the line is {data[error.start]:#04x}, which is no {named} ({error.reason})"
        fix = "give encoding='latin-1' or the like (read_jsonl: save the file as UTF-8), or leave such lines out with on_error="
        raise bad_line(table, index, what, fix) from error
    if "\0" in text:
        raise bad_line(table, index, nul_in(text), "take them out (tr -d '\\0'), or leave such lines out with on_error=")
    return text


def checked_encoding(encoding: Any, caller: str, ends: str = "\n") -> str:
    """Return the name of an encoding in whose texts every byte of ASCII is what it is in ASCII.

    Args:
        encoding: as the user gave it.
        caller: the function that the user called.
        ends: the characters that end records and fields.

    Raises:
        PlanError: it is no such encoding.
    """
    name = ""
    try:
        name = codecs.lookup(encoding).name.removesuffix("-sig")
        plain = bytes(range(128)).decode(name) == bytes(range(128)).decode("ascii")
        plain = plain and b"\x1b" not in "é表한".encode(name, "ignore") and not any(_is_second(end, name) for end in ends)
    except (LookupError, TypeError, UnicodeError):
        plain = False
    if plain:
        return name
    raise PlanError(
        f"encoding={encoding!r} is none in which lines and fields end with bytes of ASCII",
        where=caller,
        fix="give 'latin-1', 'cp1252', 'gb18030' or the like; save UTF-16 as UTF-8: iconv -f UTF-16 -t UTF-8",
    )


def _is_second(end: str, encoding: str) -> bool:
    """Tell whether the byte of a character can be the second of another one, as that of | in Shift-JIS."""
    for lead in range(128, 256):
        with suppress(UnicodeDecodeError):
            if not bytes((lead, ord(end))).decode(encoding).endswith(end):
                return True
    return False


_TYPES: dict[str, set[type]] = {"b": {bool}, "i": {int}, "u": {int}, "f": {int, float}}
"""The types of JSON values that a dtype of each kind can stand for."""


def declared_dtype(dtype: Any, name: str, caller: str) -> np.dtype[Any]:
    """Return a dtype that values can be converted to: bool, integers, floats.

    Raises:
        PlanError: it is another one, or none.
    """
    try:
        found: np.dtype[Any] = np.dtype(dtype)
    except (TypeError, ValueError):  # ValueError: of an object that has a dtype, such as an ArraySpec
        found = np.dtype(object)
    if found.kind not in _TYPES or not found.isnative:
        fix = "declare a bool, an integer or a float such as np.float32; text needs no dtype"
        if isinstance(dtype, ArraySpec):
            fix = f"declare the dtype alone, {{{name!r}: {np.dtype(dtype.dtype).name!r}}}: shapes are those of the values"
        raise PlanError(f"{dtype!r} is declared for {name!r}", where=caller, fix=fix)
    return found


def number_of(value: Any, dtype: np.dtype[Any]) -> Any:
    """Return a JSON number, or lists of them, as a NumPy scalar or array.

    Raises:
        DoesNotFit: it is something else, is ragged, or does not fit: integers are never cut, what is too large is not made infinite, and
            true is no 1, also not among numbers.
    """
    plain = value.tolist() if isinstance(value, (np.ndarray, np.generic)) else value
    another = DoesNotFit("ragged lists, null, text or numbers of another kind")
    if not _types_in(plain) <= _TYPES[dtype.kind]:
        raise another
    try:
        with np.errstate(over="ignore"):
            array = np.array(plain, dtype)
            exact = np.array(plain, np.float64) if dtype.kind == "f" else array
    except OverflowError as error:
        limits = np.iinfo(dtype) if dtype.kind in "iu" else None
        raise DoesNotFit(f"only {limits.min} to {limits.max} fit" if limits else "the number is too large") from error
    except ValueError as error:
        raise another from error
    if dtype.kind == "f" and not np.array_equal(np.isinf(array), np.isinf(exact)):
        raise DoesNotFit("the number is too large")
    return array[()]


def _types_in(value: Any) -> set[type]:
    """Return the types of all that stands in nested lists."""
    if not isinstance(value, (list, tuple)):
        return {type(value)}
    kinds = set(map(type, value))
    if kinds & {list, tuple}:
        return set().union(*map(_types_in, value))
    return kinds


@dataclass(frozen=True, slots=True, eq=False)  # for np.dtype(np.float64) == None is True
class JsonLines(LineFormat):
    """JSON values, one a line; lines of nothing but white space are left out.

    Attributes:
        fields: (name, dtype) of the fields that an element has; a dtype of None leaves the value as JSON gives it. None: the whole value.
        allow_nan: take NaN, Infinity and -Infinity, which are no JSON but which Python's json writes; and numbers beyond the floats (1e400)
            as infinite.
        max_line_bytes: a longer line is an error when the file is indexed, before it is ever read whole.
    """

    kind: ClassVar[str] = "jsonl"
    options: ClassVar[dict[str, Any]] = {}
    """Nothing: where lines begin and end depends on no option."""

    fields: tuple[tuple[str, np.dtype[Any] | None], ...] | None = None
    allow_nan: bool = False
    max_line_bytes: int = MAX_LINE_BYTES
    _decoder: json.JSONDecoder = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_decoder", json_decoder(allow_nan=self.allow_nan))

    def __reduce__(self) -> tuple[Any, ...]:
        return JsonLines, (self.fields, self.allow_nan, self.max_line_bytes)

    @property
    def rules(self) -> Rules:
        """Say that blank lines are left out."""
        return Rules(skip="blank", max_line_bytes=self.max_line_bytes)

    def decode(self, data: memoryview, table: RecordTable, index: int) -> Any:
        """Return the line's value, or a dict of the declared fields.

        Raises:
            RecordError: no UTF-8, no JSON, a key that comes twice, nesting beyond Python's limit, or a field that is missing or does not
                fit.
            IndexStale: it is not one line any more.
        """
        text = decoded(data, table, index)
        if "\n" in text:
            raise moved(table, index)
        try:
            value = self._decoder.decode(text)
        except json.JSONDecodeError as error:
            what = f"the line is no JSON: {error.msg} at character {error.pos}, near {text[error.pos : error.pos + 20]!r}"
            raise bad_line(table, index, what, json_fix(error, text)) from error
        except ValueError as error:
            raise bad_line(table, index, str(error), json_fix(error, text)) from error
        except RecursionError as error:
            raise bad_line(table, index, "the line is nested too deep", "flatten it: Python reads about 1,000 levels of JSON") from error
        if self.fields is None:
            return value
        if type(value) is not dict:
            kind = "null" if value is None else f"of type {type(value).__name__}"
            raise bad_line(table, index, f"the line is {kind}, not an object with fields", "leave fields= out to get it as it is")
        return {name: self._field(value, name, dtype, table, index) for name, dtype in self.fields}

    def _field(self, value: dict[str, Any], name: str, dtype: np.dtype[Any] | None, table: RecordTable, index: int) -> Any:
        if name not in value:
            known = ", ".join(map(repr, list(value)[:20]))
            raise bad_line(
                table, index, f"there is no field {name!r}; there are {known or 'none'}", "correct fields=, or add it to the line"
            )
        found = value[name]
        if dtype is None:
            return found
        try:
            return number_of(found, dtype)
        except ValueError as error:
            what = f"field {name!r} is {json.dumps(found):.80}, which is no {dtype}: {error}"
            raise bad_line(table, index, what, "declare another dtype, or None to get the value as it is") from error


def jsonl_source(patterns: Patterns, *, fields: Any = None, **options: Any) -> LineSource | RecordStream:
    """Open files of JSON lines as one source, a stream where some are compressed. `options` are those of `JsonLines`.

    Raises:
        PlanError: `fields` names nothing, or a dtype is none.
        RecordError, SourceError, OSError: as `open_storage` and `LineSource`.
    """
    return line_source(patterns, JsonLines(_declared(fields), **options), "read_jsonl")


def _declared(fields: Any) -> tuple[tuple[str, np.dtype[Any] | None], ...] | None:
    if fields is None:
        return None
    pairs = declared_pairs(fields, "fields", "read_jsonl", 'give names, ["text"], or names and dtypes, {"label": np.int64}')
    return tuple((name, None if dtype is None else declared_dtype(dtype, name, "read_jsonl")) for name, dtype in pairs)


def declared_pairs(given: Any, argument: str, caller: str, fix: str) -> list[tuple[str, Any]]:
    """Return declared names with their dtypes, None for names alone.

    Raises:
        PlanError: there is none, one is no text, or one stands twice.
    """
    pairs = list(given.items()) if isinstance(given, Mapping) else [(name, None) for name in listed(given) or ()]
    if not pairs or not all(isinstance(name, str) for name, _ in pairs) or len(dict(pairs)) < len(pairs):
        raise PlanError(f"{argument}={given!r} declares nothing", where=caller, fix=fix)
    return pairs
