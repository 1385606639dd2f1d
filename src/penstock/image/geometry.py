"""Where a picture goes: a window, another size, its mirror image, an affine map; for pixels and for coordinates alike.

Coordinates are (x, y) in pixels. (0, 0) is the upper left corner of the picture, and (0.5, 0.5) the centre of its first pixel. So a box
[x1, y1, x2, y2] covers the pixels [y1:y2, x1:x2].
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from penstock import kernels
from penstock._contracts.arguments import listed, real_number
from penstock._contracts.transform import Scratch
from penstock._system.lazy import dataclass
from penstock.errors import PlanError, SpecError
from penstock.image.operator import ImageOperator, check_image, load_cv2, place
from penstock.kernels.resampling import resample

Interpolation = Literal["linear", "area", "nearest", "cubic"]

INTERPOLATIONS = {"nearest": 0, "linear": 1, "cubic": 2, "area": 3}
"""The names of cv2.INTER_*."""

CENTRE = "centre"
"""The interpolation of masks, and of images with them: the pixel below the centre of the new one. "nearest" is OpenCV's."""

_STRIP = 8192
"""Pixels whose float64 coordinates stay in the cache: larger arrays take three times as long, most of it for memory from the system."""

_NOT_OF_OPENCV = (np.dtype(np.bool_), np.dtype(np.int32))
"""The dtypes that OpenCV does not resize."""

Coordinates = NDArray[np.float64]

Pixels = NDArray[Any]
"""A picture of shape (height, width) or (height, width, channels)."""

Size = tuple[int, int]
"""(height, width)."""

NO_BOXES: Coordinates = np.empty((0, 4))


def resized(value: Pixels, target: Pixels, interpolation: str, antialias: bool) -> Pixels:
    """Write an image [height, width, channels] to `target` in the size of that, by Pillow's filters or by OpenCV; return `target`."""
    if antialias:
        return resample(value, target, interpolation)
    size, num_channels = target.shape[:2], target.shape[2]
    if value.dtype in _NOT_OF_OPENCV:
        made = resized(value.astype(np.float64), np.empty(target.shape), interpolation, False)
        limits = (0, 1) if value.dtype.kind == "b" else (-(2**31), 2**31 - 1)
        np.copyto(target, np.rint(made).clip(*limits), casting="unsafe")
    elif interpolation == "area" and num_channels > 4:  # of which OpenCV averages 4 at most
        for first in range(0, num_channels, 4):
            part = np.s_[..., first : first + 4]
            target[part] = resized(value[part], target[part].copy(), interpolation, False)
    else:
        made = load_cv2().resize(value, size[::-1], dst=target, interpolation=INTERPOLATIONS[interpolation])
        if made is not target:  # OpenCV may refuse a dst without telling
            np.copyto(target, made.reshape(target.shape))
    return target


# Each of the steps has `size`, that of its result. `view` gives the new picture where it is a part of the old one, else None, and `write`
# writes it to an array of its size; `points` says where points [..., 2] go.


class Crop(NamedTuple):
    """A part of a picture; what lies outside of the picture is filled. With `by_centre`, boxes go with their centres."""

    top: int
    left: int
    height: int
    width: int
    by_centre: bool = False

    @property
    def size(self) -> Size:
        """Return (height, width)."""
        return self[2:4]

    def view(self, value: Pixels) -> Pixels | None:
        """Return a window that lies inside."""
        top, left, height, width, _ = self
        if (height, width) == value.shape[:2]:
            return None if top or left else value
        inside = top >= 0 and left >= 0 and top + height <= value.shape[0] and left + width <= value.shape[1]
        return value[top : top + height, left : left + width] if inside else None

    def write(self, value: Pixels, target: Pixels, interpolation: str, fill: float) -> None:
        """Copy the window, and fill what lies outside."""
        kernels.crop_image(value, self.top, self.left, False, fill, target)

    def points(self, xy: Coordinates) -> Coordinates:
        """Return the points as seen from the corner of the window."""
        return xy - (self.left, self.top)


