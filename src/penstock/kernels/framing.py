"""CRC32C and the frames of TFRecord files: the checked functions, and their twins with the same results.

The functions call the C library or the twin without the GIL, from any thread.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from functools import cache
from typing import Any, Final, NamedTuple

import numpy as np

from penstock.errors import SpecError
from penstock.kernels.library import INT64_DTYPE, UINT8_DTYPE, Array, Ints, Uint8s, block, chosen, integer, place, require_out

HEADER_BYTES: Final = 12
"""Length and its check sum."""
FOOTER_BYTES: Final = 4
"""Check sum of the data."""
FRAME_BYTES: Final = HEADER_BYTES + FOOTER_BYTES
"""What a frame has beside its data."""
_HEADER = struct.Struct("<QI")
_GOOD, _MORE, _FULL, _CUT, _LENGTH_CRC, _LIMIT, _DATA_CRC, _OTHER_LENGTH = range(8)
_HEADERS_ONLY, _WHOLE, _CHECKED = 0, 1, 2
_POLYNOMIAL = 0x82F63B78
_MASK32 = (1 << 32) - 1


def crc32c_twin(data: Any, num: int, value: int) -> int:
    """Continue a check sum, at 12 MB/s."""
    crc, table = value ^ _MASK32, _table()
    for byte in memoryview(data)[:num]:
        crc = crc >> 8 ^ table[(crc ^ byte) & 0xFF]
    return crc ^ _MASK32


@cache
def _table() -> tuple[int, ...]:
    remainders = []
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = crc >> 1 ^ (_POLYNOMIAL if crc & 1 else 0)
        remainders.append(crc)
    return tuple(remainders)


def scan_frames_twin(buffer: Uint8s, bounds: tuple[int, int, int, int], offsets: Ints, lengths: Ints, state: Ints) -> int:
    """Find frames; bounds: left, limit, mode, base. `state` gets position, status and detail. Return their number."""
    left, limit, mode, base = bounds
    data = buffer.data
    count = position = 0
    status, detail = _GOOD, 0
    while position < left:
        if count == lengths.size:
            status, detail = _FULL, 0
            break
        status, detail = _next_frame(data, position, left, limit, mode)
        if status != _GOOD:
            break
        offsets[count], lengths[count] = base + position, detail + FRAME_BYTES
        position += detail + FRAME_BYTES
        count += 1
    state[:] = position, status, 0 if status == _GOOD else (detail + (1 << 63)) % (1 << 64) - (1 << 63)
    return count


def _next_frame(data: memoryview, position: int, left: int, limit: int, mode: int) -> tuple[int, int]:
    """Return status and length field of the frame at `position`."""
    if left - position < HEADER_BYTES:
        return _CUT, -1
    if len(data) - position < HEADER_BYTES:
        return _MORE, HEADER_BYTES
    length, crc = _HEADER.unpack_from(data, position)
    begin = position + HEADER_BYTES
    if _masked(data[position : position + 8]) != crc:
        return _LENGTH_CRC, length
    if length > left - position - FRAME_BYTES:
        return _CUT, length
    if length > limit:
        return _LIMIT, length
    if mode == _HEADERS_ONLY:
        return _GOOD, length
    if len(data) - position - FRAME_BYTES < length:
        return _MORE, length + FRAME_BYTES
    return (_GOOD if mode == _WHOLE or _data_fit(data, begin, length) else _DATA_CRC), length


def _data_fit(data: memoryview, begin: int, length: int) -> bool:
    return _masked(data[begin : begin + length]) == int.from_bytes(data[begin + length : begin + length + 4], "little")


def _masked(data: memoryview) -> int:
    return masked(crc32c_twin(data, len(data), 0))


def find_frame_twin(buffer: Uint8s, start: int, left: int) -> int:
    """Return the first place from `start` on where a frame may begin."""
    data, place = buffer.data, start
    while len(data) - place >= HEADER_BYTES:
        length, crc = _HEADER.unpack_from(data, place)
        if length <= left - place - FRAME_BYTES and _masked(data[place : place + 8]) == crc:
            break
        place += 1
    return place


def check_frames_twin(buffer: Uint8s, starts: Ints, lengths: Ints, check_data: bool, statuses: Uint8s) -> int:
    """Write the status of each frame; return the number of bad ones."""
    data = buffer.data
    for row, (start, length) in enumerate(zip(starts.tolist(), lengths.tolist(), strict=True)):
        inside = start >= 0 and length >= 0 and start + length <= len(data)
        statuses[row] = _frame_status(data[start : start + length], check_data) if inside else _CUT
    return int(np.count_nonzero(statuses))


def _frame_status(frame: memoryview, check_data: bool) -> int:
    if len(frame) < FRAME_BYTES:
        return _CUT
    status, length = _next_frame(frame, 0, len(frame), UNKNOWN, _CHECKED if check_data else _WHOLE)
    return status if status == _LENGTH_CRC or length == len(frame) - FRAME_BYTES else _OTHER_LENGTH


UNKNOWN: Final = (1 << 63) - 1
"""For `left` of `scan_frames`: how many bytes follow is not known yet."""

Bytes = bytes | bytearray | memoryview | Array


class FrameStatus(IntEnum):
    """What is wrong with a frame, or why a scan stopped."""

    GOOD = 0
    """Nothing; of a scan: the end of the file."""
    MORE = 1
    """A scan needs more bytes."""
    FULL = 2
    """A scan's arrays are full."""
    CUT = 3
    """The frame reaches beyond the end."""
    LENGTH_CRC = 4
    """The length and its check sum do not fit."""
    LIMIT = 5
    """The length is over the limit."""
    DATA_CRC = 6
    """The data and their check sum do not fit."""
    OTHER_LENGTH = 7
    """The frame is whole as far as its length goes, which is not that of its span."""


