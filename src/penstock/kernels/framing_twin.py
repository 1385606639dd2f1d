"""CRC32C and frames without the C library: the same results. Arguments are taken as `penstock.kernels.framing` left them."""

from __future__ import annotations

import struct
from functools import cache

import numpy as np
from numpy.typing import NDArray

__all__ = ["check_frames_twin", "crc32c_twin", "find_frame_twin", "scan_frames_twin"]

_HEADER = struct.Struct("<QI")
_GOOD, _MORE, _FULL, _CUT, _LENGTH_CRC, _LIMIT, _DATA_CRC, _OTHER_LENGTH = range(8)
_HEADERS_ONLY, _WHOLE, _CHECKED = 0, 1, 2
_FRAME_BYTES = 16
_POLYNOMIAL = 0x82F63B78
_MASK32 = (1 << 32) - 1
# Lanes of so many bytes are computed side by side. Below some thousand bytes a plain loop is quicker: 12 MB/s; at 1 MB lanes make 100.
_LANE_BYTES, _LEAST_BYTES, _PIECE_BYTES = 64, 4096, 1 << 20


def crc32c_twin(data: NDArray[np.uint8] | bytes, num: int, value: int) -> int:
    """Continue a check sum."""
    crc = value ^ _MASK32
    view = (memoryview(data) if isinstance(data, bytes) else data.data)[:num]
    for start in range(0, num, _PIECE_BYTES):
        piece = view[start : start + _PIECE_BYTES]
        crc = _in_lanes(np.frombuffer(piece, np.uint8), crc) if len(piece) >= _LEAST_BYTES else _by_bytes(piece, crc)
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


def _by_bytes(data: memoryview, crc: int) -> int:
    table = _table()
    for byte in data:
        crc = crc >> 8 ^ table[(crc ^ byte) & 0xFF]
    return crc


def _in_lanes(data: NDArray[np.uint8], crc: int) -> int:
    """Compute lanes side by side, then join them two by two. Zeros in front change nothing, for the remainder begins with zero there."""
    num_lanes = 1 << (-(-data.size // _LANE_BYTES) - 1).bit_length()
    padded = np.zeros(num_lanes * _LANE_BYTES, np.uint8)
    first = padded.size - data.size
    padded[first:] = data
    padded[first : first + 4] ^= np.frombuffer(crc.to_bytes(4, "little"), np.uint8)
    table = np.array(_table(), np.uint32)
    lanes = np.zeros(num_lanes, np.uint32)
    for column in np.ascontiguousarray(padded.reshape(num_lanes, _LANE_BYTES).T):
        lanes = lanes >> np.uint32(8) ^ table[(lanes ^ column) & np.uint32(0xFF)]
    num_bytes = _LANE_BYTES
    while lanes.size > 1:
        tables = _shifts(num_bytes)
        left = lanes[::2].astype("<u4").view(np.uint8).reshape(-1, 4)
        lanes = lanes[1::2] ^ tables[0, left[:, 0]] ^ tables[1, left[:, 1]] ^ tables[2, left[:, 2]] ^ tables[3, left[:, 3]]
        num_bytes *= 2
    return int(lanes[0])


@cache
def _shifts(num_bytes: int) -> NDArray[np.uint32]:
    """Return uint32 [4, 256]: what byte k of a remainder becomes with so many zero bytes behind it; `num_bytes` is a power of two."""
    if num_bytes == 1:
        table = np.array(_table(), np.uint32)
        single = np.stack([np.arange(256, dtype=np.uint32) << np.uint32(8 * place) for place in range(4)])
        shifted: NDArray[np.uint32] = table[single & np.uint32(0xFF)] ^ single >> np.uint32(8)
        return shifted
    half = _shifts(num_bytes // 2)
    once: NDArray[np.uint32] = half.copy()
    out = np.zeros_like(once)
    for place in range(4):
        out ^= half[place][once >> np.uint32(8 * place) & np.uint32(0xFF)]
    return out


def scan_frames_twin(
    buffer: NDArray[np.uint8],
    bounds: tuple[int, int, int, int],
    offsets: NDArray[np.int64],
    lengths: NDArray[np.int64],
    state: NDArray[np.int64],
) -> int:
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
        offsets[count], lengths[count] = base + position, detail + _FRAME_BYTES
        position += detail + _FRAME_BYTES
        count += 1
    state[:] = position, status, 0 if status == _GOOD else (detail + (1 << 63)) % (1 << 64) - (1 << 63)
    return count


def _next_frame(data: memoryview, position: int, left: int, limit: int, mode: int) -> tuple[int, int]:
    """Return status and length field of the frame at `position`."""
    if left - position < _HEADER.size:
        return _CUT, -1
    if len(data) - position < _HEADER.size:
        return _MORE, _HEADER.size
    length, crc = _HEADER.unpack_from(data, position)
    begin = position + _HEADER.size
    if _masked(data[position : position + 8]) != crc:
        return _LENGTH_CRC, length
    if length > left - position - _FRAME_BYTES:
        return _CUT, length
    if length > limit:
        return _LIMIT, length
    if mode == _HEADERS_ONLY:
        return _GOOD, length
    if len(data) - position - _FRAME_BYTES < length:
        return _MORE, length + _FRAME_BYTES
    return (_GOOD if mode == _WHOLE or _data_fit(data, begin, length) else _DATA_CRC), length


def _data_fit(data: memoryview, begin: int, length: int) -> bool:
    return _masked(data[begin : begin + length]) == int.from_bytes(data[begin + length : begin + length + 4], "little")


def _masked(data: memoryview) -> int:
    crc = _by_bytes(data, _MASK32) ^ _MASK32 if len(data) < _LEAST_BYTES else crc32c_twin(np.frombuffer(data, np.uint8), len(data), 0)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & _MASK32


def find_frame_twin(buffer: NDArray[np.uint8], start: int, left: int) -> int:
    """Return the first place from `start` on where a frame may begin."""
    data, place = buffer.data, start
    while len(data) - place >= _HEADER.size:
        length, crc = _HEADER.unpack_from(data, place)
        if length <= left - place - _FRAME_BYTES and _masked(data[place : place + 8]) == crc:
            break
        place += 1
    return place


def check_frames_twin(
    buffer: NDArray[np.uint8],
    starts: NDArray[np.int64],
    lengths: NDArray[np.int64],
    check_data: bool,
    statuses: NDArray[np.uint8],
) -> int:
    """Write the status of each frame; return the number of bad ones."""
    data = buffer.data
    for row, (start, length) in enumerate(zip(starts.tolist(), lengths.tolist(), strict=True)):
        inside = start >= 0 and length >= 0 and start + length <= len(data)
        statuses[row] = _frame_status(data[start : start + length], check_data) if inside else _CUT
    return int(np.count_nonzero(statuses))


def _frame_status(frame: memoryview, check_data: bool) -> int:
    if len(frame) < _FRAME_BYTES:
        return _CUT
    length, crc = _HEADER.unpack_from(frame)
    if _masked(frame[:8]) != crc:
        return _LENGTH_CRC
    if length != len(frame) - _FRAME_BYTES:
        return _OTHER_LENGTH
    return _GOOD if not check_data or _data_fit(frame, _HEADER.size, length) else _DATA_CRC
