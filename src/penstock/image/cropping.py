"""A part of an image at its own scale: the centre, or a random window."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from penstock import kernels
from penstock._contracts.transform import Scratch
from penstock._system.lazy import dataclass
from penstock.errors import SpecError
from penstock.image.fields import Fields, JointOperator, two_forms
from penstock.image.geometry import Coordinates, Crop, Geometric, Steps
from penstock.image.operator import as_size, check_whole, is_block, names, place
from penstock.kernels.library import UINT8_DTYPE, Array


@dataclass(frozen=True, slots=True, kw_only=True)
class CenterCrop(Geometric):
    """Cut the central `size` (height, width) out of an image of any dtype. Made by `center_crop`."""

    name: ClassVar[str] = "center_crop"

    size: tuple[int, int]

    def steps(self, height: int, width: int, draws: Sequence[float], boxes: Coordinates) -> Steps:
        """Return the window.

        Raises:
            SpecError: the image is smaller than the crop.
        """
        _check_room(self, height, width)
        return (Crop(round((height - self.size[0]) / 2), round((width - self.size[1]) / 2), *self.size),)


@dataclass(frozen=True, slots=True, kw_only=True)
class RandomCrop(Geometric):
    """Cut a random window of `size` (height, width) out of an image with a border of `padding` pixels of `fill`. Made by `random_crop`."""

    name: ClassVar[str] = "random_crop"
    num_draws: ClassVar[int] = 2  # top, left

    size: tuple[int, int]
    padding: int
    fill: int

    def steps(self, height: int, width: int, draws: Sequence[float], boxes: Coordinates) -> Steps:
        """Return the window.

        Raises:
            SpecError: the image with its border is smaller than the window.
        """
        rows, columns = height + 2 * self.padding, width + 2 * self.padding
        _check_room(self, rows, columns)
        top, left = int(draws[0] * (rows - self.size[0] + 1)), int(draws[1] * (columns - self.size[1] + 1))
        return (Crop(top - self.padding, left - self.padding, *self.size),)

    def apply_block(self, values: Array, draws: NDArray[np.float64], scratch: Scratch | None, out: Array | None) -> Array | None:
        """Cut one window out of each of `values` (n, height, width, channels), uint8 and contiguous; None for others.

        Raises:
            SpecError: the images with their border are smaller than the window.
        """
        if not is_block(values):
            return None
        num_images, rows, columns, num_channels = values.shape
        height, width = self.size
        _check_room(self, rows + 2 * self.padding, columns + 2 * self.padding)
        tops = (draws[:, 0] * (rows + 2 * self.padding - height + 1)).astype(np.int64) - self.padding
        lefts = (draws[:, 1] * (columns + 2 * self.padding - width + 1)).astype(np.int64) - self.padding
        target = place(self.tag + " block", (num_images, height, width, num_channels), UINT8_DTYPE, values, scratch, out)
        kernels.crop_images(values, tops, lefts, np.zeros(num_images, np.uint8), self.fill, target)
        return target


def _check_room(operator: CenterCrop | RandomCrop, height: int, width: int) -> None:
    size = operator.size
    if height < size[0] or width < size[1]:
        padding = getattr(operator, "padding", 0)
        border = f" (with {padding} pixels of padding on each side)" if padding else ""
        raise SpecError(
            f"field {operator.field!r} is an image of height {height}, width {width}{border}, smaller than the crop {size[0]} x {size[1]}",
            where=operator.place_name(),
            fix="put ps.image.resize before this operator, or make the crop smaller",
        )


@two_forms
def center_crop(
    field: str | NDArray[Any], size: int | Sequence[int], *, out: str | None = None, fields: Fields | None = None
) -> CenterCrop | JointOperator:
    """Cut the centre out of images (height, width, channels) of any dtype; where it lies half a pixel off, as torchvision rounds.

    Args:
        field: the field with the image, or the image itself.
        size: (height, width) in pixels, or one number for a square; never more than the image has.
        out: the field for the result; the default is `field`.
        fields: other fields to cut alike, and what they hold (docs/image.md).

    Raises:
        PlanError: a size or fields that cannot be.
        SpecError: (on an array) not an image, or smaller than `size`.
    """
    return CenterCrop(**names(field, out), size=as_size(size, "center_crop"))


@two_forms
def random_crop(
    field: str | NDArray[Any],
    size: int | Sequence[int],
    *,
    padding: int = 0,
    fill: int = 0,
    out: str | None = None,
    fields: Fields | None = None,
    rng: np.random.Generator | None = None,
) -> RandomCrop | JointOperator:
    """Cut a random window out of images (height, width, channels) of any dtype, uniform over all places; 2 draws per image.

    Args:
        field: the field with the image, or the image itself.
        size: (height, width) in pixels, or one number for a square.
        padding: pixels of border that are added on every side first.
        fill: the value of the border, 0..255.
        out: the field for the result; the default is `field`.
        fields: other fields to cut alike, and what they hold (docs/image.md).
        rng: the generator to draw from, needed when `field` is an image.

    Raises:
        PlanError: an argument that cannot be, or no `rng` for an image.
        SpecError: (on an array) not an image, or too small.
    """
    check_whole(padding, "padding", "random_crop", 0)
    check_whole(fill, "fill", "random_crop", 0, 255)
    return RandomCrop(**names(field, out), size=as_size(size, "random_crop"), padding=padding, fill=fill)