class Scan(NamedTuple):
    """How far a scan came."""

    num_frames: int
    """Frames found: that many of `offsets` and `lengths` are set."""
    position: int
    """Where the next frame begins, counted from the buffer's begin. With whole=False perhaps beyond its end."""
    status: FrameStatus
    detail: int
    """MORE: bytes needed from `position` on. CUT, LENGTH_CRC, LIMIT, DATA_CRC: the length field there as int64; -1: cut itself."""


def crc32c(data: Bytes, value: int = 0) -> int:
    """Return the CRC32C (Castagnoli) of bytes; with `value` that of the bytes before and these, as `zlib.crc32` does it.

    About 20 GB/s where the processor has an instruction for it, without the GIL. From any thread.

    Args:
        data: bytes, or anything with a C-contiguous buffer.
        value: the check sum of what stands before, 0..2**32-1.

    Raises:
        SpecError: no contiguous buffer, or a value out of range.
    """
    value = integer("crc32c", "value", value, 0, _MASK32)
    if type(data) is bytes:
        return chosen("crc32c", crc32c_twin)(data, len(data), value)
    array = _bytes_of("crc32c", "data", data)
    return chosen("crc32c", crc32c_twin)(array, array.size, value)


def masked(crc: int) -> int:
    """Return a check sum as TFRecord files store it: rotated by 15 bits, plus a constant. `crc` in 0..2**32-1."""
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & _MASK32


