"""Ten million paths in one block of bytes: 16 bytes of offsets per path, and no Python object until a path is asked for."""

from __future__ import annotations

import os
import struct
import sys
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import repeat
from time import perf_counter_ns
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from penstock._contracts.storage import Storage
from penstock._contracts.transform import Scratch
from penstock._storage.redaction import shown
from penstock.sources.digest import spread
from penstock.sources.reading import fetch_ahead, read_ends, read_file, read_file_into

__all__ = ["PADDING", "FileNames", "PathTable", "common_folder", "local_files", "pack_paths", "shown"]

PADDING = b"\n" * 8
"""Stands behind the last path of a blob, so that 8 bytes can be read from any place in it."""

_ENCODING = sys.getfilesystemencoding()
_ERRORS = sys.getfilesystemencodeerrors()
_SAMPLED_FILES = 64
_HASH_ROWS = 1 << 16
_SLOW_READ_NS = 200_000  # a file that takes longer to read was not in memory
_NUM_AHEAD = 16
_FACTOR = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True, slots=True, eq=False)
class FileNames(Sequence[str]):
    """The names of the files of a storage, each made when it is asked for."""

    storage: Storage

    def __len__(self) -> int:
        return len(self.storage)

    @overload
    def __getitem__(self, file: int) -> str: ...

    @overload
    def __getitem__(self, file: slice) -> list[str]: ...

    def __getitem__(self, file: int | slice) -> str | list[str]:
        wanted = range(len(self.storage))[file]
        return [self.storage.name(one) for one in wanted] if isinstance(wanted, range) else self.storage.name(wanted)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PathTable:
    """Paths inside one block of bytes.

    Attributes:
        blob: the paths, with anything between them, and PADDING at the end.
        starts: int64 [n], where each path begins in the blob.
        ends: int64 [n], where it ends.
        base: absolute folder with a separator at its end; relative paths stand in it.
    """

    blob: bytes
    starts: NDArray[np.int64]
    ends: NDArray[np.int64]
    base: str

    def __len__(self) -> int:
        return len(self.starts)

    def path(self, index: int) -> str:
        """Return path `index` as it was given; bytes that are not UTF-8 become surrogates, as everywhere in Python."""
        return self.blob[self.starts[index] : self.ends[index]].decode(_ENCODING, _ERRORS)

    def full(self, path: str) -> str:
        """Return where `path` is, whatever the working directory is now."""
        return path if path[0] == "/" else self.base + path

    def all_full(self) -> Iterator[str]:
        """Give the full path of each, in order."""
        return (self.full(self.path(index)) for index in range(len(self)))

    def read_into(self, indices: Sequence[int], rows: list[Any], labels: NDArray[np.int64] | None) -> None:
        """Append {"path", "data"} per index, with "label" where there are labels; `len(rows)` tells which one failed.

        Raises:
            OSError: as the system says it.
            SourceError: it is no regular file.
        """
        places = np.asarray(indices, np.int64)
        blob, full, append, ahead = self.blob, self.full, rows.append, _Ahead()
        spans = zip(self.starts[places].tolist(), self.ends[places].tolist(), strict=True)
        numbers = repeat(None) if labels is None else labels[places].tolist()
        for place, ((start, end), label) in enumerate(zip(spans, numbers, strict=False)):
            path = blob[start:end].decode(_ENCODING, _ERRORS)
            begin_ns = perf_counter_ns()
            data = read_file(full(path))
            append({"path": path, "data": data} if label is None else {"path": path, "data": data, "label": label})
            ahead.look(self, indices[place], begin_ns, places[place + 1 :])

    def read_transient(self, index: int, labels: NDArray[np.int64] | None, scratch: Scratch, ahead: NDArray[np.int64]) -> dict[str, Any]:
        """Return one element as `read_into` does, its "data" in working memory; `ahead` will be read next.

        Raises:
            OSError: as the system says it.
            SourceError: it is no regular file.
        """
        path, begin_ns = self.path(index), perf_counter_ns()
        element: dict[str, Any] = {"path": path, "data": read_file_into(self.full(path), scratch)}
        scratch.hold("ahead", _Ahead).look(self, index, begin_ns, ahead)
        if labels is not None:
            element["label"] = int(labels[index])
        return element

    def hashes(self, begin: int, end: int, skip: int = 0) -> NDArray[np.uint64]:
        """Return a 64-bit hash of each of the paths begin..end-1 without their first `skip` bytes.

        The same on every platform, not proof against an attacker.
        """
        starts = self.starts[begin:end] + skip
        left = self.ends[begin:end] - starts
        words: NDArray[np.uint64] = np.ndarray((len(self.blob) - 7,), "<u8", self.blob, strides=(1,))
        result = left.astype(np.uint64) * _FACTOR
        active = np.flatnonzero(left > 0)
        places, left = starts[active], left[active]
        while active.size:
            word = words[places].astype(np.uint64)
            tail = np.flatnonzero(left < 8)
            word[tail] &= (np.uint64(1) << (left[tail] * 8).astype(np.uint64)) - np.uint64(1)
            mixed = (result[active] ^ word) * _FACTOR
            result[active] = mixed ^ (mixed >> np.uint64(29))
            more = np.flatnonzero(left > 8)
            active, places, left = active[more], places[more] + 8, left[more] - 8
        return result

    def all_hashes(self) -> NDArray[np.uint64]:
        """Return the hashes of all paths: 8 bytes each, about 0.1 s per million."""
        result = np.empty(len(self), np.uint64)
        for begin in range(0, len(self), _HASH_ROWS):
            result[begin : begin + _HASH_ROWS] = self.hashes(begin, begin + _HASH_ROWS)
        return result

    def fingerprint(self, kind: str, skip: int = 0) -> dict[str, Any]:
        """Return count, a check sum of all paths, and sizes and a check sum of both ends of up to 64 evenly spaced files.

        A file that cannot be read now is part of the record, not an error: reading its element will say it.
        """
        crc = 0
        for begin in range(0, len(self), _HASH_ROWS):
            crc = zlib.crc32(self.hashes(begin, begin + _HASH_ROWS, skip).astype("<u8").tobytes(), crc)
        sizes, content = 0, 0
        for index in spread(len(self), _SAMPLED_FILES):
            size, head, tail = read_ends(self.full(self.path(index)))
            sizes += size
            content = zlib.crc32(tail, zlib.crc32(head, zlib.crc32(struct.pack("<q", size), content)))
        return {"kind": kind, "count": len(self), "paths_crc32": crc, "sampled_bytes": sizes, "sample_crc32": content}


