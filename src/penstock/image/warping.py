"""Borders, turned and slanted pictures, and the crops of SSD."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from penstock._system.lazy import dataclass
from penstock.errors import PlanError
from penstock.image.fields import Fields, JointOperator, area_of, on_fields
from penstock.image.geometry import Affine, Coordinates, Crop, Geometric, Steps, number_range
from penstock.image.operator import as_size, check_whole, load_cv2, names, number_within
from penstock.kernels.library import FLOAT32_DTYPE, UINT8_DTYPE

_LEAST_IOUS = (0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0)
_TRIES = 40  # torchvision's number


@dataclass(frozen=True, slots=True, kw_only=True)
class PadTo(Geometric):
    """Add borders to an image of any dtype, up to `size` and to a multiple of `multiple_of`. Made by `pad_to`."""

    name: ClassVar[str] = "pad_to"

    size: tuple[int, int]
    multiple_of: tuple[int, int]
    fill: int

    def steps(self, height: int, width: int, draws: Sequence[float], boxes: Coordinates) -> Steps:
        """Return the window, which lies around the picture."""
        (least_rows, least_columns), (down, across) = self.size, self.multiple_of
        rows, columns = -(-max(height, least_rows) // down) * down, -(-max(width, least_columns) // across) * across
        return (Crop(-((rows - height) // 2), -((columns - width) // 2), rows, columns),)


@dataclass(frozen=True, slots=True, kw_only=True)
class RandomAffine(Geometric):
    """Turn, scale and slant an image about its centre. Made by `random_affine`."""

    name: ClassVar[str] = "random_affine"
    num_draws: ClassVar[int] = 3  # angle, scale, shear
    dtypes: ClassVar[tuple[np.dtype[Any], ...] | None] = (UINT8_DTYPE, FLOAT32_DTYPE)

    degrees: float
    scale: tuple[float, float]
    shear: float
    fill: int

    def steps(self, height: int, width: int, draws: Sequence[float], boxes: Coordinates) -> Steps:
        """Return the map that leaves the centre where it is."""
        turn, grow, slant = draws
        angle, shear = math.radians(self.degrees * (2 * turn - 1)), math.tan(math.radians(self.shear * (2 * slant - 1)))
        factor, x, y = self.scale[0] + (self.scale[1] - self.scale[0]) * grow, width / 2, height / 2
        cos, sin = math.cos(angle), math.sin(angle)
        rows = (cos * factor, (cos * shear - sin) * factor), (sin * factor, (sin * shear + cos) * factor)
        (a, b), (d, e) = rows
        return (Affine((height, width), ((a, b, x - (a * x + b * y)), (d, e, y - (d * x + e * y)))),)


@dataclass(frozen=True, slots=True, kw_only=True)
class RandomIouCrop(Geometric):
    """Cut a random box that overlaps with some object as far as drawn, as SSD. Made by `random_iou_crop`."""

    name: ClassVar[str] = "random_iou_crop"
    num_draws: ClassVar[int] = 1 + 4 * _TRIES  # the least overlap, then width, height, left and top of each try
    by_boxes: ClassVar[bool] = True

    def steps(self, height: int, width: int, draws: Sequence[float], boxes: Coordinates) -> Steps:
        """Return the window of the first try that fits, or nothing."""
        least, numbers = _LEAST_IOUS[int(draws[0] * len(_LEAST_IOUS))], np.reshape(draws[1:], (_TRIES, 4))
        sizes = ((0.3 + 0.7 * numbers[:, :2]) * (width, height)).astype(np.int64).clip(1)
        starts = (numbers[:, 2:] * ((width, height) - sizes + 1)).astype(np.int64)
        crops = np.concatenate([starts, starts + sizes], axis=1)[:, None]
        centres = (boxes[:, :2] + boxes[:, 2:]) / 2
        held = ((centres >= crops[..., :2]) & (centres <= crops[..., 2:])).all(2)
        shared = (np.minimum(crops, boxes)[..., 2:] - np.maximum(crops, boxes)[..., :2]).clip(0).prod(2)
        held &= shared / (area_of(crops) + area_of(boxes) - shared) >= least
        fits = held.any(1) & (sizes.max(1) <= 2 * sizes.min(1))
        if least == 1 or not fits.any():
            return ()
        left, top, right, bottom = crops[fits.argmax(), 0].tolist()
        return (Crop(top, left, bottom - top, right - left, by_centre=True),)


def pad_to(
    field: str, size: int | Sequence[int] = 1, *, multiple_of: int | Sequence[int] = 1, fill: int = 0, fields: Fields | None = None
) -> JointOperator:
    """Add a border around images (height, width, channels) of any dtype that are smaller; the image is in the middle.

    Args:
        field: the field with the image.
        size: (height, width) in pixels, or one number for a square; an image that is larger stays as it is.
        multiple_of: what height and width of the result are multiples of; one number for both.
        fill: the value of the border, 0..255.
        fields: other fields to pad alike, and what they hold (docs/image.md).

    Raises:
        PlanError: an argument that cannot be.
    """
    check_whole(fill, "fill", "pad_to", 0, 255)
    operator = PadTo(**names(field, None), size=as_size(size, "pad_to"), multiple_of=as_size(multiple_of, "pad_to"), fill=fill)
    return on_fields(operator, field, fields or {})


def random_affine(
    field: str,
    *,
    degrees: float = 0.0,
    scale: tuple[float, float] = (1.0, 1.0),
    shear: float = 0.0,
    fill: int = 0,
    fields: Fields | None = None,
) -> JointOperator:
    """Turn, scale and slant images (height, width, channels), uint8 or float32, about their centre at random; 3 draws per image.

    The size stays, and pixels are interpolated linearly. A box becomes the smallest upright box around its turned corners.

    Args:
        field: the field with the image.
        degrees: the largest angle, in both directions, 0..180.
        scale: least and greatest factor.
        shear: the largest angle by which upright lines are slanted, in degrees in both directions, 0..89.
        fill: the value of what comes from outside of the image, 0..255.
        fields: other fields to change alike, and what they hold (docs/image.md).

    Raises:
        PlanError: an argument that cannot be.
        MissingExtra: OpenCV is not installed.
    """
    check_whole(fill, "fill", "random_affine", 0, 255)
    turn, slant = number_within(degrees, "degrees", "random_affine", 180), number_within(shear, "shear", "random_affine", 89)
    load_cv2()
    scales = number_range(scale, "scale", "random_affine", sys.float_info.max)
    operator = RandomAffine(**names(field, None), degrees=turn, scale=scales, shear=slant, fill=fill)
    return on_fields(operator, field, fields or {})


def random_iou_crop(field: str, *, fields: Fields) -> JointOperator:
    """Cut a random box out of images (height, width, channels) of any dtype, as SSD and torchvision; 161 draws per image.

    One of 0, 0.1, 0.3, 0.5, 0.7, 0.9 and 1 is drawn. The crop is the first of 40 random ones that holds the centre of a box whose
    intersection over union with the crop is at least that number. It has 0.3 to 1 of the width and of the height, and its width:height is
    0.5 to 2. Boxes with their centres outside are dropped. Where 1 is drawn, no crop fits or there is no box, the whole picture stays.

    Args:
        field: the field with the image.
        fields: the other fields and what they hold, with boxes among them (docs/image.md).

    Raises:
        PlanError: no boxes among the fields.
    """
    joint = on_fields(RandomIouCrop(**names(field, None)), field, fields)
    if not joint.boxes:
        raise PlanError(
            f"random_iou_crop({field!r}) has no boxes to go by",
            where="image.random_iou_crop",
            fix='name the field with the boxes: fields={"boxes": "boxes"}',
        )
    return joint
