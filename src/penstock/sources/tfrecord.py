"""TFRecord files: uncompressed ones by index with random access, compressed ones as a stream, one record after the other.

Records of tf.train.Example are rows of dicts, and whole columns where all features are fixed and of numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Any, ClassVar

import numpy as np

from penstock._contracts.element import Structure
from penstock._contracts.source import Leaves, RowFailed
from penstock._contracts.storage import Storage
from penstock._contracts.transform import Scratch
from penstock._storage import open_storage
from penstock._system.failing import add_note
from penstock._system.lazy import dataclass
from penstock.errors import PlanError, RecordError
from penstock.formats.compression import Decompressed, check_compression, looks_like
from penstock.formats.example import ExampleReader
from penstock.formats.features import features_record
from penstock.formats.index import Indices
from penstock.formats.tfrecord import MAX_RECORD_BYTES, RecordBlock, frame_error, read_blocks, scan_headers
from penstock.kernels.columns import LARGE_BYTES, copies
from penstock.kernels.framing import FOOTER_BYTES, FRAME_BYTES, HEADER_BYTES, FrameStatus, check_frames, scan_frames
from penstock.kernels.library import Array, Ints, Uint8s
from penstock.sources.compressed import Block, FileStream, StoredFile
from penstock.sources.records import RecordSource, RecordTable

_CALLER = "read_tfrecord"
_SMALL_BYTES = 4096


@dataclass(frozen=True, slots=True)
class TFRecordFormat:
    """See `RecordFormat`. A record's span is its whole frame, so that it can be checked whenever it is read."""

    kind: ClassVar[str] = "tfrecord"
    checks_records: ClassVar[bool] = True
    """True: the check sum of a frame's header is always looked at, and its length compared with the index."""
    separator: ClassVar[None] = None

    check_crc: bool = True
    resync: bool = False

    @property
    def options(self) -> dict[str, Any]:
        """Return what becomes of damaged headers; of a file without any, the records are the same."""
        return {"resync": True} if self.resync else {}

    def scan(self, pieces: Iterator[Uint8s], size: int, name: str) -> dict[str, Any]:
        """Find the frames by their headers, whose check sums are checked.

        Raises:
            RecordError: naming file, record number and offset.
        """
        return {**scan_headers(pieces, size, name, resync=self.resync)}

    def decode(self, data: memoryview, table: RecordTable, index: int) -> dict[str, bytes]:
        """Return {"record": bytes} of a frame, checked.

        Raises:
            RecordError: a check sum is wrong, or the frame has another length than the index says.
        """
        statuses = check_frames(data, np.zeros(1, np.int64), np.array([len(data)]), check_data=self.check_crc)
        if statuses is not None:
            raise bad_record(table, index, FrameStatus(int(statuses[0])), data)
        return {"record": bytes(data[HEADER_BYTES : len(data) - FOOTER_BYTES])}


def bad_record(table: RecordTable, index: int, status: FrameStatus, data: bytes | memoryview) -> RecordError:
    """Return the error for a record whose frame is bad; `data` are the bytes of its span."""
    file, number = table.place(index)
    offset = int(table.columns["offsets"][index])
    return frame_error(status, data, name=table.names[file], record=number, offset=offset, left=len(data))


class TFRecordSource(RecordSource):
    """Serve {"record": bytes} of uncompressed TFRecord files. Every read checks what it reads, a block with one call.

    Args:
        storage: the files.
        check_crc: False: only the check sums of the lengths.
        max_record_bytes: a longer record is an error now.
        allow_empty: take a file of 0 bytes for one without records.
        resync: take what stands between a damaged header and the next good one for one record, which is an error when it is read.
        indices: of the files; None: Penstock's own, found or built now.

    Raises:
        RecordError: a file that is no TFRecord file, is cut, is empty or has too long a record.
        SourceError, OSError: a file that cannot be read.
    """

    def __init__(
        self,
        storage: Storage,
        *,
        check_crc: bool = True,
        max_record_bytes: int = MAX_RECORD_BYTES,
        allow_empty: bool = False,
        resync: bool = False,
        indices: Indices | None = None,
    ) -> None:
        self.check_crc = check_crc
        refuse_empty(storage, allow_empty)
        super().__init__(storage, TFRecordFormat(check_crc, resync), _CALLER, indices=indices)
        self._refuse_long(max_record_bytes)

    def _num_bytes(self, indices: Ints) -> Array:
        lengths = super()._num_bytes(indices)
        # What stands between a damaged header and the next good one may be shorter than a frame.
        lengths -= np.minimum(lengths, FRAME_BYTES)
        return lengths

    def _decode(self, data: Uint8s, begins: Ints, ends: Ints, places: Ints, rows: list[Any]) -> None:
        failed = self._check(data, begins, ends - begins, places)
        num_good = len(places) if failed is None else failed.row
        # Slices of bytes cost less than views that are made bytes, if the copy of the block is small.
        view = data.tobytes() if data.nbytes <= _SMALL_BYTES * len(places) else data.data
        spans = zip((begins[:num_good] + HEADER_BYTES).tolist(), (ends[:num_good] - FOOTER_BYTES).tolist(), strict=True)
        if isinstance(view, bytes):
            rows.extend([{"record": view[begin:end]} for begin, end in spans])
        elif data.nbytes >= LARGE_BYTES * len(places):
            rows.extend([{"record": record} for record in copies([view[begin:end] for begin, end in spans])])
        else:
            rows.extend([{"record": bytes(view[begin:end])} for begin, end in spans])
        if failed is not None:
            raise failed.error

    def _check(self, data: Uint8s, starts: Ints, lengths: Ints, places: Ints) -> RowFailed | None:
        """Check all frames with one call; return the failure of the first bad one."""
        statuses = check_frames(data, starts, lengths, check_data=self.check_crc)
        if statuses is None:
            return None
        row = int(np.flatnonzero(statuses)[0])
        span = data.data[int(starts[row]) : int(starts[row] + lengths[row])]
        return RowFailed(row, bad_record(self.table, int(places[row]), FrameStatus(int(statuses[row])), span))

    def _refuse_long(self, limit: int) -> None:
        lengths = self.table.columns["lengths"]
        if len(lengths) and int(lengths.max()) - FRAME_BYTES > limit:
            longest = self.describe(int(lengths.argmax()))
            raise RecordError(
                f"{longest} has {int(lengths.max()) - FRAME_BYTES} bytes, over max_record_bytes={limit}",
                where=f"{_CALLER}, {longest}",
                fix="give a larger max_record_bytes if such records are meant",
            )