class _Ahead:
    """Has the system read ahead where a read took so long that the file was not in memory. Of one worker, which reads file by file."""

    __slots__ = ("_asked_for",)

    def __init__(self) -> None:
        self._asked_for: frozenset[int] = frozenset()

    def look(self, table: PathTable, index: int, begin_ns: int, ahead: NDArray[np.int64]) -> None:
        """Look at a read that ends now; `ahead` will be read next. What was asked for is not asked for again, however slow it is."""
        if perf_counter_ns() - begin_ns < _SLOW_READ_NS or index in self._asked_for:
            return
        nearest = ahead[:_NUM_AHEAD].tolist()
        self._asked_for = frozenset(nearest[:-1])  # at the last one it may go on
        for one in nearest:
            fetch_ahead(table.full(table.path(one)))


def pack_paths(paths: Iterable[str], base: str) -> PathTable:
    """Sort paths by their bytes, which is the same order on every platform, drop repeated ones, and pack them."""
    encoded = sorted(map(os.fsencode, paths))
    unique = [path for number, path in enumerate(encoded) if number == 0 or path != encoded[number - 1]]
    ends = np.cumsum(np.fromiter(map(len, unique), np.int64, len(unique)))
    starts = np.concatenate((np.zeros(min(1, len(ends)), np.int64), ends[:-1]))
    return PathTable(blob=b"".join(unique) + PADDING, starts=starts, ends=ends, base=base)


def local_files(storage: Storage) -> Iterator[str]:
    """Give the full path of each file of a storage that is on this machine."""
    return (os.path.abspath(storage.name(file)) for file in range(len(storage)) if "mtime_ns" in storage.identity(file))


def common_folder(first: bytes, last: bytes) -> int:
    """Return how many first bytes, up to a separator, the first and last of sorted paths share: all between share them too."""
    common = 0
    for place, (one, other) in enumerate(zip(first, last, strict=False), start=1):
        if one != other:
            break
        if one in b"/\\":
            common = place
    return common
