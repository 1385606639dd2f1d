"""JSON lines: one value per line, as Python objects or as arrays of declared types."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from penstock._storage import Patterns, open_storage
from penstock.errors import PlanError
from penstock.formats.linescan import MAX_LINE_BYTES, Rules, scan_lines
from penstock.sources.converting import declared_dtype, number_of
from penstock.sources.record_format import RecordTable
from penstock.sources.text import LineSource, bad_line, decoded

__all__ = ["JsonLines", "jsonl_source"]

_SHOWN_CHARS = 80


@dataclass(frozen=True, slots=True, eq=False)  # for np.dtype(np.float64) == None is True
class JsonLines:
    """JSON values, one a line; lines of nothing but white space are left out.

    Attributes:
        fields: (name, dtype) of the fields that an element has; a dtype of None leaves the value as JSON gives it. None: the whole value.
        allow_nan: take NaN, Infinity and -Infinity, which are no JSON but which Python's json writes; and numbers beyond the floats (1e400)
            as infinite.
        max_line_bytes: a longer line is an error when the file is indexed, before it is ever read whole.
    """

    fields: tuple[tuple[str, np.dtype[Any] | None], ...] | None = None
    allow_nan: bool = False
    max_line_bytes: int = MAX_LINE_BYTES
    _decoder: json.JSONDecoder = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        constant, number = (None, None) if self.allow_nan else (_refuse_constant, _finite)
        decoder = json.JSONDecoder(object_pairs_hook=_object, parse_constant=constant, parse_float=number)
        object.__setattr__(self, "_decoder", decoder)

    def __reduce__(self) -> tuple[Any, ...]:
        return JsonLines, (self.fields, self.allow_nan, self.max_line_bytes)

    @property
    def kind(self) -> str:
        """Return "jsonl"."""
        return "jsonl"

    @property
    def options(self) -> dict[str, Any]:
        """Return nothing: where lines begin and end depends on no option."""
        return {}

    @property
    def checks_records(self) -> bool:
        """Return False: nothing in a line tells whether it is one."""
        return False

    def scan(self, pieces: Iterator[NDArray[np.uint8]], size: int, name: str) -> dict[str, Any]:
        """Find the lines of one file.

        Raises:
            RecordError: a line is longer than the limit, or the file is no text.
        """
        return scan_lines(pieces, size, name, Rules(skip="blank", max_line_bytes=self.max_line_bytes))

    def decode(self, data: memoryview, table: RecordTable, index: int) -> Any:
        """Return the line's value, or a dict of the declared fields.

        Raises:
            RecordError: no UTF-8, no JSON, a key that comes twice, nesting beyond Python's limit, or a field that is missing or does not
                fit.
        """
        text = decoded(data, table, index)
        try:
            value = self._decoder.decode(text)
        except json.JSONDecodeError as error:
            what = f"the line is no JSON: {error.msg} at character {error.pos}, near {text[error.pos : error.pos + 20]!r}"
            raise bad_line(table, index, what, _hint(text)) from error
        except ValueError as error:
            raise bad_line(table, index, str(error), _hint_of(error)) from error
        except RecursionError as error:
            raise bad_line(table, index, "the line is nested too deep", "flatten it: Python reads about 1,000 levels of JSON") from error
        if self.fields is None:
            return value
        if type(value) is not dict:
            raise bad_line(table, index, f"the line is {_kind(value)}, not an object with fields", "leave fields= out to get it as it is")
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
            what = f"field {name!r} is {_shown(found)}, which is no {dtype}: {error}"
            raise bad_line(table, index, what, "declare another dtype, or None to get the value as it is") from error


def jsonl_source(patterns: Patterns, *, fields: Any = None, allow_nan: bool = False, max_line_bytes: int = MAX_LINE_BYTES) -> LineSource:
    """Open files of JSON lines as one source.

    Raises:
        PlanError: `fields` names nothing, or a dtype is none.
        RecordError, SourceError, OSError: as `open_storage` and `LineSource`.
    """
    format = JsonLines(_declared(fields), bool(allow_nan), max_line_bytes)
    return LineSource(open_storage(patterns, "read_jsonl"), format, "read_jsonl", max_line_bytes=max_line_bytes)


def _declared(fields: Any) -> tuple[tuple[str, np.dtype[Any] | None], ...] | None:
    if fields is None:
        return None
    if isinstance(fields, Mapping):
        pairs = tuple(fields.items())
    elif isinstance(fields, Sequence) and not isinstance(fields, str):
        pairs = tuple((name, None) for name in fields)
    else:
        pairs = ()
    if not pairs or not all(isinstance(name, str) for name, _ in pairs) or len({name for name, _ in pairs}) < len(pairs):
        raise PlanError(
            f"fields={fields!r} declares nothing", where="read_jsonl", fix='give names, ["text"], or names and dtypes, {"label": np.int64}'
        )
    return tuple((name, None if dtype is None else declared_dtype(dtype, name, "read_jsonl")) for name, dtype in pairs)


class _Twice(ValueError):
    """A key stands twice in an object."""


class _NoNumber(ValueError):
    """NaN or Infinity."""


class _TooLarge(ValueError):
    """A number that would be infinite."""


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the object; one that has a key twice would lose a value without a word."""
    value = dict(pairs)
    if len(value) < len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise _Twice(f"the key {key[:_SHOWN_CHARS]!r} stands twice in one object")
            seen.add(key)
    return value


def _refuse_constant(name: str) -> Any:
    raise _NoNumber(f"{name} is no JSON")


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise _TooLarge(f"{text[:_SHOWN_CHARS]} is too large for a float")
    return number


def _hint(text: str) -> str:
    if text[:1] == "[" and not text.rstrip().endswith("]"):
        return "this looks like one array over many lines: write one value a line (jq -c '.[]')"
    if text.rstrip() in ("{", "["):
        return "this looks like one value over many lines: write each on one line (jq -c .)"
    return "mend the line, or leave such lines out with on_error="


def _hint_of(error: ValueError) -> str:
    if isinstance(error, _NoNumber):
        return "give allow_nan=True to take what Python's json writes"
    if isinstance(error, _TooLarge):
        return "mend the number, or give allow_nan=True to take it as infinite"
    return "give each key once" if isinstance(error, _Twice) else "mend the line"


def _kind(value: Any) -> str:
    return "null" if value is None else f"of type {type(value).__name__}"


def _shown(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= _SHOWN_CHARS else text[: _SHOWN_CHARS - 3] + "..."
