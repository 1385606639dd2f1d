"""One open Parquet file: the bytes of a row group's columns are read beforehand, with one call, and handed to pyarrow without a copy."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from penstock._contracts.storage import Storage
from penstock._contracts.transform import Scratch
from penstock.errors import RecordError
from penstock.formats.parquet import Column, Footer, one_line, pyarrow, storage_type

__all__ = ["Layout", "Reader"]

_GAP_BYTES = 64 << 10  # a shorter gap between two columns is read with them: a request costs more
_WIDTHS = {"BOOLEAN": 1, "INT32": 4, "INT64": 8, "INT96": 12, "FLOAT": 4, "DOUBLE": 8}


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Where a row group lies in its file.

    Attributes:
        spans: (begin, end) of its bytes, ascending; those with short gaps between them joined.
        num_bytes: what its columns take decoded, at most about.
        coded: columns of strings that are to be read as numbers of a dictionary: as strings, a small page may be terabytes.
    """

    spans: list[tuple[int, int]]
    num_bytes: int
    coded: frozenset[str]


class Reader:
    """One open file, used by one thread at a time.

    Raises:
        RecordError: the footer contradicts itself about a column.
    """

    def __init__(self, storage: Storage, file: int, footer: Footer, columns: Sequence[Column], coded_columns: frozenset[str]) -> None:
        pa, pq = pyarrow()
        self.file, self.footer, self.coded_columns = file, footer, coded_columns
        self.metadata_bytes = storage.size(file) - footer.offset
        self._storage, self._spans = storage, _Spans(storage, file)
        # By number: names with dots may be those of a field in a struct as well.
        leaves, place = {}, 0
        for field in footer.metadata.schema.to_arrow_schema():
            leaves[field.name] = place
            place += _num_leaves(field.type)
        self._file = pq.ParquetFile(
            pa.PythonFile(self._spans, mode="r"),
            metadata=footer.metadata,
            read_dictionary=sorted(leaves[name] for name in coded_columns),
            page_checksum_verification=True,
            arrow_extensions_enabled=False,
            pre_buffer=False,
        )
        widths = {}
        for column in columns:
            leaf = footer.metadata.schema.column(leaves[column.name])
            width = leaf.length if leaf.physical_type == "FIXED_LEN_BYTE_ARRAY" else _WIDTHS.get(leaf.physical_type, 0)
            widths[column.name] = max(width, np.dtype(column.dtype).itemsize if column.dtype else 0)
        self._leaves = [(column.name, leaves[column.name], widths[column.name], column.form) for column in columns]
        self._check_chunks()

    def _check_chunks(self) -> None:
        """Have pyarrow look at what the footer says of each column of each row group, where an error of it can be caught.

        What contradicts itself, such as statistics of another length than the type has, is a C++ exception of `row_group(...).column(...)`,
        which ends the process. `read_row_groups` catches it; with `pre_buffer` it looks at all before it reads the first. It costs 120 us
        a file and 0.4 us for each column of a group.
        """
        pa, pq = pyarrow()
        name, metadata = self._storage.name(self.file), self.footer.metadata
        empty = _Empty(self._storage, self.file)
        try:
            reader = pq.ParquetFile(
                pa.PythonFile(empty, mode="r"), metadata=metadata, pre_buffer=True, arrow_extensions_enabled=False
            ).reader
            leaves = [leaf for _, leaf, _, _ in self._leaves]
            reader.read_row_groups(list(range(metadata.num_row_groups)), column_indices=leaves, use_threads=False)
        except (pa.ArrowException, OSError, ValueError) as error:
            if empty.was_read:
                return
            raise RecordError(
                f"the footer of {name!r} contradicts itself: {one_line(error)}", where=f"read_parquet, {name!r}", fix="write the file again"
            ) from error

    def layout(self, group: int) -> Layout:
        """Say where the columns of a row group lie, and what they take decoded.

        Raises:
            RecordError: a column lies outside its file.
        """
        data = self.footer.metadata.row_group(group)
        spans, coded, num_bytes = [], [], 0
        for name, leaf, width, form in self._leaves:
            chunk = data.column(leaf)
            count, begin, length = chunk.num_values, chunk.data_page_offset, chunk.total_compressed_size
            num_bytes += count * (width + 4 * (form == "ragged")) if width else chunk.total_uncompressed_size + 8 * count
            if chunk.has_dictionary_page:
                if 0 < chunk.dictionary_page_offset < begin:
                    begin = chunk.dictionary_page_offset
                if form in ("str", "bytes"):
                    coded.append(name)
            if begin < 4 or length < 0 or begin + length > self.footer.offset or count < 0:
                file = self._storage.name(self.file)
                raise RecordError(
                    f"the column {name!r} of row group {group} would lie at {begin} with {length} bytes and {count} values, outside the "
                    f"{self.footer.offset} bytes of data of {file!r}",
                    where=f"read_parquet, {file!r}, row group {group}",
                    fix="write the file again",
                )
            spans.append((begin, begin + length))
        return Layout(spans=_joined(spans), num_bytes=num_bytes, coded=frozenset(coded))

    def fetch(self, spans: Sequence[tuple[int, int]], scratch: Scratch) -> None:
        """Read spans into working memory, with one call of the storage. It is needed until `forget`.

        Raises:
            SourceError, OSError: they cannot be read.
        """
        self._spans.fill(spans, scratch)

    def table(self, group: int, *, use_threads: bool = False) -> Any:
        """Decode the columns of a row group, which pyarrow returns as a table in the order of the file.

        Args:
            group: number of the row group.
            use_threads: Arrow's threads may help.

        Raises:
            pyarrow.ArrowException, OSError: they cannot be decoded.
            SourceError: what was not fetched cannot be read.
        """
        return self._file.reader.read_row_group(group, column_indices=[leaf for _, leaf, _, _ in self._leaves], use_threads=use_threads)

    def forget(self) -> None:
        """Let go of the bytes."""
        self._spans.fill([], None)


