"""Values of records as text for a terminal: short, and nothing in it that a terminal would act on."""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.errors import DecodeError
from penstock.image.header import read_header
from penstock.packing.columns import extension_of

__all__ = ["image_words", "is_image", "shown", "spec_words"]

_MOST_BYTES = 24
_MOST_CHARS = 60
_MOST_NUMBERS = 6
_IMAGES = ("jpg", "png", "webp")


def shown(value: Any) -> str:
    """Return a value in one line of printable characters: what is not printable is escaped, what is long is cut and its size said."""
    if isinstance(value, (bytes, bytearray, memoryview)):
        return _bytes(bytes(value))
    if isinstance(value, str):
        text = repr(value[:_MOST_CHARS])
        return text if len(value) <= _MOST_CHARS else f"{text}... ({len(value):,} characters)"
    if isinstance(value, np.ndarray) and value.ndim:
        return _array(value)
    if isinstance(value, (list, tuple)):
        parts = [shown(part) for part in value[:3]]
        return f"[{', '.join(parts)}{f', ... ({len(value):,})' if len(value) > 3 else ''}]"
    text = repr(value.item() if isinstance(value, np.generic) else value)
    return text if len(text) <= 2 * _MOST_CHARS else text[: 2 * _MOST_CHARS] + "..."


def _bytes(data: bytes) -> str:
    if is_image(data):
        return image_words(data)
    text = repr(data[:_MOST_BYTES])
    return text if len(data) <= _MOST_BYTES else f"{text}... ({len(data):,} bytes)"


def _array(array: Any) -> str:
    numbers = ", ".join(repr(number.item() if hasattr(number, "item") else number) for number in array.reshape(-1)[:_MOST_NUMBERS])
    return f"{array.dtype.name}{list(array.shape)} {numbers}{', ...' if array.size > _MOST_NUMBERS else ''}"


def spec_words(value: Any) -> str:
    """Say the kind of a value, its size left open."""
    if isinstance(value, (bytes, bytearray, memoryview)):
        return "bytes"
    if isinstance(value, (list, tuple)):
        return f"{spec_words(value[0]) if value else 'nothing'} [{len(value)}]"
    if isinstance(value, (np.ndarray, np.generic)):
        return f"{value.dtype.name}{list(value.shape) if value.shape else ''}"
    return type(value).__name__


def is_image(data: bytes) -> bool:
    """Tell whether bytes begin as an image does that can be decoded."""
    return extension_of(data) in _IMAGES


def image_words(data: bytes) -> str:
    """Say of an encoded image what its header says."""
    try:
        header = read_header(data, "inspect")
    except DecodeError as error:
        return f"a damaged image ({len(data):,} bytes): {error.what}"
    return f"{header.kind} {header.width}x{header.height} ({len(data):,} bytes)"
