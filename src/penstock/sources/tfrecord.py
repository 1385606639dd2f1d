"""TFRecord files: uncompressed ones by index, any record at any time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from penstock._contracts.storage import Storage
from penstock.errors import RecordError
from penstock.formats.indices import Indices
from penstock.formats.tfrecord import MAX_RECORD_BYTES
from penstock.formats.tfrecord_errors import frame_error
from penstock.formats.tfrecord_scan import scan_headers
from penstock.kernels.copying import LARGE_BYTES, copies
from penstock.kernels.framing import FOOTER_BYTES, FRAME_BYTES, HEADER_BYTES, FrameStatus, check_frames
from penstock.sources.record_format import RecordTable
from penstock.sources.records import RecordSource

__all__ = ["TFRecordFormat", "TFRecordSource"]

_CALLER = "read_tfrecord"
_SMALL_BYTES = 4096


@dataclass(frozen=True, slots=True)
class TFRecordFormat:
    """See `RecordFormat`. A record's span is its whole frame, so that it can be checked whenever it is read."""

    check_crc: bool = True
    resync: bool = False

    @property
    def kind(self) -> str:
        """Return "tfrecord"."""
        return "tfrecord"

    @property
    def options(self) -> dict[str, Any]:
        """Return what becomes of damaged headers; of a file without any, the records are the same."""
        return {"resync": True} if self.resync else {}

    @property
    def checks_records(self) -> bool:
        """Return True: the check sum of a frame's header is always looked at, and its length compared with the index."""
        return True

    def scan(self, pieces: Iterator[NDArray[np.uint8]], size: int, name: str) -> dict[str, Any]:
        """Find the frames by their headers, whose check sums are checked.

        Raises:
            RecordError: naming file, record number and offset.
        """
        spans = scan_headers(pieces, size, name, resync=self.resync)
        return {"offsets": spans.offsets, "lengths": spans.lengths}

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

    def _decode(
        self, data: NDArray[np.uint8], begins: NDArray[np.int64], ends: NDArray[np.int64], places: NDArray[np.int64], rows: list[Any]
    ) -> None:
        statuses = check_frames(data, begins, ends - begins, check_data=self.check_crc)
        num_good = len(places) if statuses is None else int(np.flatnonzero(statuses)[0])
        # Slices of bytes cost less than views that are made bytes, if the copy of the block is small.
        view = data.tobytes() if data.nbytes <= _SMALL_BYTES * len(places) else data.data
        spans = zip((begins[:num_good] + HEADER_BYTES).tolist(), (ends[:num_good] - FOOTER_BYTES).tolist(), strict=True)
        if isinstance(view, bytes):
            rows.extend([{"record": view[begin:end]} for begin, end in spans])
        elif data.nbytes >= LARGE_BYTES * len(places):
            rows.extend([{"record": record} for record in copies([view[begin:end] for begin, end in spans])])
        else:
            rows.extend([{"record": bytes(view[begin:end])} for begin, end in spans])
        if statuses is not None:
            frame = view[int(begins[num_good]) : int(ends[num_good])]
            raise bad_record(self.table, int(places[num_good]), FrameStatus(int(statuses[num_good])), frame)

    def _refuse_long(self, limit: int) -> None:
        lengths = self.table.columns["lengths"]
        longest = int(np.argmax(lengths)) if len(self) else 0
        length = int(lengths[longest]) - FRAME_BYTES if len(self) else 0
        if length > limit:
            raise RecordError(
                f"{self.describe(longest)} has {length} bytes, over max_record_bytes={limit}",
                where=f"{_CALLER}, {self.describe(longest)}",
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
