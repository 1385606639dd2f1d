"""The usual steps of an image on its way to a batch as one: decode, crop or resize, mirror, normalise, with nothing in between.

Decoding half a megabyte of pixels empties the caches, so that the Python between four operators costs three times what it costs in a tight
loop: about 90 us of the 1,200 us that a photograph takes. One function with the checks done once needs less than half.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from penstock import kernels
from penstock._contracts.transform import Scratch, Transform
from penstock.image.flipping import RandomFlip
from penstock.image.header import Header
from penstock.image.normalizing import Normalize
from penstock.image.operator import load_cv2
from penstock.image.resizing import INTERPOLATIONS, RandomResizedCrop, Resize

__all__ = ["Decoder", "FusedImage", "fused"]

_UINT8, _FLOAT32 = np.dtype(np.uint8), np.dtype(np.float32)


@runtime_checkable
class Decoder(Transform, Protocol):
    """What the first step must be."""

    @property
    def mode(self) -> str:
        """Return the mode of its images, such as "RGB"."""

    def usual(self, value: Any) -> Header | None:
        """Return the header of the usual image, which `upper_rows` takes; None for every other, which `apply` looks at."""

    def upper_rows(self, value: Any, header: Header, num_rows: int, scratch: Scratch) -> NDArray[np.uint8]:
        """Decode at least the first `num_rows` rows of it into scratch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FusedImage:
    """Decode, then crop or resize to one size, then perhaps mirror, then perhaps normalise, all on one field. The same bytes as one by one.

    Attributes:
        parts: the operators, in order; anything out of the ordinary (no three-channel JPEG, another orientation) goes through them.
    """

    parts: tuple[Transform, ...]
    decode: Decoder
    crop: RandomResizedCrop | Resize
    flip: RandomFlip | None
    normalize: Normalize | None
    field: str
    out_field: str
    num_draws: int

    def apply(self, value: Any, draws: Sequence[float], scratch: Scratch | None, out: NDArray[Any] | None) -> NDArray[Any]:
        """Do all steps on one image.

        Raises:
            SpecError, DecodeError: as the operators.
        """
        if scratch is None:
            made = self.apply(value, draws, Scratch(), out)
            return made if made is out or made.base is None else made.copy()
        header = self.decode.usual(value)
        if header is None:
            return self._one_by_one(value, draws, scratch, out)
        small = self._resized(value, header, draws, scratch)
        flipped = self.flip is not None and draws[self.crop.num_draws] < self.flip.probability
        if self.normalize is not None and len(self.normalize.mean) == 3:
            return self._normalized(small[:, ::-1] if flipped else small, self.normalize, scratch, out)
        if self.normalize is not None:
            return self.normalize.apply(small, (), scratch, out)  # which says what is wrong
        if not flipped and out is None:
            return small
        target = scratch.take("fused flipped", small.shape, _UINT8) if out is None else out
        if target.shape != small.shape or target.dtype != _UINT8:
            target = np.empty(small.shape, _UINT8)
        kernels.copy_images((small[:, ::-1] if flipped else small)[None], target[None])
        return target

    def _resized(self, value: Any, header: Header, draws: Sequence[float], scratch: Scratch) -> NDArray[np.uint8]:
        top, left, rows, columns, size = self.crop.box(header.height, header.width, draws)
        view = self.decode.upper_rows(value, header, top + rows, scratch)[top : top + rows, left : left + columns]
        if (rows, columns) == size:
            return view
        target = scratch.take("fused small", (*size, 3), _UINT8)
        result: NDArray[np.uint8] = load_cv2().resize(
            view, (size[1], size[0]), dst=target, interpolation=INTERPOLATIONS[self.crop.interpolation]
        )
        return target if result is target else result.reshape(target.shape)  # OpenCV may refuse a dst without telling

    def _normalized(self, view: NDArray[np.uint8], how: Normalize, scratch: Scratch, out: NDArray[Any] | None) -> NDArray[Any]:
        first = how.layout == "CHW"
        shape = (3, view.shape[0], view.shape[1]) if first else view.shape
        if out is None:
            target = scratch.take("fused normalised", shape, _FLOAT32)
        else:
            target = out if out.shape == shape and out.dtype == _FLOAT32 else np.empty(shape, np.float32)
        kernels.normalize_image(view, how.scale, how.bias, target, first)
        return target

    def _one_by_one(self, value: Any, draws: Sequence[float], scratch: Scratch | None, out: NDArray[Any] | None) -> NDArray[Any]:
        used = 0
        for part in self.parts:
            last = part is self.parts[-1]
            value = part.apply(value, draws[used : used + part.num_draws], scratch, out if last else None)
            used += part.num_draws
        return value  # type: ignore[no-any-return]


def fused(steps: Sequence[Transform]) -> FusedImage | None:
    """Return the longest prefix of `steps` that can be one, or None."""
    if len(steps) < 2 or not isinstance(steps[0], Decoder) or not isinstance(steps[1], (RandomResizedCrop, Resize)):
        return None
    decode, crop = steps[0], steps[1]
    rest = list(steps[2:4])
    flip = rest.pop(0) if rest and isinstance(rest[0], RandomFlip) else None
    normalize = rest[0] if rest and isinstance(rest[0], Normalize) else None
    parts: list[Transform] = [decode]
    for part in (crop, flip, normalize):
        if part is None:
            continue
        if part.field != parts[-1].out_field or part.out_field != part.field:
            break
        parts.append(part)
    if len(parts) < 2 or decode.mode != "RGB":
        return None
    return FusedImage(
        parts=tuple(parts),
        decode=decode,
        crop=crop,
        flip=flip if isinstance(flip, RandomFlip) and flip in parts else None,
        normalize=normalize if isinstance(normalize, Normalize) and normalize in parts else None,
        field=decode.field,
        out_field=parts[-1].out_field,
        num_draws=sum(part.num_draws for part in parts),
    )