def scan_frames(
    buffer: Bytes,
    offsets: Ints,
    lengths: Ints,
    *,
    left: int = UNKNOWN,
    limit: int = UNKNOWN,
    check_data: bool = True,
    whole: bool = True,
    base: int = 0,
) -> Scan:
    """Find the frames in a piece of a TFRecord file.

    Every header's check sum is checked, then its length against what is left and the limit, and only then is anything done with it.
    One call without the GIL, no allocation. To go on behind a piece: give what begins at `position` of the result, `left` and `base` moved.

    Args:
        buffer: bytes of the file from the border of a frame on.
        offsets: int64 [n], where the offsets of up to n frames are written: of their headers, plus `base`.
        lengths: int64 [n], likewise: whole lengths, data and 16.
        left: how many bytes the file has from the buffer's begin on, at least those of the buffer; UNKNOWN for a stream, which ends with
            a last call where it is known.
        limit: the most bytes of data that a record may have.
        check_data: check the data of whole frames too.
        whole: count a frame only when all of it lies in the buffer. With False frames are found by their headers alone, unchecked.
        base: added to the offsets.

    Raises:
        SpecError: an array of another dtype, shape or layout, or a number out of range.
    """
    data = _bytes_of("scan_frames", "buffer", buffer)
    count = lengths.size if isinstance(lengths, np.ndarray) else 0
    for array in (offsets, lengths):
        require_out("scan_frames", array, INT64_DTYPE, (count,), data)
    bounds = (
        integer("scan_frames", "left", left, data.size, UNKNOWN),
        integer("scan_frames", "limit", limit, 0, UNKNOWN),
        (_CHECKED if check_data else _WHOLE) if whole else _HEADERS_ONLY,
        integer("scan_frames", "base", base, 0, UNKNOWN >> 1),
    )
    state = np.empty(3, np.int64)
    found = chosen("scan_frames", scan_frames_twin)(data, bounds, offsets, lengths, state)
    position, status, detail = state.tolist()
    return Scan(found, position, FrameStatus(status), detail)


def find_frame(buffer: Bytes, start: int, *, left: int = UNKNOWN) -> int:
    """Return the first place from `start` on where a frame may begin: a length with its right check sum that fits what is left.

    For going on behind damage. Chance makes one in 2**32 places such a place, far fewer with `left`. One call without the GIL.

    Args:
        buffer: bytes of the file.
        start: where to begin.
        left: as in `scan_frames`.

    Returns:
        The place; where there is none, the first one whose header does not lie in the buffer wholly, at least `start`.

    Raises:
        SpecError: no contiguous buffer, or a number out of range.
    """
    data = _bytes_of("find_frame", "buffer", buffer)
    left = integer("find_frame", "left", left, data.size, UNKNOWN)
    return chosen("find_frame", find_frame_twin)(data, integer("find_frame", "start", start, 0, data.size), left)


def check_frames(buffer: Bytes, starts: Ints, lengths: Ints, *, check_data: bool = True, out: Uint8s | None = None) -> Uint8s | None:
    """Check frames that lie anywhere in a buffer: both check sums, and that each fills its span exactly. One call without the GIL.

    Args:
        buffer: the bytes.
        starts: int64 [n], where each frame begins in the buffer; any number is safe.
        lengths: int64 [n], whole lengths; any number is safe.
        check_data: False: the length's check sum only.
        out: uint8 [n] for the statuses; None for a new array.

    Returns:
        None when all are good; otherwise uint8 [n], the `FrameStatus` of each: GOOD, CUT, LENGTH_CRC, OTHER_LENGTH or DATA_CRC.

    Raises:
        SpecError: an array of another dtype, shape or layout.
    """
    data = _bytes_of("check_frames", "buffer", buffer)
    starts = block("check_frames", "starts", starts, INT64_DTYPE)
    lengths = block("check_frames", "lengths", lengths, INT64_DTYPE, starts.shape[0])
    if out is None:
        out = np.empty(starts.shape[0], np.uint8)
    else:
        require_out("check_frames", out, UINT8_DTYPE, (starts.shape[0],), data)
    num_bad = chosen("check_frames", check_frames_twin)(data, starts, lengths, bool(check_data), out)
    return out if num_bad else None


def _bytes_of(function: str, argument: str, data: Any) -> Uint8s:
    """Return a flat view of anything with a contiguous buffer."""
    if type(data) is np.ndarray and data.dtype is UINT8_DTYPE and data.ndim == 1 and data.flags.c_contiguous:
        return data
    try:
        view = memoryview(data)
        if view.c_contiguous:
            return np.frombuffer(view, np.uint8) if view.nbytes else np.empty(0, np.uint8)
        problem = "its items do not lie side by side"
    except (TypeError, ValueError, BufferError) as error:
        problem = str(error)
    raise SpecError(
        f"{argument} is a {type(data).__name__} that cannot be read as bytes: {problem}",
        where=place(function, argument),
        fix="pass bytes, a memoryview or a C-contiguous uint8 array",
    )
