"""A contact sheet: the images of some records in one PNG."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from penstock import image
from penstock.errors import DecodeError
from penstock.image.operator import load_cv2
from penstock.packing.inspect import is_image

__all__ = ["contact_sheet", "images_of"]

_SIDE = 128
_GAP = 4
_PAPER, _BAD = 255, (200, 60, 60)


def images_of(samples: Iterable[Mapping[str, Any]]) -> list[NDArray[np.uint8]]:
    """Return the images among the fields of samples, uint8 [height, width, 3]: encoded ones, and arrays of pixels. A damaged one is red.

    Raises:
        MissingExtra: simplejpeg or OpenCV is not installed.
    """
    found = []
    for sample in samples:
        for value in sample.values():
            # Without a declaration, a feature of one value is a list of one.
            one = value[0] if isinstance(value, list) and len(value) == 1 else value
            pixels = _pixels(one)
            if pixels is not None:
                found.append(pixels)
    return found


def _pixels(value: Any) -> NDArray[np.uint8] | None:
    if isinstance(value, (bytes, memoryview)) and is_image(bytes(value[:16])):
        try:
            return image.decode(bytes(value))
        except DecodeError:
            return np.full((_SIDE, _SIDE, 3), _BAD, np.uint8)
    if isinstance(value, np.ndarray) and value.dtype == np.uint8 and value.size:
        if value.ndim == 2:
            return np.repeat(value[..., None], 3, 2)
        if value.ndim == 3 and value.shape[2] in (1, 3):
            return np.ascontiguousarray(np.broadcast_to(value, (*value.shape[:2], 3)))
    return None


def contact_sheet(images: list[NDArray[np.uint8]], columns: int = 8) -> bytes:
    """Return a PNG of thumbnails, each at most 128 pixels wide and high, row by row.

    Args:
        images: uint8 [height, width, 3], at least one.
        columns: how many side by side.

    Raises:
        MissingExtra: OpenCV is not installed.
    """
    cv2 = load_cv2()
    columns = min(columns, len(images))
    rows = -(-len(images) // columns)
    step = _SIDE + _GAP
    sheet = np.full((rows * step + _GAP, columns * step + _GAP, 3), _PAPER, np.uint8)
    for number, pixels in enumerate(images):
        height, width = pixels.shape[:2]
        scale = min(1.0, _SIDE / max(height, width))
        size = max(1, round(width * scale)), max(1, round(height * scale))
        small = pixels if scale == 1.0 else cv2.resize(pixels, size, interpolation=cv2.INTER_AREA)
        top = _GAP + number // columns * step + (_SIDE - size[1]) // 2
        left = _GAP + number % columns * step + (_SIDE - size[0]) // 2
        sheet[top : top + size[1], left : left + size[0]] = small
    return bytes(cv2.imencode(".png", sheet[..., ::-1])[1])
