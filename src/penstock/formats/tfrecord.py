"""TFRecord files: frames are written, found by their headers, and read.

Byte table in docs/formats/tfrecord.md.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np

from penstock._contracts.element import is_masked
from penstock._system.text import size_words
from penstock.errors import PlanError, RecordError, SpecError
from penstock.formats.compression import READ_BYTES, Compressor, Decompressed, FileWriter, Readable, Writable, check_compression, looks_like
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
        self._compressor = None if compression is None else Compressor(compression)
        self.num_records = 0

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

    def _end(self) -> bytes:
        return b"" if self._compressor is None else self._compressor.finish()


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
    size: int | None = None,
    on_bad: Callable[[int, int, RecordError], None] | None = None,
) -> Generator[RecordBlock, None, None]:
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


# -- where frames lie, by their headers alone -------------------------------------------------------------------------------------

_CAPACITY = 1 << 16


class FrameSpans(NamedTuple):
    """Frames of a file: header, data and check sums."""

    offsets: Ints
    lengths: Ints


def scan_headers(pieces: Iterable[Uint8s], size: int, name: str, *, resync: bool = False) -> FrameSpans:
    """Find the frames of a file. Of each, only the length and its check sum are looked at: data are checked when they are read.

    Args:
        pieces: the bytes of the file in order, uint8 [some]; each is valid until the next is asked for.
        size: bytes of the file.
        name: of the file, for errors.
        resync: go on behind a header that is none. What stands there up to the next header is one span, which is no good frame.

    Raises:
        RecordError: a header that is none, or a frame that reaches beyond the end; with record number and offset. With `resync` only when
            the file begins as a GZIP file does.
    """
    scan = _Headers(size, name, resync)
    found: list[FrameSpans] = []
    carried = np.empty(0, np.uint8)  # the first bytes of a header that reaches into the next piece
    begin = 0
    for piece in pieces:
        data = np.concatenate((carried, piece)) if carried.size else piece
        start, begin = begin - carried.size, begin + piece.size
        found.extend(scan.feed(data, start))
        carried = data[scan.position - start :].copy() if scan.position < begin else carried[:0]
    found.extend(scan.finish())
    empty = np.empty(0, np.int64)
    return FrameSpans(*(np.concatenate([empty, *(spans[part] for spans in found)]) for part in (0, 1)))


class _Headers:
    """Goes from header to header. `position` is that of the next one, in the file; the bytes before it are not needed any more."""

    def __init__(self, size: int, name: str, resync: bool) -> None:
        self.position = 0
        self._size, self._name, self._resync = size, name, resync
        self._number = 0
        self._damaged_from = -1
        self._offsets, self._lengths = np.empty(_CAPACITY, np.int64), np.empty(_CAPACITY, np.int64)

    def feed(self, data: Uint8s, start: int) -> Iterator[FrameSpans]:
        """Go through the bytes of the file from `start` on, until it needs more."""
        while self.position < start + data.size:
            if self._damaged_from >= 0:
                place = find_frame(data, self.position - start, left=self._size - start)
                self.position = start + place
                if data.size - place < HEADER_BYTES:
                    return
                yield self._damage(self.position)
            rest = data[self.position - start :]
            scan = scan_frames(rest, self._offsets, self._lengths, left=self._size - self.position, whole=False, base=self.position)
            if scan.num_frames:
                yield FrameSpans(self._offsets[: scan.num_frames].copy(), self._lengths[: scan.num_frames].copy())
            self._number += scan.num_frames
            self.position += scan.position
            if scan.status is FrameStatus.MORE:
                return
            if scan.status not in (FrameStatus.GOOD, FrameStatus.FULL):
                self._bad(scan.status, rest[scan.position : scan.position + HEADER_BYTES].tobytes())

    def finish(self) -> Iterator[FrameSpans]:
        """Give what is left at the end of the file."""
        if self._damaged_from >= 0:
            yield self._damage(self._size)

    def _bad(self, status: FrameStatus, head: bytes) -> None:
        if not self._resync or (self.position == 0 and looks_like(head) == "GZIP"):
            left = self._size - self.position
            raise frame_error(status, head, name=self._name, record=self._number, offset=self.position, left=left)
        self._damaged_from = self.position
        self.position += 1

    def _damage(self, end: int) -> FrameSpans:
        """Make what begins at the damage one span."""
        span = FrameSpans(np.array([self._damaged_from]), np.array([end - self._damaged_from]))
        self._number += 1
        self._damaged_from = -1
        return span


# -- errors -----------------------------------------------------------------------------------------------------------------------


def frame_error(
    status: FrameStatus, data: bytes | memoryview, *, name: str, record: int, offset: int, left: int = UNKNOWN, limit: int = UNKNOWN
) -> RecordError:
    """Return the error for a frame that a kernel found to be bad.

    Args:
        status: what the kernel said.
        data: bytes of the file from the frame on: at least all of the frame when its data are bad, else its header.
        name: of the file.
        record: number of the record in the file, -1 when it is not known.
        offset: where the frame begins, in bytes (of the decompressed file).
        left: bytes of the file from the frame on.
        limit: what `max_record_bytes` was.
    """
    which = f"record {record}" if record >= 0 else "the record"
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
