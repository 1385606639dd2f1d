"""Scanning tar files with Python's `tarfile` where the C library is missing. Arguments are taken as `penstock.kernels.tar` left them.

The members and the samples are those of the C scan, and what is cut is refused as there. Headers that no program writes may be judged
otherwise, as `tarfile` wants numbers in fields that C does not read. Hashes of keys differ.
"""

from __future__ import annotations

import io
import re
import tarfile
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from penstock.kernels.framing_twin import crc32c
from penstock.kernels.tar_codes import MAX_BYTES, MAX_EXTENDED, MAX_NAME, MAX_PARTS, UNIT, TarColumn, TarOutcome, TarPlace

__all__ = ["samples", "scan"]

_ENCODING = ("utf-8", "surrogateescape")
_EXTENDED = (tarfile.XHDTYPE, tarfile.SOLARIS_XHDTYPE, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK)
_REFUSED = {tarfile.GNUTYPE_SPARSE: TarOutcome.SPARSE, b"M": TarOutcome.SEVERAL_VOLUMES, b"N": TarOutcome.SEVERAL_VOLUMES}
_OCTAL = re.compile(rb" *[0-7]*([ \0].*)?", re.DOTALL)
_LINE = re.compile(rb"([0-9]{1,7}) ([^=]+)=")
_SIZE = re.compile(rb"[0-9]{1,18}")
_WITHOUT_DATA = (tarfile.LNKTYPE, tarfile.SYMTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.DIRTYPE, tarfile.FIFOTYPE)


class _Stop(Exception):
    """Ends a scan with an outcome."""

    def __init__(self, outcome: TarOutcome) -> None:
        super().__init__(outcome)
        self.outcome = outcome


def scan(
    data: NDArray[np.uint8], base: int, total: int, rows: NDArray[np.int64], names: NDArray[np.uint8], state: NDArray[np.int64]
) -> int:
    """Scan one piece of a file that stands at `base` of `total` bytes; return an `TarOutcome`."""
    scanner = _Scanner(data, base, total, rows, names, state)
    try:
        scanner.run()
    except _Stop as stop:
        return int(stop.outcome)
    return int(TarOutcome.MORE)


def samples(
    data: NDArray[np.uint8],
    starts: NDArray[np.int64],
    lengths: NDArray[np.int64],
    rows: NDArray[np.int64],
    names: NDArray[np.uint8],
    ends: NDArray[np.int64],
    state: NDArray[np.int64],
) -> int:
    """Scan whole samples; `ends[i]` are the rows up to and with sample i. Return 0 or an `TarOutcome`."""
    for sample, (start, length) in enumerate(zip(starts.tolist(), lengths.tolist(), strict=True)):
        before = int(state[TarPlace.NUM_ROWS])
        state[TarPlace.POSITION], state[TarPlace.SAMPLE] = 0, -1
        outcome = int(TarOutcome.OUTSIDE)
        if start >= 0 and length >= 0 and start <= data.size and length <= data.size - start:
            outcome = scan(data[start : start + length], 0, length, rows, names, state)
            if outcome >= 0 and (outcome == TarOutcome.END or state[TarPlace.POSITION] != length or state[TarPlace.SAMPLE] != before):
                outcome = int(TarOutcome.NOT_ONE)
        if outcome < 0:
            state[TarPlace.SAMPLE] = sample
            return outcome
        ends[sample] = state[TarPlace.NUM_ROWS]
        rows[before : int(ends[sample]), [TarColumn.START, TarColumn.DATA]] += start
    return 0


