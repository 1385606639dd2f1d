"""The lines of a text file and the records of a CSV file, found piece by piece in bounded memory; first bytes of other formats.

Beside offsets and lengths stands which line of the file a record is, as the few places where that is not simply one more than the
record before: behind blank lines that are left out, and behind CSV records of several lines. A file whose first bytes are of another
format is never read as text or as raw numbers.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from penstock.errors import RecordError
from penstock.formats.compression import STREAM_FIX, PlainPart, compression_of_head
from penstock.kernels import lines
from penstock.kernels.library import Ints, Uint8s

HEAD_BYTES = 16
"""First bytes of a file that tell all of it."""


class Foreign(NamedTuple):
    """Another format than the one that a file is read as.

    Attributes:
        kind: its name.
        fix: what to do.
        mark: the first bytes.
        behind: pattern of the bytes behind it: numbers begin with both by a chance of 1 in 2**32 at most. None: nothing tells so much.
    """

    kind: str
    fix: str
    mark: bytes
    behind: bytes | None


_GZIP = "unpack it first (gunzip): inside a compressed file nothing can be found without all before it"
_ZSTD = rb"[\x00-\x07\x20-\x27\x40-\x47\x60-\x67\x80-\x87\xa0-\xa7\xc0-\xc7\xe0-\xe7]"
_ZIP = "unpack it first (unzip), which makes .npy files of an .npz"
_UTF_16 = "save it as UTF-8: iconv -f UTF-16 -t UTF-8"
_KNOWN = (
    Foreign("gzip", _GZIP, b"\x1f\x8b", rb"\x08[\x00-\x1f].{4}[\x00\x02\x04][\x00-\x0d\xff]"),
    Foreign("zstd", "unpack it first (unzstd)", b"\x28\xb5\x2f\xfd", _ZSTD),
    Foreign("bzip2", "unpack it first (bunzip2)", b"BZh", rb"[1-9](1AY&SY|\x17rE8P\x90)"),
    Foreign("xz", "unpack it first (unxz)", b"\xfd7zXZ", rb"\x00\x00"),
    Foreign("a zip archive", _ZIP, b"PK\x03\x04", rb"[\x00-\x3f]\x00.[\x00\x08][\x00-\x63]\x00"),
    Foreign("UTF-16", _UTF_16, b"\xff\xfe", None),
    Foreign("UTF-16", _UTF_16, b"\xfe\xff", None),
    Foreign("Parquet", "use read_parquet", b"PAR1", rb"\x15[\x00-\x06]\x15"),
    Foreign("an Arrow file", "use from_source(pyarrow.feather.read_table(path))", b"ARROW1", rb"\x00\x00"),
    Foreign("HDF5", "use from_source or from_arrays with the dataset that h5py gives", b"\x89HDF", rb"\r\n\x1a\n"),
    Foreign("an .npy file", "use read_tokens, or from_arrays(np.load(path))", b"\x93NUMPY", b""),
)


def foreign(head: bytes, *, surely: bool = False) -> Foreign | None:
    """Return the format that the first bytes of a file tell; None where they tell none.

    Args:
        head: the first `HEAD_BYTES` bytes, or fewer.
        surely: the mark alone is not enough, as in a file of numbers, which may begin with anything.
    """
    for one in _KNOWN:
        behind = one.behind if surely else b""
        if head.startswith(one.mark) and behind is not None and re.match(behind, head[len(one.mark) :], re.DOTALL):
            return one
    return None


BOM = b"\xef\xbb\xbf"
MAX_LINE_BYTES = 64 << 20
FROM, BY = "file_line_from", "file_line_by"
"""Columns: record FROM[k] of a file and those behind it stand BY[k] lines further down than their numbers say."""

_ROOM = 1 << 16
NEWLINE = 10
_LOOK_BYTES = 4096
_WHITE = b" \t\r\n\v\f"
_LAST_WHITE = max(_WHITE)


class Rules(NamedTuple):
    """The rules for records.

    Attributes:
        skip: "none": every line; "empty": empty lines are left out; "blank": so are those of nothing but white space.
        max_line_bytes: a longer record is an error, found before it is ever read whole.
        delimiter: a byte: newlines inside quotes end nothing. None: every newline ends a line.
        quote: the byte around such fields.
    """

    skip: str = "none"
    max_line_bytes: int = MAX_LINE_BYTES
    delimiter: int | None = None
    quote: int = 34


def line_number(columns: Any, number: int) -> int:
    """Return the line, from 1 on, at which record `number` of a file begins; `columns` are those of its index."""
    behind = columns.get(FROM)
    place = -1 if behind is None else int(np.searchsorted(behind, number, "right")) - 1
    return number + 1 + (int(columns[BY][place]) if place >= 0 else 0)


def scan_lines(pieces: Iterator[Uint8s], name: str, rules: Rules, first: Callable[[bytes], Any] | None = None) -> dict[str, Any]:
    """Find the records of one file.

    Args:
        pieces: its bytes, in order, each valid until the next is asked for; the first begins with 4 kB at least, or is the only one.
        name: of the file, for errors.
        rules: what is a record.
        first: called with the bytes of the first record, which then is none: a header. What it returns becomes the "meta".

    Returns:
        "offsets" int64 [n] and "lengths" uint32 or int64 [n], without the line feed; FROM and BY; "meta" if `first` was given.

    Raises:
        RecordError: a record that is too long, a file that is no text, quotes that are not closed, or no first record.
    """
    scan, count, further = _Scan(name, rules, first), 0, 0
    dtype = np.uint32 if rules.max_line_bytes < 1 << 32 else np.int64
    parts = deque[tuple[Ints, Any]]()  # with 10^8 lines nothing else may be kept for each of them
    shifts = [(np.empty(0, np.int64), np.empty(0, np.int64))]
    for _, _, begins, lengths, lines_at in scan.records(pieces):
        if len(lines_at) > 1 or lines_at[0] - count != further:
            numbers = np.arange(count, count + len(lines_at))
            behind = lines_at - numbers
            leaps = np.flatnonzero(np.diff(behind, prepend=further))
            shifts.append((numbers[leaps], behind[leaps]))
            further = int(behind[-1])
        parts.append((begins, lengths.astype(dtype)))
        count += len(begins)
    found = {"offsets": np.empty(count, np.int64), "lengths": np.empty(count, dtype)}
    done = 0
    while parts:  # each goes when it has been copied
        for column, values in zip(found.values(), parts.popleft(), strict=True):
            column[done : done + len(values)] = values
        done += len(values)
    found |= zip((FROM, BY), map(np.concatenate, zip(*shifts, strict=True)), strict=True)
    return found if scan.meta is None else {**found, "meta": scan.meta}


def stream_lines(pieces: Iterator[Uint8s], name: str, rules: Rules, first: Callable[[bytes], Any] | None = None) -> Iterator[PlainPart]:
    """Find the records of one file as `scan_lines` does, and give them as they are found; memory is bounded by a record and a piece.

    Raises:
        RecordError: as `scan_lines`; the records before have been given.
    """
    for base, held, begins, lengths, lines_at in _Scan(name, rules, first).records(pieces):
        numbers = lines_at + 1 if len(lines_at) > 1 else lines_at + np.arange(1, len(begins) + 1)
        yield PlainPart(base, b"".join(part.data for part in held), begins, begins + lengths, numbers)


_Found: TypeAlias = tuple[int, list[Uint8s], Ints, Ints, Ints]
"""Where some whole records begin in the file, and their bytes: what earlier pieces held of the first, and the rest. Where each of those
that count begins in the file, its length without the line feed, and its line, from 0 on: that of the first alone, where the others
follow line by line."""


class _Scan:
    """A scan of one file.

    Attributes:
        base: where the record begins that has not ended yet.
        line: its line, from 0 on.
        state: of the CSV scanner.
        meta: what `first` returned.
    """

    def __init__(self, name: str, rules: Rules, first: Callable[[bytes], Any] | None) -> None:
        self._name, self._rules, self._first = name, rules, first
        self._base = self._line = 0
        self._state = lines.BEFORE
        self.meta: Any = None

    def records(self, pieces: Iterator[Uint8s]) -> Iterator[_Found]:
        """Give the records, those that end in one piece together. What a piece holds of a record that goes on is kept until it ends."""
        rules, room, held = self._rules, np.empty(_ROOM, np.int64), list[Uint8s]()
        for number, piece in enumerate(pieces):
            rest = piece if number else piece[self._look(piece[:_LOOK_BYTES].tobytes()) :]
            while len(rest):
                at = self._base + sum(map(len, held))
                if rules.delimiter is None:
                    found, done = lines.find_lines(rest, at, room)
                else:
                    found, done, self._state = lines.find_records(rest, at, rules.delimiter, rules.quote, self._state, room)
                end = int(room[found - 1]) - at if found else 0
                if found:
                    yield from self._ended([*held, rest[:end]], room[:found])
                    held = []
                if end < done:
                    held.append(rest[end:done].copy())
                    if at + done - self._base > rules.max_line_bytes:
                        raise self._too_long(rest[:0])
                rest = rest[done:]
        if self._state == lines.QUOTED:
            raise RecordError(
                "the file ends inside quotes",
                where=f"the record that begins at line {self._line + 1} of {self._name!r}, offset {self._base}",
                fix="close the quote, or give the quote character that the file uses",
            )
        if held:
            yield from self._ended(held, np.array([self._base + sum(map(len, held))]), 0)
        if self._first is not None:
            raise RecordError("the file has no header", where=f"{self._name!r}, {self._base} bytes", fix="give names=[...] if it has none")

    def _look(self, head: bytes) -> int:
        """Refuse what is no text; return how many bytes of the file are no part of a line, nor of a field."""
        other = foreign(head)
        if other is not None:
            fix = f"{other.fix}; {STREAM_FIX}" if compression_of_head(head) else other.fix
            raise RecordError(f"the file looks like {other.kind}, not like text", where=f"{self._name!r}, offset 0", fix=fix)
        if b"\0" in head[:4] or b"\n\0" in head or b"\0\n" in head:
            what = f"there is a NUL byte at {head.index(0)}: the file looks like UTF-16 without a mark, or like no text"
            fix = f"{_UTF_16}, with UTF-16LE or UTF-16BE where there is no mark"
            raise RecordError(what, where=f"{self._name!r}, offset {head.index(0)}", fix=fix)
        self._base = len(BOM) if head.startswith(BOM) else 0
        return self._base

    def _ended(self, held: list[Uint8s], ends: Ints, mark: int = 1) -> Iterator[_Found]:
        """Give records, of which the first begins at `base`; `mark` bytes at the end of each are no part of it."""
        base, line, begins = self._base, self._line, np.empty(len(ends), np.int64)
        begins[0], begins[1:] = base, ends[:-1]
        lengths = ends - begins
        lengths -= mark
        num_lines = len(ends) if self._rules.delimiter is None else sum(int(np.count_nonzero(part == NEWLINE)) for part in held)
        if lengths.max() > self._rules.max_line_bytes:
            raise self._too_long(np.concatenate(held)[: begins[(lengths > self._rules.max_line_bytes).argmax()] - base])
        left_out = self._left_out(held, begins, lengths) if self._rules.skip != "none" else []
        if self._first is not None and len(left_out) < len(begins):
            row = next(row for row, left in enumerate([*left_out, -1]) if row != left)
            call, self._first = self._first, None
            self.meta = call(self._text(held, int(begins[row]), int(lengths[row])))
            left_out.insert(row, row)
        at = np.array([line])
        if num_lines != len(ends):
            at = line + np.searchsorted(np.flatnonzero(np.concatenate(held) == NEWLINE), begins - base)
        elif left_out:
            at = np.arange(line, line + num_lines)
        self._base, self._line = int(ends[-1]), line + num_lines
        if left_out:
            begins, lengths, at = (np.delete(column, left_out) for column in (begins, lengths, at))
        if len(begins):
            yield base, held, begins, lengths, at

    def _left_out(self, held: list[Uint8s], begins: Ints, lengths: Ints) -> list[int]:
        """Return which records are left out, in order."""
        is_empty = self._rules.skip == "empty"
        if is_empty:
            odd = lengths <= 1
        else:  # few others begin so: letters, digits, brackets and quotes come behind
            odd = held[-1].take(begins - (self._base + sum(map(len, held[:-1]))), mode="clip") <= _LAST_WHITE
            odd[0] |= len(held) > 1
        rows = np.flatnonzero(odd).tolist() if odd.any() else []
        texts = (self._text(held, int(begins[row]), int(lengths[row])) for row in rows)
        return [row for row, text in zip(rows, texts, strict=True) if not text.strip(b"\r" if is_empty else _WHITE)]

    def _text(self, held: list[Uint8s], begin: int, length: int) -> bytes:
        """Return the bytes of a record."""
        place = begin - self._base - sum(map(len, held[:-1]))
        parts = [held[-1][place:]] if place >= 0 else [*held[:-1], held[-1][:length]]
        return b"".join(part[:length].data for part in parts)[:length]

    def _too_long(self, before: Uint8s) -> RecordError:
        """Return the error of the record behind so much of a block."""
        line = self._line + int(np.count_nonzero(before == NEWLINE)) + 1
        open_quote = self._rules.delimiter is not None and self._state == lines.QUOTED
        return RecordError(
            f"line {line} is longer than {self._rules.max_line_bytes} bytes",
            where=f"line {line} of {self._name!r}, offset {self._base + len(before)}",
            fix="a quote that is not closed makes all behind it one field" if open_quote else "check the file, or give max_line_bytes=",
        )
