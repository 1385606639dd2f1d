"""Images made smaller before they are packed: decoded, resized, encoded as JPEG again."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from penstock import image
from penstock._contracts.transform import Scratch
from penstock.errors import PlanError, SpecError
from penstock.image.operator import load_simplejpeg


@dataclass(frozen=True, slots=True)
class EncodeJpeg:
    """Encode the pixels of a field, uint8 [height, width, 3], as JPEG with 4:2:0 colours. For `Dataset.map`; from any thread.

    Args:
        field: the field; the bytes take the place of the pixels.
        quality: 1 to 100.

    Raises:
        PlanError: the quality is no such number.
    """

    field: str
    quality: int = 90

    def __post_init__(self) -> None:
        if not isinstance(self.quality, int) or isinstance(self.quality, bool) or not 1 <= self.quality <= 100:
            raise PlanError(f"quality={self.quality!r} is not a JPEG quality", where="encode_jpeg", fix="give a whole number from 1 to 100")

    def __call__(self, element: Mapping[str, Any]) -> dict[str, Any]:
        """Return the element with the bytes.

        Raises:
            SpecError: the field is no such array.
            MissingExtra: simplejpeg is not installed.
        """
        pixels = element[self.field]
        if not isinstance(pixels, np.ndarray) or pixels.dtype != np.uint8 or pixels.ndim != 3 or pixels.shape[2] != 3:
            raise SpecError(
                f"field {self.field!r} is a {type(pixels).__name__}, expected uint8[height, width, 3]",
                where="encode_jpeg",
                fix="decode the image before, with mode RGB",
            )
        data = load_simplejpeg().encode_jpeg(np.ascontiguousarray(pixels), quality=self.quality, colorspace="RGB", colorsubsampling="420")
        return {**element, self.field: data}


class Reencode:
    """Decode, resize and encode in one step, through working memory that each thread keeps: no fresh pages for each image.

    For `Dataset.map`; from any thread; picklable.
    """

    def __init__(self, field: str, size: int | None, quality: int) -> None:
        """Prepare; see `reencoded`."""
        self._decode = image.decode(field)
        self._resize = None if size is None else image.resize(field, size)
        self._encode = EncodeJpeg(field, quality)
        self._own = threading.local()

    def __reduce__(self) -> tuple[Any, ...]:
        return Reencode, (self._encode.field, None if self._resize is None else self._resize.size, self._encode.quality)

    def __repr__(self) -> str:
        return f"Reencode({self._decode!r}, {self._resize!r}, {self._encode!r})"

    def __call__(self, element: Mapping[str, Any]) -> dict[str, Any]:
        """Return the element with the bytes of the new image.

        Raises:
            SpecError: it has no such field.
            DecodeError: the field is no image that can be read in full.
        """
        field = self._encode.field
        if not isinstance(element, Mapping) or field not in element:
            raise SpecError(f"the element has no field {field!r}", where="reencode", fix="name the field that has the encoded images")
        scratch = Scratch.of(self._own)
        pixels = self._decode.apply(element[field], (), scratch, None)
        if self._resize is not None:
            pixels = self._resize.apply(pixels, (), scratch, None)
        return self._encode({**element, field: pixels})


def reencoded(dataset: Any, field: str, *, size: int | None, quality: int) -> Any:
    """Return a dataset whose images are decoded, resized so that the shorter side has `size` pixels (None: not at all), and encoded again.

    Raises:
        PlanError: a size or quality that cannot be.
        MissingExtra: simplejpeg or OpenCV is not installed.
    """
    size_words = "" if size is None else f"size={size}, "
    return dataset.map(Reencode(field, size, quality), name=f"reencode({size_words}quality={quality})")
