"""Operators of `ps.image` on whole batches of tensors: on the device, when the loop takes a batch.

Windows, factors and shares are drawn on the host, by a map behind `batch`: they belong to the key of the batch, as those of any map, and
go to the device with it. No generator of PyTorch is used, and nothing waits for the device.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from penstock._system.lazy import dataclass
from penstock.errors import PlanError, SpecError
from penstock.image.geometry import NO_BOXES, Geometric, Scale, Size, Steps
from penstock.image.mixing import Mixing, channels_first, within
from penstock.image.normalizing import Normalize
from penstock.image.photometric import Photometric

_FIELD = "on_device"
_UNCHANGED = 1, 1, 1, 0
"""Brightness, contrast, saturation and hue that change nothing."""
_HUE = 3


@dataclass(frozen=True, slots=True)
class DeviceDraw:
    """Add to a batch the field "on_device": what is to be done to its images. `map(augment.draw, seed=...)` behind `batch` takes it."""

    operators: tuple[Any, ...]

    @property
    def mark(self) -> int:
        """Return a check sum of the operators, which goes with their numbers."""
        return crc32(repr(self.operators).encode())

    def __call__(self, batch: Mapping[str, Any], rng: np.random.Generator) -> dict[str, Any]:
        """Return the batch with one more field.

        Raises:
            SpecError: a field is not images of one size, or not what an operator takes.
        """
        sizes, drawn = dict[str, Size](), list[Any]()
        for operator in self.operators:
            num_images, size, num_channels = _shape(batch, operator)
            size = sizes.get(operator.field, size)
            if isinstance(operator, Mixing):
                operator.taken(batch)
                drawn.append(operator.drawn(rng, size))
            elif isinstance(operator, Geometric):
                steps = [operator.steps(*size, operator.draw(rng), NO_BOXES) for _ in range(num_images)]
                made = sizes[operator.field] = steps[0][-1].size if steps[0] else size
                scaled = any(isinstance(step, Scale) and step.before != step.size for each in steps for step in each)
                drawn.append((np.array([_window(each, size, made) for each in steps], np.float32), made, scaled))
            elif isinstance(operator, Normalize):
                operator.check_channels(num_channels)
                drawn.append((operator.scale, operator.bias))
            else:
                drawn.append(_factors(operator, rng.random((num_images, operator.num_draws))))
        return {**batch, _FIELD: (self.mark, *drawn)}


@dataclass(frozen=True, slots=True)
class OnDevice:
    """Apply image operators to batches of tensors. Made by `on_device`.

    Attributes:
        draw: what draws their numbers, for `map` behind `batch`.
    """

    draw: DeviceDraw

    def __call__(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        """Return the batch with changed images, and labels where they are mixed, on the device of its tensors. For `ps.Torch(transform=)`.

        Raises:
            SpecError: the batch did not go through this `draw`, or has images of a dtype that an operator does not take.
        """
        if not isinstance(batch, Mapping) or _FIELD not in batch:
            raise SpecError(
                f"the batch has no field {_FIELD!r}, which has the random numbers",
                where="image.on_device",
                fix="draw them behind batch(): .map(augment.draw, seed=...), where augment is what on_device() gave",
            )
        out = dict(batch)
        mark, *drawn = out.pop(_FIELD)
        if mark != self.draw.mark:
            raise SpecError(
                f"the numbers in the field {_FIELD!r} were drawn for other operators than {self.draw.operators!r:.200}",
                where="image.on_device",
                fix="use one object for both: .map(augment.draw, seed=...) behind batch(), and transform=augment",
            )
        for operator, numbers in zip(self.draw.operators, drawn, strict=True):
            images = out[operator.field]
            if isinstance(operator, Mixing):
                out |= _mixed(operator, images, out[operator.label], *numbers)
                continue
            first = channels_first(images.shape)
            if first:
                images = images.movedim(1, 3)
            if isinstance(operator, Geometric):
                images = _moved(images, operator, *numbers)
            elif isinstance(operator, Normalize):
                images, first = _normalized(images, *numbers), operator.layout == "CHW"
            else:
                images = _jittered(images, operator, *numbers)
            out[operator.field] = images.movedim(3, 1).contiguous() if first else images
        return out


def on_device(*operators: Any) -> OnDevice:
    """Do image operators to whole batches on the device: `ps.Torch(device="cuda", transform=augment)`, where `augment` is what this gives.

    `batch(n).map(augment.draw, seed=...)` draws the random numbers, which belong to the batch as those of any map. Fields are images of one
    size [batch, height, width, channels], or with channels first. Windows are those that an operator gives an image with its draws. Pixels
    are its pixels, to one level of 256 where the size changes. `color_jitter` takes its steps in one order for the whole batch.

    Args:
        operators: what `center_crop`, `random_crop`, `resize`, `random_resized_crop`, `random_flip`, `color_jitter`, `normalize`, `mixup`,
            `cutmix` and `mixup_or_cutmix` give for the name of a field, in order.

    Raises:
        PlanError: another operator, or one with `out=`, `fields=` or another interpolation than "linear".
    """
    for operator in operators:
        good = isinstance(operator, (Geometric, Normalize)) or getattr(operator, "name", "") == "color_jitter"
        good = good and operator.field == operator.out_field and getattr(operator, "interpolation", "linear") == "linear"
        if not good and not isinstance(operator, Mixing):
            raise PlanError(
                f"{operator!r:.200} cannot be done on the device",
                where="image.on_device",
                fix="give crops, random_flip, linear resizes, color_jitter, normalize and mixup or cutmix, each for one field that it "
                "changes; map the others before batch()",
            )
    return OnDevice(DeviceDraw(operators))


# -- on the host ------------------------------------------------------------------------------------------------------------------


def _shape(batch: Any, operator: Any) -> tuple[int, Size, int]:
    """Return number, size and channels of the images of a batch."""
    shape: Any = getattr(batch.get(operator.field) if isinstance(batch, Mapping) else None, "shape", ())
    if len(shape) != 4 or not all(shape) or shape[1] == shape[3]:
        raise SpecError(
            f"field {operator.field!r} has the shape {list(shape)}, expected images of one size [batch, height, width, channels], or with "
            "channels first",
            where=f"image.on_device, {operator.name}",
            fix="put this map behind batch(), on a dict with this field",
        )
    return (shape[0], shape[2:], shape[1]) if channels_first(shape) else (shape[0], shape[1:3], shape[3])


def _window(steps: Steps, size: Size, made: Size) -> NDArray[np.float64]:
    """Return where the corners of the result lie in the image: left, top, right, bottom; left is more than right in a mirror image."""
    ends = np.array([(0, 0), size[::-1]], np.float64)
    corners = ends
    for step in steps:
        corners = step.points(corners)
    return (([(0, 0), made[::-1]] - corners[0]) * ends[1] / (corners[1] - corners[0])).ravel()  # type: ignore[no-any-return]


def _factors(operator: Photometric, numbers: NDArray[np.float64]) -> tuple[NDArray[np.float32], tuple[int, ...]]:
    """Return the factors of each image, and the order of the steps that change anything."""
    low, high = np.array(operator.options).T
    factors = low + numbers[:, 4:8] * (high - low)
    if operator.probability < 1:
        factors[numbers[:, -1] >= operator.probability] = _UNCHANGED
    order = numbers[0, :4].argsort().tolist()
    return factors.astype(np.float32), tuple(step for step in order if low[step] < high[step] or low[step] != _UNCHANGED[step])


# -- on the device: images are [batch, height, width, channels] -------------------------------------------------------------------


def _rounded(made: Any, like: Any) -> Any:
    return made.to(like.dtype) if like.dtype.is_floating_point else made.round_().to(like.dtype)


def _moved(images: Any, operator: Geometric, windows: Any, size: Size, scaled: bool) -> Any:
    """Return a window of each image in a new size: its pixels, or weighted sums of those of the window where the size changes."""
    import torch

    name = str(images.dtype).removeprefix("torch.")
    same_bits = {"uint16": torch.int16, "uint32": torch.int32}.get(name, images.dtype)  # PyTorch looks up no unsigned pixels but uint8
    made = images.float() if scaled else images.view(same_bits)
    for axis, num in ((1, size[0]), (2, size[1])):
        length, (begin, end) = images.shape[axis], windows[:, 2 - axis :: 2].split(1, 1)
        at = begin + (torch.arange(num, device=images.device) + 0.5) * ((end - begin) / num)
        if scaled:
            pixels = torch.arange(length, device=images.device)[:, None] + 0.5
            low, high = torch.minimum(begin, end)[..., None], torch.maximum(begin, end)[..., None]
            reach = ((high - low) / num).clamp(min=1) if getattr(operator, "antialias", False) else 1
            weights = (1 - (pixels - at[:, None]).abs() / reach).clamp(min=0) * ((pixels > low) & (pixels < high))
            made = torch.einsum(f"nhwc,n{'hw'[axis - 1]}k->n{('kw', 'hk')[axis - 1]}c", made, weights / weights.sum(1, keepdim=True))
            continue
        at = at.reshape(-1, *(num if axis == other else 1 for other in (1, 2, 3)))
        made = torch.take_along_dim(made, at.long().clamp(0, length - 1), axis)
        if getattr(operator, "padding", 0):
            made = made.masked_fill((at < 0) | (at > length), getattr(operator, "fill", 0))
    return _rounded(made, images) if scaled else made.view(images.dtype)


def _normalized(images: Any, scale: Any, bias: Any) -> Any:
    import torch

    plain = images.dtype.is_floating_point or images.dtype == torch.bool
    largest = 1 if plain else torch.iinfo(images.dtype).max
    return images.float() * (scale * (255 / largest)) + bias


def _jittered(images: Any, operator: Photometric, factors: Any, order: tuple[int, ...]) -> Any:
    if str(images.dtype) != "torch.uint8" or images.shape[3] != 3:
        raise SpecError(
            f"field {operator.field!r} is {images.dtype}{list(images.shape)}, expected uint8 images of three channels",
            where="image.on_device, color_jitter",
            fix="put color_jitter before normalize and mixup",
        )
    made = images.float()
    for step in order:
        factor = factors[:, step, None, None, None]
        if step == _HUE:
            made = _turned(made, factor[..., 0])
        else:
            red, green, blue = made.unbind(3)
            grey = (0.2989 * red + 0.587 * green + 0.114 * blue).floor()[..., None]
            other = (0, grey.mean((1, 2), keepdim=True), grey)[step]
            made = (made * factor + other * (1 - factor)).clamp(0, 255)
        made = made.floor()
    return made.to(images.dtype)


def _turned(images: Any, turns: Any) -> Any:
    """Turn the hue of RGB images, 0 to 255."""
    import torch

    red, green, blue = images.unbind(3)
    value = images.amax(3)
    chroma = value - images.amin(3)
    some = chroma.clamp(min=1)
    hue = torch.where(value == green, (blue - red) / some + 2, (red - green) / some + 4)
    hue = torch.where(value == red, (green - blue) / some, hue) + 6 * turns
    sides = ((first + hue) % 6 for first in (5, 3, 1))
    made = torch.stack([value - chroma * torch.minimum(side, 4 - side).clamp(0, 1) for side in sides], 3)
    return made * (255.999 / 255)


def _mixed(operator: Mixing, images: Any, labels: Any, share: float, box: tuple[slice, slice] | None) -> dict[str, Any]:
    import torch

    def blended(values: Any) -> Any:
        return values * share + values.roll(1, 0) * (1 - share)

    if box is None:
        mixed = _rounded(blended(images.float()), images)
    else:
        mixed, where = images.clone(), within(images.shape, box)
        mixed[where] = images[where].roll(1, 0)
    if operator.num_classes is not None:
        own = labels[:, None] == torch.arange(operator.num_classes, device=labels.device)
        return {operator.field: mixed, operator.label: blended(own.float())}
    shares = torch.full(labels.shape, share, device=labels.device)
    return {operator.field: mixed, f"{operator.label}_other": labels.roll(1, 0), f"{operator.label}_share": shares}
