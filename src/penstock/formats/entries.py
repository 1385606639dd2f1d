"""The index of a disk cache: entries of one size in files, arrays of them in memory."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["ENTRY_BYTES", "Place", "Table", "checksum", "entry", "trusted"]

_ENTRY = np.dtype([("position", "<u8"), ("offset", "<u8"), ("length", "<u4"), ("crc", "<u4"), ("check", "<u8")])
ENTRY_BYTES = _ENTRY.itemsize
"""32: position, offset in the data file, length, CRC32 of the record, and a check of these four."""

_FACTORS = (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB, 0xD6E8FEB86659FD93)
_MOST_RECENT = 65536


class Place(NamedTuple):
    """Where a record lies: the number of its segment, and offset, length and CRC32 there."""

    segment: int
    offset: int
    length: int
    crc: int


def checksum(record: bytes, position: int, offset: int, key: int) -> int:
    """Return the CRC32 of a record; one that stands at another place, or belongs to another plan, has another."""
    return zlib.crc32(record, zlib.crc32(struct.pack("<QQQI", key, position, offset, len(record))))


def entry(position: int, place: Place, key: int) -> bytes:
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


class Table:
    """Positions to places: sorted arrays, 28 bytes for an entry, and a small dict of the latest. Of two for one position the later counts.

    Not thread-safe. Ten million entries take 280 MB and 5 s to read and sort; as Python objects they would take 2 GB.
    """

    def __init__(self) -> None:
        """Begin empty."""
        self._positions = np.empty(0, np.int64)
        self._columns = _columns(0, np.empty(0, _ENTRY))
        self._recent: dict[int, Place | None] = {}

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
            self._recent[position] = Place(segment, offset, length, crc)

    def drop(self, position: int) -> None:
        """Forget a position."""
        self._recent[position] = None

    def find(self, positions: Sequence[int]) -> list[Place | None]:
        """Return the place of each position, or None."""
        found = self._sorted(positions)
        if self._recent:
            found = [self._recent.get(position, old) for position, old in zip(positions, found, strict=True)]
        return found

    def _sorted(self, positions: Sequence[int]) -> list[Place | None]:
        if not len(self._positions):
            return [None] * len(positions)
        wanted = np.array(positions, np.int64)
        at = np.minimum(np.searchsorted(self._positions, wanted), len(self._positions) - 1)
        known = (self._positions[at] == wanted).tolist()
        rows = zip(*(column[at].tolist() for column in self._columns), strict=True)
        return [Place(*row) if is_known else None for row, is_known in zip(rows, known, strict=True)]

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
    """Return the fields of `Place`, a column each."""
    return [
        np.full(len(entries), segment, np.uint32),
        entries["offset"].astype(np.uint64),
        entries["length"].astype(np.uint32),
        entries["crc"].astype(np.uint32),
    ]
