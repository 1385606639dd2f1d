"""Values as bytes and back without pickle, and the stores of `cache`: records in memory, or in a folder.

A record is a header and the bytes of each array or value, little-endian:

    uint32 H, H bytes of JSON padded with spaces so that 4 + H is a multiple of 16, then the leaves in the order of the header, each at the
    next multiple of 16 bytes from the start.

The header names the structure, and kind, dtype and shape of every leaf. Elements of one form share it, and it is parsed once: reading is
one look-up and one view per array.

The folder survives the process and is safe for several at once:

    FOLDER/KEY/plan.json            what the key was made of, for people
    FOLDER/KEY/NAME.data            records, one after the other
    FOLDER/KEY/NAME.index           24 bytes for each record: see `_ENTRY`

Each process appends to files of its own and reads those of all. A record counts once its entry stands in the index, which is written
behind it; a process that is killed between the two leaves bytes without an entry, which are never read. There is no lock, so none can be
left behind. No file stays open between calls: an open and close cost 5 us for a block of elements, and nothing has to be closed with the
feed.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import struct
import time
import warnings
import zlib
from collections.abc import Callable, Sequence
from functools import cache, lru_cache, partial
from typing import Any, NamedTuple

import numpy as np

from penstock._system.process import OwnLocks
from penstock._system.text import size_words
from penstock.errors import SpecError
from penstock.kernels.library import Array

_FORMAT = 2
"""Stands in the plan of a folder, so that records of another form are other records."""

_ALIGNED = 16
"""Bytes objects begin at a multiple of 16, so every array does too: C loops may read it with any instruction."""

_PLAIN_KINDS = "biufcSUMm"
_LENGTH = struct.Struct("<I")


def pack(element: Any) -> bytes:
    """Return an element as bytes of its own: nothing of the element stays referenced.

    Raises:
        SpecError: a leaf is nothing that an element may hold, or a container is of a type of its own.
    """
    parts: list[bytes] = []
    text = json.dumps(_schema(element, parts, ""), separators=(",", ":")).encode()
    text += b" " * (-(4 + len(text)) % _ALIGNED)
    out = [_LENGTH.pack(len(text)), text]
    for part in parts:
        out += [part, bytes(-len(part) % _ALIGNED)]
    return b"".join(out)


def unpack(data: bytes) -> Any:
    """Return the element of `pack`. Its arrays are read-only views of `data`; its containers are new."""
    begin = 4 + _LENGTH.unpack_from(data)[0]
    return _reader_of(data[:begin])(data)


def _schema(tree: Any, parts: list[bytes], path: str) -> Any:
    """Return the header's words for a tree, and append the bytes of its leaves to `parts`."""
    kind = type(tree)
    if kind is dict:
        for key in tree:
            if type(key) not in (str, int):
                raise _refused(path, f"a dict with the key {key!r} of type {type(key).__name__}", "use str or int keys")
        return ["dict", *[[key, _schema(value, parts, f"{path}[{key!r}]")] for key, value in tree.items()]]
    if kind is tuple or kind is list:
        return [kind.__name__, *[_schema(value, parts, f"{path}[{index}]") for index, value in enumerate(tree)]]
    if isinstance(tree, (dict, tuple, list)):
        raise _refused(path, f"a {kind.__name__}, a container of a type of its own", "return a plain dict, tuple or list")
    if isinstance(tree, np.ndarray) and tree.dtype == object:
        items = tree.ravel().tolist()
        for item in items:
            if type(item) not in (str, bytes):
                raise _refused(path, f"an object array with a {type(item).__name__} in it", "keep only str and bytes in object arrays")
        return ["objects", list(tree.shape), *[_schema(item, parts, path) for item in items]]
    return _leaf(tree, parts, path)


def _leaf(leaf: Any, parts: list[bytes], path: str) -> Any:
    kind = type(leaf)
    if kind is int and not -(2**63) <= leaf < 2**63:
        return ["long", hex(leaf)]
    if kind in (str, bytes):
        parts.append(leaf.encode("utf-8", "surrogatepass") if kind is str else leaf)
        return [kind.__name__, len(parts[-1])]
    if kind in (bool, int, float, complex):
        name = "item"
    elif isinstance(leaf, np.generic):
        name = "scalar"
    elif kind in (np.ndarray, np.memmap):
        name = "array"
    else:
        fix = "return arrays, numbers, str or bytes; give None a number of its own, such as -1"
        raise _refused(path, f"a {kind.__name__}", fix)
    array = np.asarray(leaf)
    if array.dtype.kind not in _PLAIN_KINDS or np.dtype(array.dtype.str) != array.dtype:
        raise _refused(path, f"an array of dtype {array.dtype}", "give each field of a structured array as an array of its own")
    parts.append(array.tobytes())
    return [name, array.dtype.str, list(array.shape)]


