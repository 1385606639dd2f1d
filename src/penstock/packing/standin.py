"""STAND-IN until the branches `frames` and `example` are merged: the bytes of an Example and of a frame."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np

__all__ = ["encode_example", "frame"]


def _table() -> list[int]:
    out = []
    for number in range(256):
        for _ in range(8):
            number = (number >> 1) ^ (0x82F63B78 if number & 1 else 0)
        out.append(number)
    return out


_TABLE = _table()


def _masked(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _TABLE[(crc ^ byte) & 255] ^ (crc >> 8)
    crc ^= 0xFFFFFFFF
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def frame(data: bytes) -> bytes:
    """Return a record of a TFRecord file."""
    head = struct.pack("<Q", len(data))
    return head + struct.pack("<I", _masked(head)) + data + struct.pack("<I", _masked(data))


def _varint(number: int) -> bytes:
    number &= (1 << 64) - 1
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)


def _message(tag: int, data: bytes) -> bytes:
    return bytes((tag << 3 | 2,)) + _varint(len(data)) + data


def encode_example(features: dict[str, Any]) -> bytes:
    """Return a tf.train.Example: of bytes, list of bytes, str, int, float, and arrays of int64 and float32."""
    entries = b""
    for name, value in features.items():
        if isinstance(value, (bytes, str)):
            body = _message(1, _message(1, value.encode() if isinstance(value, str) else value))
        else:
            array = np.asarray(value)
            if array.dtype.kind == "f":
                body = _message(2, _message(1, array.astype("<f4").tobytes()))
            else:
                body = _message(3, _message(1, b"".join(map(_varint, array.reshape(-1).tolist()))))
        entries += _message(1, _message(1, name.encode()) + _message(2, body))
    return _message(1, entries)
