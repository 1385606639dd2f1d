"""Values as bytes and back without pickle, and the stores of `cache`: records in memory, or in a folder.

A record is a header and one field per array or value, little-endian:

    uint32 H, H bytes of JSON padded with spaces so that 4 + H is a multiple of 16, then the fields in the order of `element.flatten`,
    each at the next multiple of 16 bytes from the start.

The header names the structure and the kind of every field; shapes and values stand behind it. So the elements of one dataset share one
header whatever their shapes, and reading is one look-up and one view per array: 2 us for a picture with its label.

The folder survives the process and is safe for several at once:

    FOLDER/KEY/plan.json            what the key was made of, for people
    FOLDER/KEY/NAME.data            records, one after the other
    FOLDER/KEY/NAME.index           32 bytes for each record: see `_ENTRY`

Each process appends to files of its own and reads those of all. A record counts once its entry stands in the index, which is written
behind it; a process that is killed between the two leaves bytes without an entry, which are never read. There is no lock, so none can be
left behind. No file stays open between calls: an open and close cost 5 us for a block of elements, and nothing has to be closed with the
feed.
"""

from __future__ import annotations

import hashlib
import io
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
from numpy.typing import NDArray

from penstock._contracts.element import Structure, unflatten
from penstock._contracts.process import OwnLocks
from penstock.errors import SpecError
from penstock.formats.sizes import size_words

_ALIGNED = 16
"""Bytes objects begin at a multiple of 16, so every array does too: C loops may read it with any instruction."""

_VIEWED_BYTES = 4096
"""From here on a view of the items costs less than a copy: 0.6 us."""

_PLAIN_KINDS = "biufcSUMm"
_LENGTH = struct.Struct("<I")
_COUNT = struct.Struct("<Q")
_NUMBERS = {"int": struct.Struct("<q"), "float": struct.Struct("<d"), "bool": struct.Struct("<?"), "complex": struct.Struct("<dd")}

_Reader = Callable[[bytes, int], tuple[Any, int]]
"""Reads one leaf at an offset: (value, the offset behind it)."""


def pack(element: Any) -> bytes:
    """Return an element as bytes of its own: nothing of the element stays referenced.

    Raises:
        SpecError: a leaf is nothing that an element may hold, or a container is of a type of its own.
    """
    parts: list[Any] = []
    header = _header(_schema(element, parts, ""))
    size = len(header)
    out = [header]
    for part in parts:
        gap = -size % _ALIGNED if part.begins else 0
        out.extend((bytes(gap), part.data))
        size += gap + len(part.data)
    return b"".join(out)


def unpack(data: bytes) -> Any:
    """Return the element of `pack`. Its arrays are read-only views of `data`; its containers are new."""
    (length,) = _LENGTH.unpack_from(data)
    structure, readers = _plan_of(data[: 4 + length])
    at, leaves = 4 + length, []
    for read in readers:
        value, at = read(data, at + -at % _ALIGNED)
        leaves.append(value)
    if structure is not None and structure[0] == "flat":
        return dict(zip(structure[1], leaves, strict=True))
    return unflatten(structure, iter(leaves))


class _Part:
    """Bytes of a leaf; `begins` tells that it is the first of the leaf, or the items of an array, and so is aligned."""

    __slots__ = ("begins", "data")

    def __init__(self, data: Any, begins: bool = True) -> None:
        self.data = data
        self.begins = begins


# -- writing ----------------------------------------------------------------------------------------------------------------------


def _schema(tree: Any, parts: list[Any], path: str) -> Any:
    """Return the header's words for a tree, as nested tuples, and append the bytes of its leaves to `parts`."""
    kind = type(tree)
    if kind is dict:
        for key in tree:
            if type(key) not in (str, int):
                raise _refused(path, f"a dict with the key {key!r} of type {type(key).__name__}", "use str or int keys")
        return ("dict", *[(key, _schema(value, parts, f"{path}[{key!r}]")) for key, value in tree.items()])
    if kind is tuple or kind is list:
        return (kind.__name__, *[_schema(value, parts, f"{path}[{index}]") for index, value in enumerate(tree)])
    if isinstance(tree, (dict, tuple, list)):
        raise _refused(path, f"a {kind.__name__}, a container of a type of its own", "return a plain dict, tuple or list")
    return _leaf(tree, parts, path)


