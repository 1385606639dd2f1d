"""Another size: the whole image, or a random part of it."""

from __future__ import annotations

import math
import sys
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import field
from dataclasses import fields as fields_of
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from penstock._contracts.arguments import is_whole
from penstock._system.lazy import dataclass
from penstock.errors import PlanError
from penstock.image.fields import Fields, JointOperator, two_forms
from penstock.image.geometry import (
    INTERPOLATIONS,
    Coordinates,
    Crop,
    Geometric,
    Interpolation,
    Scale,
    Steps,
    number_range,
)
from penstock.image.operator import as_flag, as_size, load_cv2, names
from penstock.kernels.resampling import DTYPES, FILTERS

Box = tuple[int, int, int, int, tuple[int, int]]
"""Top, left, height and width of a part of an image, and the (height, width) that it is resized to."""

_TRIES = 10  # torchvision's number


@dataclass(frozen=True, slots=True, kw_only=True)
class Resampled(Geometric):
    """Resize a part of an image (height, width, channels)."""

    dtypes: ClassVar[tuple[np.dtype[Any], ...] | None] = DTYPES

    interpolation: Interpolation
    antialias: bool
    reminder: str = field(repr=False, compare=False)

    def __repr__(self) -> str:
        """Return the call, as the states of earlier releases have it: interpolation is last, and what is None or False is left out."""
        names = sorted((one.name for one in fields_of(self) if one.repr), key=("interpolation", "antialias").__contains__)
        given = {name: value for name in names if (value := getattr(self, name)) is not None and value is not False}
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in given.items())})"

    @abstractmethod
    def box(self, height: int, width: int, draws: Sequence[float]) -> Box:
        """Return the part of an image of `height` x `width` that is resized, and to what size."""

    def steps(self, height: int, width: int, draws: Sequence[float], boxes: Coordinates) -> Steps:
        """Return the window, if it is not the whole, and its change of size."""
        top, left, rows, columns, size = self.box(height, width, draws)
        scale = Scale((rows, columns), size, self.antialias)
        return (scale,) if (rows, columns) == (height, width) else (Crop(top, left, rows, columns), scale)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Resize(Resampled):
    """Resize the whole of an image. Made by `resize`.

    `size` is (height, width), or the length of the shorter side; the longer one then has at most `max_size`.
    """

    name: ClassVar[str] = "resize"

    size: int | tuple[int, int]
    max_size: int | None

    def box(self, height: int, width: int, draws: Sequence[float]) -> Box:
        """Return the part of an image of `height` x `width` that is resized, which is all of it, and to what size."""
        size = self.size
        if isinstance(size, int):
            shorter, longer = size, size * max(height, width) // min(height, width)
            if self.max_size is not None and longer > self.max_size:
                shorter, longer = max(1, self.max_size * size // longer), self.max_size
            size = (shorter, longer) if height <= width else (longer, shorter)
        return 0, 0, height, width, size


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class RandomResizedCrop(Resampled):
    """Cut a random box out of an image and resize it to `size` (height, width). Made by `random_resized_crop`."""

    name: ClassVar[str] = "random_resized_crop"
    num_draws: ClassVar[int] = 2 + 2 * _TRIES  # top, left, then area and ratio of each try

    size: tuple[int, int]
    scale: tuple[float, float]
    ratio: tuple[float, float]

    def box(self, height: int, width: int, draws: Sequence[float]) -> Box:
        """Return the part of an image of `height` x `width` that is resized, and to what size."""
        return *crop_box(height, width, draws, self.scale, self.ratio), self.size


def crop_box(
    height: int, width: int, draws: Sequence[float], scale: tuple[float, float], ratio: tuple[float, float]
) -> tuple[int, int, int, int]:
    """Return the box (top, left, height, width) that the 22 `draws` choose in an image of `height` x `width`.

    As torchvision: up to ten tries of an area share (uniform in `scale`) and a width:height ratio (log-uniform in `ratio`), then a place,
    uniform over all that fit; when no try fits, the central box with the nearest ratio. The place is drawn once: its draws are independent
    of which try fits, so the distribution is torchvision's while 22 numbers do instead of 40.
    """
    area, low, span = height * width, scale[0], scale[1] - scale[0]
    log_low, log_span = math.log(ratio[0]), math.log(ratio[1] / ratio[0])
    for at in range(2, 2 + 2 * _TRIES, 2):
        target = area * (low + span * draws[at])
        aspect = math.exp(log_low + log_span * draws[at + 1])
        box_width, box_height = round(math.sqrt(target * aspect)), round(math.sqrt(target / aspect))
        if 0 < box_width <= width and 0 < box_height <= height:
            return int(draws[0] * (height - box_height + 1)), int(draws[1] * (width - box_width + 1)), box_height, box_width
    if width < height * ratio[0]:
        box_height, box_width = min(height, max(1, round(width / ratio[0]))), width
    elif width > height * ratio[1]:
        box_height, box_width = height, min(width, max(1, round(height * ratio[1])))
    else:
        box_height, box_width = height, width
    return (height - box_height) // 2, (width - box_width) // 2, box_height, box_width


@two_forms
def resize(
    field: str | NDArray[Any],
    size: int | Sequence[int],
    *,
    max_size: int | None = None,
    interpolation: Interpolation = "linear",
    antialias: bool | None = None,
    out: str | None = None,
    fields: Fields | None = None,
) -> Resize | JointOperator:
    """Resize images (height, width, channels), uint8, uint16, int16, int32, bool, float32 or float64, of any number of channels.

    Args:
        field: the field with the image, or the image itself (the result is then returned at once).
        size: (height, width) in pixels, or one number for the shorter side, the other keeping the proportions (rounded down).
        max_size: with one number for `size`: the most that the longer side may have; the shorter is then less than `size`. The same
            number for both makes it the length of the longer side.
        interpolation: "linear" and "cubic" look at 2x2 and 4x4 pixels, and at more where they shrink; "area" averages all pixels under
            the new one, "nearest" takes one.
        antialias: True, the default, gives what Pillow's BILINEAR and BICUBIC give, to one level of uint8. False gives what OpenCV gives,
            which leaves pixels out where it shrinks, the faster the more it shrinks. "area" and "nearest" are OpenCV's either way.
        out: the field for the result; the default is `field`.
        fields: other fields to resize alike, and what they hold (docs/image.md).

    Raises:
        PlanError: a size, interpolation, antialias or fields that cannot be.
        MissingExtra: OpenCV is not installed, which antialiasing does without.
        SpecError: (on an array) not an image of such a dtype.
    """
    pair = as_size(size, "resize")
    shared = _shared(field, out, interpolation, antialias, "resize")
    wanted = pair if isinstance(size, Sequence) else pair[0]
    if max_size is not None and (isinstance(wanted, tuple) or not is_whole(max_size, wanted)):
        raise PlanError(
            f"max_size={max_size!r} cannot be with the size {size!r}",
            where="image.resize",
            fix="give one number for the shorter side, and one that is not less for the longer",
        )
    return Resize(**shared, size=wanted, max_size=max_size)


@two_forms
def random_resized_crop(
    field: str | NDArray[Any],
    size: int | Sequence[int],
    *,
    scale: tuple[float, float] = (0.08, 1.0),
    ratio: tuple[float, float] = (3 / 4, 4 / 3),
    interpolation: Interpolation = "linear",
    antialias: bool | None = None,
    out: str | None = None,
    fields: Fields | None = None,
    rng: np.random.Generator | None = None,
) -> RandomResizedCrop | JointOperator:
    """Cut a random box out of each image and resize it, as torchvision defines it; 22 draws per image.

    Args:
        field: the field with the image (height, width, channels), of a dtype as in `resize`, or the image itself.
        size: (height, width) of the result in pixels, or one number for a square.
        scale: least and greatest share of the image's area in the box.
        ratio: least and greatest width:height of the box.
        interpolation: as in `resize`.
        antialias: as in `resize`.
        out: the field for the result; the default is `field`.
        fields: other fields to cut and resize alike, and what they hold (docs/image.md).
        rng: the generator to draw from, needed when `field` is an image.

    Raises:
        PlanError: an argument that cannot be, or no `rng` for an image.
        MissingExtra: OpenCV is not installed, which antialiasing does without.
        SpecError: (on an array) not an image of such a dtype.
    """
    return RandomResizedCrop(
        **_shared(field, out, interpolation, antialias, "random_resized_crop"),
        size=as_size(size, "random_resized_crop"),
        scale=number_range(scale, "scale", "random_resized_crop", 1.0),
        ratio=number_range(ratio, "ratio", "random_resized_crop", sys.float_info.max),
    )


_REMINDER = (
    "resize and random_resized_crop antialias by default since this release: antialias=False gives the pixels of earlier ones, "
    "antialias=True says that these are meant"
)


def _shared(field: object, out: str | None, interpolation: str, antialias: bool | None, operator: str) -> dict[str, Any]:
    """Return what both operators have: the names of fields, and how pixels are interpolated."""
    if interpolation not in INTERPOLATIONS:
        raise PlanError(
            f"interpolation={interpolation!r} is not known",
            where=f"image.{operator}",
            fix=f"give one of {', '.join(sorted(INTERPOLATIONS))}",
        )
    smooth = as_flag(True if antialias is None else antialias, "antialias", operator) and interpolation in FILTERS
    if not smooth:
        load_cv2()
    reminder = _REMINDER if smooth and antialias is None else ""
    return {**names(field, out), "interpolation": interpolation, "antialias": smooth, "reminder": reminder}
