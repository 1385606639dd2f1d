"""What image files store, unchanged: deep and floating pixels, alpha, the numbers of a palette, any number of channels."""

from __future__ import annotations

import io
import struct
import zlib
from typing import Any

import numpy as np

from penstock.errors import DecodeError, MissingExtra
from penstock.image.header import Data, Header, damaged, orient, tiff_orientation
from penstock.image.operator import imdecode, load_cv2
from penstock.kernels.library import Array

_KEPT = (b"IHDR", b"IDAT", b"IEND")
_PALETTE = 3
_CHANNELS = {1: [0], 3: [2, 1, 0], 4: [2, 1, 0, 3]}
"""For so many channels of OpenCV, where those of the file are."""


def stored_pixels(data: Data, header: Header, where: str) -> Array:
    """Return the pixels of a PNG, WebP, BMP, GIF or AVIF image as they are stored: (height, width, channels), not turned.

    A palette PNG gives the numbers of its colours. Grey PNG of 1, 2 and 4 bits gives numbers below 2, 4 and 16.

    Raises:
        DecodeError: the pixel data are damaged.
    """
    is_png = header.kind == "PNG"
    pixels = imdecode(_as_grey(data) if is_png else data, load_cv2().IMREAD_UNCHANGED)
    if pixels is None or pixels.shape[:2] != (header.height, header.width):
        raise damaged(header.kind, "the decoder rejects its pixel data", data, where)
    pixels = pixels.reshape(header.height, header.width, -1)
    order = _CHANNELS[pixels.shape[2]]
    if is_png and data[25] == 4:
        order = [0, 3]  # grey with alpha, which OpenCV gives as colours
    pixels = pixels[..., order]
    if is_png and data[24] < 8:
        pixels //= 255 // (2 ** data[24] - 1)
    found: Array = pixels
    return found


def _as_grey(data: Data) -> bytes:
    """Return a PNG with nothing but its pixels; those of a palette are its grey values: the bits are laid out alike."""
    view, at, parts = memoryview(data), 8, [bytes(data[:8])]
    while at < len(view):
        end = at + 12 + int.from_bytes(view[at : at + 4], "big")
        chunk = bytearray(view[at:end])
        if bytes(chunk[4:8]) == b"IHDR" and chunk[17] == _PALETTE:
            chunk[17] = 0
            chunk[-4:] = zlib.crc32(chunk[4:-4]).to_bytes(4, "big")
        if bytes(chunk[4:8]) in _KEPT:
            parts.append(bytes(chunk))
        at = end
    return b"".join(parts)


def tiff_pixels(data: Data, max_pixels: int, where: str) -> Array:
    """Return the first series of a TIFF image by tifffile, turned as its orientation says: (height, width, pages and channels).

    Raises:
        MissingExtra: tifffile is not installed.
        DecodeError: it cannot be read, is no image of rows and columns, or has more pixels in a plane than `max_pixels`.
    """
    try:
        import tifffile
    except ImportError as error:
        raise MissingExtra(
            f"tifffile, which reads TIFF unchanged, cannot be imported: {error}", where=where, fix='pip install "penstock[tiff]"'
        ) from error
    try:
        with tifffile.TiffFile(io.BytesIO(data)) as file:
            series = file.series[0]
            sizes = dict(zip(series.axes, series.shape, strict=True))
            if "Y" in sizes and "X" in sizes and sizes["Y"] * sizes["X"] <= max_pixels:
                return orient(_last_channels(series.asarray(), series.axes), tiff_orientation(data))
    except (tifffile.TiffFileError, ValueError, IndexError, KeyError, RuntimeError, struct.error, zlib.error) as error:
        raise damaged("TIFF", f"tifffile says: {error}", data, where) from error
    raise DecodeError(
        f"TIFF image of axes {series.axes} and shape {list(series.shape)}, with a limit of {max_pixels} pixels",
        where=f"{where}, {len(data)} bytes",
        fix="leave the file out of the list, or raise max_pixels= if you trust it",
    )


def _last_channels(pixels: Any, axes: str) -> Array:
    rows, columns = axes.index("Y"), axes.index("X")
    moved: Array = np.moveaxis(pixels, (rows, columns), (0, 1))
    return moved.reshape(*moved.shape[:2], -1)