def _refused(path: str, what: str, fix: str) -> SpecError:
    return SpecError(f"a cache cannot keep {what}", where=f"cache(), leaf {path or 'the element itself'}", fix=fix)


@lru_cache(maxsize=256)
def _reader_of(header: bytes) -> Callable[[bytes], Any]:
    return _reader(json.loads(header[4:]), len(header))[0]


def _reader(schema: Any, at: int) -> tuple[Callable[[bytes], Any], int]:
    """Return what makes a value of a record, and where its bytes end, which begin behind `at`."""
    kind, *form = schema
    if kind == "dict":
        fields = {}
        for key, child in form:
            fields[key], at = _reader(child, at)
        return lambda data: {key: read(data) for key, read in fields.items()}, at
    if kind in ("list", "tuple", "objects"):
        make: Callable[[Any], Any] = list if kind == "list" else tuple if kind == "tuple" else partial(_objects, form.pop(0))
        children = []
        for child in form:
            read, at = _reader(child, at)
            children.append(read)
        return lambda data: make([read(data) for read in children]), at
    if kind == "long":
        return lambda data: int(form[0], 16), at
    begin = at + -at % _ALIGNED
    if kind in ("str", "bytes"):
        end = begin + form[0]
        return (lambda data: data[begin:end].decode("utf-8", "surrogatepass")) if kind == "str" else lambda data: data[begin:end], end
    dtype, shape = np.dtype(form[0]), tuple(form[1])
    end = begin + math.prod(shape) * dtype.itemsize
    if kind == "array":
        return lambda data: np.ndarray(shape, dtype, data, begin), end
    of: Any = np.ndarray.item if kind == "item" else np.ndarray.__getitem__
    return lambda data: of(np.ndarray(shape, dtype, data, begin), ()), end


def _objects(shape: list[int], items: list[Any]) -> Any:
    array = np.empty(len(items), object)
    array[:] = items
    array = array.reshape(shape)
    array.flags.writeable = False
    return array


# -- in a folder ------------------------------------------------------------------------------------------------------------------

_MOST_BYTES = 2**32 - 1
"""Of one record: its length is a uint32."""

_ENTRY = np.dtype([("position", "<u8"), ("offset", "<u8"), ("length", "<u4"), ("crc", "<u4")])
"""Position, offset in the data file, length and check sum of the record: see `_checksum`."""


def _checksum(record: bytes, position: int, offset: int, key: int) -> int:
    """Return the CRC32 of a record with all that its entry says: where one of these is damaged, or of another plan, it differs."""
    return zlib.crc32(record, zlib.crc32(struct.pack("<QQQI", key, position, offset, len(record))))


