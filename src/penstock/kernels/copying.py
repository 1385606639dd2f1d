"""`bytes` objects of large spans, filled by one call that holds no GIL: other workers go on meanwhile."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, Final

import numpy as np

from penstock.kernels.library import addresses, chosen_library

__all__ = ["LARGE_BYTES", "copies"]

LARGE_BYTES: Final = 16 << 10
"""From here on a copy takes longer than what is to be done around it."""


def copies(views: Sequence[memoryview]) -> list[bytes]:
    """Return the bytes of contiguous views, as `bytes(view)` does; worth it for many of `LARGE_BYTES` and more. From any thread."""
    copy = _chosen()
    return [bytes(view) for view in views] if copy is None or not all(map(len, views)) else copy(views)


@cache
def _chosen() -> Callable[[Sequence[memoryview]], list[bytes]] | None:
    library, python = chosen_library(), getattr(ctypes, "pythonapi", None)
    if library is None or python is None:  # other Pythons than CPython have no such way to fill a new object
        return None
    # Of the stable interface: a new object whose bytes are undefined, to be written before anybody else has seen it.
    new = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_ssize_t)(("PyBytes_FromStringAndSize", python))
    start = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object)(("PyBytes_AsString", python))

    def copy(views: Sequence[memoryview]) -> list[bytes]:
        arrays: list[Any] = [np.frombuffer(view, np.uint8) for view in views]
        made: list[bytes] = [new(None, array.nbytes) for array in arrays]
        sources = addresses(arrays)
        targets = np.array([start(data) for data in made], np.int64)
        lengths = np.array([array.nbytes for array in arrays], np.int64)
        library.copy_spans(sources, targets, lengths, len(made))
        return made

    return copy