def refuse_empty(storage: Storage, allow_empty: bool) -> None:
    """Refuse files of 0 bytes, unless they are to count as shards without records.

    Raises:
        RecordError: there is one.
    """
    for file in range(0 if allow_empty else len(storage)):
        if storage.size(file) == 0:
            raise RecordError(
                f"{storage.name(file)!r} has 0 bytes",
                where=f"{_CALLER}, {storage.name(file)!r}",
                fix="write it again, or give allow_empty=True if shards without records are meant",
            )


# -- compressed files: nothing but decompressing tells where a record begins ------------------------------------------------------

_NO_FURTHER = "behind a bad record a compressed file is not read, whatever the policy: leave the file out to go on with the others"


class TFRecordStream(FileStream):
    """Serve {"record": bytes} of compressed TFRecord files, in the order of their paths.

    Args:
        storage: the files.
        compression: "GZIP" or "ZLIB", that of all files.
        check_crc: False: only the check sums of the lengths.
        max_record_bytes: a longer record is an error.
        allow_empty: take a file without records for an empty shard.

    Raises:
        RecordError: a file has 0 bytes.
    """

    def __init__(
        self,
        storage: Storage,
        compression: str,
        *,
        check_crc: bool = True,
        max_record_bytes: int = MAX_RECORD_BYTES,
        allow_empty: bool = False,
    ) -> None:
        super().__init__(storage, _CALLER, f"tfrecord/{compression}", compression)
        refuse_empty(storage, allow_empty)
        self._compression, self._check_crc = compression, check_crc
        self._max_record_bytes, self._allow_empty = max_record_bytes, allow_empty

    def _blocks(self, file: int) -> Iterator[Block]:
        name = self._storage.name(file)
        if self._storage.size(file) == 0:
            return
        stream = Decompressed(StoredFile(self._storage, file), self._compression, name)
        empty = True
        try:
            for block in read_blocks(stream, name=name, check_crc=self._check_crc, max_record_bytes=self._max_record_bytes):
                empty = False
                yield len(block.starts), partial(_records_from, block)
        except RecordError as error:  # whose advice may be of files whose records have positions
            raise RecordError(error.what, where=error.where, fix=f"{error.fix.partition(';')[0]}; {_NO_FURTHER}") from None
        if empty and not self._allow_empty:
            raise RecordError(
                f"{name!r} has no records", where=f"{_CALLER}, {name!r}", fix="give allow_empty=True if shards without records are meant"
            )


def _records_from(block: RecordBlock, begin: int) -> Iterator[dict[str, bytes]]:
    return ({"record": record} for record in islice(block.records(), begin, None))


# -- opening: which source fits the files -----------------------------------------------------------------------------------------


def open_tfrecord(
    pattern: Any,
    *,
    compression: str | None = None,
    max_record_bytes: int = MAX_RECORD_BYTES,
    index: None = None,
    resync: bool = False,
    **checks: Any,
) -> TFRecordSource | TFRecordStream:
    """Open TFRecord files; arguments and errors as `penstock.read_tfrecord`."""
    check_compression(compression, f"{_CALLER}, argument 'compression'", "auto")
    if type(max_record_bytes) is not int or max_record_bytes < 0:
        raise PlanError(f"max_record_bytes={max_record_bytes!r} is no count of bytes", where=_CALLER, fix="give an int >= 0")
    if index is not None:
        raise PlanError(
            f"index={index!r:.60}: text indices of other tools are not read",
            where=f"{_CALLER}, argument 'index'",
            fix="leave out index=: `penstock index PATTERN`, or the first read, builds an index; give a pattern that fits no .idx files",
        )
    storage = open_storage(pattern, _CALLER)
    if compression == "auto":
        compression = found_compression(storage)
    if compression is None:
        return TFRecordSource(storage, resync=resync, max_record_bytes=max_record_bytes, **checks)
    if resync:
        raise PlanError(
            f"resync does not go with {compression} files, which can only be read from their beginning",
            where=f"{_CALLER}, argument 'resync'",
            fix="leave out resync=, or write the files without compression",
        )
    return TFRecordStream(storage, compression, max_record_bytes=max_record_bytes, **checks)


