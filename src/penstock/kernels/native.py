"""The kernels in C: one plain shared library without Python.h, called through ctypes, which releases the GIL.

Arguments are taken as `penstock.kernels.checked` left them: this module trusts them, so call it through `penstock.kernels`.
From any thread; the library keeps no state.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from penstock.kernels import twin
from penstock.kernels.library import LIBRARY, load_library

__all__ = ["Native", "load"]

_POINTER, _INT64, _UINT64, _INT = ctypes.c_void_p, ctypes.c_int64, ctypes.c_uint64, ctypes.c_int
_SIGNATURES: Final = {
    "penstock_permute": (_INT64, [_POINTER, _INT64, _UINT64, _UINT64, _POINTER]),
    "penstock_philox_uniform": (None, [_UINT64, _UINT64, _POINTER, _POINTER, _POINTER, _INT64, _INT64, _POINTER]),
    "penstock_normalize": (None, [_POINTER, *[_INT64] * 8, _POINTER, _POINTER, _POINTER, _INT]),
    "penstock_copy_images": (None, [_POINTER, *[_INT64] * 8, _POINTER]),
    "penstock_crop_images": (None, [_POINTER, *[_INT64] * 4, _POINTER, _POINTER, _POINTER, _INT, _INT64, _INT64, _POINTER]),
    "penstock_read_file": (_INT64, [ctypes.c_char_p, _POINTER, _INT64]),
    "penstock_gather_windows": (_INT64, [_POINTER, _INT64, _INT, _POINTER, _INT64, _INT64, _POINTER]),
    "penstock_deal": (_INT64, [_POINTER, _INT64, _POINTER, _POINTER, _INT64, _INT64, _POINTER, _POINTER]),
}
# Sharing the array's buffer costs 0.2 us and `array.ctypes.data` 0.9 us; a block of 256 permuted positions costs 2.
_shared: Callable[[Any], Any] = (ctypes.c_char * 0).from_buffer


def load(path: str | os.PathLike[str] = LIBRARY) -> Native | None:
    """Open the library; return None when it is not there, cannot be opened here or is of another version."""
    library = load_library(path)
    return None if library is None else Native(library)


def _address(array: NDArray[Any]) -> Any:
    """Return the address of a contiguous array."""
    try:
        return _shared(array)
    except TypeError:
        # Read-only: its buffer may not be shared, but its address may be known.
        return array.ctypes.data


def _start(array: NDArray[Any]) -> Any:
    """Return the address of the first element of a view."""
    return _address(array) if array.flags.c_contiguous else array.ctypes.data


class Native:
    """The functions of an open library, with the argument lists of `penstock.kernels.twin`. Any thread; never closed."""

    name = "c"

    def __init__(self, library: ctypes.CDLL) -> None:
        self.library = library
        for function_name, (result, arguments) in _SIGNATURES.items():
            function = getattr(library, function_name)
            function.restype = result
            function.argtypes = arguments
        self._permute = library.penstock_permute
        self._philox_uniform = library.penstock_philox_uniform
        self._normalize = library.penstock_normalize
        self._copy_images = library.penstock_copy_images
        self._crop_images = library.penstock_crop_images
        self._gather_windows = library.penstock_gather_windows
        self._read_file = library.penstock_read_file
        self._deal = library.penstock_deal

    def permute(self, positions: NDArray[np.int64], num_elements: int, key: int, out: NDArray[np.int64]) -> int:
        """Write the permuted positions to `out`; return -1, or the first row whose position is out of range."""
        row: int = self._permute(_address(positions), positions.size, num_elements, key, _shared(out))
        return row

    def philox_uniform(
        self,
        key0: int,
        key1: int,
        epochs: NDArray[np.int64],
        indices: NDArray[np.int64],
        lanes: NDArray[np.uint64],
        out: NDArray[np.float64],
    ) -> None:
        """Fill row i of `out` with the first numbers of Philox4x64-10 with key (key0, key1) and counter (0, lane, index, epoch)."""
        self._philox_uniform(key0, key1, _address(epochs), _address(indices), _address(lanes), *out.shape, _shared(out))

    def normalize(
        self,
        values: NDArray[np.uint8],
        scale: NDArray[np.float32],
        bias: NDArray[np.float32],
        out: NDArray[np.float32],
        channels_first: bool,
    ) -> None:
        """Write values * scale + bias, rounded to float32 after the product and after the sum."""
        self._normalize(
            _start(values), *values.shape, *values.strides, _address(scale), _address(bias), _shared(out), 1 if channels_first else 0
        )

    def normalize_image(
        self,
        value: NDArray[np.uint8],
        scale: NDArray[np.float32],
        bias: NDArray[np.float32],
        out: NDArray[np.float32],
        channels_first: bool,
    ) -> None:
        """Normalise one image, without the views that a batch of one would need."""
        sizes = (*value.shape, 0, *value.strides)
        self._normalize(_start(value), 1, *sizes, _address(scale), _address(bias), _shared(out), 1 if channels_first else 0)

    def read_file(self, path: bytes, buffer: NDArray[np.uint8]) -> int:
        """Read a regular file; return its size, -1 when anything is out of the ordinary, -2 - size when the buffer is too small."""
        count: int = self._read_file(path, _shared(buffer), buffer.size)
        return count

    def copy_images(self, values: NDArray[np.uint8], out: NDArray[np.uint8]) -> None:
        """Copy a view of images into a contiguous block."""
        self._copy_images(_start(values), *values.shape, *values.strides, _shared(out))

    def crop_images(
        self,
        values: NDArray[np.uint8],
        tops: NDArray[np.int64],
        lefts: NDArray[np.int64],
        flips: NDArray[np.uint8],
        fill: int,
        out: NDArray[np.uint8],
    ) -> None:
        """Cut one window out of each image, `fill` where it lies outside, mirrored where `flips` is not 0."""
        rows, columns = out.shape[1:3]
        windows = (_address(tops), _address(lefts), _address(flips))
        self._crop_images(_address(values), *values.shape, *windows, fill, rows, columns, _shared(out))

    def gather_windows(self, values: NDArray[Any], starts: NDArray[np.int64], out: NDArray[np.int64]) -> int:
        """Copy `values[start : start + length]` for each start; return -1, or the first row that lies outside."""
        if not (values.flags.c_contiguous and values.flags.aligned and values.dtype.isnative):
            # A strided, unaligned or byte-swapped array of tokens is rare enough for NumPy's general loops.
            return twin.gather_windows(values, starts, out)
        kind = values.dtype.itemsize if values.dtype.kind == "u" else -values.dtype.itemsize
        row: int = self._gather_windows(_address(values), values.size, kind, _address(starts), *out.shape, _shared(out))
        return row

    def deal(
        self,
        positions: NDArray[np.int64],
        shares: NDArray[np.uint64],
        sides: NDArray[np.int64],
        num_children: int,
        out: NDArray[np.int64],
        starts: NDArray[np.int64],
    ) -> int:
        """Say which child of a tree gives the element at each position; return -1, the first negative row, or -2 - the first bad node."""
        tree = (_address(shares), _address(sides), shares.size, num_children)
        groups = _shared(starts) if starts.size else None
        found: int = self._deal(_address(positions), positions.size, *tree, _shared(out), groups)
        return found
