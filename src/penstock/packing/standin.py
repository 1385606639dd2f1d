"""STAND-IN until the branch `example` is merged: the bytes of an Example."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["encode_example"]


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
