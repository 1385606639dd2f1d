"""The orientation that a camera wrote into an image: finding it in EXIF bytes, and applying it."""

from __future__ import annotations

import struct
from typing import Any

from numpy.typing import NDArray

__all__ = ["orient", "read_orientation"]

_ORIENTATION = 0x0112
_SHORT, _LONG = 3, 4


def read_orientation(exif: bytes) -> int:
    """Return the EXIF orientation 1..8 of a TIFF structure.

    EXIF is a note beside the pixels: one that is damaged, or has no valid orientation, means 1 (upright) and is no error.
    """
    order = {b"II*\0": "<", b"MM\0*": ">"}.get(exif[:4])
    if order is None or len(exif) < 10:
        return 1
    start = struct.unpack_from(order + "I", exif, 4)[0]
    if start + 2 > len(exif):
        return 1
    num_entries = struct.unpack_from(order + "H", exif, start)[0]
    for at in range(start + 2, min(start + 2 + 12 * num_entries, len(exif) - 11), 12):
        tag, kind, count = struct.unpack_from(order + "HHI", exif, at)
        if tag == _ORIENTATION:
            if count != 1 or kind not in (_SHORT, _LONG):
                return 1
            value = int(struct.unpack_from(order + ("H" if kind == _SHORT else "I"), exif, at + 8)[0])
            return value if 1 <= value <= 8 else 1
    return 1


def orient(pixels: NDArray[Any], orientation: int) -> NDArray[Any]:
    """Return a view of `pixels` (height, width, channels) as it is meant to be seen; 5 to 8 swap height and width."""
    if orientation >= 5:
        pixels = pixels.transpose(1, 0, 2)
    if orientation in (2, 6):
        return pixels[:, ::-1]
    if orientation in (3, 7):
        return pixels[::-1, ::-1]
    if orientation in (4, 8):
        return pixels[::-1]
    return pixels
