"""Working memory that the kernel can write to by a descriptor: what spans are copied into out of maps of files."""

from __future__ import annotations

import mmap
import os
import weakref
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Sink", "can_sink"]

_LEAST_BYTES = 1 << 20


def can_sink() -> bool:
    """Tell whether this system has anonymous files."""
    return hasattr(os, "memfd_create")


class Sink:
    """An anonymous file and a map of it, which grow. For one thread. What it gave is valid until it is asked again."""

    def __init__(self) -> None:
        """Prepare; the file is made at the first use."""
        self._descriptor = -1
        self._owner = 0
        self._bytes = np.empty(0, np.uint8)
        self._closing: Any = None

    def room(self, num_bytes: int) -> tuple[NDArray[np.uint8], int]:
        """Return uint8 [num_bytes], not cleared, and the descriptor of the file that it is the beginning of.

        Raises:
            OSError: no memory or no descriptor is left.
        """
        if self._owner != os.getpid():
            # After a fork parent and child would write into one file. The child leaves the parent's descriptor alone.
            self._descriptor, self._owner, self._bytes = os.memfd_create("penstock-spans"), os.getpid(), np.empty(0, np.uint8)
            if self._closing is not None:
                self._closing.detach()
            self._closing = weakref.finalize(self, _close, self._descriptor, self._owner)
            self._closing.atexit = False
        if num_bytes > self._bytes.size:
            size = max(_LEAST_BYTES, 1 << (num_bytes - 1).bit_length())
            os.ftruncate(self._descriptor, size)  # pages come when they are written to
            self._bytes = np.frombuffer(mmap.mmap(self._descriptor, size), np.uint8)
        return self._bytes[:num_bytes], self._descriptor


def _close(descriptor: int, owner: int) -> None:
    if owner == os.getpid():
        os.close(descriptor)
