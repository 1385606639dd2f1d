"""Paths of many files in one block of bytes, 16 bytes of offsets per path, a string only on demand; reading whole regular files.

Also check sums of bounded samples of values, the same on every platform and in every process.
"""

from __future__ import annotations

import contextlib
import os
import stat
import struct
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import field, replace
from itertools import pairwise
from time import perf_counter_ns
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from penstock import kernels
from penstock._contracts.storage import Storage
from penstock._contracts.transform import Own, Scratch
from penstock._storage.listing import Location
from penstock._storage.local import not_regular
from penstock._storage.urls import is_url
from penstock._system.lazy import dataclass
from penstock._system.text import redacted, shown
from penstock.errors import LengthMismatch, SourceError, StorageError
from penstock.kernels.library import Array, Ints
from penstock.kernels.spans import FLAGS

_MAX_PART_BYTES = 4096
_MAX_CHILDREN = 64
_MAX_DEPTH = 8


def spread(count: int, limit: int) -> list[int]:
    """Return at most `limit` (at least 2) indices of 0..count-1: first, last and evenly between; all of them when they fit."""
    if count <= limit:
        return list(range(count))
    return [position * (count - 1) // (limit - 1) for position in range(limit)]


def refuse_beyond(indices: Ints, source: Any, noun: str) -> None:
    """Refuse indices that are not all those of elements.

    Raises:
        LengthMismatch: one is not in 0..len-1.
    """
    # Seen as unsigned, a negative index is a huge one: one reduction (2 us) checks both ends, which mode="clip" would hide.
    if indices.size and int(indices.view(np.uint64).max()) >= len(source):
        raise beyond(indices, len(source), noun, source.label())


def beyond(indices: Ints, count: int, noun: str, where: str) -> LengthMismatch:
    """Return the error of indices that are not all in 0..count-1."""
    return LengthMismatch(
        f"there are {count} {noun}, and indices from {int(indices.min())} to {int(indices.max())} were asked for",
        where=where,
        fix=f"ask for 0..{count - 1}; when no code of yours did, report it as a fault of penstock",
    )


def crc_of_value(value: Any, crc: int = 0, depth: int = 0) -> int:
    """Add a bounded part of `value` to `crc`: scalars, text, arrays, and dict, tuple and list of them.

    Of any other object only its type counts: its `repr` may hold an address, and pickling it may run code.
    """
    kind = type(value)
    crc = zlib.crc32(f"<{kind.__name__}>".encode("utf-8", "surrogateescape"), crc)
    if value is None or kind in (bool, int, float, complex):
        return zlib.crc32(repr(value)[:_MAX_PART_BYTES].encode(), crc)
    if kind is str:
        data = value[:_MAX_PART_BYTES].encode("utf-8", "surrogatepass")
        return zlib.crc32(data, zlib.crc32(str(len(value)).encode(), crc))
    if kind in (bytes, bytearray):
        return zlib.crc32(value[:_MAX_PART_BYTES], zlib.crc32(str(len(value)).encode(), crc))
    if isinstance(value, (np.ndarray, np.generic)):
        return crc_of_array(np.asarray(value), crc, _MAX_PART_BYTES)
    if depth < _MAX_DEPTH and isinstance(value, (dict, tuple, list)):
        return _crc_of_children(value, crc, depth + 1)
    return crc


def _crc_of_children(value: Any, crc: int, depth: int) -> int:
    crc = zlib.crc32(str(len(value)).encode(), crc)
    if isinstance(value, dict):
        for number, (key, child) in enumerate(value.items()):
            if number == _MAX_CHILDREN:
                break
            crc = crc_of_value(child, crc_of_value(key, crc, depth), depth)
        return crc
    for index in spread(len(value), _MAX_CHILDREN):
        crc = crc_of_value(value[index], crc, depth)
    return crc


def crc_of_array(array: Array, crc: int, max_bytes: int) -> int:
    """Add shape, dtype and the first `max_bytes` of the items of `array` to `crc`; never copies more than that."""
    crc = zlib.crc32(f"{array.shape}{array.dtype.str}".encode(), crc)
    num_items = min(array.size, max(1, max_bytes // max(1, array.itemsize)))
    # .flat copies only what the slice names; reshape(-1) would copy a whole strided row first.
    part = array.reshape(-1)[:num_items] if array.flags.c_contiguous else array.flat[:num_items]
    if not array.dtype.hasobject:
        return zlib.crc32(part.tobytes(), crc)
    for item in part[:_MAX_CHILDREN].tolist():
        crc = crc_of_value(item, crc, 1)
    return crc


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
            raise not_regular(path, status.st_mode, f"reading {path!r}")
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


PADDING = b"\n" * 8
"""Stands behind the last path of a blob, so that 8 bytes can be read from any place in it."""

_ENCODING = sys.getfilesystemencoding()
_ERRORS = sys.getfilesystemencodeerrors()
_SAMPLED_FILES = 64
_HASH_ROWS = 1 << 16
_SLOW_READ_NS = 200_000  # a file that takes longer to read was not in memory
_NUM_AHEAD = 16
_AT_ONCE_BYTES, _MOST_BYTES = 16 << 20, 64 << 20
"""Of remote files, so many should be asked for at once, and no more."""
_FACTOR = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True, slots=True, eq=False)
class FileNames(Sequence[str]):
    """The names of the files of a storage, each made when it is asked for."""

    storage: Storage

    def __len__(self) -> int:
        return len(self.storage)

    def __getitem__(self, file: Any) -> Any:
        return self.storage.name(range(len(self.storage))[file])


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
    starts: Ints
    ends: Ints
    base: str

    def __len__(self) -> int:
        return len(self.starts)

    def path(self, index: int) -> str:
        """Return path `index` as it was given; bytes that are not UTF-8 become surrogates, as everywhere in Python."""
        return self.blob[self.starts[index] : self.ends[index]].decode(_ENCODING, _ERRORS)

    def full(self, path: str) -> str:
        """Return where `path` is, whatever the working directory is now."""
        return path if path[0] == "/" or (os.sep != "/" and os.path.isabs(path)) else self.base + path

    def all_full(self) -> Iterator[str]:
        """Give the full path of each, in order."""
        return (self.full(self.path(index)) for index in range(len(self)))

    @property
    def rows_at_once(self) -> int:
        """Return how many files should be asked for at once, at least; 1 where it makes no difference."""
        return 1

    def chosen(self, indices: Any) -> Self:
        """Return the table of some of the paths."""
        return replace(self, starts=self.starts[indices], ends=self.ends[indices])

    def sizes(self) -> Ints:
        """Return the bytes of each file, int64 [n].

        Raises:
            OSError: as the system says it.
        """
        return np.fromiter(map(os.path.getsize, self.all_full()), np.int64, len(self))

    def each(self, indices: Sequence[int]) -> Iterator[bytes]:
        """Give what is in files.

        Raises:
            OSError, SourceError: as `read_into`.
        """
        return (read_file(self.full(self.path(index))) for index in indices)

    def read_into(self, indices: Sequence[int], rows: list[Any], field: str, more: Callable[[int], dict[str, Any]]) -> None:
        """Append {"path", field: bytes} per index, with `more(index)`; `len(rows)` tells which one failed.

        Raises:
            OSError: as the system says it.
            SourceError: it is no regular file.
        """
        places = np.asarray(indices, np.int64)
        blob, full, append, ahead = self.blob, self.full, rows.append, _Ahead()
        spans = zip(indices, self.starts[places].tolist(), self.ends[places].tolist(), strict=True)
        for place, (index, start, end) in enumerate(spans):
            path = blob[start:end].decode(_ENCODING, _ERRORS)
            begin_ns = perf_counter_ns()
            data = read_file(full(path))
            append({"path": path, field: data, **more(index)})
            ahead.look(self, index, begin_ns, places[place + 1 :])

    def read_transient(self, index: int, scratch: Scratch, ahead: Ints) -> bytes | memoryview:
        """Return what is in a file, in working memory; `ahead` will be read next.

        Raises:
            OSError: as the system says it.
            SourceError: it is no regular file.
        """
        return scratch.hold("ahead", _Ahead).read(self, index, scratch, ahead)

    def hashes(self, skip: int = 0) -> NDArray[np.uint64]:
        """Return a 64-bit hash of each path without its first `skip` bytes, about 0.1 s per million.

        The same on every platform, not proof against an attacker.
        """
        words: NDArray[np.uint64] = np.ndarray((len(self.blob) - 7,), "<u8", self.blob, strides=(1,))
        hashes = np.empty(len(self), np.uint64)
        for begin in range(0, len(self), _HASH_ROWS):
            places, result = self.starts[begin : begin + _HASH_ROWS] + skip, hashes[begin : begin + _HASH_ROWS]
            left = self.ends[begin : begin + _HASH_ROWS] - places
            result[:] = left.astype(np.uint64) * _FACTOR
            active = np.flatnonzero(left > 0)
            places, left = places[active], left[active]
            while active.size:
                word = words[places].astype(np.uint64)
                tail = np.flatnonzero(left < 8)
                word[tail] &= (np.uint64(1) << (left[tail] * 8).astype(np.uint64)) - np.uint64(1)
                mixed = (result[active] ^ word) * _FACTOR
                result[active] = mixed ^ (mixed >> np.uint64(29))
                more = np.flatnonzero(left > 8)
                active, places, left = active[more], places[more] + 8, left[more] - 8
        return hashes

    def fingerprint(self, kind: str, skip: int = 0) -> dict[str, Any]:
        """Return count, a check sum of all paths, and sizes and a check sum of both ends of up to 64 evenly spaced files.

        A file that cannot be read now is part of the record, not an error: reading its element will say it.
        """
        crc = zlib.crc32(self.hashes(skip).astype("<u8").tobytes())
        sizes, content = 0, 0
        for index in spread(len(self), _SAMPLED_FILES):
            size, head, tail = read_ends(self.full(self.path(index)))
            sizes += size
            content = zlib.crc32(tail, zlib.crc32(head, zlib.crc32(struct.pack("<q", size), content)))
        return {"kind": kind, "count": len(self), "paths_crc32": crc, "sampled_bytes": sizes, "sample_crc32": content}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ObjectTable(PathTable):
    """Paths of whole objects: each object is a record that fills its file.

    Attributes:
        storage: the objects.
        files: int64 [n], the number of each there; -1 for one that was not there.
        lengths: int64 [objects + 1], their bytes, and 0 for one that was not there.
        own: what each thread has for itself.
    """

    storage: Storage
    files: Ints
    lengths: Ints
    own: Own = field(default_factory=Own)

    @property
    def rows_at_once(self) -> int:
        """Return how many objects should be asked for at once, at least."""
        return most_at_once(self.storage, int(self.lengths.sum()) // max(1, len(self.storage)))

    def chosen(self, indices: Any) -> Self:
        """Return the table of some of the paths."""
        return replace(self, starts=self.starts[indices], ends=self.ends[indices], files=self.files[indices])

    def all_full(self) -> Iterator[str]:
        """Give nothing: none is of this machine."""
        return iter(())

    def sizes(self) -> Ints:
        """Return the bytes of each object, as they were found, int64 [n].

        Raises:
            StorageError: one was not there.
        """
        for index in np.flatnonzero(self.files < 0).tolist():
            raise self._missing(index)
        return self.lengths[self.files]

    def fetch(self, indices: Ints, scratch: Scratch) -> list[memoryview]:
        """Return what is in objects, in working memory: of the first ones, as many as can be read with one call of the storage.

        Raises:
            StorageError, ObjectChanged: the first one cannot be read.
            OSError: of a cache.
        """
        files = self.files[indices]
        lengths = self.lengths[files]
        here = slice(max(1, int(np.searchsorted(np.cumsum(lengths), _MOST_BYTES, "right"))))
        files, lengths = files[here], lengths[here]
        failed, error = np.flatnonzero(files < 0), None
        if not failed.size:
            try:
                data, begins = self.storage.read_spans(files, np.zeros_like(files), lengths, scratch)
                view = data.data.toreadonly()
                return [view[begin : begin + length] for begin, length in zip(begins.tolist(), lengths.tolist(), strict=True)]
            except SourceError as caught:
                failed, error = np.flatnonzero(files == (-1 if caught.file is None else caught.file)), caught
        # Those before the one that failed. Where that is not known, the first is asked for alone.
        num_good = int(failed[0]) if failed.size else len(files) > 1
        if not num_good:
            raise error or self._missing(int(indices[0]))
        return self.fetch(indices[:num_good], scratch)

    def each(self, indices: Sequence[int]) -> Iterator[bytes]:
        """Give what is in objects, which are asked for many at a time.

        Raises:
            StorageError, ObjectChanged, OSError: as `fetch`.
        """
        places = np.asarray(indices, np.int64)
        while places.size:
            found = [*map(bytes, self.fetch(places, Scratch.of(self.own)))]
            places = places[len(found) :]
            yield from found

    def read_into(self, indices: Sequence[int], rows: list[Any], field: str, more: Callable[[int], dict[str, Any]]) -> None:
        """Append {"path", field: bytes} per index, with `more(index)`; `len(rows)` tells which one failed.

        Raises:
            StorageError, ObjectChanged, OSError: as `fetch`.
        """
        for index, data in zip(indices, self.each(indices), strict=True):
            rows.append({"path": self.path(index), field: data, **more(index)})

    def read_transient(self, index: int, scratch: Scratch, ahead: Ints) -> bytes | memoryview:
        """Return what is in an object, in working memory; those `ahead`, which will be read next, are asked for with it.

        Raises:
            StorageError, ObjectChanged, OSError: as `fetch`.
        """
        return scratch.hold("objects", _Objects).read(self, index, scratch, ahead)

    def fingerprint(self, kind: str, skip: int = 0) -> dict[str, Any]:
        """Return count, and check sums of all paths and of sizes and ETags; nothing is read."""
        etags = "\n".join(str(self.storage.identity(file).get("etag", "")) for file in range(len(self.storage)))
        crc = zlib.crc32(etags.encode(), zlib.crc32(np.concatenate((self.files, self.lengths)).astype("<i8").tobytes()))
        paths = zlib.crc32(self.hashes(skip).astype("<u8").tobytes())
        return {"kind": kind, "count": len(self), "paths_crc32": paths, "objects_crc32": crc}

    def _missing(self, index: int) -> StorageError:
        from penstock._storage.requests import not_there

        return not_there(self.path(index), "it was not found when the dataset was made")


def objects_of(storage: Storage, skip: int = 0) -> ObjectTable:
    """Return the table of all objects of a storage, named by their URLs without the first `skip` bytes."""
    files = np.arange(len(storage))
    return _objects([os.fsencode(name)[skip:] for name in FileNames(storage)], storage, files)


def objects_named(table: PathTable, folder: Location, caller: str) -> ObjectTable:
    """Return the table of objects that paths name, which are URLs or relative to a folder.

    Raises:
        PlanError, StorageError, MissingExtra: as `open_named`.
    """
    from penstock._storage.remote import open_named

    names = [table.path(index) for index in range(len(table))]
    storage, files = open_named([name if is_url(name) else folder.url_of(name) for name in names], folder.options, caller)
    for index, file in enumerate(files.tolist()):
        if is_url(names[index]):
            names[index] = redacted(names[index]) if file < 0 else storage.name(file)
    return _objects([*map(os.fsencode, names)], storage, files)


def _objects(names: Sequence[bytes], storage: Storage, files: Ints) -> ObjectTable:
    lengths = np.array([*map(storage.size, range(len(storage))), 0], np.int64)
    packed = join_paths(names, "")
    return ObjectTable(blob=packed.blob, starts=packed.starts, ends=packed.ends, base="", storage=storage, files=files, lengths=lengths)


def read_located(file: Location, caller: str) -> bytes:
    """Read all of a file or object.

    Raises:
        OSError, SourceError: as `read_file`; StorageError, ObjectChanged: as `Storage.read`.
    """
    if not file.is_url:
        return read_file(file.full)
    from penstock._storage.remote import open_named
    from penstock._storage.requests import not_there

    storage, found = open_named([file.full], file.options, caller)
    try:
        if found[0] < 0:
            raise not_there(file.name, "no such object")
        size = storage.size(0)
        return b"".join(storage.read(0, begin, min(_MOST_BYTES, size - begin)) for begin in range(0, size, _MOST_BYTES))
    finally:
        storage.close()


def most_at_once(storage: Storage, mean_bytes: int) -> int:
    """Return how many spans of so many bytes should be asked for at once, at least; 1 for files of this machine."""
    spans: int = getattr(storage, "spans_at_once", 1)
    return max(1, min(spans, _AT_ONCE_BYTES // max(1, mean_bytes)))


class _Ahead:
    """What one worker, which reads file by file, has read of the next ones, and what it has had the system fetch.

    Files that are in memory are read several at a time, into the memory of one large one. Where a read takes so long that its file was
    not, the system is asked for the next.
    """

    __slots__ = ("_asked_for", "_ready", "_rest", "_table")

    def __init__(self) -> None:
        self._asked_for: frozenset[int] = frozenset()
        self._ready: list[bytes | memoryview] = []
        self._table: PathTable | None = None
        self._rest = np.empty(0, np.int64)

    def read(self, table: PathTable, index: int, scratch: Scratch, ahead: Ints) -> bytes | memoryview:
        """Return what is in a file; `ahead` will be read next."""
        rest, self._rest = self._rest, ahead
        # Only for the next row of the same block: whatever comes back to a file later reads what is in it by then.
        goes_on = self._table is table and ahead.base is rest.base is not None and len(rest) == len(ahead) + 1 and rest[0] == index
        self._table = table
        if not goes_on or not self._ready:
            self._ready = []  # before reading, which may fail
            self._ready = self._fetch(table, index, scratch, ahead)[::-1]
        return self._ready.pop()

    def _fetch(self, table: Any, index: int, scratch: Scratch, ahead: Ints) -> list[bytes | memoryview]:
        """Return what is in a file, and in some of those ahead."""
        found, begin_ns, count = list[bytes | memoryview](), perf_counter_ns(), 0
        paths = [table.full(table.path(one)) for one in (index, *ahead[:_NUM_AHEAD].tolist())]
        if len(paths) > 1:
            buffer, ends = scratch.take("file", (_FIRST_BYTES,), np.uint8), np.empty(len(paths), np.int64)
            count = kernels.read_files(os.fsencode("\0".join([*paths, ""])), buffer, _SLOW_READ_NS, ends, scratch.ahead)
            found += [buffer[begin:end].data for begin, end in pairwise([0, *ends[:count].tolist()])]
        if count < 2:
            found = found or [read_file_into(paths[0], scratch)]
            self.look(table, index, begin_ns, ahead)
        return found

    def look(self, table: PathTable, index: int, begin_ns: int, ahead: Ints) -> None:
        """Look at a read that ends now; `ahead` will be read next. What was asked for is not asked for again, however slow it is."""
        if perf_counter_ns() - begin_ns < _SLOW_READ_NS or index in self._asked_for:
            return
        nearest = ahead[:_NUM_AHEAD].tolist()
        self._asked_for = frozenset(nearest[:-1])  # at the last one it may go on
        for one in nearest:
            fetch_ahead(table.full(table.path(one)))


class _Objects(_Ahead):
    """What one worker has read of a block of objects."""

    __slots__ = ()

    def _fetch(self, table: Any, index: int, scratch: Scratch, ahead: Ints) -> list[bytes | memoryview]:
        found: list[bytes | memoryview] = table.fetch(np.append(index, ahead), scratch)
        return found


def pack_paths(paths: Iterable[str], base: str) -> PathTable:
    """Sort paths by their bytes, which is the same order on every platform, drop repeated ones, and pack them."""
    encoded = sorted(map(os.fsencode, paths))
    return join_paths([path for number, path in enumerate(encoded) if number == 0 or path != encoded[number - 1]], base)


def join_paths(paths: Sequence[bytes], base: str) -> PathTable:
    """Pack paths in the order in which they are given."""
    lengths = np.fromiter(map(len, paths), np.int64, len(paths))
    ends = np.cumsum(lengths)
    return PathTable(blob=b"".join(paths) + PADDING, starts=ends - lengths, ends=ends, base=base)


def local_files(storage: Storage) -> Iterator[str]:
    """Give the full path of each file of a storage that is on this machine."""
    return (os.path.abspath(storage.name(file)) for file in range(len(storage)) if "mtime_ns" in storage.identity(file))


def words_of_files(names: Sequence[str]) -> str:
    """Name the first of some files, and say how many more there are."""
    return shown(names[0]) + (f" and {len(names) - 1} more" if len(names) > 1 else "")


def crc_of_files(names: Iterable[str], facts: Iterable[str]) -> int:
    """Return a check sum of the names of files below their common folder, and of what is known of each."""
    paths, crc = list(map(os.fsencode, names)), 0
    skip = common_folder(min(paths), max(paths))
    for path, fact in zip(paths, facts, strict=True):
        crc = zlib.crc32(path[skip:] + f"\0{fact}\n".encode(), crc)
    return crc


def common_folder(first: bytes, last: bytes) -> int:
    """Return how many first bytes, up to a separator, the first and last of sorted paths share: all between share them too."""
    common: Any = os.path.commonprefix([first, last])  # noqa: RUF071  # cut at a separator below
    return int(max(common.rfind(b"/"), common.rfind(b"\\"))) + 1
