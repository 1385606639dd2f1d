"""How pictures are compared, and parts of image files."""

from __future__ import annotations

import io
import struct
import zlib
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps


def difference(left: NDArray[Any], right: Any) -> int:
    """Return the largest difference of two pictures in one place."""
    right = np.asarray(right)
    assert left.shape == right.shape
    assert left.dtype == np.uint8
    return int(np.abs(left.astype(int) - right.astype(int)).max())


def as_pillow(data: bytes) -> NDArray[np.uint8]:
    """Decode an image with Pillow, upright and in colour."""
    return np.asarray(ImageOps.exif_transpose(Image.open(io.BytesIO(data))).convert("RGB"))


def exif(orientation: int) -> Image.Exif:
    """Make a note of an orientation."""
    record = Image.Exif()
    record[0x0112] = orientation
    return record


def chunk(name: bytes, body: bytes) -> bytes:
    """Make a chunk of a PNG file."""
    return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))
