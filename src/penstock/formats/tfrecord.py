"""TFRecord files: frames are written, found by their headers, and read.

Byte table in docs/formats/tfrecord.md.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Generator, Iterable, Iterator
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np

from penstock._contracts.element import is_masked
from penstock._system.text import size_words
from penstock.errors import PlanError, RecordError, SpecError
from penstock.formats.compression import (
    READ_BYTES,
    WINDOW_BITS,
    Decompressed,
    FileWriter,
    Readable,
    Writable,
    check_compression,
    looks_like,
)
from penstock.kernels.framing import FOOTER_BYTES, FRAME_BYTES, HEADER_BYTES, UNKNOWN, FrameStatus, crc32c, find_frame, masked, scan_frames
from penstock.kernels.library import Array, Ints, Uint8s

Record: TypeAlias = bytes | bytearray | memoryview | Array

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


class RecordWriter(FileWriter):
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
        super().__init__(file)
        # No time stamp, no name.
        self._compressor = None if compression is None else zlib.compressobj(6, zlib.DEFLATED, WINDOW_BITS[compression])

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
        self._put(data if self._compressor is None else self._compressor.compress(data))

    def _end(self) -> bytes:
        return b"" if self._compressor is None else self._compressor.flush()


class RecordBlock(NamedTuple):
    """Some records, one behind the other."""

    first: int
    """Number of the first record."""
    offset: int
    """Where `data` begins in the decompressed file."""
    data: bytes
    starts: Ints
    """Where each frame begins in `data`."""
    lengths: Ints
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
) -> Generator[RecordBlock, None, None]:
    """Give the records of an uncompressed stream by blocks of up to 4,096 neighbours.

    Args:
        stream: as in `read_records`.
        name: likewise.
        check_crc: likewise.
        max_record_bytes: likewise.

    Raises:
        RecordError: as `read_records`.
    """
    offsets, lengths = np.empty((2, _BLOCK_RECORDS), np.int64)
    data, base, number, ended = b"", 0, 0, False
    while True:
        left = len(data) if ended else UNKNOWN
        scan = scan_frames(data, offsets, lengths, left=left, limit=max_record_bytes, check_data=check_crc)
        if scan.num_frames:
            yield RecordBlock(number, base, data, offsets[: scan.num_frames].copy(), lengths[: scan.num_frames].copy())
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
            # The piece that was read last may have begun before the record.
            ratio = size // (stream.num_in - compressed_before + READ_BYTES)
            if ratio > _SUSPECT_RATIO:
                most = f"at most {_SUSPECT_RATIO}:1 is read beyond {size_words(_SUSPECT_BYTES)}"
                raise RecordError(
                    f"{what} says {size_words(needed)}, and its first {size_words(size)} were compressed more than {ratio}:1",
                    where=what,
                    fix=f"this is a decompression bomb, or a record that holds nothing: {most}",
                )
    return b"".join(parts)


# -- where frames lie, by their headers alone -------------------------------------------------------------------------------------

_CAPACITY = 1 << 16


def scan_headers(pieces: Iterable[Uint8s], size: int, name: str, *, resync: bool = False) -> dict[str, Ints]:
    """Find the frames of a file. Of each, only the length and its check sum are looked at: data are checked when they are read.

    Args:
        pieces: the bytes of the file in order, uint8 [some]; each is valid until the next is asked for.
        size: bytes of the file.
        name: of the file, for errors.
        resync: go on behind a header that is none. What stands there up to the next header is one span, which is no good frame.

    Returns:
        "offsets" and "lengths" of the frames, with their headers and check sums: int64 [n] each.

    Raises:
        RecordError: a header that is none, or a frame that reaches beyond the end; with record number and offset. With `resync` only when
            the file begins as a GZIP file does.
    """
    offsets, lengths = np.empty((2, _CAPACITY), np.int64)
    found = [(offsets[:0], lengths[:0])]
    held = np.empty(0, np.uint8)  # the first bytes of a header that reaches into the next piece
    position = end = number = 0  # where the next header is, where the piece ends, and how many records were found
    damaged_from = -1
    for piece in pieces:
        data = np.concatenate((held, piece)) if held.size else piece
        start, end = end - held.size, end + piece.size
        while position < end:
            if damaged_from >= 0:
                position = start + find_frame(data, position - start, left=size - start)
                if end - position < HEADER_BYTES:
                    break
                found.append((np.array([damaged_from]), np.array([position - damaged_from])))
                number, damaged_from = number + 1, -1
            rest = data[position - start :]
            scan = scan_frames(rest, offsets, lengths, left=size - position, whole=False, base=position)
            found.append((offsets[: scan.num_frames].copy(), lengths[: scan.num_frames].copy()))
            number, position = number + scan.num_frames, position + scan.position
            if scan.status is FrameStatus.MORE:
                break
            if scan.status not in (FrameStatus.GOOD, FrameStatus.FULL):
                head = rest[scan.position : scan.position + HEADER_BYTES].tobytes()
                if not resync or (position == 0 and looks_like(head) == "GZIP"):
                    raise frame_error(scan.status, head, name=name, record=number, offset=position, left=size - position)
                damaged_from, position = position, position + 1
        held = data[position - start :].copy()
    if damaged_from >= 0:
        found.append((np.array([damaged_from]), np.array([size - damaged_from])))
    return dict(zip(("offsets", "lengths"), map(np.concatenate, zip(*found, strict=True)), strict=True))


# -- errors -----------------------------------------------------------------------------------------------------------------------


def frame_error(
    status: FrameStatus, data: bytes | memoryview, *, name: str, record: int, offset: int, left: int = UNKNOWN, limit: int = UNKNOWN
) -> RecordError:
    """Return the error for a frame that a kernel found to be bad.

    Args:
        status: what the kernel said.
        data: bytes of the file from the frame on: at least all of the frame when its data are bad, else its header.
        name: of the file.
        record: number of the record in the file.
        offset: where the frame begins, in bytes (of the decompressed file).
        left: bytes of the file from the frame on.
        limit: what `max_record_bytes` was.
    """
    which = f"record {record}"
    what, fix = _words(status, bytes(data[:FRAME_BYTES]), data, left, limit)
    return RecordError(
        f"{which} of {name!r} at offset {offset}: {what}",
        where=f"{name!r}, {which}, offset {offset}",
        fix=fix or (_FIX if status is FrameStatus.DATA_CRC else _FIX_HEADER),
    )


_FIX = "get another copy of the file or write it again; feed(on_error=ps.Skip()) leaves the record out"
_FIX_HEADER = "get another copy of the file or write it again; resync=True goes on with the next record that can be found"


def _words(status: FrameStatus, head: bytes, data: bytes | memoryview, left: int, limit: int) -> tuple[str, str]:
    length = int.from_bytes(head[:8], "little")
    match status:
        case FrameStatus.CUT | FrameStatus.LENGTH_CRC if looks_like(head) == "GZIP":
            return f"its first bytes {head[:4].hex(' ')} are no length: this looks like GZIP", 'give compression="GZIP" or "auto"'
        case FrameStatus.CUT if len(head) < HEADER_BYTES:
            return f"the file is truncated: {len(head)} bytes are left, and a header has {HEADER_BYTES}", ""
        case FrameStatus.CUT if left < UNKNOWN >> 1:
            return f"the file is truncated: the record says {length} bytes, and {max(0, left - FRAME_BYTES)} are left for them", ""
        case FrameStatus.CUT | FrameStatus.LIMIT:
            return (
                f"the record says {length} bytes, over max_record_bytes={limit}",
                "give a larger max_record_bytes if such records are meant",
            )
        case FrameStatus.LENGTH_CRC:
            return _bad_header(head, length)
        case FrameStatus.DATA_CRC:
            body = bytes(data[HEADER_BYTES : HEADER_BYTES + length])
            stored = int.from_bytes(data[HEADER_BYTES + length : HEADER_BYTES + length + FOOTER_BYTES], "little")
            computed = masked(crc32c(body))
            return f"the {length} bytes of its data have the masked CRC32C 0x{computed:08x}, and the file says 0x{stored:08x}", ""
        case _:
            return f"it says {length} bytes, and {left - FRAME_BYTES} lie between its header and what follows", ""


def _bad_header(head: bytes, length: int) -> tuple[str, str]:
    computed, stored = masked(crc32c(head[:8])), int.from_bytes(head[8:12], "little")
    what = f"its length {length} has the masked CRC32C 0x{computed:08x}, and the file says 0x{stored:08x}"
    if not any(head[:HEADER_BYTES]):
        return f"{what}; zeros stand here, as in a file whose end was never written", ""
    if looks_like(head) == "ZLIB":
        return f"{what}; it may be a ZLIB stream", 'give compression="ZLIB" if it was written so'
    return what, ""