class _Scanner:
    """One call of `scan`."""

    def __init__(
        self, data: NDArray[np.uint8], base: int, total: int, rows: NDArray[np.int64], names: NDArray[np.uint8], state: NDArray[np.int64]
    ) -> None:
        self._data = data.data
        self._base, self._total, self._rows, self._names, self._state = base, total, rows, names, state

    def run(self) -> None:
        """Take in the members whose headers lie in the piece."""
        state, owed = self._state, int(self._state[TarPlace.OWED])
        if owed > self._base and state[TarPlace.NUM_ROWS] > 0:
            self._sum_row(self._rows[state[TarPlace.NUM_ROWS] - 1], self._base, owed)
        at = int(state[TarPlace.POSITION])
        while True:
            state[TarPlace.POSITION] = at
            at = self._member(at)

    def _member(self, first: int) -> int:
        """Take in one member with the headers that speak of it, or a global header; return where the next one begins."""
        at, kinds = first, list[bytes]()
        while (header := self._header(at, kinds)).type in _EXTENDED:
            if header.size > MAX_EXTENDED:
                raise _Stop(TarOutcome.LARGE_EXTENDED)
            body = _padded(header.size)
            if body > self._total - self._base - at - UNIT:
                raise _Stop(TarOutcome.CUT)
            if body > len(self._data) - at - UNIT:
                raise _Stop(TarOutcome.MORE)
            at += UNIT + body
            _check_extended(header.type, bytes(self._data[at - body : at - body + header.size]))
            if header.type == tarfile.XGLTYPE:
                self._state[TarPlace.GLOBALS] += 1
                if kinds:
                    raise _Stop(TarOutcome.BAD_EXTENDED)
                return at
            kinds.append(b"x" if header.type == tarfile.SOLARIS_XHDTYPE else header.type)
        if kinds:
            header = _read_together(bytes(self._data[first : at + UNIT]), kinds)
        return at + UNIT + self._take(first, at, header)

    def _header(self, at: int, kinds: list[bytes]) -> tarfile.TarInfo:
        """Return what the header at a place says by itself."""
        self._state[TarPlace.ERROR_AT], self._state[TarPlace.ERROR_NAME] = self._base + at, 0
        block = bytes(self._data[at : at + UNIT])
        if len(block) < UNIT:
            raise _Stop(TarOutcome.MORE)
        if not any(block):
            raise _Stop(TarOutcome.ORPHAN if kinds else TarOutcome.END)
        try:
            header = tarfile.TarInfo.frombuf(block, *_ENCODING)
        except tarfile.HeaderError as error:
            fits = "checksum" not in str(error) and _OCTAL.fullmatch(block, 148, 156)
            raise _Stop(TarOutcome.BAD_SIZE if fits else TarOutcome.BAD_CHECKSUM) from None
        if not 0 <= header.size < 1 << 63:
            raise _Stop(TarOutcome.BAD_SIZE)
        if block[257:263] != b"ustar\0":  # GNU's own format keeps times where POSIX, and `tarfile` always, has the front of the name
            header.name = block[:100].partition(b"\0")[0].decode(*_ENCODING)
        return header

    def _take(self, first: int, at: int, header: tarfile.TarInfo) -> int:
        """Book a member; return its bytes in the file behind the header."""
        state, left = self._state, self._total - self._base - at - UNIT
        if header.type in _REFUSED:
            raise _Stop(_REFUSED[header.type])
        name, begin = header.name.encode(*_ENCODING), int(state[TarPlace.NUM_NAME_BYTES])
        if len(name) > MAX_NAME:
            raise _Stop(TarOutcome.LONG_NAME)
        if len(name) > self._names.size - begin:
            raise _Stop(TarOutcome.FULL)
        self._names[begin : begin + len(name)] = np.frombuffer(name, np.uint8)
        state[TarPlace.ERROR_NAME] = len(name)
        size = 0 if header.type in _WITHOUT_DATA else header.size
        padded = _padded(size)
        if padded > left:
            raise _Stop(TarOutcome.CUT if size > left else TarOutcome.CUT_PADDING)
        if header.isdir() or header.type == b"D":
            state[TarPlace.DIRECTORIES] += 1
        elif header.type in (tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.CONTTYPE):
            self._add(name, self._base + first, self._base + at + UNIT, size, self._base + at + UNIT + padded)
        else:
            if state[TarPlace.FIRST_ODD] < 0:
                state[TarPlace.FIRST_ODD] = self._base + at
            state[TarPlace.LINKS if header.type in (tarfile.LNKTYPE, tarfile.SYMTYPE) else TarPlace.SPECIAL] += 1
        return padded

    def _add(self, name: bytes, start: int, data: int, size: int, end: int) -> None:
        """Put a regular member into the sample before it, or begin another one."""
        state, row, sample = self._state, int(self._state[TarPlace.NUM_ROWS]), int(self._state[TarPlace.SAMPLE])
        key = _key_of(name)
        if key is None:
            state[TarPlace.META if _is_meta(name) else TarPlace.NAMELESS] += 1
            return
        if size > MAX_BYTES:
            raise _Stop(TarOutcome.LARGE_MEMBER)
        if row >= len(self._rows):
            raise _Stop(TarOutcome.FULL)
        if sample >= 0 and self._name(sample)[: int(self._rows[sample, TarColumn.KEY_LENGTH])] != key:
            sample = -1
        if sample >= 0:
            if row - sample >= MAX_PARTS:
                raise _Stop(TarOutcome.MANY_PARTS)
            field = name[len(key) :].lower()
            if any(self._name(other)[len(key) :].lower() == field for other in range(sample, row)):
                raise _Stop(TarOutcome.SAME_FIELD)
        if end - (start if sample < 0 else int(self._rows[sample, TarColumn.START])) > MAX_BYTES:
            raise _Stop(TarOutcome.LARGE_SAMPLE)
        own = self._rows[row]
        name_end = int(state[TarPlace.NUM_NAME_BYTES]) + len(name)
        hashes = np.frombuffer(blake2b(key, digest_size=16).digest(), np.int64)
        own[:] = (start, data, size, name_end, len(key), sample < 0, *hashes, 0, 0 if sample < 0 else self._rows[row - 1, TarColumn.CRC])
        self._sum_row(own, start, end)
        if sample < 0:
            state[TarPlace.SAMPLE] = row
        state[TarPlace.NUM_ROWS], state[TarPlace.NUM_NAME_BYTES] = row + 1, name_end

    def _sum_row(self, row: NDArray[np.int64], start: int, end: int) -> None:
        """Add the bytes start..end of the file, as far as they are here, to the check sum of a row."""
        if not self._state[TarPlace.WITH_CRC]:
            return
        here = self._base + len(self._data)
        part = np.frombuffer(self._data[start - self._base : min(end, here) - self._base], np.uint8)
        row[TarColumn.CRC] = crc32c(part, len(part), int(row[TarColumn.CRC]))
        self._state[TarPlace.OWED] = end if end > here else 0

    def _name(self, row: int) -> bytes:
        begin = int(self._rows[row - 1, TarColumn.NAME_END]) if row else 0
        return self._names[begin : int(self._rows[row, TarColumn.NAME_END])].tobytes()