def _leaf(leaf: Any, parts: list[Any], path: str) -> Any:
    kind = type(leaf)
    if kind in (bool, int, float, complex):
        return _number(leaf, kind.__name__, parts)
    if kind in (str, bytes):
        parts.append(_Part(_sized(_text(leaf))))
        return kind.__name__
    if kind is np.ndarray or isinstance(leaf, np.memmap):
        return _array(np.asarray(leaf), parts, path)
    if isinstance(leaf, np.generic):
        _check_dtype(leaf.dtype, path)
        parts.append(_Part(leaf.tobytes()))
        return ("scalar", leaf.dtype.str)
    fix = "return arrays, numbers, str or bytes; give None a number of its own, such as -1"
    raise _refused(path, f"a {kind.__name__}", fix)


def _number(value: Any, name: str, parts: list[Any]) -> str:
    if name == "int" and not -(2**63) <= value < 2**63:
        parts.append(_Part(_sized(str(hex(value)).encode())))
        return "long"
    fields = (value.real, value.imag) if name == "complex" else (value,)
    parts.append(_Part(_NUMBERS[name].pack(*fields)))
    return name


def _array(array: Any, parts: list[Any], path: str) -> Any:
    parts.append(_Part(struct.pack(f"<{array.ndim}Q", *array.shape)))
    if array.dtype == np.dtype(object):
        for item in array.ravel().tolist():
            if type(item) not in (str, bytes):
                raise _refused(path, f"an object array with a {type(item).__name__} in it", "keep only str and bytes in object arrays")
            parts.append(_Part(b"s" if type(item) is str else b"b", begins=False))
            parts.append(_Part(_sized(_text(item)), begins=False))
        return ("objects", array.ndim)
    _check_dtype(array.dtype, path)
    if array.nbytes < _VIEWED_BYTES:
        parts.append(_Part(array.tobytes()))
    else:
        parts.append(_Part(np.ascontiguousarray(array).reshape(-1).view(np.uint8)))
    return ("array", array.dtype.str, array.ndim)


def _check_dtype(dtype: np.dtype[Any], path: str) -> None:
    if dtype.kind not in _PLAIN_KINDS or np.dtype(dtype.str) != dtype:
        raise _refused(path, f"an array of dtype {dtype}", "give each field of a structured array as an array of its own")


def _text(value: str | bytes) -> bytes:
    return value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value


def _sized(data: bytes) -> bytes:
    return _COUNT.pack(len(data)) + data


@lru_cache(maxsize=256)
def _header(schema: Any) -> bytes:
    text = json.dumps(schema, separators=(",", ":")).encode()
    text += b" " * (-(4 + len(text)) % _ALIGNED)
    return _LENGTH.pack(len(text)) + text


def _refused(path: str, what: str, fix: str) -> SpecError:
    return SpecError(f"a cache cannot keep {what}", where=f"cache(), leaf {path or 'the element itself'}", fix=fix)


# -- reading ----------------------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=256)
def _plan_of(header: bytes) -> tuple[Structure, tuple[_Reader, ...]]:
    """Return the structure and the reader of each leaf. A dict of leaves has the structure ("flat", keys)."""
    readers: list[_Reader] = []
    schema = json.loads(header[4:])
    structure = _structure(schema, readers)
    if structure is not None and structure[0] == "dict" and all(child is None for child in structure[2]):
        structure = ("flat", structure[1])
    return structure, tuple(readers)


def _structure(schema: Any, readers: list[_Reader]) -> Structure:
    name = schema if isinstance(schema, str) else schema[0]
    if name == "dict":
        keys = tuple(key for key, _ in schema[1:])
        return ("dict", keys, tuple(_structure(child, readers) for _, child in schema[1:]))
    if name == "list":
        return ("list", tuple(_structure(child, readers) for child in schema[1:]))
    if name == "tuple":
        return ("tuple", tuple, tuple(_structure(child, readers) for child in schema[1:]))
    readers.append(_reader(name, schema))
    return None


def _reader(name: str, schema: Any) -> _Reader:
    match name:
        case "array":
            return _array_reader(np.dtype(schema[1]), schema[2])
        case "scalar":
            return _scalar_reader(np.dtype(schema[1]))
        case "objects":
            return _objects_reader(schema[1])
        case "str":
            return _read_str
        case "bytes":
            return _read_bytes
        case "long":
            return _read_long
    return _number_reader(_NUMBERS[name], name == "complex")


def _array_reader(dtype: np.dtype[Any], ndim: int) -> _Reader:
    shapes = struct.Struct(f"<{ndim}Q")

    def read(data: bytes, at: int) -> tuple[Any, int]:
        shape = shapes.unpack_from(data, at)
        at += shapes.size
        at += -at % _ALIGNED
        return np.ndarray(shape, dtype, data, at), at + math.prod(shape) * dtype.itemsize

    return read


