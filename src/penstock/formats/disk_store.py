"""Records in a folder that survives the process and is safe for several at once.

    FOLDER/KEY/plan.json            what the key was made of, for people
    FOLDER/KEY/NAME.data            records, one after the other
    FOLDER/KEY/NAME.index           32 bytes for each record: see `entries`

Each process appends to files of its own and reads those of all. A record counts once its entry stands in the index, which is written
behind it; a process that is killed between the two leaves bytes that nobody looks at. There is no lock, so none can be left behind.
No file stays open between calls: an open and close cost 5 us for a block of elements, and nothing has to be closed with the feed.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any

from penstock._contracts.forking import OwnLocks
from penstock.formats.entries import ENTRY_BYTES, Place, Table, checksum, entry, trusted
from penstock.formats.sizes import size_words

__all__ = ["DiskStore"]

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
        self._identify = identify
        self._max_bytes = max_bytes
        self._locks = OwnLocks()
        self._writing = OwnLocks()  # apart, and taken first: nobody who reads waits for a disk that is slow to write
        self._home: str | None = None
        self._plan = ""
        self._key = 0
        self._forget()
        self._own: tuple[int, str] | None = None
        self._stopped = False
        self._hits = self._misses = 0

    def _forget(self) -> None:
        """Know nothing of what the indices say."""
        self._table = Table()
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
        wanted: dict[int, list[tuple[int, Place]]] = {}
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

    def _read_segment(self, name: str, indices: Sequence[int], asked: list[tuple[int, Place]], out: list[bytes | None]) -> None:
        """Read records of one file into `out`. No memory map: a file that somebody cuts short would kill the process."""
        try:
            with open(os.path.join(self._home or "", name), "rb") as file:
                for offset, place in asked:
                    file.seek(place.offset)
                    record = file.read(place.length)
                    if len(record) == place.length and checksum(record, indices[offset], place.offset, self._key) == place.crc:
                        out[offset] = record
        except (OSError, OverflowError):  # the file is gone, or the disk fails: what was not read is computed again
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

    def _find(self, indices: Sequence[int]) -> list[Place | None]:
        places = self._table.find(indices)
        if None not in places:
            return places
        self._look_again()
        return self._table.find(indices)

    def _look_again(self) -> None:
        """Read what was added to the indices, by whomever; the names sort by the time of their making."""
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
                place = Place(0, offset, len(record), checksum(record, position, offset, self._key))
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
        """Return the records for which there is room in the whole folder, whoever wrote to it."""
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
