"""Members and samples of tar files: the codes that C and Python share, the checked functions, and the twin.

The functions call the C library or the twin without the GIL, from any thread. The twin scans with Python's `tarfile`, takes arguments as
the functions left them, and finds the members and the samples of the C scan; cut files are refused as there. Headers that no program
writes may be judged otherwise, as `tarfile` wants numbers in fields that C does not read. Hashes of keys differ.
"""

from __future__ import annotations

import io
import re
import tarfile
from enum import IntEnum
from hashlib import blake2b
from typing import Final

import numpy as np

from penstock.kernels.framing import crc32c_twin
from penstock.kernels.library import INT64_DTYPE, UINT8_DTYPE, Ints, Uint8s, block, chosen, integer, require_out

UNIT: Final = 512
"""Bytes of a block: headers, and what data are padded to."""
MAX_NAME: Final = 4096
"""Most bytes of a name."""
MAX_EXTENDED: Final = 1 << 20
"""Most bytes of a PAX header or a GNU long name."""
MAX_PARTS: Final = 256
"""Most members of a sample."""
MAX_BYTES: Final = (1 << 32) - 1
"""Most bytes of a member, and of a sample."""


class MemberColumn(IntEnum):
    """Of a row, which is a regular member that belongs to a sample."""

    START = 0
    """Where its first header begins."""
    DATA = 1
    SIZE = 2
    NAME_END = 3
    """End of its name among the names; it begins where that of the row before ends."""
    KEY_LENGTH = 4
    """Bytes of its name that are the key; a dot follows."""
    FIRST = 5
    """1 in the first member of a sample, 0 in others."""
    KEY_HASH = 6
    OTHER_HASH = 7
    """With KEY_HASH 128 bits of the key: equal ones mean equal keys, which are not kept."""
    FIELD_HASH = 8
    CRC = 9
    """CRC32C of this and the sample's members before it, headers and padding included; 0 when it is not asked for."""


NUM_COLUMNS: Final = len(MemberColumn)


class StatePlace(IntEnum):
    """In the state, which one call hands to the next."""

    POSITION = 0
    """Where to go on, counted from the beginning of the bytes; may lie behind their end."""
    NUM_ROWS = 1
    NUM_NAME_BYTES = 2
    SAMPLE = 3
    """Row of the first member of the sample that may have more of them; -1: none. Of `scan_samples`: the number of the one that failed."""
    OWED = 4
    """Place in the file where the last row ends, when its check sum lacks bytes: the next call must begin where this one's bytes ended."""
    WITH_CRC = 5
    ERROR_AT = 6
    """Place in the file of the header that the outcome is about."""
    ERROR_NAME = 7
    """Bytes of the name of that member, which stands behind the other names; 0: not known yet."""
    FIRST_ODD = 8
    """Place in the file of the first link or special file; -1: none."""
    DIRECTORIES = 9
    LINKS = 10
    SPECIAL = 11
    GLOBALS = 12
    META = 13
    NAMELESS = 14


NUM_STATES: Final = len(StatePlace)


class ScanOutcome(IntEnum):
    """Why a scan stopped."""

    MORE = 0
    """The bytes are used up as far as whole headers go."""
    END = 1
    """A block of zeros stands at POSITION."""
    BAD_CHECKSUM = -1
    BAD_SIZE = -2
    CUT = -3
    CUT_PADDING = -4
    LONG_NAME = -5
    BAD_EXTENDED = -6
    LARGE_EXTENDED = -7
    SPARSE = -8
    TWO_NAMES = -9
    ORPHAN = -10
    """An extended header without its member."""
    GLOBAL_NAME = -11
    SEVERAL_VOLUMES = -12
    LARGE_MEMBER = -13
    LARGE_SAMPLE = -14
    MANY_PARTS = -15
    SAME_FIELD = -16
    FULL = -17
    """The arrays are full."""
    NOT_ONE = -18
    """The bytes are not exactly one sample."""
    OUTSIDE = -19
    """The sample does not lie in the bytes."""


