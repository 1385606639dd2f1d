"""Blocks of remote objects in files of this machine, each fetched once for all processes that share the folder.

Three parts: locks between processes, the folder of checked blocks within a bound, and `BlockCache`, which reads spans through it.
"""

from __future__ import annotations

import hashlib
import os
import stat
import threading
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple, Protocol

import numpy as np

from penstock._contracts.process import refuse_on_windows
from penstock._contracts.storage import StorageOptions, lock_file
from penstock._contracts.transform import Scratch
from penstock.errors import StorageError
from penstock.kernels.library import Ints, Uint8s

_FOLDER = "penstock-blocks-1"
_USAGE = "usage"
_PIECE_BYTES = 32 * 1024
_MAGIC = b"PSBLOCK1"
_KEPT = 0.9
"""How much of the bound is left when it was reached, so that not every block that comes looks at all of them."""
_FRESH_S = 1.0


# -- locks -------------------------------------------------------------------------------------------------------------------------


class FileLock:
    """A lock that is held, on a file of that name; the file goes with it."""

    __slots__ = ("_descriptor", "path")

    def __init__(self, path: str, descriptor: int) -> None:
        self.path = path
        self._descriptor = descriptor

    def release(self) -> None:
        """Remove the file and release it. A waiter then finds another file under the name, and locks that."""
        try:
            _unlink(self.path)
        finally:
            os.close(self._descriptor)


def try_lock(path: str) -> FileLock | None:
    """Take a lock if it is free.

    Raises:
        OSError: the file cannot be made.
    """
    while True:
        descriptor = _open(path)
        try:
            lock_file(descriptor)
        except BlockingIOError:
            os.close(descriptor)
            return None
        except BaseException:
            os.close(descriptor)
            raise
        if _is_current(descriptor, path):
            return FileLock(path, descriptor)
        os.close(descriptor)


def wait_for_lock(path: str, limit_s: float) -> FileLock:
    """Take a lock; wait for its holder.

    The kernel knows no lock with a time limit, so a thread waits in our place. When time is up it is left waiting, and ends with the lock.

    Raises:
        StorageError: the time is up.
        OSError: the file cannot be made.
    """
    deadline = time.monotonic() + limit_s
    while True:
        lock = try_lock(path)
        if lock is not None:
            return lock
        waiter = _Waiter(path)
        waiter.join(max(0.0, deadline - time.monotonic()))
        if waiter.is_alive():
            raise StorageError(
                f"another process holds {path!r} and did not finish in {limit_s:g} s",
                where=path,
                fix="look for a process that hangs; or give another cache_dir",
            )
        if waiter.error is not None:
            raise waiter.error


@contextmanager
def held(path: str) -> Iterator[int]:
    """Hold the lock of a file that stays, for a short time; gives its descriptor."""
    descriptor = _open(path)
    try:
        lock_file(descriptor, waits=True)
        yield descriptor
    finally:
        os.close(descriptor)


class _Waiter(threading.Thread):
    """Waits until a lock was free once."""

    def __init__(self, path: str) -> None:
        super().__init__(name="penstock-lock", daemon=True)
        self.error: OSError | None = None
        self._path = path
        self.start()

    def run(self) -> None:
        try:
            descriptor = _open(self._path)
            try:
                lock_file(descriptor, waits=True)
            finally:
                os.close(descriptor)
        except OSError as error:
            self.error = error


def _open(path: str) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT, 0o666)


def _is_current(descriptor: int, path: str) -> bool:
    """Tell whether the file of a lock is still the one of that name: its last holder may have removed it."""
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return False
    return os.path.samestat(status, os.fstat(descriptor))


