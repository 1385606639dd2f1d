"""Blocks of remote objects in files of this machine, each fetched once for all processes that share the folder.

Three parts: locks between processes, the folder of checked blocks within a bound, and `BlockCache`, which reads spans through it.
"""

from __future__ import annotations

import hashlib
import os
import time
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from penstock._contracts.storage import StorageOptions, lock_file, write_all
from penstock._contracts.transform import Scratch
from penstock._system.process import refuse_on_windows
from penstock.errors import StorageError
from penstock.kernels.library import Ints, Uint8s

if TYPE_CHECKING:
    from penstock._storage.remote import RemoteStorage

_FOLDER = "penstock-blocks-2"
_USAGE = "usage"
_PIECE_BYTES = 32 * 1024
_SUM_BYTES = 4
_KEPT = 0.9
"""How much of the bound is left when it was reached, so that not every block that comes looks at all of them."""
_FRESH_S = 1.0
_POLL_S = 0.01


# -- locks -------------------------------------------------------------------------------------------------------------------------


class FileLock:
    """A lock that is held, on a file of that name; the file goes with it."""

    def __init__(self, path: str, descriptor: int) -> None:
        self._path = path
        self._descriptor = descriptor

    def release(self) -> None:
        """Remove the file and release it; may be called again. A waiter then finds another file under the name, and locks that."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            try:
                _unlink(self._path)
            finally:
                os.close(descriptor)


def try_lock(path: str) -> FileLock | None:
    """Take a lock if it is free.

    Raises:
        OSError: the file cannot be made.
    """
    while True:
        descriptor = _open(path)
        try:
            lock_file(descriptor)
            if os.path.samestat(os.stat(path), os.fstat(descriptor)):
                lock, descriptor = FileLock(path, descriptor), -1
                return lock
        except FileNotFoundError:
            continue  # its last holder removed the file before we locked it
        except BlockingIOError:
            return None
        finally:
            if descriptor >= 0:
                os.close(descriptor)


@contextmanager
def held(path: str) -> Iterator[int]:
    """Hold the lock of a file that stays, for a short time; gives its descriptor."""
    descriptor = _open(path)
    try:
        lock_file(descriptor, waits=True)
        yield descriptor
    finally:
        os.close(descriptor)


def _open(path: str) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT, 0o666)


def _unlink(path: str) -> None:
    with suppress(FileNotFoundError):  # another process was faster, or the folder was emptied
        os.unlink(path)


# -- files -------------------------------------------------------------------------------------------------------------------------


def block_name(key: str, block: int, block_bytes: int) -> str:
    """Return the name of a block: of this version of an object, and no other."""
    text = f"{key}\n{block_bytes}"
    return f"{hashlib.sha256(text.encode()).hexdigest()[:40]}-{block}"


class CacheFolder:
    """Blocks by name. From any thread and process.

    A block's file holds its bytes, and a CRC-32 of each 32 kB of them. It appears under its name when it is complete.

    Args:
        path: the folder; made when it is not there.
        max_bytes: bound on all files together, the one being written included.
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
            first, behind = begin // _PIECE_BYTES, -(-(begin + len(out)) // _PIECE_BYTES)
            low = first * _PIECE_BYTES
            data = memoryview(os.pread(descriptor, min(behind * _PIECE_BYTES, size) - low, low))
            if os.pread(descriptor, (behind - first) * _SUM_BYTES, size + first * _SUM_BYTES) != _sums(data):
                return None
            out[:] = data[begin - low : begin - low + len(out)]
            return True
        finally:
            os.close(descriptor)

    def store(self, name: str, payload: Uint8s) -> None:
        """Keep a block, and drop others if there is no room; the caller holds its lock. One process writes at a time.

        Raises:
            OSError: as the system says it, such as that the disk is full.
        """
        path, total = self._block(name), _file_size(len(payload))
        with held(os.path.join(self._path, _USAGE)) as usage:
            noted = os.pread(usage, 9, 0)
            used = int.from_bytes(noted, "little") if len(noted) == 8 else self._max_bytes
            if used + total > self._max_bytes:
                used = self._evict(total)
            # Before the block is there: after a crash the number may be too large, and never too small.
            os.pwrite(usage, (used + total).to_bytes(8, "little"), 0)
            os.ftruncate(usage, 8)
            try:
                with open(f"{path}.tmp", "wb", buffering=0) as file:
                    for data in (payload.data, _sums(payload.data)):
                        write_all(file.fileno(), data)
                os.rename(f"{path}.tmp", path)
            except BaseException:
                _unlink(f"{path}.tmp")
                raise

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
        os.makedirs(self._path, exist_ok=True)
        return try_lock(f"{self._block(name)}.lock")

    def wait_for_lock(self, name: str, limit_s: float) -> FileLock:
        """Wait for the process that fetches a block, and take its lock.

        Raises:
            StorageError: it takes too long.
            OSError: as the system says it.
        """
        deadline = time.monotonic() + limit_s
        while (lock := self.try_lock(name)) is None:
            if time.monotonic() > deadline:
                raise StorageError(
                    f"another process holds {self._block(name) + '.lock'!r} and did not finish in {limit_s:g} s",
                    where=self._block(name),
                    fix="look for a process that hangs; or give another cache_dir",
                )
            time.sleep(_POLL_S)
        return lock

    def _block(self, name: str) -> str:
        return os.path.join(self._path, name)

    def _evict(self, wanted: int) -> int:
        """Make room, and return the bytes that are left. What is half-written is of a process that died: the lock is ours."""
        found = []
        for entry in os.scandir(self._path):
            with suppress(FileNotFoundError):  # a lock that was released, or a damaged block
                if entry.name.endswith(".tmp"):
                    _unlink(entry.path)
                elif entry.name != _USAGE and not entry.name.endswith(".lock"):
                    status = entry.stat()
                    found.append((status.st_mtime, status.st_size, entry.path))
        used = sum(size for _, size, _ in found)
        most = self._max_bytes - wanted if used + wanted <= self._max_bytes else self._max_bytes * _KEPT - wanted
        for _, size, path in sorted(found):
            if used <= most:
                break
            _unlink(path)  # a read that has it open goes on
            used -= size
        return used


