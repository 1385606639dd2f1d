"""Whether a file of this machine is the one that it was: what indices, catalogues, `cache` and `pack` ask.

The stamp of a file is what the system says without a look inside: size, modification time, and a mark of that time, the inode and the time
of the last change of any kind (ctime), which no program can set back. An equal stamp is the same file. Another one says nothing: copies,
links and `chmod` make one too. Then the samples are compared: a check sum of all bytes of a small file, else of 64 blocks, with both ends.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from penstock._contracts.storage import Storage
from penstock.kernels.framing import crc32c
from penstock.kernels.library import Ints
from penstock.kernels.spans import as_int64, known_of

TICK_NS = 2_000_000_000
"""The coarsest clock of a file system in use: a younger file may be written to again without another modification time."""

CLOCK_NS = 20_000_000
"""The times that the system gives are that much behind the clock, at most."""

_BLOCKS = 64
_BLOCK_BYTES = 4096
WHOLE_BYTES = _BLOCKS * _BLOCK_BYTES
"""Of a file of at most this size, the samples are all bytes."""


def stamps(paths: Iterable[str]) -> Ints:
    """Look at files, about 3 us each.

    Returns:
        int64 [n, 3]: size, modification time in ns and mark; of one that cannot be looked at -1, the number of the error, and a mark.
    """
    known, changed_ns = list[tuple[int, int, int]](), list[int]()
    for path in paths:
        try:
            status = os.stat(path)
        except OSError as error:
            known.append((-1, error.errno or 0, 0))
            changed_ns.append(0)
        else:
            known.append(known_of(status))
            changed_ns.append(status.st_ctime_ns)
    out = np.array(known, np.int64).reshape(-1, 3)
    out[:, 2] = marks(out, changed_ns)
    return out


def marks(known: Ints, changed_ns: Sequence[int]) -> Ints:
    """Mix what no copy and no program keeps: int64 [n] from 0 on. Waits at most 20 ms, until whatever is changed now gets another time.

    Args:
        known: int64 [n, 3], as `known_of` gives it.
        changed_ns: n times of the last change of any kind.
    """
    left_ns = max(changed_ns, default=0) + CLOCK_NS - time.time_ns()
    if 0 < left_ns <= CLOCK_NS:
        time.sleep(left_ns / 1e9)
    mixed = np.array([as_int64(changed) for changed in changed_ns], np.int64).view(np.uint64)
    for column, factor in ((1, 0x9E3779B97F4A7C15), (2, 0xD6E8FEB86659FD93)):
        mixed = (mixed ^ known[:, column].astype(np.int64).view(np.uint64)) * np.uint64(factor)
        mixed ^= mixed >> np.uint64(29)
    return (mixed >> np.uint64(1)).view(np.int64)


def is_young(identity: dict[str, Any]) -> bool:
    """Tell whether a file was written to in these seconds, or in the future: it may be again, without a trace in size and time."""
    return bool(identity.get("mtime_ns", 0) > time.time_ns() - TICK_NS)


def sampled_spans(size: int) -> tuple[Ints, int]:
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
