"""Read whole regular files, and nothing else."""

from __future__ import annotations

import contextlib
import os
import stat

import numpy as np

from penstock import kernels
from penstock._contracts.transform import Scratch
from penstock._storage.local import kind_of_file
from penstock.errors import SourceError
from penstock.kernels.spans_twin import FLAGS

__all__ = ["fetch_ahead", "read_ends", "read_file", "read_file_into"]

_CHUNK_BYTES = 1 << 20
_END_BYTES = 4096
_FIRST_BYTES = 1 << 20


def read_file(path: str) -> bytes:
    """Read all of a regular file with open, fstat, one read and close (no buffer object, no copy).

    Args:
        path: where it is.

    Raises:
        FileNotFoundError, PermissionError, OSError: as the system says it, with the path.
        SourceError: the path leads to a directory, pipe, device or socket; it is never read, and never waited for.
    """
    descriptor = os.open(path, FLAGS)
    try:
        status = os.fstat(descriptor)
        if status.st_mode & 0o170000 != 0o100000:
            raise _not_regular(path, status.st_mode)
        size = status.st_size
        # One byte more than the size: a read that comes back short has seen the end.
        data = os.read(descriptor, size + 1)
        if len(data) == size and size:
            return data
        return _read_rest(descriptor, data)
    finally:
        os.close(descriptor)


def read_file_into(path: str, scratch: Scratch) -> bytes | memoryview:
    """Read all of a regular file into working memory, whose pages are there already: 100 kB of new bytes cost 25 page faults.

    Returns:
        A view that is valid until the next call with this scratch; or bytes, for a file whose size does not say how long it is.

    Raises:
        OSError: as the system says it.
        SourceError: as `read_file`.
    """
    encoded = os.fsencode(path)
    buffer = scratch.take("file", (_FIRST_BYTES,), np.uint8)
    count = kernels.read_file(encoded, buffer)
    if count < -1:
        buffer = scratch.take("file", (-1 - count,), np.uint8)
        count = kernels.read_file(encoded, buffer)
    return read_file(path) if count < 0 else buffer[:count].data


def fetch_ahead(path: str) -> None:
    """Have the system begin to read a file, without waiting for it; errors of the file are raised when it is read.

    About 10 us; on systems without posix_fadvise (macOS) nothing happens.
    """
    if not hasattr(os, "posix_fadvise"):
        return
    with contextlib.suppress(OSError):
        descriptor = os.open(path, FLAGS)
        try:
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_WILLNEED)
        finally:
            os.close(descriptor)


def _read_rest(descriptor: int, data: bytes) -> bytes:
    """Read on to the end: a file that grows, one larger than one read may be (2 GiB), or one without a size, as in /proc."""
    parts = [data]
    while parts[-1]:
        parts.append(os.read(descriptor, _CHUNK_BYTES))
    return b"".join(parts)


def read_ends(path: str) -> tuple[int, bytes, bytes]:
    """Return size, first and last 4 kB of a regular file; (-1, reason, b"") when it cannot be read."""
    try:
        descriptor = os.open(path, FLAGS)
    except OSError as error:
        return -1, str(error.errno).encode(), b""
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            return -1, b"not regular", b""
        head = os.read(descriptor, _END_BYTES)
        if status.st_size <= _END_BYTES:
            return status.st_size, head, b""
        os.lseek(descriptor, max(_END_BYTES, status.st_size - _END_BYTES), os.SEEK_SET)
        return status.st_size, head, os.read(descriptor, _END_BYTES)
    finally:
        os.close(descriptor)


def _not_regular(path: str, mode: int) -> SourceError:
    return SourceError(
        f"{path!r} is {kind_of_file(mode)}, not a regular file", where=f"reading {path!r}", fix="take it out of the list or pattern"
    )
