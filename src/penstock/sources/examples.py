"""Records of tf.train.Example as elements: rows of dicts, and whole columns where all features are fixed and of numbers."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from penstock._contracts.element import Structure
from penstock._contracts.failing import add_note
from penstock._contracts.source import RowFailed
from penstock._contracts.transform import Scratch
from penstock.errors import LengthMismatch, PenstockError
from penstock.formats.example import ExampleReader
from penstock.formats.features import features_record
from penstock.kernels.framing import FOOTER_BYTES, HEADER_BYTES, FrameStatus, check_frames
from penstock.sources.tfrecord import TFRecordSource, bad_record

__all__ = ["ExampleColumns", "ExampleSource", "example_source"]

_PIECE_BYTES = 512 * 1024
"""Records are read, checked and parsed in pieces of about this size, which stay in the L2 cache from one to the next."""


class ExampleSource:
    """Serve the features of records as dicts. Any record at any time, from any thread.

    Args:
        records: the framed records.
        reader: parses them.
    """

    def __init__(self, records: TFRecordSource, reader: ExampleReader) -> None:
        self._records, self._reader = records, reader
        lengths = records.table.columns["lengths"]
        mean = float(lengths.mean()) if len(lengths) else 1.0
        self._piece = max(16, int(_PIECE_BYTES / max(1.0, mean)))
        self._own = threading.local()

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._records, self._reader)

    def __len__(self) -> int:
        return len(self._records)

    def gather(self, indices: Sequence[int], rows: list[Any]) -> None:
        """Append {name: value} per index; where one is bad, those before it are appended.

        Raises:
            RecordError: a check sum is wrong, the record is no Example, or not what was declared; with a note that names the record.
            OSError, SourceError: a file cannot be read, with a note that names the record.
        """
        places = np.asarray(indices, np.int64)
        for begin in range(0, len(places), self._piece):
            self._gather_piece(places[begin : begin + self._piece], rows)

    def group_starts(self) -> NDArray[np.int64]:
        """Return where each file with records begins, and the number of all."""
        return self._records.group_starts()

    @property
    def rows_at_once(self) -> int:
        """Return how many records should be asked for at once, at least."""
        return self._records.rows_at_once

    def describe(self, index: int) -> str:
        """Name record, file and offset."""
        return self._records.describe(index)

    def input_files(self) -> Iterator[str]:
        """Give the full path of each file of this machine."""
        return self._records.input_files()

    def fingerprint(self) -> dict[str, Any]:
        """Return that of the records, and the features."""
        return {**self._records.fingerprint(), "features": features_record(self._reader.features)}

    def label(self) -> str:
        """Return the call with the numbers of elements and files, and the features."""
        return f"{self._records.label()[:-1]}, features {', '.join(self._reader.features)})"

    def _gather_piece(self, places: NDArray[np.int64], rows: list[Any]) -> None:
        try:
            data, starts, lengths = self._read(places)
        except LengthMismatch:
            raise  # no record can be named
        except (OSError, PenstockError) as error:
            if len(places) == 1:
                add_note(error, f"reading {self.describe(int(places[0]))}")
                raise
            # Which one it was is found by asking for each; where none fails again, the elements are as good as any.
            for place in range(len(places)):
                self._gather_piece(places[place : place + 1], rows)
            return
        failed = self._check(data, starts, lengths, places)
        num_good = len(places) if failed is None else failed.row
        starts, lengths = starts[:num_good] + HEADER_BYTES, lengths[:num_good] - (HEADER_BYTES + FOOTER_BYTES)
        try:
            rows.extend(self._reader.rows(data, starts, lengths))
        except RowFailed as bad:
            rows.extend(self._reader.rows(data, starts[: bad.row], lengths[: bad.row]))
            failed = bad
            add_note(bad.error, f"decoding {self.describe(int(places[bad.row]))}")
        if failed is not None:
            raise failed.error

    def _read(self, places: NDArray[np.int64]) -> tuple[NDArray[np.uint8], NDArray[np.int64], NDArray[np.int64]]:
        """Return bytes in working memory of this thread, and where each frame begins in them and its length."""
        data, begins, ends = self._records.read(places, self._scratch())
        return data, begins, ends - begins

    def _scratch(self) -> Scratch:
        own = self._own.__dict__
        if "scratch" not in own:
            own["scratch"] = Scratch()
        scratch: Scratch = own["scratch"]
        return scratch

    def _check(
        self, data: NDArray[np.uint8], starts: NDArray[np.int64], lengths: NDArray[np.int64], places: NDArray[np.int64]
    ) -> RowFailed | None:
        """Check all frames with one call; return the failure of the first bad one."""
        records = self._records
        statuses = check_frames(data, starts, lengths, check_data=records.check_crc)
        if statuses is None:
            return None
        row = int(np.flatnonzero(statuses)[0])
        span = data.data[int(starts[row]) : int(starts[row] + lengths[row])]
        return RowFailed(row, bad_record(records.table, int(places[row]), FrameStatus(int(statuses[row])), span))


class ExampleColumns(ExampleSource):
    """The same for features that are all fixed and of numbers: blocks are read, checked and parsed straight into the rows of batches."""

    def structure(self) -> Structure:
        """Return the structure of an element."""
        return self._reader.structure()

    def leaves(self) -> list[tuple[tuple[int, ...], np.dtype[Any]]]:
        """Return shape and dtype of each feature."""
        return self._reader.leaves()

    def gather_columns(self, indices: NDArray[np.int64], out: list[NDArray[Any]] | None) -> list[NDArray[Any]]:
        """Gather the features of records: into `out` (arrays of shape (n, *shape)) or into new arrays.

        Raises:
            RowFailed: with the first bad record and its error.
            LengthMismatch: an index is not in 0..len-1.
            OSError, SourceError: a file cannot be read; which record it was is not known.
        """
        if out is None:
            out = [np.empty((len(indices), *shape), dtype) for shape, dtype in self.leaves()]
        begin = 0
        while begin < len(indices):
            begin += self._parse_stream(indices[begin:], [column[begin:] for column in out])
            end = min(begin + self._piece, len(indices))
            if begin < end:
                try:
                    self._parse_piece(indices[begin:end], [column[begin:end] for column in out])
                except RowFailed as failed:
                    raise RowFailed(begin + failed.row, failed.error) from failed.error
            begin = end
        return out

    def _parse_stream(self, places: NDArray[np.int64], out: list[NDArray[Any]]) -> int:
        """Read, check and parse as many as that can be done with by one call; return how many. The next one may be bad."""
        taker = self._reader.taker(out, check_crc=self._records.check_crc)
        return 0 if taker is None else self._records.stream(places, self._scratch(), (self._piece, _PIECE_BYTES), taker)

    def _parse_piece(self, places: NDArray[np.int64], out: list[NDArray[Any]]) -> None:
        data, starts, lengths = self._read(places)
        failed = self._check(data, starts, lengths, places)
        if failed is not None:
            places, out = places[: failed.row], [column[: failed.row] for column in out]
            starts, lengths = starts[: failed.row], lengths[: failed.row]
        try:
            self._reader.columns(data, starts + HEADER_BYTES, lengths - (HEADER_BYTES + FOOTER_BYTES), out)
        except RowFailed as bad:
            failed = bad
            add_note(bad.error, f"decoding {self.describe(int(places[bad.row]))}")
        if failed is not None:
            raise failed


def example_source(records: TFRecordSource, reader: ExampleReader) -> ExampleSource:
    """Return the source for records: one of columns where the features allow it."""
    return (ExampleColumns if reader.columnar else ExampleSource)(records, reader)
