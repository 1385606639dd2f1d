"""Text files, one element per line."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from penstock._storage.opening import Patterns, open_storage
from penstock.errors import RecordError
from penstock.sources.records import RecordSource, RecordTable

__all__ = ["TextLines", "text_source"]

_BOM = b"\xef\xbb\xbf"
_NEWLINE = 10


@dataclass(frozen=True, slots=True)
class TextLines:
    """Lines of UTF-8 text, as {"text": str}.

    A line ends at LF or CRLF, or at the end of the file; the end is not part of it. Empty lines are elements. A byte order mark at the
    beginning is not part of the text.

    Attributes:
        max_line_bytes: a longer line is an error when the file is indexed, before it is ever read whole.
    """

    max_line_bytes: int = 64 << 20

    @property
    def kind(self) -> str:
        """Return "text"."""
        return "text"

    @property
    def options(self) -> dict[str, Any]:
        """Return nothing: where lines begin and end depends on no option."""
        return {}

    def scan(self, pieces: Iterator[NDArray[np.uint8]], size: int, name: str) -> dict[str, Any]:
        """Find the lines of one file.

        Raises:
            RecordError: a line is longer than the limit.
        """
        ends: list[NDArray[np.int64]] = []
        done = first = num_lines = last = 0
        for piece in pieces:
            if done == 0 and piece[:3].tobytes() == _BOM:
                first = last = len(_BOM)
            found = np.flatnonzero(piece == _NEWLINE) + done
            done += len(piece)
            begins = np.concatenate(([last], found + 1))
            long = np.flatnonzero(np.append(found, done) - begins > self.max_line_bytes)
            if long.size:
                raise _too_long(name, num_lines + int(long[0]), int(begins[long[0]]), self.max_line_bytes)
            ends.append(found)
            last, num_lines = int(begins[-1]), num_lines + len(found)
        if done > last:
            ends.append(np.array([done], np.int64))
        stops = np.concatenate(ends) if ends else np.empty(0, np.int64)
        offsets = np.empty_like(stops)
        offsets[:1] = first
        offsets[1:] = stops[:-1] + 1
        return {"offsets": offsets, "lengths": stops - offsets}

    def decode(self, data: memoryview, table: RecordTable, index: int) -> dict[str, str]:
        """Return {"text": str}.

        Raises:
            UnicodeDecodeError: it is no UTF-8.
        """
        return {"text": str(data, "utf-8").removesuffix("\r")}


def text_source(patterns: Patterns, storage_options: Any = None) -> RecordSource:
    """Open text files as one source of lines.

    Raises:
        PlanError, SourceError, OSError: as `open_storage` and `open_indices`.
    """
    return RecordSource(open_storage(patterns, "read_text", storage_options), TextLines(), "read_text", noun="line")


def _too_long(name: str, line: int, offset: int, limit: int) -> RecordError:
    return RecordError(
        f"line {line} is longer than {limit} bytes",
        where=f"line {line} of {name!r}, offset {offset}",
        fix="check that it is a text file; another limit is TextLines(max_line_bytes=...)",
    )
