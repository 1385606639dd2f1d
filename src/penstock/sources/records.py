"""The protocol of a format of records, the table of the places of all records, and the source of elements that are spans of files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import repeat
from typing import Any, Protocol, runtime_checkable

import numpy as np

from penstock._contracts.storage import Storage
from penstock._contracts.transform import Own, Scratch
from penstock._storage.local import LocalStorage
from penstock._system.failing import add_note
from penstock._system.lazy import dataclass
from penstock._system.text import shown
from penstock.errors import IndexStale, LengthMismatch, PenstockError
from penstock.formats.index import Indices
from penstock.formats.linescan import BOM
from penstock.kernels import lines
from penstock.kernels.library import Array, Ints, Uint8s
from penstock.kernels.spans import Places, Taker
from penstock.sources.numbers import KnownNumber
from penstock.sources.paths import FileNames, beyond, crc_of_files, local_files, most_at_once, words_of_files

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
    def starts(self) -> Ints:
        """The number of the first record of each file, and the number of all: int64 [files + 1]."""
        return self.indices.starts

    @property
    def columns(self) -> Mapping[str, Array]:
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


class SpanFormat(Protocol):
    """The part of one format whose records are spans of a file: what their bytes mean. Frozen; shared by threads."""

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

    @property
    def separator(self) -> int | None:
        """Return the byte that stands between records, where one does: it is looked for at both ends of each that is read."""

    def decode(self, data: memoryview, table: RecordTable, index: int) -> Any:
        """Return the element that the bytes of record `index` are.

        Args:
            data: read-only bytes of the record, valid during the call only: copy what is kept.
            table: of the source, for the format's own columns.
            index: number of the record in the source.

        Raises:
            RecordError, DecodeError, ValueError: the caller adds where the record is.
        """


@runtime_checkable
class RecordFormat(SpanFormat, Protocol):
    """A format whose records are found by reading a file."""

    def scan(self, pieces: Iterator[Uint8s], size: int, name: str) -> dict[str, Any]:
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


def moved(table: RecordTable, index: int) -> IndexStale:
    """Return the error of a record that is not where its file's index says."""
    return IndexStale(
        "the file changed since it was indexed: a record does not begin or end where it did",
        where=table.describe(index),
        fix="open the dataset again; if this error stays, its size and time tell nothing: build the index again (penstock index --rebuild)",
    )


_OF_FILES = ("count", "num_files", "files_crc32")
"""What other files change in a fingerprint."""