def _file_size(size: int) -> int:
    return size - (-size // _PIECE_BYTES) * _SUM_BYTES


def _sums(data: memoryview) -> bytes:
    return b"".join(zlib.crc32(data[at : at + _PIECE_BYTES]).to_bytes(_SUM_BYTES, "little") for at in range(0, len(data), _PIECE_BYTES))


# -- reads -------------------------------------------------------------------------------------------------------------------------


class Range(NamedTuple):
    """Bytes of an object from `begin` on, to fill `target`, uint8 [n]."""

    file: int
    begin: int
    target: Uint8s


class _Want(NamedTuple):
    """The wanted bytes of one block: from `low` on, into `view`."""

    name: str
    file: int
    begin: int
    size: int
    low: int
    view: memoryview


def take(scratch: Scratch | None, count: int) -> Uint8s:
    """Return room for bytes."""
    return np.empty(count, np.uint8) if scratch is None else scratch.take("spans", (count,), np.uint8)


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

    def read_spans(self, source: RemoteStorage, files: Ints, offsets: Ints, lengths: Ints, scratch: Scratch | None) -> tuple[Uint8s, Ints]:
        """Read spans, fetching whole blocks that are not there yet.

        Raises:
            StorageError: as the source; a block is damaged again after it was fetched again; another process takes too long to fetch one.
            ObjectChanged: as the source.
            OSError: the folder cannot be written.
        """
        hulls, starts = _hulls(files, offsets, lengths, self._options.cache_block_bytes)
        total = sum(high - low for _, _, low, high in hulls)
        out, width, missing, place = take(scratch, total), self._options.cache_block_bytes, list[_Want](), 0
        for file, block, low, high in hulls:
            begin, view = block * width, out.data[place : place + high - low]
            size = min(width, source.size(file) - begin)
            want = _Want(block_name(source.cache_key(file), block, width), file, begin, size, low, view)
            place += high - low
            if not self._folder.load(want.name, size, low, view):
                missing.append(want)
        at_once = self._options.max_requests
        for first in range(0, len(missing), at_once):
            self._fill(source, missing[first : first + at_once])
        return out, starts

    def _fill(self, source: RemoteStorage, missing: list[_Want]) -> None:
        """Fetch at once the blocks that no other process fetches, then wait for the others: no process waits while it holds a lock."""
        others, mine = list[_Want](), list[_Want]()
        with ExitStack() as locks:
            for want in missing:
                lock = self._folder.try_lock(want.name)
                if lock is not None:
                    locks.callback(lock.release)
                (others if lock is None else mine).append(want)
            self._fetch(source, mine)
        for want in others:
            with ExitStack() as locks:
                locks.callback(self._folder.wait_for_lock(want.name, self._options.deadline_s).release)
                self._fetch(source, [want])

    def _fetch(self, source: RemoteStorage, wants: list[_Want]) -> None:
        left = [want for want in wants if not self._is_there_now(want)]
        ranges = [Range(want.file, want.begin, np.empty(want.size, np.uint8)) for want in left]
        source.fetch(ranges)
        for want, (_, _, block) in zip(left, ranges, strict=True):
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