def found_compression(storage: Storage) -> str | None:
    """Return the compression of all files, by their first bytes; files of 0 bytes have none in particular.

    Raises:
        PlanError: they differ.
        SourceError, OSError: a file cannot be read.
    """
    found: dict[str | None, str] = {}
    for file in range(len(storage)):
        head = storage.read(file, 0, min(HEADER_BYTES, storage.size(file)))
        if head:
            found.setdefault(compression_of(head), storage.name(file))
    if len(found) > 1:
        kinds = "; ".join(f"{name!r} looks like {'no compression' if kind is None else kind}" for kind, name in found.items())
        raise PlanError(
            f"the files differ in their compression: {kinds}",
            where=f'{_CALLER}, compression="auto"',
            fix="read them as several datasets and chain these",
        )
    return next(iter(found), None)


def compression_of(head: bytes) -> str | None:
    """Return the compression of a file by its first bytes: a length with its right check sum is none, whatever else it looks like."""
    scan = scan_frames(head, *np.empty((2, 1), np.int64), whole=False)
    return None if scan.num_frames else looks_like(head)


_PIECE_BYTES = 512 * 1024
"""Records are read, checked and parsed in pieces of about this size, which stay in the L2 cache from one to the next."""


class ExampleSource(TFRecordSource):
    """Serve the features of records as dicts. Any record at any time, from any thread.

    Args:
        records: the framed records.
        reader: parses them.
    """

    def __init__(self, records: TFRecordSource, reader: ExampleReader) -> None:
        self.__dict__.update(records.__dict__)
        self._reader = reader
        lengths = self.table.columns["lengths"]
        mean = float(lengths.mean()) if len(lengths) else 1.0
        self._piece = max(16, int(_PIECE_BYTES / max(1.0, mean)))

    def gather(self, indices: Sequence[int], rows: list[Any]) -> None:
        """Append {name: value} per index; where one is bad, those before it are appended.

        Raises:
            RecordError: a check sum is wrong, the record is no Example, or not what was declared; with a note that names the record.
            OSError, SourceError: a file cannot be read, with a note that names the record.
        """
        for begin in range(0, len(indices), self._piece):
            super().gather(indices[begin : begin + self._piece], rows)

    def fingerprint(self) -> dict[str, Any]:
        """Return that of the records, and the features."""
        return {**super().fingerprint(), "features": features_record(self._reader.features)}

    def label(self) -> str:
        """Return the call with the numbers of elements and files, and the features."""
        return f"{super().label()[:-1]}, features {', '.join(self._reader.features)})"

    def _decode(self, data: Uint8s, begins: Ints, ends: Ints, places: Ints, rows: list[Any]) -> None:
        lengths = ends - begins
        failed = self._check(data, begins, lengths, places)
        num_good = len(places) if failed is None else failed.row
        starts, lengths = begins[:num_good] + HEADER_BYTES, lengths[:num_good] - (HEADER_BYTES + FOOTER_BYTES)
        try:
            rows.extend(self._reader.rows(data, starts, lengths))
        except RowFailed as bad:
            rows.extend(self._reader.rows(data, starts[: bad.row], lengths[: bad.row]))
            failed = bad
            add_note(bad.error, f"decoding {self.describe(int(places[bad.row]))}")
        if failed is not None:
            raise failed.error


class ExampleColumns(ExampleSource):
    """The same for features that are all fixed and of numbers: blocks are read, checked and parsed straight into the rows of batches."""

    def structure(self) -> Structure:
        """Return the structure of an element."""
        return self._reader.structure()

    def leaves(self) -> Leaves:
        """Return shape and dtype of each feature."""
        return self._reader.leaves()

    def gather_columns(self, indices: Ints, out: list[Array] | None) -> list[Array]:
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
            taker = self._reader.taker([column[begin:] for column in out], check_crc=self.check_crc)
            if taker is not None:  # as many as can be done with by one call; the next one may be bad
                begin += self.stream(indices[begin:], Scratch.of(self._own), (self._piece, _PIECE_BYTES), taker)
            end = min(begin + self._piece, len(indices))
            if begin < end:
                try:
                    self._parse_piece(indices[begin:end], [column[begin:end] for column in out])
                except RowFailed as failed:
                    raise RowFailed(begin + failed.row, failed.error) from failed.error
            begin = end
        return out

    def _parse_piece(self, places: Ints, out: list[Array]) -> None:
        data, starts, ends = self.read(places, Scratch.of(self._own))
        lengths = ends - starts
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
