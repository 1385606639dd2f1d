"""The C library: where it lies, which version of it fits this code, and whether this process wants it."""

from __future__ import annotations

import ctypes
import os
from functools import cache
from typing import Final

__all__ = ["LIBRARY", "chosen_library", "load_library"]

LIBRARY: Final = os.path.join(os.path.dirname(__file__), "_penstock.so")  # pathlib would cost 5 ms of import time
# Raised with every change of an argument list, so that an old library beside new Python code is not called.
_INTERFACE: Final = 7


def load_library(path: str | os.PathLike[str] = LIBRARY) -> ctypes.CDLL | None:
    """Open the library; return None when it is not there, cannot be opened here or is of another version."""
    try:
        library = ctypes.CDLL(str(path))
        interface = library.penstock_interface
    except (OSError, AttributeError):
        # Not built, built for another machine, or not ours: the twins give the same bytes, and `backend()` tells which one runs.
        return None
    return library if interface() == _INTERFACE else None


@cache
def chosen_library() -> ctypes.CDLL | None:
    """Return the library that this process uses, None when the NumPy twins are to run. Decided at the first call."""
    # The one environment switch of the library: which of two ways to compute the same bytes.
    if os.environ.get("PENSTOCK_KERNELS") == "numpy":
        return None
    return load_library()
