"""The few hot loops: one C library through ctypes, each function with a twin in NumPy or Python that gives the same bytes.

Private to Penstock. `backend()` says which version this process uses.
"""

from __future__ import annotations

from penstock.kernels.checked import (
    best_fit,
    crop_image,
    crop_images,
    deal,
    mix,
    normalize,
    permute,
    philox_uniform,
    read_file,
    read_files,
    write_images,
)
from penstock.kernels.library import WITHOUT_LIBRARY, backend, slow_twins

__all__ = [
    "WITHOUT_LIBRARY",
    "backend",
    "best_fit",
    "crop_image",
    "crop_images",
    "deal",
    "mix",
    "normalize",
    "permute",
    "philox_uniform",
    "read_file",
    "read_files",
    "slow_twins",
    "write_images",
]
