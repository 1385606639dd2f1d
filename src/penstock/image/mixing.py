"""Images of a batch mixed with each other, and their labels: MixUp and CutMix, for `map` behind `batch`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from penstock._contracts.arguments import is_whole, real_number
from penstock._system.lazy import dataclass
from penstock.errors import PlanError, SpecError
from penstock.image.operator import load_cv2


@dataclass(frozen=True, slots=True)
class Mixing:
    """Mix each image of a batch with the one before it, the first with the last. Made by `mixup`, `cutmix` and `mixup_or_cutmix`."""

    name: str
    mixup_alpha: float
    cutmix_alpha: float
    cutmix_share: float
    num_classes: int | None
    field: str
    label: str

    def __post_init__(self) -> None:
        *alphas, share = map(real_number, (self.mixup_alpha, self.cutmix_alpha, self.cutmix_share))
        good = all(alpha is not None and 0 < alpha < math.inf for alpha in alphas) and share is not None and 0 <= share <= 1
        if not good or not (self.num_classes is None or is_whole(self.num_classes, 1)):
            raise PlanError(
                f"a number is out of range: {self}",
                where=f"image.{self.name}",
                fix="give a finite alpha above 0, a cutmix_share from 0 to 1, and num_classes from 1",
            )

    def __call__(self, batch: Mapping[str, Any], rng: np.random.Generator) -> dict[str, Any]:
        """Return the batch with mixed images and labels, as `mixup` says; the arrays that it had stay as they are.

        Raises:
            SpecError: the fields are not the images of a batch and their classes.
        """
        images, labels = self.taken(batch)
        share, box = self.drawn(rng, images.shape[2:] if channels_first(images.shape) else images.shape[1:3])
        batch = {**batch, self.field: _blended(images, share) if box is None else _cut(images, box)}
        if self.num_classes is None:
            shares = np.full(len(labels), share, np.float32)
            return {**batch, f"{self.label}_other": np.roll(labels, 1), f"{self.label}_share": shares}
        own = labels[:, None] == np.arange(self.num_classes)
        return {**batch, self.label: _blended(own.astype(np.float32), share)}

    def drawn(self, rng: np.random.Generator, size: Sequence[int]) -> tuple[float, tuple[slice, slice] | None]:
        """Return the share of the own image of (height, width), and for CutMix the rows and columns that are taken from the other."""
        cut = rng.random() < self.cutmix_share
        alpha = self.cutmix_alpha if cut else self.mixup_alpha
        share = float(rng.beta(alpha, alpha))
        if not cut:
            return share, None
        sizes = np.array(size)
        half = (0.5 * math.sqrt(1 - share) * sizes).astype(int)
        middle = rng.integers(sizes)
        (top, left), (bottom, right) = np.maximum(middle - half, 0).tolist(), np.minimum(middle + half, sizes).tolist()
        return 1 - float((bottom - top) * (right - left) / sizes.prod()), (slice(top, bottom), slice(left, right))

    def taken(self, batch: Any) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return the images and the labels of a batch.

        Raises:
            SpecError: they are not as `mixup` says.
        """
        images, labels = (np.asarray(batch.get(name) if isinstance(batch, Mapping) else None) for name in (self.field, self.label))
        good = images.ndim == 4 and images.size and images.dtype in (np.uint8, np.float32) and images.shape[1] != images.shape[3]
        good = good and labels.shape == images.shape[:1] and labels.dtype.kind in "iu"
        if not good or (self.num_classes and not np.isin(labels, np.arange(self.num_classes)).all()):
            raise SpecError(
                f"field {self.field!r} is {images.dtype}{list(images.shape)} and {self.label!r} is {labels.dtype}{list(labels.shape)}, "
                "expected uint8 or float32 images of one size, [batch, height, width, channels] or channels first, and their classes, "
                f"integers [batch] below num_classes={self.num_classes}",
                where=f"image.{self.name}",
                fix="put this map behind batch(), and name the two fields with field= and label=",
            )
        return images, labels


def _blended(images: NDArray[Any], share: float) -> NDArray[Any]:
    others = np.roll(images, 1, axis=0).reshape(len(images), -1)
    mixed = load_cv2().addWeighted(images.reshape(others.shape), share, others, 1 - share, 0, dst=others)
    return mixed.reshape(images.shape)  # type: ignore[no-any-return]


def channels_first(shape: Sequence[int]) -> bool:
    """Tell whether images of this shape are [batch, channels, height, width]: there are fewer channels than rows or columns."""
    return shape[1] < shape[3]


def within(shape: Sequence[int], box: tuple[slice, slice]) -> tuple[Any, ...]:
    """Return the index of a box of rows and columns in images of this shape."""
    return (..., *box) if channels_first(shape) else (slice(None), *box)


def _cut(images: NDArray[Any], box: tuple[slice, slice]) -> NDArray[Any]:
    """Put a box of the images before in each."""
    mixed, where = images.copy(), within(images.shape, box)
    mixed[where] = np.roll(images[where], 1, axis=0)
    return mixed


def mixup(alpha: float = 1.0, num_classes: int | None = None, *, field: str = "image", label: str = "label") -> Mixing:
    """Mix each image of a batch with the one before it, the first with the last: MixUp, for `map(mixup(...), seed=...)` behind `batch`.

    An image becomes share * image + (1 - share) * other, with one share for the batch from Beta(alpha, alpha).

    Args:
        alpha: above 0; the larger, the more alike the two shares.
        num_classes: the classes c of the labels. The labels become float32 [batch, c], each row the shares of its two classes. With None
            they stay, and there are two new fields: `label_other`, the class of the other image, and `label_share`, float32 [batch], the
            share of the own one.
        field: of the images, uint8 or float32, [batch, height, width, channels] or with channels first.
        label: the field of the classes, integers [batch]; the two new fields begin with its name.

    Raises:
        PlanError: a number out of its range.
    """
    return Mixing("mixup", alpha, 1, 0, num_classes, field, label)


def cutmix(alpha: float = 1.0, num_classes: int | None = None, *, field: str = "image", label: str = "label") -> Mixing:
    """Replace a random box of each image of a batch by that of the image before it: CutMix, for `map(cutmix(...), seed=...)`.

    The area of the box is a share of the image from Beta(alpha, alpha), before it is cut at the edges; the labels have the share that is
    left of the image. Arguments and errors are those of `mixup`.
    """
    return Mixing("cutmix", 1, alpha, 1, num_classes, field, label)


def mixup_or_cutmix(
    mixup_alpha: float = 0.2,
    cutmix_alpha: float = 1.0,
    num_classes: int | None = None,
    *,
    cutmix_share: float = 0.5,
    field: str = "image",
    label: str = "label",
) -> Mixing:
    """Do `cutmix` to a share of the batches, drawn at random, and `mixup` to the others.

    Arguments and errors are those of `mixup`; `cutmix_share` is 0..1.
    """
    return Mixing("mixup_or_cutmix", mixup_alpha, cutmix_alpha, cutmix_share, num_classes, field, label)
