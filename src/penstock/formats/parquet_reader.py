"""One open Parquet file: the bytes of a row group's columns are read beforehand, with one call, and handed to pyarrow without a copy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from penstock._contracts.storage import Storage
from penstock.errors import RecordError
from penstock.formats.parquet import Column, Footer, pyarrow, storage_type

__all__ = ["Reader"]

_GAP_BYTES = 64 << 10  # a shorter gap between two columns is read with them: a request costs more
_WIDTHS = {"BOOLEAN": 1, "INT32": 4, "INT64": 8, "INT96": 12, "FLOAT": 4, "DOUBLE": 8}


class Reader:
    """One open file, used by one thread at a time."""

    def __init__(self, storage: Storage, file: int, footer: Footer, columns: Sequence[Column], coded_columns: frozenset[str]) -> None:
        pa, pq = pyarrow()
        self.file, self.footer, self.coded_columns = file, footer, coded_columns
        self.metadata_bytes = storage.size(file) - footer.offset
        self._storage, self._spans = storage, _Spans(storage, file)
        self.file_reader = pq.ParquetFile(
            pa.PythonFile(self._spans, mode="r"),
            metadata=footer.metadata,
            read_dictionary=sorted(coded_columns),
            page_checksum_verification=True,
            arrow_extensions_enabled=False,
            pre_buffer=False,
        )
        leaves, widths, place = {}, {}, 0
        for field in self.file_reader.schema_arrow:
            leaves[field.name] = place
            place += _num_leaves(field.type)
        for column in columns:
            leaf = footer.metadata.schema.column(leaves[column.name])
            width = leaf.length if leaf.physical_type == "FIXED_LEN_BYTE_ARRAY" else _WIDTHS.get(leaf.physical_type, 0)
            widths[column.name] = max(width, np.dtype(column.dtype).itemsize if column.dtype else 0)
        self._leaves = [(column.name, leaves[column.name], widths[column.name], column.form) for column in columns]

    def coded(self, group: int) -> frozenset[str]:
        """Return the columns of strings that are to be read as numbers of a dictionary: read as strings, a small page may be terabytes."""
        texts = [(name, leaf) for name, leaf, _, form in self._leaves if form in ("str", "bytes")]
        if not texts:
            return frozenset()
        data = self.footer.metadata.row_group(group)
        return frozenset(name for name, leaf in texts if data.column(leaf).has_dictionary_page)

    def sizes(self, group: int) -> list[int]:
        """Return the bytes of each column decoded, at most about."""
        data = self.footer.metadata.row_group(group)
        out = []
        for _, leaf, width, _ in self._leaves:
            chunk = data.column(leaf)
            out.append(chunk.num_values * width + 4 * chunk.num_values if width else chunk.total_uncompressed_size + 8 * chunk.num_values)
        return out

    def fetch(self, group: int) -> None:
        """Read the bytes of the columns into memory, with one call of the storage.

        Raises:
            RecordError: a column lies outside its file.
            SourceError, OSError: they cannot be read.
        """
        data = self.footer.metadata.row_group(group)
        spans = []
        for name, leaf, _, _ in self._leaves:
            chunk = data.column(leaf)
            begin, length = chunk.data_page_offset, chunk.total_compressed_size
            if chunk.has_dictionary_page and 0 < chunk.dictionary_page_offset < begin:
                begin = chunk.dictionary_page_offset
            if begin < 4 or length < 0 or begin + length > self.footer.offset:
                file = self._storage.name(self.file)
                raise RecordError(
                    f"the column {name!r} of row group {group} would lie at {begin} with {length} bytes, outside the "
                    f"{self.footer.offset} bytes of data of {file!r}",
                    where=f"read_parquet, {file!r}, row group {group}",
                    fix="write the file again",
                )
            spans.append((begin, begin + length))
        self._spans.fill(_joined(spans))

    def forget(self) -> None:
        """Let go of the bytes."""
        self._spans.fill([])


class _Spans:
    """The file object that pyarrow reads: the spans that were read beforehand, and the storage for anything else."""

    closed = False

    def __init__(self, storage: Storage, file: int) -> None:
        self._storage, self._file, self._size = storage, file, storage.size(file)
        self._place = 0
        self._begins: list[int] = []
        self._parts: list[memoryview] = []

    def fill(self, spans: Sequence[tuple[int, int]]) -> None:
        """Read spans (begin, end), ascending."""
        self._parts, self._begins = [], [begin for begin, _ in spans]
        if spans:
            offsets = np.array(self._begins, np.int64)
            lengths = np.array([end for _, end in spans], np.int64) - offsets
            data, starts = self._storage.read_spans(np.full(len(spans), self._file, np.int64), offsets, lengths, None)
            view = data.data.toreadonly()
            self._parts = [view[start : start + length] for start, length in zip(starts.tolist(), lengths.tolist(), strict=True)]

    def read(self, count: int = -1) -> memoryview | bytes:
        """Return the next bytes, without copying those that are there."""
        begin = self._place
        end = self._size if count < 0 else min(begin + count, self._size)
        self._place = max(begin, end)
        place = int(np.searchsorted(self._begins, begin, "right")) - 1
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
