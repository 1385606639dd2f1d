"""Where a picture goes: a window, another size, its mirror image, an affine map; for pixels and for coordinates alike.

Coordinates are (x, y) in pixels. (0, 0) is the upper left corner of the picture, and (0.5, 0.5) the centre of its first pixel. So a box
[x1, y1, x2, y2] covers the pixels [y1:y2, x1:x2].
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from penstock._contracts.arguments import is_whole, listed, real_number
from penstock._contracts.transform import Scratch
from penstock.errors import PlanError, SpecError
from penstock.image.operator import ImageOperator, check_image, hand_over, load_cv2
from penstock.kernels.resampling import resample

Interpolation = Literal["linear", "area", "nearest", "cubic"]

INTERPOLATIONS = {"nearest": 0, "linear": 1, "cubic": 2, "area": 3}
"""The names of cv2.INTER_*."""

_NOT_OF_OPENCV = (np.dtype(np.bool_), np.dtype(np.int32))
"""The dtypes that OpenCV does not resize."""

Coordinates = NDArray[np.float64]

Pixels = NDArray[Any]
"""A picture of shape (height, width) or (height, width, channels)."""

Size = tuple[int, int]
"""(height, width)."""


class Picture(NamedTuple):
    """What an operator decides by: the size of a picture, `num_draws` random numbers, the boxes [n, 4] in it as x1, y1, x2, y2."""

    height: int
    width: int
    draws: Sequence[float] = ()
    boxes: Coordinates = np.empty((0, 4))


def resized(value: Pixels, target: Pixels, interpolation: Interpolation, antialias: bool) -> Pixels:
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


# Each of the steps has `size`, that of its result; `pixels` gives the new picture, perhaps a view, and `points` where points [..., 2] go.


@dataclass(frozen=True, slots=True)
class Crop:
    """A part of a picture; what lies outside of the picture is filled. With `by_centre`, boxes go with their centres."""

    top: int
    left: int
    height: int
    width: int
    by_centre: bool = False

    @property
    def size(self) -> Size:
        """Return (height, width)."""
        return self.height, self.width

    def pixels(self, value: Pixels, interpolation: Interpolation, fill: float) -> Pixels:
        """Return a view of a window that lies inside, else a new array."""
        top, left = max(self.top, 0), max(self.left, 0)
        part = value[top : max(self.top + self.height, 0), left : max(self.left + self.width, 0)]
        if part.shape[:2] == self.size:
            return part
        above, before = top - self.top, left - self.left
        below, behind = above + part.shape[0], before + part.shape[1]
        target = np.empty((*self.size, *value.shape[2:]), value.dtype)
        target[above:below, before:behind] = part
        for border in (target[:above], target[below:], target[above:below, :before], target[above:below, behind:]):
            border[...] = fill
        return target

    def points(self, xy: Coordinates) -> Coordinates:
        """Return the points as seen from the corner of the window."""
        return xy - (self.left, self.top)


@dataclass(frozen=True, slots=True)
class Scale:
    """The whole of a picture of size `before` in another size."""

    before: Size
    size: Size
    antialias: bool

    def pixels(self, value: Pixels, interpolation: Interpolation, fill: float) -> Pixels:
        """Resize; "nearest" takes the pixel below the centre of the new one."""
        if self.before == self.size:
            return value
        if interpolation != "nearest":
            return resized(value, np.empty((*self.size, value.shape[2]), value.dtype), interpolation, self.antialias)
        rows, columns = ((2 * np.arange(new) + 1) * old // (2 * new) for old, new in zip(self.before, self.size, strict=True))
        return value[rows].take(columns, axis=1)

    def points(self, xy: Coordinates) -> Coordinates:
        """Stretch the points."""
        return xy * np.divide(self.size, self.before)[::-1]


@dataclass(frozen=True, slots=True)
class Mirror:
    """A picture with left and right exchanged."""

    size: Size

    def pixels(self, value: Pixels, interpolation: Interpolation, fill: float) -> Pixels:
        """Return a view."""
        return value[:, ::-1]

    def points(self, xy: Coordinates) -> Coordinates:
        """Mirror the points."""
        return xy * (-1, 1) + (self.size[1], 0)


@dataclass(frozen=True, slots=True)
class Affine:
    """A picture of the same size whose point p goes to `matrix` (2, 2) times p plus `shift` (2)."""

    size: Size
    matrix: Coordinates
    shift: Coordinates

    def pixels(self, value: Pixels, interpolation: Interpolation, fill: float) -> Pixels:
        """Look up each pixel of the result in the picture; what lies outside is `fill`."""
        height, width = self.size
        if interpolation != "nearest":
            matrix = np.column_stack([self.matrix, self.points(np.full(2, 0.5)) - 0.5])  # OpenCV's (0, 0) is the centre of a pixel
            return load_cv2().warpAffine(value, matrix, (width, height), borderValue=(fill,) * 4).reshape(value.shape)  # type: ignore[no-any-return]
        inverse = np.linalg.inv(self.matrix)
        x, y = np.arange(width) + 0.5 - self.shift[0], np.arange(height)[:, None] + 0.5 - self.shift[1]
        columns, rows = (np.floor(along * x + across * y).astype(np.int64) for along, across in inverse)
        target: Pixels = value.reshape(height * width, *value.shape[2:]).take(rows * width + columns, axis=0, mode="clip")
        target[(rows < 0) | (rows >= height) | (columns < 0) | (columns >= width)] = fill
        return target

    def points(self, xy: Coordinates) -> Coordinates:
        """Map the points."""
        return xy @ self.matrix.T + self.shift


Steps = tuple[Crop | Scale | Mirror | Affine, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Geometric(ImageOperator):
    """An image operator that moves pixels, and can move the other fields of an element alike."""

    joins: ClassVar[bool] = True

    dtypes: ClassVar[tuple[np.dtype[Any], ...] | None] = None

    @abstractmethod
    def steps(self, picture: Picture) -> Steps:
        """Return what is done to a picture.

        Raises:
            SpecError: it cannot be done to a picture of this size.
        """

    def apply(self, value: Any, draws: Sequence[float], scratch: Scratch | None, out: NDArray[Any] | None) -> NDArray[Any]:
        """Do the steps on one image.

        Raises:
            SpecError: `value` is not an image of a dtype that this operator takes, or too large or small for it.
        """
        check_image(self, value, self.dtypes)
        return hand_over(self.moved(value, self.steps(Picture(value.shape[0], value.shape[1], draws))), scratch, out, value)

    def moved(self, value: Pixels, steps: Steps) -> Pixels:
        """Do `steps` with the interpolation and the fill of this operator.

        Raises:
            SpecError: the dtype cannot hold the fill.
        """
        fill = getattr(self, "fill", 0)
        try:
            for step in steps:
                value = step.pixels(value, getattr(self, "interpolation", "linear"), fill)
        except OverflowError as error:
            raise SpecError(
                f"field {self.field!r} is {value.dtype}{list(value.shape)}, which cannot hold fill={fill}",
                where=self.place_name(),
                fix="convert it before this operator, or give another fill",
            ) from error
        return value


def check_whole(number: Any, argument: str, operator: str, least: int, highest: int | None = None) -> None:
    """Refuse what is no whole number from `least` to `highest`.

    Raises:
        PlanError: it is not.
    """
    if not is_whole(number, least) or (highest is not None and number > highest):
        raise PlanError(
            f"{argument}={number!r} is out of range",
            where=f"image.{operator}",
            fix=f"give a whole number of at least {least}" + ("" if highest is None else f" and at most {highest}"),
        )


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