class DiskStore:
    """Records of one plan in a folder.

    What was stored by other processes is found too: before anything counts as absent, their indices are read on. A record whose check
    sum is wrong counts as absent, and what is stored for it later takes its place, in this process and in later ones.
    """

    def __init__(self, folder: str, identify: Callable[[], dict[str, Any]], max_bytes: int | None = None) -> None:
        """Prepare; nothing is read or written before the first `get`.

        Args:
            folder: may be shared by several plans; made when it is not there.
            identify: returns what tells this plan's records from all others, JSON-able.
            max_bytes: bound on everything in the folder, to within one block of elements for each process that writes.
        """
        self._folder = folder
        self._identify = cache(identify)  # a look at a million files takes seconds
        self._max_bytes = max_bytes
        self._locks = OwnLocks()
        self._writing = OwnLocks()  # apart, and taken first: readers do not wait for a disk that is slow to write
        self._home = self._plan = ""
        self._key = 0
        self._forget()
        self._own: tuple[int, str] | None = None
        self._stopped = False
        self._hits = self._misses = 0

    def __reduce__(self) -> tuple[Any, ...]:
        """Be, in another process, another writer of the same folder."""
        return DiskStore, (self._folder, partial(dict, self._identify()), self._max_bytes)

    def _forget(self) -> None:
        """Know nothing of what the indices say."""
        self._table = PlaceTable()
        self._read: dict[str, int] = {}
        self._bytes = self._damaged = 0

    # -- reading ------------------------------------------------------------------------------------------------------------------

    def get(self, indices: Sequence[int]) -> list[bytes | None]:
        """Return one record per index, None for what is not there or not as it was written."""
        with self._locks.own():
            places = self._find(indices)
            segments = list(self._read)
        out: list[bytes | None] = [None] * len(places)
        wanted: dict[int, list[tuple[int, RecordPlace]]] = {}
        for number, place in enumerate(places):
            if place is not None:
                wanted.setdefault(place.segment, []).append((number, place))
        for segment, asked in wanted.items():
            try:  # no memory map: the process would be killed if the file were cut short
                with open(os.path.join(self._home, f"{segments[segment]}.data"), "rb") as file:
                    size = os.fstat(file.fileno()).st_size
                    for number, place in asked:
                        if place.offset + place.length <= size:
                            file.seek(place.offset)
                            record = file.read(place.length)
                            if _checksum(record, indices[number], place.offset, self._key) == place.crc:
                                out[number] = record
            except OSError:  # the file is missing, or the disk fails: records that were not read are computed again
                pass
        bad = [index for index, place, record in zip(indices, places, out, strict=True) if place is not None and record is None]
        with self._locks.own():
            self._table.drop(bad)
            absent = out.count(None)
            self._hits, self._misses, self._damaged = self._hits + len(out) - absent, self._misses + absent, self._damaged + len(bad)
        return out

    def _find(self, indices: Sequence[int]) -> list[RecordPlace | None]:
        if self._locks.is_new():  # a thread that is not here may have been adding to it
            self._forget()
        if not self._home:
            self._plan = json.dumps({"format": _FORMAT, **self._identify()}, sort_keys=True, indent=1)
            digest = hashlib.sha256(self._plan.encode()).hexdigest()
            self._key = int(digest[32:48], 16)
            self._home = os.path.join(self._folder, digest[:32])
        places = self._table.find(indices)
        if None in places:
            self._look_again()
            places = self._table.find(indices)
        return places

    def _look_again(self) -> None:
        """Read what any process added to the indices. Names sort by the time at which the files were made."""
        try:
            with os.scandir(self._home) as listing:
                found = sorted((item.name[: -len(".index")], item.stat().st_size) for item in listing if item.name.endswith(".index"))
            for name, size in found:
                before = self._read.setdefault(name, 0)
                whole = (size - before) // _ENTRY.itemsize
                if whole > 0:
                    with open(os.path.join(self._home, f"{name}.index"), "rb") as file:
                        file.seek(before)
                        entries = np.fromfile(file, _ENTRY, whole)
                    self._read[name] = before + entries.nbytes
                    self._bytes += int(entries["length"].sum())
                    self._table.add(list(self._read).index(name), entries)
        except OSError:  # a folder that is not there, or is removed meanwhile: what was not read is computed
            return

    # -- writing ------------------------------------------------------------------------------------------------------------------

    def put(self, indices: Sequence[int], records: Sequence[bytes]) -> None:
        """Append the records that are not there yet and that fit. When the disk refuses, warn once and store no more."""
        with self._writing.own():
            if self._stopped:
                return
            with self._locks.own():
                places = self._find(indices)
            new = {index: record for index, record, place in zip(indices, records, places, strict=True) if place is None}
            try:
                self._append(self._fitting(new))
                return
            except OSError as error:
                self._stopped = True
                words = f"{type(error).__name__}: {error}"
        warnings.warn(
            f"the cache in {self._folder!r} cannot be written ({words}); the run goes on without storing, and what is not there is "
            "computed each time",
            stacklevel=2,
        )

    def _append(self, records: dict[int, bytes]) -> None:
        """Write records, then their entries, to the files of this process."""
        if not records:
            return
        if self._own is None or self._own[0] != os.getpid():  # a forked child must not write to its parent's files
            os.makedirs(self._home, exist_ok=True)
            with open(os.path.join(self._home, "plan.json"), "w", encoding="utf-8") as text:
                text.write(self._plan)
            self._own = os.getpid(), os.path.join(self._home, f"{time.time_ns():016x}-{os.urandom(6).hex()}")
        entries = []
        with open(f"{self._own[1]}.data", "ab") as file:
            offset = file.tell()
            for position, record in records.items():
                entries.append((position, offset, len(record), _checksum(record, position, offset, self._key)))
                offset += len(record)
            file.write(b"".join(records.values()))
        with open(f"{self._own[1]}.index", "ab") as file:
            file.write(np.array(entries, _ENTRY).tobytes())

    def _fitting(self, records: dict[int, bytes]) -> dict[int, bytes]:
        """Return the records for which there is room in the whole folder, with the files of all processes."""
        room, out = math.inf, {}
        if self._max_bytes is not None and records:
            room = self._max_bytes - _bytes_below(self._folder)
        for position, record in records.items():
            size = len(record) + _ENTRY.itemsize
            if size <= room and len(record) <= _MOST_BYTES:
                out[position] = record
                room -= size
        return out

    def label(self) -> str:
        """Say what is there and how often it served."""
        with self._locks.own():
            limit = "" if self._max_bytes is None else f" (the folder at most {size_words(self._max_bytes)})"
            damaged = f", {self._damaged} damaged" if self._damaged else ""
            stopped = ", cannot be written" if self._stopped else ""
            return (
                f"in {self._folder!r}: {len(self._table)} elements, {size_words(self._bytes)}{limit}; "
                f"{self._hits} hits, {self._misses} misses{damaged}{stopped}"
            )