class Scale(NamedTuple):
    """The whole of a picture of size `before` in another size."""

    before: Size
    size: Size
    antialias: bool

    def view(self, value: Pixels) -> Pixels | None:
        """Return a picture that has the size."""
        return value if self.before == self.size else None

    def write(self, value: Pixels, target: Pixels, interpolation: str, fill: float) -> None:
        """Resize."""
        if self.before == self.size:
            np.copyto(target, value)
        elif interpolation != CENTRE:
            resized(value, target, interpolation, self.antialias)
        else:
            rows, columns = ((2 * np.arange(new) + 1) * old // (2 * new) for old, new in zip(self.before, self.size, strict=True))
            value[rows].take(columns, axis=1, out=target, mode="clip")

    def points(self, xy: Coordinates) -> Coordinates:
        """Stretch the points."""
        return xy * np.divide(self.size, self.before)[::-1]


class Mirror(NamedTuple):
    """A picture with left and right exchanged."""

    size: Size

    def view(self, value: Pixels) -> Pixels:
        """Return the picture read backwards."""
        return value[:, ::-1]

    def write(self, value: Pixels, target: Pixels, interpolation: str, fill: float) -> None:
        """Copy the pixels of each row from the last to the first."""
        kernels.crop_image(value, 0, 0, True, 0, target)

    def points(self, xy: Coordinates) -> Coordinates:
        """Mirror the points."""
        return xy * (-1, 1) + (self.size[1], 0)


class Affine(NamedTuple):
    """A picture of the same size whose point (x, y) goes to (a x + b y + c, d x + e y + f), of the rows (a, b, c) and (d, e, f)."""

    size: Size
    rows: tuple[tuple[float, float, float], tuple[float, float, float]]

    def view(self, value: Pixels) -> None:
        """Return None."""

    def write(self, value: Pixels, target: Pixels, interpolation: str, fill: float) -> None:
        """Look up each pixel of the result in the picture; what lies outside is `fill`."""
        height, width = self.size
        if interpolation != CENTRE:
            matrix = np.array([(a, b, c + (a + b - 1) / 2) for a, b, c in self.rows])  # OpenCV's (0, 0) is the centre of a pixel
            made = load_cv2().warpAffine(value, matrix, (width, height), dst=target, borderValue=(fill,) * 4)
            if made is not target:
                np.copyto(target, made.reshape(target.shape))
            return
        rows, num, pixels = np.array(self.rows), max(1, _STRIP // width), value.reshape(height * width, *value.shape[2:])
        (across, down), (slant, steep) = np.linalg.inv(rows[:, :2])
        x, y = np.arange(width) + 0.5 - rows[0, 2], np.arange(height)[:, None] + 0.5 - rows[1, 2]
        for top in range(0, height, num):
            columns = np.floor(across * x + down * y[top : top + num]).astype(np.int64)
            lines = np.floor(slant * x + steep * y[top : top + num]).astype(np.int64)
            part = target[top : top + num]
            pixels.take(lines * width + columns, axis=0, out=part, mode="clip")
            part[(lines.view(np.uint64) >= height) | (columns.view(np.uint64) >= width)] = fill  # a negative one is huge

    def points(self, xy: Coordinates) -> Coordinates:
        """Map the points."""
        rows = np.array(self.rows)
        return xy @ rows[:, :2].T + rows[:, 2]  # type: ignore[no-any-return]


Steps = tuple[Crop | Scale | Mirror | Affine, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Geometric(ImageOperator):
    """An image operator that moves pixels, and can move the other fields of an element alike."""

    joins: ClassVar[bool] = True

    dtypes: ClassVar[tuple[np.dtype[Any], ...] | None] = None

    by_boxes: ClassVar[bool] = False
    """Whether its steps depend on the boxes in the picture."""

    @abstractmethod
    def steps(self, height: int, width: int, draws: Sequence[float], boxes: Coordinates) -> Steps:
        """Return what is done to a picture of this size, by `num_draws` random numbers and the boxes [n, 4] in it as x1, y1, x2, y2.

        Raises:
            SpecError: it cannot be done to a picture of this size.
        """

    def apply(self, value: Any, draws: Sequence[float], scratch: Scratch | None, out: NDArray[Any] | None) -> NDArray[Any]:
        """Do the steps on one image; what needs no new pixels is a view where the caller lends scratch.

        Raises:
            SpecError: `value` is not an image of a dtype that this operator takes, or too large or small for it.
        """
        check_image(self, value, self.dtypes)
        return self.moved(value, self.steps(value.shape[0], value.shape[1], draws, NO_BOXES), scratch, out)

    def moved(
        self,
        value: Pixels,
        steps: Steps,
        scratch: Scratch | None,
        out: NDArray[Any] | None,
        interpolation: str | None = None,
        fill: float | None = None,
    ) -> Pixels:
        """Do `steps`, all but the last of which give a view, with the interpolation and the fill of this operator or the given ones.

        Raises:
            SpecError: the dtype cannot hold the fill.
        """
        for step in steps[:-1]:
            seen = step.view(value)
            assert seen is not None
            value = seen
        last = steps[-1] if steps else Crop(0, 0, *value.shape[:2])
        if scratch is not None and out is None and (seen := last.view(value)) is not None:
            return seen
        shape = (*last.size, *value.shape[2:])
        target = (
            np.empty(shape, value.dtype) if scratch is None and out is None else place(self.tag, shape, value.dtype, value, scratch, out)
        )
        fill = getattr(self, "fill", 0) if fill is None else fill
        try:
            last.write(value, target, getattr(self, "interpolation", "linear") if interpolation is None else interpolation, fill)
        except OverflowError as error:
            raise SpecError(
                f"field {self.field!r} is {value.dtype}{list(value.shape)}, which cannot hold fill={fill}",
                where=self.place_name(),
                fix="convert it before this operator, or give another fill",
            ) from error
        return target


def number_range(pair: Any, argument: str, operator: str, highest: float) -> tuple[float, float]:
    """Return `pair` as (least, greatest), both above 0.

    Raises:
        PlanError: it is no such range, or goes beyond `highest`.
    """
    numbers = [real_number(value) for value in listed(pair) or ()]
    if len(numbers) == 2 and numbers[0] is not None and numbers[1] is not None and 0 < numbers[0] <= numbers[1] <= highest:
        return numbers[0], numbers[1]
    raise PlanError(
        f"{argument}={pair!r} is not a range",
        where=f"image.{operator}",
        fix="give (least, greatest), both above 0" + (" and at most 1" if highest == 1.0 else ""),
    )
