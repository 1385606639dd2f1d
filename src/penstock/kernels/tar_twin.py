"""Scanning tar files without the C library: the same results. Arguments are taken as `penstock.kernels.tar` left them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from penstock.kernels.framing_twin import crc32c
from penstock.kernels.tar_codes import MAX_BYTES, MAX_EXTENDED, MAX_NAME, MAX_PARTS, UNIT, Column, Outcome, Place

__all__ = ["samples", "scan"]

_ZEROS = bytes(UNIT)
_DIGITS = frozenset(b"0123456789")
_OCTAL = frozenset(b"01234567")
_MASK64 = (1 << 64) - 1
_WRAP = 1 << 63


class _Stop(Exception):
    """Ends a scan with an outcome."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(outcome)
        self.outcome = outcome


@dataclass(slots=True)
class _Extended:
    """What headers before a member's own say of it."""

    path: bytes = b""
    size: int = -1
    seen: frozenset[str] = frozenset()


def scan(
    data: NDArray[np.uint8], base: int, total: int, rows: NDArray[np.int64], names: NDArray[np.uint8], state: NDArray[np.int64]
) -> int:
    """Scan one piece of a file that stands at `base` of `total` bytes; return an `Outcome`."""
    return _Scanner(data, base, total, rows, names, state).run()


def samples(
    data: NDArray[np.uint8],
    starts: NDArray[np.int64],
    lengths: NDArray[np.int64],
    rows: NDArray[np.int64],
    names: NDArray[np.uint8],
    ends: NDArray[np.int64],
    state: NDArray[np.int64],
) -> int:
    """Scan whole samples; `ends[i]` are the rows up to and with sample i. Return 0 or an `Outcome`."""
    for sample, (start, length) in enumerate(zip(starts.tolist(), lengths.tolist(), strict=True)):
        before = int(state[Place.NUM_ROWS])
        state[Place.POSITION], state[Place.SAMPLE] = 0, -1
        outcome = int(Outcome.OUTSIDE)
        if start >= 0 and length >= 0 and start <= data.size and length <= data.size - start:
            outcome = scan(data[start : start + length], 0, length, rows, names, state)
            if outcome >= 0 and (outcome == Outcome.END or state[Place.POSITION] != length or state[Place.SAMPLE] != before):
                outcome = int(Outcome.NOT_ONE)
        if outcome < 0:
            state[Place.SAMPLE] = sample
            return outcome
        ends[sample] = state[Place.NUM_ROWS]
        rows[before : int(ends[sample]), [Column.START, Column.DATA]] += start
    return 0


