"""TFRecord files: written frame by frame, read as a stream of records. The byte table is in docs/formats/tfrecord.md."""

from __future__ import annotations

import struct
from collections.abc import Callable, Generator, Iterator
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from penstock._contracts.element import is_masked
from penstock.errors import PlanError, RecordError, SpecError
from penstock.formats.compression import READ_BYTES, Compressor, Decompressed, Readable, check_compression
from penstock.formats.sizes import size_words
from penstock.formats.tfrecord_errors import frame_error
from penstock.kernels.framing import FOOTER_BYTES, FRAME_BYTES, HEADER_BYTES, UNKNOWN, FrameStatus, crc32c, find_frame, masked, scan_frames

__all__ = ["MAX_RECORD_BYTES", "Block", "RecordWriter", "frame", "read_blocks", "read_records"]

Record: TypeAlias = bytes | bytearray | memoryview | NDArray[Any]

MAX_RECORD_BYTES: Final = 1 << 30
"""The most bytes of a record unless the user says otherwise."""

_LENGTH, _CRC = struct.Struct("<Q"), struct.Struct("<I")
_PIECE_BYTES, _BLOCK_RECORDS = 1 << 20, 4096
# Deflate reaches 1,032:1. Many small records of that kind are harmless, as they are read one by one; a single one of this size is not.
_SUSPECT_BYTES, _SUSPECT_RATIO = 8 << 20, 200


def frame(record: Record) -> bytes:
    """Return a record as it stands in an uncompressed file: length, check sum, data, check sum.

    Args:
        record: bytes, or anything whose bytes lie side by side in memory, such as a C-contiguous array: its `nbytes` bytes.

    Raises:
        SpecError: it has no such bytes.
    """
    if type(record) is not bytes:
        record = _bytes_of(record)
    length = _LENGTH.pack(len(record))
    return b"".join((length, _CRC.pack(masked(crc32c(length))), record, _CRC.pack(masked(crc32c(record)))))


def _bytes_of(record: Any) -> bytes:
    try:
        view = memoryview(record)
    except (TypeError, ValueError) as error:
        raise _no_record(record, str(error)) from error
    if isinstance(record, str):
        raise _no_record(record, "text must be encoded")
    if is_masked(view.obj):
        raise _no_record(record, "its mask would be lost")
    if not view.c_contiguous:
        raise _no_record(record, "its items do not lie side by side")
    if view.format == "O" or getattr(getattr(view.obj, "dtype", None), "hasobject", False):
        raise _no_record(record, "its items are Python objects, not bytes")
    return view.tobytes()


def _no_record(record: Any, reason: str) -> SpecError:
    return SpecError(
        f"a {type(record).__name__} is no record: {reason}",
        where="RecordWriter.write, argument 'record'",
        fix="give bytes, or an object whose bytes lie side by side, such as np.ascontiguousarray(array)",
    )


class Writable(Protocol):
    """What takes bytes."""

    def write(self, data: bytes, /) -> Any:
        """Take all of them."""


class RecordWriter:
    """Write records to a binary file object. The same records give the same bytes: no time stamp, no name. Not thread-safe.

    Each uncompressed record is one `write`; give a buffered file. `close` ends a compressed stream and leaves the file open: until then a
    compressed file is cut.

    Args:
        file: an object with `write(bytes)`.
        compression: None, "GZIP" or "ZLIB".

    Raises:
        PlanError: another compression.
    """

    def __init__(self, file: Writable, compression: str | None = None) -> None:
        check_compression(compression, "RecordWriter, argument 'compression'")
        self._file = file
        self._compressor = None if compression is None else Compressor(compression)
        self._is_closed = False
        self.num_records = 0
        self.num_bytes = 0
        """Bytes written, without what a compressor still holds."""

    def write(self, record: Record) -> None:
        """Append one record, which may be empty.

        Args:
            record: as for `frame`.

        Raises:
            SpecError: it has no bytes to write; nothing was written.
            PlanError: the writer was closed.
        """
        if self._is_closed:
            raise PlanError("the writer is closed", where="RecordWriter.write()", fix="write before close(), or make another writer")
        data = frame(record)
        self._put(data if self._compressor is None else self._compressor.add(data))
        self.num_records += 1

    def close(self) -> None:
        """End the stream; a second call does nothing."""
        if not self._is_closed:
            self._is_closed = True
            if self._compressor is not None:
                self._put(self._compressor.finish())

    def __enter__(self) -> RecordWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _put(self, data: bytes) -> None:
        if data:
            self._file.write(data)
            self.num_bytes += len(data)


class Block(NamedTuple):
    """Some records, one behind the other."""

    first: int
    """Number of the first record."""
    offset: int
    """Where `data` begins in the decompressed file."""
    data: bytes
    starts: NDArray[np.int64]
    """Where each frame begins in `data`."""
    lengths: NDArray[np.int64]
    """Whole lengths of the frames."""

    def records(self) -> Iterator[bytes]:
        """Give the data of each record."""
        for start, length in zip(self.starts.tolist(), self.lengths.tolist(), strict=True):
            yield self.data[start + HEADER_BYTES : start + length - FOOTER_BYTES]


