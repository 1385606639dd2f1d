"""Scanning tar files in C. Arguments are taken as `penstock.kernels.tar` left them; from any thread."""

from __future__ import annotations

import ctypes
from typing import Final

import numpy as np
from numpy.typing import NDArray

__all__ = ["NativeTar"]

_POINTER, _INT64 = ctypes.c_void_p, ctypes.c_int64
_TABLE: Final = [_POINTER, _INT64, _POINTER, _INT64]
_SIGNATURES: Final = {
    "penstock_tar_scan": (_INT64, [_POINTER, _INT64, _INT64, _INT64, *_TABLE, _POINTER]),
    "penstock_tar_samples": (_INT64, [_POINTER, _INT64, _POINTER, _POINTER, _INT64, *_TABLE, _POINTER, _POINTER]),
}


class NativeTar:
    """The functions of an open library, with the argument lists of `penstock.kernels.tar_twin`."""

    def __init__(self, library: ctypes.CDLL) -> None:
        for function_name, (result, arguments) in _SIGNATURES.items():
            function = getattr(library, function_name)
            function.restype = result
            function.argtypes = arguments
        self._scan = library.penstock_tar_scan
        self._samples = library.penstock_tar_samples

    def scan(
        self, data: NDArray[np.uint8], base: int, total: int, rows: NDArray[np.int64], names: NDArray[np.uint8], state: NDArray[np.int64]
    ) -> int:
        """Scan one piece of a file."""
        table = (rows.ctypes.data, len(rows), names.ctypes.data, names.size)
        outcome: int = self._scan(data.ctypes.data, data.size, base, total, *table, state.ctypes.data)
        return outcome

    def samples(
        self,
        data: NDArray[np.uint8],
        starts: NDArray[np.int64],
        lengths: NDArray[np.int64],
        rows: NDArray[np.int64],
        names: NDArray[np.uint8],
        ends: NDArray[np.int64],
        state: NDArray[np.int64],
    ) -> int:
        """Scan whole samples."""
        spans = (starts.ctypes.data, lengths.ctypes.data, starts.size)
        table = (rows.ctypes.data, len(rows), names.ctypes.data, names.size)
        outcome: int = self._samples(data.ctypes.data, data.size, *spans, *table, ends.ctypes.data, state.ctypes.data)
        return outcome
