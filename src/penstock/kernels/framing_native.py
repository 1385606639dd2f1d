"""CRC32C and frames in C. Arguments are taken as `penstock.kernels.framing` left them; from any thread."""

from __future__ import annotations

import ctypes
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

__all__ = ["NativeFraming"]

_POINTER, _INT64, _UINT32, _INT = ctypes.c_void_p, ctypes.c_int64, ctypes.c_uint32, ctypes.c_int
_SIGNATURES: Final = {
    "penstock_crc32c": (_UINT32, [_POINTER, _INT64, _UINT32]),
    "penstock_scan_frames": (_INT64, [_POINTER, _INT64, _INT64, _INT64, _INT, _INT64, _POINTER, _POINTER, _INT64, _POINTER]),
    "penstock_check_frames": (_INT64, [_POINTER, _INT64, _POINTER, _POINTER, _INT64, _INT, _POINTER]),
}


class NativeFraming:
    """The functions of an open library, with the argument lists of `penstock.kernels.framing_twin`."""

    def __init__(self, library: ctypes.CDLL) -> None:
        for function_name, (result, arguments) in _SIGNATURES.items():
            function = getattr(library, function_name)
            function.restype = result
            function.argtypes = arguments
        self._crc32c = library.penstock_crc32c
        self._scan_frames = library.penstock_scan_frames
        self._check_frames = library.penstock_check_frames

    def crc32c(self, data: NDArray[np.uint8] | bytes, num: int, value: int) -> int:
        """Continue a check sum."""
        crc: int = self._crc32c(data if isinstance(data, bytes) else data.ctypes.data, num, value)
        return crc

    def scan_frames(
        self,
        buffer: NDArray[np.uint8],
        bounds: tuple[int, int, int, int],
        offsets: NDArray[np.int64],
        lengths: NDArray[np.int64],
        state: NDArray[np.int64],
    ) -> int:
        """Find frames; bounds: left, limit, mode, base. `state` gets position, status and detail. Return their number."""
        left, limit, mode, base = bounds
        places = (offsets.ctypes.data, lengths.ctypes.data, lengths.size, state.ctypes.data)
        count: int = self._scan_frames(buffer.ctypes.data, buffer.size, left, limit, mode, base, *places)
        return count

    def check_frames(
        self,
        buffer: NDArray[np.uint8],
        starts: NDArray[np.int64],
        lengths: NDArray[np.int64],
        check_data: bool,
        statuses: NDArray[np.uint8],
    ) -> int:
        """Write the status of each frame; return the number of bad ones."""
        spans: tuple[Any, ...] = (starts.ctypes.data, lengths.ctypes.data, starts.size)
        num_bad: int = self._check_frames(buffer.ctypes.data, buffer.size, *spans, check_data, statuses.ctypes.data)
        return num_bad
