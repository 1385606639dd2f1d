"""Check sums of bounded samples of values, the same on every platform and in every process."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["crc_of_array", "crc_of_value", "spread"]

_MAX_PART_BYTES = 4096
_MAX_CHILDREN = 64
_MAX_DEPTH = 8


def spread(count: int, limit: int) -> list[int]:
    """Return at most `limit` (at least 2) indices of 0..count-1: first, last and evenly between; all of them when they fit."""
    if count <= limit:
        return list(range(count))
    return [position * (count - 1) // (limit - 1) for position in range(limit)]


def crc_of_value(value: Any, crc: int = 0, depth: int = 0) -> int:
    """Add a bounded part of `value` to `crc`: scalars, text, arrays, and dict, tuple and list of them.

    Of any other object only its type counts: its `repr` may hold an address, and pickling it may run code.
    """
    kind = type(value)
    crc = zlib.crc32(f"<{kind.__name__}>".encode("utf-8", "surrogateescape"), crc)
    if value is None or kind in (bool, int, float, complex):
        return zlib.crc32(repr(value)[:_MAX_PART_BYTES].encode(), crc)
    if kind is str:
        data = value[:_MAX_PART_BYTES].encode("utf-8", "surrogatepass")
        return zlib.crc32(data, zlib.crc32(str(len(value)).encode(), crc))
    if kind in (bytes, bytearray):
        return zlib.crc32(value[:_MAX_PART_BYTES], zlib.crc32(str(len(value)).encode(), crc))
    if isinstance(value, (np.ndarray, np.generic)):
        return crc_of_array(np.asarray(value), crc, _MAX_PART_BYTES)
    if depth < _MAX_DEPTH and isinstance(value, (dict, tuple, list)):
        return _crc_of_children(value, crc, depth + 1)
    return crc


def _crc_of_children(value: Any, crc: int, depth: int) -> int:
    crc = zlib.crc32(str(len(value)).encode(), crc)
    if isinstance(value, dict):
        for number, (key, child) in enumerate(value.items()):
            if number == _MAX_CHILDREN:
                break
            crc = crc_of_value(child, crc_of_value(key, crc, depth), depth)
        return crc
    for index in spread(len(value), _MAX_CHILDREN):
        crc = crc_of_value(value[index], crc, depth)
    return crc


def crc_of_array(array: NDArray[Any], crc: int, max_bytes: int) -> int:
    """Add shape, dtype and the first `max_bytes` of the items of `array` to `crc`; never copies more than that."""
    crc = zlib.crc32(f"{array.shape}{array.dtype.str}".encode(), crc)
    num_items = min(array.size, max(1, max_bytes // max(1, array.itemsize)))
    # .flat copies only what the slice names; reshape(-1) would copy a whole strided row first.
    part = array.reshape(-1)[:num_items] if array.flags.c_contiguous else array.flat[:num_items]
    if not array.dtype.hasobject:
        return zlib.crc32(part.tobytes(), crc)
    for item in part[:_MAX_CHILDREN].tolist():
        crc = crc_of_value(item, crc, 1)
    return crc
