"""Image operators for `Dataset.map`, each of them also a plain function on one image (docs/image.md).

`ps.image.resize("data", 256)` makes an operator on the field "data"; `ps.image.resize(array, 256)` resizes the array.
"""

from penstock.image.cropping import center_crop, random_crop
from penstock.image.decoding import decode
from penstock.image.flipping import random_flip
from penstock.image.normalizing import normalize, to_layout
from penstock.image.resizing import random_resized_crop, resize

__all__ = ["center_crop", "decode", "normalize", "random_crop", "random_flip", "random_resized_crop", "resize", "to_layout"]
