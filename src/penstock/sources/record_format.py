"""The protocol of a format of records, and the table of the places of all records."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from penstock.formats.index import Indices
from penstock.sources.paths import shown

__all__ = ["RECORD_SUMS", "RecordFormat", "RecordTable"]

RECORD_SUMS = "crc32c"
"""Column of an index: the check sum of each record, where the file itself has none."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RecordTable:
    """The places of all records of a source.

    Attributes:
        indices: what the indices of its files say.
        names: per file, path or URL, for errors.
    """

    indices: Indices
    names: Sequence[str]

    @property
    def starts(self) -> NDArray[np.int64]:
        """The number of the first record of each file, and the number of all: int64 [files + 1]."""
        return self.indices.starts

    @property
    def columns(self) -> Mapping[str, NDArray[Any]]:
        """The indices' columns of all files, one behind the other: "offsets" int64 [n], "lengths" uint32 or int64 [n], the format's own."""
        return self.indices.columns

    def place(self, index: int) -> tuple[int, int]:
        """Return file and number in the file of a record."""
        file = int(np.searchsorted(self.starts, index, "right")) - 1
        return file, index - int(self.starts[file])

    def describe(self, index: int, noun: str = "record") -> str:
        """Say where a record is, such as "record 412 of 'train-00007.tfrecord', offset 18231"."""
        file, number = self.place(index)
        return f"{noun} {number} of {shown(self.names[file])}, offset {int(self.columns['offsets'][index])}"


@runtime_checkable
class RecordFormat(Protocol):
    """The part of one format: how records are found in a file, and what their bytes mean. Frozen; shared by threads."""

    @property
    def kind(self) -> str:
        """Name the format, such as "tfrecord"."""

    @property
    def options(self) -> dict[str, Any]:
        """Return what else decides where records begin and end (JSON-able, small): an index that was built with others is not used."""

    @property
    def checks_records(self) -> bool:
        """Tell whether `decode` finds out that bytes are not the record that was indexed, by a check sum of each record.

        If it does not, or the check sums are those of the index (`RECORD_SUMS`), an index is trusted for a file of another time only after
        all of the file was read.
        """

    def scan(self, pieces: Iterator[NDArray[np.uint8]], size: int, name: str) -> dict[str, Any]:
        """Find the records of one file.

        Args:
            pieces: the file's bytes, in order, uint8 [some]; each is valid until the next is asked for. What is left in it when this
                returns is read by the caller.
            size: bytes of the file.
            name: path or URL, for errors.

        Returns:
            "offsets": integers [n], "lengths": integers [n], columns of the format's own with n entries each; columns of any length, whose
            names begin with "file_"; and "meta", if wanted: a JSON-able dict.

        Raises:
            RecordError: naming file, record number and offset.
        """

    def decode(self, data: memoryview, table: RecordTable, index: int) -> Any:
        """Return the element that the bytes of record `index` are.

        Args:
            data: read-only bytes of the record, valid during the call only: copy what is kept.
            table: of the source, for the format's own columns.
            index: number of the record in the source.

        Raises:
            RecordError, DecodeError, ValueError: the caller adds where the record is.
        """