# -- files -------------------------------------------------------------------------------------------------------------------------


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
            descriptor = os.open(self._block(name), os.O_RDONLY)
        except FileNotFoundError:
            return False
        try:
            status = os.fstat(descriptor)
            if status.st_size != _file_size(size):
                return None
            if time.time() - status.st_mtime > _FRESH_S:
                os.utime(descriptor)  # the block used last is dropped last
            return _read_checked(descriptor, size, begin, out)
        finally:
            os.close(descriptor)

    def store(self, name: str, payload: Uint8s) -> None:
        """Keep a block, and drop others if there is no room; the caller holds its lock.

        Raises:
            OSError: as the system says it, such as that the disk is full.
        """
        path = self._block(name)
        total = _file_size(len(payload))
        with held(self._usage_path()) as usage:
            used = self._with_room(usage, total)
            if used + total > self._max_bytes:
                return  # blocks being written leave no room; a cache may forget
            # With its full size from the beginning, so that a process that counts the files meanwhile counts it in full.
            descriptor = os.open(f"{path}.tmp", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
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
        with held(self._usage_path()):  # a listing at this moment could miss both names
            os.rename(f"{path}.tmp", path)

    def remove(self, name: str) -> None:
        """Drop a block whose file is damaged; the caller holds its lock.

        Raises:
            OSError: as the system says it.
        """
        _unlink(self._block(name))

    def try_lock(self, name: str) -> FileLock | None:
        """Take the lock for fetching a block, if it is free.

        Raises:
            OSError: as the system says it.
        """
        os.makedirs(os.path.dirname(self._block(name)), exist_ok=True)
        return try_lock(f"{self._block(name)}.lock")

    def wait_for_lock(self, name: str, limit_s: float) -> FileLock:
        """Wait for the process that fetches a block, and take its lock.

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
            if not path.endswith(".tmp"):
                _unlink(path)  # a read that has it open goes on
                used -= size
        return used

    def _files(self) -> list[tuple[float, int, str]]:
        """List the files (time of last use, bytes, path); files that dead processes left half-written are removed."""
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
        _unlink(path)
    finally:
        lock.release()
    return True


def _unlink(path: str) -> None:
    with suppress(FileNotFoundError):  # another process was faster, or the folder was emptied
        os.unlink(path)


def _num_pieces(size: int) -> int:
    return -(-size // _PIECE_BYTES)


def _file_size(size: int) -> int:
    return size + 4 * _num_pieces(size) + 4 + len(_MAGIC)


def _write_all(descriptor: int, payload: Uint8s) -> None:
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


# -- reads -------------------------------------------------------------------------------------------------------------------------


class Fetching(Protocol):
    """The source of blocks that are not in the folder."""

    def size(self, file: int) -> int:
        """Return the bytes of an object."""

    def cache_key(self, file: int) -> str:
        """Return a text that no other version of any object has."""

    def fetch(self, files: list[int], begins: list[int], lengths: list[int], out: Uint8s) -> None:
        """Fetch ranges, one behind the other."""


class _Want(NamedTuple):
    """The wanted bytes of one block: from `low` on, into `view`."""

    name: str
    file: int
    begin: int
    size: int
    low: int
    view: memoryview


class BlockCache:
    """Blocks of objects, fetched once for all processes that share the folder. From any thread.

    Args:
        options: with a `cache_dir`.
    """

    def __init__(self, options: StorageOptions) -> None:
        assert options.cache_dir is not None
        refuse_on_windows("cache_dir=", "leave it out")
        self._options = options
        self._folder = CacheFolder(os.fspath(options.cache_dir), options.cache_bytes)
        self._mended: set[str] = set()

    def read_spans(self, source: Fetching, files: Ints, offsets: Ints, lengths: Ints, scratch: Scratch | None) -> tuple[Uint8s, Ints]:
        """Read spans, fetching whole blocks that are not there yet.

        Raises:
            StorageError: as the source; a block is damaged again after it was fetched again; another process takes too long to fetch one.
            ObjectChanged: as the source.
            OSError: the folder cannot be written.
        """
        hulls, starts = _hulls(files, offsets, lengths, self._options.cache_block_bytes)
        total = sum(high - low for _, _, low, high in hulls)
        out = np.empty(total, np.uint8) if scratch is None else scratch.take("spans", (total,), np.uint8)
        missing, place = [], 0
        for file, block, low, high in hulls:
            want = self._want(source, file, block, low, out.data[place : place + high - low])
            place += high - low
            if not self._folder.load(want.name, want.size, want.low, want.view):
                missing.append(want)
        at_once = self._options.max_requests
        for first in range(0, len(missing), at_once):
            self._fill(source, missing[first : first + at_once])
        return out, starts

    def _want(self, source: Fetching, file: int, block: int, low: int, view: memoryview) -> _Want:
        width = self._options.cache_block_bytes
        begin = block * width
        return _Want(block_name(source.cache_key(file), block, width), file, begin, min(width, source.size(file) - begin), low, view)

    def _fill(self, source: Fetching, missing: list[_Want]) -> None:
        """Fetch at once the blocks that no other process fetches, then wait for the others: no process waits while it holds a lock."""
        others: list[_Want] = []
        mine: list[tuple[_Want, FileLock]] = []
        try:
            for want in missing:
                lock = self._folder.try_lock(want.name)
                if lock is None:
                    others.append(want)
                    continue
                mine.append((want, lock))
            self._fetch(source, [want for want, _ in mine])
        finally:
            for _, lock in mine:
                lock.release()
        for want in others:
            lock = self._folder.wait_for_lock(want.name, self._options.deadline_s)
            try:
                self._fetch(source, [want])
            finally:
                lock.release()

    def _fetch(self, source: Fetching, wants: list[_Want]) -> None:
        left = [want for want in wants if not self._is_there_now(want)]
        data = np.empty(sum(want.size for want in left), np.uint8)
        source.fetch([want.file for want in left], [want.begin for want in left], [want.size for want in left], data)
        place = 0
        for want in left:
            block = data[place : place + want.size]
            place += want.size
            want.view[:] = block.data[want.low : want.low + len(want.view)]
            self._folder.store(want.name, block)

    def _is_there_now(self, want: _Want) -> bool:
        """Look again, now that the lock is ours; drop the block when it is damaged."""
        is_there = self._folder.load(want.name, want.size, want.low, want.view)
        if is_there is None:
            if want.name in self._mended:
                raise StorageError(
                    f"a block in cache_dir={os.fspath(self._options.cache_dir or '')!r} is damaged again after it was fetched again",
                    where=want.name,
                    fix="check the disk; or give another cache_dir",
                )
            self._mended.add(want.name)
            self._folder.remove(want.name)
        return bool(is_there)


def _hulls(files: Ints, offsets: Ints, lengths: Ints, width: int) -> tuple[list[tuple[int, int, int, int]], Ints]:
    """Return (file, block, low, high) of each block that spans touch, in order, and where each span begins in all of them joined."""
    wanted: dict[tuple[int, int], tuple[int, int]] = {}
    spans = list(zip(files.tolist(), offsets.tolist(), lengths.tolist(), strict=True))
    for file, offset, length in spans:
        for block in range(offset // width, -(-(offset + length) // width) if length else 0):
            low, high = wanted.get((file, block), (width, 0))
            wanted[file, block] = (min(low, max(0, offset - block * width)), max(high, min(width, offset + length - block * width)))
    hulls, places, place = [], {}, 0
    for file, block in sorted(wanted):
        low, high = wanted[file, block]
        hulls.append((file, block, low, high))
        places[file, block] = place - low
        place += high - low
    starts = [places[file, offset // width] + offset % width if length else 0 for file, offset, length in spans]
    return hulls, np.array(starts, np.int64)