_ENCODING = ("utf-8", "surrogateescape")
_EXTENDED = (tarfile.XHDTYPE, tarfile.SOLARIS_XHDTYPE, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK)
_REFUSED = {tarfile.GNUTYPE_SPARSE: ScanOutcome.SPARSE, b"M": ScanOutcome.SEVERAL_VOLUMES, b"N": ScanOutcome.SEVERAL_VOLUMES}
_OCTAL = re.compile(rb" *[0-7]*([ \0].*)?", re.DOTALL)
_WITHOUT_DATA = (tarfile.LNKTYPE, tarfile.SYMTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.DIRTYPE, tarfile.FIFOTYPE)


class _Stop(Exception):
    """Ends a scan with an outcome."""

    def __init__(self, outcome: ScanOutcome) -> None:
        super().__init__(outcome)
        self.outcome = outcome


def scan(data: Uint8s, base: int, total: int, rows: Ints, names: Uint8s, state: Ints) -> int:
    """Scan one piece of a file that stands at `base` of `total` bytes; return an `ScanOutcome`."""
    scanner = _Scanner(data, base, total, rows, names, state)
    try:
        scanner.run()
    except _Stop as stop:
        return int(stop.outcome)
    return int(ScanOutcome.MORE)


def samples(data: Uint8s, starts: Ints, lengths: Ints, rows: Ints, names: Uint8s, ends: Ints, state: Ints) -> int:
    """Scan whole samples; `ends[i]` are the rows up to and with sample i. Return 0 or an `ScanOutcome`."""
    for sample, (start, length) in enumerate(zip(starts.tolist(), lengths.tolist(), strict=True)):
        before = int(state[StatePlace.NUM_ROWS])
        state[StatePlace.POSITION], state[StatePlace.SAMPLE] = 0, -1
        outcome = int(ScanOutcome.OUTSIDE)
        if start >= 0 and length >= 0 and start <= data.size and length <= data.size - start:
            outcome = scan(data[start : start + length], 0, length, rows, names, state)
            if outcome >= 0 and (outcome == ScanOutcome.END or state[StatePlace.POSITION] != length or state[StatePlace.SAMPLE] != before):
                outcome = int(ScanOutcome.NOT_ONE)
        if outcome < 0:
            state[StatePlace.SAMPLE] = sample
            return outcome
        ends[sample] = state[StatePlace.NUM_ROWS]
        rows[before : int(ends[sample]), [MemberColumn.START, MemberColumn.DATA]] += start
    return 0


