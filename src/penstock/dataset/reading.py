"""Where datasets begin: functions that open files of records, lines and tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from penstock._contracts.arguments import whole_number
from penstock._plan import check
from penstock._plan import node as plan
from penstock.dataset.builder import Dataset
from penstock.errors import PlanError

__all__ = ["read_csv", "read_jsonl", "read_text", "read_tokens"]


def read_text(pattern: Any, *, skip_blank: bool = False, max_line_bytes: int = 64 << 20) -> Dataset:
    """Read the lines of text files: {"text": str}, without line ends. Any line at any time, so `shuffle` needs no buffer.

    UTF-8 with or without a byte order mark; LF or CRLF, also missing at the end of a file. An index of 12 bytes a line is built when a file
    is first read, and kept beside it or in the user's cache folder.

    Args:
        pattern: a path, a glob pattern, or several; files in the order of the bytes of their paths.
        skip_blank: leave lines out that hold nothing but white space; otherwise they are elements.
        max_line_bytes: a longer line is an error, found before it is read whole.

    Raises:
        PlanError: an argument out of range.
        RecordError: a line beyond the limit, or a file that is no text (compressed, UTF-16); when a line is read: it is no UTF-8.
        SourceError, OSError: no file, or one that cannot be read.
    """
    from penstock.sources.text import text_source

    blank, limit = check.flag_argument(skip_blank, "skip_blank", "read_text"), _limit("read_text", max_line_bytes)
    return Dataset(plan.Read(source=text_source(pattern, skip_blank=blank, max_line_bytes=limit)))


def read_jsonl(pattern: Any, *, fields: Any = None, allow_nan: bool = False, max_line_bytes: int = 64 << 20) -> Dataset:
    """Read JSON lines: one value a line, as Python objects (numbers are int and float), or only some fields, as arrays.

    Files are indexed as those of `read_text`; lines of nothing but white space are left out.

    Args:
        pattern: as `read_text`.
        fields: the fields that an element has: names, or a dict of names and dtypes. A number, or lists of numbers of one shape, becomes a
            NumPy scalar or array of that dtype, exactly or not at all; None leaves a value as it is. By default elements are the values
            themselves.
        allow_nan: take NaN, Infinity and -Infinity, which are no JSON but which Python's json writes.
        max_line_bytes: as `read_text`.

    Raises:
        PlanError: `fields` that declare nothing, a dtype that is none, or a limit out of range.
        RecordError: as `read_text`; when a line is read: no JSON, a key that stands twice in an object, nesting beyond Python's limit, a
            declared field that is missing or does not fit its dtype.
        SourceError, OSError: no file, or one that cannot be read.
    """
    from penstock.sources.text import jsonl_source

    nan, limit = check.flag_argument(allow_nan, "allow_nan", "read_jsonl"), _limit("read_jsonl", max_line_bytes)
    return Dataset(plan.Read(source=jsonl_source(pattern, fields=fields, allow_nan=nan, max_line_bytes=limit)))


def read_csv(
    pattern: Any,
    *,
    columns: Any = None,
    names: Sequence[str] | None = None,
    delimiter: str = ",",
    quote: str = '"',
    missing: Mapping[str, Any] | None = None,
    max_line_bytes: int = 64 << 20,
) -> Dataset:
    """Read CSV files (RFC 4180, LF or CRLF): one dict a record, its columns as text or as numbers of declared dtypes.

    Fields in quotes may hold delimiters, line ends and doubled quotes. Files are indexed as those of `read_text`; empty lines are left out.

    Args:
        pattern: as `read_text`.
        columns: what an element has: names, or a dict of names and dtypes (bool, integers, floats; None or str for text). By default all,
            as text. With numbers alone, batches are filled column by column.
        names: of the fields, for files without a header; otherwise the first record of each file is one, and all must be alike.
        delimiter: between fields, one ASCII character.
        quote: around fields, another one.
        missing: what stands for an empty field, by column; without it an empty number is an error, and empty text is "".
        max_line_bytes: of a record; as `read_text`.

    Raises:
        PlanError: a column that the files do not have, or an argument out of range.
        RecordError: as `read_text`; headers that differ, or a quote that is not closed; when a record is read: another number of fields
            than the header, an empty field, or one that is no number of its dtype.
        SourceError, OSError: no file, or one that cannot be read.
    """
    from penstock.sources.csvrecords import csv_source

    limit = _limit("read_csv", max_line_bytes)
    columns, names = (check.names_argument(given, name, "read_csv") for given, name in ((columns, "columns"), (names, "names")))
    options: dict[str, Any] = {"columns": columns, "names": names, "delimiter": delimiter, "quote": quote}
    options["missing"] = check.mapping_argument(missing, "missing", "read_csv")
    return Dataset(plan.Read(source=csv_source(pattern, **options, max_line_bytes=limit)))


def read_tokens(pattern: Any, length: int, *, dtype: Any = None, stride: int | None = None, vocab_size: int | None = None) -> Dataset:
    """Read windows of token ids: {"tokens": int64 [length + 1]}, whose first `length` are inputs and whose last `length` are targets.

    Files are .npy (one dimension, integers) or raw binary. No window lies in two files, and the tokens behind the last whole window of a
    file are left out (`print(ds)` counts them). Memory does not grow with the files; they are read with `pread`, so a file that is cut
    while it is read is an error.

    Args:
        pattern: a path, a glob pattern, or several; files in the order of the bytes of their paths.
        length: tokens of the inputs; each window has one more, the last target.
        dtype: of the tokens of raw files, such as np.uint16; .npy files say it themselves.
        stride: tokens from the beginning of one window to that of the next. None is `length`: each token is a target once in an epoch.
            1 with `shuffle` takes random places, as nanoGPT does, but none twice in an epoch.
        vocab_size: if given, a token outside 0..vocab_size-1 is an error when its window is read.

    Raises:
        PlanError: an argument out of range, no dtype for a raw file, another one than an .npy file says, or files of several kinds.
        RecordError: a damaged file, a file that holds something else than tokens (objects, floats, two dimensions, another byte order), or
            none as long as a window.
        SourceError, OSError: no file, or one that cannot be read.
    """
    from penstock._storage import open_storage
    from penstock.sources.tokens import TokenSource, find_tokens

    length = _count("read_tokens", "length", length)
    stride = length if stride is None else _count("read_tokens", "stride", stride)
    if vocab_size is not None:
        vocab_size = _count("read_tokens", "vocab_size", vocab_size)
    storage = open_storage(pattern, "read_tokens")
    source = TokenSource(storage, find_tokens(storage, dtype), length=length, stride=stride, vocab_size=vocab_size)
    return Dataset(plan.Read(source=source))


def _limit(caller: str, max_line_bytes: Any) -> int:
    return _count(caller, "max_line_bytes", max_line_bytes)


def _count(caller: str, name: str, value: Any) -> int:
    number = whole_number(value)
    if number is not None and 1 <= number < 1 << 31:
        return number
    raise PlanError(f"{name}={value!r}", where=caller, fix=f"give {name} as an int from 1 to {(1 << 31) - 1}")
