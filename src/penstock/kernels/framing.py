"""CRC32C and the frames of TFRecord files: the checked functions. They call the C library or the twin without the GIL, from any thread."""

from __future__ import annotations

from enum import IntEnum
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from penstock.errors import SpecError
from penstock.kernels import framing_twin
from penstock.kernels.library import block, chosen, integer, place, require_out

__all__ = [
    "FOOTER_BYTES",
    "FRAME_BYTES",
    "HEADER_BYTES",
    "UNKNOWN",
    "FrameStatus",
    "Scan",
    "check_frames",
    "crc32c",
    "find_frame",
    "masked",
    "scan_frames",
]

HEADER_BYTES: Final = 12
"""Length and its check sum."""
FOOTER_BYTES: Final = 4
"""Check sum of the data."""
FRAME_BYTES: Final = HEADER_BYTES + FOOTER_BYTES
"""What a frame has beside its data."""
UNKNOWN: Final = (1 << 63) - 1
"""For `left` of `scan_frames`: how many bytes follow is not known yet."""

Bytes = bytes | bytearray | memoryview | NDArray[Any]
_UINT8, _INT64 = np.dtype(np.uint8), np.dtype(np.int64)
_HEADERS_ONLY, _WHOLE, _CHECKED = 0, 1, 2
_MASK32 = (1 << 32) - 1


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
        return chosen("crc32c", framing_twin.crc32c_twin)(data, len(data), value)
    array = _bytes_of("crc32c", "data", data)
    return chosen("crc32c", framing_twin.crc32c_twin)(array, array.size, value)


def masked(crc: int) -> int:
    """Return a check sum as TFRecord files store it: rotated by 15 bits, plus a constant. `crc` in 0..2**32-1."""
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & _MASK32


def scan_frames(
    buffer: Bytes,
    offsets: NDArray[np.int64],
    lengths: NDArray[np.int64],
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
        require_out("scan_frames", array, _INT64, (count,), data)
    bounds = (
        integer("scan_frames", "left", left, data.size, UNKNOWN),
        integer("scan_frames", "limit", limit, 0, UNKNOWN),
        (_CHECKED if check_data else _WHOLE) if whole else _HEADERS_ONLY,
        integer("scan_frames", "base", base, 0, UNKNOWN >> 1),
    )
    state = np.empty(3, np.int64)
    found = chosen("scan_frames", framing_twin.scan_frames_twin)(data, bounds, offsets, lengths, state)
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
    return chosen("find_frame", framing_twin.find_frame_twin)(data, integer("find_frame", "start", start, 0, data.size), left)


def check_frames(
    buffer: Bytes,
    starts: NDArray[np.int64],
    lengths: NDArray[np.int64],
    *,
    check_data: bool = True,
    out: NDArray[np.uint8] | None = None,
) -> NDArray[np.uint8] | None:
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
    starts = block("check_frames", "starts", starts, _INT64)
    lengths = block("check_frames", "lengths", lengths, _INT64, starts.shape[0])
    if out is None:
        out = np.empty(starts.shape[0], np.uint8)
    else:
        require_out("check_frames", out, _UINT8, (starts.shape[0],), data)
    num_bad = chosen("check_frames", framing_twin.check_frames_twin)(data, starts, lengths, bool(check_data), out)
    return out if num_bad else None


def _bytes_of(function: str, argument: str, data: Any) -> NDArray[np.uint8]:
    """Return a flat view of anything with a contiguous buffer."""
    if type(data) is np.ndarray and data.dtype is _UINT8 and data.ndim == 1 and data.flags.c_contiguous:
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