class _Scanner:
    """One call of `scan`."""

    def __init__(self, data: Uint8s, base: int, total: int, rows: Ints, names: Uint8s, state: Ints) -> None:
        self._data = data.data
        self._base, self._total, self._rows, self._names, self._state = base, total, rows, names, state

    def run(self) -> None:
        """Take in the members whose headers lie in the piece."""
        state, owed = self._state, int(self._state[StatePlace.OWED])
        if owed > self._base and state[StatePlace.NUM_ROWS] > 0:
            self._sum_row(self._rows[state[StatePlace.NUM_ROWS] - 1], self._base, owed)
        at = int(state[StatePlace.POSITION])
        while True:
            state[StatePlace.POSITION] = at
            at = self._member(at)

    def _member(self, first: int) -> int:
        """Take in one member with the headers that speak of it, or a global header; return where the next one begins."""
        at = first
        while (header := self._header(at, first)).type in _EXTENDED:
            if not 0 <= header.size <= MAX_EXTENDED:
                raise _Stop(ScanOutcome.LARGE_EXTENDED)
            body = _padded(header.size)
            if body > self._total - self._base - at - UNIT:
                raise _Stop(ScanOutcome.CUT)
            if body > len(self._data) - at - UNIT:
                raise _Stop(ScanOutcome.MORE)
            at += UNIT + body
            text = bytes(self._data[at - body : at - body + header.size])
            if b" GNU.sparse." in text:
                raise _Stop(ScanOutcome.SPARSE)
            if header.type == tarfile.XGLTYPE:
                if b" path=" in text or b" size=" in text:
                    raise _Stop(ScanOutcome.GLOBAL_NAME)
                if at - body - UNIT > first:
                    raise _Stop(ScanOutcome.BAD_EXTENDED)
                self._state[StatePlace.GLOBALS] += 1
                return at
        if at > first:
            header = _read_together(bytes(self._data[first : at + UNIT]))
        return at + UNIT + self._take(first, at, header)

    def _header(self, at: int, first: int) -> tarfile.TarInfo:
        """Return what the header at a place says by itself."""
        self._state[StatePlace.ERROR_AT], self._state[StatePlace.ERROR_NAME] = self._base + at, 0
        block = bytes(self._data[at : at + UNIT])
        if len(block) < UNIT:
            raise _Stop(ScanOutcome.MORE)
        if not any(block):
            raise _Stop(ScanOutcome.ORPHAN if at > first else ScanOutcome.END)
        try:
            header = tarfile.TarInfo.frombuf(block, *_ENCODING)
        except tarfile.HeaderError as error:
            fits = "checksum" not in str(error) and _OCTAL.fullmatch(block, 148, 156)
            raise _Stop(ScanOutcome.BAD_SIZE if fits else ScanOutcome.BAD_CHECKSUM) from None
        if block[257:263] != b"ustar\0":  # GNU's own format keeps times where POSIX, and `tarfile` always, has the front of the name
            header.name = block[:100].partition(b"\0")[0].decode(*_ENCODING)
        return header

    def _take(self, first: int, at: int, header: tarfile.TarInfo) -> int:
        """Book a member; return its bytes in the file behind the header."""
        state, left = self._state, self._total - self._base - at - UNIT
        if not 0 <= header.size < 1 << 63:
            raise _Stop(ScanOutcome.BAD_SIZE)
        if header.type in _REFUSED:
            raise _Stop(_REFUSED[header.type])
        name, begin = header.name.encode(*_ENCODING), int(state[StatePlace.NUM_NAME_BYTES])
        if len(name) > MAX_NAME:
            raise _Stop(ScanOutcome.LONG_NAME)
        if len(name) > self._names.size - begin:
            raise _Stop(ScanOutcome.FULL)
        self._names[begin : begin + len(name)] = np.frombuffer(name, np.uint8)
        state[StatePlace.ERROR_NAME] = len(name)
        size = 0 if header.type in _WITHOUT_DATA else header.size
        padded = _padded(size)
        if padded > left:
            raise _Stop(ScanOutcome.CUT if size > left else ScanOutcome.CUT_PADDING)
        if header.isdir() or header.type == b"D":
            state[StatePlace.DIRECTORIES] += 1
        elif header.type in (tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.CONTTYPE):
            self._add(name, self._base + first, self._base + at + UNIT, size, self._base + at + UNIT + padded)
        else:
            if state[StatePlace.FIRST_ODD] < 0:
                state[StatePlace.FIRST_ODD] = self._base + at
            state[StatePlace.LINKS if header.type in (tarfile.LNKTYPE, tarfile.SYMTYPE) else StatePlace.SPECIAL] += 1
        return padded

    def _add(self, name: bytes, start: int, data: int, size: int, end: int) -> None:
        """Put a regular member into the sample before it, or begin another one."""
        state, row, sample = self._state, int(self._state[StatePlace.NUM_ROWS]), int(self._state[StatePlace.SAMPLE])
        key = _key_of(name)
        if key is None:
            state[StatePlace.META if _is_meta(name) else StatePlace.NAMELESS] += 1
            return
        if size > MAX_BYTES:
            raise _Stop(ScanOutcome.LARGE_MEMBER)
        if row >= len(self._rows):
            raise _Stop(ScanOutcome.FULL)
        if sample >= 0 and self._name(sample)[: int(self._rows[sample, MemberColumn.KEY_LENGTH])] != key:
            sample = -1
        if sample >= 0:
            if row - sample >= MAX_PARTS:
                raise _Stop(ScanOutcome.MANY_PARTS)
            field = name[len(key) :].lower()
            if any(self._name(other)[len(key) :].lower() == field for other in range(sample, row)):
                raise _Stop(ScanOutcome.SAME_FIELD)
        if end - (start if sample < 0 else int(self._rows[sample, MemberColumn.START])) > MAX_BYTES:
            raise _Stop(ScanOutcome.LARGE_SAMPLE)
        own = self._rows[row]
        name_end = int(state[StatePlace.NUM_NAME_BYTES]) + len(name)
        hashes = np.frombuffer(blake2b(key, digest_size=16).digest(), np.int64)
        own[:] = (start, data, size, name_end, len(key), sample < 0, *hashes, 0, 0 if sample < 0 else self._rows[row - 1, MemberColumn.CRC])
        self._sum_row(own, start, end)
        if sample < 0:
            state[StatePlace.SAMPLE] = row
        state[StatePlace.NUM_ROWS], state[StatePlace.NUM_NAME_BYTES] = row + 1, name_end

    def _sum_row(self, row: Ints, start: int, end: int) -> None:
        """Add the bytes start..end of the file, as far as they are here, to the check sum of a row."""
        if not self._state[StatePlace.WITH_CRC]:
            return
        here = self._base + len(self._data)
        part = np.frombuffer(self._data[start - self._base : min(end, here) - self._base], np.uint8)
        row[MemberColumn.CRC] = crc32c_twin(part, len(part), int(row[MemberColumn.CRC]))
        self._state[StatePlace.OWED] = end if end > here else 0

    def _name(self, row: int) -> bytes:
        begin = int(self._rows[row - 1, MemberColumn.NAME_END]) if row else 0
        return self._names[begin : int(self._rows[row, MemberColumn.NAME_END])].tobytes()


