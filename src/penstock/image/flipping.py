"""Mirror an image, left to right.

The module stands alone: keys of caches on disk name it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from penstock import kernels
from penstock._contracts.transform import Scratch
from penstock._system.lazy import dataclass
from penstock.image.fields import Fields, JointOperator, two_forms
from penstock.image.geometry import Coordinates, Geometric, Mirror, Steps
from penstock.image.operator import is_block, names, number_within, place
from penstock.kernels.library import UINT8_DTYPE, Array


@dataclass(frozen=True, slots=True, kw_only=True)
class RandomFlip(Geometric):
    """Mirror an image left to right when its draw is below `probability`. Made by `random_flip`."""

    name: ClassVar[str] = "random_flip"
    num_draws: ClassVar[int] = 1

    probability: float

    def steps(self, height: int, width: int, draws: Sequence[float], boxes: Coordinates) -> Steps:
        """Return the mirror image, or nothing."""
        return (Mirror((height, width)),) if draws[0] < self.probability else ()

    def apply_block(self, values: Array, draws: NDArray[np.float64], scratch: Scratch | None, out: Array | None) -> Array | None:
        """Mirror some of `values` (n, height, width, channels), uint8 and contiguous; None for others."""
        if not is_block(values):
            return None
        target = place(self.tag + " block", values.shape, UINT8_DTYPE, values, scratch, out)
        zeros = np.zeros(len(values), np.int64)
        kernels.crop_images(values, zeros, zeros, (draws[:, 0] < self.probability).view(np.uint8), 0, target)
        return target


@two_forms
def random_flip(
    field: str | NDArray[Any],
    *,
    probability: float = 0.5,
    out: str | None = None,
    fields: Fields | None = None,
    rng: np.random.Generator | None = None,
) -> RandomFlip | JointOperator:
    """Mirror images (height, width, channels) of any dtype left to right, at random; 1 draw per image.

    Args:
        field: the field with the image, or the image itself.
        probability: share of the images that are mirrored, 0..1.
        out: the field for the result; the default is `field`.
        fields: other fields to mirror alike, and what they hold (docs/image.md).
        rng: the generator to draw from, needed when `field` is an image.

    Raises:
        PlanError: a probability outside 0..1, fields that cannot be, or no `rng` for an image.
        SpecError: (on an array) not an image.
    """
    return RandomFlip(**names(field, out), probability=number_within(probability, "probability", "random_flip", 1))