def _scalar_reader(dtype: np.dtype[Any]) -> _Reader:
    def read(data: bytes, at: int) -> tuple[Any, int]:
        return np.ndarray((), dtype, data, at)[()], at + dtype.itemsize

    return read


def _objects_reader(ndim: int) -> _Reader:
    shapes = struct.Struct(f"<{ndim}Q")

    def read(data: bytes, at: int) -> tuple[Any, int]:
        shape = shapes.unpack_from(data, at)
        at += shapes.size
        array = np.empty(math.prod(shape), object)
        for place in range(len(array)):
            item = _read_str if data[at : at + 1] == b"s" else _read_bytes
            array[place], at = item(data, at + 1)
        array = array.reshape(shape)
        array.flags.writeable = False
        return array, at

    return read


def _number_reader(form: struct.Struct, is_complex: bool) -> _Reader:
    def read(data: bytes, at: int) -> tuple[Any, int]:
        values = form.unpack_from(data, at)
        return (complex(*values) if is_complex else values[0]), at + form.size

    return read


def _read_bytes(data: bytes, at: int) -> tuple[bytes, int]:
    begin = at + 8
    end = begin + _COUNT.unpack_from(data, at)[0]
    return data[begin:end], end


def _read_str(data: bytes, at: int) -> tuple[str, int]:
    found, end = _read_bytes(data, at)
    return found.decode("utf-8", "surrogatepass"), end


def _read_long(data: bytes, at: int) -> tuple[int, int]:
    found, end = _read_bytes(data, at)
    return int(found, 16), end


_MOST_BYTES = 2**32 - 1
"""Of one record: its length is a uint32."""