def _read_together(headers: bytes) -> tarfile.TarInfo:
    """Return what a header and those before it that speak of it say together."""
    try:
        with tarfile.open(fileobj=io.BytesIO(headers), mode="r:", encoding=_ENCODING[0], errors=_ENCODING[1]) as archive:
            member = archive.next()
    except (tarfile.TarError, ValueError):
        raise _Stop(ScanOutcome.BAD_EXTENDED) from None
    if member is None or not member.name or "\0" in member.name:
        raise _Stop(ScanOutcome.BAD_EXTENDED)
    return member


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


_MOST = 1 << 62


class MemberTable:
    """Where a scan writes what it finds. Of one thread at a time.

    Attributes:
        rows: int64 [some, columns], one row per member; see `MemberColumn`.
        names: uint8 [some], the names of the members, one behind the other.
        state: int64 [places]; see `StatePlace`.
    """

    __slots__ = ("names", "rows", "state")

    def __init__(self, *, with_crc: bool) -> None:
        """Make an empty one, with or without check sums."""
        self.rows = np.empty((0, NUM_COLUMNS), np.int64)
        self.names = np.empty(0, np.uint8)
        self.state = np.zeros(NUM_STATES, np.int64)
        self.state[[StatePlace.SAMPLE, StatePlace.FIRST_ODD]] = -1
        self.state[StatePlace.WITH_CRC] = with_crc

    def reserve(self, num_rows: int, num_name_bytes: int) -> None:
        """Make room for so many more rows and bytes of names."""
        rows, names = int(self.state[StatePlace.NUM_ROWS]), int(self.state[StatePlace.NUM_NAME_BYTES])
        if len(self.rows) - rows < num_rows:
            grown = np.empty((rows + num_rows, NUM_COLUMNS), np.int64)
            grown[:rows] = self.rows[:rows]
            self.rows = grown
        if self.names.size - names < num_name_bytes:
            letters = np.empty(names + num_name_bytes, np.uint8)
            letters[:names] = self.names[:names]
            self.names = letters

    def drop(self, num_rows: int) -> None:
        """Forget the first rows and their names."""
        if num_rows == 0:
            return
        state = self.state
        left, letters = int(state[StatePlace.NUM_ROWS]) - num_rows, int(self.rows[num_rows - 1, MemberColumn.NAME_END])
        self.rows[:left] = self.rows[num_rows : num_rows + left].copy()
        self.rows[:left, MemberColumn.NAME_END] -= letters
        kept = int(state[StatePlace.NUM_NAME_BYTES]) - letters
        self.names[:kept] = self.names[letters : letters + kept].copy()
        state[StatePlace.NUM_ROWS], state[StatePlace.NUM_NAME_BYTES] = left, kept
        state[StatePlace.SAMPLE] = max(-1, int(state[StatePlace.SAMPLE]) - num_rows)


