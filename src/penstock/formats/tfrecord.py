"""TFRecord files: written frame by frame, read as a stream of records. The byte table is in docs/formats/tfrecord.md."""

from __future__ import annotations

import struct
from collections.abc import Generator, Iterator
from typing import Any, Final, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from penstock.errors import RecordError
from penstock.formats.compression import READ_BYTES, Compressor, Decompressed, Readable, check_compression
from penstock.formats.sizes import size_words
from penstock.formats.tfrecord_errors import frame_error
from penstock.kernels.framing import FOOTER_BYTES, HEADER_BYTES, UNKNOWN, FrameStatus, crc32c, masked, scan_frames

__all__ = ["MAX_RECORD_BYTES", "Block", "RecordWriter", "frame", "read_blocks", "read_records"]

MAX_RECORD_BYTES: Final = 1 << 30
"""The most bytes of a record unless the user says otherwise."""

_LENGTH, _CRC = struct.Struct("<Q"), struct.Struct("<I")
_PIECE_BYTES, _BLOCK_RECORDS = 1 << 20, 4096
# Deflate reaches 1,032:1. Many small records of that kind are harmless, as they are read one by one; a single one of this size is not.
_SUSPECT_BYTES, _SUSPECT_RATIO = 8 << 20, 200


def frame(record: bytes) -> bytes:
    """Return a record as it stands in an uncompressed file: length, check sum, data, check sum."""
    length = _LENGTH.pack(len(record))
    return b"".join((length, _CRC.pack(masked(crc32c(length))), record, _CRC.pack(masked(crc32c(record)))))


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
        self.num_records = 0
        self.num_bytes = 0
        """Bytes written, without what a compressor still holds."""

    def write(self, record: bytes) -> None:
        """Append one record, which may be empty."""
        data = frame(record)
        self._put(data if self._compressor is None else self._compressor.add(data))
        self.num_records += 1

    def close(self) -> None:
        """End the stream; a second call does nothing."""
        compressor, self._compressor = self._compressor, None
        if compressor is not None:
            self._put(compressor.finish())

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
    stream: Readable, *, name: str, check_crc: bool = True, max_record_bytes: int = MAX_RECORD_BYTES
) -> Generator[Block, None, None]:
    """Give the records of an uncompressed stream by blocks of up to 4,096; arguments and errors as `read_records`."""
    offsets, lengths = np.empty(_BLOCK_RECORDS, np.int64), np.empty(_BLOCK_RECORDS, np.int64)
    data, base, number, ended = b"", 0, 0, False
    while True:
        left = len(data) if ended else UNKNOWN
        scan = scan_frames(data, offsets, lengths, left=left, limit=max_record_bytes, check_data=check_crc)
        if scan.num_frames:
            yield Block(number, base, data, offsets[: scan.num_frames].copy(), lengths[: scan.num_frames].copy())
            number += scan.num_frames
        data = data[scan.position :]
        base += scan.position
        match scan.status:
            case FrameStatus.GOOD:
                return
            case FrameStatus.FULL:
                pass
            case FrameStatus.MORE:
                filled = _fill(stream, data, scan.detail, f"record {number} of {name!r}")
                ended = len(filled) < scan.detail
                data = filled
            case _:
                raise frame_error(scan.status, data, name=name, record=number, offset=base, left=left, limit=max_record_bytes)


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
