"""Image operators for `Dataset.map`, each of them also a plain function on one image (docs/image.md).

`ps.image.resize("data", 256)` makes an operator on the field "data"; `ps.image.resize(array, 256)` resizes the array. With `fields=`, an
operator changes masks, boxes and points of the element with one draw.
"""

from penstock.image.cropping import center_crop, random_crop
from penstock.image.decoding import decode
from penstock.image.fields import Boxes, Mask
from penstock.image.flipping import random_flip
from penstock.image.mixing import cutmix, mixup, mixup_or_cutmix
from penstock.image.normalizing import normalize, to_layout
from penstock.image.on_device import on_device
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
from penstock.image.warping import pad_to, random_affine, random_iou_crop

__all__ = [
    "Boxes",
    "Mask",
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
    "on_device",
    "pad_to",
    "posterize",
    "rand_augment",
    "random_affine",
    "random_crop",
    "random_erase",
    "random_flip",
    "random_grayscale",
    "random_iou_crop",
    "random_resized_crop",
    "resize",
    "solarize",
    "to_layout",
    "trivial_augment",
]
