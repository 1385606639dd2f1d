"""Text files, one element per line."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from penstock._contracts.storage import Storage
from penstock._storage import Patterns, open_storage
from penstock.errors import RecordError
from penstock.formats.index import Indices
from penstock.formats.linescan import MAX_LINE_BYTES, Rules, line_number, scan_lines
from penstock.sources.paths import shown
from penstock.sources.record_format import RecordFormat, RecordTable
from penstock.sources.records import RecordSource

__all__ = ["LineSource", "TextLines", "bad_line", "decoded", "place_of", "text_source"]


class LineSource(RecordSource):
    """Records that are lines: they are named by file and line.

    Args:
        storage: the files.
        format: finds and decodes records.
        caller: the function that the user called.
        max_line_bytes: no record may be longer, also where an index that was built with another limit is there.
        indices: of the files, if they are open already.

    Raises:
        RecordError: a file that is not of this format, or a record that is too long.
        SourceError, OSError: a file that cannot be read.
    """

    def __init__(
        self,
        storage: Storage,
        format: RecordFormat,
        caller: str,
        *,
        max_line_bytes: int = MAX_LINE_BYTES,
        indices: Indices | None = None,
    ) -> None:
        super().__init__(storage, format, caller, noun="line", indices=indices)
        lengths = self.table.columns["lengths"]
        if len(lengths) and int(lengths.max()) > max_line_bytes:
            first = int((lengths > max_line_bytes).argmax())
            what = f"the line has {int(lengths[first])} bytes, more than {max_line_bytes}"
            raise bad_line(self.table, first, what, "check the file, or give max_line_bytes=")

    def describe(self, index: int) -> str:
        """Name line and file."""
        return place_of(self.table, index)


@dataclass(frozen=True, slots=True)
class TextLines:
    """Lines of UTF-8 text, as {"text": str}.

    A line ends at LF or CRLF, or at the end of the file; the end is not part of it, nor is a CR at the very end of the file. A byte order
    mark at the beginning is not part of the text.

    Attributes:
        max_line_bytes: a longer line is an error when the file is indexed, before it is ever read whole.
        skip_blank: leave lines out that hold nothing but white space; otherwise they are elements.
    """

    max_line_bytes: int = MAX_LINE_BYTES
    skip_blank: bool = False

    @property
    def kind(self) -> str:
        """Return "text"."""
        return "text"

    @property
    def options(self) -> dict[str, Any]:
        """Return which lines are left out, if any are."""
        return {"skip": "blank"} if self.skip_blank else {}

    @property
    def checks_records(self) -> bool:
        """Return False: nothing in a line tells whether it is one."""
        return False

    def scan(self, pieces: Iterator[NDArray[np.uint8]], size: int, name: str) -> dict[str, Any]:
        """Find the lines of one file.

        Raises:
            RecordError: a line is longer than the limit, or the file is no text.
        """
        return scan_lines(pieces, size, name, Rules(skip="blank" if self.skip_blank else "none", max_line_bytes=self.max_line_bytes))

    def decode(self, data: memoryview, table: RecordTable, index: int) -> dict[str, str]:
        """Return {"text": str}.

        Raises:
            RecordError: it is no UTF-8.
        """
        return {"text": decoded(data, table, index).removesuffix("\r")}


def text_source(patterns: Patterns, *, skip_blank: bool = False, max_line_bytes: int = MAX_LINE_BYTES) -> LineSource:
    """Open text files as one source of lines.

    Raises:
        PlanError, RecordError, SourceError, OSError: as `open_storage` and `LineSource`.
    """
    format = TextLines(max_line_bytes=max_line_bytes, skip_blank=skip_blank)
    return LineSource(open_storage(patterns, "read_text"), format, "read_text", max_line_bytes=max_line_bytes)


def place_of(table: RecordTable, index: int) -> str:
    """Say where a record is, such as 'line 412 of train.jsonl'."""
    file, number = table.place(index)
    return f"line {line_number(table.indices.columns_of_file(file), number)} of {shown(table.names[file])}"


def bad_line(table: RecordTable, index: int, what: str, fix: str) -> RecordError:
    """Return the error of a record, which names line, file and offset."""
    return RecordError(what, where=f"{place_of(table, index)}, offset {int(table.columns['offsets'][index])}", fix=fix)


def decoded(data: memoryview, table: RecordTable, index: int) -> str:
    """Return the text of a record.

    Raises:
        RecordError: it is no UTF-8.
    """
    try:
        return str(data, "utf-8")
    except UnicodeDecodeError as error:
        raise bad_line(
            table,
            index,
            f"byte {error.start} of the line is {data[error.start]:#04x}, which is no UTF-8 ({error.reason})",
            "save the file as UTF-8 (iconv -f LATIN1 -t UTF-8), or leave such lines out with on_error=",
        ) from error
