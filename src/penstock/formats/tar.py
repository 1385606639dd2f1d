"""The samples of a tar file in WebDataset's convention: where each begins and ends. Byte table in docs/formats/tar.md.

Members whose names are equal up to the first dot of the last part of the path, the key, are one sample when they lie side by side; what is
behind the dot is the name of a field. Nothing is ever extracted, and names are only data.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from penstock.errors import RecordError
from penstock.formats.tar_errors import WRITE_AGAIN, compressed_error, scan_error, tar_error
from penstock.kernels.tar import Table, scan_members
from penstock.kernels.tar_codes import UNIT, Column, Outcome, Place

__all__ = ["LEFT_OUT", "find_samples"]

LEFT_OUT = {
    "directories": Place.DIRECTORIES,
    "links": Place.LINKS,
    "special": Place.SPECIAL,
    "global_headers": Place.GLOBALS,
    "meta": Place.META,
    "nameless": Place.NAMELESS,
}
"""Members that are no part of a sample, as they are counted in the meta of an index."""

_END_BYTES = 2 * UNIT
_HEAD_BYTES = 8


def find_samples(pieces: Iterator[NDArray[np.uint8]], size: int, name: str) -> dict[str, Any]:
    """Find the samples of one file.

    Args:
        pieces: the file's bytes, in order, uint8 [some]; each is valid until the next is asked for. All are used.
        size: bytes of the file.
        name: path or URL, for errors.

    Returns:
        "offsets" int64 [n] and "lengths" int64 [n]: a sample's bytes from the first header of its first member to the end of the padding of
        its last one; "crc32c" uint32 [n] of its members' headers, data and padding; "meta": "end" ("blocks", or "missing" when there are
        no two blocks of zeros at the end), the counts of `LEFT_OUT`, "first_odd": place of the first link or special file or -1.

    Raises:
        RecordError: the file is cut, is no tar file, or holds what is not read; see docs/formats/tar.md.
    """
    scan = _Scan(size, name)
    for piece in pieces:
        scan.take(piece)
    return scan.finish()


class _Scan:
    """One file on its way through."""

    def __init__(self, size: int, name: str) -> None:
        self._size, self._name = size, name
        self._table = Table(with_crc=True)
        self._taken = 0  # bytes of the file that came
        self._position = 0  # of the next header, in the file
        self._tail = np.empty(0, np.uint8)  # bytes before `taken` that are needed once more
        self._head = b""
        self._ended = False
        self._found: list[NDArray[np.int64]] = []

    def take(self, piece: NDArray[np.uint8]) -> None:
        """Go on with the next bytes."""
        self._head = (self._head + piece[:_HEAD_BYTES].tobytes())[:_HEAD_BYTES]
        base, data = self._taken - self._tail.size, piece
        self._taken += piece.size
        if self._ended:
            self._check_zeros(data, base)
            return
        if self._tail.size:
            data = np.concatenate((self._tail, piece))
        state = self._table.state
        state[Place.POSITION] = self._position - base
        outcome = scan_members(data, base, self._size, self._table)
        self._position = base + int(state[Place.POSITION])
        if outcome < 0:
            raise scan_error(outcome, self._table, self._name, self._head)
        self._collect(int(state[Place.SAMPLE]))
        here = min(self._position - base, data.size)
        if outcome == Outcome.END:
            self._ended = True
            self._tail = np.empty(0, np.uint8)
            self._check_zeros(data[here:], self._position)
        else:
            self._tail = data[here:].copy()

    def finish(self) -> dict[str, Any]:
        """Return what was found, when all bytes came."""
        state = self._table.state
        if not self._ended and (self._tail.size or self._size == 0):
            what = "unexpected end: the file is cut in a header" if self._size else "the file is empty, which a tar file never is"
            cut = tar_error(what, self._name, self._position, fix=WRITE_AGAIN)
            raise cut if self._position else compressed_error(self._name, self._head) or cut
        self._collect(int(state[Place.NUM_ROWS]))
        found = np.concatenate(self._found) if self._found else np.empty((0, 5), np.int64)
        offsets, ends, crcs = found[:, 0], found[:, 1], found[:, 2]
        self._check_keys(offsets, found[:, 3:])
        meta: dict[str, Any] = {key: int(state[place]) for key, place in LEFT_OUT.items()}
        meta["end"] = "blocks" if self._ended and self._size - self._position >= _END_BYTES else "missing"
        meta["first_odd"] = int(state[Place.FIRST_ODD])
        return {"offsets": offsets, "lengths": ends - offsets, "crc32c": crcs.astype(np.uint32), "meta": meta}

    def _collect(self, num_rows: int) -> None:
        """Note the samples of the first rows, which are complete, and forget these."""
        if num_rows <= 0:
            return
        rows = self._table.rows[:num_rows]
        firsts = np.flatnonzero(rows[:, Column.FIRST])
        lasts = rows[np.append(firsts[1:], num_rows) - 1]
        ends = lasts[:, Column.DATA] + (lasts[:, Column.SIZE] + (UNIT - 1)) // UNIT * UNIT
        first = rows[firsts]
        self._found.append(
            np.stack((first[:, Column.START], ends, lasts[:, Column.CRC], first[:, Column.KEY_HASH], first[:, Column.OTHER_HASH]), axis=1)
        )
        self._table.drop(num_rows)

    def _check_zeros(self, data: NDArray[np.uint8], offset: int) -> None:
        """Refuse anything behind the end of the archive: what other readers would not see, or only they would."""
        if data.any():
            place = offset + int((data != 0).argmax())
            raise tar_error(
                "there are bytes behind the first block of zeros, which ends an archive",
                self._name,
                place,
                fix="if these are several archives in one file, take them apart (`tar --ignore-zeros`) and write one",
            )

    def _check_keys(self, offsets: NDArray[np.int64], hashes: NDArray[np.int64]) -> None:
        """Refuse two samples of one key: parts of one that do not lie side by side, or a name that comes twice."""
        order = np.lexsort((offsets, hashes[:, 1], hashes[:, 0]))
        ordered = hashes[order]
        same = np.flatnonzero((ordered[1:] == ordered[:-1]).all(axis=1))
        if same.size:
            first = same[np.argmin(offsets[order[same + 1]])]
            one, other = offsets[order[first]], offsets[order[first + 1]]
            raise _not_adjacent(self._name, int(one), int(other), same.size)


def _not_adjacent(name: str, one: int, other: int, count: int) -> RecordError:
    more = "" if count == 1 else f" ({count} such pairs in this file)"
    return tar_error(
        f"members of one key stand at offset {one} and, with others between, at {other}{more}",
        name,
        other,
        fix="a sample's members must lie side by side, once: write the archive sorted by name, as `tar --sort=name` does",
    )