class _Scanner:
    """One call of `scan`."""

    def __init__(
        self, data: NDArray[np.uint8], base: int, total: int, rows: NDArray[np.int64], names: NDArray[np.uint8], state: NDArray[np.int64]
    ) -> None:
        self._data = data.tobytes()
        self._base, self._total, self._rows, self._names, self._state = base, total, rows, names, state

    def run(self) -> int:
        state, owed = self._state, int(self._state[Place.OWED])
        if owed > self._base and state[Place.NUM_ROWS] > 0:
            self._sum_row(self._rows[state[Place.NUM_ROWS] - 1], self._base, owed)
        at = int(state[Place.POSITION])
        try:
            while True:
                state[Place.POSITION] = at
                at = self._member(at)
        except _Stop as stop:
            return int(stop.outcome)

    def _member(self, first: int) -> int:
        """Take in one member with the headers that speak of it; return where the next one begins."""
        ext, at = _Extended(), first
        while True:
            self._state[Place.ERROR_AT], self._state[Place.ERROR_NAME] = self._base + at, 0
            if len(self._data) - at < UNIT:
                raise _Stop(Outcome.MORE)
            header = self._data[at : at + UNIT]
            if header == _ZEROS:
                if ext.seen:
                    raise _Stop(Outcome.ORPHAN)
                self._state[Place.POSITION] = at
                raise _Stop(Outcome.END)
            if not _checksum_fits(header):
                raise _Stop(Outcome.BAD_CHECKSUM)
            size = _size_of(header[124:136])
            kind = header[156:157]
            if kind not in (b"x", b"X", b"g", b"L", b"K"):
                return at + UNIT + self._take(first, at, header, size if ext.size < 0 else ext.size, ext)
            if size > MAX_EXTENDED:
                raise _Stop(Outcome.LARGE_EXTENDED)
            taken = -(-size // UNIT) * UNIT
            if taken > self._total - self._base - at - UNIT:
                raise _Stop(Outcome.CUT)
            if taken > len(self._data) - at - UNIT:
                raise _Stop(Outcome.MORE)
            seen = ext.seen
            if kind == b"g":
                self._state[Place.GLOBALS] += 1
            _extend(kind, self._data[at + UNIT : at + UNIT + size], ext)
            at += UNIT + taken
            if not ext.seen:
                return at
            if kind == b"g" and seen:
                raise _Stop(Outcome.BAD_EXTENDED)

    def _take(self, first: int, at: int, header: bytes, size: int, ext: _Extended) -> int:
        """Book a member; return its bytes in the file behind the header."""
        state, kind = self._state, header[156:157]
        left = self._total - self._base - at - UNIT
        if kind == b"S":
            raise _Stop(Outcome.SPARSE)
        if kind in (b"M", b"N"):
            raise _Stop(Outcome.SEVERAL_VOLUMES)
        name = ext.path or _name_of(header)
        begin = int(state[Place.NUM_NAME_BYTES])
        if len(name) > self._names.size - begin:
            raise _Stop(Outcome.FULL)
        self._names[begin : begin + len(name)] = np.frombuffer(name, np.uint8)
        state[Place.ERROR_NAME] = len(name)
        directory = kind in (b"5", b"D") or (kind == b"\0" and name.endswith(b"/"))
        if (directory and kind != b"D") or kind in (b"1", b"2", b"3", b"4", b"5", b"6"):
            size = 0
        if size > left:
            raise _Stop(Outcome.CUT)
        padded = -(-size // UNIT) * UNIT
        if padded > left:
            raise _Stop(Outcome.CUT_PADDING)
        if directory:
            state[Place.DIRECTORIES] += 1
        elif kind in (b"0", b"\0", b"7"):
            self._add(name, self._base + first, self._base + at + UNIT, size, self._base + at + UNIT + padded)
        else:
            if state[Place.FIRST_ODD] < 0:
                state[Place.FIRST_ODD] = self._base + at
            state[Place.LINKS if kind in (b"1", b"2") else Place.SPECIAL] += 1
        return padded

    def _add(self, name: bytes, start: int, data: int, size: int, end: int) -> None:
        """Put a regular member into the sample before it, or begin another one."""
        state, row, sample = self._state, int(self._state[Place.NUM_ROWS]), int(self._state[Place.SAMPLE])
        key = _key_of(name)
        if _is_meta(name):
            state[Place.META] += 1
            return
        if key is None:
            state[Place.NAMELESS] += 1
            return
        if size > MAX_BYTES:
            raise _Stop(Outcome.LARGE_MEMBER)
        if row >= len(self._rows):
            raise _Stop(Outcome.FULL)
        field = name[len(key) + 1 :].lower()
        if sample >= 0 and self._name(sample)[: int(self._rows[sample, Column.KEY_LENGTH])] == key:
            if row - sample >= MAX_PARTS:
                raise _Stop(Outcome.MANY_PARTS)
            if any(self._name(other)[len(key) + 1 :].lower() == field for other in range(sample, row)):
                raise _Stop(Outcome.SAME_FIELD)
        else:
            sample = -1
        if end - (start if sample < 0 else int(self._rows[sample, Column.START])) > MAX_BYTES:
            raise _Stop(Outcome.LARGE_SAMPLE)
        own = self._rows[row]
        name_end = int(state[Place.NUM_NAME_BYTES]) + len(name)
        crc = 0 if sample < 0 else int(self._rows[row - 1, Column.CRC])
        own[:] = (start, data, size, name_end, len(key), sample < 0, _hash(key), _other_hash(key), _hash(field), crc)
        self._sum_row(own, start, end)
        if sample < 0:
            state[Place.SAMPLE] = row
        state[Place.NUM_ROWS], state[Place.NUM_NAME_BYTES] = row + 1, name_end

    def _sum_row(self, row: NDArray[np.int64], start: int, end: int) -> None:
        """Add the bytes start..end of the file, as far as they are here, to the check sum of a row."""
        if not self._state[Place.WITH_CRC]:
            return
        here = self._base + len(self._data)
        part = self._data[start - self._base : min(end, here) - self._base]
        row[Column.CRC] = crc32c(part, len(part), int(row[Column.CRC]))
        self._state[Place.OWED] = end if end > here else 0

    def _name(self, row: int) -> bytes:
        begin = int(self._rows[row - 1, Column.NAME_END]) if row else 0
        return self._names[begin : int(self._rows[row, Column.NAME_END])].tobytes()


def _octal(field: bytes) -> int:
    """Return the number of a header field, -1 when it is none. Blank is 0."""
    text = field.lstrip(b" ")
    for stop in (b" ", b"\0"):
        text = text.partition(stop)[0]
    if not _OCTAL.issuperset(text):
        return -1
    return int(text or b"0", 8)


def _size_of(field: bytes) -> int:
    if field[0] < 0x80:
        value = _octal(field)
    else:
        value = int.from_bytes(field[1:], "big") if field[0] == 0x80 else -1
    if not 0 <= value < _WRAP:
        raise _Stop(Outcome.BAD_SIZE)
    return value


def _checksum_fits(header: bytes) -> bool:
    counted = header[:148] + b" " * 8 + header[156:]
    wanted, plain = _octal(header[148:156]), sum(counted)
    return wanted >= 0 and wanted in (plain, plain - 256 * sum(byte >> 7 for byte in counted))


def _name_of(header: bytes) -> bytes:
    name = header[:100].partition(b"\0")[0]
    prefix = header[345:500].partition(b"\0")[0] if header[257:263] == b"ustar\0" else b""
    return prefix + b"/" + name if prefix else name


def _key_of(name: bytes) -> bytes | None:
    """Return a name up to the first dot of the last part of the path; None when there is no such dot or nothing before it."""
    part = name.rfind(b"/") + 1
    dot = name.find(b".", part)
    return name[:dot] if dot > part else None


def _is_meta(name: bytes) -> bool:
    part = name.partition(b"/")[0]
    return len(part) >= 4 and part.startswith(b"__") and part.endswith(b"__")


def _hash(text: bytes) -> int:
    value = 0xCBF29CE484222325
    for letter in text:
        value = ((value ^ letter) * 0x100000001B3) & _MASK64
    return _signed(value)


def _other_hash(text: bytes) -> int:
    value = len(text)
    for letter in text:
        value = ((value + letter + 1) * 0x9E3779B97F4A7C15) & _MASK64
        value ^= value >> 29
    return _signed(value)


def _signed(value: int) -> int:
    return value - (1 << 64) if value >= _WRAP else value


def _extend(kind: bytes, body: bytes, ext: _Extended) -> None:
    """Take in one header that only speaks about the next one."""
    if kind != b"g":
        what = {b"K": "link", b"L": "name"}.get(kind, "pax")
        if what in ext.seen or (kind == b"L" and ext.path):
            raise _Stop(Outcome.TWO_NAMES)
        ext.seen |= {what}
    if kind == b"K":
        return
    if kind == b"L":
        name = body.partition(b"\0")[0]
        if len(name) > MAX_NAME:
            raise _Stop(Outcome.LONG_NAME)
        if not name:
            raise _Stop(Outcome.BAD_EXTENDED)
        ext.path = name
        return
    at = 0
    while at < len(body):
        at = _pax_record(body, at, kind == b"g", ext)


def _pax_record(body: bytes, at: int, is_global: bool, ext: _Extended) -> int:
    """Take in one "LENGTH key=value" and a line feed; return where the next one begins."""
    place, length = at, 0
    while place < len(body) and body[place] in _DIGITS:
        length = length * 10 + body[place] - ord("0")
        place += 1
        if length > len(body):
            raise _Stop(Outcome.BAD_EXTENDED)
    if place == at or body[place : place + 1] != b" " or length > len(body) - at or length <= place + 1 - at:
        raise _Stop(Outcome.BAD_EXTENDED)
    text = body[place + 1 : at + length]
    key, equal, value = text[:-1].partition(b"=")
    if not text.endswith(b"\n") or not key or not equal:
        raise _Stop(Outcome.BAD_EXTENDED)
    if key.startswith(b"GNU.sparse."):
        raise _Stop(Outcome.SPARSE)
    if is_global and key in (b"path", b"size"):
        raise _Stop(Outcome.GLOBAL_NAME)
    if key == b"path":
        if ext.path:
            raise _Stop(Outcome.TWO_NAMES)
        if len(value) > MAX_NAME:
            raise _Stop(Outcome.LONG_NAME)
        if b"\0" in value:
            raise _Stop(Outcome.BAD_EXTENDED)
        ext.path = value
    elif key == b"size":
        if ext.size >= 0:
            raise _Stop(Outcome.TWO_NAMES)
        if not 1 <= len(value) <= 18 or not _DIGITS.issuperset(value):
            raise _Stop(Outcome.BAD_SIZE)
        ext.size = int(value)
    return at + length
