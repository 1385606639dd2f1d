"""Finds, checks, builds and publishes indices: one for each file, in `.penstock` beside it or in the cache folder; a catalogue of many.

Large ones are mapped, so that all processes of a machine share them.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import mmap
import os
import shutil
import threading
import time
import warnings
from collections.abc import Callable, Generator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from penstock._contracts.storage import Storage
from penstock._contracts.transform import Scratch
from penstock._storage.local import LocalStorage, publish
from penstock._storage.remote import RemoteStorage
from penstock._storage.sameness import TICK_NS, WHOLE_BYTES, is_young, sample
from penstock._system.lazy import dataclass
from penstock._system.text import shown
from penstock.errors import RecordError, SourceError
from penstock.formats.index import (
    SUFFIX,
    Index,
    Indices,
    beside,
    catalogue_parts,
    decode,
    is_index,
    is_seamless,
    joined,
    parts,
    read_catalogue,
)
from penstock.kernels.framing import crc32c
from penstock.kernels.library import Ints, Uint8s
from penstock.sources.paths import FileNames, read_file
from penstock.sources.records import RECORD_SUMS, RecordFormat

_FEWEST_FILES = 256
"""So many files have a catalogue, and the small ones among them no index of their own: reading one takes as long as the file itself."""
_SHARED_BYTES = 1 << 20
"""A larger index is mapped, and files that have so much together have a catalogue for that."""
_MOST_BYTES = 2 << 30
_MOST_KEPT_BYTES = 4 << 30


def open_all(storage: Storage, format: RecordFormat) -> Indices:
    """Return the indices of all files: from the catalogue if no file changed, else as `open_indices` does.

    Blocks until all are there. Safe when other processes do the same.

    Raises:
        RecordError: a file that is not of this format; the first such one.
        SourceError, OSError: a file that cannot be read.
    """
    if not isinstance(storage, LocalStorage) or len(storage) < 2:
        return joined(open_indices(storage, format), FileNames(storage))
    began = time.time_ns()
    path = os.path.join(_catalogues(), _digest(storage.all_paths(), format.kind, format.options) + SUFFIX)
    known = _read(path, format)
    if known is not None and np.array_equal(known[0].sizes, storage.sizes) and np.array_equal(known[1], storage.marks):
        return known[0]
    is_many = len(storage) >= _FEWEST_FILES
    indices = joined(open_indices(storage, format, keeps_small=not is_many), FileNames(storage))
    num_bytes = sum(values.nbytes for values in indices.columns.values())
    if not (is_many or num_bytes >= _SHARED_BYTES) or num_bytes > _MOST_BYTES:
        return indices
    # Of a file that was written to in these seconds, another change may leave no trace in its time: it is looked at again.
    versions = np.where(storage.mtimes > began - TICK_NS, -1, storage.marks)
    if published(path, catalogue_parts(indices, versions, format.kind, format.options)):
        _prune(path)
        known = _read(path, format) if num_bytes >= _SHARED_BYTES else None
        if known is not None and np.array_equal(known[1], versions):
            return known[0]
    return indices  # where no catalogue can be written, the indices are opened one by one again


def _read(path: str, format: RecordFormat) -> tuple[Indices, Ints] | None:
    """Return a catalogue that is there and whole, and the versions of its files."""
    try:
        data = _contents(path)
        return read_catalogue(data, path, format.kind, format.options) if is_index(data) else None
    except RecordError as error:
        warnings.warn(f"the catalogue {shown(path)} is damaged ({error.what}) and is made again", stacklevel=4)
        return None
    except (OSError, SourceError):
        return None


def _contents(path: str) -> Any:
    """Return the bytes of an index; of a large one as a map of the file.

    Raises:
        SourceError, OSError: it cannot be read.
    """
    if os.stat(path).st_size >= _SHARED_BYTES:
        with contextlib.suppress(ValueError), open(path, "rb") as file:  # it was cut
            return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    return read_file(path)


def _prune(newest: str) -> None:
    """Remove the oldest catalogues where all of them have too many bytes together."""
    with contextlib.suppress(OSError):  # another process removes them too
        with os.scandir(os.path.dirname(newest)) as entries:
            found = sorted(((entry.stat().st_mtime_ns, entry.stat().st_size, entry.path) for entry in entries), reverse=True)
        total = 0
        for _, size, path in found:
            total += size
            if total > _MOST_KEPT_BYTES and path != newest:
                os.unlink(path)


# -- the index of one file --------------------------------------------------------------------------------------------------------

_PIECE_BYTES = 2 << 20
"""Larger ones leave the cache before they are scanned."""
_MOST_PER_TASK = 64
_FOREIGN = "of another format"


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexReport:
    """The outcome for the index of one file.

    Attributes:
        file: number of the file in the storage.
        path: of the index; None when it could not be written and is kept in memory only.
        count: records.
        index_bytes: size of the index.
        reason: why it was built, such as "missing"; None when the one that was there is used.
    """

    file: int
    path: str | None
    count: int
    index_bytes: int
    reason: str | None


def open_indices(
    storage: Storage,
    format: RecordFormat,
    *,
    keeps_small: bool = True,
    rebuild: bool = False,
    cache_folder: str | None = None,
    on_file: Callable[[IndexReport], None] | None = None,
) -> list[Index]:
    """Return the index of each file: the one beside it or in the cache folder if it can be trusted, else a new one.

    Blocks until all are there; several threads read files one after the other. Safe when other processes do the same.

    Args:
        storage: the files.
        format: finds records.
        keeps_small: keep indices of small files of this machine too: False where there is a catalogue of them.
        rebuild: trust no index that is there.
        cache_folder: for indices that cannot stand beside their data; None is "penstock" in the user's cache folder.
        on_file: called for each file, from the threads that build, one call at a time.

    Raises:
        RecordError: a file that is not of this format; the first such one.
        SourceError, OSError: a file that cannot be read.
    """
    builder = _Builder(storage, format, keeps_small, rebuild, cache_folder or user_folder(), on_file)
    files, threads = range(len(storage)), min(os.cpu_count() or 1, len(storage))
    try:
        if threads <= 1:
            return builder.open_all(files)
        from concurrent.futures import ThreadPoolExecutor

        pool = ThreadPoolExecutor(threads, thread_name_prefix="penstock-index")
        try:
            # Some files per task: handing one over costs as much as opening a small index.
            step = max(1, min(_MOST_PER_TASK, len(files) // (4 * threads)))
            tasks = [files[begin : begin + step] for begin in files[::step]]
            return [index for indices in pool.map(builder.open_all, tasks) for index in indices]
        finally:
            pool.shutdown(cancel_futures=True)
    finally:
        if rebuild:
            shutil.rmtree(_catalogues(), ignore_errors=True)


@dataclass
class _Builder:
    """Opens the indices of one storage, each thread with working memory of its own. See `open_indices`."""

    storage: Storage
    format: RecordFormat
    keeps_small: bool
    rebuild: bool
    folder: str
    on_file: Callable[[IndexReport], None] | None

    def __post_init__(self) -> None:
        # With as many files as processors, all of them have enough to do.
        self._reads_ahead = len(self.storage) < (os.cpu_count() or 1)
        self._lock = threading.Lock()
        self._own = threading.local()

    def open_all(self, files: range) -> list[Index]:
        """Open the indices of some files."""
        if self.keeps_small or not isinstance(self.storage, LocalStorage):
            return [self._open(file) for file in files]
        # Of those that have no index of their own: reading one would take as long as the file.
        is_small = (self.storage.sizes[files.start : files.stop] <= WHOLE_BYTES).tolist()
        build_one = partial(build, self.storage, format=self.format, scratch=Scratch.of(self._own), read_ahead=False)
        return [build_one(file) if small else self._open(file) for file, small in zip(files, is_small, strict=True)]

    def _open(self, file: int) -> Index:
        index, report = self._open_one(file)
        if self.on_file is not None:
            with self._lock:
                self.on_file(report)
        return index

    def _open_one(self, file: int) -> tuple[Index, IndexReport]:
        storage = self.storage
        reason, free = "asked for" if self.rebuild else "missing", []
        versioned = _is_versioned(storage, file)
        places, old = _places(storage, file, self.format, self.folder)
        for path in (*places[:1], *old, *places[1:]) if versioned else ():
            verdict = None if self.rebuild else self._judge(path, file)
            if isinstance(verdict, tuple):
                return verdict[0], IndexReport(file=file, path=path, count=len(verdict[0]), index_bytes=verdict[1], reason=None)
            reason = verdict or reason
            if verdict != _FOREIGN and path in places:
                free.append(path)
        index = build(storage, file, self.format, Scratch.of(self._own), read_ahead=self._reads_ahead)
        body = parts(index)
        num_bytes = sum(map(len, body))
        written = next((path for path in free if published(path, body)), None)
        if not versioned:
            reason = "the server tells no version of the file"
        if written is None:
            why = "can be written neither beside it nor to " + shown(self.folder)
            if not versioned:
                why = f"is not kept, as {reason} that lasts (a strong ETag, or a Last-Modified of some seconds ago)"
            warnings.warn(f"the index of {shown(storage.name(file))} {why}; it is built each time", stacklevel=2)
        elif num_bytes >= _SHARED_BYTES:
            with contextlib.suppress(SourceError, OSError):
                index = decode(_contents(written), written)
        return index, IndexReport(file=file, path=written, count=len(index), index_bytes=num_bytes, reason=reason)

    def _judge(self, path: str, file: int) -> tuple[Index, int] | str | None:
        """Return an index that can be trusted, with its size; why one cannot; None where there is none, or none that can be read."""
        try:
            data = _contents(path)
            if not is_index(data):
                return "of another version, or no index"
            index = decode(data, path)
        except RecordError as error:
            warnings.warn(f"the index {shown(path)} is damaged ({error.what}) and is built again", stacklevel=2)
            return "damaged"
        except (OSError, SourceError):
            return None
        if (index.kind, dict(index.options)) != (self.format.kind, self.format.options):
            return _FOREIGN
        storage = self.storage
        if index.size != storage.size(file):
            size, name = storage.size(file), shown(storage.name(file))
            if size < index.size:
                # A cut between two records shows nowhere else. An error it is not, as files are also written again with less in them.
                was = f"had {len(index)} records in {index.size} bytes when it was indexed, and has {size} bytes now"
                warnings.warn(f"{name} {was}: it was cut, or written again; it is indexed as it is", stacklevel=2)
            return f"the file has {size} bytes and had {index.size}"
        same: Index | None = index
        if dict(index.identity) != _identity(storage, file):
            if not isinstance(storage, LocalStorage):
                return "the file has changed"
            same = self._same(storage, index, path, file)
        return "the file has other contents than it had" if same is None else (same, len(data))

    def _same(self, storage: LocalStorage, index: Index, path: str, file: int) -> Index | None:
        """Return an index if it is that of a file of the same size with another stamp: touched, copied, replaced, or written to."""
        if index.samples != sample(storage, file):
            return None
        # Check sums of the index's own would refuse a record that was corrected where no sample looks, for as long as the index is there.
        checks_by_file = self.format.checks_records and RECORD_SUMS not in index.columns
        if checks_by_file or index.size <= WHOLE_BYTES:
            return index
        # With the time that it had, it is a copy, or what replaced it is made to look like one. What no sample sees is seen when it is
        # read, as each record is checked: by check sums, or where records stand side by side at both ends.
        if index.identity.get("mtime_ns") == storage.mtimes[file] and (
            self.format.checks_records or (self.format.separator is not None and is_seamless(index))
        ):
            return index
        # Else all bytes must be those that it was built of; it notes the new time then.
        reader, identity = _Pieces(storage, file, index.size, Scratch.of(self._own)), _noted(storage, file)
        for _ in reader.plain():
            pass
        if reader.crc != index.crc32c:
            return None
        index = replace(index, identity=identity)
        if "mtime_ns" in index.identity:
            published(path, parts(index))  # where that cannot be done, the file is read again the next time
        return index


def build(storage: Storage, file: int, format: RecordFormat, scratch: Scratch | None = None, *, read_ahead: bool = True) -> Index:
    """Read a file from its beginning to its end and return its index.

    Args:
        storage: the files.
        file: number of the file.
        format: finds records.
        scratch: working memory for the pieces.
        read_ahead: read the next piece in a thread of its own while the format looks at one.

    Raises:
        RecordError: it is not of this format.
        SourceError, OSError: it cannot be read.
    """
    size, name, identity = storage.size(file), storage.name(file), _noted(storage, file)
    reader = _Pieces(storage, file, size, scratch or Scratch())
    pieces = reader.ahead() if read_ahead and size > _PIECE_BYTES else reader.plain()
    try:
        found = dict(format.scan(pieces, size, name))
        for _ in pieces:
            pass  # what the format had no need of belongs to the check sum all the same
    finally:
        pieces.close()
    samples = 0  # of remote files the store tells versions apart, for less than a read
    if isinstance(storage, LocalStorage):
        samples = sample(storage, file)
    meta = found.pop("meta", {})
    columns = {key: np.asarray(value) for key, value in found.items()}
    columns["offsets"] = columns["offsets"].astype(np.int64, copy=False)
    short = not len(columns["lengths"]) or int(columns["lengths"].max()) < 1 << 32
    columns["lengths"] = columns["lengths"].astype(np.uint32 if short else np.int64, copy=False)
    facts = {"size": size, "crc32c": reader.crc, "samples": samples}
    return Index(kind=format.kind, options=format.options, identity=identity, meta=meta, columns=columns, **facts)


class _Pieces:
    """The bytes of a file in order, with the check sum of what was read."""

    def __init__(self, storage: Storage, file: int, size: int, scratch: Scratch) -> None:
        self._storage, self._file, self._size, self._scratch = storage, file, size, scratch
        self.crc = 0

    def plain(self) -> Generator[Uint8s, None, None]:
        """Give piece after piece."""
        for offset in range(0, self._size, _PIECE_BYTES):
            yield self._checked(self._read(offset, self._scratch))

    def ahead(self) -> Generator[Uint8s, None, None]:
        """Give piece after piece, the next of which is read meanwhile."""
        from concurrent.futures import ThreadPoolExecutor

        memory = (self._scratch, Scratch())
        offsets = range(0, self._size, _PIECE_BYTES)
        with ThreadPoolExecutor(1, thread_name_prefix="penstock-index-ahead") as pool:
            coming = pool.submit(self._read, 0, memory[0])
            for number in range(len(offsets)):
                data = coming.result()
                if number + 1 < len(offsets):
                    coming = pool.submit(self._read, offsets[number + 1], memory[(number + 1) % 2])
                yield self._checked(data)

    def _read(self, offset: int, scratch: Scratch) -> Uint8s:
        length = min(_PIECE_BYTES, self._size - offset)
        one, begin, count = (np.array([number], np.int64) for number in (self._file, offset, length))
        data, begins = self._storage.read_spans(one, begin, count, scratch)
        return data[begins[0] : begins[0] + length]

    def _checked(self, data: Uint8s) -> Uint8s:
        self.crc = crc32c(data, self.crc)
        return data


def published(path: str, body: list[bytes | memoryview]) -> bool:
    """Write a file of the index, or leave what is there; return whether it could be written."""
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        # Not synced, which would take milliseconds for each of many shards: what a loss of power spoils is found out and built again.
        publish(path, body, sync=False)
    except OSError:
        return False  # read-only, full, or no folder can be made there: the next place is tried, and at last a warning is given
    return True


def _places(storage: Storage, file: int, format: RecordFormat, folder: str) -> tuple[list[str], list[str]]:
    """Return where the index of a file may stand: beside it, if it is local, and in the cache folder; and where earlier versions put it."""
    if isinstance(storage, LocalStorage):
        full = os.path.abspath(storage.path(file))
        return [beside(full), cached_index(folder, full, format.kind, format.options)], [beside(full, old=True)]
    full = storage.place(file) if isinstance(storage, RemoteStorage) else storage.name(file)
    return [cached_index(folder, full, format.kind, format.options)], []


def _is_versioned(storage: Storage, file: int) -> bool:
    """Tell whether another version of a file would show. An index is kept only if it can be found to be stale."""
    identity = storage.identity(file)
    return "mtime_ns" in identity or any(identity.get(key) for key in ("etag", "modified")) or not storage.size(file)


def _identity(storage: Storage, file: int) -> dict[str, Any]:
    """Return what tells one version of a file from another."""
    identity = storage.identity(file)
    return {**identity, "mark": int(storage.marks[file])} if isinstance(storage, LocalStorage) else identity


def _noted(storage: Storage, file: int) -> dict[str, Any]:
    """Return what an index notes of that. A time that may stay the same is left out, so that the samples are compared next time."""
    identity = _identity(storage, file)
    return {key: value for key, value in identity.items() if key != "mtime_ns"} if is_young(identity) else identity


# -- where indices stand ----------------------------------------------------------------------------------------------------------


def user_folder() -> str:
    """Return "penstock" in the user's cache folder: that of XDG_CACHE_HOME, or ~/.cache. A relative path there counts as none."""
    given = os.environ.get("XDG_CACHE_HOME", "")
    return os.path.join(given if os.path.isabs(given) else os.path.join(os.path.expanduser("~"), ".cache"), "penstock")


def _catalogues() -> str:
    return os.path.join(user_folder(), "catalogue")


def cached_index(folder: str, name: str, kind: str, options: Mapping[str, Any]) -> str:
    """Return the path of the index of a file in a cache folder.

    Args:
        folder: as `user_folder` gives it.
        name: absolute path, or URL.
        kind: of the format.
        options: of the format.
    """
    digest = _digest(os.fsencode(name), kind, options)
    return os.path.join(folder, "index", digest[:2], digest + SUFFIX)


def _digest(name: bytes, kind: str, options: Mapping[str, Any]) -> str:
    key = json.dumps([kind, options], sort_keys=True)
    return hashlib.sha256(name + b"\0" + key.encode()).hexdigest()