def _read_together(headers: bytes, kinds: list[bytes]) -> tarfile.TarInfo:
    """Return what a header and those before it that speak of it say together."""
    try:
        with tarfile.open(fileobj=io.BytesIO(headers), mode="r:", encoding=_ENCODING[0], errors=_ENCODING[1]) as archive:
            member = archive.next()
    except (tarfile.TarError, ValueError):
        raise _Stop(TarOutcome.BAD_EXTENDED) from None
    if member is None or "\0" in member.name:
        raise _Stop(TarOutcome.BAD_EXTENDED)
    if len(set(kinds)) < len(kinds) or (tarfile.GNUTYPE_LONGNAME in kinds and "path" in member.pax_headers):
        raise _Stop(TarOutcome.TWO_NAMES)
    return member


def _check_extended(kind: bytes, body: bytes) -> None:
    """Refuse what `tarfile` would pass over in a header that speaks of others: broken lines, two names, sparse files."""
    if kind == tarfile.GNUTYPE_LONGNAME and not body.partition(b"\0")[0]:
        raise _Stop(TarOutcome.BAD_EXTENDED)
    at, seen = 0, set[bytes]()
    while at < len(body) and kind not in (tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK):
        line = _LINE.match(body, at)
        end = at + int(line[1]) if line else 0
        if line is None or not line.end() < end <= len(body) or body[end - 1 : end] != b"\n":
            raise _Stop(TarOutcome.BAD_EXTENDED)
        key, value = line[2], body[line.end() : end - 1]
        if key.startswith(b"GNU.sparse."):
            raise _Stop(TarOutcome.SPARSE)
        if key in (b"path", b"size"):
            if kind == tarfile.XGLTYPE:
                raise _Stop(TarOutcome.GLOBAL_NAME)
            if key in seen:
                raise _Stop(TarOutcome.TWO_NAMES)
            if key == b"size" and not _SIZE.fullmatch(value):
                raise _Stop(TarOutcome.BAD_SIZE)
            seen.add(key)
        at = end


def _padded(size: int) -> int:
    return -(-size // UNIT) * UNIT


def _key_of(name: bytes) -> bytes | None:
    """Return a name up to the first dot of the last part of its path; None when it has none, or nothing before it, or is no sample's."""
    part = name.rfind(b"/") + 1
    dot = name.find(b".", part)
    return name[:dot] if dot > part and not _is_meta(name) else None


def _is_meta(name: bytes) -> bool:
    part = name.partition(b"/")[0]
    return len(part) >= 4 and part.startswith(b"__") and part.endswith(b"__")