def scan_members(data: Uint8s, base: int, total: int, table: MemberTable) -> ScanOutcome:
    """Scan one piece of a tar file, going on at `table.state[POSITION]`; each header is checked, and data are not looked at.

    Args:
        data: uint8 [n], contiguous: bytes of the file from `base` on. When the table owes bytes (`StatePlace.OWED`) it begins where the
            last piece ended, otherwise anywhere up to the position where the last scan stopped.
        base: place in the file.
        total: bytes of the file; no member may reach beyond.
        table: what was found; room for what can be found is made.

    Returns:
        `ScanOutcome.MORE`, `END`, or what is wrong at `StatePlace.ERROR_AT`.

    Raises:
        SpecError: an array of another dtype or layout, or a number out of range.
    """
    data = block("scan_members", "data", data, UINT8_DTYPE)
    total = integer("scan_members", "total", total, 0, _MOST)
    base = integer("scan_members", "base", base, 0, total - data.size if data.size <= total else -1)
    # A name is shorter than the headers that it stands in.
    table.reserve(data.size // UNIT + 1, data.size + MAX_NAME)
    return ScanOutcome(chosen("tar_scan", scan)(data, base, total, table.rows, table.names, table.state))


def scan_samples(data: Uint8s, starts: Ints, lengths: Ints, table: MemberTable, ends: Ints) -> ScanOutcome:
    """Scan samples that lie anywhere in `data`, each of which must be exactly one. One call without the GIL.

    Args:
        data: uint8 [m], contiguous.
        starts: int64 [n], where each sample begins; any number is safe.
        lengths: int64 [n], in bytes; any number is safe.
        table: an empty one; START and DATA of its rows are places in `data`.
        ends: int64 [n], written: the number of rows up to and with each sample.

    Returns:
        `ScanOutcome.MORE` when all is well; otherwise what is wrong with sample `table.state[SAMPLE]`, at `StatePlace.ERROR_AT` from its
        beginning.
        Rows and ends of the samples before it are there.

    Raises:
        SpecError: an array of another dtype, shape or layout.
    """
    data = block("scan_samples", "data", data, UINT8_DTYPE)
    starts = block("scan_samples", "starts", starts, INT64_DTYPE)
    lengths = block("scan_samples", "lengths", lengths, INT64_DTYPE, starts.shape[0])
    require_out("scan_samples", ends, INT64_DTYPE, starts.shape, starts)
    # Few members as a rule: the table begins small. When it is full, it gets what the bytes could hold at most.
    table.reserve(4 * starts.size + MAX_PARTS, 256 * starts.size + MAX_NAME)
    before = table.state.copy()
    outcome = ScanOutcome(chosen("tar_samples", samples)(data, starts, lengths, table.rows, table.names, ends, table.state))
    if outcome == ScanOutcome.FULL:
        table.state[:] = before
        table.reserve(*_most(data.size, lengths))
        outcome = ScanOutcome(chosen("tar_samples", samples)(data, starts, lengths, table.rows, table.names, ends, table.state))
    return outcome


def _most(num_bytes: int, lengths: Ints) -> tuple[int, int]:
    """Return how many rows and bytes of names samples of these lengths can have; they may lie one over the other."""
    total = int(np.clip(lengths, 0, num_bytes).sum())
    return total // UNIT + 1, total + MAX_NAME