class _Spans:
    """The file object that pyarrow reads: the spans that were read beforehand, and the storage for anything else."""

    closed = False

    def __init__(self, storage: Storage, file: int) -> None:
        self._storage, self._file, self._size = storage, file, storage.size(file)
        self._place = 0
        self._begins: list[int] = []
        self._parts: list[memoryview] = []

    def fill(self, spans: Sequence[tuple[int, int]], scratch: Scratch | None) -> None:
        """Read spans (begin, end), ascending."""
        self._parts, self._begins = [], [begin for begin, _ in spans]
        if spans:
            offsets = np.array(self._begins, np.int64)
            lengths = np.array([end for _, end in spans], np.int64) - offsets
            data, starts = self._storage.read_spans(np.full(len(spans), self._file, np.int64), offsets, lengths, scratch)
            view = data.data.toreadonly()
            self._parts = [view[start : start + length] for start, length in zip(starts.tolist(), lengths.tolist(), strict=True)]

    def read(self, count: int = -1) -> memoryview | bytes:
        """Return the next bytes, without copying those that are there."""
        begin = self._place
        end = self._size if count < 0 else min(begin + count, self._size)
        self._place = max(begin, end)
        place = bisect_right(self._begins, begin) - 1
        if place >= 0 and end <= self._begins[place] + len(self._parts[place]):
            return self._parts[place][begin - self._begins[place] : end - self._begins[place]]
        return self._storage.read(self._file, begin, end - begin) if end > begin else b""

    read_buffer = read

    def seek(self, offset: int, whence: int = 0) -> int:
        """Move."""
        self._place = offset + (0, self._place, self._size)[whence]
        return self._place

    def tell(self) -> int:
        """Return where it is."""
        return self._place

    def size(self) -> int:
        """Return the bytes of the file."""
        return self._size

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def writable(self) -> bool:
        """Return False."""
        return False

    def close(self) -> None:
        """Do nothing: there is nothing open."""


class _Empty(_Spans):
    """A file that gives no data and knows whether it was asked for some. It raises nothing: pyarrow would keep that for ever."""

    was_read = False

    def read(self, count: int = -1) -> memoryview | bytes:
        """Return nothing."""
        self.was_read = True
        return b""

    read_buffer = read


def _joined(spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Join spans that overlap or have short gaps."""
    out: list[tuple[int, int]] = []
    for begin, end in sorted(spans):
        if out and begin - out[-1][1] <= _GAP_BYTES:
            out[-1] = (out[-1][0], max(end, out[-1][1]))
        else:
            out.append((begin, end))
    return out


def _num_leaves(kind: Any) -> int:
    """Count the columns of the file that a column of the schema has."""
    types = pyarrow()[0].types
    kind = storage_type(kind)
    if types.is_map(kind):
        return _num_leaves(kind.key_type) + _num_leaves(kind.item_type)
    if types.is_struct(kind):
        return sum(_num_leaves(kind.field(place).type) for place in range(kind.num_fields))
    if types.is_nested(kind):
        return _num_leaves(kind.value_type)
    return 1
