"""The files of a cache on this machine: one per block, checked piece by piece when read, and never more than so many bytes."""

from __future__ import annotations

import hashlib
import os
import stat
import time
import zlib

import numpy as np
from numpy.typing import NDArray

from penstock._storage.locking import FileLock, held, try_lock, wait_for_lock

__all__ = ["CacheFolder", "block_name"]

_FOLDER = "penstock-blocks-1"
_USAGE = "usage"
_PIECE_BYTES = 32 * 1024
_MAGIC = b"PSBLOCK1"
_KEPT = 0.9
"""How much of the bound is left when it was reached, so that not every block that comes looks at all of them."""
_FRESH_S = 1.0
_FLAGS = os.O_RDONLY | os.O_CLOEXEC


def block_name(key: str, block: int, block_bytes: int) -> str:
    """Return the name of a block: of this version of an object, and no other."""
    text = f"{key}\n{block_bytes}"
    return f"{hashlib.sha256(text.encode()).hexdigest()[:40]}-{block}"


class CacheFolder:
    """Blocks by name. From any thread and process.

    A block's file holds its bytes, a CRC-32 of each 32 kB of them, and a CRC-32 of these. It appears under its name when it is complete.

    Args:
        path: the folder; made when it is not there.
        max_bytes: bound on all files together, those being written included.
    """

    def __init__(self, path: str, max_bytes: int) -> None:
        self._path = os.path.join(os.path.abspath(path), _FOLDER)
        self._max_bytes = max_bytes

    def load(self, name: str, size: int, begin: int, out: memoryview) -> bool | None:
        """Copy bytes of a block from `begin` on to `out`.

        Returns:
            False when there is no such block, None when its file is damaged.

        Raises:
            OSError: as the system says it.
        """
        try:
            descriptor = os.open(self._block(name), _FLAGS)
        except FileNotFoundError:
            return False
        try:
            status = os.fstat(descriptor)
            if status.st_size != _file_size(size):
                return None
            if time.time() - status.st_mtime > _FRESH_S:
                os.utime(descriptor)  # what was used last is dropped last
            return _read_checked(descriptor, size, begin, out)
        finally:
            os.close(descriptor)

    def store(self, name: str, payload: NDArray[np.uint8]) -> None:
        """Keep a block, and drop others if there is no room; the caller holds its lock.

        Raises:
            OSError: as the system says it, such as that the disk is full.
        """
        path = self._block(name)
        total = _file_size(len(payload))
        with held(self._usage_path()) as usage:
            used = self._with_room(usage, total)
            if used + total > self._max_bytes:
                return  # what many others are writing now leaves no room; a cache may forget
            # With its full size from the beginning: who counts files meanwhile counts what this one will be.
            descriptor = os.open(f"{path}.tmp", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
            try:
                os.ftruncate(descriptor, total)
                os.pwrite(usage, (used + total).to_bytes(8, "little"), 0)
                os.ftruncate(usage, 8)
            except BaseException:
                os.unlink(f"{path}.tmp")
                os.close(descriptor)
                raise
        try:
            _write_all(descriptor, payload)
        except BaseException:
            os.unlink(f"{path}.tmp")
            raise
        finally:
            os.close(descriptor)
        with held(self._usage_path()):  # who lists files meanwhile could see a new name as little as the old one
            os.rename(f"{path}.tmp", path)

    def remove(self, name: str) -> None:
        """Drop a block whose file is damaged; the caller holds its lock.

        Raises:
            OSError: as the system says it.
        """
        try:
            os.unlink(self._block(name))
        except FileNotFoundError:
            pass  # evicted meanwhile

    def try_lock(self, name: str) -> FileLock | None:
        """Become the one who fetches a block, if nobody is.

        Raises:
            OSError: as the system says it.
        """
        os.makedirs(os.path.dirname(self._block(name)), exist_ok=True)
        return try_lock(f"{self._block(name)}.lock")

    def wait_for_lock(self, name: str, limit_s: float) -> FileLock:
        """Wait for who fetches a block, and become the next.

        Raises:
            StorageError: it takes too long.
            OSError: as the system says it.
        """
        return wait_for_lock(f"{self._block(name)}.lock", limit_s)

    def _block(self, name: str) -> str:
        return os.path.join(self._path, name[:2], name)

    def _usage_path(self) -> str:
        return os.path.join(self._path, _USAGE)

    def _with_room(self, usage: int, wanted: int) -> int:
        """Make room, and return the bytes in use. The number that is kept may be too large after a crash, and never too small."""
        noted = os.pread(usage, 9, 0)
        used = int.from_bytes(noted, "little") if len(noted) == 8 else self._max_bytes + 1
        return used if used + wanted <= self._max_bytes else self._evict(wanted)

    def _evict(self, wanted: int) -> int:
        files = sorted(self._files())
        used = sum(size for _, size, _ in files)
        if used + wanted <= self._max_bytes:
            return used
        for _, size, path in files:
            if used + wanted <= self._max_bytes * _KEPT:
                break
            if path.endswith(".tmp") or not _unlinked(path):  # who reads it has it open, and reads on
                continue
            used -= size
        return used

    def _files(self) -> list[tuple[float, int, str]]:
        """List the files (time of last use, bytes, path); what dead processes left half-written is removed."""
        found = []
        for folder in os.scandir(self._path):
            for entry in os.scandir(folder) if folder.is_dir() else ():
                if entry.name.endswith(".lock") or _removed_leftover(entry.path):
                    continue
                try:
                    status = entry.stat()
                except FileNotFoundError:
                    continue
                if stat.S_ISREG(status.st_mode):
                    found.append((status.st_mtime, status.st_size, entry.path))
        return found


def _removed_leftover(path: str) -> bool:
    if not path.endswith(".tmp"):
        return False
    lock = try_lock(f"{path.removesuffix('.tmp')}.lock")
    if lock is None:
        return False  # it is being written
    try:
        return _unlinked(path)
    finally:
        lock.release()


def _unlinked(path: str) -> bool:
    try:
        os.unlink(path)
    except FileNotFoundError:
        return True
    return True


def _num_pieces(size: int) -> int:
    return -(-size // _PIECE_BYTES)


def _file_size(size: int) -> int:
    return size + 4 * _num_pieces(size) + 4 + len(_MAGIC)


def _write_all(descriptor: int, payload: NDArray[np.uint8]) -> None:
    view = payload.data
    sums = b"".join(zlib.crc32(view[at : at + _PIECE_BYTES]).to_bytes(4, "little") for at in range(0, len(view), _PIECE_BYTES))
    _write(descriptor, view)
    _write(descriptor, memoryview(sums + zlib.crc32(sums).to_bytes(4, "little") + _MAGIC))


def _write(descriptor: int, data: memoryview) -> None:
    while len(data):
        data = data[os.write(descriptor, data) :]


def _read_checked(descriptor: int, size: int, begin: int, out: memoryview) -> bool | None:
    end = begin + len(out)
    first, behind = begin // _PIECE_BYTES, _num_pieces(end)
    low, high = first * _PIECE_BYTES, min(behind * _PIECE_BYTES, size)
    data, tail = os.pread(descriptor, high - low, low), os.pread(descriptor, _file_size(size) - size, size)
    sums, check = tail[: 4 * _num_pieces(size)], tail[4 * _num_pieces(size) :]
    if len(data) != high - low or check != zlib.crc32(sums).to_bytes(4, "little") + _MAGIC:
        return None
    view = memoryview(data)
    for piece in range(first, behind):
        at = (piece - first) * _PIECE_BYTES
        if zlib.crc32(view[at : at + _PIECE_BYTES]) != int.from_bytes(sums[4 * piece : 4 * piece + 4], "little"):
            return None
    out[:] = view[begin - low : end - low]
    return True
