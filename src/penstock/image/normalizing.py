"""Pixels to the numbers and the layout that a model takes."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from penstock import kernels
from penstock._contracts.transform import Scratch
from penstock._system.lazy import dataclass
from penstock.errors import PlanError, SpecError
from penstock.image.fields import two_forms
from penstock.image.operator import ImageOperator, check_image, hand_over, is_block, names, place
from penstock.kernels.library import FLOAT32_DTYPE, UINT8_DTYPE, Array

Layout = Literal["CHW", "HWC"]

_MOST_CHANNELS = 4  # of the kernel


@dataclass(frozen=True, slots=True, kw_only=True)
class Normalize(ImageOperator):
    """Turn pixels into float32 `value * scale + bias`, laid out as `layout`. Made by `normalize`.

    With mean and std on the 0..1 scale, scale = 1 / (255 std) and bias = -mean / std, each rounded to float32 once; product and sum are
    float32. For other dtypes than uint8 the scale is times 255 and over their largest number, which is 1 for floats and bools.
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
            SpecError: `value` is not an image of numbers with as many channels as there are means.
        """
        check_image(self, value, None if getattr(value, "dtype", UINT8_DTYPE).kind in "biuf" else (UINT8_DTYPE, FLOAT32_DTYPE))
        height, width, num_channels = value.shape
        self.check_channels(num_channels)
        first = self.layout == "CHW"
        target = place(self.tag, (num_channels, height, width) if first else value.shape, FLOAT32_DTYPE, value, scratch, out)
        if value.dtype == UINT8_DTYPE and num_channels <= _MOST_CHANNELS:
            kernels.normalize(value[None], self.scale, self.bias, target[None], first)
        else:
            largest = np.iinfo(value.dtype).max if value.dtype.kind in "iu" else 1
            found = value.astype(np.float32) * (self.scale * np.float32(255 / largest)) + self.bias
            np.copyto(target, found.transpose(2, 0, 1) if first else found)
        return target

    def apply_block(self, values: Array, draws: NDArray[np.float64], scratch: Scratch | None, out: Array | None) -> Array | None:
        """Normalise `values` (n, height, width, channels), uint8; None for others.

        Raises:
            SpecError: the number of channels is not that of the means.
        """
        if not is_block(values) or values.shape[3] > _MOST_CHANNELS:
            return None
        num_images, height, width, num_channels = values.shape
        self.check_channels(num_channels)
        first = self.layout == "CHW"
        shape = (num_images, num_channels, height, width) if first else values.shape
        target = place(self.tag + " block", shape, FLOAT32_DTYPE, values, scratch, out)
        kernels.normalize(values, self.scale, self.bias, target, first)
        return target

    def check_channels(self, num_channels: int) -> None:
        """Refuse images of another number of channels.

        Raises:
            SpecError: it is not that of the means.
        """
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


@two_forms
def normalize(
    field: str | NDArray[Any],
    mean: float | Sequence[float],
    std: float | Sequence[float],
    *,
    layout: Layout = "CHW",
    out: str | None = None,
) -> Normalize:
    """Turn images (height, width, channels) into float32 (value / 255 - mean) / std per channel.

    255 is that of uint8: whole numbers of another dtype are divided by its largest number, floats and bools are taken as they are.

    Args:
        field: the field with the image, or the image itself.
        mean: one number per channel on the 0..1 scale.
        std: as `mean`, above 0.
        layout: "CHW" for (channels, height, width), "HWC" to leave the axes as they are.
        out: the field for the result; the default is `field`.

    Raises:
        PlanError: numbers or a layout that cannot be.
        SpecError: (on an array) not an image of numbers, or another number of channels.
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
    return Normalize(**names(field, out), mean=means, std=stds, layout=_checked(layout, "normalize"))


@two_forms
def to_layout(field: str | NDArray[Any], layout: Layout = "CHW", *, out: str | None = None) -> ToLayout:
    """Bring images (height, width, channels) of any dtype into `layout`, values unchanged.

    Args:
        field: the field with the image, or the image itself.
        layout: "CHW" for (channels, height, width); "HWC" changes nothing.
        out: the field for the result; the default is `field`.

    Raises:
        PlanError: a layout that is not known.
        SpecError: (on an array) not an image.
    """
    return ToLayout(**names(field, out), layout=_checked(layout, "to_layout"))


def _checked(layout: Layout, operator: str) -> Layout:
    if layout not in ("CHW", "HWC"):
        raise PlanError(f"layout={layout!r} is not known", where=f"image.{operator}", fix='give "CHW" or "HWC"')
    return layout


def _per_channel(numbers: float | Sequence[float], argument: str) -> tuple[float, ...]:
    values = np.atleast_1d(np.asarray(numbers))
    if values.ndim != 1 or values.dtype.kind not in "iuf" or not values.size or not np.isfinite(values).all():
        raise PlanError(
            f"{argument}={numbers!r} is not one number per channel",
            where="image.normalize",
            fix="give finite numbers on the 0..1 scale, one or more",
        )
    return tuple(float(value) for value in values)