_JOINED_BYTES = 16384
"""Smaller records of one block are written with one call; for larger ones a call each costs less than the copy."""


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
        self._home: str | None = None
        self._plan = ""
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
        self._segments: list[str] = []
        self._read: dict[str, int] = {}
        self._bytes = self._damaged = 0

    # -- reading ------------------------------------------------------------------------------------------------------------------

    def get(self, indices: Sequence[int]) -> list[bytes | None]:
        """Return one record per index, None for what is not there or not as it was written."""
        with self._locks.own():
            self._open()
            places = self._find(indices)
            segments = self._segments
        out: list[bytes | None] = [None] * len(places)
        wanted: dict[int, list[tuple[int, RecordPlace]]] = {}
        for offset, place in enumerate(places):
            if place is not None:
                wanted.setdefault(place.segment, []).append((offset, place))
        for segment, asked in wanted.items():
            self._read_segment(f"{segments[segment]}.data", indices, asked, out)
        bad = [indices[offset] for offset, place in enumerate(places) if place is not None and out[offset] is None]
        with self._locks.own():
            for position in bad:
                self._table.drop(position)
            absent = out.count(None)
            self._hits, self._misses, self._damaged = self._hits + len(out) - absent, self._misses + absent, self._damaged + len(bad)
        return out

    def _read_segment(self, name: str, indices: Sequence[int], asked: list[tuple[int, RecordPlace]], out: list[bytes | None]) -> None:
        """Read records of one file into `out`. No memory map: the process would be killed if the file were cut short."""
        try:
            with open(os.path.join(self._home or "", name), "rb") as file:
                for offset, place in asked:
                    file.seek(place.offset)
                    record = file.read(place.length)
                    if len(record) == place.length and checksum(record, indices[offset], place.offset, self._key) == place.crc:
                        out[offset] = record
        except (OSError, OverflowError):  # the file is missing, or the disk fails: records that were not read are computed again
            pass

    def _open(self) -> None:
        if self._locks.is_new():  # a thread that is not here may have been adding to it
            self._forget()
        if self._home is not None:
            return
        self._plan = json.dumps(self._identify(), sort_keys=True, indent=1)
        digest = hashlib.sha256(self._plan.encode()).hexdigest()
        self._key = int(digest[32:48], 16)
        self._home = os.path.join(self._folder, digest[:32])

    def _find(self, indices: Sequence[int]) -> list[RecordPlace | None]:
        places = self._table.find(indices)
        if None not in places:
            return places
        self._look_again()
        return self._table.find(indices)

    def _look_again(self) -> None:
        """Read what any process added to the indices. Names sort by the time at which the files were made."""
        assert self._home is not None
        try:
            with os.scandir(self._home) as listing:
                found = sorted((item.name[: -len(".index")], item.stat().st_size) for item in listing if item.name.endswith(".index"))
        except OSError:
            return
        for name, size in found:
            before = self._read.get(name, 0)
            if size < before + ENTRY_BYTES:
                continue
            try:
                with open(os.path.join(self._home, f"{name}.index"), "rb") as file:
                    file.seek(before)
                    data = file.read(size - before)
            except OSError:
                continue
            self._add(name, data)

    def _add(self, name: str, data: bytes) -> None:
        whole = len(data) // ENTRY_BYTES * ENTRY_BYTES
        entries = trusted(data[:whole], self._key)
        if name not in self._read:
            self._segments.append(name)
        self._read[name] = self._read.get(name, 0) + whole
        self._damaged += whole // ENTRY_BYTES - len(entries)
        self._bytes += int(entries["length"].sum())
        self._table.add(self._segments.index(name), entries)

    # -- writing ------------------------------------------------------------------------------------------------------------------

    def put(self, indices: Sequence[int], records: Sequence[bytes]) -> None:
        """Append the records that are not there yet and that fit. When the disk refuses, warn once and store no more."""
        with self._writing.own():
            if self._stopped:
                return
            with self._locks.own():
                self._open()
                places = self._find(indices)
            new = {
                position: record
                for position, record, place in zip(indices, records, places, strict=True)
                if place is None and len(record) <= _MOST_BYTES
            }
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
        name = self._name()
        with open(os.path.join(self._home or "", f"{name}.data"), "ab", buffering=0) as file:
            begin = offset = file.seek(0, os.SEEK_END)
            entries = []
            for position, record in records.items():
                place = RecordPlace(0, offset, len(record), checksum(record, position, offset, self._key))
                entries.append(entry(position, place, self._key))
                offset += len(record)
            joined = offset - begin <= _JOINED_BYTES * len(records)
            for data in [b"".join(records.values())] if joined else records.values():
                _write(file, data)
        with open(os.path.join(self._home or "", f"{name}.index"), "ab", buffering=0) as file:
            _write(file, b"".join(entries))

    def _name(self) -> str:
        """Return the name of this process's files; made at its first record, so that a process that only reads leaves nothing behind."""
        if self._own is None or self._own[0] != os.getpid():  # a forked child must not write to its parent's files
            assert self._home is not None
            os.makedirs(self._home, exist_ok=True)
            name = f"{time.time_ns():016x}-{os.urandom(6).hex()}"
            part = os.path.join(self._home, f"{name}.part")
            with open(part, "x", encoding="utf-8") as file:
                file.write(self._plan)
            os.replace(part, os.path.join(self._home, "plan.json"))
            for kind in ("data", "index"):
                open(os.path.join(self._home, f"{name}.{kind}"), "xb").close()
            self._own = os.getpid(), name
        return self._own[1]

    def _fitting(self, records: dict[int, bytes]) -> dict[int, bytes]:
        """Return the records for which there is room in the whole folder, with the files of all processes."""
        if self._max_bytes is None or not records:
            return records
        room, out = self._max_bytes - _bytes_below(self._folder), {}
        for position, record in records.items():
            size = len(record) + ENTRY_BYTES
            if size <= room:
                out[position] = record
                room -= size
        return out

    # -- figures ------------------------------------------------------------------------------------------------------------------

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


def _write(file: io.FileIO, data: bytes) -> None:
    """Write all of `data`: one call may write less, when a signal comes or the disk is nearly full."""
    view = memoryview(data)
    while view:
        view = view[file.write(view) :]


def _bytes_below(folder: str) -> int:
    total = 0
    for path, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.stat(os.path.join(path, name)).st_size
            except OSError:  # replaced or removed meanwhile
                continue
    return total


# -- the index of a folder: entries of one size in files, arrays of them in memory ------------------------------------------------

_ENTRY = np.dtype([("position", "<u8"), ("offset", "<u8"), ("length", "<u4"), ("crc", "<u4"), ("check", "<u8")])
ENTRY_BYTES = _ENTRY.itemsize
"""32: position, offset in the data file, length, CRC32 of the record, and a check of these four."""

_FACTORS = (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB, 0xD6E8FEB86659FD93)
_MOST_RECENT = 65536


class RecordPlace(NamedTuple):
    """The place of a record: the number of its segment, and offset, length and CRC32 there."""

    segment: int
    offset: int
    length: int
    crc: int


def checksum(record: bytes, position: int, offset: int, key: int) -> int:
    """Return the CRC32 of a record; one that stands at another place, or belongs to another plan, has another."""
    return zlib.crc32(record, zlib.crc32(struct.pack("<QQQI", key, position, offset, len(record))))


