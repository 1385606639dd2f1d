"""From the text of a CSV record to its fields."""

from __future__ import annotations

import csv
import re

__all__ = ["Unsplittable", "split_long", "split_quoted"]


class Unsplittable(ValueError):
    """Quotes or line ends of a record are out of order; the text says how, `fix` what to do."""

    def __init__(self, what: str, fix: str) -> None:
        super().__init__(what)
        self.fix = fix


def split_quoted(text: str, delimiter: str, quote: str) -> list[str]:
    """Split a record with quotes in it.

    Raises:
        Unsplittable: its quotes or line ends are out of order.
    """
    try:
        return next(csv.reader([text], delimiter=delimiter, quotechar=quote, strict=True))
    except csv.Error:  # so it is, or a field is beyond csv.field_size_limit(), which anybody in the process may have set
        return split_long(text, delimiter, quote)


def split_long(text: str, delimiter: str, quote: str) -> list[str]:
    """Do as `csv.reader` with strict=True, whatever the length of a field; some times slower.

    Raises:
        Unsplittable: as `split_quoted`.
    """
    fields: list[str] = []
    place, ends = 0, re.compile(f"[{re.escape(delimiter)}\r\n]")
    while place or text[:1] not in ("", "\r", "\n"):
        begin = place
        if text.startswith(quote, begin):
            place = _behind_quotes(text, begin, quote)
            fields.append(text[begin + 1 : place - 1].replace(quote + quote, quote))
        else:
            end = ends.search(text, begin)
            place = end.start() if end else len(text)
            fields.append(text[begin:place])
        if not text.startswith(delimiter, place):
            break
        place += 1
    rest = text[place:]
    if rest.strip("\r\n"):
        raise _misplaced(rest, delimiter, quote)
    return fields


def _behind_quotes(text: str, begin: int, quote: str) -> int:
    """Return the place behind the quote that closes the one at `begin`."""
    for run in re.compile(f"{re.escape(quote)}+").finditer(text, begin + 1):
        if (run.end() - run.start()) % 2:  # all others are doubled
            return run.end()
    raise Unsplittable("a quote is not closed", "close the quote, or give the quote character that the file uses")


def _misplaced(rest: str, delimiter: str, quote: str) -> Unsplittable:
    """Say why a field cannot end in front of `rest`."""
    if rest[0] in "\r\n":
        return Unsplittable(
            "CR stands outside quotes, and CR alone ends no line",
            "end the lines with LF or CRLF (tr '\\r' '\\n' <old.csv >new.csv), or put quotes around fields with CR in them",
        )
    return Unsplittable(f"{delimiter!r} expected after {quote!r}", "double the quotes inside quotes, as RFC 4180 says")