def _bytes_below(folder: str) -> int:
    total = 0
    for path, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.stat(os.path.join(path, name)).st_size
            except OSError:  # replaced or removed meanwhile
                continue
    return total


class RecordPlace(NamedTuple):
    """The place of a record: the number of its segment, and offset, length and check sum there."""

    segment: int
    offset: int
    length: int
    crc: int


class PlaceTable:
    """Positions to places, in pages of an array: 20 bytes a position, not the 200 of objects. Of two for one position the later counts.

    Not thread-safe.
    """

    _PAGE = 1024
    _ROW = np.dtype([("segment", "<u4"), ("offset", "<u8"), ("length", "<u4"), ("crc", "<u4")])  # segments count from 1: 0 is no place

    def __init__(self) -> None:
        """Begin empty."""
        self._pages: dict[int, Array] = {}

    def __len__(self) -> int:
        """Count the positions that have a place."""
        return sum(int(np.count_nonzero(page["segment"])) for page in self._pages.values())

    def add(self, segment: int, entries: Array) -> None:
        """Add entries of a segment."""
        entries = entries[np.argsort(entries["position"], kind="stable")]
        pages = entries["position"] // np.uint64(self._PAGE)
        for some in np.split(entries, np.flatnonzero(np.diff(pages)) + 1):
            page = self._pages.setdefault(int(some["position"][0]) // self._PAGE, np.zeros(self._PAGE, self._ROW))
            at = some["position"] % np.uint64(self._PAGE)
            page["segment"][at] = segment + 1
            for name in ("offset", "length", "crc"):
                page[name][at] = some[name]

    def drop(self, positions: Sequence[int]) -> None:
        """Forget positions."""
        for position in positions:
            self._pages[position // self._PAGE]["segment"][position % self._PAGE] = 0

    def find(self, positions: Sequence[int]) -> list[RecordPlace | None]:
        """Return the place of each position, or None."""
        out: list[RecordPlace | None] = []
        for position in positions:
            page = self._pages.get(position // self._PAGE)
            segment, *where = (0,) if page is None else page[position % self._PAGE].item()
            out.append(RecordPlace(segment - 1, *where) if segment else None)
        return out


# -- in memory --------------------------------------------------------------------------------------------------------------------

_RECORD_COST_BYTES = 160
"""Memory of a record beside its bytes: 33 of the bytes object, 32 of its number, up to 90 of the dict right after it has grown."""


class MemoryStore:
    """A dict of records inside a byte limit, shared by all feeds of a dataset and freed with it.

    First come, first kept: nothing is thrown out for a later record. Passes go through all elements, so the least recently used one is
    the next one needed, and throwing it out would leave no hits at all as soon as the limit is a little too small.
    """

    def __init__(self, max_bytes: int) -> None:
        """Keep records of at most `max_bytes` in all."""
        self._max_bytes = max_bytes
        self._records: dict[int, bytes] = {}
        self._locks = OwnLocks()
        self._bytes = self._hits = self._misses = 0

    def __reduce__(self) -> tuple[type[MemoryStore], tuple[int]]:
        """Be empty in another process, which keeps what it computes itself."""
        return MemoryStore, (self._max_bytes,)

    def get(self, indices: Sequence[int]) -> list[bytes | None]:
        """Return one record per index, None for what is not there."""
        found = list(map(self._records.get, indices))
        misses = found.count(None)
        with self._locks.own():
            self._misses += misses
            self._hits += len(found) - misses
        return found

    def put(self, indices: Sequence[int], records: Sequence[bytes]) -> None:
        """Keep the records that fit, and of two for one index the first."""
        with self._locks.own():
            for index, record in zip(indices, records, strict=True):
                size = len(record) + _RECORD_COST_BYTES
                if index not in self._records and self._bytes + size <= self._max_bytes:
                    self._records[index] = record
                    self._bytes += size

    def label(self) -> str:
        """Say how full it is and how often it served."""
        with self._locks.own():
            kept, size = len(self._records), size_words(self._bytes)
            return f"in memory: {kept} elements, {size} of {size_words(self._max_bytes)}; {self._hits} hits, {self._misses} misses"
