"""Reads remote objects through blocks that are kept on this machine."""

from __future__ import annotations

import os
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from penstock._contracts.storage_options import StorageOptions
from penstock._contracts.transform import Scratch
from penstock._storage.cachefiles import CacheFolder, block_name
from penstock._storage.locking import FileLock
from penstock.errors import StorageError

__all__ = ["BlockCache", "Fetching"]


class Fetching(Protocol):
    """What is asked for blocks that are not there."""

    def size(self, file: int) -> int:
        """Return the bytes of an object."""

    def cache_key(self, file: int) -> str:
        """Return what tells this version of an object from all others."""

    def fetch(self, files: list[int], begins: list[int], lengths: list[int], out: NDArray[np.uint8]) -> None:
        """Fetch ranges, one behind the other."""


class _Want(NamedTuple):
    """What is wanted of one block: its bytes `low` to `high`, to `view`."""

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
        self._options = options
        self._folder = CacheFolder(os.fspath(options.cache_dir), options.cache_bytes)
        self._mended: set[str] = set()

    def read_spans(
        self, source: Fetching, files: NDArray[np.int64], offsets: NDArray[np.int64], lengths: NDArray[np.int64], scratch: Scratch | None
    ) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        """Read spans, whole blocks of what is not there yet.

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
        """Fetch at once what nobody fetches, then wait for the others: nobody waits who holds a lock that somebody may wait for."""
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
        """Look again, now that nobody else writes it; drop it when it is damaged."""
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


def _hulls(
    files: NDArray[np.int64], offsets: NDArray[np.int64], lengths: NDArray[np.int64], width: int
) -> tuple[list[tuple[int, int, int, int]], NDArray[np.int64]]:
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