class RecordSource:
    """Serve the records of files as elements: any record at any time, from any thread.

    Args:
        storage: the files.
        format: decodes records, and finds them where `indices` does not say where they are.
        caller: the function that the user called, such as "read_text", for label and errors.
        noun: what a record is called in messages, such as "line".
        indices: of the files; None: find, check or build them now (see `penstock.sources.indexing.open_all`).

    Raises:
        RecordError: a file that is not of this format.
        SourceError, OSError: a file that cannot be read.
    """

    def __init__(self, storage: Storage, format: SpanFormat, caller: str, *, noun: str = "record", indices: Indices | None = None) -> None:
        if indices is None:
            from penstock.sources.indexing import open_all

            assert isinstance(format, RecordFormat)
            indices = open_all(storage, format)
        if isinstance(storage, LocalStorage):
            # Samples of a large file may miss what moved a record; where nothing in the record would show it, they are not enough.
            storage.trust(indices.samples, only_whole=not format.checks_records)
        self._storage, self._format, self._caller, self._noun = storage, format, caller, noun
        self.table = RecordTable(indices=indices, names=FileNames(storage))
        self._count = int(self.table.starts[-1])
        self._own = Own()
        self._places = Places(self.table.starts, self.table.columns["offsets"], self.table.columns["lengths"])

    def __len__(self) -> int:
        return self._count

    def read(self, indices: Ints, scratch: Scratch | None) -> tuple[Uint8s, Ints, Ints]:
        """Read the bytes of a block of records with one call of the storage.

        Args:
            indices: int64 [n], each in 0..len-1.
            scratch: as in `Storage.read_spans`.

        Returns:
            (uint8 [m], int64 [n], int64 [n]): bytes, and where each record begins and ends in them.

        Raises:
            LengthMismatch: an index is not in 0..len-1.
            IndexStale: a record does not begin or end where it did when its file was indexed.
            SourceError, OSError: as the storage says it; which record it was is not known.
        """
        spans, separator = self._spans(indices), self._format.separator
        if separator is None:
            data, begins = self._storage.read_spans(spans[0], spans[1], spans[2], scratch)
            return data, begins, begins + spans[2]
        sizes = self.table.indices.sizes
        wide = lines.widened(spans, sizes)
        data, begins = self._storage.read_spans(spans[0], wide[0], wide[1], scratch)
        row, places = lines.check_ends(data, spans, sizes, begins, separator, BOM)
        if row >= 0:
            raise moved(self.table, int(indices[row]))
        return data, places[0], places[1]

    def stream(self, indices: Ints, scratch: Scratch, pieces: tuple[int, int], taker: Taker) -> int:
        """Have records taken as they are read, where the storage can do that: see `LocalStorage.stream_spans`.

        Args:
            indices: int64 [n], each in 0..len-1.
            scratch: likewise.
            pieces: likewise.
            taker: likewise.

        Returns:
            How many were taken, from the first on; 0 where the storage cannot. `read` is for the rest.

        Raises:
            LengthMismatch: an index is not in 0..len-1.
        """
        if not isinstance(self._storage, LocalStorage):
            return 0
        files, offsets, lengths = self._spans(indices)
        return self._storage.stream_spans(files, offsets, lengths, scratch, pieces, taker)

    def _spans(self, indices: Ints) -> Ints:
        """Return file, offset and length of each: int64 [3, n]."""
        found = self._places.find(indices)
        if found is None:
            raise beyond(indices, len(self), "records", self.label())
        return found

    def group_starts(self) -> Ints:
        """Return where each file with records begins, and the number of all: the groups of `shuffle(window_groups=)`."""
        return np.unique(self.table.starts)

    @property
    def rows_at_once(self) -> int:
        """Return how many records should be asked for at once, at least: some 16 MB of them where the files are far away."""
        return most_at_once(self._storage, int(self.table.indices.sizes.sum()) // max(1, self._count))

    def gather(self, indices: Sequence[int], rows: list[Any]) -> None:
        """Append one element per index; when one cannot be read, those before it are appended.

        Raises:
            LengthMismatch: an index is not in 0..len-1.
            OSError, SourceError: a file cannot be read, with a note that names the record.
            RecordError: what the format refuses, with a note that names the record.
        """
        places = np.asarray(indices, np.int64)
        try:
            data, begins, ends = self.read(places, Scratch.of(self._own))
        except LengthMismatch:
            raise  # no record can be named
        except (OSError, PenstockError) as error:
            if len(places) == 1:
                add_note(error, f"reading {self.describe(int(places[0]))}")
                raise
            # Which one it was is found by asking for each; where none fails again, the elements are as good as any.
            for index in indices:
                self.gather([index], rows)
            return
        self._decode(data, begins, ends, places, rows)

    def _decode(self, data: Uint8s, begins: Ints, ends: Ints, places: Ints, rows: list[Any]) -> None:
        """Append the elements that records are; when one is refused, those before it are appended."""
        before = len(rows)
        view, decode, table = data.data.toreadonly(), self._format.decode, self.table
        numbers = zip(places.tolist(), begins.tolist(), ends.tolist(), strict=True)
        try:
            rows.extend(decode(view[begin:end], table, index) for index, begin, end in numbers)
        except ValueError as error:
            add_note(error, f"decoding {self.describe(int(places[len(rows) - before]))}")
            raise

    def known_numbers(self) -> dict[str, KnownNumber]:
        """Return "num_bytes": what a record takes in its file; of TFRecord its data alone."""
        return {"num_bytes": KnownNumber("num_bytes", self, self._num_bytes)}

    def _num_bytes(self, indices: Ints) -> Array:
        return self.table.columns["lengths"][indices]

    def describe(self, index: int) -> str:
        """Name record, file and offset."""
        return self.table.describe(index, self._noun)

    def input_files(self) -> Iterator[str]:
        """Give the full path of each file of this machine."""
        return local_files(self._storage)

    def by_file(self) -> tuple[Ints, dict[str, Any]]:
        """Return the first record of each file, and the fingerprint without what is of the files."""
        return self.table.starts, {key: value for key, value in self.fingerprint().items() if key not in _OF_FILES}

    def fingerprint(self) -> dict[str, Any]:
        """Return format, count, and a check sum of names below the common folder, sizes, counts and check sums of the files."""
        indices = self.table.indices
        facts = zip(indices.sizes.tolist(), np.diff(indices.starts).tolist(), indices.crcs.tolist(), strict=True)
        etags = indices.etags or repeat("", len(indices.sizes))
        return {
            "kind": f"records/{self._format.kind}",
            "options": self._format.options,
            "count": len(self),
            "num_files": len(indices.sizes),
            "files_crc32": crc_of_files(
                self.table.names, (f"{size} {count} {crc} {etag}" for (size, count, crc), etag in zip(facts, etags, strict=True))
            ),
        }

    def label(self) -> str:
        """Return the call with the numbers of elements and files."""
        return f"{self._caller}({words_of_files(self.table.names)}, {len(self)} elements)"
