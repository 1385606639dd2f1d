"""Image operators for `Dataset.map`, each of them also a plain function on one image (docs/image.md).

`ps.image.resize("data", 256)` makes an operator on the field "data"; `ps.image.resize(array, 256)` resizes the array.
"""

from penstock.image.cropping import center_crop, random_crop
from penstock.image.decoding import decode
from penstock.image.flipping import random_flip
from penstock.image.mixing import cutmix, mixup, mixup_or_cutmix
from penstock.image.normalizing import normalize, to_layout
from penstock.image.photometric import (
    auto_contrast,
    color_jitter,
    equalize,
    gaussian_blur,
    posterize,
    rand_augment,
    random_erase,
    random_grayscale,
    solarize,
    trivial_augment,
)
from penstock.image.resizing import random_resized_crop, resize

__all__ = [
    "auto_contrast",
    "center_crop",
    "color_jitter",
    "cutmix",
    "decode",
    "equalize",
    "gaussian_blur",
    "mixup",
    "mixup_or_cutmix",
    "normalize",
    "posterize",
    "rand_augment",
    "random_crop",
    "random_erase",
    "random_flip",
    "random_grayscale",
    "random_resized_crop",
    "resize",
    "solarize",
    "to_layout",
    "trivial_augment",
]