def read_records(
    stream: Readable,
    *,
    name: str = "stream",
    compression: str | None = None,
    check_crc: bool = True,
    max_record_bytes: int = MAX_RECORD_BYTES,
) -> Generator[bytes, None, None]:
    """Give the records of a file object, from its place on, in memory bounded by the largest record.

    Args:
        stream: an object with `read(size)`; it is not closed.
        name: of the file, for errors.
        compression: None, "GZIP" or "ZLIB".
        check_crc: check the data as well as the lengths.
        max_record_bytes: a longer record is an error, before memory is taken for it.

    Raises:
        PlanError: another compression.
        RecordError: where the first bad record begins; those before it have been given.
    """
    check_compression(compression, "read_records, argument 'compression'")
    source = stream if compression is None else Decompressed(stream, compression, name)
    for block in read_blocks(source, name=name, check_crc=check_crc, max_record_bytes=max_record_bytes):
        yield from block.records()


def read_blocks(
    stream: Readable,
    *,
    name: str,
    check_crc: bool = True,
    max_record_bytes: int = MAX_RECORD_BYTES,
    size: int | None = None,
    on_bad: Callable[[int, int, RecordError], None] | None = None,
) -> Generator[Block, None, None]:
    """Give the records of an uncompressed stream by blocks of up to 4,096 neighbours.

    Args:
        stream: as in `read_records`.
        name: likewise.
        check_crc: likewise.
        max_record_bytes: likewise.
        size: bytes of the stream, if they are known: then a record that reaches beyond them is named before more is read.
        on_bad: called with number, offset and error of a bad record instead of raising it; reading goes on behind it, where its length is
            not known with the next header that fits. A bad record counts as one.

    Raises:
        RecordError: as `read_records`; of the compressed stream itself also with `on_bad`.
    """
    offsets, lengths = np.empty(_BLOCK_RECORDS, np.int64), np.empty(_BLOCK_RECORDS, np.int64)
    data, base, number, ended = b"", 0, 0, False
    while True:
        left = len(data) if ended else UNKNOWN if size is None else max(len(data), size - base)
        scan = scan_frames(data, offsets, lengths, left=left, limit=max_record_bytes, check_data=check_crc)
        if scan.num_frames:
            yield Block(number, base, data, offsets[: scan.num_frames].copy(), lengths[: scan.num_frames].copy())
        number += scan.num_frames
        data, base, left = data[scan.position :], base + scan.position, left - scan.position
        match scan.status:
            case FrameStatus.GOOD:
                return
            case FrameStatus.FULL:
                continue
            case FrameStatus.MORE:
                data = _fill(stream, data, scan.detail, f"record {number} of {name!r}")
                ended = len(data) < scan.detail
                continue
        error = frame_error(scan.status, data, name=name, record=number, offset=base, left=left, limit=max_record_bytes)
        if on_bad is None:
            raise error
        on_bad(number, base, error)
        number += 1
        if scan.status is FrameStatus.DATA_CRC:
            data, base = data[scan.detail + FRAME_BYTES :], base + scan.detail + FRAME_BYTES
        else:
            data, base = _behind_damage(stream, data, base, size)


def _behind_damage(stream: Readable, data: bytes, base: int, size: int | None) -> tuple[bytes, int]:
    """Return what follows from the next header on, and where that is; nothing when there is none."""
    place = 1
    while True:
        place = find_frame(data, min(place, len(data)), left=UNKNOWN if size is None else max(len(data), size - base))
        data, base, place = data[place:], base + place, 0
        if len(data) >= HEADER_BYTES:
            return data, base
        part = stream.read(_PIECE_BYTES)
        if not part:
            return b"", base + len(data)
        data += part


def _fill(stream: Readable, data: bytes, needed: int, what: str) -> bytes:
    """Return `data` and what follows, at least `needed` bytes unless the stream ends before; memory grows with what really comes."""
    parts, size = [data], len(data)
    compressed_before = stream.num_in if isinstance(stream, Decompressed) else 0
    while size < needed:
        part = stream.read(_PIECE_BYTES)
        if not part:
            break
        parts.append(part)
        size += len(part)
        if size > _SUSPECT_BYTES and isinstance(stream, Decompressed):
            _refuse_bomb(size, stream.num_in - compressed_before, needed, what)
    return b"".join(parts)


def _refuse_bomb(size: int, num_compressed: int, needed: int, what: str) -> None:
    ratio = size // (num_compressed + READ_BYTES)  # the piece that was read last may have begun before the record
    if ratio > _SUSPECT_RATIO:
        most = f"at most {_SUSPECT_RATIO}:1 is read beyond {size_words(_SUSPECT_BYTES)}"
        raise RecordError(
            f"{what} says {size_words(needed)}, and its first {size_words(size)} were compressed more than {ratio}:1",
            where=what,
            fix=f"this is a decompression bomb, or a record that holds nothing: {most}",
        )
