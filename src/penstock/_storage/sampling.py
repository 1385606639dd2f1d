"""Check sums of a few blocks of a file: whether it is still the same, without reading it all."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from penstock._contracts.storage import Storage
from penstock.kernels.framing import crc32c

__all__ = ["WHOLE_BYTES", "sample", "sampled_spans"]

_BLOCKS = 64
_BLOCK_BYTES = 4096
WHOLE_BYTES = _BLOCKS * _BLOCK_BYTES
"""Of a file of at most this size, the samples are all bytes."""


def sampled_spans(size: int) -> tuple[NDArray[np.int64], int]:
    """Return where the blocks of a file of `size` bytes begin, and their length: all of a small file, else 64 of 4 kB, with both ends."""
    if size <= WHOLE_BYTES:
        return np.zeros(1, np.int64), size
    places = np.array([number * (size - _BLOCK_BYTES) // (_BLOCKS - 1) for number in range(_BLOCKS)], np.int64)
    return places, _BLOCK_BYTES


def sample(storage: Storage, file: int) -> int:
    """Return the check sum of the sampled blocks of a file. Blocks for one read of them all.

    Raises:
        SourceError, OSError: as `Storage.read`.
    """
    offsets, length = sampled_spans(storage.size(file))
    data, begins = storage.read_spans(np.full(len(offsets), file, np.int64), offsets, np.full(len(offsets), length, np.int64), None)
    crc = 0
    for begin in begins.tolist():
        crc = crc32c(data[begin : begin + length], crc)
    return crc
