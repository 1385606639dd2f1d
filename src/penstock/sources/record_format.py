"""What a format of records is to the sources, and the table of where all records lie."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from penstock.errors import RecordError
from penstock.formats.index import Index
from penstock.sources.paths import shown

__all__ = ["RecordFormat", "RecordTable", "join"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RecordTable:
    """Where all records of a source lie.

    Attributes:
        starts: int64 [files + 1], the number of the first record of each file, and the number of all.
        columns: the indices' columns of all files, one behind the other: "offsets" int64 [n], "lengths" uint32 or int64 [n], and the
            format's own.
        indices: per file, its index, whose columns are only those named "file_...".
        names: per file, path or URL, for errors.
    """

    starts: NDArray[np.int64]
    columns: Mapping[str, NDArray[Any]]
    indices: Sequence[Index]
    names: Sequence[str]

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
    """What is particular to one format: how records are found in a file, and what their bytes mean. Frozen; shared by threads."""

    @property
    def kind(self) -> str:
        """Name the format, such as "tfrecord"."""

    @property
    def options(self) -> dict[str, Any]:
        """Return what else decides where records begin and end (JSON-able, small): an index that was built with others is not used."""

    @property
    def checks_records(self) -> bool:
        """Tell whether `decode` finds out that bytes are not the record that was indexed, by a check sum of each record.

        An index of a format that does not is trusted for a file of another time only after all of the file was read.
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


def join(indices: list[Index], names: list[str]) -> RecordTable:
    """Put the columns of the files' indices one behind the other. The list is used up: columns go from it as they are joined.

    Raises:
        RecordError: files whose indices have other columns.
    """
    starts = np.zeros(len(indices) + 1, np.int64)
    np.cumsum([len(index) for index in indices], out=starts[1:])
    keys = [key for key in indices[0].columns if not key.startswith("file_")]
    columns: dict[str, NDArray[Any]] = {}
    for key in keys:
        values = [index.columns.get(key) for index in indices]
        present = [value for value in values if value is not None]
        if len(present) < len(values):
            file = next(number for number, value in enumerate(values) if value is None)
            raise RecordError(f"the index of {names[file]!r} has no column {key!r}", where=names[file], fix="build the index again")
        columns[key] = present[0] if len(present) == 1 else np.concatenate(present)
    shared: dict[str, Any] = {}
    kept = [_without_columns(index, shared) for index in indices]
    return RecordTable(starts=starts, columns=columns, indices=kept, names=names)


def _without_columns(index: Index, shared: dict[str, Any]) -> Index:
    """Return what is kept of an index beside the columns. What files have in common is kept once, in `shared`."""
    columns = {key: value.copy() for key, value in index.columns.items() if key.startswith("file_")}  # not a view of the whole index
    etag = {key: value for key, value in index.identity.items() if key == "etag"}
    return Index(
        kind=_one(index.kind, shared),
        options=_one(index.options, shared),
        size=index.size,
        crc32c=index.crc32c,
        samples=index.samples,
        identity=_one(etag, shared),
        meta=_one(index.meta, shared),
        columns=columns,
    )


def _one(value: Any, shared: dict[str, Any]) -> Any:
    return shared.setdefault(repr(value), value)
