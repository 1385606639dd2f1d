"""Images made smaller before they are packed: decoded, resized, encoded as JPEG again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from penstock import image
from penstock._system.lazy import dataclass
from penstock.errors import SpecError
from penstock.image.operator import check_whole, load_simplejpeg


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
        check_whole(self.quality, "quality", "encode_jpeg", 1, 100)

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


def reencoded(dataset: Any, field: str, *, size: int | None, quality: int | None) -> Any:
    """Return a dataset whose images are decoded, resized and encoded again.

    Args:
        dataset: elements with the field.
        field: bytes of an image.
        size: pixels of the shorter side; None: those that it has.
        quality: of the JPEG; None: the pixels stay as they are.

    Raises:
        PlanError: a size or quality that cannot be.
        MissingExtra: simplejpeg or OpenCV is not installed.
    """
    decoded = dataset.map(image.decode(field))
    resized = decoded if size is None else decoded.map(image.resize(field, size, antialias=True))
    return resized if quality is None else resized.map(EncodeJpeg(field, quality), name=f"encode_jpeg({quality=})")
