"""Pixels to the numbers and the layout that a model takes."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, overload

import numpy as np
from numpy.typing import NDArray

from penstock import kernels
from penstock._contracts.transform import Scratch
from penstock.errors import PlanError, SpecError
from penstock.image.operator import ImageOperator, as_called, check_image, hand_over, is_block, names, place
from penstock.kernels.library import FLOAT32_DTYPE, UINT8_DTYPE, Array

Layout = Literal["CHW", "HWC"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Normalize(ImageOperator):
    """Turn uint8 pixels into float32 `value * scale + bias`, laid out as `layout`. Made by `normalize`.

    With mean and std on the 0..1 scale, scale = 1 / (255 std) and bias = -mean / std, each rounded to float32 once; product and sum are
    float32.
    """

    name: ClassVar[str] = "normalize"

    mean: tuple[float, ...]
    std: tuple[float, ...]
    layout: Layout
    scale: NDArray[np.float32] = dataclasses.field(init=False, repr=False, compare=False)
    bias: NDArray[np.float32] = dataclasses.field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        ImageOperator.__post_init__(self)
        mean, std = np.array(self.mean), np.array(self.std)
        object.__setattr__(self, "scale", (1 / (255 * std)).astype(np.float32))
        object.__setattr__(self, "bias", (-mean / std).astype(np.float32))

    def apply(self, value: Any, draws: Sequence[float], scratch: Scratch | None, out: Array | None) -> Array:
        """Normalise one image, straight into `out` when it fits.

        Raises:
            SpecError: `value` is not a uint8 image with as many channels as there are means.
        """
        check_image(self, value, (UINT8_DTYPE,))
        height, width, num_channels = value.shape
        self._check_channels(num_channels)
        first = self.layout == "CHW"
        target = place(self.tag, (num_channels, height, width) if first else value.shape, FLOAT32_DTYPE, value, scratch, out)
        kernels.normalize(value[None], self.scale, self.bias, target[None], first)
        return target

    def apply_block(self, values: Array, draws: NDArray[np.float64], scratch: Scratch | None, out: Array | None) -> Array | None:
        """Normalise `values` (n, height, width, channels), uint8; None for others.

        Raises:
            SpecError: the number of channels is not that of the means.
        """
        if not is_block(values):
            return None
        num_images, height, width, num_channels = values.shape
        self._check_channels(num_channels)
        first = self.layout == "CHW"
        shape = (num_images, num_channels, height, width) if first else values.shape
        target = place(self.tag + " block", shape, FLOAT32_DTYPE, values, scratch, out)
        kernels.normalize(values, self.scale, self.bias, target, first)
        return target

    def _check_channels(self, num_channels: int) -> None:
        if num_channels != len(self.mean):
            raise SpecError(
                f"field {self.field!r} has {num_channels} channels, but mean and std have {len(self.mean)} numbers",
                where=self.place_name(),
                fix="give one mean and one std per channel",
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class ToLayout(ImageOperator):
    """Bring an image (height, width, channels) of any dtype into `layout`, C-contiguous. Made by `to_layout`."""

    name: ClassVar[str] = "to_layout"

    layout: Layout

    def apply(self, value: Any, draws: Sequence[float], scratch: Scratch | None, out: Array | None) -> Array:
        """Lay out one image.

        Raises:
            SpecError: `value` is not an image.
        """
        check_image(self, value)
        if self.layout == "HWC":
            return hand_over(value, scratch, out)
        view = value.transpose(2, 0, 1)
        target = place(self.tag, view.shape, value.dtype, value, scratch, out)
        np.copyto(target, view)
        return target


@overload
def normalize(
    field: str, mean: float | Sequence[float], std: float | Sequence[float], *, layout: Layout = "CHW", out: str | None = None
) -> Normalize: ...


@overload
def normalize(
    field: NDArray[np.uint8], mean: float | Sequence[float], std: float | Sequence[float], *, layout: Layout = "CHW"
) -> NDArray[np.float32]: ...


def normalize(
    field: str | NDArray[np.uint8],
    mean: float | Sequence[float],
    std: float | Sequence[float],
    *,
    layout: Layout = "CHW",
    out: str | None = None,
) -> Normalize | NDArray[np.float32]:
    """Turn uint8 images (height, width, channels) into float32 (value / 255 - mean) / std per channel.

    Args:
        field: the field with the image, or the image itself.
        mean: one number per channel on the 0..1 scale.
        std: as `mean`, above 0.
        layout: "CHW" for (channels, height, width), "HWC" to leave the axes as they are.
        out: the field for the result; the default is `field`.

    Raises:
        PlanError: numbers or a layout that cannot be.
        SpecError: (on an array) not a uint8 image, or another number of channels.
    """
    means, stds = _per_channel(mean, "mean"), _per_channel(std, "std")
    if len(means) != len(stds) or min(stds) <= 0:
        raise PlanError(
            f"mean={mean!r} with std={std!r}: one positive std is needed for each mean",
            where="image.normalize",
            fix="give as many std as mean, on the 0..1 scale, such as mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225)",
        )
    if max(means) > 1:
        scaled = [tuple(round(number / 255, 4) for number in numbers) if max(numbers) > 1 else numbers for numbers in (means, stds)]
        raise PlanError(
            f"mean={mean!r} is above 1, the largest value of an image on the 0..1 scale",
            where="image.normalize",
            fix=f"divide numbers on the 0..255 scale by 255: mean={scaled[0]!r}, std={scaled[1]!r}",
        )
    operator = Normalize(**names(field, out), mean=means, std=stds, layout=_checked(layout, "normalize"))
    return as_called(operator, field)


@overload
def to_layout(field: str, layout: Layout = "CHW", *, out: str | None = None) -> ToLayout: ...


@overload
def to_layout(field: NDArray[Any], layout: Layout = "CHW") -> NDArray[Any]: ...


def to_layout(field: str | NDArray[Any], layout: Layout = "CHW", *, out: str | None = None) -> ToLayout | NDArray[Any]:
    """Bring images (height, width, channels) of any dtype into `layout`, values unchanged.

    Args:
        field: the field with the image, or the image itself.
        layout: "CHW" for (channels, height, width); "HWC" changes nothing.
        out: the field for the result; the default is `field`.

    Raises:
        PlanError: a layout that is not known.
        SpecError: (on an array) not an image.
    """
    operator = ToLayout(**names(field, out), layout=_checked(layout, "to_layout"))
    return as_called(operator, field)


def _checked(layout: Layout, operator: str) -> Layout:
    if layout not in ("CHW", "HWC"):
        raise PlanError(f"layout={layout!r} is not known", where=f"image.{operator}", fix='give "CHW" or "HWC"')
    return layout


def _per_channel(numbers: float | Sequence[float], argument: str) -> tuple[float, ...]:
    values = np.atleast_1d(np.asarray(numbers))
    if values.ndim != 1 or values.dtype.kind not in "iuf" or not 1 <= values.size <= 4 or not np.isfinite(values).all():
        raise PlanError(
            f"{argument}={numbers!r} is not one number per channel",
            where="image.normalize",
            fix="give 1 to 4 finite numbers on the 0..1 scale",
        )
    return tuple(float(value) for value in values)