def entry(position: int, place: RecordPlace, key: int) -> bytes:
    """Return the 32 bytes of one entry."""
    out = np.array([(position, place.offset, place.length, place.crc, 0)], _ENTRY)
    out["check"] = _checks(out, key)
    return out.tobytes()


def trusted(data: bytes, key: int) -> NDArray[Any]:
    """Return the entries in `data` whose check is right, in order. An entry that is cut at the end, or damaged, is left out."""
    entries = np.frombuffer(data, _ENTRY, len(data) // ENTRY_BYTES)
    good: NDArray[Any] = entries[entries["check"] == _checks(entries, key)]
    return good


def _checks(entries: NDArray[Any], key: int) -> NDArray[np.uint64]:
    """Mix the fields of each entry. CRC32 would take a Python call each; every step here is one to one, so any one changed field shows."""
    mixed = np.full(len(entries), key, np.uint64)
    for name, factor in zip(("position", "offset", "length", "crc"), _FACTORS, strict=True):
        mixed ^= entries[name].astype(np.uint64)
        mixed *= np.uint64(factor)
        mixed ^= mixed >> np.uint64(29)
    return mixed


class PlaceTable:
    """Positions to places: sorted arrays, 28 bytes for an entry, and a small dict of the latest. Of two for one position the later counts.

    Not thread-safe. Ten million entries take 280 MB and 5 s to read and sort; as Python objects they would take 2 GB.
    """

    def __init__(self) -> None:
        """Begin empty."""
        self._positions = np.empty(0, np.int64)
        self._columns = _columns(0, np.empty(0, _ENTRY))
        self._recent: dict[int, RecordPlace | None] = {}

    def __len__(self) -> int:
        """Count the positions that have a place."""
        known = self._sorted(list(self._recent))
        recent = zip(self._recent.values(), known, strict=True)
        return len(self._positions) + sum((now is not None) - (before is not None) for now, before in recent)

    def add(self, segment: int, entries: NDArray[Any]) -> None:
        """Add entries of a segment, as `trusted` gave them."""
        if len(entries) + len(self._recent) > max(_MOST_RECENT, len(self._positions) // 4):
            self._merge(entries["position"].astype(np.int64), _columns(segment, entries))
            return
        for position, offset, length, crc, _ in entries.tolist():
            self._recent[position] = RecordPlace(segment, offset, length, crc)

    def drop(self, position: int) -> None:
        """Forget a position."""
        self._recent[position] = None

    def find(self, positions: Sequence[int]) -> list[RecordPlace | None]:
        """Return the place of each position, or None."""
        found = self._sorted(positions)
        if self._recent:
            found = [self._recent.get(position, old) for position, old in zip(positions, found, strict=True)]
        return found

    def _sorted(self, positions: Sequence[int]) -> list[RecordPlace | None]:
        if not len(self._positions):
            return [None] * len(positions)
        wanted = np.array(positions, np.int64)
        at = np.minimum(np.searchsorted(self._positions, wanted), len(self._positions) - 1)
        known = (self._positions[at] == wanted).tolist()
        rows = zip(*(column[at].tolist() for column in self._columns), strict=True)
        return [RecordPlace(*row) if is_known else None for row, is_known in zip(rows, known, strict=True)]

    def _merge(self, positions: NDArray[np.int64], columns: list[NDArray[Any]]) -> None:
        """Sort everything into the arrays: what they hold, then the dict, then what is given."""
        kept = {position: place for position, place in self._recent.items() if place is not None}
        dropped = [position for position, place in self._recent.items() if place is None]
        old = ~np.isin(self._positions, np.array(dropped, np.int64))
        rows = list(kept.values())
        recent = [np.array([row[number] for row in rows], column.dtype) for number, column in enumerate(self._columns)]
        parts = [
            (self._positions[old], [column[old] for column in self._columns]),
            (np.array(list(kept), np.int64), recent),
            (positions, columns),
        ]
        positions = np.concatenate([part[0] for part in parts])
        order = np.argsort(positions, kind="stable")
        positions = positions[order]
        last = np.append(positions[1:] != positions[:-1], True)[: len(positions)]
        self._positions = positions[last]
        self._columns = [np.concatenate([part[1][number] for part in parts])[order][last] for number in range(len(self._columns))]
        self._recent = {}


def _columns(segment: int, entries: NDArray[Any]) -> list[NDArray[Any]]:
    """Return the fields of `RecordPlace`, a column each."""
    return [
        np.full(len(entries), segment, np.uint32),
        entries["offset"].astype(np.uint64),
        entries["length"].astype(np.uint32),
        entries["crc"].astype(np.uint32),
    ]


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
