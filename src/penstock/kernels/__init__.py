"""The few hot loops: one C file through ctypes, each with a NumPy twin that gives the same bytes.

Private to Penstock. `backend()` says which version this process uses.
"""

from __future__ import annotations

from penstock.kernels.backends import backend
from penstock.kernels.checked import (
    copy_images,
    crop_images,
    deal,
    gather_windows,
    normalize,
    normalize_image,
    permute,
    philox_uniform,
    read_file,
)
from penstock.kernels.keys import mix

__all__ = [
    "backend",
    "copy_images",
    "crop_images",
    "deal",
    "gather_windows",
    "mix",
    "normalize",
    "normalize_image",
    "permute",
    "philox_uniform",
    "read_file",
]
